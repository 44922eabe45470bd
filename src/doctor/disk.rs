//! The disk: how large a kept task is, what a day adds, and when the disk is full.
//!
//! Promises: unknown free space is reported as unknown. PostgreSQL has no SQL function for it. So
//! it comes from the operator, or from the file system if the server is reached through a socket of
//! this machine.

use anyhow::Result;
use serde::Deserialize;
use tokio_postgres::Client;
use tokio_postgres::config::Host;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tuskline_sdk::Address;

use super::finding::Found;
use super::remedy;
use super::segments::shown_days;
use crate::store::rows::row;

/// Fewer days than this are a warning: an operator may not act on a weekend.
const SOON_DAYS: f64 = 7.0;

/// Sizes of files, and estimates of rows. `longest` is the lambda whose tasks stay longest.
const USAGE: &str = "
    select sum(pg_total_relation_size(c.oid))::bigint as bytes,
           coalesce(sum(greatest(c.reltuples::bigint, pg_stat_get_live_tuples(c.oid)))
             filter (where c.relname ~ '^task_([0-9]+|kept)$'), 0)::bigint as tasks,
           extract(epoch from tuskline.clock() - (select min(g.opened_at) from tuskline.segment g))::float8 / 86400 as age,
           extract(epoch from l.keep)::float8 / 86400 + 1 as keep, quote_literal(l.name) as lambda,
           (select coalesce(nullif(pg_tablespace_location(d.dattablespace), ''),
                            (select s.setting from pg_settings s where s.name = 'data_directory'))
              from pg_database d where d.datname = current_database()) as directory
      from pg_class c
           left join (select name, greatest(retention, cancelled_retention, dropped_retention) as keep
                        from tuskline.lambda order by 2 desc limit 1) l on true
     where c.relnamespace in (to_regnamespace('tuskline')::oid, to_regnamespace('tuskline_core')::oid)
       and c.relkind = 'r'
     group by l.name, l.keep";

const SIZE: &str = "select pg_size_bytes($1)";

/// Sizes in bytes, times in days.
#[derive(Debug, Clone, Default, Deserialize)]
struct Usage {
    bytes: i64,
    tasks: i64,
    /// Age of the oldest segment.
    age: Option<f64>,
    /// Longest time that a task stays: its retention, and a day in which its segment is in use.
    keep: Option<f64>,
    /// Lambda whose tasks stay longest, as an SQL literal.
    lambda: Option<String>,
    /// Directory of the files, if the role may know it.
    directory: Option<String>,
    per_day: Option<f64>,
    free: Option<u64>,
}

/// Reads the sizes of files, and no table but `segment` and `lambda`. `per_day`: tasks of a day.
pub async fn examine(
    address: &Address,
    client: &Client,
    per_day: Option<f64>,
    given: Option<&str>,
) -> Result<Found> {
    let usage: Usage = row(client, USAGE, &[]).await?;
    let free = match given {
        Some(size) => Some(parse(client, size).await?),
        None => usage.directory.as_deref().and_then(|directory| free_here(address, directory)),
    };
    Ok(judge(&Usage { per_day, free, ..usage }))
}

/// A text that is no size.
#[derive(Debug, thiserror::Error)]
#[error("a size such as 120GB or 500MB, got {0}")]
pub struct WrongSize(String);

/// A size as PostgreSQL writes it.
async fn parse(client: &Client, size: &str) -> Result<u64> {
    let wrong = || WrongSize(size.to_owned()).into();
    match client.query_typed_one(SIZE, &[(&size, Type::TEXT)]).await {
        Ok(row) => u64::try_from(row.get::<_, i64>(0)).map_err(|_| wrong()),
        Err(error) if error.code() == Some(&SqlState::INVALID_PARAMETER_VALUE) => Err(wrong()),
        Err(error) => Err(error.into()),
    }
}

