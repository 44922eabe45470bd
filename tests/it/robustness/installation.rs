//! A copy of an installation gives nothing to the processes of the original.

use std::time::Duration;

use tuskline::serve;
use tuskline_sdk::{Context, Lambda, Outcome, Worker, WorkerBuilder, WorkerConfig};

use crate::support::{Db, calm, refusal, within};

/// Statements by which a process gets work or deletes something, without the name.
const VERBS: &[&str] = &[
    "tuskline.register_executor('host', 1, '{work}', '0.1.0', '20 s'",
    "tuskline.enqueue_due(null, 1000",
    "tuskline.run_policies(1000",
    "tuskline.rescue(100, null, null, null",
    "tuskline.due_periodic(100, null",
    "tuskline.fire_periodic('nightly', 1, now(), '{}', null",
    "tuskline.segments_to_retire(false",
    "tuskline.purge(1000",
    "tuskline.purge_kept(0, 1000",
];

fn worker(db: &Db, config: WorkerConfig) -> WorkerBuilder {
    let body = |_: (), _: Context| async { Outcome::Success(None) };
    Worker::builder(db.config.clone()).config(config).serve(Lambda::named("work", body))
}

const WRONG: &str =
    "TK041: TK041 wrong_installation: this database is installation 'prod', the process says";
const HINT: &str = "[set TUSKLINE_INSTALLATION=prod if the process belongs here]";

#[tokio::test]
async fn a_process_that_says_another_name_or_none_gets_no_work() {
    let db = Db::with_lambda("work").await;
    db.run("select tuskline.adopt('prod')").await;
    for verb in VERBS {
        let none = db.refused(&format!("select {verb})")).await;
        assert_eq!(none, format!("{WRONG} 'default' {HINT}"), "{verb}");
        let other = db.refused(&format!("select {verb}, 'staging')")).await;
        assert_eq!(other, format!("{WRONG} 'staging' {HINT}"), "{verb}");
        db.run(&format!("select {verb}, 'prod')")).await;
    }
}

#[tokio::test]
async fn a_process_without_the_name_schedules_and_reads() {
    let db = Db::with_lambda("work").await;
    db.run("select tuskline.adopt('prod')").await;
    let task = db.schedule("work").await;
    db.run("insert into tuskline.task (lambda) values ('work')").await;
    assert_eq!(db.status(task).await, "enqueued");
    assert_eq!(db.cancel(task).await, "cancelled");
}

#[tokio::test]
async fn an_unnamed_database_refuses_a_process_that_says_a_name() {
    let db = Db::with_lambda("work").await;
    let said = db.refused("select tuskline.enqueue_due(p_installation => 'prod')").await;
    assert!(said.starts_with("TK041: TK041 wrong_installation: this database is installation 'default', the process says 'prod'"), "{said}");
}

#[tokio::test]
async fn a_worker_that_registered_under_the_old_name_gets_nothing_more() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let [kept, _] = db.schedule_many("work", 2).await.try_into().unwrap();
    let task = worker.take().await;
    assert_eq!(task.id, kept);
    assert_eq!(db.one::<String>("select tuskline.adopt('staging')").await, "default");
    let claimed = worker.claim_by(&worker.client, 1, 0).await.unwrap();
    assert!(!claimed.get::<_, bool>("alive"));
    assert!(!worker.heartbeat().await);
    let ends = "select end_reason from tuskline.executor";
    assert_eq!(db.all::<String>(ends).await, ["adopted"]);
    db.run("select tuskline.rescue(p_installation => 'staging')").await;
    assert_eq!(db.status(kept).await, "enqueued", "its task is free for a worker of the copy");
}

