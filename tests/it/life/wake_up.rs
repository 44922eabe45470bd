//! A sleeping worker is woken by a notification, a busy one needs none, and without any the polls
//! find everything.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio_postgres::Config;

use crate::support::{Db, Gate, Running, calm};

/// A safety poll far beyond the test's deadline: only a notification can wake a worker.
fn never_polls() -> tuskline_sdk::WorkerConfig {
    let mut config = calm();
    config.safety_poll = Duration::from_secs(3_600);
    config
}

#[tokio::test]
async fn a_sleeping_worker_is_notified_and_a_busy_one_is_not() {
    let db = Db::with_lambda("work").await;
    let queue = db.queue("work", "normal").await;
    let channel = format!("tuskline_bell_{queue}");
    let mut ear = db.ear(&["tuskline_queue", &channel]).await;
    let gate = Gate::new();
    let worker = Running::start(&db, never_polls(), vec![gate.lambda("work").slots(1)]);
    db.until_asleep("work").await;
    db.schedule("work").await;
    gate.next().await;
    assert_eq!(ear.heard().await, [channel.as_str()]);
    // The worker's only slot is taken and its lock released. No controller sleeps, so no
    // notification is sent.
    db.until(&format!(
        "select not exists (select from pg_locks where locktype = 'advisory' and objid = {queue}
           and mode = 'ExclusiveLock'
           and database = (select oid from pg_database where datname = current_database()))"
    ))
    .await;
    for _ in 0..10 {
        db.schedule("work").await;
    }
    assert_eq!(ear.heard().await, Vec::<String>::new());
    gate.open_for_good();
    db.until_count("success", 11).await;
    db.until_asleep("work").await;
    db.schedule("work").await;
    db.until_count("success", 12).await;
    assert_eq!(ear.heard().await, [channel.as_str()]);
    worker.stop().await;
}

#[tokio::test]
async fn without_any_notification_the_polls_find_everything() {
    let db = Db::with_lambda("work").await;
    db.run(
        "create or replace function tuskline_core.is_watched(p_queue integer) returns boolean
           language sql as 'select false'",
    )
    .await;
    let _consumer = db.store_consumer();
    let gate = Gate::open();
    let worker = Running::start(&db, calm(), vec![gate.lambda("work")]);
    db.until_asleep("work").await;
    db.schedule("work").await;
    db.until_count("success", 1).await;
    db.until_asleep("work").await;
    db.schedule_many("work", 50).await;
    db.schedule_in("work", Duration::from_millis(100)).await;
    db.until_count("success", 52).await;
    worker.stop().await;
    db.assert_nothing_left().await;
}

