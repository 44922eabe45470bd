//! The SQL sources of this binary: the functions in order, the parts of a renewal, and their digest.

use sha2::{Digest, Sha256};

use super::zone_names;

/// Name and text of one file.
pub(super) type Source = (&'static str, &'static str);

macro_rules! functions {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../migrations/functions/", $name, ".sql")))),*]
    };
}

/// Applied in this order: a function's text is checked against those before it, `install` is last.
#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Source] = &functions![
    "words/clock", "words/refuse", "words/unknown_lambda", "words/overloads",
    "words/payload_bytes", "rights/caller", "core/version",
    "core/installation", "core/cell", "words/locks", "statistics/histogram",
    "statistics/count_events", "core/recovery", "retention/add_segments", "core/raise_ids",
    "rights/may", "rights/own_fences", "rights/grant_lambda",
    "rights/need_operation",
    "owner/define_lambda", "owner/kept_for", "policies/backlogs/note_backlogs",
    "policies/gates/check_gate", "owner/gate", "owner/ungate",
    "policies/gates/flag_queues", "owner/set_limit", "owner/save_limit", "owner/throttle",
    "owner/unblock", "owner/set_weight", "words/two_phase", "core/queue_watch",
    "policies/limits/wait_lists", "owner/set_unique", "policies/unique_keys/hold_key",
    "core/accept", "core/accept_keys", "core/route", "core/schedule", "core/schedule_many",
    "core/schedule_once",
    "core/oldest_writer_xid", "policies/limits/grant_concurrency", "policies/limits/settle_rate",
    "policies/limits/grant_rate", "core/add_timers",
    "policies/limits/acquire_permits", "policies/dead_letters/add_dead_letters",
    "policies/limits/release_permits", "core/await_end", "policies/dependencies/resolve_dependents",
    "policies/dependencies/check_dependencies", "policies/gates/apply_gates", "core/doors",
    "core/end_attempts", "core/end_waiting", "effects/run_effects", "core/enqueue",
    "core/enqueue_due", "owner/set_breaker", "policies/breakers/check_breakers",
    "policies/gates/sort_queue", "policies/run_policies", "core/register_executor", "core/pop",
    "core/take", "core/claim", "core/wait_for_standby", "core/start", "core/heartbeat",
    "core/outcomes", "core/set_results", "core/assert_current", "core/set_progress",
    "core/locked_results", "core/exchange", "core/release", "core/rescue", "core/report_crashes",
    "core/queue_segment",    "core/unlogged", "core/rebuild_queues", "owner/cancel", "owner/retry", "policies/dead_letters/redrive",
    "policies/dependencies/read_chain", "policies/dependencies/schedule_chain",
    "policies/dependencies/schedule_then", "policies/dependencies/cancel_chain",
    "periodic/cron_error", "periodic/define_periodic", "periodic/pause_periodic",
    "periodic/due_periodic", "periodic/fire_periodic", "statistics/report_attempts",
    "statistics/totals", "statistics/fold_statistics", "owner/definitions",
    "owner/define", "people/views", "people/task_facts", "people/attempt_waits",
    "people/key_holders", "people/chains",
    "people/acts", "people/periodics", "people/dead_letters", "people/statistics", "people/longest", "people/gauges", "people/waits",
    "owner/operations", "people/comments",
    "retention/segments_to_retire", "retention/retention", "retention/purge", "retention/archive",
    "owner/act_in_operation", "owner/forget", "owner/erase", "owner/advance_operation",
    "owner/start_operation", "retention/find_stalled", "people/invariants", "people/explain_waiting",
    "people/explain_enqueued", "people/explain", "core/leaf_verbs", "rights/verb_groups",
    "rights/grant_verbs", "rights/set_max_lease", "repair/damage", "repair/repair",
];
pub(super) const INSTALL: Source =
    ("install", include_str!("../../migrations/functions/install.sql"));
pub(super) const REMEMBER: Source =
    ("remember", include_str!("../../migrations/renewal/remember.sql"));
pub(super) const RENAME: Source = ("rename", include_str!("../../migrations/renewal/rename.sql"));
pub(super) const CLEAR: Source = ("clear", include_str!("../../migrations/renewal/clear.sql"));
pub(super) const SWEEP: Source = ("sweep", include_str!("../../migrations/renewal/sweep.sql"));

/// SHA-256 over every name and text, and the time zones that go with them, as hex.
pub(super) fn digest(functions: &[Source]) -> String {
    let all = functions.iter().chain([&INSTALL, &REMEMBER, &RENAME, &CLEAR, &SWEEP]);
    let hash = all.fold(Sha256::new(), |hash, (name, text)| {
        hash.chain_update(name).chain_update([0]).chain_update(text).chain_update([0])
    });
    let hash = zone_names().fold(hash, |hash, zone| hash.chain_update(zone).chain_update([0]));
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
