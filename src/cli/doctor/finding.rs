//! One line of the doctor: the thing that was examined, the verdict, and the remedy.
//!
//! Promises: a line that is not ok has a remedy. The signatures require one.

use std::borrow::Cow;

use serde::Serialize;

use super::remedy::Remedy;

/// The result of an examination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// One line of the doctor.
#[derive(Debug, Serialize)]
pub struct Finding {
    pub verdict: Verdict,
    pub examined: Cow<'static, str>,
    pub said: String,
    pub page: Option<&'static str>,
    pub command: Option<Cow<'static, str>>,
}

impl Finding {
    pub fn ok(examined: impl Into<Cow<'static, str>>, said: impl Into<String>) -> Self {
        let (examined, said) = (examined.into(), said.into());
        Self { verdict: Verdict::Ok, examined, said, page: None, command: None }
    }

    pub fn warn(
        examined: impl Into<Cow<'static, str>>,
        said: impl Into<String>,
        remedy: Remedy,
    ) -> Self {
        Self::of(Severity::Warn, examined, said, remedy)
    }

    pub fn fail(
        examined: impl Into<Cow<'static, str>>,
        said: impl Into<String>,
        remedy: Remedy,
    ) -> Self {
        Self::of(Severity::Fail, examined, said, remedy)
    }

    pub fn of(
        severity: Severity,
        examined: impl Into<Cow<'static, str>>,
        said: impl Into<String>,
        remedy: Remedy,
    ) -> Self {
        let verdict = match severity {
            Severity::Warn => Verdict::Warn,
            Severity::Fail => Verdict::Fail,
        };
        let (page, command) = remedy.parts();
        let (page, command) = (Some(page), Some(command));
        Self { verdict, examined: examined.into(), said: said.into(), page, command }
    }

    pub fn fails(&self) -> bool {
        self.verdict == Verdict::Fail
    }
}

/// A verdict that needs a remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Warn,
    Fail,
}
