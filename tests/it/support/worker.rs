//! Real workers in the test's own process, with bodies that stop where the test wants them to.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tuskline::config::StoreConsumerOptions;
use tuskline_sdk::{Context, Error, Lambda, Outcome, Worker, WorkerBuilder, WorkerConfig};

use super::record::Record;
use super::{Db, within};

/// Heartbeat period of workers whose death the test waits for. They end themselves after 3.2 s, and
/// the lease is 4.2 s. That is enough for a machine busy with other tests.
pub const HEARTBEAT: Duration = Duration::from_millis(800);

/// Timings of a worker that ends itself soon when its heartbeats fail.
pub fn mortal() -> WorkerConfig {
    let mut config = WorkerConfig::with_heartbeat(HEARTBEAT);
    config.cancel_grace = Duration::from_millis(300);
    config
}

/// Timings of a worker that beats often.
pub fn quick() -> WorkerConfig {
    let mut config = calm();
    config.heartbeat_period = Duration::from_millis(200);
    config.heartbeat_timeout = Duration::from_secs(5);
    config
}

/// The usual timings, for a worker whose heartbeats do not matter to the test.
pub fn calm() -> WorkerConfig {
    let mut config = WorkerConfig::default();
    config.cancel_grace = Duration::from_millis(300);
    config
}

/// A worker in this process. Dropping it does not end it in order: see [`Running::stop`].
pub struct Running {
    token: CancellationToken,
    work: JoinHandle<Result<(), Error>>,
    lost: Arc<Mutex<Vec<String>>>,
}

impl Running {
    /// Starts a worker on the test's database.
    pub fn start(db: &Db, config: WorkerConfig, lambdas: Vec<Lambda>) -> Self {
        let worker = Worker::builder(&db.config).config(config);
        Self::of(lambdas.into_iter().fold(worker, WorkerBuilder::serve))
    }

    /// Starts a worker that the test has put together.
    pub fn of(worker: WorkerBuilder) -> Self {
        let (token, lost) = (CancellationToken::new(), Arc::new(Mutex::new(Vec::new())));
        let reasons = Arc::clone(&lost);
        let worker = worker
            .until(token.clone().cancelled_owned())
            .on_lost(move |why| reasons.lock().unwrap().push(why.to_owned()));
        Self { token, work: tokio::spawn(worker.run()), lost }
    }

    /// Tells it to end.
    pub fn tell_to_stop(&self) {
        self.token.cancel();
    }

    /// Ends it in order.
    pub async fn stop(mut self) {
        self.token.cancel();
        within(&mut self.work).await.unwrap().unwrap();
        assert_eq!(self.lost(), Vec::<String>::new());
    }

    /// Panics if it has ended by itself.
    pub async fn assert_running(&mut self) {
        if self.work.is_finished() {
            panic!("it ended by itself: {:?}", (&mut self.work).await);
        }
    }

    /// The reasons for which its watchdog would have ended the process.
    pub fn lost(&self) -> Vec<String> {
        self.lost.lock().unwrap().clone()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.work.abort();
    }
}

/// An execution that has stopped at a gate.
#[derive(Debug)]
pub struct Stopped {
    /// Its payload.
    pub payload: Value,
    /// Its context.
    pub context: Context,
}

/// A point where bodies stop until the test lets them pass.
#[derive(Clone)]
pub struct Gate {
    record: Record,
    passes: Arc<Semaphore>,
    arrive: UnboundedSender<Stopped>,
    arrived: Arc<AsyncMutex<UnboundedReceiver<Stopped>>>,
    _dir: Arc<TempDir>,
}

impl Gate {
    /// A closed gate, with a record of its own.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let record = Record::at(&dir.path().join("record"));
        let (arrive, arrived) = unbounded_channel();
        let (passes, arrived) = (Arc::new(Semaphore::new(0)), Arc::new(AsyncMutex::new(arrived)));
        Self { record, passes, arrive, arrived, _dir: Arc::new(dir) }
    }

    /// A gate that lets every body pass.
    pub fn open() -> Self {
        let gate = Self::new();
        gate.open_for_good();
        gate
    }

    /// The record of the bodies that passed.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// A lambda whose body stops at the gate and then succeeds.
    pub fn lambda(&self, name: &str) -> Lambda {
        self.lambda_saying(name, |_, _| Outcome::Success(None))
    }

    /// A lambda whose body stops at the gate and then returns the outcome that `say` computes.
    pub fn lambda_saying(
        &self,
        name: &str,
        say: impl Fn(Value, Context) -> Outcome + Send + Sync + 'static,
    ) -> Lambda {
        let (gate, say) = (self.clone(), Arc::new(say));
        Lambda::named(name, move |payload: Value, context: Context| {
            let (gate, say) = (gate.clone(), Arc::clone(&say));
            async move {
                let _begun = gate.record.begin(&context);
                gate.stop_here(payload.clone(), context.clone()).await;
                say(payload, context)
            }
        })
    }

    /// Stops until the test lets one more pass.
    pub async fn stop_here(&self, payload: Value, context: Context) {
        let _ = self.arrive.send(Stopped { payload, context });
        self.passes.acquire().await.unwrap().forget();
    }

    /// The next body that stopped here.
    pub async fn next(&self) -> Stopped {
        within(async { self.arrived.lock().await.recv().await }).await.unwrap()
    }

    /// The next so many bodies that stopped here.
    pub async fn next_many(&self, count: usize) -> Vec<Stopped> {
        let mut stopped = Vec::new();
        while stopped.len() < count {
            stopped.push(self.next().await);
        }
        stopped
    }

    /// Bodies that have stopped here since the last question.
    pub async fn waiting(&self) -> usize {
        let mut arrived = self.arrived.lock().await;
        std::iter::from_fn(|| arrived.try_recv().ok()).count()
    }

    /// Lets so many bodies pass.
    pub fn let_pass(&self, count: usize) {
        self.passes.add_permits(count);
    }

    /// Lets every body pass from now on.
    pub fn open_for_good(&self) {
        self.passes.add_permits(1 << 40);
    }
}

