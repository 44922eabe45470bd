//! A task never runs before its due time, whichever way it was scheduled, and is found after it.

use std::time::Duration;

use tokio_postgres::Client;

use crate::support::{Db, within};

const MS: Duration = Duration::from_millis(1);

#[tokio::test]
async fn a_task_is_not_enqueued_before_it_is_due() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let id = db.schedule_in("work", Duration::from_secs(10)).await;
    db.advance(Duration::from_secs(10) - MS).await;
    assert_eq!(db.enqueue_due().await, 0);
    assert_eq!(db.status(id).await, "new");
    db.advance(MS).await;
    assert_eq!(db.enqueue_due().await, 1);
    assert_eq!(
        (db.status(id).await.as_str(), db.timers().await, db.queued().await),
        ("enqueued", 0, 1)
    );
}

/// The same row by COPY.
async fn copy(client: &Client, line: &str) {
    use futures_util::SinkExt;
    let sink = client
        .copy_in(
            "copy tuskline.task (lambda, collection, scheduled_at) from stdin with (format csv)",
        )
        .await
        .unwrap();
    let mut sink = std::pin::pin!(sink);
    sink.send(bytes(line)).await.unwrap();
    within(sink.as_mut().finish()).await.unwrap();
}

fn bytes(line: &str) -> std::io::Cursor<Vec<u8>> {
    std::io::Cursor::new(line.as_bytes().to_vec())
}

/// Schedules one task by every road, named in its collection, for an instant in SQL.
async fn by_every_road(db: &Db, instant: &str) {
    db.run(&format!(
        "select tuskline.schedule('work', p_collection => 'schedule', p_scheduled_at => {instant});
         select tuskline.schedule_many(array['work'], p_collections => array['many'], p_scheduled_at => array[{instant}]);
         insert into tuskline.task (lambda, collection, scheduled_at) values ('work', 'plain', {instant});
         with c as (insert into tuskline.task (lambda, collection, scheduled_at) values ('work', 'cte', {instant}) returning id)
         select count(*) from c"
    ))
    .await;
    let instant: String = db.one(&format!("select ({instant})::text")).await;
    copy(&db.client, &format!("work,copied,{instant}\n")).await;
}

#[tokio::test]
async fn what_is_due_later_waits_in_a_timer_by_whatever_road_it_came() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    by_every_road(&db, "tuskline.clock() + interval '1 hour'").await;
    let right: Vec<bool> = db
        .all(
            "select t.status = 'new' and m.due = t.scheduled_at and t.next_trigger_at = m.due
                     and m.due = tuskline.clock() + interval '1 hour'
                from tuskline.task t left join tuskline.timer m on m.task_id = t.id",
        )
        .await;
    assert_eq!(right, [true; 5]);
    assert_eq!(db.queued().await, 0);
    db.advance(Duration::from_secs(3600) - MS).await;
    assert_eq!(db.enqueue_due().await, 0);
    db.advance(MS).await;
    assert_eq!((db.enqueue_due().await, db.queued().await, db.timers().await), (5, 5, 0));
}

#[tokio::test]
async fn a_due_time_that_has_passed_means_now() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    for past in [
        "tuskline.clock()",
        "timestamptz '1900-01-01'",
        "tuskline.clock() - interval '1 day'",
        "null::timestamptz",
    ] {
        db.empty().await;
        if past.starts_with("null") {
            db.run("select tuskline.schedule('work'); insert into tuskline.task (lambda) values ('work')").await;
        } else {
            by_every_road(&db, past).await;
        }
        let born: Vec<String> = db.all("select distinct status::text from tuskline.task").await;
        assert_eq!(born, ["enqueued"], "{past}");
        assert_eq!(db.timers().await, 0);
        assert_eq!(db.queued().await, db.count("enqueued").await);
    }
}

#[tokio::test]
async fn a_row_that_calls_itself_new_does_not_run_before_its_due_time() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let own = "insert into tuskline.task (lambda, status, scheduled_at) values ('work', 'new', tuskline.clock() + interval '1 hour')";
    if db.client.batch_execute(own).await.is_ok() {
        db.advance(Duration::from_secs(3599)).await;
        assert_eq!(db.enqueue_due().await, 0);
    }
    assert_eq!(db.queued().await, 0);
}

#[tokio::test]
async fn the_store_consumer_learns_when_to_look_again() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let next = "select next_due_ms from tuskline.enqueue_due()";
    assert_eq!(db.one::<Option<i64>>(next).await, None);
    db.schedule_in("work", Duration::from_secs(60)).await;
    db.schedule_in("work", Duration::from_millis(2500)).await;
    assert_eq!(db.one::<Option<i64>>(next).await, Some(2500));
    db.advance(Duration::from_micros(2_499_900)).await;
    assert_eq!(db.one::<Option<i64>>(next).await, Some(1), "rounded up, never early");
    db.advance(Duration::from_micros(100)).await;
    assert_eq!(db.one::<Option<i64>>(next).await, Some(57_500));
}

