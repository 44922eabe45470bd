//! Segments: how long the ready ones will last, and whether those past their retention are retired.

use anyhow::Result;
use tokio_postgres::{Client, Row};

use super::finding::Found;
use super::remedy::{self, Remedy};
use crate::store;

/// If fewer segments than this are ready, no janitor is at work.
const SEGMENTS_AHEAD: i32 = 4;

/// For the two ranges of ids: the ids left in ready segments, and the ids used since when. A
/// segment whose next one was opened within the last day counts as filled.
const USE: &str = "
    select tuskline.segments_ahead(), sum(u.used) filter (where u.seconds >= 600) / max(u.seconds) * 86400,
           min(u.left_ids / nullif(u.used / u.seconds, 0)) filter (where u.seconds >= 600) / 86400
      from (
        select ((n.current + 1 + tuskline.segments_ahead()) * 16777216 - n.last_value)::float8 as left_ids,
               (count(*) filter (where g.segment_no < n.current) * 16777216 + n.last_value % 16777216)::float8 as used,
               extract(epoch from tuskline.clock() - min(g.opened_at))::float8 as seconds
          from (select i.first_id, i.last_value, tuskline_core.segment_of(i.last_value) as current
                  from tuskline_core.id_range() i) n
               join tuskline.segment g
                 on g.segment_no between tuskline_core.segment_of(n.first_id) and n.current
         where g.segment_no = n.current or g.opened_at > tuskline.clock() - interval '1 day'
         group by n.current, n.last_value) u";

/// The segments that were used up longer ago than the longest retention. Segments that wait for an
/// archive are left out. The reason is the first one that applies.
const OVERDUE: &str = "
    with u as (
      select g.*, lead(g.opened_at) over (partition by i.name order by g.segment_no) as used_up_at
        from tuskline.segment g
             join tuskline_core.id_range() i on g.segment_no between tuskline_core.segment_of(i.first_id)
                                                                and tuskline_core.segment_of(i.last_id)
       where g.opened_at is not null),
    o as (
      select u.segment_no, u.late_writers,
             case when f.stage = 'pending' then 'detach'
                  when u.late_writers <> '{}' then 'writers'
                  when f.stage is not null or u.ripe_at < tuskline.clock() - interval '1 hour' then 'janitor'
                  else 'busy' end as reason
        from u left join tuskline.segments_to_finish() f on f.segment_no = u.segment_no
       where u.unarchived_since is null
         and (u.used_up_at + interval '1 day' + (
                select max(greatest(l.retention, l.cancelled_retention, l.dropped_retention)) from tuskline.lambda l)
                < tuskline.clock()
              or f.stage is not null and tuskline_core.lock_holders(
                   'tuskline_core.retention_guard', '{ShareRowExclusiveLock}') is null))
    select count(*) over (), o.segment_no, o.reason, w.name, w.pid, w.gid
      from o left join lateral (
             select tuskline_core.name_transaction(v.number) as name, k.pid::text as pid, quote_literal(x.gid) as gid
               from unnest(o.late_writers) as v (number)
                    cross join lateral (
                      select l.pid, max(l.transactionid::text) as xid from pg_locks l
                       where l.virtualtransaction = v.number and l.granted group by l.pid limit 1) k
                    left join pg_prepared_xacts x on k.pid is null and x.transaction::text = k.xid
              limit 1) w on o.reason = 'writers'
     order by o.segment_no limit 1";

/// How fast ids are used.
#[derive(Debug, Clone, Copy)]
pub struct UseOfIds {
    ahead: i32,
    /// Tasks of a day. None: the first segment is too young to tell.
    pub per_day: Option<f64>,
    /// Days until the segments that are ready are used up, without a janitor.
    days_left: Option<f64>,
}

/// Reads two sequences and a row for each segment.
pub async fn use_of_ids(client: &Client) -> Result<UseOfIds> {
    let row = client.query_typed_one(USE, &[]).await?;
    Ok(UseOfIds { ahead: row.get(0), per_day: row.get(1), days_left: row.get(2) })
}

