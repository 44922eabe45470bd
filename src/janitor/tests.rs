//! What must outlive its segment does, and an interrupted retirement is finished.

use std::time::Duration;

use super::*;
use crate::migrate::migrate;
use tuskline_postgres::{Cluster, Stop};

/// Every segment is old enough; a wait for a reader is short, but long enough for a slow machine.
fn hurried() -> JanitorOptions {
    let patience = Duration::from_secs(3);
    JanitorOptions {
        segment_span: Duration::ZERO,
        detach_patience: patience,
        drop_patience: patience,
        ..JanitorOptions::default()
    }
}

/// Four tasks: succeeded, dead, waiting, and another succeeded; the lambda keeps only failures.
const TASKS: &str = "
    select tuskline.define_lambda('tidy', p_retention => '0');
    insert into tuskline.task (lambda) values ('tidy'), ('tidy');
    insert into tuskline.task (lambda, scheduled_at) values ('tidy', now() + interval '1 day');
    insert into tuskline.task (lambda) values ('tidy');
    update tuskline.task set finished_at = now(), next_trigger_at = null,
           status = case id when 2 then 'dead' else 'success' end::tuskline.status where id <> 3;
    insert into tuskline.task_output (task_id, output, finished_at) values (1, '1', now()), (2, '2', now());";

async fn ask(session: &Session, question: &str) -> String {
    session.client().query_one(question, &[]).await.unwrap().get(0)
}

async fn resolved(session: &Session) -> String {
    let ids = "select coalesce(string_agg(id || ' ' || status, ', ' order by id), '') from tuskline.tasks";
    ask(session, ids).await
}

async fn unfinished(session: &Session) -> String {
    ask(session, "select count(*)::text from tuskline.segments_to_finish()").await
}

/// A database with [`TASKS`], and two sessions on it.
async fn database(cluster: &Cluster, name: &str) -> (Session, Session) {
    cluster.create_database(name, None).await.unwrap();
    let config = cluster.config(name);
    migrate(&config).await.unwrap();
    let session = Session::open(&config, "test", Deadlines::PATIENT).await.unwrap();
    session.client().batch_execute(TASKS).await.unwrap();
    (session, Session::open(&config, "other", Deadlines::PATIENT).await.unwrap())
}

#[tokio::test]
async fn what_must_outlive_its_segment_does() {
    let mut cluster = Cluster::temporary(vec![]).await.unwrap();
    let (session, _) = database(&cluster, "leftovers").await;
    round(&session, &hurried(), &mut Marks::default()).await.unwrap();
    assert_eq!(resolved(&session).await, "2 dead, 3 new");
    let kept = "select string_agg(id::text, ', ') from tuskline.task_kept";
    assert_eq!(ask(&session, kept).await, "2", "the waiting task is back in a segment");
    let outputs = "select string_agg(task_id::text, ', ') from tuskline.task_output";
    assert_eq!(ask(&session, outputs).await, "2");
    round(&session, &hurried(), &mut Marks::default()).await.unwrap();
    assert_eq!(resolved(&session).await, "2 dead, 3 new");
    cluster.stop(Stop::Immediate).await.unwrap();
}

#[tokio::test]
async fn a_fold_that_fails_ends_no_round_and_a_refused_one_does() {
    let mut cluster = Cluster::temporary(vec![]).await.unwrap();
    let (session, _) = database(&cluster, "folds").await;
    let failing = |code: &str| {
        format!(
            "create or replace function tuskline.fold_statistics(
               p_every interval default '1 minute', p_installation text default 'default',
               out folded integer)
             language plpgsql as $$ begin raise 'a test' using errcode = '{code}'; end $$"
        )
    };
    session.client().batch_execute(&failing("22003")).await.unwrap();
    round(&session, &hurried(), &mut Marks::default()).await.unwrap();
    assert_eq!(resolved(&session).await, "2 dead, 3 new", "retention goes on");
    session.client().batch_execute(&failing("TK031")).await.unwrap();
    assert!(round(&session, &hurried(), &mut Marks::default()).await.is_err());
    drop(session);
    cluster.stop(Stop::Fast).await.unwrap();
}

#[tokio::test]
async fn an_interrupted_retirement_is_finished() {
    let mut cluster = Cluster::temporary(vec![]).await.unwrap();
    let (session, reader) = database(&cluster, "interrupted").await;
    reader.client().batch_execute("begin; select count(*) from tuskline.task").await.unwrap();
    round(&session, &hurried(), &mut Marks::default()).await.unwrap();
    let stage = "select stage from tuskline.segments_to_finish() where segment_no = 0";
    assert_eq!(ask(&session, stage).await, "pending");
    assert_eq!(resolved(&session).await, "2 dead, 3 new", "ids resolve throughout");
    // It is time to look at it again.
    session.client().batch_execute("update tuskline.segment set ripe_at = null").await.unwrap();
    round(&session, &hurried(), &mut Marks::default()).await.unwrap();
    assert_eq!(ask(&session, stage).await, "pending", "the reader is still there");

    // A later reader is not in the way: finishing takes no lock on the task store that it holds.
    reader
        .client()
        .batch_execute("commit; begin; select count(*) from tuskline.task")
        .await
        .unwrap();
    round(&session, &hurried(), &mut Marks::default()).await.unwrap();
    assert_eq!(unfinished(&session).await, "0");
    assert_eq!(resolved(&session).await, "2 dead, 3 new");
    cluster.stop(Stop::Immediate).await.unwrap();
}

#[tokio::test]
async fn a_detached_segment_is_dropped_by_the_next_janitor() {
    let mut cluster = Cluster::temporary(vec![]).await.unwrap();
    let (session, _) = database(&cluster, "detached").await;
    let died_here = [
        "select tuskline.add_segments(); select tuskline.roll_segments('0')",
        "select tuskline.keep_remaining(0)",
        "alter table tuskline_core.task_store detach partition tuskline_core.task_0 concurrently",
    ];
    for step in died_here {
        session.client().batch_execute(step).await.unwrap();
    }
    assert_eq!(unfinished(&session).await, "1");
    round(&session, &hurried(), &mut Marks::default()).await.unwrap();
    assert_eq!(unfinished(&session).await, "0");
    assert_eq!(resolved(&session).await, "2 dead, 3 new");
    cluster.stop(Stop::Immediate).await.unwrap();
}
