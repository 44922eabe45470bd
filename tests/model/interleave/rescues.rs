//! The tasks of dead executors: rescued, reported late, cancelled and claimed at the same time.

use super::results::{CANCEL, EXCHANGE, RELEASE_BACKWARDS, REPORT, SUCCEED, SUCCEED_BACKWARDS};
use super::stage::{Holder, Stage};
use super::{Scenario, play_all};

const RESCUE: &str = "select rescued + buried from tuskline.rescue()";
const BEAT: &str = "select 0 * count(*) from tuskline.heartbeat({e})";
const CLAIM: &str = "select 0 * count(*) from tuskline.claim({e2}, {claim})";

const ENDED: Stage = Stage { held: 3, queued: 0, due: 0, holder: Holder::Ended, crashed: false };
const SILENT: Stage = Stage { holder: Holder::Silent, ..ENDED };

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "two rescues: each task is rescued once",
        stage: SILENT,
        sessions: &[&[RESCUE], &[RESCUE]],
        allowed: &["enqueued"],
        sum: 3..=3,
        refusals: &[],
    },
    Scenario {
        name: "a rescue and late results: each attempt ends once",
        stage: ENDED,
        sessions: &[&[RESCUE], &[SUCCEED_BACKWARDS]],
        allowed: &["enqueued", "success", "claimed"],
        sum: 0..=3,
        refusals: &[],
    },
    Scenario {
        name: "a rescue and a late release: each attempt ends once",
        stage: ENDED,
        sessions: &[&[RESCUE], &[RELEASE_BACKWARDS]],
        allowed: &["enqueued"],
        sum: 3..=3,
        refusals: &[],
    },
    Scenario {
        name: "a rescue, late reports and a request",
        stage: ENDED,
        sessions: &[&[RESCUE], &[REPORT], &[CANCEL]],
        allowed: &[
            "enqueued",
            "claimed",
            "success",
            "retriable_failure",
            "fatal_failure",
            "cancelled",
        ],
        sum: 0..=3,
        refusals: &[],
    },
    Scenario {
        name: "two rescues and late results",
        stage: SILENT,
        sessions: &[&[RESCUE], &[RESCUE], &[SUCCEED]],
        allowed: &["enqueued", "claimed", "success"],
        sum: 0..=3,
        refusals: &[],
    },
    Scenario {
        name: "a rescue, an exchange of the dead and a claim",
        stage: Stage { queued: 2, ..ENDED },
        sessions: &[&[RESCUE], &[EXCHANGE], &[CLAIM]],
        allowed: &["enqueued", "claimed", "success"],
        sum: 0..=3,
        refusals: &[],
    },
    Scenario {
        name: "a rescue and a last heartbeat",
        stage: SILENT,
        sessions: &[&[RESCUE], &[BEAT], &[SUCCEED_BACKWARDS]],
        allowed: &["enqueued", "claimed", "success"],
        sum: 0..=3,
        refusals: &[],
    },
];

#[tokio::test]
async fn the_tasks_of_the_dead_are_found_in_every_order() {
    play_all("rescues", SCENARIOS).await;
}
