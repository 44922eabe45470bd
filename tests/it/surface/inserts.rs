//! A role with the grants of `docs/clients.md` inserts what an ORM sends, and nothing that harms.

use crate::support::Db;

/// Every column of task, as Drizzle and the SQLAlchemy ORM send it.
const ALL: &str = "insert into tuskline.task (id, fence, created_at, next_trigger_at, scheduled_at, started_at,
    finished_at, status, priority, attempt, crashes, lambda, collection, payload, ordering_key, limit_key,
    fairness_key, unique_key)";

#[tokio::test]
async fn an_insert_may_name_every_column_with_its_default_or_the_same_value() {
    let db = Db::with_lambda("work").await;
    for values in [
        "default, default, default, default, default, default, default, default, default, default, default, 'work',
         default, default, default, default, default, default",
        "nextval('tuskline.task_seq'), 0, now(), null, null, null, null, 'enqueued', 'high', 0, 0, 'work',
         null, '{}', null, null, null, null",
        "default, 0, clock_timestamp() - interval '1 hour', clock_timestamp(), null, null, null, 'enqueued'::varchar,
         'low'::text, 0, 0, 'work', null, jsonb_build_object('n', 1), null, null, 'tenant', null",
    ] {
        let id: i64 = db.one(&format!("{ALL} values ({values}) returning id")).await;
        db.enqueue_due().await;
        assert_eq!(db.status(id).await, "enqueued", "{values}");
        let look = format!("select next_trigger_at is not null from tuskline.tasks where id = {id}");
        assert!(db.one::<bool>(&look).await, "{values}: it has a time of its next check");
    }
    assert_eq!(db.queued().await, 3);
}

#[tokio::test]
async fn an_id_that_no_sequence_has_issued_is_refused() {
    let db = Db::with_lambda("work").await;
    let first = db.id(1);
    let fresh = format!("insert into tuskline.task (id, lambda) values ({first}, 'work')");
    assert!(db.refused(&fresh).await.starts_with("TK051"), "before the first is issued");
    let half = db.future_id(0);
    let later = format!("insert into tuskline.task (id, lambda) values ({half}, 'work')");
    assert!(db.refused(&later).await.starts_with("TK051"), "the other sequence has none, too");
    let last = db.schedule_many("work", 3).await[2];
    // Only in cell 0 is there a segment for it.
    let zero = (db.cell == 0).then_some(0);
    for id in [last + 1, last + 1000].into_iter().chain(zero) {
        for rows in [format!("({id}, 'work')"), format!("({id}, 'work'), ({}, 'work')", last + 7)] {
            let said =
                db.refused(&format!("insert into tuskline.task (id, lambda) values {rows}")).await;
            let expected =
                format!("TK051: TK051 invalid_id: the sequences of tuskline have not issued {id}");
            assert!(said.starts_with(&expected), "{rows}: {said}");
        }
    }
    let future: i64 = db.one("select tuskline.schedule('work', p_delay => '1 hour')").await;
    let beyond = format!("insert into tuskline.task (id, lambda) values ({}, 'work')", future + 1);
    assert!(db.refused(&beyond).await.starts_with("TK051"), "each in its own half");
    assert_eq!(db.schedule("work").await, last + 1, "the next one is still free");
}

#[tokio::test]
async fn an_id_that_was_issued_is_accepted_once() {
    let db = Db::with_lambda("work").await;
    for sequence in ["task_seq", "future_seq"] {
        let id: i64 = db.one(&format!("select nextval('tuskline.{sequence}')")).await;
        db.run(&format!("select nextval('tuskline.{sequence}')")).await;
        let insert = format!("insert into tuskline.task (id, lambda) values ({id}, 'work')");
        db.run(&insert).await;
        db.enqueue_due().await;
        assert_eq!(db.status(id).await, "enqueued", "{sequence}");
        assert!(db.refused(&insert).await.starts_with("23505"), "{sequence}: the key is taken");
    }
}

#[tokio::test]
async fn an_id_of_a_sealed_segment_is_refused_and_one_of_an_open_one_keeps_it_open() {
    let db = Db::with_lambda("work").await;
    let no = db.first_segment();
    let ids = "select array_agg(nextval('tuskline.task_seq')) from generate_series(1, 3)";
    let ids: Vec<i64> = db.one(ids).await;
    let next = db.id((1 << 24) + 5);
    db.run(&format!("select setval('tuskline.task_seq', {next}), tuskline.add_segments()")).await;
    let insert = |id: i64| format!("insert into tuskline.task (id, lambda) values ({id}, 'work')");
    let caller = db.connect().await;
    caller.batch_execute(&format!("begin; {}", insert(ids[0]))).await.unwrap();
    let look = "select count(*) from tuskline.segments_to_retire()";
    let sealed =
        format!("select sealed_at is not null from tuskline.segment where segment_no = {no}");
    db.one::<i64>(look).await;
    assert!(!db.one::<bool>(&sealed).await, "a caller may still commit into it");
    caller.batch_execute("rollback").await.unwrap();
    db.run(&format!("update tuskline.segment set ripe_at = null where segment_no = {no}")).await;
    db.one::<i64>(look).await;
    assert!(db.one::<bool>(&sealed).await);
    let said = db.refused(&insert(ids[1])).await;
    assert!(said.starts_with("TK051: TK051 invalid_id: the segment of"), "{said}");
}

/// A claim subtracts created_at from now: one that is infinite would fail every claim of its queue.
#[tokio::test]
async fn a_time_that_no_default_gives_is_refused() {
    let db = Db::with_lambda("work").await;
    for (column, value, code) in [
        ("created_at", "'infinity'", "TK052"),
        ("created_at", "'-infinity'", "TK052"),
        ("created_at", "now() + interval '1 hour'", "TK052"),
        ("created_at", "now() - interval '2 days'", "TK052"),
        ("next_trigger_at", "'infinity'", "TK005"),
        ("started_at", "now()", "TK008"),
        ("finished_at", "now()", "TK008"),
        ("fence", "1", "TK008"),
        ("attempt", "1", "TK008"),
        ("crashes", "1", "TK008"),
        ("status", "'success'", "TK008"),
    ] {
        for rows in [format!("('work', {value})"), format!("('work', default), ('work', {value})")]
        {
            let sql = format!("insert into tuskline.task (lambda, {column}) values {rows}");
            let said = db.refused(&sql).await;
            assert!(said.starts_with(code), "{sql}: {said}");
        }
    }
}