/// A sleeping worker polls by peeks of its watch connection. Without an answer to these, its claims poll.
#[tokio::test]
async fn a_sleeping_worker_peeks_and_does_not_claim() {
    let db = Db::with_lambda("work").await;
    db.run(&count_pops()).await;
    db.run(
        "create sequence tuskline.peeked;
         create or replace function tuskline.peek(p_queues integer[], p_marks bigint[]) returns boolean[]
           language sql security definer as
           'select array_fill(nextval(''tuskline.peeked'') is null, array[cardinality(p_queues)])'",
    )
    .await;
    let worker = Running::start(&db, calm(), vec![Gate::open().lambda("work")]);
    db.until_asleep("work").await;
    let looks = |n: i64| format!("select last_value >= {n} from tuskline.peeked");
    let pops = "select last_value from tuskline.popped";
    // The other three queues may still be falling asleep: each claims until it sleeps.
    let mut claims = Vec::new();
    while claims.last().is_none_or(|last| *last >= 2 * 4) {
        assert!(claims.len() < 10, "claims beside six looks at four queues each: {claims:?}");
        let from = 6 * i64::try_from(claims.len()).unwrap() + 2;
        db.until(&looks(from)).await;
        let before: i64 = db.one(pops).await;
        db.until(&looks(from + 6)).await;
        claims.push(db.one::<i64>(pops).await - before);
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_lost_queue_watch_listens_again_and_looks_at_every_queue() {
    let db = Db::with_lambda("work").await;
    let gate = Gate::open();
    let worker = Running::start(&db, never_polls(), vec![gate.lambda("work")]);
    for round in 1..=3 {
        db.until_asleep("work").await;
        let cut: i64 = db
            .one(
                "select count(pg_terminate_backend(pid)) from (
                   select distinct pid from pg_locks where locktype = 'advisory'
                      and classid = 1953854315 and mode = 'ExclusiveLock'
                      and database = (select oid from pg_database where datname = current_database())) s",
            )
            .await;
        assert_eq!(cut, 1);
        db.schedule("work").await;
        db.until_count("success", round).await;
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_row_held_uncommitted_while_the_worker_falls_asleep_is_found() {
    let db = Db::with_lambda("work").await;
    let other = db.connect().await;
    let gate = Gate::open();
    let worker = Running::start(&db, never_polls(), vec![gate.lambda("work")]);
    db.until_asleep("work").await;
    // The worker sleeps: the insert notifies when it commits.
    other.batch_execute("begin; select tuskline.schedule('work')").await.unwrap();
    db.schedule_at("work", "low").await;
    db.until_count("success", 1).await;
    other.batch_execute("commit").await.unwrap();
    db.until_count("success", 2).await;
    db.until_asleep("work").await;
    worker.stop().await;
    let asleep = "select count(*) = % from pg_locks where locktype = 'advisory'
        and classid = 1953854315 and mode = 'ExclusiveLock'
        and database = (select oid from pg_database where datname = current_database())";
    db.until(&asleep.replace('%', "0")).await;
    // No worker sleeps yet. The insert's lock keeps a new worker from falling asleep.
    other.batch_execute("begin; select tuskline.schedule('work')").await.unwrap();
    let second = Running::start(&db, never_polls(), vec![gate.lambda("work")]);
    db.until(&asleep.replace('%', "3")).await;
    other.batch_execute("commit").await.unwrap();
    db.until_count("success", 3).await;
    second.stop().await;
}

#[tokio::test]
async fn a_statement_that_touches_many_queues_sends_one_notification() {
    let db = Db::new().await;
    let gate = Gate::open();
    let names: Vec<_> = (0..20).map(|n| format!("work_{n}")).collect();
    for name in &names {
        db.define(name).await;
    }
    let mut ear = db.ear(&["tuskline_queue"]).await;
    let lambdas = names.iter().map(|name| gate.lambda(name)).collect();
    let worker = Running::start(&db, never_polls(), lambdas);
    for name in &names {
        db.until_asleep(name).await;
    }
    let ids: Vec<i64> = db.ask("select tuskline.schedule_many($1)", &[&names]).await;
    db.until_count("success", ids.len()).await;
    assert_eq!(ear.heard().await, ["tuskline_queue"]);
    worker.stop().await;
    db.assert_nothing_left().await;
}

#[tokio::test]
async fn two_sleeping_workers_are_both_woken_by_one_notification() {
    let db = Db::with_lambda("work").await;
    let gate = Gate::new();
    let start = || Running::start(&db, never_polls(), vec![gate.lambda("work").slots(1)]);
    let workers = [start(), start()];
    db.until_asleep("work").await;
    db.until("select count(*) = 2 from tuskline.executor").await;
    db.schedule_many("work", 2).await;
    let tasks = gate.next_many(2).await;
    assert_ne!(tasks[0].context.fence(), tasks[1].context.fence());
    gate.open_for_good();
    db.until_count("success", 2).await;
    for worker in workers {
        worker.stop().await;
    }
}

/// Counts how often a queue is claimed from.
fn count_pops() -> String {
    let counted = "in make_pop: begin if (p_queue ==> \
                   begin perform nextval('tuskline.popped'); if (p_queue";
    format!("create sequence tuskline.popped; {}", tuskline_breaks::edited(counted).unwrap())
}

#[tokio::test]
async fn one_task_wakes_one_of_many_sleeping_workers() {
    let db = Db::with_lambda("work").await;
    db.run(&count_pops()).await;
    let gate = Gate::open();
    let workers: Vec<_> =
        (0..4).map(|_| Running::start(&db, never_polls(), vec![gate.lambda("work")])).collect();
    db.until("select count(*) = 4 from tuskline.executor").await;
    db.until_asleep("work").await;
    let looks = "select last_value from tuskline.popped";
    let mut before: i64 = db.one(looks).await;
    // The last of the four workers may still be falling asleep.
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now: i64 = db.one(looks).await;
        if std::mem::replace(&mut before, now) == now {
            break;
        }
    }
    for done in 1..=20 {
        db.schedule("work").await;
        db.until_count("success", done).await;
    }
    let made = db.one::<i64>(looks).await - before;
    assert!(
        (20..=60).contains(&made),
        "{made} looks for 20 tasks: were all woken, it would be 160"
    );
    for worker in workers {
        worker.stop().await;
    }
}

/// The server on a port of loopback that lets everything through but notifications.
async fn without_notifications(db: &Db) -> Config {
    let (listener, config, socket) = db.port().await;
    tokio::spawn(async move {
        loop {
            let (here, _) = listener.accept().await.unwrap();
            let there = UnixStream::connect(&socket).await.unwrap();
            let ((mut asks, mut hears), (mut answers, mut asked)) =
                (here.into_split(), there.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut asks, &mut asked).await });
            tokio::spawn(async move {
                // Each message: its kind, and the length of the rest with its own four bytes.
                while let Ok(kind) = answers.read_u8().await {
                    let length = answers.read_u32().await?;
                    let mut rest = vec![0; length as usize - 4];
                    answers.read_exact(&mut rest).await?;
                    if kind != b'A' {
                        hears.write_u8(kind).await?;
                        hears.write_u32(length).await?;
                        hears.write_all(&rest).await?;
                    }
                }
                std::io::Result::Ok(())
            });
        }
    });
    config
}

