//! A database of a test's own, and the verbs of services and operators on it.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::net::TcpListener;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::types::{FromSqlOwned, ToSql};
use tokio_postgres::{Client, Config, Error, NoTls};
use tuskline_postgres::{Cluster, drop_database};

use super::cluster::{OWNER, cell, owned_template, shared, template_of};
use super::{DEADLINE, within};

static NUMBER: AtomicU32 = AtomicU32::new(0);
/// Databases of tests that have ended, in the cluster of this run.
static ENDED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The effects and the observations of a store consumer's round.
#[derive(Debug)]
pub struct Rescued {
    /// Leases, rescued and buried tasks.
    pub did: (i32, i32, i32),
    /// The life of the server.
    pub booted_at: Option<DateTime<Utc>>,
    /// The executors that have not ended, with their numbers of beats.
    pub pulses: Vec<(i64, i64)>,
    /// Their leases.
    pub lease_ms: Vec<i64>,
    /// Their shortest silences, as noted.
    pub silent_ms: Vec<i64>,
}

/// A database cloned from the migrated template, and a session on it.
pub struct Db {
    /// How to reach it.
    pub config: Config,
    /// The test's own session.
    pub client: Client,
    /// Set for a database in the cluster of this run.
    pub place: Option<Place>,
    /// The cell of its ids.
    pub cell: u8,
}

/// The bits of a task id below its cell, as `tuskline_core.cell_of()` knows them.
const ID_BITS: u32 = 44;
/// The bits of a number of a gate, a limit or an operation below its cell.
const NUMBER_BITS: u32 = 24;

/// The name of a database that another test may remove once this is dropped.
pub struct Place(String);

impl Drop for Place {
    fn drop(&mut self) {
        ENDED.lock().unwrap().push(std::mem::take(&mut self.0));
    }
}

impl Db {
    /// A fresh database in the cluster of this run. Removes the databases of ended tests, as the cluster
    /// may lie in memory.
    pub async fn new() -> Self {
        Self::of_cell(cell()).await
    }

    /// The same with ids from 1 on in every run: for texts that show them as people see them.
    pub async fn of_cell_0() -> Self {
        Self::of_cell(0).await
    }

    /// The same with one lambda, of the default settings.
    pub async fn of_cell_0_with(lambda: &str) -> Self {
        let db = Self::of_cell_0().await;
        db.define(lambda).await;
        db
    }

    async fn of_cell(cell: u8) -> Self {
        let mut db = Self::clone_of(shared(), cell).await;
        db.place = db.config.get_dbname().map(|name| Place(name.to_owned()));
        let ended = std::mem::take(&mut *ENDED.lock().unwrap());
        for name in ended {
            drop_database(&db.client, &name).await.unwrap();
        }
        db
    }

    /// A fresh database whose schema belongs to an ordinary role, as rights on lambdas need it. The
    /// session is of that role.
    pub async fn owned() -> Self {
        let mut db = Self::clone_by(shared(), owned_template(), cell(), Some(OWNER)).await;
        db.place = db.config.get_dbname().map(|name| Place(name.to_owned()));
        db
    }

    /// A fresh database in which one lambda is defined, with the default settings.
    pub async fn with_lambda(name: &str) -> Self {
        let db = Self::new().await;
        db.define(name).await;
        db
    }

    /// A fresh database in a cluster of the test's own.
    pub async fn in_cluster(cluster: &Cluster) -> Self {
        Self::clone_of(cluster, cell()).await
    }

    async fn clone_of(cluster: &Cluster, cell: u8) -> Self {
        Self::clone_by(cluster, template_of(cell), cell, None).await
    }

    async fn clone_by(cluster: &Cluster, template: &str, cell: u8, user: Option<&str>) -> Self {
        let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        cluster.create_database(&name, Some(template)).await.unwrap();
        let mut config = cluster.config(&name);
        if let Some(user) = user {
            config.user(user);
        }
        let client = connect(&config).await;
        // A copy of the template that issues numbers from the first one on: nothing of it is lost.
        client.execute("select tuskline.verify()", &[]).await.unwrap();
        Self { config, client, place: None, cell }
    }

    /// The id of the nth task that is due at once.
    pub fn id(&self, nth: i64) -> i64 {
        (i64::from(self.cell) << ID_BITS) + nth
    }

    /// The id of the nth task that is scheduled for later, from 0 on.
    pub fn future_id(&self, nth: i64) -> i64 {
        ((i64::from(self.cell) + 64) << ID_BITS) + nth
    }

    /// The number of the nth gate, limit or operation.
    pub fn number(&self, nth: i64) -> i64 {
        (i64::from(self.cell) << NUMBER_BITS) + nth
    }

