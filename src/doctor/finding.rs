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

/// The findings about one part.
#[derive(Debug)]
pub struct Found {
    pub verdict: Verdict,
    pub said: String,
    remedy: Option<Remedy>,
}

impl Found {
    pub fn ok(said: impl Into<String>) -> Self {
        Self { verdict: Verdict::Ok, said: said.into(), remedy: None }
    }

    pub fn warn(said: impl Into<String>, remedy: Remedy) -> Self {
        Self { verdict: Verdict::Warn, said: said.into(), remedy: Some(remedy) }
    }

    pub fn fail(said: impl Into<String>, remedy: Remedy) -> Self {
        Self { verdict: Verdict::Fail, said: said.into(), remedy: Some(remedy) }
    }
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
    pub fn new(examined: impl Into<Cow<'static, str>>, found: Found) -> Self {
        let Found { verdict, said, remedy } = found;
        let (page, command) = remedy.map(Remedy::parts).unzip();
        Self { verdict, examined: examined.into(), said, page, command }
    }

    pub fn fails(&self) -> bool {
        self.verdict == Verdict::Fail
    }
}
