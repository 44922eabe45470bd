//! Connections: what workers and servers may take, held against what the server has.

use anyhow::Result;
use tokio_postgres::Client;

use super::Finding;

/// Connections of a worker that gave no number.
const USUAL: i64 = 6;

/// The limit is the whole server's. Workers of this database count with all connections that they may open.
/// Other applications count with those that are open now. `reserved_connections` exists since PostgreSQL 16.
const BUDGET: &str = "
    select (current_setting('max_connections')::int
            - current_setting('superuser_reserved_connections')::int
            - coalesce(current_setting('reserved_connections', true), '0')::int)::bigint,
           (select coalesce(sum(coalesce(connections, $1)), 0)::bigint
              from tuskline.executor where ended_at is null),
           count(*) filter (where own and application_name like 'tuskline %'),
           count(*) filter (where application_name not like 'tuskline %'
                                  and not (own and application_name = 'tuskline-worker'))
      from (select datname = current_database() as own, coalesce(application_name, '') as application_name
              from pg_stat_activity where backend_type = 'client backend') s";

/// The numbers of connections.
struct Budget {
    limit: i64,
    workers: i64,
    servers: i64,
    others: i64,
}

/// Whether all live workers together may find the server full.
pub async fn examine(client: &Client) -> Result<Finding> {
    let row =
        client.query_typed_one(BUDGET, &[(&USUAL, tokio_postgres::types::Type::INT8)]).await?;
    let (limit, workers, servers, others) = (row.get(0), row.get(1), row.get(2), row.get(3));
    Ok(judge(&Budget { limit, workers, servers, others }))
}

fn judge(budget: &Budget) -> Finding {
    let Budget { limit, workers, servers, others } = budget;
    let all = workers + servers + others;
    if all <= *limit {
        return Finding::ok("connections", format!("workers may take {workers} of {limit}"));
    }
    Finding::warn(
        "connections",
        format!(
            "workers may take {workers}, servers have {servers}, other applications {others}: {all} of {limit}. Raise \
             max_connections, lower WorkerConfig::exchange_connections, or run fewer workers (docs/connections.md)"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_that_may_fill_the_server_are_a_warning() {
        let full = Budget { limit: 97, workers: 90, servers: 5, others: 2 };
        assert!(judge(&full).said.starts_with("workers may take 90 of 97"));
        let over = Budget { others: 3, ..full };
        let said = judge(&over).said;
        assert!(said.contains("98 of 97") && said.contains("max_connections"), "{said}");
    }
}