    /// The segment of the first task.
    pub fn first_segment(&self) -> i64 {
        self.id(0) >> 24
    }

    /// A database of that cell which a test has made.
    pub async fn on(config: Config, cell: u8) -> Self {
        Self { client: connect(&config).await, config, place: None, cell }
    }

    /// Another session.
    pub async fn connect(&self) -> Client {
        connect(&self.config).await
    }

    /// A port of loopback for a test to stand behind, an address by it, and the server's socket.
    pub async fn port(&self) -> (TcpListener, Config, PathBuf) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut config = Config::new();
        config.host("127.0.0.1").port(listener.local_addr().unwrap().port());
        config.user(self.config.get_user().unwrap()).dbname(self.config.get_dbname().unwrap());
        // A proxy that reads the messages expects none of TLS.
        config.ssl_mode(SslMode::Disable);
        (listener, config, Self::socket(&self.config))
    }

    /// The server's socket.
    pub fn socket(config: &Config) -> PathBuf {
        let Host::Unix(directory) = &config.get_hosts()[0] else { panic!("a socket") };
        directory.join(format!(".s.PGSQL.{}", config.get_ports()[0]))
    }

    /// A new session in place of one that was lost.
    pub async fn reconnect(&mut self) {
        self.client = connect(&self.config).await;
    }

    /// Runs statements that must succeed.
    pub async fn run(&self, sql: &str) {
        if let Err(error) = self.client.batch_execute(sql).await {
            panic!("{}: {sql}", refusal(&error));
        }
    }

    /// The only value of the only row.
    pub async fn one<T: FromSqlOwned>(&self, sql: &str) -> T {
        self.ask(sql, &[]).await
    }

    /// The only value of the only row of a query with parameters.
    pub async fn ask<T: FromSqlOwned>(&self, sql: &str, with: &[&(dyn ToSql + Sync)]) -> T {
        match self.client.query_one(sql, with).await {
            Ok(row) => row.get(0),
            Err(error) => panic!("{}: {sql}", refusal(&error)),
        }
    }

    /// The first column of every row.
    pub async fn all<T: FromSqlOwned>(&self, sql: &str) -> Vec<T> {
        let rows = self.client.query(sql, &[]).await;
        rows.unwrap_or_else(|error| panic!("{}: {sql}", refusal(&error)))
            .iter()
            .map(|row| row.get(0))
            .collect()
    }

    /// Rows as lines of text, columns separated by ` | `, for snapshots.
    pub async fn lines(&self, sql: &str) -> Vec<String> {
        let wrapped = format!(
            "select array_to_string(array(select coalesce(value, '-') from json_each_text(to_json(r))), ' | ') from ({sql}) r"
        );
        self.all(&wrapped).await
    }

    /// The error of a statement that must fail, as [`refusal`] writes it.
    pub async fn refused(&self, sql: &str) -> String {
        match self.client.batch_execute(sql).await {
            Ok(()) => panic!("it was not refused: {sql}"),
            Err(error) => refusal(&error),
        }
    }

    /// Waits until a question is answered with true.
    pub async fn until(&self, question: &str) {
        let asking = async {
            while !self.one::<bool>(question).await {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        if tokio::time::timeout(DEADLINE, asking).await.is_err() {
            panic!("it never became true: {question}");
        }
    }

    /// Waits until the session with this number waits for a lock.
    pub async fn until_blocked(&self, pid: i32) {
        self.until(&format!("select cardinality(pg_blocking_pids({pid})) > 0")).await;
    }

    /// Deletes every task with all that belongs to it, for tests of many rounds.
    pub async fn empty(&self) {
        for table in [
            "tuskline.task",
            "tuskline.queued",
            "tuskline.timer",
            "tuskline.lease",
            "tuskline.cancellation",
            "tuskline.task_failure",
            "tuskline.task_output",
            "tuskline.gate",
            "tuskline_core.policy_flag",
            "tuskline_core.flagged_queue",
            "tuskline.parked",
            "tuskline.task_limit",
            "tuskline.permit",
            "tuskline.wait_list",
            "tuskline_core.rate_state",
            "tuskline.tenant",
            "tuskline.chain_task",
            "tuskline.dependency",
            "tuskline.unmet_dependency",
            "tuskline_core.followed_lambda",
            "tuskline.dead_letter",
            "tuskline.redriven",
            "tuskline.breaker",
            "tuskline_core.recent_failure",
            "tuskline_core.awaited",
            "tuskline.operation",
            "tuskline.progress",
            "tuskline.unique_key",
            "tuskline.unique_policy",
            "tuskline.periodic",
            "tuskline.tick",
            "tuskline.task_archive",
        ] {
            self.run(&format!("delete from {table}")).await;
        }
        self.run("select tuskline_core.update_policy_flags(name) from tuskline.lambda").await;
    }

    /// Defines a lambda with the default settings.
    pub async fn define(&self, name: &str) {
        let new: bool = self.ask("select tuskline.define_lambda($1)", &[&name]).await;
        assert!(new);
    }

    /// Defines a lambda with settings in SQL, as `p_max_attempts => 3`.
    pub async fn define_with(&self, name: &str, settings: &str) {
        self.run(&format!("select tuskline.define_lambda('{name}', {settings})")).await;
    }

    /// Schedules a task that is due now.
    pub async fn schedule(&self, lambda: &str) -> i64 {
        self.ask("select tuskline.schedule($1)", &[&lambda]).await
    }

    /// Schedules a task that is due after a delay.
    pub async fn schedule_in(&self, lambda: &str, delay: Duration) -> i64 {
        self.ask(
            "select tuskline.schedule($1, p_delay => $2::float8 * interval '1 second')",
            &[&lambda, &delay.as_secs_f64()],
        )
        .await
    }

    /// Schedules tasks that are due now.
    pub async fn schedule_many(&self, lambda: &str, count: i32) -> Vec<i64> {
        let sql = "select tuskline.schedule_many(array_fill($1::text, array[$2::integer]))";
        self.ask(sql, &[&lambda, &count]).await
    }

    /// Where a task stands.
    pub async fn status(&self, id: i64) -> String {
        self.ask("select status::text from tuskline.tasks where id = $1", &[&id]).await
    }

    /// How many tasks have a status.
    pub async fn count(&self, status: &str) -> i64 {
        self.ask("select count(*) from tuskline.tasks where status::text = $1", &[&status]).await
    }

    /// The number of the queue of a lambda's priority.
    pub async fn queue(&self, lambda: &str, priority: &str) -> i32 {
        self.ask(
            "select queue_id from tuskline.queue where lambda = $1 and priority::text = $2",
            &[&lambda, &priority],
        )
        .await
    }

    /// How many rows all the queues have.
    pub async fn queued(&self) -> i64 {
        self.one("select count(*) from tuskline.queued").await
    }

    /// How many timers there are.
    pub async fn timers(&self) -> i64 {
        self.one("select count(*) from tuskline.timer").await
    }

    /// Calls the store consumer's verb once; returns the number of tasks that it moved.
    pub async fn enqueue_due(&self) -> i32 {
        self.one("select moved from tuskline.enqueue_due()").await
    }

    /// Calls the store consumer's second verb once; returns leases, rescued and buried tasks.
    pub async fn rescue(&self) -> (i32, i32, i32) {
        let row = self.client.query_one("select * from tuskline.rescue()", &[]).await.unwrap();
        (row.get(0), row.get(1), row.get(2))
    }

    /// The same by a session that has seen these executors silent, with so many beats. The server
    /// began its life at that time.
    pub async fn rescue_silent(
        &self,
        session: &Client,
        silent: &[(i64, i64)],
        booted_at: Option<DateTime<Utc>>,
    ) -> Rescued {
        let (executors, beats): (Vec<i64>, Vec<i64>) = silent.iter().copied().unzip();
        let sql = "select * from tuskline.rescue(100, $1, $2, $3)";
        let row = session.query_one(sql, &[&executors, &beats, &booted_at]).await.unwrap();
        let list = |name| row.get::<_, Option<Vec<i64>>>(name).unwrap_or_default();
        Rescued {
            did: (row.get(0), row.get(1), row.get(2)),
            booted_at: row.get("booted_at"),
            pulses: list("executors").into_iter().zip(list("beats")).collect(),
            lease_ms: list("lease_ms"),
            silent_ms: list("silent_ms"),
        }
    }

    /// Looks at the executors, and ends none.
    pub async fn look(&self) -> Rescued {
        self.rescue_silent(&self.client, &[], None).await
    }

    /// The operator's cancel: cancelled, requested, too_late or unknown.
    pub async fn cancel(&self, id: i64) -> String {
        self.ask("select tuskline.cancel($1)", &[&id]).await
    }
}

/// An error as the caller sees it: code, message and hint. An error that is not the server's stays
/// as it is.
pub fn refusal(error: &Error) -> String {
    let Some(said) = error.as_db_error() else { return error.to_string() };
    let hint = said.hint().map(|hint| format!(" [{hint}]")).unwrap_or_default();
    format!("{}: {}{hint}", said.code().code(), said.message())
}

async fn connect(config: &Config) -> Client {
    let (client, connection) = within(config.connect(NoTls)).await.unwrap();
    tokio::spawn(connection);
    // A test that forgets a lock gets an error, instead of a hang.
    client.batch_execute("set statement_timeout = '15s'").await.unwrap();
    client
}
