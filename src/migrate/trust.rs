//! The trust of a migration: its session's settings, and the schema that it writes into.
//!
//! A migration runs with all rights of its role. A function that another role has planted where the
//! session's `search_path` finds it, or in the schema itself, would run with them, too.
//!
//! Promises: until the settings are known, no statement runs that could find such a function.
//! Must never: continue if a check fails, or change a setting of the database or of a role.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::Error;

/// Settings that a migration sets for its session, whatever the database and the role have.
pub(super) const STATED: [(&str, &str); 10] = [
    ("search_path", "pg_catalog,pg_temp"),
    ("standard_conforming_strings", "on"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_deferrable", "off"),
    ("check_function_bodies", "on"),
    ("default_table_access_method", "heap"),
    ("transform_null_equals", "off"),
    ("quote_all_identifiers", "off"),
    ("array_nulls", "on"),
    ("xmloption", "content"),
];

/// Objects of other roles, and roles that may create some. The owner of the schema is the migrating role.
const FOREIGN: &str = "
    select format('schema %I belongs to role %I, not to %I', n.nspname,
             pg_get_userbyid(n.nspowner), current_user),
           'migrate as its owner, or drop the schema'
      from pg_namespace n where n.nspname in ('tuskline', 'tuskline_core')
       and pg_get_userbyid(n.nspowner) <> current_user
    union all
    select format('%s belongs to role %I, not to %I', o.name, pg_get_userbyid(o.owner), current_user),
           'drop it, or give it to the owner of the schema'
      from (select format('%I.%I', c.relnamespace::regnamespace, c.relname) as name, c.relowner as owner, c.relnamespace as space
              from pg_class c where c.relkind not in ('i', 'I', 't')
            union all
            select 'function ' || p.oid::regprocedure::text, p.proowner, p.pronamespace from pg_proc p
            union all
            select 'type ' || t.oid::regtype::text, t.typowner, t.typnamespace from pg_type t
             where t.typrelid = 0 and t.typelem = 0
            union all
            select 'operator ' || o.oid::regoperator::text, o.oprowner, o.oprnamespace from pg_operator o) o
     where o.space in (select n.oid from pg_namespace n where n.nspname in ('tuskline', 'tuskline_core'))
       and pg_get_userbyid(o.owner) <> current_user
    union all
    select format('%s may create objects in schema %I',
             case a.grantee when 0 then 'every role' else 'role ' || a.grantee::regrole::text end,
             n.nspname),
           -- A grant by another role goes only with that role's own, and a role that has granted more keeps its own.
           format('revoke create on schema %I from %s cascade', n.nspname,
             case when a.grantor <> n.nspowner then a.grantor::regrole::text
                  when a.grantee = 0 then 'public' else a.grantee::regrole::text end)
      from pg_namespace n cross join lateral aclexplode(n.nspacl) a
     where n.nspname in ('tuskline', 'tuskline_core') and a.privilege_type = 'CREATE' and a.grantee <> n.nspowner
     limit 3";

/// Why there is no session with our settings.
pub(super) fn of_opening(error: tokio_postgres::Error) -> Error {
    match error.code() {
        Some(&SqlState::PROTOCOL_VIOLATION) => Error::Settings(
            "a pooler refuses the parameter `options`, by which migrate states its settings; \
             connect to the server directly"
                .to_owned(),
        ),
        _ => error.into(),
    }
}

/// Refuses settings that are not the stated ones. By SHOW alone, which looks nothing up.
pub(super) async fn check_settings(client: &Client) -> Result<(), Error> {
    for (name, wanted) in STATED {
        let found = show(client, name).await?;
        if found.replace(", ", ",") != wanted {
            return Err(Error::Settings(format!(
                "{name} must be {wanted}, got {found:?}; a pooler ignores the parameter `options`; \
                 connect to the server directly"
            )));
        }
    }
    // Only a superuser can set this one: it is checked, not stated.
    match show(client, "session_replication_role").await?.as_str() {
        "origin" => Ok(()),
        found => Err(Error::Settings(format!(
            "session_replication_role must be origin, got {found:?}: triggers do not fire, so no INSERT \
             is routed; set it back for the database and the role"
        ))),
    }
}

async fn show(client: &Client, name: &str) -> Result<String, Error> {
    let said = client.simple_query(&format!("show {name}")).await?;
    let value = said.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    Ok(value.unwrap_or_default().to_owned())
}

/// Refuses a schema that another role owns, owns something in, or may create something in.
pub(super) async fn check_schema(client: &Client) -> Result<(), Error> {
    let rows = client.query(FOREIGN, &[]).await?;
    if rows.is_empty() {
        return Ok(());
    }
    let doubts: Vec<String> = rows
        .iter()
        .map(|row| format!("{}: {}", row.get::<_, &str>(0), row.get::<_, &str>(1)))
        .collect();
    Err(Error::Foreign(doubts.join("; ")))
}
