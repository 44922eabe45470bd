//! `uninstall --print`: the SQL that removes Tuskline, and what would be lost.
//!
//! Promises: it only reads. Each statement may run again, so a script that was interrupted can be
//! repeated. In any other database the script removes nothing.
//! Must never: run what it prints.

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

use super::failure::WrongCall;
use super::global::Global;
use super::{database, output};
use crate::session::{Deadlines, ErrorChain, Session};
use crate::store::rows::{column, rows, value};

/// Arguments of `uninstall`.
#[derive(Debug, Args)]
pub struct UninstallArgs {
    /// Print the SQL. Nothing is executed: read it, then run it with psql.
    #[arg(long)]
    print: bool,
}

/// The workers that still work. The statement fails if the schema is incomplete.
const WORKERS: &str =
    "select count(*) from tuskline.executors e where e.state in ('alive', 'draining')";

/// The rows that would be lost.
const TASKS: &str = "
    select (select count(*) from tuskline.tasks) as tasks,
           (select count(*) from tuskline.tasks t where t.status < 'success') as tasks_not_ended,
           (select count(*) from tuskline.task_archive) as tasks_archived";

/// Longest time for [`TASKS`], in seconds. Its snapshot keeps dead rows meanwhile.
const COUNT_SECONDS: u32 = 5;

const PLACE: &str = "
    select current_database()::text,
           (select string_agg(n.nspname, ', ' order by n.nspname) from pg_namespace n
             where n.nspname in ('tuskline', 'tuskline_core')),
           (select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
              from pg_class c join pg_namespace n on n.oid = c.relnamespace
             where n.nspname in ('tuskline', 'tuskline_core') and c.relkind in ('r', 'm', 'S')),
           (select count(*) from pg_stat_activity a
             where a.datname = current_database() and a.application_name like 'tuskline%'
               and a.pid <> pg_backend_pid())";

/// Objects outside of the two schemas that need one inside: a view, a default, a foreign key, a column.
const DEPENDENTS: &str = "
    with ours as (
      select n.oid, n.nspname::text as name from pg_namespace n
       where n.nspname in ('tuskline', 'tuskline_core')),
    dependent as (
      select distinct d.classid, d.objid, d.objsubid from pg_depend d
       where d.deptype = 'n' and d.classid <> 'pg_cast'::regclass
         and exists (select from pg_identify_object_as_address(d.refclassid, d.refobjid, d.refobjsubid) r
                      where split_part(r.object_names[1], '.', 1) in (select name from ours)))
    select i.type || ' ' || i.identity
      from dependent d cross join pg_identify_object(d.classid, d.objid, d.objsubid) i
           cross join pg_identify_object_as_address(d.classid, d.objid, d.objsubid) a
     where split_part(a.object_names[1], '.', 1) not in (select name from ours)
     order by 1";

/// The tables of queues and segments, and their functions. Each is dropped by a statement of its
/// own, because one transaction for all may need more locks than the server has room for.
const LEAVES: &str = "
    select format('drop table if exists %s cascade;', c.oid::regclass)
      from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = 'tuskline_core' and c.relkind = 'r'
       and c.relname ~ '^(queue|task|gone)_[0-9]+$'
    union all
    select format('drop routine if exists %s cascade;', p.oid::regprocedure)
      from pg_proc p join pg_namespace n on n.oid = p.pronamespace
     where n.nspname = 'tuskline_core' and p.proname ~ '^(pop|take|end)_[0-9]+$'
    order by 1";

/// Settings that were stored for the functions. A setting of the whole cluster may serve another database.
const SETTINGS: &str = "
    select case s.setdatabase when 0 then '-- of every database: ' else '' end
           || case s.setrole when 0 then format('alter database %I', d.datname)
                   else format('alter role %I', r.rolname)
                        || coalesce(format(' in database %I', d.datname), '') end
           || format(' reset %s;', split_part(c.setting, '=', 1))
      from pg_db_role_setting s cross join unnest(s.setconfig) as c (setting)
           left join pg_database d on d.oid = s.setdatabase
           left join pg_roles r on r.oid = s.setrole
     where c.setting like 'tuskline.%' and (s.setdatabase = 0 or d.datname = current_database())
     order by 1";

/// Fails in every database but the one for which it is printed. The text is quoted twice, because
/// `do` takes no parameter.
const CHECK: &str = "
    select format('do %L;', format(
             'begin if current_database() <> %L then raise exception using message = format(%L, current_database()); '
             'end if; end', current_database(),
             format('this script removes Tuskline from database %s, and this is database %%s: nothing is removed',
                    replace(current_database(), '%', '%%'))))";

/// Makes psql stop at the first error, whatever its command line says.
const STOP: &str = "\\set ON_ERROR_STOP on";

/// Hides the notices of the cascade, which name hundreds of objects.
const QUIET: &str = "set client_min_messages = warning;";

/// Removes the rest: tables, views, functions, types with their casts, grants.
const SCHEMAS: [&str; 2] =
    ["drop schema if exists tuskline_core cascade;", "drop schema if exists tuskline cascade;"];

/// The session only reads, and each name that it shows is qualified.
const BEGIN: &str = "
    begin isolation level repeatable read, read only;
    set local search_path = pg_catalog, pg_temp";

