//! What README.md shows runs: its SQL as it stands there, its Rust as it stands in `readme/`.

use crate::support::{Db, refusal};

/// Lambdas that the examples are about, besides the one they define themselves.
const LAMBDAS: [&str; 9] = [
    "resize",
    "apply_event",
    "fetch",
    "parse",
    "publish",
    "clean_up",
    "report",
    "reindex",
    "charge",
];

fn readme() -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    std::fs::read_to_string(path).unwrap()
}

/// The blocks of a language, in order.
fn blocks<'r>(readme: &'r str, fence: &str) -> Vec<&'r str> {
    let opened = format!("```{fence}\n");
    readme.split(&opened).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// Statements without comments: a text holds neither `;` nor `--`.
fn statements(block: &str) -> Vec<String> {
    let lines = block.lines().map(|line| line.split("--").next().unwrap());
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    text.split(';').map(|one| one.trim().to_owned()).filter(|one| !one.is_empty()).collect()
}

#[tokio::test]
async fn every_statement_that_it_shows_is_accepted() {
    let db = Db::new().await;
    for name in LAMBDAS {
        db.define(name).await;
    }
    db.define("send_email").await;
    // A gate is refused for a collection that nobody has ever used.
    db.run("insert into tuskline.task (lambda, collection) values ('send_email', 'marketing')")
        .await;
    let readme = readme();
    let blocks = blocks(&readme, "sql");
    assert!(blocks.len() >= 10, "{} blocks", blocks.len());
    for statement in blocks.into_iter().flat_map(statements) {
        if statement.contains("schedule_chain(") {
            db.run("select setval('tuskline.task_seq', 17, false)").await; // its number in what follows
        }
        match statement.starts_with("copy ") {
            true => {
                let sink = db.client.copy_in::<_, &[u8]>(&statement).await.unwrap();
                assert_eq!(Box::pin(sink).as_mut().finish().await.unwrap(), 0, "rows");
            }
            false => {
                let done = db.client.batch_execute(&statement).await;
                done.unwrap_or_else(|error| panic!("{}: {statement}", refusal(&error)));
            }
        }
    }
    let chain: Vec<String> =
        db.all("select name from tuskline.chain_tasks where chain_id = 17 order by task_id").await;
    assert_eq!(chain, ["fetch", "first", "second", "report_6", "publish", "clean_up_5"]);
}

#[test]
fn its_rust_is_that_of_the_tests() {
    let readme = readme();
    let shown = blocks(&readme, "rust,no_run");
    let tested = [
        include_str!("readme/worker.rs"),
        include_str!("readme/fenced.rs"),
        include_str!("readme/progress.rs"),
        include_str!("readme/slots.rs"),
        include_str!("../../../crates/testing/tests/kit/example.rs"),
    ];
    assert_eq!(shown, tested);
}

/// The first worker.
mod worker {
    #![allow(dead_code, reason = "its main serves for ever, at a place of its own")]
    include!("readme/worker.rs");

    use crate::support::{Db, Running, calm};

    #[tokio::test]
    async fn it_sends_an_email_and_fails_a_payload_that_is_none() {
        let db = Db::with_lambda("send_email").await;
        let worker = Running::start(&db, calm(), vec![Lambda::new("send_email", send_email)]);
        let good = db.schedule_with("send_email", r#"{"to": "ada@example.org"}"#).await;
        let bad = db.schedule_with("send_email", r#"{"form": "ada@example.org"}"#).await;
        db.until_status(good, "success").await;
        db.until_status(bad, "fatal_failure").await;
        worker.stop().await;
    }
}

/// A body whose own writes are fenced.
mod fenced {
    include!("readme/fenced.rs");

    use crate::support::{Db, Running, calm};
    use tuskline_sdk::Lambda;

    #[tokio::test]
    async fn its_booking_and_its_success_are_one_commit() {
        let db = Db::with_lambda("book").await;
        db.run("create table booking (order_no bigint primary key, at xid8 default pg_current_xact_id())")
            .await;
        let worker = Running::start(&db, calm(), vec![Lambda::new("book", book)]);
        let id = db.schedule_with("book", "7").await;
        db.until_status(id, "success").await;
        worker.stop().await;
        let booked: Vec<String> = db.lines("select order_no from booking").await;
        assert_eq!(booked, ["7"]);
        // The row of the task was last written by the transaction that booked.
        let one: bool = db
            .ask("select t.xmin = b.xmin from tuskline.task t, booking b where t.id = $1", &[&id])
            .await;
        assert!(one);
    }
}

/// A long task.
mod progress {
    include!("readme/progress.rs");

    use crate::support::{Db, Running, calm};
    use tuskline_sdk::Lambda;

    #[tokio::test]
    async fn it_says_how_far_it_came_and_what_it_kept() {
        let db = Db::with_lambda("import").await;
        let worker = Running::start(&db, calm(), vec![Lambda::new("import", import)]);
        let id = db.schedule_with("import", "3000").await;
        db.until_status(id, "success").await;
        worker.stop().await;
        let said = db
            .lines(&format!(
                "select percent, message, checkpoint::text from tuskline.task_status({id})"
            ))
            .await;
        assert_eq!(said, ["100 | importing | 3000"]);
    }
}

/// A lambda with slots of its own.
mod slots {
    include!("readme/slots.rs");

    use crate::support::Db;
    use crate::support::cli::url;
    use tokio_util::sync::CancellationToken;

    #[tokio::test]
    async fn its_worker_resizes() {
        let db = Db::with_lambda("resize").await;
        let id = db.schedule_with("resize", "7").await;
        let token = CancellationToken::new();
        let ended = worker(&url(&db.config)).unwrap().until(token.clone());
        let work = tokio::spawn(ended.run());
        db.until_status(id, "success").await;
        token.cancel();
        work.await.unwrap().unwrap();
    }
}