#[tokio::test]
async fn a_worker_that_registers_during_an_adoption_is_ended_or_refused() {
    let db = Db::with_lambda("work").await;
    let (adopter, late) = (db.connect().await, db.connect().await);
    let register = "select tuskline.register_executor('host', 1, '{work}', '0.1.0', '20 s')";
    let pid: i32 = late.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    adopter.batch_execute("begin; select tuskline.adopt('staging')").await.unwrap();
    let (registered, ()) = tokio::join!(late.batch_execute(register), async {
        db.until_blocked(pid).await;
        adopter.batch_execute("commit").await.unwrap();
    });
    let said = refusal(&registered.unwrap_err());
    assert!(said.contains("wrong_installation"), "{said}");

    adopter.batch_execute("select tuskline.adopt('default')").await.unwrap();
    late.batch_execute(&format!("begin; {register}")).await.unwrap();
    let pid: i32 = adopter.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let (adopted, ()) =
        tokio::join!(adopter.batch_execute("select tuskline.adopt('staging')"), async {
            db.until_blocked(pid).await;
            late.batch_execute("commit").await.unwrap();
        });
    adopted.unwrap();
    assert_eq!(db.one::<i64>("select count(*) from tuskline_core.live_executor").await, 0);
}

#[tokio::test]
async fn a_hold_pauses_every_lambda_and_replaces_what_would_end_its_tasks() {
    let db = Db::with_lambda("plain").await;
    for lambda in ["throttled", "paused", "diverted", "dropped"] {
        db.define(lambda).await;
    }
    db.run(
        "select tuskline.throttle('throttled', 5, p_reason => 'test');
         select tuskline.gate('paused', 'pause', p_reason => 'was there');
         select tuskline.gate('dropped', 'drop', p_collection => 'news', p_reason => 'test', p_unseen => true);
         select tuskline.gate('diverted', 'divert', p_reason => 'test')",
    )
    .await;
    db.run("select tuskline.adopt('staging', true, 'a load test')").await;
    let gates = db
        .lines(
            "select lambda, action, collection, reason from tuskline.gate where opened_at is null order by 1, 3 nulls first",
        )
        .await;
    assert_eq!(
        gates,
        [
            "diverted | pause | - | a load test",
            "dropped | pause | - | a load test",
            "dropped | drop | news | test",
            "paused | pause | - | was there",
            "plain | pause | - | a load test",
            "throttled | pause | - | a load test",
        ]
    );
    let audit =
        "select verb || ' ' || subject || ': ' || detail from tuskline.audit where verb = 'adopt'";
    assert_eq!(
        db.all::<String>(audit).await,
        ["adopt installation staging: was default every lambda paused a load test"]
    );
}

#[tokio::test]
async fn an_installation_has_one_name_that_is_a_name() {
    let db = Db::new().await;
    for name in ["'Prod'", "''", "null", "'a b'", "repeat('a', 64)"] {
        let said = db.refused(&format!("select tuskline.adopt({name})")).await;
        assert!(said.starts_with("TK002"), "{name}: {said}");
    }
    let said = db.refused("insert into tuskline.installation (name) values ('second')").await;
    assert!(said.starts_with("23505"), "{said}");
}

#[tokio::test]
async fn a_worker_and_a_server_say_their_name() {
    let db = Db::with_lambda("work").await;
    db.run("select tuskline.adopt('prod')").await;
    let task = db.schedule("work").await;
    let nameless = within(worker(&db, calm()).run()).await.unwrap_err().to_string();
    assert!(nameless.contains("TK041 wrong_installation"), "{nameless}");
    let end = tokio_util::sync::CancellationToken::new();
    let nameless = serve::run(db.config.clone(), serve::Options::default(), end.clone());
    let nameless = within(nameless).await.unwrap_err();
    let serve::Error::Database(refused) = nameless else { panic!("{nameless}") };
    assert!(refusal(&refused).contains("TK041 wrong_installation"), "{refused}");

    let mut config = calm();
    config.installation = Some("prod".to_owned());
    let named = tokio::spawn(worker(&db, config).until(end.clone().cancelled_owned()).run());
    let options = serve::Options { installation: "prod".to_owned(), ..Default::default() };
    let server = tokio::spawn(serve::run(db.config.clone(), options, end.clone()));
    db.until(&format!("select status = 'success' from tuskline.task where id = {task}")).await;
    let later = db.schedule_in("work", Duration::from_millis(20)).await;
    db.until(&format!("select status = 'success' from tuskline.task where id = {later}")).await;
    end.cancel();
    named.await.unwrap().unwrap();
    server.await.unwrap().unwrap();
}
