//! With any settings of a database or a role, tasks are scheduled, executed and seen, or a refusal
//! says why.

use std::time::Duration;

use serde_json::json;
use tokio_postgres::{Client, NoTls};
use tokio_util::sync::CancellationToken;
use tuskline::config::{JanitorOptions, PeriodicOptions};
use tuskline::janitor::{self, Marks};
use tuskline::session::{Deadlines, Session};
use tuskline_postgres::drop_database;
use tuskline_sdk::{Context, Lambda, NewTask, Outcome};

use crate::support::{Db, Running, calm, cell, shared, within};

/// Text that a careless literal would change.
const TEXT: &str = r#"a \ b 'c' "d" é \\n"#;

/// A setting for the database (`d`) or for the role in it (`r`).
type Setting = (char, &'static str, &'static str);

/// Settings under which everything works. A usual run combines them as [`together`] says; the leg
/// `settings` takes each alone.
const TEXTS: &[Setting] = &[
    ('d', "standard_conforming_strings", "off"),
    ('r', "standard_conforming_strings", "off"),
    ('d', "backslash_quote", "on"),
    ('d', "escape_string_warning", "on"),
    ('d', "DateStyle", "'German, DMY'"),
    ('r', "IntervalStyle", "sql_standard"),
    ('d', "TimeZone", "'Australia/Lord_Howe'"),
    ('d', "bytea_output", "escape"),
    ('d', "extra_float_digits", "-15"),
    ('r', "client_encoding", "LATIN1"),
    ('d', "client_encoding", "SQL_ASCII"),
    ('d', "lc_messages", "'C'"),
    ('d', "lc_numeric", "'C'"),
    ('r', "lc_time", "'C'"),
];
/// PostgreSQL 19 refuses the first one's `off`, and has no second.
const GONE_IN_19: [&str; 2] = ["standard_conforming_strings", "escape_string_warning"];
const MEANINGS: &[Setting] = &[
    ('d', "search_path", "public, pg_catalog"),
    ('r', "search_path", "''"),
    ('d', "quote_all_identifiers", "on"),
    ('d', "transform_null_equals", "on"),
    ('d', "array_nulls", "off"),
    ('d', "xmloption", "document"),
    ('d', "row_security", "off"),
    ('d', "check_function_bodies", "off"),
    ('d', "plpgsql.variable_conflict", "use_column"),
    ('r', "plpgsql.variable_conflict", "use_variable"),
    ('d', "plpgsql.extra_warnings", "'all'"),
    ('d', "plpgsql.extra_errors", "'shadowed_variables'"),
    ('d', "default_toast_compression", "pglz"),
    ('d', "default_table_access_method", "heap"),
    ('d', "default_tablespace", "tuskline_space"),
    ('r', "temp_tablespaces", "tuskline_space"),
];
const TRANSACTIONS: &[Setting] = &[
    ('d', "default_transaction_isolation", "'repeatable read'"),
    ('r', "default_transaction_isolation", "serializable"),
    ('d', "default_transaction_deferrable", "on"),
    ('d', "synchronous_commit", "off"),
    ('d', "statement_timeout", "'10s'"),
    ('r', "lock_timeout", "'1s'"),
    ('d', "idle_in_transaction_session_timeout", "'1s'"),
    ('d', "idle_session_timeout", "'2s'"),
];
const PLANS: &[Setting] = &[
    ('d', "plan_cache_mode", "force_generic_plan"),
    ('r', "plan_cache_mode", "force_custom_plan"),
    ('d', "enable_seqscan", "off"),
    ('d', "enable_indexscan", "off"),
    ('d', "enable_nestloop", "off"),
    ('d', "enable_partition_pruning", "off"),
    ('d', "constraint_exclusion", "on"),
    ('d', "jit_above_cost", "0"),
    ('d', "from_collapse_limit", "1"),
    ('d', "work_mem", "'64kB'"),
];

/// The settings in as few databases as can be: a name stands once in each.
fn together(settings: &[Setting]) -> Vec<Vec<Setting>> {
    let mut groups: Vec<Vec<Setting>> = Vec::new();
    for &setting in settings {
        let without = |group: &&mut Vec<Setting>| group.iter().all(|other| other.1 != setting.1);
        match groups.iter_mut().find(without) {
            Some(group) => group.push(setting),
            None => groups.push(vec![setting]),
        }
    }
    groups
}

