//! The codes of Tuskline's own refusals. `docs/errors.md` lists the same.

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $code:literal $name:literal,)*) => {
        /// Tuskline's own refusals, SQLSTATE class `TK`. A call by SQL gets the same codes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code { $($(#[$doc])* $variant,)* }

        impl Code {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Five characters: `TK001`.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }

            /// The name in the text of the refusal: `unknown_lambda`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

codes! {
    /// No lambda has this name.
    UnknownLambda = "TK001" "unknown_lambda",
    /// A name does not match `[a-z][a-z0-9_]{0,62}`.
    InvalidName = "TK002" "invalid_name",
    /// A payload is not JSON, contains a NUL character or nests deeper than 64.
    InvalidPayload = "TK003" "invalid_payload",
    /// A payload is larger than the lambda accepts.
    PayloadTooLarge = "TK004" "payload_too_large",
    /// A due date is not finite, or more than 10 years ahead.
    InvalidDue = "TK005" "invalid_due",
    /// A priority is not `critical`, `high`, `normal` or `low`.
    InvalidPriority = "TK006" "invalid_priority",
    /// A batch has no or more than 10,000 tasks, or arrays of different lengths.
    InvalidBatch = "TK007" "invalid_batch",
    /// A status that is none, or a row with columns that a new task may not have.
    InvalidStatus = "TK008" "invalid_status",
    /// A setting of a lambda, a worker or a session is out of its bounds.
    InvalidSetting = "TK009" "invalid_setting",
    /// The timings of a worker would let two attempts of one task overlap.
    InvalidLease = "TK010" "invalid_lease",
    /// The queues were not rebuilt after a restart or a restore.
    QueuesNotRebuilt = "TK011" "queues_not_rebuilt",
    /// A result has an unknown status or field, or an output that cannot be kept.
    InvalidResult = "TK012" "invalid_result",
    /// An address cannot be read.
    InvalidUrl = "TK013" "invalid_url",
    /// The attempt is over.
    NotCurrent = "TK014" "not_current",
    /// Another gate overlaps.
    GateConflict = "TK015" "gate_conflict",
    /// No recent task has this collection.
    UnknownCollection = "TK016" "unknown_collection",
    /// An argument of a gate.
    InvalidGate = "TK017" "invalid_gate",
    /// An argument of a limit or an order.
    InvalidLimit = "TK018" "invalid_limit",
    /// A key has no or more than 256 bytes, contains a NUL character, or has no meaning for the lambda.
    InvalidKey = "TK019" "invalid_key",
    /// The lambda accepts no more tasks until some have ended.
    BacklogFull = "TK020" "backlog_full",
    /// A circle, an unknown task, or more than 1,000 tasks in a row.
    InvalidChain = "TK021" "invalid_chain",
    /// The task belongs to no chain.
    NotInChain = "TK022" "not_in_chain",
    /// A cron, a zone or another field of a schedule.
    InvalidPeriodic = "TK023" "invalid_periodic",
    /// Ticks that a server fired wrongly.
    InvalidTick = "TK024" "invalid_tick",
    /// An argument of a circuit breaker.
    InvalidBreaker = "TK026" "invalid_breaker",
    /// The unique key is held, and the lambda rejects a second task.
    Duplicate = "TK027" "duplicate",
    /// A percentage or a checkpoint.
    InvalidProgress = "TK028" "invalid_progress",
    /// An argument of an operation.
    InvalidOperation = "TK029" "invalid_operation",
    /// The process names another installation than the database.
    WrongInstallation = "TK041" "wrong_installation",
    /// A cell outside 0 to 63, or another one than the database has.
    InvalidCell = "TK042" "invalid_cell",
    /// An id that no sequence of this installation has issued, or of a sealed segment.
    InvalidId = "TK051" "invalid_id",
    /// `created_at` is not within a day before now.
    InvalidTime = "TK052" "invalid_time",
    /// An argument of a claim.
    InvalidClaim = "TK053" "invalid_claim",
    /// A traceparent that W3C Trace Context does not know.
    InvalidTraceparent = "TK054" "invalid_traceparent",
    /// Statistics of a worker that are malformed.
    InvalidReport = "TK055" "invalid_report",
    /// A right, its lambda or its role: a right that does not exist, a role that is missing or a superuser.
    InvalidGrant = "TK056" "invalid_grant",
    /// A request id has no or more than 128 characters.
    InvalidRequest = "TK057" "invalid_request",
    /// A request id came with other tasks before.
    OtherRequest = "TK058" "other_request",
}

impl Code {
    /// The code with this SQLSTATE.
    pub fn of(sqlstate: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == sqlstate)
    }
}
