//! `doctor`: examines the database before the night does.
//!
//! Promises: one line for each thing examined: ok, warn or fail, with what to do; exit code 1 when
//! one fails. Must never: change anything. (It sends one notification, to itself.)

mod archive;
mod budget;
mod connection;
mod damage;
mod horizon;
mod locks;
mod periodic;
mod schema;
mod settings;
mod workers;

use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;
use serde_json::json;

use super::{Global, Outcome, database, output};
use crate::session::{Deadlines, Session};

/// How a thing was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// One line of the doctor's.
#[derive(Debug, Serialize)]
struct Finding {
    verdict: Verdict,
    examined: &'static str,
    said: String,
}

impl Finding {
    fn ok(examined: &'static str, said: impl Into<String>) -> Self {
        Self { verdict: Verdict::Ok, examined, said: said.into() }
    }

    fn warn(examined: &'static str, said: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warn, examined, said: said.into() }
    }

    fn fails(&self) -> bool {
        self.verdict == Verdict::Fail
    }

    fn fail(examined: &'static str, said: impl Into<String>) -> Self {
        Self { verdict: Verdict::Fail, examined, said: said.into() }
    }
}

pub async fn run(global: &Global) -> Outcome {
    let address = database::find(global)?;
    let session = Session::plain(&address, "doctor").await?;
    let mut findings = vec![Finding::ok("connection", database::shown(&address))];
    findings.extend(examine(&address, &session).await?);
    put(global, &findings)?;
    let failed = findings.iter().any(Finding::fails);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn examine(address: &tuskline_sdk::Address, session: &Session) -> Result<Vec<Finding>> {
    let client = session.client();
    let mut findings = connection::server(client).await?;
    findings.extend(schema::examine(client).await?);
    if findings.iter().any(|finding| finding.examined == connection::PART && finding.fails()) {
        // The rest is about a server that tasks go through.
        return Ok(findings);
    }
    let other = Session::open(address, "doctor", Deadlines::USUAL).await?;
    findings.push(connection::pooler(client, other.client()).await?);
    findings.push(connection::notifications(address, &other).await?);
    findings.push(connection::clock(client).await?);
    findings.push(horizon::examine(client).await?);
    findings.extend(locks::examine(client).await?);
    findings.extend(settings::examine(client).await?);
    Ok(findings)
}

fn put(global: &Global, findings: &[Finding]) -> std::io::Result<()> {
    if global.json {
        return output::put_json(&json!(findings));
    }
    let verdict = |finding: &Finding| match finding.verdict {
        Verdict::Ok => "ok",
        Verdict::Warn => "warn",
        Verdict::Fail => "FAIL",
    };
    let line = |f: &Finding| vec![verdict(f).into(), f.examined.into(), f.said.clone()];
    output::put_table(&["", "examined", "found"], findings.iter().map(line).collect(), "")
}
