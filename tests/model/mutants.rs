//! The test of the test: breaks of the SQL that the state machine must find.

use crate::machine::Run;
use crate::tally;

/// The setting by which runs of `tests/it` are harmed; this binary harms databases, not runs.
pub const HARM: &str = "TUSKLINE_TEST_HARM";

/// What such a run says when the text to break is not there.
pub const NOT_DONE: &str = "the harm was not done";

/// What is broken, in which function, what stands there, and what to put in its place.
type Break = (&'static str, &'static str, &'static str, &'static str);

/// Breaks that any short run must find.
const BREAKS: &[Break] = &[
    (
        "no fence in set_results",
        "make_succeed",
        "t.fence = p_fences[width_bucket(t.id, p_ids)] and",
        "",
    ),
    (
        "no fence in settle",
        "make_settle",
        "and t.fence = p_fences[width_bucket(t.id, p_ids)] and t.status in",
        "and t.status in",
    ),
    ("a claim takes what is not enqueued", "make_take", "and t.status = 'enqueued'", ""),
    ("a claim keeps the old fence", "make_take", "fence = p_fence, attempt", "attempt"),
    ("rescue costs an attempt", "take_back", "attempt = t.attempt - 1, crashes", "crashes"),
    ("rescue forgets the request to stop", "take_back", "c.task_id is not null then", "false then"),
    (
        "release forgets the queue row",
        "release",
        "where u.status = 'enqueued' order",
        "where false order",
    ),
    ("release costs an attempt", "release", "attempt = t.attempt - 1,", ""),
    (
        "release without a fence",
        "release",
        "t.id = d.id and t.fence = d.fence and",
        "t.id = d.id and",
    ),
    (
        "retry without a timer",
        "settle",
        "where v_outcome[d.at] in ('retriable_failure', 'new') returning",
        "where false returning",
    ),
    ("a due timer stays", "enqueue_timed", "t.due = d.due and", "false and t.due = d.due and"),
    ("a cancelled task keeps its timer", "cancel", "due = t.next_trigger_at and", "false and"),
    ("start of what is not claimed", "start", "and t.status = 'claimed'", ""),
    ("the ended beat on", "heartbeat", "alive := found", "alive := true"),
    ("anybody drops a lease", "drop_leases", "where l.executor_id = p_executor and", "where"),
    ("claims before the rebuild", "claim_batch", "if not v_rebuilt", "if false"),
    (
        "a rebuild leaves one out",
        "rebuild_queues",
        "order by t.id', v_no)",
        "order by t.id offset 1', v_no)",
    ),
    ("a later task is queued at once", "route_rest", "status = 'new', next", "next"),
];

/// Breaks that show only when several things come together.
const SUBTLE: &[Break] = &[
    ("rescue of leases that are over", "rescue", "and t.fence = s.lease_id and", "and"),
    ("rescue of the living", "rescue", "where e.ended_at is not null", "where true"),
    ("a result forgives no crash", "make_settle", "crashes = 0,", ""),
    ("attempts without end", "outcomes", "when t.attempt >= l.max_attempts then 'dead'", ""),
];

/// SQL that puts `to` in the place of `from` in a function.
pub fn harm(function: &str, from: &str, to: &str) -> String {
    format!(
        "do $harm$ declare t text := pg_get_functiondef('tuskline.{function}'::regproc); begin
           if strpos(t, $f${from}$f$) = 0 then raise exception '{NOT_DONE}: %', $f${from}$f$; end if;
           execute replace(t, $f${from}$f$, $f${to}$f$); perform tuskline.make_leaf_verbs(); end $harm$"
    )
}

/// The breaks that stayed unseen in so many sequences.
fn unseen(breaks: &[Break], cases: u32) -> Vec<&'static str> {
    let mut unseen = Vec::new();
    for (what, function, from, to) in breaks {
        let harm = harm(function, from, to);
        let (found, tally) = Run { harm: &harm, cases, seed: 1, shrinks: 0 }.go();
        let why = found.as_deref().and_then(|why| why.lines().next()).unwrap_or("not found");
        let why: String = why.chars().take(120).collect();
        let json =
            serde_json::json!({"break": what, "found": found.is_some(), "steps": tally.steps});
        tally::print(format!("{what}: {} steps: {why}", tally.steps), &json);
        unseen.extend(found.is_none().then_some(*what));
    }
    unseen
}

#[test]
fn every_break_is_found() {
    let unseen = unseen(BREAKS, 40);
    assert!(unseen.is_empty(), "stayed unseen: {unseen:?}");
}

#[test]
#[ignore = "takes long runs: a minute"]
fn every_subtle_break_is_found() {
    let unseen = unseen(SUBTLE, 300);
    assert!(unseen.is_empty(), "stayed unseen: {unseen:?}");
}
