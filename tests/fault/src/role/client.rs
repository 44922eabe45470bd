//! A client process. It schedules tasks at a steady rate: singly, in batches, by plain INSERT, for
//! now and for later. It cancels a few, and records the answers. From SIGUSR1 to SIGUSR2 some of
//! the payloads are large.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::value::to_raw_value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tuskline_history::{Event, Writer};
use tuskline_sdk::{
    Chain, Client, Error, ErrorKind, NewTask, Node, On, OnParentFailure, Priority, TaskId,
};

use super::worker::{BRITTLE, GATED, LAMBDAS, LIMITED, ORDERED, PARTS, PILL, Payload, RATED};
use super::{Load, Order};

/// Time between two rounds of calls.
const ROUND: Duration = Duration::from_millis(50);
/// Ordering keys of a client.
const KEYS: u64 = 24;
/// Each chain draws its lambda from these: a long task would keep a hundred tasks waiting.
const CHAINED: [&str; 3] = ["quick", "flaky", "blocking"];
/// Most calls under way; beyond, rounds are left out, as a client with a bounded queue would.
const MOST_CALLS: usize = 24;

/// Schedules until SIGTERM, then waits for the calls under way.
pub(super) async fn schedule(order: &Order, writer: Writer) -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter("warn").init();
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        terminate.recv().await;
        stopping.cancel();
    });
    heed_sizes()?;
    let client = loop {
        match Client::connect(&order.url).await {
            Ok(client) => break client,
            Err(error) if error.is_retryable() && !stop.is_cancelled() => {
                tokio::time::sleep(ROUND).await;
            }
            Err(error) => return Err(error.into()),
        }
    };
    let keys = Arc::new(Mutex::new(Keys::new(order.number)));
    let mut calls = Calls { client, writer, keys, next_op: order.number << 32, load: order.load };
    let mut under_way = JoinSet::new();
    let mut clock = tokio::time::interval(ROUND);
    let mut owed = 0.0;
    while !stop.is_cancelled() {
        clock.tick().await;
        owed += f64::from(order.load.tasks_per_second) * ROUND.as_secs_f64();
        while under_way.try_join_next().is_some() {}
        while owed >= 1.0 && under_way.len() < MOST_CALLS {
            let call = calls.draw(owed);
            owed -= f64::from(call.tasks);
            under_way.spawn(call.make());
        }
        owed = owed.min(f64::from(order.load.tasks_per_second));
    }
    while under_way.join_next().await.is_some() {}
    calls.writer.note(Event::Exit);
    Ok(())
}

/// Some payloads are large.
static LARGE: AtomicBool = AtomicBool::new(false);

fn heed_sizes() -> anyhow::Result<()> {
    for (kind, large) in [(SignalKind::user_defined1(), true), (SignalKind::user_defined2(), false)]
    {
        let mut requests = signal(kind)?;
        tokio::spawn(async move {
            while requests.recv().await.is_some() {
                LARGE.store(large, Ordering::Relaxed);
            }
        });
    }
    Ok(())
}

/// An eighth of the payloads have 4 to 250 KiB more, which do not compress.
fn pad() -> Option<String> {
    if !LARGE.load(Ordering::Relaxed) || fastrand::u32(0..8) > 0 {
        return None;
    }
    Some((0..fastrand::usize(4 << 10..250 << 10)).map(|_| fastrand::alphanumeric()).collect())
}

/// Draws calls.
struct Calls {
    client: Client,
    writer: Writer,
    keys: Arc<Mutex<Keys>>,
    next_op: u64,
    load: Load,
}

/// Ordering keys that no call under way uses. Calls of one key follow one another, so the order of
/// acceptance is known.
struct Keys {
    client: u64,
    next: u64,
    free: Vec<String>,
}

impl Keys {
    fn new(client: u64) -> Self {
        let mut keys = Self { client, next: 0, free: Vec::new() };
        (0..KEYS).for_each(|_| keys.add());
        keys
    }

    /// Adds a fresh key, to replace a key whose last call has an unknown outcome.
    fn add(&mut self) {
        self.next += 1;
        self.free.push(format!("{}-{}", self.client, self.next));
    }

    fn take(&mut self) -> Option<String> {
        let at = fastrand::usize(0..self.free.len().max(1));
        (at < self.free.len()).then(|| self.free.swap_remove(at))
    }
}

