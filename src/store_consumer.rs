//! The Store Consumer: moves tasks that are due (new, retriable, timed out) from the task store
//! into the right queue.
//!
//! Promises: a due task is in its queue within milliseconds of its time, and within the safety
//! poll if every notification is lost; tasks of a dead executor return within its lease and two safety
//! polls; queues lost in a crash or failover are rebuilt. Any number of store consumers share the
//! work, none leads.
//! Must never: run a task, decide by this machine's clock what is due, or by a wall clock who is dead.

mod failure_detector;
mod mark;

use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tuskline_sdk::Address;

use crate::config::StoreConsumerOptions;
use crate::recovery::{Recovery, RoleHealth};
use crate::session::{Deadlines, Lost, Session};
use crate::store::{self, Promoted, Recovered, TIMER_CHANNEL, Watched};
use failure_detector::FailureDetector;
use mark::TimerMark;

const ROLE: &str = "store-consumer";

/// Longest wait for our own notification before the channel counts as deaf.
const ECHO_DEADLINE: Duration = Duration::from_secs(1);

/// Consumes until `shutdown`, through every loss of the database.
pub async fn run(
    address: impl Into<Address>,
    options: StoreConsumerOptions,
    health: RoleHealth,
    shutdown: CancellationToken,
) {
    let address = address.into();
    let (mut recovery, mut detector) = (Recovery::new(ROLE, health), FailureDetector::default());
    loop {
        let consumed = consume(&address, &options, &mut detector, &mut recovery);
        let Some(Err(lost)) = shutdown.run_until_cancelled(consumed).await else { break };
        shutdown.run_until_cancelled(sleep(recovery.failed(&lost))).await;
    }
    tracing::debug!("store consumer stopped");
}

async fn consume(
    address: &Address,
    options: &StoreConsumerOptions,
    detector: &mut FailureDetector,
    recovery: &mut Recovery,
) -> Result<std::convert::Infallible, Lost> {
    let mut consumer = StoreConsumer::connect(address, options, detector).await?;
    loop {
        let nap = timeout(options.lap_deadline, consumer.lap())
            .await
            .map_err(|_| Lost::Silent(options.lap_deadline))??;
        recovery.worked();
        consumer.sleep(nap).await?;
    }
}

/// Two sessions: one for the verbs, one that listens and holds the lock of the sleeping.
struct StoreConsumer<'o> {
    options: &'o StoreConsumerOptions,
    verbs: Session,
    bell: Session,
    ears: Ears,
    mark: TimerMark,
    /// Outlives the sessions: what was seen stays true as long as the server lives.
    detector: &'o mut FailureDetector,
    check_rebuilt_at: Instant,
    rescue_at: Instant,
}

/// Whether notifications arrive. That is found out while the work goes on: who starts behind a pooler
/// would do nothing for a second, and the dead would not be watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ears {
    /// We notified ourselves, and have to hear it by then.
    Pricked(Instant),
    Hear,
    Deaf,
}

/// Work that a lap leaves for the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nap {
    /// Sleep so long, or until notified.
    Deep(Duration),
    /// As deep, holding the lock, which is to be given up on waking.
    Held(Duration),
}

impl<'o> StoreConsumer<'o> {
    async fn connect(
        address: &Address,
        options: &'o StoreConsumerOptions,
        detector: &'o mut FailureDetector,
    ) -> Result<Self, Lost> {
        rebuild_queues_patiently(address).await?;
        let verbs = Session::open(address, ROLE, Deadlines::USUAL).await?;
        let bell = Session::listening(address, "store-consumer bell", TIMER_CHANNEL).await?;
        verbs.client().batch_execute(&format!("notify {TIMER_CHANNEL}")).await?;
        let ears = Ears::Pricked(Instant::now() + ECHO_DEADLINE);
        let mark = TimerMark::new(options.sweep_every, options.mark_margin);
        let rescue_at = Instant::now();
        let check_rebuilt_at = rescue_at + options.rebuild_check_every;
        Ok(Self { options, verbs, bell, ears, mark, detector, check_rebuilt_at, rescue_at })
    }

    /// One look at everything that may be due; says how long to sleep.
    async fn lap(&mut self) -> Result<Nap, Lost> {
        self.check_rebuilt().await?;
        self.rescue().await?;
        let next_due = self.enqueue_due().await?;
        self.judge_ears().await?;
        if self.ears != Ears::Hear {
            return Ok(Nap::Deep(next_due.min(self.options.longest_deaf_nap)));
        }
        match store::watch(self.bell.client()).await? {
            Watched::Held => Ok(Nap::Held(self.enqueue_due().await?)),
            Watched::Taken => Ok(Nap::Deep(self.enqueue_due().await?)),
            Watched::Busy => Ok(Nap::Deep(next_due.min(self.busy_nap()))),
        }
    }

    /// Not by the time alone: the echo may have come while a lap took longer than it was waited for.
    async fn judge_ears(&mut self) -> Result<(), Lost> {
        if !matches!(self.ears, Ears::Pricked(until) if until <= Instant::now()) {
            return Ok(());
        }
        self.listen(Duration::ZERO).await;
        if self.ears != Ears::Hear {
            self.ears = Ears::Deaf;
            self.bell.stop_listening().await?;
            tracing::warn!("notifications do not arrive (a transaction pooler?), polling instead");
        }
        Ok(())
    }

