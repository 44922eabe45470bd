//! The queues are buffers: after a crash they are filled again from the task store, and nothing is
//! claimed before that.

use std::time::Duration;

use tuskline::config::StoreConsumerOptions;
use tuskline_postgres::Stop;

use crate::support::{Answer, Db, Gate, LEASE, Running, calm, own_cluster, refusal, within};

/// Recoveries in the audit, for the time line.
async fn recoveries(db: &Db) -> Vec<String> {
    db.all("select detail from tuskline.audit where verb = 'recover' order by at").await
}

#[tokio::test]
async fn after_a_crash_nothing_is_lost_and_nothing_is_claimed_before_the_rebuild() {
    let mut cluster = own_cluster().await;
    let mut db = Db::in_cluster(&cluster).await;
    // A throw-away cluster does not wait for its WAL by default.
    db.run("set synchronous_commit = on").await;
    db.define("work").await;
    db.define("other").await;
    db.pin().await;
    let queued = db.schedule_many("work", 20).await;
    let later = db.schedule_in("work", Duration::from_secs(60)).await;
    let mut worker = db.worker("work").await;
    worker.client.batch_execute("set synchronous_commit = on").await.unwrap();
    let [held, finished] = worker.claim(2).await.try_into().unwrap();
    assert_eq!(worker.succeed(&finished).await, Answer::Accepted);
    db.schedule_many("other", 5).await;

    within(cluster.stop(Stop::Immediate)).await.unwrap();
    within(cluster.start_again()).await.unwrap();
    db.reconnect().await;
    worker.client = db.connect().await;

    let ready: bool = db.one("select queues_rebuilt from tuskline.readiness()").await;
    assert_eq!((ready, db.queued().await, db.count("enqueued").await), (false, 0, 23));
    // This task is scheduled while claims are refused: rebuild finds it a second time.
    let meanwhile = db.schedule("work").await;
    assert!(meanwhile >> 24 > queued[0] >> 24, "an id of the lost past: {meanwhile}");
    assert_eq!(damage(&db).await, Vec::<String>::new());
    let refused = refusal(&worker.claim_by(&worker.client, 100, 0).await.unwrap_err());
    assert!(refused.starts_with("TK011"), "{refused}");
    assert_eq!(db.one::<i64>("select tasks from tuskline.rebuild_queues()").await, 24);
    assert_eq!(recoveries(&db).await, ["after a crash or promotion: 24 tasks queued"]);
    assert_eq!(db.all::<String>("select name from tuskline.damage()").await, Vec::<String>::new());

    // Held work is still held, under its lease and fence.
    assert_eq!(db.rescue().await, (0, 0, 0));
    assert_eq!(worker.succeed(&held).await, Answer::Accepted);
    let claimed = worker.claim(100).await;
    let mut expected = queued[2..].to_vec();
    expected.push(meanwhile);
    assert_eq!(claimed.iter().map(|task| task.id).collect::<Vec<_>>(), expected);
    assert!(claimed[0].fence > 1_000_000_000, "no fence of the lost past is issued again");
    let newcomer = db.worker("other").await;
    assert!(newcomer.executor > 1_000_000);
    assert_eq!(newcomer.claim(100).await.len(), 5);
    db.advance(Duration::from_secs(60)).await;
    assert_eq!(db.enqueue_due().await, 1);
    assert_eq!(db.status(later).await, "enqueued");
}

/// Empties the unlogged tables and resets the sequence, as a crash does.
async fn lose_the_queues(db: &Db) {
    db.run(
        "truncate tuskline.queued, tuskline_core.queues_complete;
         alter sequence tuskline_core.ids_raised restart",
    )
    .await;
}

/// The damage that a crash does not explain.
async fn damage(db: &Db) -> Vec<String> {
    db.all(
        "select concat_ws(' ', part, name, problem) from tuskline.damage() where part not like 'queue%'",
    )
    .await
}

