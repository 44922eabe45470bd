//! Schedules that tick all through a phase: a hundred each second, some each second or fifth, in
//! several time zones. Most have a start and an end, so their due ticks are known exactly. A few
//! are paused now and then. The history records the due ticks by the database's clock, from the
//! answers to the calls.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;
use tuskline_history::{Event, Periodic};

use super::{Done, of_our_own};
use crate::stage::Stage;
use crate::timetable::Planned;

const SECOND_US: i64 = 1_000_000;
/// How late a tick may be before it is a missed one: the least there is.
const GRACE_MS: u64 = 1_000;
/// From their definition to the first tick of those that have a start, in seconds.
const LEAD_S: i64 = 2;

/// Crons, and how many schedules have each.
const CRONS: [(&str, i64); 3] = [("* * * * * *", 103), ("*/2 * * * * *", 6), ("*/5 * * * * *", 4)];
/// The number of schedules that are paused in turn: the first ones.
const PAUSED: usize = 3;
const ZONES: [&str; 4] = ["UTC", "Europe/Berlin", "Asia/Kolkata", "America/New_York"];
const LAMBDAS: [&str; 3] = ["quick", "flaky", "blocking"];

/// A schedule, and what it owes.
struct Schedule {
    periodic: Periodic,
    /// Number of the call in its tasks' payload; clients have none so small.
    op: i64,
    /// How long its tasks take.
    ms: i64,
    /// It has a start of its own.
    starts: bool,
}

/// Defines schedules, pauses and resumes some, and waits until the last tick is dealt with.
pub async fn tick(stage: &Stage, fault: Planned) -> Done {
    let end = Instant::now() + Duration::from_millis(fault.span_ms);
    drop(of_our_own(stage, fault));
    let mut client = stage.session().await?;
    let mut schedules = schedules();
    define(&client, &mut schedules, fault.span_ms).await?;
    let mut rng = fastrand::Rng::with_seed(fault.choice);
    for at in (0..PAUSED).cycle() {
        let (before, paused) = (rng.u64(1_000..3_000), rng.u64(1_200..3_000));
        let (before, paused) = (Duration::from_millis(before), Duration::from_millis(paused));
        if Instant::now() + before + paused + Duration::from_secs(1) > end {
            break;
        }
        sleep(before).await;
        pause(&mut client, &mut schedules[at].periodic, paused).await?;
    }
    sleep_until(end).await;
    catch_up(&client, stage.scale.patience).await?;
    for schedule in schedules {
        stage.faults.writer().note(Event::Periodic(schedule.periodic));
    }
    Ok(None)
}

fn schedules() -> Vec<Schedule> {
    let crons = CRONS.iter().flat_map(|(cron, count)| (0..*count).map(move |_| *cron));
    let schedule = |(at, cron): (usize, &str)| Schedule {
        periodic: Periodic {
            name: format!("schedule_{at}"),
            lambda: LAMBDAS[at % LAMBDAS.len()].to_owned(),
            cron: cron.to_owned(),
            zone: ZONES[at % ZONES.len()].to_owned(),
            grace_ms: GRACE_MS,
            owed: Vec::new(),
            open: Vec::new(),
        },
        op: i64::try_from(at).unwrap_or(i64::MAX) + 1,
        // Longer than from one tick to the next: they overlap, as they may.
        ms: if at % 25 == 24 { 1_500 } else { 5 },
        starts: at % 10 != 9,
    };
    crons.enumerate().map(schedule).collect()
}

const DEFINE: &str = "
select tuskline.define_periodic(d.name, d.lambda, d.cron, d.payload, d.zone,
         p_missed => 'all', p_missed_most => 1000, p_grace => $9::bigint * interval '1 ms',
         p_starts_at => case when d.starts then to_timestamp($7::bigint) end, p_ends_at => to_timestamp($8::bigint))
  from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::boolean[])
    as d (name, lambda, cron, zone, payload, starts)";

