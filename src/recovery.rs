//! Recovery of a role of the server when the database fails it: the role logs once what is wrong and how to
//! mend it, and rests before it tries again.
//!
//! Promises: a database that is away is tried again within a second. After a refusal the role rests for
//! longer each time, at most 30 s. `/healthz` shows the refusal from the second time on.
//! Must never: call a refusal a lost database, or tell an address.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::iter::successors;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_postgres::error::{DbError, SqlState};
use tuskline_sdk::Backoff;

use crate::session::ErrorChain;

/// Roles that cannot do their work, and why. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct RoleHealth {
    failing: Arc<Mutex<BTreeMap<&'static str, String>>>,
}

impl RoleHealth {
    /// Refusal of each role; empty: all of them work, or wait for a database that is away.
    pub fn failing(&self) -> BTreeMap<&'static str, String> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, role: &'static str, error: Option<String>) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        match error {
            Some(error) => failing.insert(role, error),
            None => failing.remove(role),
        };
    }
}

/// Why a role failed, by what mends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// There is no server, or it is starting, stopping or full.
    Away,
    /// A lock or a statement took too long, or another transaction was in the way.
    Busy,
    /// The login lacks a privilege.
    Denied,
    /// Something of the schema is missing.
    Schema,
    /// A queue or segment that the rows name, or an unlogged table, is missing: after a restore of the
    /// data alone, or on a platform that drops unlogged tables.
    Damaged,
    /// The server only reads.
    Standby,
    /// Anything else that the server refuses, by its SQLSTATE.
    Refused(String),
}

impl Failure {
    /// By the SQLSTATE of the server, wherever in the chain; nothing: it is away.
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        let refusal =
            successors(Some(error), |&one| one.source()).find_map(|one| one.downcast_ref());
        refusal.map_or(Self::Away, Self::of_server)
    }

    fn of_server(refusal: &DbError) -> Self {
        match Self::of_code(refusal.code()) {
            Self::Schema if names_a_part(refusal.message()) => Self::Damaged,
            failure => failure,
        }
    }

    fn of_code(state: &SqlState) -> Self {
        match state.code() {
            "42501" => Self::Denied,
            "3F000" | "42P01" | "42883" | "42703" | "42704" => Self::Schema,
            // The rows of tuskline have checks that no verb violates: there is no partition for one.
            "23514" => Self::Damaged,
            "25006" => Self::Standby,
            "55P03" | "57014" => Self::Busy,
            code if code.starts_with("28") => Self::Denied,
            code if code.starts_with("40") => Self::Busy,
            code if ["57P", "53", "08"].iter().any(|class| code.starts_with(class)) => Self::Away,
            code => Self::Refused(code.to_owned()),
        }
    }

    fn remedy(&self) -> &'static str {
        match self {
            Self::Away => "connecting again",
            Self::Busy => "trying again; `tuskline doctor` shows old transactions",
            Self::Denied => {
                "run the server as the owner of the schemas tuskline and tuskline_core, or: grant OWNER to LOGIN"
            }
            Self::Schema => "run `tuskline migrate`",
            Self::Damaged => "dropped queues come back in seconds; else run `tuskline repair`",
            Self::Standby => "connect to the primary",
            Self::Refused(code) if code.starts_with("TK") => "the database says what to do",
            Self::Refused(_) => "`tuskline doctor` looks at the database",
        }
    }
}

/// The server translates its messages, but not the names of unlogged tables, nor those of tables and functions
/// of one queue or segment.
fn names_a_part(message: &str) -> bool {
    let digit = |c: char| c.is_ascii_digit();
    ["attempt_count", "event_count", "recent_failure", "tuskline_core.pop("]
        .iter()
        .any(|name| message.contains(name))
        || ["pop_", "take_", "end_", "queue_", "task_"]
            .iter()
            .any(|stem| message.split(stem).skip(1).any(|rest| rest.starts_with(digit)))
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Away => "the database is away",
            Self::Busy => "a lock or a statement took too long",
            Self::Denied => "the login lacks a privilege",
            Self::Schema => "the schema is absent or older than this binary",
            Self::Damaged => "rows name a queue or segment that is missing",
            Self::Standby => "this server is a standby or read-only",
            Self::Refused(_) => "the database refuses the work",
        })
    }
}

/// How one role gets over its failures.
#[derive(Debug)]
pub struct Recovery {
    role: &'static str,
    health: RoleHealth,
    backoff: Backoff,
    reported: Option<Failure>,
}

impl Recovery {
    /// For a role that has not failed yet.
    pub fn new(role: &'static str, health: RoleHealth) -> Self {
        Self { role, health, backoff: Backoff::default(), reported: None }
    }

    /// The role has done its work once: what was wrong is over.
    pub fn worked(&mut self) {
        if self.reported.take().is_some() {
            tracing::info!(role = self.role, "works again");
        }
        self.backoff.reset();
        self.health.note(self.role, None);
    }

    /// The role has failed: reports it, unless the last failure was the same. Returns the rest before
    /// the next try.
    pub fn failed(&mut self, error: &(dyn Error + 'static)) -> Duration {
        let (failure, text) = (Failure::of(error), ErrorChain(error).to_string());
        let again = self.reported.as_ref() == Some(&failure);
        if !again {
            let (role, remedy) = (self.role, failure.remedy());
            match failure {
                Failure::Away | Failure::Busy => {
                    tracing::warn!(role, error = %text, "{failure}, {remedy}");
                }
                _ => tracing::error!(role, error = %text, hint = remedy, "{failure}"),
            }
        }
        let away = failure == Failure::Away;
        let report = format!("{failure}: {text}; {}", failure.remedy());
        self.health.note(self.role, (again && !away).then_some(report));
        self.reported = Some(failure);
        if away { self.backoff.rest() } else { self.backoff.long_rest() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_by_what_mends_it() {
        for (code, failure) in [
            ("42501", Failure::Denied),
            ("28P01", Failure::Denied),
            ("42P01", Failure::Schema),
            ("42883", Failure::Schema),
            ("55P03", Failure::Busy),
            ("40P01", Failure::Busy),
            ("57P03", Failure::Away),
            ("53300", Failure::Away),
            ("25006", Failure::Standby),
            ("23514", Failure::Damaged),
            ("22012", Failure::Refused("22012".to_owned())),
        ] {
            assert_eq!(Failure::of_code(&SqlState::from_code(code)), failure, "{code}");
        }
        let silent = std::io::Error::other("no answer");
        assert_eq!(Failure::of(&silent), Failure::Away);
    }

    #[test]
    fn a_missing_part_is_known_by_its_name_in_every_language() {
        for missing in [
            "la función tuskline_core.pop_3(integer, bigint) no existe",
            "la función tuskline_core.pop(integer, bigint) no existe",
            "relation \"task_17\"",
            "relation \"tuskline_core.event_count\" does not exist",
        ] {
            assert!(names_a_part(missing), "{missing}");
        }
        for other in ["relation \"tuskline.queue\"", "function tuskline.task_status(bigint)"] {
            assert!(!names_a_part(other), "{other}");
        }
    }

    #[test]
    fn a_role_that_waits_for_a_database_is_not_failing() {
        let health = RoleHealth::default();
        let mut recovery = Recovery::new("janitor", health.clone());
        let gone = std::io::Error::other("connection refused");
        assert!((0..10).all(|_| recovery.failed(&gone) <= Duration::from_secs(1)));
        assert!(health.failing().is_empty());
    }
}