    /// Until a notification, at most so long.
    async fn listen(&mut self, length: Duration) {
        let woken = timeout(length, self.bell.notified()).await.is_ok();
        if woken && matches!(self.ears, Ears::Pricked(_)) && !self.bell.is_closed() {
            self.ears = Ears::Hear;
        }
    }

    /// Moves everything that is due; how long until the next is, at most the longest nap.
    async fn enqueue_due(&mut self) -> Result<Duration, Lost> {
        let mut from = self.mark.begin();
        loop {
            let call = store::enqueue_due(
                self.verbs.client(),
                from,
                self.options.batch,
                &self.options.installation,
            )
            .await?;
            self.mark.learn(&call);
            if call.moved > 0 {
                tracing::debug!(moved = call.moved, "enqueue_due");
            }
            // By turns: neither waits for the other's backlog of millions.
            let gates = if call.gates { Some(self.promote().await?) } else { None };
            let more = |promoted: Promoted| promoted.moved >= self.options.batch;
            if call.moved < self.options.batch && !gates.is_some_and(more) {
                let gates = gates.and_then(|promoted| promoted.next_due);
                return Ok(self.nap_until(call.next_due.into_iter().chain(gates).min()));
            }
            // Takes minutes, which the dead need not wait for.
            self.rescue().await?;
            from = self.mark.proceed();
        }
    }

    /// Does a batch of what gates ask for.
    async fn promote(&self) -> Result<Promoted, Lost> {
        let call =
            store::promote(self.verbs.client(), self.options.batch, &self.options.installation)
                .await?;
        if call.moved > 0 {
            tracing::debug!(moved = call.moved, "promote");
        }
        Ok(call)
    }

    async fn rescue(&mut self) -> Result<(), Lost> {
        if Instant::now() < self.rescue_at {
            return Ok(());
        }
        self.rescue_at = Instant::now() + self.options.rescue_every;
        loop {
            let silent = self.detector.due(Instant::now());
            let call = store::rescue(
                self.verbs.client(),
                self.options.rescue_batch,
                &silent,
                &self.options.installation,
            )
            .await?;
            self.detector.learn(&call, Instant::now());
            let (silent, silent_ms) = self.detector.worth_noting(Instant::now());
            if !silent_ms.is_empty() {
                store::note_silence(self.verbs.client(), &silent, &silent_ms).await?;
            }
            if call.tasks > 0 {
                tracing::info!(rescued = call.tasks, "rescue");
            }
            if call.buried > 0 {
                let dead = call.buried;
                tracing::error!(dead, "rescue: tasks are dead, their workers ended too often");
            }
            // Tasks that another transaction has locked stay behind until the next lap.
            if call.leases < self.options.rescue_batch || call.tasks + call.buried == 0 {
                return Ok(());
            }
        }
    }

    /// A crash or failover ends our sessions, too, and we look when we connect again. This is for platforms that
    /// drop the tables after a promotion, and for prepared transactions that end late.
    async fn check_rebuilt(&mut self) -> Result<(), Lost> {
        if Instant::now() < self.check_rebuilt_at {
            return Ok(());
        }
        self.check_rebuilt_at = Instant::now() + self.options.rebuild_check_every;
        rebuild_queues(&self.verbs).await
    }

    async fn sleep(&mut self, nap: Nap) -> Result<(), Lost> {
        let (Nap::Deep(length) | Nap::Held(length)) = nap;
        let length = length.min(self.until_rescue());
        // Whether it was the time or a notification, the next lap looks at everything.
        self.listen(length).await;
        if matches!(nap, Nap::Held(_)) {
            let deadline = self.options.lap_deadline;
            timeout(deadline, store::unwatch(self.bell.client()))
                .await
                .map_err(|_| Lost::Silent(deadline))??;
        }
        Ok(())
    }

    /// A silence that comes due does not wait for the safety poll. If another transaction has locked the
    /// executor, it is tried again at the pace of `rescue`.
    fn until_rescue(&self) -> Duration {
        let due = self.detector.next_due_at().map(|due| due.max(self.rescue_at));
        due.map_or(Duration::MAX, |due| due.saturating_duration_since(Instant::now()))
    }

    /// Zero would mean that a due timer was left: another transaction has locked its task.
    fn nap_until(&self, next_due: Option<Duration>) -> Duration {
        match next_due {
            Some(Duration::ZERO) => self.busy_nap(),
            Some(due) => due.min(self.options.longest_nap),
            None => self.options.longest_nap,
        }
    }

    fn busy_nap(&self) -> Duration {
        self.options.busy_nap.mul_f64(1.0 + fastrand::f64())
    }
}

/// On a session without deadlines: a rebuild reads every open segment.
async fn rebuild_queues_patiently(address: &Address) -> Result<(), Lost> {
    rebuild_queues(&Session::open(address, ROLE, Deadlines::PATIENT).await?).await
}

async fn rebuild_queues(session: &Session) -> Result<(), Lost> {
    let Recovered { rebuilt, tasks, copied } = store::rebuild_queues(session.client()).await?;
    if copied {
        tracing::warn!("this database is a copy: nothing is claimed for one lease");
    }
    if rebuilt {
        tracing::info!(tasks, "rebuild_queues: the queues were lost and are complete again");
    } else if tasks > 0 {
        tracing::info!(tasks, "rebuild_queues: tasks of prepared transactions were queued");
    }
    Ok(())
}