/// All in one statement. They end within the phase.
async fn define(client: &Client, schedules: &mut [Schedule], phase_ms: u64) -> anyhow::Result<()> {
    let before_us = now_us(client).await?;
    let first_s = before_us / SECOND_US + 1 + LEAD_S;
    let end_s = first_s - LEAD_S + i64::try_from(phase_ms / 1_000)?;
    let of = |field: fn(&Periodic) -> &String| {
        schedules.iter().map(|one| field(&one.periodic).clone()).collect::<Vec<_>>()
    };
    let (names, lambdas) = (of(|one| &one.name), of(|one| &one.lambda));
    let (crons, zones) = (of(|one| &one.cron), of(|one| &one.zone));
    let payloads: Vec<_> = schedules.iter().map(payload).collect();
    let starts: Vec<_> = schedules.iter().map(|one| one.starts).collect();
    let values: [&(dyn ToSql + Sync); 9] = [
        &names,
        &lambdas,
        &crons,
        &zones,
        &payloads,
        &starts,
        &first_s,
        &end_s,
        &i64::try_from(GRACE_MS)?,
    ];
    client.execute(DEFINE, &values).await?;
    let after_us = now_us(client).await?;
    anyhow::ensure!(after_us < first_s * SECOND_US, "to define them took {LEAD_S} s and more");
    for one in schedules {
        let (from_us, end_us) = (first_s * SECOND_US, end_s * SECOND_US);
        if one.starts {
            one.periodic.owed.push((from_us, end_us));
        } else {
            one.periodic.open.push((before_us, after_us));
            one.periodic.owed.push((after_us, end_us));
        }
    }
    Ok(())
}

fn payload(schedule: &Schedule) -> String {
    let fail_until = i64::from(schedule.op % 40 == 2);
    let (op, ms, name) = (schedule.op, schedule.ms, &schedule.periodic.name);
    json!({"op": op, "n": 0, "ms": ms, "fail_until": fail_until, "schedule": name}).to_string()
}

/// The database's time, in microseconds since 1970.
pub(super) async fn now_us(client: &Client) -> anyhow::Result<i64> {
    let sql = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
    Ok(client.query_one(sql, &[]).await?.get(0))
}

/// Pauses a schedule. Ticks due before the pause and not fired are not owed, so the pausing
/// transaction reads the last tick. Ticks of the pause are not owed either. Ticks that fall due
/// during the call to resume are left open.
async fn pause(client: &mut Client, periodic: &mut Periodic, rest: Duration) -> anyhow::Result<()> {
    let transaction = client.transaction().await?;
    let name = &periodic.name;
    transaction.execute("select tuskline.pause_periodic($1, 'a pause')", &[name]).await?;
    let last = "select (extract(epoch from max(tick)) * 1000000)::bigint from tuskline.tick where name = $1";
    let last_us: Option<i64> = transaction.query_one(last, &[name]).await?.get(0);
    transaction.commit().await?;
    sleep(rest).await;
    let before_us = now_us(client).await?;
    client.execute("select tuskline.resume_periodic($1, 'the pause is over')", &[name]).await?;
    let after_us = now_us(client).await?;
    let Some((from_us, end_us)) = periodic.owed.pop() else { return Ok(()) };
    let fired_us = last_us.map_or(from_us, |last_us| last_us + 1);
    periodic.owed.extend([(from_us, fired_us.max(from_us)), (after_us.max(from_us), end_us)]);
    periodic.open.push((before_us, after_us));
    Ok(())
}

/// Waits until no schedule has another tick. The checker, not this function, judges the outcome.
async fn catch_up(client: &Client, patience: Duration) -> anyhow::Result<()> {
    let began = Instant::now();
    let sql = "select count(*) from tuskline.periodic where next_tick is distinct from 'infinity'";
    while client.query_one(sql, &[]).await?.get::<_, i64>(0) > 0 && began.elapsed() < patience {
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