/// A call that schedules.
struct Call {
    client: Client,
    writer: Writer,
    op: u64,
    lambda: &'static str,
    priority: Priority,
    tasks: u32,
    delay: Duration,
    how: How,
    load: Load,
    key: Option<String>,
    keys: Arc<Mutex<Keys>>,
}

/// Ways to schedule.
#[derive(Clone, Copy)]
enum How {
    /// `Client::schedule`.
    One,
    /// `Client::schedule_many`.
    Many,
    /// INSERT in a transaction of the client's own, with an explicit COMMIT.
    Insert,
    /// `Client::schedule_chain`.
    Chain,
}

impl Calls {
    /// The next call, with no more tasks than are due by the rate.
    fn draw(&mut self, owed: f64) -> Call {
        self.next_op += 1;
        let how = match fastrand::u32(0..10) {
            0..2 if self.load.chained => How::Chain,
            0..6 => How::One,
            6..9 if owed >= 8.0 => How::Many,
            9 => How::Insert,
            _ => How::One,
        };
        let tasks = match how {
            How::One => 1,
            How::Many => fastrand::u32(4..24),
            How::Insert => fastrand::u32(1..4),
            How::Chain => fastrand::u32(2..=100),
        };
        let lambda = match self.load.pill_one_in {
            _ if matches!(how, How::Chain) => CHAINED[fastrand::usize(0..CHAINED.len())],
            1.. if matches!(how, How::One) && fastrand::u32(0..self.load.pill_one_in) == 0 => PILL,
            // Places of the dead are held until their leases end: a limit takes no more than this.
            _ if self.load.controlled && fastrand::u32(0..4) > 0 => match fastrand::u32(0..12) {
                0 => LIMITED,
                1 => RATED,
                2..6 => GATED,
                _ => ORDERED,
            },
            _ if self.load.brittle && fastrand::bool() => BRITTLE,
            _ => LAMBDAS[fastrand::usize(0..4)],
        };
        let key = match lambda {
            ORDERED => self.keys.lock().unwrap_or_else(PoisonError::into_inner).take(),
            _ => None,
        };
        // Without a key to spare it is a task without an order.
        let priority = [Priority::High, Priority::Normal, Priority::Low][fastrand::usize(0..3)];
        let delay = match fastrand::u32(0..100) {
            // When it comes due it joins its line, behind those that were accepted later.
            0..15 if key.is_none() && !matches!(how, How::Chain) => {
                Duration::from_millis(fastrand::u64(100..4_000))
            }
            _ => Duration::ZERO,
        };
        let (client, writer, keys) =
            (self.client.clone(), self.writer.clone(), Arc::clone(&self.keys));
        let (load, op) = (self.load, self.next_op);
        Call { client, writer, op, lambda, priority, tasks, delay, how, load, key, keys }
    }
}

