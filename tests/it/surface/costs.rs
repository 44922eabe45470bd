//! The cost of a task in bytes of WAL, which is the main cost of durable tasks, and in pages read.
//!
//! The statements themselves report both. The WAL has no page images: the cluster of the tests
//! writes none.

use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

use crate::support::{Db, ScriptedWorker};

/// Bytes of WAL that a statement wrote, with all that it calls.
async fn wal_bytes(session: &Client, sql: &str) -> i64 {
    let explained = session
        .query_one(&format!("explain (analyze, wal, timing off, format json) {sql}"), &[])
        .await
        .unwrap_or_else(|error| panic!("{error}: {sql}"));
    let plan: serde_json::Value = explained.get(0);
    assert_eq!(plan[0]["Plan"]["WAL FPI"], 0);
    plan[0]["Plan"]["WAL Bytes"].as_i64().unwrap()
}

#[tokio::test]
async fn a_task_scheduled_in_a_batch_costs_at_most_400_bytes_of_log() {
    let db = Db::with_lambda("work").await;
    let schedule = "select tuskline.schedule_many(array_fill('work'::text, array[1000]), array_fill(to_json(repeat('x', 100)), array[1000]))";
    db.run(schedule).await;
    for _ in 0..3 {
        let each = wal_bytes(&db.client, schedule).await / 1000;
        assert!(each <= 400, "{each} bytes a task");
    }
}

/// Claims 500 tasks and reports them; returns the bytes of WAL for both.
async fn claim_and_finish(worker: &ScriptedWorker) -> i64 {
    let claim = format!(
        "select * from tuskline.claim({}, array[{}], '{{0}}', '{{1}}', '{{500}}')",
        worker.executor, worker.queues[2]
    );
    let claimed = wal_bytes(&worker.client, &claim).await;
    let finish = "select tuskline.set_results(l.executor_id, l.task_ids, array_fill(l.lease_id, array[cardinality(l.task_ids)]), null, array[l.lease_id])
        from tuskline.lease l order by l.lease_id desc limit 1";
    claimed + wal_bytes(&worker.client, finish).await
}

#[tokio::test]
async fn a_claim_with_its_result_costs_at_most_280_bytes_of_log() {
    let db = Db::with_lambda("work").await;
    db.run("select tuskline.schedule_many(array_fill('work'::text, array[2500]), array_fill(to_json(repeat('x', 100)), array[2500]))").await;
    let worker = db.worker("work").await;
    claim_and_finish(&worker).await;
    for _ in 0..4 {
        let each = claim_and_finish(&worker).await / 500;
        assert!(each <= 280, "{each} bytes a task");
    }
    assert_eq!(db.count("success").await, 2500);
}

#[tokio::test]
async fn an_exchange_costs_no_more_log_than_a_claim_and_its_results() {
    let db = Db::with_lambda("work").await;
    db.run("select tuskline.schedule_many(array_fill('work'::text, array[2500]), array_fill(to_json(repeat('x', 100)), array[2500]))").await;
    let worker = db.worker("work").await;
    worker.claim(500).await;
    let exchange = format!(
        "select e.lease_id from (select * from tuskline.lease order by lease_id desc limit 1) l,
           tuskline.exchange({}, l.task_ids, array_fill(l.lease_id, array[500]), null, array[l.lease_id], array[{}], '{{0}}', '{{1}}', '{{500}}') e",
        worker.executor, worker.queues[2]
    );
    wal_bytes(&worker.client, &exchange).await;
    for _ in 0..3 {
        let each = wal_bytes(&worker.client, &exchange).await / 500;
        assert!(each <= 280, "{each} bytes a task");
    }
}

#[tokio::test]
async fn a_drain_by_exchange_is_one_statement_a_batch() {
    let db = Db::with_lambda("work").await;
    db.schedule_many("work", 1000).await;
    let worker = db.worker("work").await;
    let exchange = "with last as (select array_agg(t.id) ids, array_agg(t.fence) fences, array_agg(distinct t.fence) leases from tuskline.task t where t.status = 'claimed')
        select coalesce(cardinality(e.task_id), 0) from last, tuskline.exchange($1, coalesce(last.ids, '{}'), coalesce(last.fences, '{}'), null, last.leases, array[$2::integer], '{0}', '{1}', '{500}') e";
    let mut batches = Vec::new();
    for _ in 0..3 {
        batches.push(
            worker
                .client
                .query_one(exchange, &[&worker.executor, &worker.queues[2]])
                .await
                .unwrap()
                .get::<_, i32>(0),
        );
    }
    assert_eq!((batches, db.count("success").await), (vec![500, 500, 0], 1000));
    assert_eq!(db.one::<i64>("select count(*) from tuskline.lease").await, 0);
}