/// Free bytes of the file system, if the server is on this machine and its directory can be reached.
fn free_here(address: &Address, directory: &str) -> Option<u64> {
    let local = matches!(address.config().get_hosts(), [Host::Unix(_)]);
    let space = local.then(|| rustix::fs::statvfs(directory).ok())??;
    Some(space.f_bavail.saturating_mul(space.f_frsize))
}

fn judge(usage: &Usage) -> Found {
    let each = match usage.tasks {
        0 => "no task is kept".to_owned(),
        tasks => format!("{} bytes a kept task, {tasks} tasks", usage.bytes / tasks),
    };
    let head = format!("{} in use, {each}", shown(usage.bytes as f64));
    let (Some(per_day), true) = (usage.per_day, usage.tasks > 0) else {
        return Found::ok(format!("{head}; the first segment is too young for a rate"));
    };
    let growth = per_day * usage.bytes as f64 / usage.tasks as f64;
    let head = format!("{head}, {} a day at today's rate", shown(growth));
    let Some(free) = usage.free else {
        let said = "days until the disk is full: unknown; give the free space with --disk-free";
        return Found::ok(format!("{head}; {said}"));
    };
    let free = free as f64;
    let head = format!("{head}; {} free", shown(free));
    // Once the first segment retires, retention frees as much space as new tasks take.
    let left = (usage.keep.unwrap_or(0.0) - usage.age.unwrap_or(0.0)).max(0.0);
    if growth * left < free {
        let said = format!("{} more until retention frees as much", shown(growth * left));
        return Found::ok(format!("{head}, {said}"));
    }
    let days = free / growth;
    let said = format!("{head}: full in {}", shown_days(days));
    let remedy = remedy::SHORTER.with("lambda", usage.lambda.as_deref().unwrap_or_default());
    match days {
        ..1.0 => Found::fail(said, remedy),
        ..SOON_DAYS => Found::warn(said, remedy),
        _ => Found::ok(said),
    }
}

/// Bytes in a unit that is easy to read. Units are powers of 1,024, as in PostgreSQL.
fn shown(bytes: f64) -> String {
    let unit = [("TB", 40), ("GB", 30), ("MB", 20), ("kB", 10)];
    let large = |(_, power): &&(&str, i32)| bytes >= 10.0 * 2_f64.powi(*power);
    match unit.iter().find(large) {
        Some((name, power)) => format!("{:.0} {name}", bytes / 2_f64.powi(*power)),
        None => format!("{bytes:.0} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    const GB: u64 = 1 << 30;

    /// A store of 10 GB that grows by 1 GB a day, for 30 days.
    fn usage(free: Option<u64>, age: f64) -> Usage {
        Usage {
            bytes: 10 << 30,
            tasks: 10_000_000,
            age: Some(age),
            keep: Some(31.0),
            lambda: Some("'work'".to_owned()),
            directory: None,
            per_day: Some(1_000_000.0),
            free,
        }
    }

    #[test]
    fn the_disk_is_full_when_growth_has_taken_it() {
        let found = |free, age| {
            let finding = judge(&usage(Some(free), age));
            (finding.verdict, finding.said.rsplit([':', ',']).next().unwrap().trim().to_owned())
        };
        assert_eq!(found(GB / 2, 10.0), (Verdict::Fail, "full in 12.0 hours".into()));
        assert_eq!(found(6 * GB, 10.0), (Verdict::Warn, "full in 6 days".into()));
        assert_eq!(found(20 * GB, 10.0), (Verdict::Ok, "full in 20 days".into()));
        let fits = "21 GB more until retention frees as much".to_owned();
        assert_eq!(found(22 * GB, 10.0), (Verdict::Ok, fits));
        assert_eq!(found(GB / 2, 31.0).0, Verdict::Ok, "as much goes as comes");
    }

    #[test]
    fn free_space_that_is_not_known_is_said_to_be_unknown() {
        let said = judge(&usage(None, 10.0)).said;
        assert!(said.contains("full: unknown; give the free space with --disk-free"), "{said}");
        assert!(said.starts_with("10 GB in use, 1073 bytes a kept task, 10000000 tasks"), "{said}");
    }
}