pub async fn run(global: &Global, args: &UninstallArgs) -> anyhow::Result<()> {
    if !args.print {
        let why = "uninstall executes nothing: give --print, read the SQL, and run it with psql";
        return Err(WrongCall(why.to_owned()).into());
    }
    let address = database::find_given(global)?;
    let session = Session::open(&address, "command", Deadlines::PATIENT).await?;
    let removal = Removal::read(session.client()).await?;
    output::answer(global, &json!(removal), &removal.script())
}

/// The parts of Tuskline in the database, and the statements that remove them.
#[derive(Serialize)]
struct Removal {
    database: String,
    /// The schemas that exist. None: nothing is installed.
    #[serde(skip)]
    schemas: Option<String>,
    bytes: i64,
    sessions: i64,
    /// None: the schema is incomplete.
    workers: Option<i64>,
    #[serde(flatten)]
    tasks: Tasks,
    /// Why the tasks were not counted.
    #[serde(skip)]
    uncounted: Option<String>,
    dependents: Vec<String>,
    statements: Vec<String>,
}

/// Numbers of rows. None: they were not counted.
#[derive(Default, Serialize, Deserialize)]
struct Tasks {
    tasks: Option<i64>,
    tasks_not_ended: Option<i64>,
    tasks_archived: Option<i64>,
}

impl Removal {
    async fn read(client: &Client) -> Result<Self, Error> {
        client.batch_execute(BEGIN).await?;
        let place = client.query_typed_one(PLACE, &[]).await?;
        let schemas: Option<String> = place.get(1);
        let mut statements = vec![];
        if schemas.is_some() {
            statements.push(QUIET.to_owned());
            statements.extend(column(client, LEAVES, &[]).await?);
            statements.extend(SCHEMAS.map(str::to_owned));
        }
        statements.extend(column(client, SETTINGS, &[]).await?);
        if !statements.is_empty() {
            statements.insert(0, value(client, CHECK, &[]).await?);
        }
        let dependents = column(client, DEPENDENTS, &[]).await?;
        // Last, because they fail on an incomplete schema, and then the transaction does, too.
        let workers = value(client, WORKERS, &[]).await;
        let tasks = match workers {
            Ok(_) => count(client).await.map_err(|error| why(&error)),
            Err(ref error) => Err(why(error)),
        };
        Ok(Self {
            database: place.get(0),
            schemas,
            bytes: place.get(2),
            sessions: place.get(3),
            workers: workers.ok(),
            uncounted: tasks.as_ref().err().cloned(),
            tasks: tasks.unwrap_or_default(),
            dependents,
            statements,
        })
    }

    /// The comments and the statements.
    fn script(&self) -> String {
        let mut remarks = vec![format!("Removes Tuskline from database {}.", self.database)];
        match &self.schemas {
            None => remarks.push("It has no schema here.".to_owned()),
            Some(schemas) => remarks.extend(self.remarks(schemas)),
        }
        let remarks = remarks.iter().map(|remark| format!("-- {remark}"));
        let stop = (!self.statements.is_empty()).then(|| STOP.to_owned());
        let lines = remarks.chain(stop).chain(self.statements.iter().cloned());
        lines.map(|line| output::clean(line.trim_end()) + "\n").collect()
    }

    fn remarks(&self, schemas: &str) -> Vec<String> {
        let mut remarks = vec![
            "Stop each worker and server first. Run this as the owner of the schemas:".to_owned(),
            "  tuskline uninstall --print > uninstall.sql".to_owned(),
            "  tuskline psql -- -f uninstall.sql".to_owned(),
            "Each statement is a transaction. If one fails, remove the cause and run all again."
                .to_owned(),
            "In any other database the first statement fails, and nothing is removed.".to_owned(),
            String::new(),
            "It deletes:".to_owned(),
            format!("  {schemas}: {} bytes", self.bytes),
        ];
        let Tasks { tasks, tasks_not_ended, tasks_archived } = &self.tasks;
        let of = |count: &Option<i64>| count.unwrap_or_default();
        remarks.push(match &self.uncounted {
            None => format!(
                "  {} tasks, {} of them not ended; {} archived tasks",
                of(tasks),
                of(tasks_not_ended),
                of(tasks_archived)
            ),
            Some(why) => format!("  tasks that could not be counted, perhaps not ended: {why}"),
        });
        if let Some(workers) = self.workers {
            remarks.push(format!("Still active: {workers} workers, {} sessions.", self.sessions));
        }
        if !self.dependents.is_empty() {
            remarks.push(
                "The cascade also deletes these objects, and all that depend on them:".to_owned(),
            );
            remarks.extend(self.dependents.iter().map(|one| format!("  {one}")));
        }
        remarks.push(String::new());
        remarks
    }
}

async fn count(client: &Client) -> Result<Tasks, Error> {
    client.batch_execute(&format!("set local statement_timeout = '{COUNT_SECONDS}s'")).await?;
    Ok(rows(client, TASKS, &[]).await?.pop().unwrap_or_default())
}

/// Why the tasks were not counted.
fn why(error: &Error) -> String {
    match error.code() {
        Some(&SqlState::QUERY_CANCELED) => format!("the count takes over {COUNT_SECONDS} s"),
        _ => ErrorChain(error).to_string(),
    }
}