#[tokio::test]
async fn a_store_consumer_works_before_it_knows_whether_it_hears() {
    let mut db = Db::with_lambda("work").await;
    // A trigger notes the last statement of the listening session, in the transaction that moves a
    // task.
    db.run(
        "create table tuskline_test.said (what text);
         create function tuskline_test.note() returns trigger language plpgsql as $$
         begin
           insert into tuskline_test.said select query from pg_stat_activity
            where datname = current_database() and application_name = 'tuskline store-consumer bell';
           return null;
         end $$",
    )
    .await;
    db.schedule_in("work", Duration::from_millis(1)).await;
    let note = "create trigger note after update on tuskline.task for each row execute function tuskline_test.note()";
    db.run(note).await;
    let deaf = without_notifications(&db).await;
    let direct = std::mem::replace(&mut db.config, deaf);
    let _store_consumer = db.store_consumer();
    db.config = direct;
    db.until_count("enqueued", 1).await;
    assert_eq!(db.lines("select what from tuskline_test.said").await, ["listen tuskline_timer"]);
    // The store consumer then finds that it hears nothing, and polls.
    db.until(
        "select exists (select from pg_stat_activity
          where datname = current_database() and query = 'unlisten *')",
    )
    .await;
    db.schedule_in("work", Duration::from_millis(1)).await;
    db.until_count("enqueued", 2).await;
}

#[tokio::test]
async fn an_echo_that_comes_during_a_long_first_lap_is_heard() {
    let db = Db::with_lambda("work").await;
    // The move of one task takes longer than the echo is waited for.
    db.run(
        "create function tuskline_test.dawdle() returns trigger language plpgsql as $$
         begin perform pg_sleep(1.5); return null; end $$",
    )
    .await;
    db.schedule_in("work", Duration::from_millis(1)).await;
    db.run("create trigger dawdle after update on tuskline.task for each row execute function tuskline_test.dawdle()").await;
    let _store_consumer = db.store_consumer();
    db.until_count("enqueued", 1).await;
    // A store consumer that hears notifications sleeps under a lock; a deaf one only polls.
    db.until(
        "select exists (select from pg_stat_activity where datname = current_database()
          and application_name = 'tuskline store-consumer bell' and query ilike '%tuskline.watch%')",
    )
    .await;
}