struct Case {
    db: Db,
    named: String,
}

/// A database with settings, not migrated yet.
async fn with_settings(settings: &[Setting]) -> Case {
    let name = format!("settings_{}", fastrand::u32(..));
    shared().create_database(&name, None).await.unwrap();
    let config = shared().config(&name);
    let (client, connection) = within(config.connect(NoTls)).await.unwrap();
    tokio::spawn(connection);
    let version = "select current_setting('server_version_num')::integer";
    let version: i32 = client.query_one(version, &[]).await.unwrap().get(0);
    let is_known = |setting: &str| version < 190_000 || !GONE_IN_19.contains(&setting);
    let mut named = Vec::new();
    for (level, setting, value) in settings.iter().filter(|(_, setting, _)| is_known(setting)) {
        let place = match level {
            'd' => format!("database {name}"),
            _ => format!("role {} in database {name}", config.get_user().unwrap()),
        };
        let sql = format!("alter {place} set {setting} = {value}");
        client.batch_execute(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        named.push(format!("{level} {setting} = {value}"));
    }
    Case { db: Db { config, client, place: None, cell: cell() }, named: named.join(", ") }
}

impl Case {
    /// A session that has the setting.
    async fn session(&self) -> Client {
        let (client, connection) = within(self.db.config.connect(NoTls)).await.unwrap();
        tokio::spawn(connection);
        client
    }

    async fn run(&self, client: &Client, sql: &str) {
        let done = within(client.batch_execute(sql)).await;
        done.unwrap_or_else(|error| panic!("{}: {sql}: {error:?}", self.named));
    }

    async fn migrate(&self) {
        let migrated = within(tuskline::migrate::migrate(&self.db.config)).await;
        migrated.unwrap_or_else(|error| panic!("{}: migrate: {error:?}", self.named));
    }

    /// Performs the calls of an owner and a service, in a session of theirs.
    async fn schedule(&self) {
        let client = self.session().await;
        for sql in [
            "select tuskline.define_lambda('work')",
            "select tuskline.define_lambda('limited'); select tuskline.set_limit('limited', 1)",
            "select tuskline.gate('work', 'pause', 'reports', p_reason => 'a reason', p_for => '1 day', p_unseen => true)",
            "select tuskline.schedule('work', '{\"n\": 1}')",
            "insert into tuskline.task (lambda, payload) values ('work', '{\"n\": 2}'), ('limited', '{\"n\": 3}')",
            "select tuskline.schedule_many(array['work', 'limited'], array['{\"n\": 4}', '{\"n\": 5}']::json[])",
            "select tuskline.schedule('work', p_delay => '1 hour')",
            "select tuskline.define_periodic('often', 'work', '* * * * * *', '{\"n\": 6}', 'Europe/Berlin')",
        ] {
            self.run(&client, sql).await;
        }
        let text = json!({"text": TEXT});
        let sent = client.execute("select tuskline.schedule('work', $1::json)", &[&text]).await;
        sent.unwrap_or_else(|error| panic!("{}: {error:?}", self.named));
        let sdk = tuskline_sdk::Client::connect(self.db.config.clone()).await.unwrap();
        let task = NewTask::new("work", &text);
        within(sdk.schedule(&task)).await.unwrap_or_else(|error| panic!("{}: {error}", self.named));
    }

    /// Runs a worker and a server with all its roles, and ends each task. A task fails with a text
    /// in its error.
    async fn work(&self) {
        let body = |payload: serde_json::Value, context: Context| async move {
            let first = context.attempt() == 1;
            match payload.get("text") {
                Some(text) if text != TEXT => Outcome::fatal("another text"),
                Some(_) if first => Outcome::Retriable {
                    after: Some(Duration::ZERO),
                    class: None,
                    reason: TEXT.into(),
                },
                _ => Outcome::Success(Some(payload)),
            }
        };
        let lambdas = vec![Lambda::named("work", body), Lambda::named("limited", body)];
        let worker = Running::start(&self.db, calm(), lambdas);
        let _consumer = self.db.store_consumer();
        let token = CancellationToken::new();
        let _ends = token.clone().drop_guard();
        let options = PeriodicOptions::default();
        tokio::spawn(tuskline::periodic::run(
            self.db.config.clone(),
            options,
            tuskline::recovery::RoleHealth::default(),
            token,
        ));
        self.until(
            "count(*) filter (where status = 'success' and payload->>'n' is distinct from '6') = 7",
        )
        .await;
        self.until("count(*) filter (where status = 'success' and payload->>'n' = '6') > 0").await;
        worker.stop().await;
    }

    async fn until(&self, what: &str) {
        let question = format!("select {what}, string_agg(status::text, ' ') from tuskline.tasks");
        let mut seen = String::new();
        for _ in 0..400 {
            // The database's own settings are not those of this test's first session.
            let row = self.db.client.query_one(&question, &[]).await.unwrap();
            if row.get(0) {
                return;
            }
            seen = row.get(1);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{}: never {what}: {seen}", self.named);
    }

    /// Performs the calls of operators and janitors.
    async fn look(&self) {
        let client = self.session().await;
        let views = self.db.all::<String>(
            "select format('%I.%I', relnamespace::regnamespace, relname) from pg_class where relnamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace) and relkind = 'v'",
        );
        for view in views.await {
            self.run(&client, &format!("select * from {view}")).await;
        }
        self.run(&client, "select * from tuskline.tasks t, tuskline.explain(t.id)").await;
        self.run(&client, "select tuskline.drop_limit(limit_id) from tuskline.limits").await;
        let failed: String = self.db.one("select message from tuskline.task_failure limit 1").await;
        assert_eq!(failed, TEXT, "{}", self.named);
        let session = Session::open(&self.db.config, "test", Deadlines::PATIENT).await.unwrap();
        let (options, mut marks) = (JanitorOptions::default(), Marks::default());
        let round = janitor::round(&session, &options, &mut marks);
        within(round).await.unwrap_or_else(|error| panic!("{}: janitor: {error:?}", self.named));
        self.migrate().await;
    }
}

async fn check(settings: &[Setting]) {
    for group in together(settings) {
        check_one(&group).await;
    }
}

async fn check_one(settings: &[Setting]) {
    let case = with_settings(settings).await;
    case.migrate().await;
    case.schedule().await;
    case.work().await;
    case.look().await;
    let name = case.db.config.get_dbname().unwrap().to_owned();
    drop(case);
    let (beside, connection) = within(shared().config("postgres").connect(NoTls)).await.unwrap();
    tokio::spawn(connection);
    drop_database(&beside, &name).await.unwrap();
}

/// A place that two settings name.
async fn make_tablespace() {
    static ONCE: tokio::sync::OnceCell<()> = tokio::sync::OnceCell::const_new();
    let make = async || {
        let (client, connection) =
            within(shared().config("postgres").connect(NoTls)).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute("set allow_in_place_tablespaces = on").await.unwrap();
        client.batch_execute("create tablespace tuskline_space location ''").await.unwrap();
    };
    ONCE.get_or_init(make).await;
}

#[tokio::test]
async fn how_texts_are_read_and_written_changes_nothing() {
    check(TEXTS).await;
}

#[tokio::test]
async fn what_names_and_tables_mean_elsewhere_changes_nothing() {
    make_tablespace().await;
    check(MEANINGS).await;
}

#[tokio::test]
async fn how_transactions_run_and_end_changes_nothing() {
    check(TRANSACTIONS).await;
}

#[tokio::test]
async fn how_statements_are_planned_changes_nothing() {
    check(PLANS).await;
}

#[tokio::test]
#[ignore = "a database for each of 48 settings: a minute or two; ./x leg surface"]
async fn each_setting_alone_changes_nothing() {
    make_tablespace().await;
    let alone = async |settings: &[Setting]| {
        for setting in settings {
            // Boxed: the future of a worker would not fit four times on the stack of a test.
            Box::pin(check_one(&[*setting])).await;
        }
    };
    tokio::join!(alone(TEXTS), alone(MEANINGS), alone(TRANSACTIONS), alone(PLANS));
}

#[tokio::test]
async fn what_cannot_work_is_refused_with_the_reason() {
    for (setting, value, said) in [
        ("default_transaction_read_only", "on", "standby or read-only"),
        ("session_replication_role", "replica", "session_replication_role must be origin"),
        ("session_replication_role", "local", "session_replication_role must be origin"),
    ] {
        let case = with_settings(&[('d', setting, value)]).await;
        let refused = within(tuskline::migrate::migrate(&case.db.config)).await.unwrap_err();
        assert!(refused.to_string().contains(said), "{}: {refused}", case.named);
    }
}