#[tokio::test]
async fn two_failovers_that_know_nothing_of_each_other_issue_no_number_twice() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.schedule_many("work", 2).await;
    // The numbers were raised to the clock a moment ago. A fixed step would be the same for both
    // failovers.
    lose_the_queues(&db).await;
    db.one::<bool>("select rebuilt from tuskline.rebuild_queues()").await;
    let first = db.worker("work").await;
    let before = first.take().await;
    let mut seen = vec![(before.fence, first.executor)];
    for _ in 0..2 {
        // Each new primary has the state before the first failover, and nothing later.
        for (sequence, at) in [("fence_seq", before.fence), ("executor_seq", first.executor)] {
            db.run(&format!("select setval('tuskline.{sequence}', {at})")).await;
        }
        lose_the_queues(&db).await;
        db.advance(Duration::from_secs(1)).await;
        db.one::<bool>("select rebuilt from tuskline.rebuild_queues()").await;
        let worker = db.worker("work").await;
        let task = worker.take().await;
        assert!(worker.release(&task).await);
        seen.push((task.fence, worker.executor));
    }
    let rises = |pair: &[(i64, i64)]| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1;
    assert!(seen.windows(2).all(rises), "{seen:?}");
}

#[tokio::test]
async fn of_two_sessions_that_rebuild_one_does_it_and_the_other_waits() {
    let db = Db::with_lambda("work").await;
    db.schedule_many("work", 7).await;
    lose_the_queues(&db).await;
    let (one, two) = (db.connect().await, db.connect().await);
    let rebuild = "select rebuilt from tuskline.rebuild_queues()";
    one.batch_execute("begin").await.unwrap();
    assert!(one.query_one(rebuild, &[]).await.unwrap().get::<_, bool>(0));
    let pid: i32 = two.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let ((), second) = tokio::join!(
        async {
            db.until_blocked(pid).await;
            one.batch_execute("commit").await.unwrap();
        },
        two.query_one(rebuild, &[]),
    );
    assert!(!second.unwrap().get::<_, bool>(0));
    assert_eq!(db.queued().await, 7);
}

#[tokio::test]
async fn a_rebuild_that_rolls_back_leaves_the_door_closed() {
    let db = Db::with_lambda("work").await;
    db.schedule("work").await;
    let worker = db.worker("work").await;
    lose_the_queues(&db).await;
    db.run("begin; select tuskline.rebuild_queues(); rollback").await;
    assert!(worker.claim_by(&worker.client, 1, 0).await.is_err());
    assert_eq!(db.queued().await, 0);
}

#[tokio::test]
async fn a_rebuild_wakes_every_sleeping_worker() {
    let db = Db::with_lambda("work").await;
    let mut ear = db.ear(&["tuskline_queue"]).await;
    db.run("select tuskline.rebuild_queues()").await;
    assert!(ear.heard().await.is_empty(), "the queues were complete");
    lose_the_queues(&db).await;
    db.run("select tuskline.rebuild_queues()").await;
    assert_eq!(ear.heard().await, ["tuskline_queue"]);
}

#[tokio::test]
async fn a_lease_that_ended_while_the_server_was_down_is_rescued_after_the_rebuild() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.schedule("work").await;
    let dead = db.worker("work").await;
    let task = dead.take().await;
    lose_the_queues(&db).await;
    db.advance(LEASE).await;
    // The rescue may come before or after the rebuild: the task is in its queue, and claimed once.
    assert_eq!(db.rescue().await, (1, 1, 0));
    db.run("select tuskline.rebuild_queues()").await;
    let worker = db.worker("work").await;
    assert_eq!(worker.claim(10).await.iter().map(|task| task.id).collect::<Vec<_>>(), [task.id]);
    assert_eq!(db.queued().await, 0);
}

