//! Roles: whether the owner of the schema is an ordinary one, rights that protect nothing, and ids that
//! were drawn without a task.

use anyhow::Result;
use tokio_postgres::Client;

use super::finding::Found;
use super::remedy;

/// So many ids of a day without a task are drawn on purpose: crashes pass over fewer.
const MANY_IDS: f64 = 3.0 * 16_777_216.0;

/// Roles or lambdas that a line names.
const NAMED: usize = 5;

const OWNER: &str = "
    select quote_ident(r.rolname), r.rolsuper, d.datdba = r.oid, quote_ident(d.datname)
      from pg_namespace n join pg_roles r on r.oid = n.nspowner
           join pg_database d on d.datname = current_database()
     where n.nspname = 'tuskline'";

/// A superuser needs no rights, and runs functions of others in its sessions: ANALYZE of a table
/// runs those of its indexes. The owner of a database analyzes the tables of all roles, too.
pub async fn owner(client: &Client) -> Result<Found> {
    let row = client.query_typed_one(OWNER, &[]).await?;
    let owner: &str = row.get(0);
    Ok(match (row.get(1), row.get(2)) {
        (true, _) => Found::warn(
            format!(
                "{owner}, the owner of the schema, is a superuser: a fault in a function has no bound"
            ),
            remedy::ORDINARY_OWNER.with("owner", owner),
        ),
        (false, true) => Found::warn(
            format!(
                "{owner}, the owner of the schema, owns the database: its VACUUM and ANALYZE run functions of other roles"
            ),
            remedy::OTHER_DATABASE_OWNER.with("database", row.get(3)),
        ),
        (false, false) => Found::ok(format!("{owner}, an ordinary role")),
    })
}

/// Rights of roles that do not exist: a later role of that name would have them.
const GONE: &str = "
    select quote_literal(g.lambda), quote_literal(g.role), quote_literal(g.privilege), g.role
      from tuskline.lambda_grants g where g.role_is_gone order by g.role, g.lambda, g.privilege";

/// Closed lambdas without an owner that is an ordinary role, and one of the others.
const UNTEAMED: &str = "
    select quote_literal(g.lambda), g.lambda, min(g.role::text), bool_or(r.rolsuper)
      from tuskline.lambda_grants g join pg_roles r on r.rolname = g.role
           join pg_namespace n on n.nspname = 'tuskline'
     where g.privilege = 'own' and g.lambda <> '*'
     group by g.lambda having bool_and(r.rolsuper or r.oid = n.nspowner)
     order by g.lambda";

/// Whether each right is of a role that it restrains.
pub async fn rights(client: &Client) -> Result<Found> {
    let gone = client.query_typed(GONE, &[]).await?;
    if let Some(first) = gone.first() {
        let mut roles: Vec<&str> = gone.iter().map(|row| row.get(3)).collect();
        roles.dedup();
        let remedy = remedy::REVOKE.with("lambda", first.get(0)).with("role", first.get(1));
        return Ok(Found::warn(
            format!("rights of roles that are gone: {}", few(&roles)),
            remedy.with("privilege", first.get(2)),
        ));
    }
    let rows = client.query_typed(UNTEAMED, &[]).await?;
    let Some(first) = rows.first() else {
        return Ok(Found::ok("each is of a role that it restrains"));
    };
    let lambdas: Vec<&str> = rows.iter().map(|row| row.get(1)).collect();
    let (owner, is_super): (&str, bool) = (first.get(2), first.get(3));
    let owner = match is_super {
        true => format!("{owner}, a superuser"),
        false => format!("{owner}, the owner of the schema"),
    };
    Ok(Found::warn(
        format!("no ordinary role owns {}; the first is of {owner}", few(&lambdas)),
        remedy::TEAM.with("lambda", first.get(0)),
    ))
}

/// The first few names, and how many more.
fn few(names: &[&str]) -> String {
    let named = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Ids of the last day, and the tasks of their segments by the statistics of PostgreSQL. Each
/// insert that was committed counts, also of a task that is deleted.
const IDS: &str = "
    select coalesce(sum(u.drawn), 0)::float8, coalesce(sum(greatest(u.drawn - u.tasks, 0)), 0)::float8
      from (
        select count(*) filter (where g.segment_no < n.current) * 16777216 + n.last_value % 16777216 as drawn,
               sum(greatest(s.n_live_tup + s.n_tup_del, c.reltuples, 0)) as tasks
          from (select i.first_id, i.last_value, tuskline_core.segment_of(i.last_value) as current
                  from tuskline_core.id_range() i) n
               join tuskline.segment g
                 on g.segment_no between tuskline_core.segment_of(n.first_id) and n.current
               left join pg_class c on c.oid = to_regclass('tuskline_core.task_' || g.segment_no)
               left join pg_stat_all_tables s on s.relid = c.oid
         where g.segment_no = n.current or g.opened_at > tuskline.clock() - interval '1 day'
         group by n.current, n.last_value) u";

/// Logins that may draw an id: of the sequence, or by a verb in a transaction that rolls back.
const MAY_DRAW: &str = "
    select quote_ident(r.rolname)
      from pg_roles r join pg_class c on c.oid = to_regclass('tuskline.task_seq')
     where r.rolcanlogin and not r.rolsuper and r.oid <> c.relowner
       and (has_sequence_privilege(r.oid, c.oid, 'usage') or exists (
              select from pg_proc p
               where p.pronamespace = c.relnamespace and starts_with(p.proname, 'schedule')
                 and has_function_privilege(r.oid, p.oid, 'execute')))
     order by 1";

/// Whether a role draws ids and schedules no task.
pub async fn ids(client: &Client) -> Result<Found> {
    let row = client.query_typed_one(IDS, &[]).await?;
    let (drawn, without): (f64, f64) = (row.get(0), row.get(1));
    if without < 1e6 {
        return Ok(Found::ok("under a million of the last day have no task"));
    }
    let said =
        format!("{:.1} of {:.1} million of the last day have no task", without / 1e6, drawn / 1e6);
    if without < MANY_IDS {
        return Ok(Found::ok(said));
    }
    let rows = client.query_typed(MAY_DRAW, &[]).await?;
    let roles: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    let said = match roles.is_empty() {
        true => format!("{said}; no role but the owner may draw them"),
        false => format!("{said}; {} may draw them", few(&roles)),
    };
    Ok(Found::warn(said, remedy::DRAWN_IDS))
}
