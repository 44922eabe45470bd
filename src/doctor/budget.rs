//! Connections: compares those that are open, and those that workers may open, with the limit of
//! the server.

use anyhow::Result;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::finding::Found;
use super::remedy;

/// Connections of a worker that reported no number.
const USUAL: i64 = 6;

/// Percentage of the limit from which on a burst may find no free connection.
const MOST_PERCENT: i64 = 80;

/// The limit is that of the whole server. For workers of this database, all connections that they
/// may open count. For other applications, the open ones count. `reserved_connections` exists since
/// PostgreSQL 16. The type of a session is hidden from a role without `pg_read_all_stats`, but its
/// role and database are not. Most processes of the server lack one of the two.
const BUDGET: &str = "
    select (current_setting('max_connections')::int
            - current_setting('superuser_reserved_connections')::int
            - coalesce(current_setting('reserved_connections', true), '0')::int)::bigint,
           (select coalesce(sum(coalesce(connections, $1)), 0)::bigint
              from tuskline.executor where ended_at is null),
           count(*) filter (where own and application_name like 'tuskline %'),
           count(*) filter (where application_name not like 'tuskline %'
                                  and not (own and application_name = 'tuskline-worker')),
           count(*)
      from (select datname = current_database() as own, coalesce(application_name, '') as application_name
              from pg_stat_activity
             where backend_type = 'client backend'
                or backend_type is null and usesysid is not null and datid is not null) s";

/// The numbers of connections.
struct Budget {
    limit: i64,
    /// All that live workers may open.
    workers: i64,
    /// Open now, of servers and commands.
    servers: i64,
    /// Open now, of all other applications.
    applications: i64,
    /// Open now.
    now: i64,
}

/// Whether all live workers together may find the server full.
pub async fn examine(client: &Client) -> Result<Found> {
    let row = client.query_typed_one(BUDGET, &[(&USUAL, Type::INT8)]).await?;
    let (limit, workers, servers) = (row.get(0), row.get(1), row.get(2));
    Ok(judge(&Budget { limit, workers, servers, applications: row.get(3), now: row.get(4) }))
}

fn judge(budget: &Budget) -> Found {
    let Budget { limit, workers, servers, applications, now } = budget;
    let all = workers + servers + applications;
    let open = format!("{now} of {limit} open now");
    if 100 * all < MOST_PERCENT * limit {
        return Found::ok(format!("{open}; workers may take {workers}"));
    }
    Found::warn(
        format!(
            "{open}; workers may take {workers}, servers have {servers}, other applications {applications}: \
             {all} of {limit}. Raise the limit and restart, or run fewer workers"
        ),
        remedy::CONNECTIONS.with("connections", &(2 * all).to_string()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn workers_that_may_take_four_fifths_are_a_warning() {
        let low = Budget { limit: 100, workers: 70, servers: 5, applications: 4, now: 12 };
        assert_eq!(judge(&low).said, "12 of 100 open now; workers may take 70");
        let high = judge(&Budget { applications: 5, ..low });
        assert_eq!(high.verdict, Verdict::Warn);
        assert!(high.said.contains("80 of 100"), "{}", high.said);
    }
}
