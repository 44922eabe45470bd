//! Dead rows of the tables of the schema, by the statistics of the server. No table is read.

use anyhow::Result;
use serde::Deserialize;
use tokio_postgres::Client;

use super::finding::Found;
use super::horizon::{Cost, Holder};
use super::remedy;
use crate::duration;
use crate::store::rows::rows;

/// Fewer dead rows cost next to nothing: a page holds about 150 rows of a queue.
const FEWEST: i64 = 20_000;

/// Autovacuum checks a table once a minute (`autovacuum_naptime`), and may be busy with other
/// tables.
const LATE_MS: i64 = 5 * 60 * 1000;

/// Most tables that are named.
const MOST_NAMED: usize = 3;

/// Tables with dead rows, the most first. `due` is the number of dead rows from which on autovacuum
/// works on the table.
const TABLES: &str = "
    select c.oid::regclass::text as name, d.dead, pg_stat_get_live_tuples(c.oid) as live,
           pg_relation_size(c.oid) / current_setting('block_size')::bigint as pages,
           (1000 * extract(epoch from clock_timestamp()
              - greatest(pg_stat_get_last_vacuum_time(c.oid), pg_stat_get_last_autovacuum_time(c.oid))))::bigint as vacuumed_ms_ago,
           (coalesce(o.threshold, current_setting('autovacuum_vacuum_threshold')::float8)
            + coalesce(o.scale, current_setting('autovacuum_vacuum_scale_factor')::float8)
              * greatest(c.reltuples, 0))::bigint as due,
           current_setting('autovacuum')::boolean and coalesce(o.enabled, true) as autovacuum
      from pg_class c
           cross join lateral (select pg_stat_get_dead_tuples(c.oid) as dead) d
           cross join lateral (
             select max(option_value) filter (where option_name = 'autovacuum_vacuum_threshold')::float8 as threshold,
                    max(option_value) filter (where option_name = 'autovacuum_vacuum_scale_factor')::float8 as scale,
                    bool_and(option_value::boolean) filter (where option_name = 'autovacuum_enabled') as enabled
               from pg_options_to_table(c.reloptions)) o
     where c.relnamespace in (to_regnamespace('tuskline')::oid, to_regnamespace('tuskline_core')::oid)
       and c.relkind = 'r' and d.dead > 0
     order by d.dead desc";

/// The dead rows of a table.
#[derive(Debug, Clone, Deserialize)]
pub struct Table {
    name: String,
    dead: i64,
    live: i64,
    pages: i64,
    vacuumed_ms_ago: Option<i64>,
    due: i64,
    autovacuum: bool,
}

impl Table {
    /// Pages that dead rows fill, if all rows have the same size.
    fn dead_pages(&self) -> i64 {
        self.pages.saturating_mul(self.dead) / (self.dead + self.live).max(1)
    }

    fn is_bloated(&self, held: bool) -> bool {
        let late = self.vacuumed_ms_ago.is_none_or(|ago| ago > LATE_MS);
        self.dead >= FEWEST && self.dead >= 2 * self.due && (late || held)
    }

    fn said(&self) -> String {
        let vacuumed = match self.vacuumed_ms_ago {
            Some(ago) => format!("vacuumed {} ago", duration::show(ago)),
            None => "never vacuumed".to_owned(),
        };
        let pages = self.dead_pages();
        format!("{} has {} dead rows ({pages} pages), {vacuumed}", self.name, self.dead)
    }
}

/// Tables with dead rows, the most first.
pub async fn tables(client: &Client) -> Result<Vec<Table>> {
    Ok(rows(client, TABLES, &[]).await?)
}

/// Dead rows that a holder of the horizon may keep.
pub fn cost(tables: &[Table]) -> Cost {
    Cost {
        dead: tables.iter().map(|table| table.dead).sum(),
        pages: tables.iter().map(Table::dead_pages).sum(),
    }
}

/// Whether dead rows stay for longer than autovacuum needs, and why. `holder`: the oldest horizon.
pub fn judge(tables: &[Table], holder: Option<&Holder>) -> Found {
    let holder = holder.filter(|holder| holder.is_old());
    let bloated: Vec<&Table> =
        tables.iter().filter(|table| table.is_bloated(holder.is_some())).collect();
    let Some(worst) = bloated.first() else {
        let dead = cost(tables).dead;
        return Found::ok(format!("{dead} dead rows, none for longer than usual"));
    };
    let named: Vec<String> = bloated.iter().take(MOST_NAMED).map(|table| table.said()).collect();
    let more = match bloated.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!("; and {more} more tables"),
    };
    let (cause, remedy) = match holder {
        Some(holder) => (format!("the horizon is held by {}", holder.name()), holder.remedy()),
        None if !worst.autovacuum => ("autovacuum is off".to_owned(), vacuum(worst)),
        None => ("autovacuum is late".to_owned(), vacuum(worst)),
    };
    Found::warn(format!("{}{more}: {cause}", named.join("; ")), remedy)
}

fn vacuum(table: &Table) -> remedy::Remedy {
    remedy::VACUUM.with("table", &table.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    fn table(dead: i64, due: i64, vacuumed_ms_ago: Option<i64>) -> Table {
        let (name, live, pages) = ("tuskline.timer".to_owned(), 1_000, 300);
        Table { name, dead, live, pages, vacuumed_ms_ago, due, autovacuum: true }
    }

    #[test]
    fn dead_rows_are_bloat_when_vacuum_is_late() {
        let verdict = |table: Table| judge(&[table], None).verdict;
        assert_eq!(verdict(table(20_000, 50, None)), Verdict::Warn);
        assert_eq!(verdict(table(20_000, 50, Some(LATE_MS + 1))), Verdict::Warn);
        assert_eq!(verdict(table(20_000, 50, Some(LATE_MS))), Verdict::Ok, "it comes");
        assert_eq!(verdict(table(19_999, 50, None)), Verdict::Ok, "they are few");
        assert_eq!(verdict(table(20_000, 10_001, None)), Verdict::Ok, "they are few for its size");
    }

    #[test]
    fn the_pages_of_dead_rows_are_their_share() {
        assert_eq!(table(2_000, 50, None).dead_pages(), 200);
    }
}
