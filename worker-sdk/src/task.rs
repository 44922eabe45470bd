//! The words of a task that all three rooms use: its number, its fence, its priority and its status.

use serde::{Deserialize, Serialize};

use crate::error::{Code, Error};

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    )* };
}

numbers! {
    /// Number of a task.
    TaskId;
    /// Number of a gate.
    GateId;
    /// Number of a limit, an order or a throttle.
    LimitId;
    /// Number of an operation.
    OperationId;
}

/// Number of the lease under which an attempt runs. Every change it asks for carries it, and is
/// refused once the task was claimed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence(pub i64);

macro_rules! labels {
    ($(#[$doc:meta])* $name:ident, or $refused:ident { $($(#[$label_doc:meta])* $variant:ident = $label:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum $name { $($(#[$label_doc])* $variant),* }

        impl $name {
            /// Every value, in the database's order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Label as the database writes it.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $label),* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = Error;
            fn from_str(label: &str) -> Result<Self, Error> {
                Self::ALL.iter().copied().find(|one| one.as_str() == label).ok_or_else(|| {
                    let all: Vec<_> = Self::ALL.iter().map(|one| one.as_str()).collect();
                    let text = format!("must be one of {}, got {label:?}", all.join(", "));
                    Error::refused(Code::$refused, text)
                })
            }
        }
    };
}

labels! {
    /// Order among the tasks of one lambda.
    Priority, or InvalidPriority {
        /// First.
        Critical = "critical",
        /// Before normal.
        High = "high",
        /// The default.
        Normal = "normal",
        /// Last, but never starved.
        Low = "low",
    }
}

labels! {
    /// The status of a task.
    Status, or InvalidStatus {
        /// Due later, or waiting its turn.
        New = "new",
        /// In its queue.
        Enqueued = "enqueued",
        /// Handed to a worker.
        Claimed = "claimed",
        /// Still running at the first heartbeat.
        Processing = "processing",
        /// Backing off before the next attempt.
        RetriableFailure = "retriable_failure",
        /// Done.
        Success = "success",
        /// The lambda said it can never succeed.
        FatalFailure = "fatal_failure",
        /// Attempts or worker deaths exhausted.
        Dead = "dead",
        /// Ended by request.
        Cancelled = "cancelled",
        /// Ended by a gate.
        Dropped = "dropped",
    }
}

labels! {
    /// A right of a role on a lambda, as [`Client::grant_lambda`](crate::Client::grant_lambda) gives it.
    Privilege, or InvalidGrant {
        /// To schedule its tasks, to cancel one, and to wait for its end.
        Schedule = "schedule",
        /// To register a worker for it, to claim its tasks, and to report on them.
        Work = "work",
        /// To read payloads, results, error messages, keys and checkpoints.
        Inspect = "inspect",
        /// To cancel, retry, redrive, gate, throttle and unblock.
        Operate = "operate",
        /// All of these; to define, alter, limit, purge, erase and grant.
        Own = "own",
    }
}

impl Status {
    /// True when nothing will happen to the task any more.
    pub fn is_terminal(self) -> bool {
        self >= Self::Success
    }
}
