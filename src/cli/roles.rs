//! `roles`: the groups of roles, and the SQL that makes those that are missing.
//!
//! Promises: it only reads the catalogue, so any login may run it.
//! Must never: run what it prints.

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::failure::Failed;
use super::global::Global;
use super::{database, output};
use crate::session::{Deadlines, Session};
use crate::store::rows::{Parameters, rows};

/// Arguments of `roles`.
#[derive(Debug, Args)]
pub struct RolesArgs {
    /// Print the SQL that makes the missing groups. Nothing is executed: a role with CREATEROLE
    /// runs it with psql, then the owner of the schema runs `tuskline migrate`.
    #[arg(long)]
    print: bool,
}

/// Each group, without `tuskline_` before its name, and what its members do. The verbs of each
/// stand in `migrations/functions/rights/verb_groups.sql`.
pub const GROUPS: [(&str, &str); 6] = [
    ("scheduler", "schedules, cancels and awaits tasks"),
    ("worker", "runs workers"),
    ("operator", "cancels, retries, gates and throttles tasks; reads the views"),
    ("team", "the same; defines lambdas, their limits and schedules"),
    ("viewer", "reads the views, statistics and explanations"),
    ("monitor", "the same without payloads; runs the doctor"),
];

/// A superuser is a member of every role. A member in PostgreSQL 16 may have several grantors.
const LIST: &str = "
    select r.name as role, g.purpose, p.rolcanlogin is false as exists, o.owner,
           array(select distinct m.rolname from pg_auth_members a join pg_roles m on m.oid = a.member
                  where a.roleid = p.oid order by 1) as members,
           array_remove(array[
             case when p.oid is null then format('create role %I nologin;', r.name) end,
             case when p.rolcanlogin then format('alter role %I nologin;', r.name) end,
             case when pg_has_role(o.owner, p.oid, 'member') is not true
                  then format('grant %I to %I;', r.name, o.owner) end,
             case when g.name = 'monitor' and pg_has_role(p.oid, 'pg_monitor', 'member') is not true
                  then format('grant pg_monitor to %I;', r.name) end], null) as statements
      from unnest($1::text[], $2::text[]) with ordinality as g (name, purpose, no)
           cross join lateral (select 'tuskline_' || g.name as name) r
           cross join (select pg_get_userbyid(n.nspowner) as owner
                         from pg_namespace n where n.nspname = 'tuskline') o
           left join pg_roles p on p.rolname = r.name
     order by g.no";

/// A group of roles in the cluster.
#[derive(Serialize, Deserialize)]
struct Group {
    role: String,
    purpose: String,
    exists: bool,
    members: Vec<String>,
    /// Statements that are still to run.
    statements: Vec<String>,
    /// The owner of the schema.
    #[serde(skip_serializing)]
    owner: String,
}

pub async fn run(global: &Global, args: &RolesArgs) -> Result<()> {
    let address = database::find_given(global)?;
    let session = Session::open(&address, "command", Deadlines::USUAL).await?;
    let groups = list(session.client()).await?;
    if args.print && !global.json {
        return Ok(output::put(&script(&groups))?);
    }
    let rows = groups.iter().map(|group| json!(group)).collect();
    output::put_list(global, rows, "role, exists, members, purpose", "", |_| ())
}

async fn list(client: &Client) -> Result<Vec<Group>> {
    let (names, purposes): (Vec<&str>, Vec<&str>) = GROUPS.into_iter().unzip();
    let parameters: &Parameters<'_> = &[(&names, Type::TEXT_ARRAY), (&purposes, Type::TEXT_ARRAY)];
    let groups: Vec<Group> = rows(client, LIST, parameters).await?;
    match groups.is_empty() {
        false => Ok(groups),
        true => Err(Failed {
            what: "there is no schema tuskline in this database".to_owned(),
            hint: Some("run `tuskline migrate` first: the groups belong to its owner".to_owned()),
        }
        .into()),
    }
}

/// The missing statements, with comments.
fn script(groups: &[Group]) -> String {
    let missing: Vec<&Group> = groups.iter().filter(|group| !group.statements.is_empty()).collect();
    let owner = groups.first().map_or("", |group| &group.owner);
    if missing.is_empty() {
        return output::clean(&format!("-- No group is missing, and {owner} is a member of each."));
    }
    let mut lines = vec![
        "-- Groups of roles for this cluster. A role with CREATEROLE runs this.".to_owned(),
        "-- In PostgreSQL 16 and newer, a superuser runs the line with pg_monitor.".to_owned(),
    ];
    for group in missing {
        lines.push(format!("-- {}: {}", group.role, group.purpose));
        lines.extend(group.statements.iter().cloned());
    }
    lines.push(format!("-- Then {owner} runs `tuskline migrate`, which grants the verbs."));
    lines.iter().map(|line| output::clean(line) + "\n").collect()
}
