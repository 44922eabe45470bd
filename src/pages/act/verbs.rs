//! The acts that a page offers: for each the function that it calls, its fields, the right that it
//! needs, and what a person must know before it.
//!
//! Promises: every act calls a function of the database, which checks the role by itself.

use tuskline_sdk::verbs::{self, Verb};

use super::fields::*;
pub use super::fields::{FILTER, Field, Kind};

/// An act.
#[derive(Debug)]
pub struct ActKind {
    /// Its name in the address.
    pub name: &'static str,
    /// The function that it calls.
    pub verb: Verb,
    /// The thing that it changes.
    pub of: Of,
    /// One of these rights on the lambda is needed.
    pub rights: &'static [&'static str],
    /// Arguments that no field changes.
    pub fixed: &'static [(&'static str, &'static str)],
    /// Fields of its form, by group.
    pub fields: &'static [&'static [Field]],
    /// Heading and button. `{x}` is the field `x`, `{tasks}` the number of tasks.
    pub title: &'static str,
    /// The consequence, in a sentence or two.
    pub happens: &'static str,
    /// How to take it back.
    pub undo: &'static str,
    /// The audit holds a reason.
    pub has_reason: bool,
}

/// The thing that an act changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    Task,
    /// A chain, by one of its tasks.
    Chain,
    Lambda,
    /// An ordering key of a lambda.
    Key,
    Gate,
    Limit,
    Periodic,
    Operation,
    /// The tasks that a filter names.
    Tasks,
}

const OPERATE: &[&str] = &["operate"];
const OWN: &[&str] = &["own"];

/// An act without fields of its own. Others change what differs.
const PLAIN: ActKind = ActKind {
    name: "cancel",
    verb: verbs::CANCEL,
    of: Of::Task,
    rights: &["operate", "schedule"],
    fixed: &[],
    fields: &[&TASK],
    title: "Cancel task {task}",
    happens: "If it waits, it ends as cancelled at once. If a worker holds it, the worker is told to \
              stop, and what it reports decides.",
    undo: "Retry the task: it returns to its queue.",
    has_reason: true,
};

const OPERATION: ActKind = ActKind {
    name: "cancel_tasks",
    verb: verbs::START_OPERATION,
    of: Of::Tasks,
    rights: OPERATE,
    fixed: &[("action", "cancel")],
    fields: &[&FILTER, &PER_SECOND],
    title: "Cancel {tasks} tasks",
    happens: "Tasks that wait end as cancelled, batch by batch. Workers that hold one are told to \
              stop.",
    undo: "Stop the operation at any time: tasks that have ended stay ended, and can be retried.",
    has_reason: true,
};

