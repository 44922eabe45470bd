//! `periodic`: define schedules, show, pause and foresee them.

mod define;
mod preview;

use anyhow::Result;
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Value, json};
use tokio_postgres::Client;
use tokio_postgres::types::Type;
use tuskline_sdk::verbs::{DROP_PERIODIC, PAUSE_PERIODIC, RESUME_PERIODIC, RUN_PERIODIC, Verb};

use super::failure::{WrongCall, failed};
use super::global::Global;
use super::{arguments, database, output};
use crate::duration;
use crate::periodic::{CronSchedule, ScheduleError};
use crate::store::rows::rows;

/// `periodic ...`.
#[derive(Debug, Subcommand)]
pub enum PeriodicCommand {
    /// Define a schedule, or change one; the same again changes nothing.
    Define(define::DefineArgs),
    /// List every schedule, its last tick and its next.
    List,
    /// Show one schedule and its next ten ticks.
    Show {
        /// Name of the schedule.
        name: String,
    },
    /// Pause a schedule, at once; ticks of the pause are not made up for.
    Pause(Which),
    /// Let a paused schedule go on with its next tick.
    Resume(Which),
    /// Schedule the task of a schedule once, due now, besides its ticks.
    Run(Which),
    /// Take a schedule away; tasks that it scheduled stay.
    Drop(Which),
    /// Print the next ten ticks of a schedule, or of a cron that is none yet.
    Preview(PreviewArgs),
}

