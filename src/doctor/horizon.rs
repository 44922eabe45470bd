//! The xmin horizon: which sessions, prepared transactions, slots and standbys keep dead rows, since when, and
//! what that costs now.

use std::time::Duration;

use anyhow::Result;
use tokio_postgres::{Client, Row};

use super::finding::{Finding, Found};
use super::remedy::{self, Remedy};
use crate::duration;

/// A slot or a standby has no age in time. One that is behind by so many transactions is old.
const OLD_TRANSACTIONS: i32 = 1_000_000;

/// Name of its lines.
pub const LINE: &str = "xmin horizon";

/// Most holders that get a line.
const MOST_NAMED: usize = 5;

/// The oldest horizon first. A vacuum holds no horizon, so it is left out. A snapshot of another
/// database keeps no row of this one.
const HOLDERS: &str = "
    select * from (
      select age(coalesce(backend_xmin, backend_xid)) as held, 'session' as kind, pid::text as key,
             pg_catalog.format('pid %s, user %s, application %s, %s%s: %s', pid, coalesce(usename, '?'),
                    coalesce(nullif(application_name, ''), '?'), coalesce(state, backend_type),
                    case when wait_event_type = 'Lock' then ', waits for a lock' else '' end,
                    coalesce(nullif(left(regexp_replace(query, '[[:space:]]+', ' ', 'g'), 120), ''), '?')) as name,
             (1000 * extract(epoch from clock_timestamp() - coalesce(xact_start, backend_start)))::bigint as age_ms
        from pg_stat_activity
       where coalesce(backend_xmin, backend_xid) is not null and pid <> pg_backend_pid()
         and (datname = current_database() or datname is null) and backend_type <> 'walsender'
         and pid not in (select pid from pg_stat_progress_vacuum)
      union all
      select age(transaction), 'prepared', quote_literal(gid),
             pg_catalog.format('prepared transaction %s of %s', gid, owner),
             (1000 * extract(epoch from clock_timestamp() - prepared))::bigint
        from pg_prepared_xacts where database = current_database()
      union all
      select greatest(age(xmin), age(catalog_xmin)), case when active then 'active slot' else 'slot' end,
             quote_literal(slot_name),
             pg_catalog.format('replication slot %s, %s%s', slot_name,
               case when active then 'active' else 'not in use' end,
               case when xmin is null then ', rows of the catalogue only' else '' end),
             null
        from pg_replication_slots where coalesce(xmin, catalog_xmin) is not null
      union all
      select age(backend_xmin), 'standby', pid::text,
             pg_catalog.format('feedback of standby %s at %s, pid %s', coalesce(nullif(application_name, ''), '?'),
                    coalesce(host(client_addr), 'a socket'), pid),
             null
        from pg_stat_replication where backend_xmin is not null) h
     order by held desc, age_ms desc nulls last limit 20";

/// Whether this role sees the sessions of all roles.
const SEES_ALL: &str = "select pg_has_role('pg_read_all_stats', 'usage')";

/// Whether the metrics see the sessions of all roles: their function runs as its owner.
const OWNER: &str = "
    select quote_ident(pg_get_userbyid(p.proowner)), pg_has_role(p.proowner, 'pg_read_all_stats', 'usage')
      from pg_proc p where p.oid = to_regprocedure('tuskline.gauges()')";

/// Dead rows of all tables of the schema, and the pages that they fill.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    pub dead: i64,
    pub pages: i64,
}

/// Kind of a holder, by what ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Session,
    Prepared,
    Slot,
    ActiveSlot,
    Standby,
}

/// A session, transaction, slot or standby that keeps dead rows.
#[derive(Debug, Clone)]
pub struct Holder {
    kind: Kind,
    /// A pid, or a name as an SQL literal.
    key: String,
    name: String,
    transactions: i32,
    /// None: it has no age in time.
    age_ms: Option<i64>,
    is_old: bool,
}

impl Holder {
    /// `old_ms`: from this age on it gets a line.
    fn of_row(row: &Row, old_ms: i64) -> Self {
        let kind = match row.get(1) {
            "prepared" => Kind::Prepared,
            "slot" => Kind::Slot,
            "active slot" => Kind::ActiveSlot,
            "standby" => Kind::Standby,
            _ => Kind::Session,
        };
        let (transactions, age_ms): (i32, Option<i64>) = (row.get(0), row.get(4));
        let is_old = age_ms.map_or(transactions > OLD_TRANSACTIONS, |ms| ms > old_ms);
        Self { kind, key: row.get(2), name: row.get(3), transactions, age_ms, is_old }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn is_old(&self) -> bool {
        self.is_old
    }

    /// The command that ends it.
    pub fn remedy(&self) -> Remedy {
        match self.kind {
            Kind::Session => remedy::END_SESSION.with("pid", &self.key),
            Kind::Prepared => remedy::ROLLBACK_PREPARED.with("gid", &self.key),
            Kind::Slot => remedy::DROP_SLOT.with("slot", &self.key),
            Kind::ActiveSlot => remedy::END_SLOT.with("slot", &self.key),
            Kind::Standby => remedy::FEEDBACK,
        }
    }

    fn said(&self) -> String {
        let age = self.age_ms.map_or(String::new(), |ms| format!(" for {}", duration::show(ms)));
        let hint =
            if self.kind == Kind::Standby { " (the command is for the standby)" } else { "" };
        format!("held{age} ({} transactions) by {}{hint}", self.transactions, self.name)
    }
}

/// The holders of the horizon, the oldest first.
pub async fn holders(client: &Client, old_after: Duration) -> Result<Vec<Holder>> {
    let rows = client.query_typed(HOLDERS, &[]).await?;
    let old_ms = duration::milliseconds(old_after);
    Ok(rows.iter().map(|row| Holder::of_row(row, old_ms)).collect())
}

/// A line for each old holder, with the dead rows that it may keep.
pub async fn judge(client: &Client, holders: &[Holder], cost: Cost) -> Result<Vec<Finding>> {
    let Cost { dead, pages } = cost;
    let old = |holder: &&Holder| holder.is_old();
    let named = holders.iter().filter(old).take(MOST_NAMED).map(|holder| {
        let said = format!("{}; {dead} dead rows, about {pages} pages, stay now", holder.said());
        Finding::new(LINE, Found::warn(said, holder.remedy()))
    });
    let named: Vec<Finding> = named.collect();
    if !named.is_empty() {
        return Ok(named);
    }
    let sees_all: bool = client.query_typed_one(SEES_ALL, &[]).await?.get(0);
    let held = holders.first().map_or("held by no session".to_owned(), Holder::said);
    let hidden = match sees_all {
        true => "",
        false => "; sessions of other roles are hidden: grant pg_read_all_stats to this role",
    };
    Ok(vec![Finding::new(LINE, Found::ok(format!("{held}{hidden}")))])
}

/// A line about the role as which the metrics read the sessions.
pub async fn owner(client: &Client) -> Result<Found> {
    let row = client.query_typed_opt(OWNER, &[]).await?;
    let hidden = row.filter(|row| !row.get::<_, bool>(1));
    Ok(match hidden {
        None => Found::ok("see the sessions of all roles"),
        Some(row) => {
            let owner: &str = row.get(0);
            let said = format!(
                "{owner}, the owner of the functions, does not see the sessions of other roles: \
                 tuskline_horizon_seconds and tuskline_connections have no sample"
            );
            Found::warn(said, remedy::SEE_SESSIONS.with("owner", owner))
        }
    })
}
