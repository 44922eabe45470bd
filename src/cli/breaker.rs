//! `breaker`: set, drop and list circuit breakers.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::json;
use tokio_postgres::Client;
use tuskline_sdk::verbs::{self, DROP_BREAKER, SET_BREAKER};

use super::failure::failed;
use super::global::Global;
use super::output;
use crate::duration;
use crate::store::rows::view;

/// `breaker ...`.
#[derive(Debug, Subcommand)]
pub enum BreakerCommand {
    /// Pause a lambda by itself when its attempts fail of one cause; change when.
    Set(SetArgs),
    /// Take a breaker away, and open the gate that it has set.
    Drop {
        /// Name of the lambda.
        lambda: String,
    },
    /// List the breakers, and which have tripped.
    List,
}

/// When it trips, and when it tries again.
#[derive(Debug, Args, Serialize)]
pub struct SetArgs {
    /// Name of the lambda.
    lambda: String,
    /// Failed attempts of one cause that trip it, at least [default: 20]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    failures: Option<i32>,
    /// How far back they are counted [default: 1m]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    #[serde(serialize_with = "duration::serialize")]
    window: Option<Duration>,
    /// Share of them in all attempts that end meanwhile, at least [default: 0.5]
    #[arg(long, value_name = "0..1", allow_hyphen_values = true)]
    #[serde(serialize_with = "verbs::float")]
    share: Option<f64>,
    /// After so long one task may pass, whose success opens the gate [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    #[serde(serialize_with = "duration::serialize")]
    probe_after: Option<Duration>,
}

pub async fn run(global: &Global, client: &Client, command: BreakerCommand) -> Result<()> {
    match command {
        BreakerCommand::Set(args) => set(global, client, &args).await,
        BreakerCommand::Drop { lambda } => drop_breaker(global, client, &lambda).await,
        BreakerCommand::List => list(global, client).await,
    }
}

async fn set(global: &Global, client: &Client, args: &SetArgs) -> Result<()> {
    SET_BREAKER.row(client, "true", &json!(args)).await?;
    let lambda = &args.lambda;
    let said =
        format!("the breaker of {lambda} is set; to take it away: tuskline breaker drop {lambda}");
    output::answer(global, &json!({"lambda": args.lambda, "set": true}), &said)
}

async fn drop_breaker(global: &Global, client: &Client, lambda: &str) -> Result<()> {
    if !DROP_BREAKER.call(client, &json!({ "lambda": lambda })).await? {
        return Err(failed(format!("lambda {lambda} has no breaker: tuskline breaker list")));
    }
    let said = format!("the breaker of {lambda} is gone");
    output::answer(global, &json!({"lambda": lambda, "dropped": true}), &said)
}

async fn list(global: &Global, client: &Client) -> Result<()> {
    let breakers = view(client, "breakers", &[], "order by lambda", &[]).await?;
    let columns = "lambda, state, trips at: trips_at, probes: probe_after_ms, gate: gate_id, \
        parked, trips, fingerprint";
    output::put_list(global, breakers, columns, "no breaker is set", |breaker| {
        let [failures, span, share] =
            ["failures", "span_ms", "share"].map(|name| output::field(breaker, name));
        breaker["trips_at"] = format!("{failures} in {span}, share {share}").into();
    })
}