/// Pages that a statement read, with all that it calls.
async fn pages(session: &Client, sql: &str) -> i64 {
    let explain = format!("explain (analyze, buffers, timing off, format json) {sql}");
    let plan: serde_json::Value = session.query_one(&explain, &[]).await.unwrap().get(0);
    let count = |name: &str| plan[0]["Plan"][name].as_i64().unwrap();
    count("Shared Hit Blocks") + count("Shared Read Blocks")
}

/// Two thousand leases that a worker once held, four to a page.
const OLD_LEASES: &str = "
    insert into tuskline.lease
    select {e}, 1000000 + n, array(select (1e15 * random() + n)::bigint from generate_series(1, 200))
      from generate_series(1, 2000) as n;
    delete from tuskline.lease where lease_id > 1000000";

/// Refreshes the statistics, which then count next to no live rows.
const SMALL: &str = "analyze tuskline.lease; analyze tuskline.executor; analyze tuskline.task";

/// A forgotten transaction has written and holds a snapshot: nothing is vacuumed, nothing
/// forgotten.
#[tokio::test]
async fn an_old_open_transaction_does_not_make_a_task_dearer() {
    let db = Db::with_lambda("work").await;
    let forgotten = db.connect().await;
    let hold = "begin isolation level repeatable read; create table elsewhere ();
                select count(*) from tuskline.task";
    forgotten.batch_execute(hold).await.unwrap();
    let worker = db.worker("work").await;
    let queue = worker.queues[2];
    let (mut looks, mut beats) = (Vec::new(), Vec::new());
    let (mut mark, mut last, mut begun_before) = (0, 0, i64::MAX);
    for round in 0..400 {
        db.schedule_many("work", 10).await;
        if round == 200 {
            let executor = worker.executor.to_string();
            db.run(&format!("{OLD_LEASES}; {SMALL}").replace("{e}", &executor)).await;
        }
        // As a worker does: the result of the last, the next, the lease of the last, and the mark.
        let exchange = format!(
            "select * from (select array_agg(t.id) ids, array_agg(t.fence) fences from tuskline.task t
               where t.status = 'claimed' and t.id >= {mark}) l,
               tuskline.exchange({}, coalesce(l.ids, '{{}}'), coalesce(l.fences, '{{}}'), null,
                 l.fences, array[{queue}], array[{mark}], '{{1}}', '{{500}}') e",
            worker.executor
        );
        let row = worker.client.query_one(&exchange, &[]).await.unwrap();
        let [first] = row.get::<_, Vec<i64>>("first_seq")[..] else { panic!("one queue") };
        let (oldest_writer_xid, xid): (i64, i64) = (row.get("oldest_writer_xid"), row.get("xid"));
        begun_before = begun_before.min(xid);
        if oldest_writer_xid >= begun_before {
            mark = last.min(first - 1);
        }
        if oldest_writer_xid >= begun_before || last == 0 {
            (last, begun_before) = (first, i64::MAX);
        }
        let beat = format!("select tuskline.heartbeat({}, false, false)", worker.executor);
        let look = format!(
            "select tuskline.exchange({}, '{{}}', '{{}}', null, array[{}], array[{queue}],
               array[{mark}], '{{1}}', '{{500}}')",
            worker.executor, 4711
        );
        let poll = format!("select tuskline.peek(array[{queue}], array[{last}])");
        looks.push(pages(&worker.client, &look).await + pages(&worker.client, &poll).await);
        if round % 20 == 19 {
            beats.push(pages(&worker.client, &beat).await);
        }
    }
    forgotten.batch_execute("rollback").await.unwrap();
    // A backend that missed too many changes in neighbouring databases reads its catalogs again,
    // some 250 pages. The test therefore compares the usual number.
    let most = |of: &[i64]| {
        let mut of = of.to_vec();
        of.sort_unstable();
        of[of.len() / 2]
    };
    // The first 200 transactions after it may still be under way.
    let [early, late] = [most(&looks[200..220]), most(&looks[380..])];
    assert!(late <= early + 4 && late <= 2 * most(&looks[20..40]), "{looks:?}");
    assert!(most(&beats[10..]) <= 2 * most(&beats[..10]), "{beats:?}");
}

