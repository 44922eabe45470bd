//! The xmin horizon: who keeps the database from forgetting dead rows, by name.

use anyhow::Result;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::Finding;
use crate::duration;

/// A snapshot older than this is worth a name.
const OLD_MS: i64 = 5 * 60 * 1000;

/// Sessions, prepared transactions and replication slots, the oldest horizon first.
const HOLDERS: &str = "
    select * from (
      select age(coalesce(backend_xmin, backend_xid)) as held,
             pg_catalog.format('pid %s, user %s, application %s, %s%s: %s', pid, coalesce(usename, '?'),
                    coalesce(nullif(application_name, ''), '?'), coalesce(state, backend_type),
                    case when wait_event_type = 'Lock' then ', waits for a lock' else '' end,
                    coalesce(nullif(left(regexp_replace(query, '[[:space:]]+', ' ', 'g'), 120), ''), '?')) as holder,
             (1000 * extract(epoch from clock_timestamp() - coalesce(xact_start, backend_start)))::bigint as age_ms
        from pg_stat_activity
       where coalesce(backend_xmin, backend_xid) is not null and pid <> pg_backend_pid()
         and (datname = current_database() or datname is null)
      union all
      select age(transaction), pg_catalog.format('prepared transaction %s of %s', gid, owner),
             (1000 * extract(epoch from clock_timestamp() - prepared))::bigint
        from pg_prepared_xacts where database = current_database()
      union all
      select greatest(age(xmin), age(catalog_xmin)),
             pg_catalog.format('replication slot %s, %s', slot_name, case when active then 'active' else 'not in use' end),
             null
        from pg_replication_slots where coalesce(xmin, catalog_xmin) is not null) h
     order by held desc, age_ms desc nulls last limit 1";

/// Names the oldest holder. A slot has no age in time: one that holds over a million is old.
pub async fn examine(client: &Client) -> Result<Finding> {
    let none: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)] = &[];
    let Some(row) = client.query_typed_opt(HOLDERS, none).await? else {
        return Ok(Finding::ok("xmin horizon", "held by no session"));
    };
    let (held, holder, age_ms): (i32, &str, Option<i64>) = (row.get(0), row.get(1), row.get(2));
    let age = age_ms.map_or(String::new(), |ms| format!(" for {}", duration::show(ms)));
    let said = format!("held{age} ({held} transactions) by {holder}");
    let old = age_ms.map_or(held > 1_000_000, |ms| ms > OLD_MS);
    Ok(if old { Finding::warn("xmin horizon", said) } else { Finding::ok("xmin horizon", said) })
}