/// Whether a janitor makes segments in time.
pub fn ahead(of: &UseOfIds) -> Found {
    let days = match of.days_left {
        Some(days) => format!(", enough for {} at today's rate", shown_days(days)),
        None => String::new(),
    };
    let room = format!("{} ready ahead, of 16.7 million tasks each{days}", of.ahead);
    match of.ahead {
        ..1 => Found::fail(format!("{room}: no janitor makes more"), remedy::SERVE),
        1..SEGMENTS_AHEAD => Found::warn(format!("{room}: no janitor makes more"), remedy::SERVE),
        _ => Found::ok(room),
    }
}

/// Days as text, in a unit that is easy to read.
pub fn shown_days(days: f64) -> String {
    match days {
        3_650.0.. => "over 10 years".to_owned(),
        2.0.. => format!("{days:.0} days"),
        _ => format!("{:.1} hours", 24.0 * days),
    }
}

/// Whether a segment stays although it is past its retention. The line `archive` reports segments
/// that wait for a file.
pub async fn retirement(client: &Client) -> Result<Found> {
    let rows = client.query_typed(OVERDUE, &[]).await?;
    Ok(match rows.first() {
        None => Found::ok("no segment is overdue"),
        Some(row) => overdue(row),
    })
}

/// Counts what is past its retention and waits for a directory.
pub async fn unarchived(client: &Client) -> Result<Found> {
    let (segments, tasks) = store::archive::unarchived(client).await?;
    if segments + tasks == 0 {
        return Ok(Found::ok("nothing waits for a file"));
    }
    let said = format!(
        "{segments} segments and {tasks} kept tasks are past their retention and wait for a file"
    );
    Ok(Found::warn(said, remedy::ARCHIVE))
}

fn overdue(row: &Row) -> Found {
    let (all, first): (i64, i64) = (row.get(0), row.get(1));
    let (reason, remedy) = reason(row);
    let said = format!("{all} segments are past their retention and stay; task_{first} {reason}");
    Found::warn(said, remedy)
}

fn reason(row: &Row) -> (String, Remedy) {
    match row.get(2) {
        "detach" => {
            let said = "waits for a transaction that began before its DETACH".to_owned();
            (said, remedy::SERVE)
        }
        "writers" => {
            let name: Option<&str> = row.get(3);
            let remedy = match (row.get::<_, Option<&str>>(4), row.get::<_, Option<&str>>(5)) {
                (Some(pid), _) => remedy::END_SESSION.with("pid", pid),
                (_, Some(gid)) => remedy::ROLLBACK_PREPARED.with("gid", gid),
                _ => remedy::SERVE,
            };
            (format!("waits for the end of {}", name.unwrap_or("a transaction")), remedy)
        }
        "janitor" => ("waits for a janitor".to_owned(), remedy::SERVE),
        _ => {
            let said = "has tasks that are queued or run, or mostly tasks that wait".to_owned();
            (said, remedy::BUSY_SEGMENT)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn few_segments_ahead_are_a_warning_and_none_a_failure() {
        let of = |ahead| ahead_of(ahead).verdict;
        assert_eq!([8, 4, 3, 1, 0, -1].map(of), {
            use Verdict::{Fail, Ok, Warn};
            [Ok, Ok, Warn, Warn, Fail, Fail]
        });
        assert!(ahead_of(8).said.ends_with("enough for 3.6 hours at today's rate"));
    }

    fn ahead_of(segments: i32) -> Found {
        ahead(&UseOfIds { ahead: segments, per_day: None, days_left: Some(0.15) })
    }

    #[test]
    fn days_are_said_as_people_say_them() {
        assert_eq!(
            [0.15, 1.99, 2.4, 4_000.0].map(shown_days),
            ["3.6 hours", "47.8 hours", "2 days", "over 10 years"]
        );
    }
}