#[tokio::test]
async fn heartbeats_under_an_old_snapshot_do_not_make_a_claim_dearer() {
    let db = Db::with_lambda("work").await;
    let forgotten = db.connect().await;
    // The transaction has written. A claim reads the locks, some five pages, while such a
    // transaction is over 200 numbers behind. Here it is so from the start, whatever other tests
    // do.
    let hold = "begin isolation level repeatable read; create table elsewhere ();
                select count(*) from tuskline.task";
    forgotten.batch_execute(hold).await.unwrap();
    let worker = db.worker("work").await;
    let claim = format!(
        "select tuskline.claim({}, array[{}], '{{0}}', '{{1}}', '{{500}}')",
        worker.executor, worker.queues[2]
    );
    let least = async || {
        let mut looks = Vec::new();
        for _ in 0..9 {
            looks.push(pages(&worker.client, &claim).await);
        }
        looks.into_iter().min().unwrap()
    };
    for _ in 0..250 {
        db.run("select pg_current_xact_id()").await;
    }
    let early = least().await;
    for _ in 0..400 {
        assert!(worker.heartbeat().await);
    }
    let late = least().await;
    // 400 versions of its row in executor are ten pages.
    assert!(late <= early + 4, "pages of a claim that finds nothing: {early}, then {late}");
}

/// Only a failure and a snooze need their task's attempts and its lambda's settings.
#[tokio::test]
async fn a_report_reads_the_settings_of_what_may_run_again_only() {
    let db = Db::with_lambda("work").await;
    db.schedule_many("work", 100).await;
    let worker = db.worker("work").await;
    let claimed = worker.claim(100).await;
    let (last, done) = claimed.split_last().unwrap();
    let notes = format!(
        r#"[{{"task": {}, "fence": {}, "status": "retriable_failure"}}]"#,
        last.id, last.fence
    );
    let ids: Vec<i64> = done.iter().map(|task| task.id).collect();
    let session = &worker.client;
    let looks = "select coalesce(pg_stat_get_xact_numscans('tuskline.lambda_pkey'::regclass), 0)";
    session.batch_execute("begin").await.unwrap();
    let before: i64 = session.query_one(looks, &[]).await.unwrap().get(0);
    let report =
        "select tuskline.set_results($1, $2, array_fill($3::bigint, array[99]), $4::text::json)";
    let params: [&(dyn ToSql + Sync); 4] = [&worker.executor, &ids, &last.fence, &notes];
    let refused: Vec<i64> = session.query_one(report, &params).await.unwrap().get(0);
    let after: i64 = session.query_one(looks, &[]).await.unwrap().get(0);
    session.batch_execute("commit").await.unwrap();
    assert_eq!((refused, db.count("success").await), (vec![], 99));
    assert!(after - before <= 2, "{} reads of a lambda", after - before);
}

#[tokio::test]
async fn a_request_id_costs_at_most_440_bytes_of_log_and_five_pages_at_its_end() {
    let db = Db::with_lambda("work").await;
    let once = |at: i32| {
        format!("select tuskline.schedule_once('order {at}', '{{work}}', array['1'::json])")
    };
    let many = "select tuskline.schedule_many('{work}', array['1'::json])";
    for sql in [many, &once(0), &once(1)] {
        db.run(sql).await;
    }
    let mut costs = Vec::new();
    for at in 2..6 {
        costs.push(wal_bytes(&db.client, &once(at)).await - wal_bytes(&db.client, many).await);
    }
    costs.sort_unstable();
    assert!(costs[2] <= 440, "{costs:?} bytes a request");
    let again = wal_bytes(&db.client, &once(5)).await;
    assert_eq!(again, 0, "a repeated request writes nothing");
    db.run("insert into tuskline_core.schedule_request (role, request_id, digest, task_ids, noted_at)
            select current_user, 'old ' || n, sha256('x'), array[n], tuskline.clock() - interval '2 days'
              from generate_series(1, 20000) n")
        .await;
    for _ in 0..3 {
        let each = pages(&db.client, "select tuskline.purge(1000)").await;
        assert!(each <= 5_000, "{each} pages for 1000 requests");
    }
}