impl Db {
    /// A store consumer in this process, until the answer is dropped.
    pub fn store_consumer(&self) -> DropGuard {
        self.store_consumer_with(StoreConsumerOptions::default())
    }

    /// The same with other bounds.
    pub fn store_consumer_with(&self, options: StoreConsumerOptions) -> DropGuard {
        let token = CancellationToken::new();
        tokio::spawn(tuskline::store_consumer::run(
            self.config.clone(),
            options,
            tuskline::recovery::RoleHealth::default(),
            token.clone(),
        ));
        token.drop_guard()
    }

    /// Schedules a task with a payload as JSON text.
    pub async fn schedule_with(&self, lambda: &str, payload: &str) -> i64 {
        self.ask("select tuskline.schedule($1, $2::text::json)", &[&lambda, &payload]).await
    }

    /// Schedules a task with a priority.
    pub async fn schedule_at(&self, lambda: &str, priority: &str) -> i64 {
        self.ask("select tuskline.schedule($1, p_priority => $2)", &[&lambda, &priority]).await
    }

    /// Waits until a task has a status.
    pub async fn until_status(&self, id: i64, status: &str) {
        self.until(&format!(
            "select exists (select from tuskline.tasks where id = {id} and status = '{status}')"
        ))
        .await;
    }

    /// Waits until so many tasks have a status.
    pub async fn until_count(&self, status: &str, count: usize) {
        self.until(&format!(
            "select count(*) >= {count} from tuskline.tasks where status = '{status}'"
        ))
        .await;
    }

    /// Waits until a worker sleeps on every queue of a lambda: it holds the locks that make inserts
    /// notify.
    pub async fn until_asleep(&self, lambda: &str) {
        self.until(&format!(
            "select count(*) = 4 from tuskline.queue q join pg_locks k
               on k.locktype = 'advisory' and k.classid = 1953854315 and k.objid = tuskline.bell_of(q.queue_id)
              and k.mode = 'ExclusiveLock' and k.granted
              and k.database = (select oid from pg_database where datname = current_database())
             where q.lambda = '{lambda}'"
        ))
        .await;
    }

    /// Error class and message of the failures of a task, oldest first.
    pub async fn failures(&self, id: i64) -> Vec<(String, String)> {
        let sql = "select error_class, message from tuskline.task_failure where task_id = $1 order by fence";
        let rows = self.client.query(sql, &[&id]).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    /// Ends every session of the workers in this database, and waits until they are gone; how many.
    pub async fn cut_workers(&self) -> usize {
        let ended: Vec<i32> = self
            .one(
                "select coalesce(array_agg(pid) filter (where pg_terminate_backend(pid)), '{}')
                   from pg_stat_activity
                  where datname = current_database() and application_name = 'tuskline-worker'",
            )
            .await;
        let gone = format!(
            "select not exists (select from pg_stat_activity where pid = any (array{ended:?}::integer[]))"
        );
        self.until(&gone).await;
        ended.len()
    }

    /// Nothing is left behind: no lease, no queue row, no timer, no request to cancel.
    pub async fn assert_nothing_left(&self) {
        for table in ["lease", "queued", "timer", "cancellation"] {
            let rows: i64 = self.one(&format!("select count(*) from tuskline.{table}")).await;
            assert_eq!(rows, 0, "rows in {table}");
        }
        self.assert_invariants().await;
    }

    /// The stored state keeps each guarantee, as `tuskline doctor --verify` asks.
    pub async fn assert_invariants(&self) {
        let broken = "select * from tuskline.invariants() where violations > 0";
        assert_eq!(self.lines(broken).await, [""; 0]);
    }
}