impl Call {
    async fn make(self) {
        let delay_ms = u64::try_from(self.delay.as_millis()).unwrap_or(u64::MAX);
        self.writer.note(Event::Schedule {
            op: self.op,
            lambda: self.lambda.into(),
            tasks: self.tasks,
            delay_ms,
            key: None,
            ordering_key: self.key.clone(),
            chain: matches!(self.how, How::Chain),
        });
        let op = self.op;
        let sent = self.send().await;
        self.give_back_key(sent.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unknown));
        let ids = match sent {
            Ok(ids) => ids,
            Err(error) if error.kind() == ErrorKind::Unknown => {
                return self.writer.note(Event::ScheduleInfo { op, why: error.to_string() });
            }
            Err(error) => {
                return self.writer.note(Event::ScheduleFail { op, why: error.to_string() });
            }
        };
        let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
        self.writer.note(Event::ScheduleOk { op, ids: ids.clone() });
        if fastrand::u32(0..200) == 0 {
            self.cancel(ids[0]).await;
        }
    }

    fn give_back_key(&self, unknown: bool) {
        let Some(key) = &self.key else { return };
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        match unknown {
            true => keys.add(),
            false => keys.free.push(key.clone()),
        }
    }

    async fn send(&self) -> Result<Vec<TaskId>, Error> {
        let tasks = (0..self.tasks).map(|n| self.task(n)).collect::<Result<Vec<_>, _>>()?;
        match self.how {
            How::One => Ok(vec![self.client.schedule(&tasks[0]).await?]),
            How::Many => self.client.schedule_many(&tasks).await,
            How::Insert => self.insert().await,
            How::Chain => Ok(self.client.schedule_chain(&self.chain()?).await?.ids),
        }
    }

    fn task(&self, n: u32) -> Result<NewTask, Error> {
        let task = NewTask::new(self.lambda, &self.payload(n)).priority(self.priority);
        let task = match &self.key {
            Some(key) => task.ordering_key(key),
            None => task,
        };
        Ok(if self.delay.is_zero() { task } else { task.after(self.delay) })
    }

    fn payload(&self, n: u32) -> Payload {
        let ms = match self.lambda {
            "slow" if fastrand::u32(0..self.load.long_one_in) == 0 => {
                fastrand::u64(2_200..self.load.long_most_ms)
            }
            "slow" => fastrand::u64(50..200),
            _ => fastrand::u64(2..20),
        };
        let fail_until = match self.lambda {
            "flaky" if fastrand::u32(0..5) == 0 => fastrand::i16(1..3),
            _ => 0,
        };
        let part = PARTS[fastrand::usize(0..PARTS.len())];
        let part = (self.lambda == BRITTLE).then(|| part.to_owned());
        Payload { op: self.op, n, ms, fail_until, fatal: false, part, pad: pad(), schedule: None }
    }

    /// A chain of tasks that wait for some of the eight before them. A few of the tasks fail for
    /// good.
    fn chain(&self) -> Result<Chain, Error> {
        let (mut chain, mut nodes) = (Chain::new(), Vec::<Node>::new());
        for n in 0..self.tasks {
            let payload = Payload { fatal: fastrand::u32(0..12) == 0, ..self.payload(n) };
            let node = chain.task(NewTask::new(self.lambda, &payload).priority(self.priority));
            // Each of them once: a parent is waited for on one condition.
            let mut near = nodes[nodes.len().saturating_sub(8)..].to_vec();
            for _ in 0..fastrand::usize(0..4).min(near.len()) {
                let parent = near.swap_remove(fastrand::usize(..near.len()));
                let on = match fastrand::u32(0..6) {
                    0 => On::Failure,
                    1 => On::Always,
                    _ => On::Success,
                };
                chain.after_end(node, parent, on);
            }
            if fastrand::u32(0..4) == 0 {
                chain.on_parent_failure(node, OnParentFailure::Run);
            }
            nodes.push(node);
        }
        Ok(chain)
    }

    /// Nothing before the COMMIT is accepted, and a COMMIT that broke is unknown.
    async fn insert(&self) -> Result<Vec<TaskId>, Error> {
        let mut connection = self.client.connection().await?;
        let transaction = connection.transaction().await.map_err(Error::from_read)?;
        let mut ids = Vec::new();
        for n in 0..self.tasks {
            // A number and a text: they have a JSON form.
            let payload = to_raw_value(&self.payload(n)).unwrap_or_default();
            let row = transaction
                .query_one(
                    "insert into tuskline.task (lambda, payload, priority, ordering_key, scheduled_at) \
                     values ($1, ($2::text)::json, ($3::text)::tuskline.priority, $5, \
                       case when $4::float8 > 0 then clock_timestamp() + $4::float8 * interval '1 ms' end) \
                     returning id",
                    &[&self.lambda, &payload.get(), &self.priority.as_str(), &self.delay_ms(), &self.key],
                )
                .await
                .map_err(Error::from_read)?;
            ids.push(TaskId(row.get(0)));
        }
        transaction.commit().await.map_err(Error::from_write)?;
        connection.confirm()?;
        Ok(ids)
    }

    fn delay_ms(&self) -> f64 {
        self.delay.as_secs_f64() * 1_000.0
    }

    async fn cancel(&self, task: i64) {
        self.writer.note(Event::Cancel { task });
        let answer = match self.client.cancel(TaskId(task), Some("drawn by lot")).await {
            Ok(answer) => serde_json::to_value(answer).ok(),
            Err(_) => None,
        };
        let answer = answer.and_then(|word| word.as_str().map(str::to_owned));
        let answer = answer.unwrap_or_else(|| "error".into());
        self.writer.note(Event::CancelAnswer { task, answer });
    }
}
