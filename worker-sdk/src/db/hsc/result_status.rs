//! The statuses that a result may report.

/// The status that a result reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultStatus {
    Success,
    RetriableFailure,
    FatalFailure,
    Snoozed,
    Cancelled,
}

impl serde::Serialize for ResultStatus {
    fn serialize<S: serde::Serializer>(
        &self,
        serializer: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failed {
    pub attempt: i16,
    /// The `error_class` of its failure.
    pub kind: &'static str,
}