#[tokio::test]
async fn more_due_than_the_limit_means_again_at_once() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    for seconds in 1..=5 {
        db.schedule_in("work", Duration::from_secs(seconds)).await;
    }
    db.advance(Duration::from_secs(5)).await;
    let mut moved = Vec::new();
    for next in [Some(0), Some(0), None] {
        let row = db
            .client
            .query_one("select moved, next_due_ms from tuskline.enqueue_due(null, 2)", &[])
            .await
            .unwrap();
        moved.push(row.get::<_, i32>(0));
        assert_eq!(row.get::<_, Option<i64>>(1), next);
    }
    assert_eq!(moved, [2, 2, 1]);
}

#[tokio::test]
async fn a_due_time_and_a_delay_together_are_refused() {
    let db = Db::with_lambda("work").await;
    let (at, delay) = ("tuskline.clock() + interval '1 hour'", "'1 minute'::interval");
    for sql in [
        format!("select tuskline.schedule('work', p_scheduled_at => {at}, p_delay => {delay})"),
        format!(
            "select tuskline.schedule_many('{{work,work}}', p_scheduled_at => array[null, {at}],
                                           p_delays => array[{delay}, {delay}])"
        ),
        format!(
            "select tuskline.schedule_chain(json_build_array(json_build_object(
               'lambda', 'work', 'scheduled_at', {at}, 'delay_ms', 60000)))"
        ),
    ] {
        let said = db.refused(&sql).await;
        let both = "TK005 invalid_due: give a due time or a delay, not both, got ";
        assert!(said.contains(both), "{sql}: {said}");
        assert_eq!(said.contains("(row 2 of 2)"), sql.contains("schedule_many"), "{said}");
    }
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task").await, 0);
    // A call may give a due time for one task and a delay for another.
    db.run(&format!(
        "select tuskline.schedule_many('{{work,work}}', p_scheduled_at => array[null, {at}],
                                       p_delays => array[{delay}, null])"
    ))
    .await;
    assert_eq!(db.timers().await, 2);
}

#[tokio::test]
async fn the_due_tasks_beyond_the_limit_are_not_passed_over_by_the_mark() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.run("select tuskline.schedule_many(array_fill('work'::text, array[5]), p_delays => array_fill('1 s'::interval, array[5]))").await;
    db.advance(Duration::from_secs(1)).await;
    db.run("create table mark as select looked_until from tuskline.enqueue_due(null, 2)").await;
    let more: i32 =
        db.one("select moved from tuskline.enqueue_due((select looked_until from mark))").await;
    assert_eq!(more, 3, "all five are due at the same instant");
}

const MONTH: Duration = Duration::from_secs(30 * 86_400);

#[tokio::test]
async fn a_cancelled_task_that_starts_again_keeps_its_due_time_by_whatever_verb() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    for verb in ["retry", "retry_chain", "operation"] {
        let id = match verb {
            "retry_chain" => {
                let chain = "select ids[1] from tuskline.schedule_chain(json_build_array(json_build_object(
                    'name', 'a', 'lambda', 'work', 'scheduled_at', tuskline.clock() + interval '30 days')))";
                db.one::<i64>(chain).await
            }
            _ => db.schedule_in("work", MONTH).await,
        };
        assert_eq!(db.cancel(id).await, "cancelled");
        match verb {
            "retry" => {
                assert_eq!(db.ask::<String>("select tuskline.retry($1)", &[&id]).await, "retried")
            }
            "retry_chain" => db.run(&format!("select tuskline.retry_chain({id})")).await,
            _ => {
                db.run(
                    "select tuskline.start_operation('retry', 'work', p_statuses => '{cancelled}')",
                )
                .await;
                db.run("select tuskline.run_policies()").await;
            }
        }
        while db.enqueue_due().await > 0 {}
        assert_eq!(db.status(id).await, "new", "{verb}");
        let said: String = db.ask("select reason from tuskline.explain($1)", &[&id]).await;
        assert_eq!(said, "not_due", "{verb}");
        db.advance(MONTH).await;
        while db.enqueue_due().await > 0 {}
        assert_eq!(db.status(id).await, "enqueued", "{verb}");
    }
}

#[tokio::test]
async fn a_task_that_starts_again_now_is_due_now() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    for sql in [
        "tuskline.retry({}, true)",
        "tuskline.retry_chain({}, true)",
        "tuskline.start_operation('retry', 'work', \
                 'now', p_statuses => '{cancelled}')",
    ] {
        let id = match sql.contains("chain") {
            true => {
                let chain = "select ids[1] from tuskline.schedule_chain(json_build_array(json_build_object(
                    'name', 'a', 'lambda', 'work', 'scheduled_at', tuskline.clock() + interval '30 days')))";
                db.one::<i64>(chain).await
            }
            false => db.schedule_in("work", MONTH).await,
        };
        assert_eq!(db.cancel(id).await, "cancelled");
        db.run(&format!("select {}", sql.replace("{}", &id.to_string()))).await;
        db.run("select tuskline.run_policies()").await;
        while db.enqueue_due().await > 0 {}
        let due = "select status = 'enqueued' and scheduled_at = tuskline.clock() from tuskline.task where id = $1";
        assert!(db.ask::<bool>(due, &[&id]).await, "{sql}");
    }
    assert_eq!(db.worker("work").await.claim(3).await.len(), 3);
    db.assert_invariants().await;
}
