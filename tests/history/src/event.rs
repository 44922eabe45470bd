//! The events of a history.

use serde::{Deserialize, Serialize};

use crate::{Periodic, Rate, Redrive, Settings};

/// A line of a history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// When, in nanoseconds of CLOCK_MONOTONIC.
    pub at: u64,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

/// An event. The tag is the key `e`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "e", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the variants say what their fields are")]
pub enum Event {
    /// First line of every file: its writer.
    Opened { actor: Actor, pid: u32 },

    // --- clients -------------------------------------------------------------------------------
    /// A batch of tasks is about to be scheduled in one commit. The payload of each is an object
    /// with `op` and `n` (from 0), by which its row is found again. No other batch of the history
    /// has this `op`; sending it again is another try of the same batch.
    Schedule {
        op: u64,
        lambda: String,
        tasks: u32,
        /// Due so long after it is accepted; 0: at once.
        delay_ms: u64,
        /// Idempotency key of the batch, once Tuskline has them: at most one task of each `n`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        /// Ordering key, once Tuskline has them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ordering_key: Option<String>,
        /// Its tasks are those of one graph.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        chain: bool,
    },
    /// It was accepted. A try that is answered by none of these three is unknown.
    ScheduleOk { op: u64, ids: Vec<i64> },
    /// It was refused, or never reached the database: nothing may exist.
    ScheduleFail { op: u64, why: String },
    /// The outcome is unknown: all of the batch exists, or nothing.
    ScheduleInfo { op: u64, why: String },
    /// A task is about to be cancelled.
    Cancel { task: i64 },
    /// The answer: `cancelled`, `requested`, `too_late`, `unknown` or `error`.
    CancelAnswer { task: i64, answer: String },

    // --- executors -----------------------------------------------------------------------------
    /// The worker sent the registration as this executor, for the first time or anew, and it was answered.
    /// Its lease counts from here to the first `BeatAck`.
    Registered {
        /// Its number.
        executor: i64,
        /// When the answer came, if that was written down.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answered: Option<u64>,
    },
    /// A claim was answered.
    Claimed { fence: i64, tasks: Vec<i64> },
    /// A body begins, after it tried to take the kernel's lock of its task.
    BodyStart { task: i64, fence: i64, attempt: i16, op: u64, n: u32, lock: LockAnswer },
    /// The body is still at it (each 50 ms).
    BodyTick { task: i64, fence: i64 },
    /// The body has ended, just before it gives up the lock and before its result is sent.
    BodyEnd { task: i64, fence: i64, ended: Ended },
    /// The database refused results because the attempt was over.
    ResultRefused { tasks: Vec<i64> },
    /// A heartbeat was sent.
    BeatSent { beat: u64 },
    /// It was acknowledged.
    BeatAck { beat: u64 },
    /// The worker's LISTENing connection is given up as lost.
    LineLost,
    /// The worker's registration is over, and no body of it runs any more; it says why.
    Lost { why: String },
    /// The worker is about to end itself, and says why.
    Ends { why: String },
    /// The process ends in order: it holds no task and sends no more heartbeats.
    Exit,
    /// The process, a host controller or an executor of one, is below this guardian.
    Guarded { guardian: u32 },
    /// A host controller says that a process below it has ended, before it gives back the tasks that the
    /// process had in hand. `why`: the controller's reason to end it, or how it ended by itself.
    ProcessEnded { pid: u32, why: String, tasks: Vec<i64> },

    // --- the fault injector --------------------------------------------------------------------
    /// The settings of the run; once, in its first lines.
    Settings(Settings),
    /// A phase of the timetable.
    Phase { name: String, edge: Edge },
    /// A process was started.
    Spawned { pid: u32, role: Role },
    /// A fault begins; `pid` is its process, or null if it hits all. The kind `failover` and
    /// `dropped_tables` have a bound of their own, from their end.
    Fault { id: u64, kind: String, pid: Option<u32>, detail: String },
    /// A fault has the rows of these tasks locked, until it is over.
    RowsHeld { id: u64, tasks: Vec<i64> },
    /// It is over.
    FaultEnd { id: u64 },
    /// A process was stopped (SIGSTOP); every thread stands still.
    Stopped { pid: u32 },
    /// It goes on (SIGCONT was sent just after this was written).
    Continued { pid: u32 },
    /// The kernel reported the end of a process. `signal` 9 without a kill by the injector: it ended
    /// itself.
    Reaped { pid: u32, code: Option<i32>, signal: Option<i32> },
    /// The database became unreachable for all processes, or answers again. Spans do not nest.
    Database { edge: Edge, why: String },
    /// An earlier copy has replaced the database, and no session was connected to either just
    /// before. The copy lacks all changes since `taken` (nanoseconds of CLOCK_MONOTONIC).
    Restored {
        how: String,
        taken: u64,
        /// The copy issues the ids of what it lost again: nothing in it tells that it is one.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        ids_again: bool,
    },
    /// Transitions under an old fence were tried on purpose. A call that is neither refused nor
    /// applied got no answer.
    Stale { verb: Verb, tried: u64, refused: u64, applied: u64 },
    /// A gate was closed (the call returned) or is about to be opened, once Tuskline has gates.
    Gate { lambda: String, edge: Edge },
    /// A schedule ticked, and ticks no more; written when it is over.
    Periodic(Periodic),
    /// A rate limit was lowered for a while; written when it is raised again.
    Rate(Rate),