#[tokio::test]
async fn a_rebuild_takes_in_only_what_is_enqueued() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.schedule_in("work", LEASE).await;
    let worker = db.worker("work").await;
    db.schedule_many("work", 6).await;
    let tasks = worker.claim(5).await;
    assert!(worker.start(&tasks[1]).await);
    worker.succeed(&tasks[2]).await;
    worker.fail(&tasks[3]).await;
    worker.fail_for_good(&tasks[4]).await;
    lose_the_queues(&db).await;
    assert_eq!(db.one::<i64>("select tasks from tuskline.rebuild_queues()").await, 1);
}

/// Imitates a clean restart: the server was started at another time.
async fn restart(db: &Db) {
    db.run(
        "update tuskline_core.incarnation set started_at = started_at - interval '1 second';
         update tuskline_core.incarnation set written_by = xmin",
    )
    .await;
}

#[tokio::test]
async fn a_clean_restart_raises_fences_and_executors_and_nothing_else() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    let ids = db.schedule_many("work", 2).await;
    let before = worker.take().await;
    let row = "select string_agg(seq || ' ' || task_id, ',') from tuskline.queued";
    let queued: String = db.one(row).await;
    restart(&db).await;
    let refused = refusal(&worker.claim_by(&worker.client, 1, 0).await.unwrap_err());
    assert!(refused.starts_with("TK011"), "{refused}");
    assert!(worker.heartbeat().await);
    let did = db.lines("select rebuilt, tasks, copied from tuskline.rebuild_queues()").await;
    assert_eq!(did, ["false | 0 | false"]);
    assert_eq!(recoveries(&db).await, ["after a restart: 0 tasks queued"]);
    assert_eq!(db.one::<String>(row).await, queued);
    let after = worker.take().await;
    assert!(after.fence > before.fence + 1_000_000_000, "{after:?}");
    assert!(db.worker("work").await.executor > 1_000_000);
    assert_eq!(worker.succeed(&before).await, Answer::Accepted);
    assert_eq!(db.schedule("work").await, ids[1] + 1);
}

#[tokio::test]
async fn another_system_identifier_is_a_copy() {
    let db = Db::with_lambda("work").await;
    db.schedule("work").await;
    restart(&db).await;
    db.run(
        "update tuskline_core.incarnation set system_identifier = 1;
         update tuskline_core.incarnation set written_by = xmin",
    )
    .await;
    assert!(db.one::<bool>("select copied from tuskline.rebuild_queues()").await);
    assert_eq!(recoveries(&db).await, ["after a restore or copy: 0 tasks queued"]);
    assert_eq!(db.schedule("work").await, db.id((1 << 24) + 1));
}

#[tokio::test]
async fn fifty_crashes_without_a_janitor_issue_no_id_twice_and_leave_a_segment() {
    let db = Db::with_lambda("work").await;
    let mut last = [db.schedule("work").await, db.schedule_in("work", LEASE).await];
    for round in 0..50 {
        lose_the_queues(&db).await;
        // A rebuild that rolls back raises the ids, too.
        if round % 7 == 0 {
            db.run("begin; select tuskline.rebuild_queues(); rollback").await;
            db.schedule("work").await;
        }
        db.run("select tuskline.rebuild_queues()").await;
        let next = [db.schedule("work").await, db.schedule_in("work", LEASE).await];
        assert!(
            next[0] >> 24 > last[0] >> 24 && next[1] >> 24 > last[1] >> 24,
            "{next:?} {last:?}"
        );
        assert!(next[0] < db.future_id(0) && next[1] >= db.future_id(0));
        last = next;
    }
    assert_eq!(db.queued().await, 59);
    assert!(db.one::<i32>("select tuskline.add_segments()").await > 0);
}

