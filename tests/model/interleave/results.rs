//! Results, starts, releases and requests to stop, for the same attempts at the same time.

use super::stage::Stage;
use super::{Scenario, play_all};

pub const SUCCEED: &str = "select 3 - cardinality(tuskline.set_results({e}, {held}, {fences}))";
pub const SUCCEED_BACKWARDS: &str =
    "select 3 - cardinality(tuskline.set_results({e}, {dleh}, {fences}))";
pub const REPORT: &str = "select 3 - cardinality(tuskline.set_results({e}, '{}', '{}', {notes}))";
pub const START_BACKWARDS: &str = "select 0 * cardinality(tuskline.start({e}, {dleh}, {fences}))";
pub const RELEASE: &str = "select cardinality(released) from tuskline.release({e}, {held}, {fences}, array[{lease}]::bigint[])";
pub const RELEASE_BACKWARDS: &str = "select cardinality(released) from tuskline.release({e}, {dleh}, {fences}, array[{lease}]::bigint[])";
/// The number of results that were accepted. Results for rows that another session has locked are
/// deferred.
pub const EXCHANGE: &str = "select 3 - cardinality(refused) - coalesce(cardinality(deferred), 0) from tuskline.exchange(\
    {e}, {dleh}, {fences}, null, array[{lease}]::bigint[], {claim})";
pub const CANCEL: &str = "select 0 * length(tuskline.cancel({b}))";

const HELD: Stage =
    Stage { held: 3, queued: 0, due: 0, holder: super::stage::Holder::Alive, crashed: false };

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "the same results twice",
        stage: HELD,
        sessions: &[&[SUCCEED], &[SUCCEED_BACKWARDS]],
        allowed: &["success"],
        sum: 6..=6,
        refusals: &[],
    },
    Scenario {
        name: "results and a release: each attempt ends once",
        stage: HELD,
        sessions: &[&[SUCCEED], &[RELEASE_BACKWARDS]],
        allowed: &["success", "enqueued"],
        sum: 3..=3,
        refusals: &[],
    },
    Scenario {
        name: "reports and a release: each attempt ends once",
        stage: HELD,
        sessions: &[&[REPORT], &[RELEASE]],
        allowed: &["retriable_failure", "success", "fatal_failure", "enqueued"],
        sum: 3..=3,
        refusals: &[],
    },
    Scenario {
        name: "a release that is rolled back",
        stage: HELD,
        sessions: &[&[RELEASE, "select -3", "rollback"], &[SUCCEED_BACKWARDS]],
        allowed: &["success"],
        sum: 0..=3,
        refusals: &[],
    },
    Scenario {
        name: "a success wins against a request to stop",
        stage: HELD,
        sessions: &[&[SUCCEED], &[CANCEL]],
        allowed: &["success"],
        sum: 3..=3,
        refusals: &[],
    },
    Scenario {
        name: "a failure does not win against a request to stop",
        stage: HELD,
        sessions: &[
            &[
                "select cardinality(tuskline.set_results({e}, '{}', '{}', '[{\"task\": {b}, \"fence\": {lease}, \"status\": \"retriable_failure\"}]'))",
            ],
            &[CANCEL],
        ],
        allowed: &["claimed", "cancelled"],
        sum: 0..=0,
        refusals: &[],
    },
    Scenario {
        name: "what is given back does not run when it was to stop",
        stage: HELD,
        sessions: &[
            &[
                "select 0 * cardinality(released) from tuskline.release({e}, array[{b}]::bigint[], {fences})",
            ],
            &[CANCEL],
        ],
        allowed: &["claimed", "cancelled"],
        sum: 0..=0,
        refusals: &[],
    },
    Scenario {
        name: "results from both ends and a request in the middle",
        stage: HELD,
        sessions: &[&[SUCCEED], &[SUCCEED_BACKWARDS], &[CANCEL]],
        allowed: &["success"],
        sum: 6..=6,
        refusals: &[],
    },
    Scenario {
        name: "releases from both ends and a request in the middle",
        stage: HELD,
        sessions: &[&[RELEASE], &[RELEASE_BACKWARDS], &[CANCEL]],
        allowed: &["enqueued", "cancelled", "claimed"],
        sum: 2..=3,
        refusals: &[],
    },
    Scenario {
        name: "reports, a start and a request",
        stage: HELD,
        sessions: &[&[REPORT], &[START_BACKWARDS], &[CANCEL]],
        allowed: &["success", "retriable_failure", "fatal_failure", "cancelled"],
        sum: 3..=3,
        refusals: &[],
    },
    Scenario {
        name: "an exchange, a late release and a start",
        stage: Stage { queued: 2, ..HELD },
        sessions: &[&[EXCHANGE], &[RELEASE], &[START_BACKWARDS]],
        allowed: &["success", "enqueued", "claimed", "processing"],
        sum: 0..=3,
        refusals: &[],
    },
];

#[tokio::test]
async fn attempts_end_once_in_every_order() {
    play_all("results", SCENARIOS).await;
}
