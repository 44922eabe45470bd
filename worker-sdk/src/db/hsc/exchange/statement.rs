//! The statement of an exchange, for each function set that a worker speaks to.

macro_rules! exchange {
    ($queued_ms:literal, $claimed_before:literal) => {
        concat!(
            "select refused, alive, lease_id, popped, first_seq, last_seq, oldest_writer_xid, xid, ",
            "task_id, queue_index, attempt, crashes, ",
            $queued_ms,
            ", collection, payload, deferred, cut_at, traceparent, ",
            $claimed_before,
            " from tuskline.exchange($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
        )
    };
}

const EXCHANGE: &str = exchange!("queued_ms", "claimed_before");

/// Function sets 1 and 2 say both in one number: a time, or -1 minus the time if the task was claimed before.
const EXCHANGE_OF_SET_2: &str = exchange!(
    "array(select greatest(ms, -1 - ms) from unnest(waited_ms) as ms)",
    "array(select ms < 0 from unnest(waited_ms) as ms)"
);

/// The first function set that answers `queued_ms` and `claimed_before`.
const CLAIMED_BEFORE_SINCE: i32 = 3;

/// The statement for a database of this function set, or of a later one.
pub(super) fn of(functions: i32) -> &'static str {
    match functions {
        ..CLAIMED_BEFORE_SINCE => EXCHANGE_OF_SET_2,
        _ => EXCHANGE,
    }
}
