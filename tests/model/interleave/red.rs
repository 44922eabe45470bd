//! The tester, seen red: verbs that lock in the given order, or decide before they lock.

use super::results::{CANCEL, RELEASE, REPORT, SUCCEED, SUCCEED_BACKWARDS};
use super::stage::{Holder, Stage, Theatre};
use super::{Count, Patience, Scenario, orders, play};
use crate::breaks::harm;

const HELD: Stage = Stage { held: 3, queued: 0, due: 0, holder: Holder::Alive, crashed: false };

/// set_results as it would be if it took one row after another as they came.
const ONE_BY_ONE: &str = "
    create or replace function tuskline.set_results(
      p_executor bigint, p_tasks bigint[], p_fences bigint[], p_notes json default null, p_done_leases bigint[] default null)
    returns bigint[] language plpgsql as $$
    begin
      for v_at in 1..coalesce(cardinality(p_tasks), 0) loop
        update tuskline.task set status = 'success', finished_at = tuskline.clock(), next_trigger_at = null
         where id = p_tasks[v_at] and fence = p_fences[v_at] and status in ('claimed', 'processing');
      end loop;
      return '{}';
    end $$";

/// The first complaint of all orders, if there is one with these words.
async fn complaint(
    harm: &str,
    sessions: &'static [&'static [&'static str]],
    words: &str,
) -> Option<String> {
    let mut theatre = Theatre::open(harm).await;
    let scenario = Scenario {
        name: "red",
        stage: HELD,
        sessions,
        allowed: &[
            "success",
            "enqueued",
            "cancelled",
            "retriable_failure",
            "fatal_failure",
            "claimed",
        ],
        // Released and reported, three tasks make three; the same results twice make six.
        sum: if sessions.len() == 2 { 0..=3 } else { 0..=6 },
        refusals: &[],
    };
    for (played, order) in orders(&scenario).into_iter().enumerate() {
        let mut count = Count::default();
        play(&mut theatre, &scenario, &order, Patience::None, &mut count).await;
        if let Some(wrong) = count.wrong.into_iter().find(|wrong| wrong.contains(words)) {
            println!("after {played} orders: {wrong}");
            return Some(wrong);
        }
    }
    None
}

#[tokio::test]
async fn updates_out_of_order_deadlock() {
    let found =
        complaint(ONE_BY_ONE, &[&[SUCCEED], &[SUCCEED_BACKWARDS], &[CANCEL]], "40P01").await;
    assert!(found.is_some(), "set_results, row by row");
}

#[tokio::test]
async fn a_request_that_was_waited_for_and_not_heeded_is_seen() {
    let deaf = harm("settle, deaf");
    let found = complaint(&deaf, &[&[REPORT], &[CANCEL]], "asked to stop").await;
    assert!(found.is_some());
}

#[tokio::test]
async fn a_result_that_is_taken_twice_is_seen() {
    let blind = harm("settle, blind");
    let found = complaint(&blind, &[&[REPORT], &[RELEASE]], "add up to 6").await;
    assert!(found.is_some());
}
