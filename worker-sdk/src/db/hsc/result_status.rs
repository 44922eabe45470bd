//! The statuses that a result may report.

use std::borrow::Cow;

use serde::Serialize;

/// The status that a result reports. Its number is that of its counter (`report_attempts`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ResultStatus {
    #[default]
    Success = 1,
    RetriableFailure = 2,
    FatalFailure = 3,
    Snoozed = 4,
    Cancelled = 5,
}

impl ResultStatus {
    /// The task runs again, unless its attempts are used up.
    pub(crate) fn is_retried(self) -> bool {
        self == Self::RetriableFailure
    }

    /// Its name, as `set_results` takes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::RetriableFailure => "retriable_failure",
            Self::FatalFailure => "fatal_failure",
            Self::Snoozed => "snoozed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// How an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    pub attempt: i16,
    /// The `error_class` of its failure.
    pub kind: Cow<'static, str>,
}