#[tokio::test]
async fn a_task_that_was_prepared_before_a_crash_is_queued_when_it_is_committed() {
    let mut cluster = own_cluster().await;
    let mut db = Db::in_cluster(&cluster).await;
    db.run("set synchronous_commit = on").await;
    db.define("work").await;
    for gid in ["one", "two"] {
        let prepare = "begin; set local tuskline.two_phase = on; select tuskline.schedule('work')";
        db.run(&format!("{prepare}; prepare transaction '{gid}'")).await;
    }
    within(cluster.stop(Stop::Immediate)).await.unwrap();
    within(cluster.start_again()).await.unwrap();
    db.reconnect().await;
    assert_eq!(db.one::<i64>("select tasks from tuskline.rebuild_queues()").await, 0);
    let rebuild_check_every = Duration::from_millis(20);
    let options = StoreConsumerOptions { rebuild_check_every, ..Default::default() };
    let _consumer = db.store_consumer_with(options);
    db.run("commit prepared 'one'").await;
    db.until("select exists (select from tuskline.queued)").await;
    db.run("rollback prepared 'two'").await;
    db.until("select not exists (select from tuskline_core.late_commit)").await;
    assert_eq!(db.worker("work").await.claim(10).await.len(), 1);
}

#[tokio::test]
async fn a_worker_of_a_lost_future_delays_claims_until_one_lease_after_the_recovery() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    db.schedule_many("work", 2).await;
    let beat = format!("select past from tuskline.heartbeat({}, p_beats => 3)", worker.executor);
    lose_the_queues(&db).await;
    db.run("select tuskline.rebuild_queues()").await;
    db.advance(Duration::from_secs(5)).await;
    assert!(db.one::<bool>(&beat).await);
    assert_eq!(worker.claim(1).await, []);
    db.advance(Duration::from_secs(14)).await;
    assert!(db.one::<bool>(&beat).await);
    assert_eq!(worker.claim(1).await, []);
    db.advance(Duration::from_secs(1)).await;
    assert_eq!(worker.claim(1).await.len(), 1);
    // By now the other workers have ended.
    assert!(db.one::<bool>(&beat).await);
    assert_eq!(worker.claim(1).await.len(), 1);
}

#[tokio::test]
async fn a_worker_of_a_lost_future_that_comes_before_the_recovery_delays_claims() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker("work").await;
    db.schedule("work").await;
    restart(&db).await;
    assert!(db.one::<bool>("select past from tuskline.heartbeat(999, p_beats => 3)").await);
    db.run("select tuskline.rebuild_queues()").await;
    let newcomer = db.worker("work").await;
    assert_eq!(newcomer.claim(1).await, []);
    db.advance(LEASE).await;
    assert_eq!(newcomer.claim(1).await.len(), 1);
    drop(worker);
}

/// The recovery of a copy ends every executor, and the heartbeats of their workers come after it.
#[tokio::test]
async fn a_late_heartbeat_waits_for_the_leases_that_the_recovery_has_ended() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.run("select tuskline.register_executor('host', 7, '{work}', '0', '2 s')").await;
    db.run("update tuskline_core.incarnation set database_oid = 1").await;
    assert!(db.one::<bool>("select copied from tuskline.rebuild_queues()").await);
    assert!(db.one::<bool>("select past from tuskline.heartbeat(4711, false, false, 0)").await);
    let wait = "select (claims_from - verified_at)::text from tuskline_core.incarnation";
    assert_eq!(db.one::<String>(wait).await, "00:00:02");
}

#[tokio::test]
async fn a_rebuild_under_a_savepoint_counts() {
    let db = Db::with_lambda("work").await;
    lose_the_queues(&db).await;
    db.run("begin; savepoint one; select tuskline.rebuild_queues(); release one; commit").await;
    assert!(db.one::<bool>("select queues_rebuilt from tuskline.readiness()").await);
}

