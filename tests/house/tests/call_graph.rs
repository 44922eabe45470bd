//! The call graph of the functions of the schema: no circle, two writers of an end, and the core
//! reaches policies by doors only. And bounds that figures keep.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use tokio::sync::OnceCell;
use tuskline_house::database::Catalogue;
use tuskline_house::figures;
use tuskline_house::graph::{DOORS, Graph, POLICIES, WRITERS};
use tuskline_house::{Tree, database};

/// Figures that have met their targets once. They keep them.
const KEPT: [&str; 8] = [
    "circle",
    "writers_of_ends",
    "server_circles",
    "arrows_up",
    "long_files",
    "controller_doors",
    "test_openers",
    "private_names",
];

static CATALOGUE: OnceCell<Catalogue> = OnceCell::const_new();

async fn catalogue() -> &'static Catalogue {
    CATALOGUE.get_or_init(async || database::read().await.unwrap()).await
}

async fn graph() -> &'static Graph {
    &catalogue().await.graph
}

#[tokio::test]
async fn no_function_reaches_itself() {
    let graph = graph().await;
    let calls = &graph.calls;
    assert!(calls.len() > 250 && calls["take"].contains("take_n"), "{}", calls.len());
    assert_eq!(graph.circles(), Vec::<Vec<&str>>::new());
}

#[tokio::test]
async fn a_task_ends_by_two_functions() {
    let graph = graph().await;
    // end_kept is end_waiting for a task that has outlived its segment.
    assert_eq!(graph.writers_of_ends(), ["end_kept", "end_n", "end_waiting"]);
    // return_kept drops that of a segment which has gone.
    for (writer, callers) in
        [("end_kept", ["end_waiting"].as_slice()), ("end_n", &["end_attempts", "return_kept"])]
    {
        assert_eq!(graph.callers(writer), callers, "{writer}");
    }
}

#[tokio::test]
async fn the_core_reaches_policies_by_doors_and_policies_do_not_reach_back() {
    let graph = graph().await;
    for name in DOORS.iter().chain(&POLICIES).chain(&WRITERS) {
        assert!(graph.calls.contains_key(*name), "there is no {name}");
    }
    for verb in ["route", "exchange", "set_results", "release", "complete", "enqueue_due", "cancel"]
    {
        let beside = graph.reached(verb, &DOORS);
        let met: Vec<_> = POLICIES.iter().filter(|policy| beside.contains(*policy)).collect();
        assert!(met.is_empty(), "{verb} meets {met:?} beside the doors");
    }
    for below in DOORS.iter().chain(&POLICIES) {
        let back = graph.reached(below, &[]);
        let met: Vec<_> = WRITERS.iter().filter(|writer| back.contains(*writer)).collect();
        assert!(met.is_empty(), "{below} reaches {met:?}");
        let writes =
            ["update tuskline.task", "insert into tuskline.task", "insert into tuskline.queued"];
        let text = graph.text(below);
        assert!(!writes.iter().any(|write| text.contains(write)), "{below} writes tasks");
    }
}

#[tokio::test]
async fn timers_have_one_writer() {
    assert_eq!(graph().await.writers_of_timers(), ["add_timers"]);
}

#[tokio::test]
async fn figures_that_met_their_targets_keep_them() {
    let figures = figures::all(&Tree::root(), catalogue().await).unwrap();
    for name in KEPT {
        let figure = figures.iter().find(|figure| figure.name == name).unwrap();
        assert_eq!(figure.is_met(), Some(true), "{figure:#?}");
    }
    // The target is 30. Claims of flagged queues brought one more.
    let exchange = figures.iter().find(|figure| figure.name == "exchange").unwrap();
    assert!(exchange.value <= 31, "{exchange:#?}");
    let table = figures::table(&figures);
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
}
