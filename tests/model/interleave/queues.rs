//! Claims, due timers, cancellations and the rebuild, at the same time.

use super::results::{EXCHANGE, RELEASE};
use super::stage::{Holder, Stage};
use super::{Scenario, play_all};

const CLAIM: &str = "select coalesce(cardinality(task_id), 0) from tuskline.claim({e}, {claim})";
const CLAIM_2: &str = "select coalesce(cardinality(task_id), 0) from tuskline.claim({e2}, {claim})";
const CANCEL_QUEUED: &str = "select 0 * length(tuskline.cancel({q}))";
const CANCEL_DUE: &str = "select 0 * length(tuskline.cancel({d}))";
const ENQUEUE_DUE: &str = "select moved from tuskline.enqueue_due()";
const SCHEDULE: &str = "select 0 * tuskline.schedule('work')";
const REBUILD: &str = "select tasks from tuskline.rebuild_queues()";

const QUEUED: Stage = Stage { held: 0, queued: 3, due: 0, holder: Holder::Alive, crashed: false };
const DUE: Stage = Stage { queued: 0, due: 3, ..QUEUED };

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "two claims: each task once",
        stage: QUEUED,
        sessions: &[&[CLAIM], &[CLAIM_2]],
        allowed: &["claimed"],
        sum: 3..=3,
        refusals: &[],
    },
    Scenario {
        name: "a claim that is rolled back",
        stage: QUEUED,
        sessions: &[&[CLAIM, "rollback"], &[CLAIM_2]],
        allowed: &["claimed", "enqueued"],
        sum: 3..=6,
        refusals: &[],
    },
    Scenario {
        name: "two claims and a cancellation",
        stage: QUEUED,
        sessions: &[&[CLAIM], &[CLAIM_2], &[CANCEL_QUEUED]],
        allowed: &["claimed", "enqueued", "cancelled"],
        sum: 2..=3,
        refusals: &[],
    },
    Scenario {
        name: "two store consumers: each timer once",
        stage: DUE,
        sessions: &[&[ENQUEUE_DUE], &[ENQUEUE_DUE]],
        allowed: &["enqueued"],
        sum: 3..=3,
        refusals: &[],
    },
    Scenario {
        name: "two store consumers and a cancellation",
        stage: DUE,
        sessions: &[&[ENQUEUE_DUE], &[ENQUEUE_DUE], &[CANCEL_DUE]],
        allowed: &["new", "enqueued", "cancelled"],
        sum: 2..=3,
        refusals: &[],
    },
    Scenario {
        name: "a store consumer, a claim and a cancellation",
        stage: Stage { queued: 2, ..DUE },
        sessions: &[&[ENQUEUE_DUE], &[CLAIM_2], &[CANCEL_DUE]],
        allowed: &["new", "enqueued", "claimed", "cancelled"],
        sum: 4..=8,
        refusals: &[],
    },
    Scenario {
        name: "an exchange, a claim and a cancellation",
        stage: Stage { held: 3, ..QUEUED },
        sessions: &[&[EXCHANGE], &[CLAIM_2], &[CANCEL_QUEUED]],
        allowed: &["success", "enqueued", "claimed", "cancelled"],
        sum: 3..=6,
        refusals: &[],
    },
    Scenario {
        name: "a release and two claims",
        stage: Stage { held: 3, ..QUEUED },
        sessions: &[&[RELEASE], &[CLAIM], &[CLAIM_2]],
        allowed: &["enqueued", "claimed"],
        sum: 6..=9,
        refusals: &[],
    },
    Scenario {
        name: "a rebuild while other sessions schedule and claim",
        stage: Stage { crashed: true, ..QUEUED },
        sessions: &[&[REBUILD], &[SCHEDULE], &[CLAIM_2]],
        allowed: &["enqueued", "claimed"],
        sum: 3..=8,
        refusals: &["TK011"],
    },
    Scenario {
        name: "two rebuilds and a cancellation",
        stage: Stage { crashed: true, ..QUEUED },
        sessions: &[&[REBUILD], &[REBUILD], &[CANCEL_QUEUED]],
        allowed: &["enqueued", "cancelled"],
        sum: 2..=3,
        refusals: &[],
    },
];

#[tokio::test]
async fn queues_keep_what_they_have_in_every_order() {
    play_all("queues", SCENARIOS).await;
}