#[tokio::test]
async fn each_of_the_two_facts_is_one_row_at_most() {
    let db = Db::new().await;
    for twice in [
        "insert into tuskline_core.queues_complete select * from tuskline_core.queues_complete",
        "insert into tuskline_core.incarnation select * from tuskline_core.incarnation",
        "insert into tuskline_core.queues_complete values (false, now())",
        "insert into tuskline_core.queues_complete values (null, now())",
    ] {
        assert!(db.refused(twice).await.starts_with("23"), "{twice}");
    }
}

/// Drops each unlogged table, as some platforms do at a promotion. A view keeps `queues_complete`.
async fn drop_unlogged_tables(db: &Db) {
    db.run(
        "do $$ declare r record; begin
           for r in select oid::regclass as name from pg_class
                     where relnamespace = 'tuskline_core'::regnamespace
                       and relkind = 'r' and relpersistence = 'u' loop
             begin execute 'drop table ' || r.name;
             exception when dependent_objects_still_exist then null; end;
           end loop;
         end $$",
    )
    .await;
    let kept = "select string_agg(relname, ' ') from pg_class where relpersistence = 'u' \
                 and relkind = 'r' and relnamespace = 'tuskline_core'::regnamespace";
    assert_eq!(db.one::<String>(kept).await, "queues_complete");
}

#[tokio::test]
async fn unlogged_tables_that_are_dropped_are_made_again_and_every_task_runs() {
    let db = Db::with_lambda("work").await;
    db.run("select tuskline.set_breaker('work')").await;
    db.schedule_many("work", 20).await;
    db.schedule_in("work", Duration::from_millis(1)).await;
    let worker = db.worker("work").await;
    let tasks = worker.claim(4).await;
    worker.succeed(&tasks[0]).await;
    assert!(worker.start(&tasks[1]).await);
    drop_unlogged_tables(&db).await;
    assert!(db.one::<bool>("select queues_rebuilt from tuskline.readiness()").await);
    let refused = db.refused("insert into tuskline.task (lambda) values ('work')").await;
    assert!(refused.starts_with("23514"), "{refused}");
    let client = tuskline_sdk::Client::connect(&db.config).await.unwrap();
    let refused = client.schedule(tuskline_sdk::NewTask::new("work", &())).await.unwrap_err();
    assert!(refused.is_retryable(), "{refused:?}");

    let gate = Gate::open();
    let sdk_worker = Running::start(&db, calm(), vec![gate.lambda("work")]);
    let rebuild_check_every = Duration::from_millis(20);
    let options = StoreConsumerOptions { rebuild_check_every, ..Default::default() };
    let _consumer = db.store_consumer_with(options);
    db.until("select not exists (select from tuskline.damage())").await;
    // The rescue counts a crash, and its tasks return.
    db.run(&format!("select tuskline.end_executor({})", worker.executor)).await;
    db.schedule("work").await;
    db.until_count("success", 22).await;
    sdk_worker.stop().await;
    db.assert_nothing_left().await;
}

#[tokio::test]
async fn the_mark_of_raised_ids_is_made_again_when_it_was_dropped() {
    let db = Db::with_lambda("work").await;
    let last = db.schedule("work").await;
    db.run("drop sequence tuskline_core.ids_raised").await;
    assert!(db.refused("select tuskline.schedule('work')").await.starts_with("42P01"));
    db.run("select tuskline.rebuild_queues()").await;
    assert!(db.schedule("work").await >> 24 > last >> 24);
}

#[tokio::test]
async fn a_promotion_that_drops_unlogged_tables_ends_in_one_recovery() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let ids = db.schedule_many("work", 3).await;
    let worker = db.worker("work").await;
    let task = worker.take().await;
    assert!(worker.start(&task).await);
    lose_the_queues(&db).await;
    drop_unlogged_tables(&db).await;
    let did = db.lines("select rebuilt, tasks, copied from tuskline.rebuild_queues()").await;
    assert_eq!(did, ["true | 2 | false"]);
    db.advance(LEASE).await;
    assert_eq!(db.rescue().await, (1, 1, 0));
    let claimed = db.worker("work").await.claim(10).await;
    let mut claimed: Vec<_> = claimed.iter().map(|task| task.id).collect();
    claimed.sort_unstable();
    assert_eq!(claimed, ids);
}