/// All acts.
static ACTS: [ActKind; 20] = [
    PLAIN,
    ActKind {
        name: "retry",
        verb: verbs::RETRY,
        rights: OPERATE,
        fields: &[&TASK, &NOW],
        title: "Retry task {task}",
        happens: "It returns to its queue with all of its attempts, at its due time. With now it is \
                  due now.",
        undo: "Cancel the task.",
        has_reason: false,
        ..PLAIN
    },
    ActKind {
        name: "cancel_chain",
        verb: verbs::CANCEL_CHAIN,
        of: Of::Chain,
        title: "Cancel the chain of task {task}",
        happens: "Its tasks that wait end as cancelled at once. Workers that hold one are told to \
                  stop.",
        undo: "Retry the chain: its tasks that were cancelled return.",
        ..PLAIN
    },
    ActKind {
        name: "retry_chain",
        verb: verbs::RETRY_CHAIN,
        of: Of::Chain,
        rights: OPERATE,
        fields: &[&TASK, &NOW],
        title: "Retry the chain of task {task}",
        happens: "Its tasks that ended without success return; the tasks behind them wait again.",
        undo: "Cancel the chain.",
        has_reason: false,
        ..PLAIN
    },
    ActKind {
        name: "gate",
        verb: verbs::GATE,
        of: Of::Lambda,
        rights: OPERATE,
        fields: &[
            &LAMBDA,
            &[Field {
                default: Some("pause"),
                ..needed("action", Kind::Choice(&["pause", "drop", "divert"]), "Gate")
            }],
            &SCOPE,
        ],
        title: "Set a gate on {lambda}: {action}",
        happens: "pause: no task starts until the gate opens; tasks that run go on. drop: tasks that \
                  are due end as dropped. divert: they end as dead letters.",
        undo: "Open the gate. Tasks that it has dropped or diverted stay so, and can be retried.",
        ..PLAIN
    },
    ActKind {
        name: "ungate",
        verb: verbs::UNGATE,
        of: Of::Gate,
        rights: OPERATE,
        fields: &[&[needed("gate", Kind::Id, "Gate")]],
        title: "Open gate {gate}",
        happens: "New tasks pass at once. Tasks that the gate has parked return in batches.",
        undo: "Set the gate again.",
        ..PLAIN
    },
    ActKind {
        name: "throttle",
        verb: verbs::THROTTLE,
        of: Of::Lambda,
        rights: OPERATE,
        fields: &[
            &LAMBDA,
            &[needed("per_second", Kind::Decimal, "Tasks a second at most")],
            &SCOPE,
        ],
        title: "Throttle {lambda} to {per_second} a second",
        happens: "Tasks that are due join a wait list and start at this rate. Tasks that run go on.",
        undo: "Drop its limit: the tasks in its wait list return at once.",
        ..PLAIN
    },
    ActKind {
        name: "set_limit",
        verb: verbs::SET_LIMIT,
        of: Of::Lambda,
        rights: OWN,
        fields: &[
            &LAMBDA,
            &[
                as_argument(
                    field("at_a_time", Kind::Integer, "Tasks at a time"),
                    "max_concurrency",
                ),
                field("per_second", Kind::Decimal, "Or tasks a second"),
                field("burst", Kind::Integer, "Burst, with tasks a second"),
                field("collection", Kind::Text, "Only this collection"),
                field("priority", Kind::Choice(PRIORITIES), "Only this priority"),
                field("by_key", Kind::Flag, "For each limit key by itself"),
                field("fair", Kind::Flag, "In turns by fairness key"),
            ],
        ],
        title: "Limit {lambda}",
        happens: "Tasks above the limit wait in its list. A limit of the same kind and scope is \
                  changed in place; tasks that run go on.",
        undo: "Set the former value, or drop the limit.",
        has_reason: false,
        ..PLAIN
    },
    ActKind {
        name: "drop_limit",
        verb: verbs::DROP_LIMIT,
        of: Of::Limit,
        rights: OWN,
        fields: &[&[as_argument(needed("limit", Kind::Id, "Limit"), "limit_id")]],
        title: "Drop limit {limit}",
        happens: "The tasks in its wait list return in batches, and no task waits for it again.",
        undo: "Set the limit again, with the values here.",
        has_reason: false,
        ..PLAIN
    },
    ActKind {
        name: "unblock",
        verb: verbs::UNBLOCK,
        of: Of::Key,
        rights: OPERATE,
        fields: &[&LAMBDA, &KEY],
        title: "Unblock key {key} of {lambda}",
        happens: "The next task of the key starts. The task that failed stays as it is.",
        undo: "None: tasks of the key that have started cannot wait for the failed one again.",
        has_reason: false,
        ..PLAIN
    },
    ActKind {
        name: "pause_periodic",
        verb: verbs::PAUSE_PERIODIC,
        of: Of::Periodic,
        rights: OPERATE,
        fields: &[&PERIODIC],
        title: "Pause schedule {name}",
        happens: "No tick fires until it is resumed. Tasks of earlier ticks run.",
        undo: "Resume the schedule. Ticks of the pause do not fire.",
        ..PLAIN
    },
    ActKind {
        name: "resume_periodic",
        verb: verbs::RESUME_PERIODIC,
        of: Of::Periodic,
        rights: OPERATE,
        fields: &[&PERIODIC],
        title: "Resume schedule {name}",
        happens: "Its next tick fires.",
        undo: "Pause the schedule.",
        ..PLAIN
    },
    ActKind {
        name: "run_periodic",
        verb: verbs::RUN_PERIODIC,
        of: Of::Periodic,
        rights: &["schedule"],
        fields: &[&PERIODIC],
        title: "Run schedule {name} now",
        happens: "Its task is scheduled once, due now. Its ticks fire as before.",
        undo: "Cancel the task.",
        ..PLAIN
    },
    ActKind {
        name: "stop",
        verb: verbs::STOP_OPERATION,
        of: Of::Operation,
        rights: OPERATE,
        fields: &[&[needed("operation", Kind::Id, "Operation")]],
        title: "Stop operation {operation}",
        happens: "No further task changes. Tasks that it has changed stay changed.",
        undo: "Start another operation with the same filter.",
        has_reason: false,
        ..PLAIN
    },
    OPERATION,
    ActKind {
        name: "retry_tasks",
        fixed: &[("action", "retry")],
        fields: &[
            &FILTER,
            &PER_SECOND,
            &[as_argument(field("due", Kind::Choice(&["now"]), "Due"), "value")],
        ],
        title: "Retry {tasks} tasks",
        happens: "Tasks that ended without success return to their queues, batch by batch.",
        undo: "Stop the operation at any time: tasks that have returned stay, and can be cancelled.",
        ..OPERATION
    },
    ActKind {
        name: "redrive",
        fixed: &[("action", "redrive")],
        fields: &[
            &FILTER,
            &PER_SECOND,
            &[Field {
                default: Some("yes"),
                ..field("canary", Kind::Flag, "First 1 task, then 10, then the rest")
            }],
        ],
        title: "Redrive {tasks} tasks",
        happens: "Dead letters return to their queues. With a canary 1 returns, then 10, then the \
                  rest; it stops when one fails for good again.",
        undo: "Stop the operation at any time: tasks that have returned stay, and can be cancelled.",
        ..OPERATION
    },
    ActKind {
        name: "purge",
        rights: OWN,
        fixed: &[("action", "purge")],
        fields: &[&FILTER, &PER_SECOND, &ENDED_BEFORE],
        title: "Purge {tasks} tasks",
        happens: "Tasks that have ended are deleted before their retention is over, except those \
                  that another task needs.",
        undo: "None: they are gone. Stop the operation at any time to keep the rest.",
        ..OPERATION
    },
    ActKind {
        name: "priority",
        fixed: &[("action", "priority")],
        fields: &[&FILTER, &PER_SECOND, &TO_PRIORITY],
        title: "Give {tasks} tasks the priority {to}",
        happens: "Tasks that wait move to the queue of the new priority.",
        undo: "Give them the former priority. Stop the operation at any time.",
        ..OPERATION
    },
    ActKind {
        name: "collection",
        fixed: &[("action", "collection")],
        fields: &[&FILTER, &PER_SECOND, &TO_COLLECTION],
        title: "Move {tasks} tasks to the collection {to}",
        happens: "Tasks that wait get the new collection. Its gates and limits hold for them.",
        undo: "Give them the former collection. Stop the operation at any time.",
        ..OPERATION
    },
];

impl ActKind {
    /// An act by its name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ACTS.iter().find(|one| one.name == name)
    }

    /// All fields.
    pub fn fields(&self) -> impl Iterator<Item = &'static Field> {
        self.fields.iter().flat_map(|group| group.iter())
    }

    /// The number of tasks is part of the act: another number is another act.
    pub fn is_counted(&self) -> bool {
        matches!(self.of, Of::Tasks | Of::Chain)
    }
}