/// A schedule, and why.
#[derive(Debug, Args, Serialize)]
pub struct Which {
    /// Name of the schedule.
    name: String,
    /// Why, for the audit.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// The schedule and the number of ticks to show.
#[derive(Debug, Args)]
pub struct PreviewArgs {
    /// Name of the schedule.
    #[arg(required_unless_present = "cron", conflicts_with = "cron")]
    name: Option<String>,
    /// A cron, without a database.
    #[arg(long)]
    cron: Option<String>,
    /// Time zone whose clocks it goes by.
    #[arg(long, default_value = "UTC", requires = "cron")]
    zone: String,
    /// Ticks after then; default: now.
    #[arg(long, value_name = "RFC3339", value_parser = arguments::instant)]
    after: Option<DateTime<Utc>>,
}

pub async fn run(global: &Global, command: PeriodicCommand) -> Result<()> {
    let open = database::open(global);
    match command {
        // Opens later, if at all: standard input may take its time.
        PeriodicCommand::Define(args) => define::run(global, args).await,
        PeriodicCommand::Preview(args) => foresee(global, args).await,
        PeriodicCommand::List => list(global, open.await?.client()).await,
        PeriodicCommand::Show { name } => show(global, open.await?.client(), &name).await,
        PeriodicCommand::Pause(which) => {
            set(global, open.await?.client(), PAUSE_PERIODIC, &which, "paused").await
        }
        PeriodicCommand::Resume(which) => {
            set(global, open.await?.client(), RESUME_PERIODIC, &which, "resumed").await
        }
        PeriodicCommand::Run(which) => run_once(global, open.await?.client(), &which).await,
        PeriodicCommand::Drop(which) => {
            set(global, open.await?.client(), DROP_PERIODIC, &which, "dropped").await
        }
    }
}

/// Refuses a cron that no server can read. SQL cannot check all of it.
fn read(cron: &str, zone: &str) -> Result<CronSchedule> {
    Ok(CronSchedule::parse(cron, zone).map_err(|error| WrongCall(error.to_string()))?)
}

/// The last instant before another, so that what is after it may be that one.
fn before(instant: DateTime<Utc>) -> DateTime<Utc> {
    instant - chrono::TimeDelta::microseconds(1)
}

async fn set(
    global: &Global,
    client: &Client,
    verb: Verb,
    which: &Which,
    done: &str,
) -> Result<()> {
    let name = &which.name;
    if !verb.call(client, &json!(which)).await? {
        return Err(unknown(name));
    }
    output::answer(global, &json!({"name": name, "said": done}), &format!("{name} is {done}"))
}

async fn run_once(global: &Global, client: &Client, which: &Which) -> Result<()> {
    let name = &which.name;
    let task: Option<i64> = RUN_PERIODIC.call(client, &json!(which)).await?;
    let task = task.ok_or_else(|| unknown(name))?;
    let said = format!("{name} has scheduled task {task}");
    output::answer(global, &json!({"name": name, "task": task}), &said)
}

fn unknown(name: &str) -> anyhow::Error {
    failed(format!("there is no schedule {name}: tuskline periodic list"))
}

/// The payload as text: it may be deeper than a parser likes.
const SCHEDULES: &str = "
    select name, lambda, cron, zone, enabled, last_tick, next_tick, last_task, last_status, problem, payload::text as payload, collection,
           priority, missed, missed_max, grace, overlap, starts_at, ends_at, author, set_at,
           (1000 * extract(epoch from next_tick - tuskline.clock()))::bigint as next_ms,
           (1000 * extract(epoch from tuskline.clock() - last_tick))::bigint as last_ms
      from tuskline.periodics where $1::text is null or name = $1 order by name";

async fn list(global: &Global, client: &Client) -> Result<()> {
    let schedules = rows(client, SCHEDULES, &[(&None::<&str>, Type::TEXT)]).await?;
    let columns = "name, lambda, cron, zone, next, last, task: last_task, status: last_status, \
        problem";
    output::put_list(global, schedules, columns, "no schedule is defined", |schedule| {
        schedule["next"] = next(schedule).into();
        schedule["last"] = last(schedule).into();
    })
}

fn next(schedule: &Value) -> String {
    match (schedule["enabled"].as_bool(), schedule["next_ms"].as_i64()) {
        (Some(false), _) => "paused".to_owned(),
        (_, Some(ms @ 0..)) => format!("in {}", duration::show(ms)),
        (_, Some(_)) => "now".to_owned(),
        (_, None) if schedule["problem"].is_null() => "none".to_owned(),
        (_, None) => "unknown".to_owned(),
    }
}

fn last(schedule: &Value) -> Option<String> {
    schedule["last_ms"].as_i64().map(|ms| format!("{} ago", duration::show(ms)))
}

async fn show(global: &Global, client: &Client, name: &str) -> Result<()> {
    let mut schedule = one(client, name).await?;
    let ticks = ticks_of(&schedule, now(client).await?);
    if global.json {
        if let Ok(payload) = serde_json::from_str(&output::field(&schedule, "payload")) {
            schedule["payload"] = payload;
        }
        schedule["ticks"] = ticks
            .map_or(Value::Null, |(cron_schedule, ticks)| preview::json(&cron_schedule, &ticks));
        return Ok(output::put_json(&schedule)?);
    }
    if schedule["missed"] == "all" {
        schedule["missed"] =
            format!("all, at most {}", output::field(&schedule, "missed_max")).into();
    }
    schedule["last"] = last(&schedule).into();
    schedule["next"] = next(&schedule).into();
    let fields = "name, lambda, cron, zone, collection, priority, missed, grace, overlap, \
        starts at: starts_at, ends at: ends_at, last tick: last, last task: last_task, \
        its status: last_status, next, problem, defined by: author, payload";
    output::put_fields(&schedule, fields)?;
    output::put("")?;
    match ticks {
        Ok((cron_schedule, ticks)) => Ok(preview::put(&cron_schedule, &ticks)?),
        Err(error) => Ok(output::put(&error.to_string())?),
    }
}

async fn one(client: &Client, name: &str) -> Result<Value> {
    let schedules: Vec<Value> = rows(client, SCHEDULES, &[(&name, Type::TEXT)]).await?;
    schedules.into_iter().next().ok_or_else(|| unknown(name))
}

async fn now(client: &Client) -> Result<DateTime<Utc>> {
    Ok(client.query_typed_one("select tuskline.clock()", &[]).await?.get(0))
}

fn ticks_of(
    schedule: &Value,
    now: DateTime<Utc>,
) -> Result<(CronSchedule, Vec<DateTime<Utc>>), ScheduleError> {
    let cron_schedule =
        CronSchedule::parse(&output::field(schedule, "cron"), &output::field(schedule, "zone"))?;
    let instant = |name: &str| output::field(schedule, name).parse::<DateTime<Utc>>().ok();
    let after = instant("starts_at").map_or(now, |starts| now.max(before(starts)));
    let ticks = preview::ticks(&cron_schedule, after, instant("ends_at"))?;
    Ok((cron_schedule, ticks))
}

async fn foresee(global: &Global, args: PreviewArgs) -> Result<()> {
    let (cron_schedule, ticks) = match (&args.cron, &args.name) {
        (None, Some(name)) => {
            let session = database::open(global).await?;
            let schedule = one(session.client(), name).await?;
            let after = match args.after {
                Some(after) => after,
                None => now(session.client()).await?,
            };
            ticks_of(&schedule, after).map_err(|error| failed(error.to_string()))?
        }
        (cron, _) => {
            let cron_schedule = read(cron.as_deref().unwrap_or_default(), &args.zone)?;
            let ticks = preview::ticks(&cron_schedule, args.after.unwrap_or_else(Utc::now), None)?;
            (cron_schedule, ticks)
        }
    };
    if global.json {
        return Ok(output::put_json(&preview::json(&cron_schedule, &ticks))?);
    }
    Ok(preview::put(&cron_schedule, &ticks)?)
}