/// A table that is left keeps its rows: no task of it is queued twice.
#[tokio::test]
async fn one_dropped_queue_is_filled_and_the_others_stay_as_they_are() {
    let db = Db::with_lambda("work").await;
    db.define("other").await;
    db.schedule_many("work", 3).await;
    db.schedule_many("other", 5).await;
    let queue = db.queue("other", "normal").await;
    let row = format!(
        "select string_agg(seq || ' ' || task_id, ',') from tuskline.queued where queue_id <> {queue}"
    );
    let before: String = db.one(&row).await;
    let last: i64 = db.schedule("work").await;
    db.run(&format!("drop table tuskline_core.queue_{queue}")).await;
    let did = db.lines("select rebuilt, tasks from tuskline.rebuild_queues()").await;
    assert_eq!(did, ["true | 5"]);
    assert!(db.one::<String>(&row).await.starts_with(&before));
    assert_eq!(db.queued().await, 9);
    // No id is skipped, as no past was lost.
    assert_eq!(db.schedule("work").await, last + 1);
    let did = db.lines("select rebuilt, tasks from tuskline.rebuild_queues()").await;
    assert_eq!(did, ["false | 0"]);
}

#[tokio::test]
async fn the_tables_that_are_made_again_are_those_of_the_migrations() {
    let db = Db::with_lambda("work").await;
    let shape = "
        select concat_ws(' ', c.relname, c.relpersistence, a.attname, a.attnum,
                 format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
                 pg_get_expr(d.adbin, d.adrelid))
          from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
               left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
         where c.relnamespace = 'tuskline_core'::regnamespace
           and c.relname ~ '^(queue_[0-9]+|attempt_count|event_count|recent_failure)$'
        union all
        select pg_get_indexdef(i.indexrelid) from pg_index i
         where i.indrelid::regclass::text
               ~ '^tuskline_core[.](queue_[0-9]+|attempt_count|event_count|recent_failure)$'
        union all
        select pg_get_constraintdef(c.oid) || obj_description(c.conrelid, 'pg_class')
          from pg_constraint c join pg_class r on r.oid = c.conrelid and r.relpersistence = 'u'
        order by 1";
    let before: Vec<String> = db.all(shape).await;
    drop_unlogged_tables(&db).await;
    db.run("select tuskline.repair()").await;
    assert_eq!(db.all::<String>(shape).await, before);
}

/// Calls that draw ids, and the first id that each returns.
const DRAWS: [&str; 4] = [
    "select tuskline.schedule('work')",
    "select tuskline.schedule('work', p_delay => '1 hour')",
    "select (tuskline.schedule_many('{work,work}'))[1]",
    r#"select ids[1] from tuskline.schedule_chain('[{"lambda": "work"}]')"#,
];

#[tokio::test]
async fn the_first_call_of_a_new_life_raises_the_ids() {
    for first in DRAWS {
        let db = Db::with_lambda("work").await;
        let last = [db.schedule("work").await, db.schedule_in("work", LEASE).await];
        lose_the_queues(&db).await;
        let id: i64 = db.one(first).await;
        let range = usize::from(id >= db.future_id(0));
        assert_eq!(id >> 24, (last[range] >> 24) + 1, "{first}");
        // The first call has raised both ranges, also for calls that come before the recovery.
        for (nth, call) in DRAWS.iter().enumerate() {
            let id: i64 = db.one(call).await;
            assert_eq!(id >> 24, (last[usize::from(nth == 1)] >> 24) + 1, "{call}");
        }
        assert_eq!(damage(&db).await, Vec::<String>::new());
        db.run("select tuskline.rebuild_queues()").await;
        assert_eq!(
            db.all::<String>("select name from tuskline.damage()").await,
            Vec::<String>::new()
        );
        assert_eq!(db.schedule("work").await >> 24, (last[0] >> 24) + 1, "raised twice");
    }
}