    // --- the database, exported after the end -----------------------------------------------------
    /// A task changed, written by a trigger in the same transaction. `step` grows along the changes
    /// of one task (drawn under its row lock); between tasks it says nothing.
    Transition {
        task: i64,
        step: i64,
        from: Option<Status>,
        to: Status,
        fence: i64,
        attempt: i16,
        crashes: i16,
        /// The database's clock, microseconds since 1970.
        db_us: i64,
        /// When it is due, on that clock; none: at once. Read where a task is made, becomes new or
        /// fails retriably: `scheduled_at`, or the end of its backoff. Never the time of a safety
        /// net (`next_trigger_at` of a task made as enqueued).
        due_us: Option<i64>,
        xid: u64,
    },
    /// A task as it is at the end. Tasks of one lambda and ordering key run in the order of their ids.
    Row {
        task: i64,
        op: u64,
        n: u32,
        lambda: String,
        status: Status,
        fence: i64,
        attempt: i16,
        max_attempts: i16,
        crashes: i16,
        max_crashes: i16,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ordering_key: Option<String>,
        /// The schedule that made the task, as its payload names it, and the time when the task was
        /// due.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tick: Option<(String, i64)>,
    },
    /// A task waits for a parent's `success`, `failure` or end (`always`); `run`: for its success, but a
    /// failure will do. Both as they are at the end.
    Dependency { task: i64, parent: i64, condition: String, run: bool },
    /// A failed attempt on record.
    Failure {
        task: i64,
        fence: i64,
        class: String,
        /// Equal for failures of one cause.
        #[serde(default)]
        fingerprint: String,
    },
    /// The outcome of a tick of a schedule: its task, or the reason why it has none; and the time
    /// of that.
    Tick { name: String, tick_us: i64, task: Option<i64>, reason: Option<String>, fired_us: i64 },
    /// A redrive let a task go, in this transaction; `step` as that of transitions.
    Redriven { task: i64, redrive: i64, step: i64, xid: u64 },
    /// A redrive.
    Redrive(Redrive),
    /// A task that is listed as dead; `shown`: to users, too.
    DeadLetter { task: i64, shown: bool },
    /// A number that must be zero at the end: leases, timers, queued, locks, idle transactions, ...
    Left { what: String, count: i64 },
    /// A number that is shown to users, and the same counted from the rows.
    Shown { what: String, shown: i64, counted: i64 },
}

/// The writer of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// A process that schedules.
    Client,
    /// A worker process, or a host controller.
    Executor,
    /// An executor below a host controller.
    Hosted,
    /// The fault injector.
    Injector,
    /// The export of the database after the end.
    Database,
}

/// The role of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It schedules tasks.
    Client,
    /// It executes them.
    Worker,
    /// A guardian, its host controller and their executors.
    Host,
    /// It runs `tuskline serve`'s loops.
    StoreConsumer,
    /// A PostgreSQL server.
    Server,
    /// A connection pooler.
    Pooler,
}

/// Beginning or end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Edge {
    /// It begins; of a database: it goes down; of a gate: it is closed.
    Begin,
    /// It ends; of a database: it answers again; of a gate: it is opened.
    End,
}

/// The kernel's answer to a body that asked for its task's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockAnswer {
    /// No other body executes the task.
    Free,
    /// Process `pid` executes it at this moment, under `fence`.
    Held {
        /// The other process, by the kernel's word.
        pid: u32,
        /// Its fence; 0 if it has not written it down yet.
        fence: i64,
    },
}

/// How a body ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// It returned a success.
    Success,
    /// It returned a failure worth another attempt.
    Retriable,
    /// It returned a failure that is final.
    Fatal,
    /// The body was asked to stop, or dropped.
    Stopped,
}

/// Verbs that are sent with old fences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// `start`.
    Start,
    /// `set_results`, a success.
    SetResults,
    /// `set_results`, a failure with a note.
    SetResultsNote,
    /// `release`.
    Release,
    /// `heartbeat` of an executor that has ended.
    Heartbeat,
    /// `claim` of an executor that has ended.
    Claim,
    /// `assert_current`.
    AssertCurrent,
}

/// Status of a task, in the database's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "described at the type tuskline.status")]
pub enum Status {
    New,
    Enqueued,
    Claimed,
    Processing,
    RetriableFailure,
    Success,
    FatalFailure,
    Dead,
    Cancelled,
    Dropped,
}

impl Status {
    /// It has ended. A redrive lets it begin anew, unless it was a success.
    pub fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::Success | Self::FatalFailure | Self::Dead | Self::Cancelled | Self::Dropped
        )
    }
}
