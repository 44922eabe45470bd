//! Events of a time line: acts of people, and executors that came and went.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tokio_postgres::{Client, Error};

use crate::pages::words::NOTHING;
use crate::store::rows::{Parameters, rows};

/// Something that happened.
#[derive(Debug, Clone, Serialize)]
pub struct Event {
    pub at: DateTime<Utc>,
    pub kind: &'static str,
    pub what: String,
    pub why: Option<String>,
    pub by: Option<String>,
    /// When it was over, as far as this page tells.
    pub ended_at: Option<DateTime<Utc>>,
    /// It holds on at the end of the page.
    pub goes_on: bool,
}

/// An act, or several of one person at one time.
#[derive(Debug, Clone, Deserialize)]
pub struct AuditRow {
    at: DateTime<Utc>,
    actor: String,
    verb: String,
    subject: String,
    detail: Option<String>,
    acts: i64,
}

/// Executors that came or went within a minute.
#[derive(Debug, Clone, Deserialize)]
pub struct Group {
    at: DateTime<Utc>,
    what: String,
    sdk_version: Option<String>,
    executors: i64,
    host: Option<String>,
}

/// Rides the index audit_at. Acts on single tasks, and looks at them, are no events. Many acts of one
/// kind in a second are one: a definition of an application changes many lambdas.
const ACTS: &str = "
    select min(a.at) as at, concat_ws(' as ', a.person, a.actor) as actor, a.verb,
           min(a.subject) as subject, min(a.detail) as detail, count(*) as acts
      from (select * from tuskline.acts v where v.at > $1 and v.at <= $2
             order by v.at desc limit 1000) a
     where a.verb <> all ('{show_contents,cancel,retry,unblock}')
     group by date_trunc('second', a.at), a.person, a.actor, a.verb,
              case when a.verb !~ '^(define|alter)' then a.subject end,
              case when a.verb !~ '^(define|alter)' then a.detail end
     order by 1 desc limit 201";

/// The newest 2,000 registrations: executors have no index on a time.
const GROUPS: &str = "
    select min(o.at) as at, o.what, e.sdk_version, count(*) as executors, min(e.host) as host
      from (select * from tuskline.executor order by executor_id desc limit 2000) e
           cross join lateral (
             values (e.started_at, 'came'), (e.ended_at, coalesce(e.end_reason, 'stopped')))
             as o (at, what)
     where o.at > $1 and o.at <= $2
     group by date_trunc('minute', o.at), o.what, e.sdk_version
     order by 1 desc limit 201";

/// Reads the acts and the executors of a time: two statements.
///
/// # Errors
/// The connection's or the server's.
pub async fn read(
    client: &Client,
    within: &Parameters<'_>,
) -> Result<(Vec<AuditRow>, Vec<Group>), Error> {
    Ok((rows(client, ACTS, within).await?, rows(client, GROUPS, within).await?))
}

impl AuditRow {
    /// The lambda whose tasks it slows or holds.
    pub fn lambda(&self) -> Option<&str> {
        self.subject.split(' ').next().filter(|_| kind(self) != "definition")
    }
}

fn kind(act: &AuditRow) -> &'static str {
    let is_breaker = act.detail.as_ref().is_some_and(|text| text.contains("circuit breaker"));
    match act.verb.as_str() {
        "gate" | "ungate" if is_breaker => "breaker",
        "gate" | "ungate" => "gate",
        "set_breaker" | "drop_breaker" => "breaker",
        "set_limit" | "drop_limit" | "throttle" | "set_order" | "set_weight" => "limit",
        verb if verb.contains("operation") || verb == "redrive" => "operation",
        verb if verb.contains("grant") || verb.contains("revoke") => "right",
        "recover" => "recovery",
        "adopt" | "repair" | "set_max_lease" => "installation",
        _ => "definition",
    }
}

/// The events, the newest first.
pub fn of(acts: &[AuditRow], groups: &[Group]) -> Vec<Event> {
    let of_acts = acts.iter().map(|act| event(act, acts));
    let mut all: Vec<Event> = of_acts.chain(groups.iter().map(of_group)).collect();
    all.sort_by_key(|event| std::cmp::Reverse(event.at));
    all
}

/// The number of a gate or an operation, which stands in its detail or subject.
fn number(act: &AuditRow) -> Option<&str> {
    let texts = act.detail.as_deref().into_iter().chain([act.subject.as_str()]);
    texts.into_iter().find_map(|text| {
        let mut words = text.split(' ');
        let is_named = matches!(words.next(), Some("gate" | "operation"));
        words.next().filter(|_| is_named).map(|number| number.trim_end_matches(':'))
    })
}

fn event(act: &AuditRow, all: &[AuditRow]) -> Event {
    let end = match act.verb.as_str() {
        "gate" => Some("ungate"),
        "start_operation" => Some("end_operation"),
        _ => None,
    };
    let number = number(act).filter(|_| end.is_some());
    let ends = |other: &&AuditRow| {
        Some(other.verb.as_str()) == end && self::number(other) == number && other.at >= act.at
    };
    let ended_at = number.and_then(|_| all.iter().find(ends)).map(|other| other.at);
    let what = match act.acts {
        1 => format!("{} {}", act.verb, act.subject),
        acts => format!("{} of {acts}: {} and others", act.verb, act.subject),
    };
    Event {
        at: act.at,
        kind: kind(act),
        what,
        why: act.detail.clone(),
        by: Some(act.actor.clone()),
        ended_at,
        goes_on: number.is_some() && ended_at.is_none(),
    }
}

fn of_group(group: &Group) -> Event {
    let version = group.sdk_version.as_deref().unwrap_or(NOTHING);
    let executors = if group.executors == 1 { "executor" } else { "executors" };
    let what = format!("{} {executors} of SDK {version}: {}", group.executors, group.what);
    let why = group.host.as_ref().map(|host| match group.executors {
        1 => format!("on {host}"),
        _ => format!("on {host} and others"),
    });
    Event { at: group.at, kind: "executor", what, why, by: None, ended_at: None, goes_on: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn act(second: i64, verb: &str, detail: &str) -> AuditRow {
        AuditRow {
            at: DateTime::from_timestamp(1_000 + second, 0).unwrap(),
            actor: "ada".to_owned(),
            verb: verb.to_owned(),
            subject: "work".to_owned(),
            detail: Some(detail.to_owned()),
            acts: 1,
        }
    }

    #[test]
    fn a_gate_lasts_until_it_is_opened() {
        let acts = [
            act(60, "ungate", "gate 7 pause by hand"),
            act(30, "gate", "gate 8 pause circuit breaker: 20 failed"),
            act(0, "gate", "gate 7 pause complaints"),
        ];
        let events = of(&acts, &[]);
        let lasts: Vec<_> =
            events.iter().map(|one| (one.kind, one.ended_at, one.goes_on)).collect();
        assert_eq!(
            lasts,
            [("gate", None, false), ("breaker", None, true), ("gate", Some(acts[0].at), false)]
        );
    }
}