#[tokio::test]
async fn an_insert_whose_id_was_drawn_before_is_refused_once() {
    for rows in ["('work')", "('work'), ('work')"] {
        let db = Db::with_lambda("work").await;
        let last = db.schedule("work").await;
        lose_the_queues(&db).await;
        let insert = format!("insert into tuskline.task (lambda) values {rows}");
        let refused = db.refused(&insert).await;
        assert!(refused.starts_with("40001: 40001 ids_raised: id "), "{refused}");
        db.run(&insert).await;
        let id: i64 = db.one("select max(id) from tuskline.task").await;
        assert_eq!(id >> 24, (last >> 24) + 1);
        db.run("select tuskline.rebuild_queues()").await;
        assert_eq!(db.schedule("work").await >> 24, id >> 24);
    }
}

/// The writer draws an id before the recovery, as a column default or a client does.
#[tokio::test]
async fn an_id_that_was_drawn_before_a_recovery_is_refused_retriably_and_not_for_ever() {
    let db = Db::with_lambda("work").await;
    db.schedule("work").await;
    let writer = db.connect().await;
    for sequence in ["task_seq", "future_seq"] {
        writer.batch_execute("begin").await.unwrap();
        let draw = format!("select nextval('tuskline.{sequence}')");
        let id: i64 = writer.query_one(&draw, &[]).await.unwrap().get(0);
        lose_the_queues(&db).await;
        db.run("select tuskline.rebuild_queues()").await;
        let insert = format!("insert into tuskline.task (id, lambda) values ({id}, 'work')");
        let refused = refusal(&writer.batch_execute(&insert).await.unwrap_err());
        assert!(refused.starts_with("40001: 40001 ids_raised: "), "{refused}");
        writer.batch_execute("rollback").await.unwrap();
        // Another transaction may have begun before the rebuild, unseen.
        let refused = db.refused(&insert).await;
        assert!(refused.starts_with("40001"), "{refused}");
        db.run(
            "select setval('tuskline_core.ids_raised', last_value - 11000000) from tuskline_core.ids_raised",
        )
        .await;
        db.run(&insert).await;
    }
}

#[tokio::test]
async fn the_first_call_of_a_new_life_waits_for_the_guard_of_segments_and_keeps_it_not() {
    let db = Db::with_lambda("work").await;
    let (janitor, service) = (db.connect().await, db.connect().await);
    lose_the_queues(&db).await;
    janitor.batch_execute("begin; select tuskline_core.lock_guard('segment')").await.unwrap();
    let pid: i32 = service.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let ((), scheduled) = tokio::join!(
        async {
            db.until_blocked(pid).await;
            janitor.batch_execute("commit").await.unwrap();
        },
        service.batch_execute("begin; select tuskline.schedule('work')"),
    );
    scheduled.unwrap();
    // Its transaction is open.
    db.run("set lock_timeout = '1 s'; select tuskline.add_segments(), tuskline.rebuild_queues()")
        .await;
    service.batch_execute("commit").await.unwrap();
}

#[tokio::test]
async fn a_new_life_without_a_segment_ahead_is_refused_until_the_recovery() {
    let db = Db::with_lambda("work").await;
    let last = db.id(8 << 24);
    db.run(&format!("select setval('tuskline.task_seq', {last})")).await;
    lose_the_queues(&db).await;
    for call in
        ["select tuskline.schedule('work')", "insert into tuskline.task (lambda) values ('work')"]
    {
        let refused = db.refused(call).await;
        assert!(refused.starts_with("TK011: TK011 queues_not_rebuilt"), "{refused}");
    }
    db.run("select tuskline.rebuild_queues()").await;
    assert!(db.schedule("work").await >> 24 > last >> 24);
}

/// `gate` and `ungate` lock the rows of flagged_queue by lambda, and the rebuild updates all of them.
#[tokio::test]
async fn a_rebuild_waits_for_an_ungate_and_stands_in_the_way_of_none() {
    let db = Db::with_lambda("work").await;
    db.define("other").await;
    let mut gates = Vec::new();
    for lambda in ["work", "other"] {
        let gate = format!("select tuskline.gate('{lambda}', 'pause', p_reason => 'a test')");
        gates.push(db.one::<i64>(&gate).await);
    }
    lose_the_queues(&db).await;
    let (owner, rebuilder) = (db.connect().await, db.connect().await);
    let ungate = |gate: i64| format!("select tuskline.ungate({gate})");
    owner.batch_execute(&format!("begin; {}", ungate(gates[1]))).await.unwrap();
    let pid: i32 = rebuilder.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let (opened, rebuilt) = tokio::join!(
        async {
            db.until_blocked(pid).await;
            owner.batch_execute(&format!("{}; commit", ungate(gates[0]))).await
        },
        rebuilder.batch_execute("select tuskline.rebuild_queues()"),
    );
    opened.unwrap();
    rebuilt.unwrap();
    assert!(db.all::<i32>("select queue_id from tuskline_core.flagged_queue").await.is_empty());
}

/// The delay of claims after the recovery.
const DELAY: &str = "select (claims_from - verified_at)::text from tuskline_core.incarnation";

/// Recovers a database with two workers: an earlier one with this lease, and a later one with a
/// lease of an hour.
async fn recovered(db: &Db, lease: &str) -> (i64, i64) {
    let register = |lease: &str| {
        format!("select tuskline.register_executor('host', 7, '{{work}}', '0', '{lease}')")
    };
    let before: i64 = db.one(&register(lease)).await;
    lose_the_queues(db).await;
    db.run("select tuskline.rebuild_queues()").await;
    (before, db.one(&register("1 hour")).await)
}

#[tokio::test]
async fn a_heartbeat_of_this_life_delays_no_claims() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let (_, own) = recovered(&db, "30 s").await;
    db.run("select nextval('tuskline.executor_seq')").await;
    // The worker's own number, and a number that was issued and not registered.
    for number in [own, own + 1] {
        let beat = format!("select alive, past from tuskline.heartbeat({number}, p_beats => 9)");
        assert_eq!(db.lines(&beat).await, ["false | false"], "{number}");
    }
    let at_once = "select claims_from = '-infinity' from tuskline_core.incarnation";
    assert!(db.one::<bool>(at_once).await);
}

#[tokio::test]
async fn a_lease_of_this_life_delays_no_claims() {
    // A worker that the database does not know may have the usual lease.
    for (lease, delay) in [("30 s", "00:00:30"), ("2 s", "00:00:20")] {
        let db = Db::with_lambda("work").await;
        db.pin().await;
        let (before, own) = recovered(&db, lease).await;
        db.advance(Duration::from_secs(1)).await;
        // The worker has ended since the recovery, which knew it.
        db.run(&format!("select tuskline.end_executor({before})")).await;
        for stranger in [1 << 20, own + 9, before] {
            let beat = format!("select past from tuskline.heartbeat({stranger}, p_beats => 3)");
            assert!(db.one::<bool>(&beat).await, "{stranger}");
            assert_eq!(db.one::<String>(DELAY).await, delay);
        }
        let task = db.schedule("work").await;
        let explained =
            db.lines(&format!("select reason, remedy from tuskline.explain({task})")).await;
        let (reason, remedy) = explained[0].split_once(" | ").unwrap();
        let (_, statements) = remedy.split_once("as the owner: ").unwrap();
        assert_eq!(reason, "copied");
        db.run(statements).await;
        assert_eq!(db.worker("work").await.claim(1).await.len(), 1);
    }
}
