//! However many segments and queues there are, and whatever the statistics say, a verb rides primary
//! keys and touches the rows it is about.
//!
//! Read from the server's counters of scans in the transaction, which every statement inside a verb
//! counts into; `EXPLAIN` shows none of these.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::support::{Db, ScriptedWorker};

/// A store with 40 queues and fresh statistics, of which one lambda has most.
async fn large(tasks: i32) -> Db {
    let db = Db::new().await;
    db.pin().await;
    for number in 0..10 {
        db.define(&format!("work_{number}")).await;
    }
    db.run(&format!(
        "insert into tuskline.task (lambda, priority, payload)
         select case when n % 10 = 0 then 'work_' || n % 7 else 'work_9' end,
                (array['critical', 'high', 'normal', 'low'])[1 + n % 4]::tuskline.priority, to_json(n)
           from generate_series(1, {tasks}) n;
         select tuskline.schedule_many(array_fill('work_9'::text, array[2000]), p_delays => array_fill('1 s'::interval, array[2000]));
         insert into tuskline.task_kept (id, lambda, status) select -n, 'work_1', 'dead' from generate_series(1, 2000) n;
         insert into tuskline.task_output select -n, '1', now() from generate_series(1, 2000) n;
         insert into tuskline.task_failure select -n, 1, 1, 1, 'error', 'm', 'f', now() from generate_series(1, 2000) n;
         analyze"
    ))
    .await;
    db
}

/// Which tables a statement scans, and how: `task_0: index`. The control table `queue` is small, its
/// leaves are not.
async fn scans(session: &Client, sql: &str) -> Vec<String> {
    let before = scan_counts(session, "begin").await;
    let after = scan_counts(session, sql).await;
    session.batch_execute("commit").await.unwrap();
    let grown = |what: &&(String, i64)| !before.contains(what);
    after.iter().filter(grown).map(|(what, _)| what.clone()).collect()
}

/// The counters of this session after a statement, in its own transaction: other sessions do not
/// move them.
async fn scan_counts(session: &Client, sql: &str) -> Vec<(String, i64)> {
    session.batch_execute(sql).await.unwrap_or_else(|error| panic!("{error}: {sql}"));
    let counted = "
        select relname || ': sequential', seq_scan from pg_stat_xact_user_tables
         where schemaname in ('tuskline', 'tuskline_core') and seq_scan > 0
        union all
        select relname || ': index', idx_scan from pg_stat_xact_user_tables
         where schemaname in ('tuskline', 'tuskline_core') and idx_scan > 0";
    let rows = session.query(counted, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// A table that grows with the tasks.
fn grows(line: &str) -> bool {
    !line.starts_with("task_limit")
        && ["task_", "queue_", "timer"].iter().any(|name| line.starts_with(name))
}

/// Only primary keys, and of the tasks only one segment.
fn check_narrow(verb: &str, scans: &[String]) {
    let wide: Vec<_> =
        scans.iter().filter(|line| grows(line) && line.contains("sequential")).collect();
    assert!(wide.is_empty(), "{verb} reads whole tables: {wide:?}");
    let segments: Vec<_> = scans
        .iter()
        .filter(|line| {
            line.strip_prefix("task_").is_some_and(|rest| rest.starts_with(char::is_numeric))
        })
        .collect();
    assert!(segments.len() <= 1, "{verb} looks into {segments:?}");
}

fn claim_sql(worker: &ScriptedWorker, limit: i32) -> String {
    format!(
        "select * from tuskline.claim({}, array{:?}, array_fill(0::bigint, array[{n}]), array_fill(1::smallint, array[{n}]), array[{limit}])",
        worker.executor,
        worker.queues,
        n = worker.queues.len(),
    )
}

#[tokio::test]
async fn every_verb_rides_primary_keys_into_one_segment() {
    let db = large(12_000).await;
    let lambdas: Vec<_> = (0..10).map(|number| format!("work_{number}")).collect();
    let lambdas: Vec<_> = lambdas.iter().map(String::as_str).collect();
    let worker = db.worker_with(&lambdas, Duration::from_secs(600)).await;
    let session = db.connect().await;
    // Beyond the fifth call a cached plan may be generic.
    for round in 0..8 {
        let check = async |verb: &str, sql: &str| {
            check_narrow(&format!("{verb}, call {round}"), &scans(&session, sql).await);
        };
        check("claim", &claim_sql(&worker, 200)).await;
        let fence: i64 = db.one("select max(lease_id) from tuskline.lease").await;
        let ids: Vec<i64> =
            db.ask("select task_ids from tuskline.lease where lease_id = $1", &[&fence]).await;
        assert_eq!(ids.len(), 200);
        let on = |verb: &str, ids: &[i64]| {
            format!(
                "select tuskline.{verb}({}, array{ids:?}, array_fill({fence}::bigint, array[{}]))",
                worker.executor,
                ids.len()
            )
        };
        check("start", &on("start", &ids[..100])).await;
        check("release", &on("release", &ids[..10])).await;
        check("set_results", &on("set_results", &ids[10..150])).await;
        let notes: Vec<_> = ids[150..190]
            .iter()
            .map(|id| format!(r#"{{"task": {id}, "fence": {fence}, "status": "retriable_failure", "message": "m", "after_ms": 3600000}}"#))
            .collect();
        let settle = format!(
            "select tuskline.set_results({}, '{{}}', '{{}}', '[{}]')",
            worker.executor,
            notes.join(",")
        );
        check("set_results with notes", &settle).await;
        check(
            "lock_free_results",
            &on("lock_free_results", &ids[10..150])
                .replace(&format!("({}, ", worker.executor), "(")
                .replace("tuskline.", "tuskline_core."),
        )
        .await;
        for verb in ["assert_current", "complete"] {
            check(verb, &format!("select tuskline.{verb}({}, {fence})", ids[192])).await;
        }
        check("cancel", &format!("select tuskline.cancel({})", ids[190])).await;
        check("heartbeat", &format!("select tuskline.heartbeat({})", worker.executor)).await;
        check("task_status", &format!("select * from tuskline.task_status({})", ids[195])).await;
        check("schedule", "select tuskline.schedule('work_3', '1')").await;
        check(
            "schedule_many",
            "select tuskline.schedule_many(array_fill('work_3'::text, array[50]))",
        )
        .await;
    }
}

#[tokio::test]
async fn the_store_consumers_verbs_touch_what_is_due_or_expired() {
    let db = large(3_000).await;
    let session = db.connect().await;
    for round in 0..8 {
        let worker = db.worker("work_9").await;
        assert_eq!(worker.claim(50).await.len(), 50);
        db.advance(Duration::from_secs(20)).await;
        let due = scans(&session, "select * from tuskline.enqueue_due(null, 100)").await;
        check_narrow(&format!("enqueue_due, call {round}"), &due);
        let all = ["lambda: sequential", "queue: sequential"];
        assert!(!due.iter().any(|line| all.contains(&line.as_str())), "call {round}: {due:?}");
        // The verb is rare, and may probe every segment; it must not read one.
        let seen = "array_agg(executor_id), array_agg(beats), verified_at";
        let silent = format!(
            "select tuskline.rescue(100, ids, beats, booted_at) from (select {seen}
               from tuskline_core.verified_incarnation left join tuskline.executor on executor_id % 2 = 0 group by verified_at)
               as s (ids, beats, booted_at)"
        );
        for rescue in [silent.as_str(), "select * from tuskline.rescue()"] {
            let scans = scans(&session, rescue).await;
            let whole: Vec<_> =
                scans.iter().filter(|line| grows(line) && line.contains("sequential")).collect();
            assert!(whole.is_empty(), "{rescue}, call {round}, reads {whole:?}");
        }
    }
}

#[tokio::test]
async fn a_look_up_by_id_is_one_probe() {
    let db = large(3_000).await;
    let check = async |sql: &str, probes: &[&str]| {
        let mut scans = scans(&db.client, sql).await;
        scans.sort();
        assert_eq!(scans, probes, "{sql}");
    };
    let (id, leaf) = (db.id(1500), format!("task_{}: index", db.first_segment()));
    let leaf = leaf.as_str();
    check(&format!("select status from tuskline.task where id = {id}"), &[leaf]).await;
    // The view includes the kept tasks.
    check(
        &format!("select status from tuskline.tasks where id = {id}"),
        &[leaf, "task_kept: index"],
    )
    .await;
    db.run("set plan_cache_mode = force_generic_plan; prepare look (bigint) as select status from tuskline.task where id = $1").await;
    check(&format!("execute look({id})"), &[leaf]).await;
}

/// Buffers that a statement touches, with all that it calls.
async fn buffers(session: &Client, sql: &str) -> i64 {
    let explained = session
        .query_one(&format!("explain (analyze, buffers, timing off, format json) {sql}"), &[])
        .await
        .unwrap_or_else(|error| panic!("{error}: {sql}"));
    let plan: serde_json::Value = explained.get(0);
    let plan = &plan[0]["Plan"];
    ["Shared Hit Blocks", "Shared Read Blocks"].iter().map(|key| plan[key].as_i64().unwrap()).sum()
}

#[tokio::test]
async fn a_claim_of_500_touches_a_bounded_number_of_pages() {
    let db = large(12_000).await;
    let worker = db.worker("work_9").await;
    let session = db.connect().await;
    let mut most = 0;
    for round in 0..8 {
        let claim = buffers(&session, &claim_sql(&worker, 500)).await;
        // The first calls of a session read the catalogue.
        if round > 1 {
            most = most.max(claim);
        }
    }
    assert!(most < 500 * 12, "{most} pages for 500 tasks");
}

#[tokio::test]
async fn a_claim_beside_more_claims_reads_little_of_their_rows() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    db.schedule_many("work", 3_000).await;
    let session = db.connect().await;
    let at_work = [db.connect().await, db.connect().await];
    let mut seen = Vec::new();
    for other in &at_work {
        other.batch_execute(&format!("begin; {}", claim_sql(&worker, 1_000))).await.unwrap();
        // The first call of a session reads the catalogue.
        for _ in 0..2 {
            // By chance, a claim in 16 reads the rows that other claims take. The seed prevents it.
            session.batch_execute("begin; select setseed(0.5)").await.unwrap();
            let chance: f64 = session.query_one("select random()", &[]).await.unwrap().get(0);
            assert!(chance >= 0.0625);
            session.batch_execute("select setseed(0.5)").await.unwrap();
            seen.push(buffers(&session, &claim_sql(&worker, 100)).await);
            session.batch_execute("rollback").await.unwrap();
        }
    }
    assert!(seen[3] - seen[1] < 200, "with 1,000 rows more in the way: {seen:?}");
}

/// Pages that the end of two tasks costs: a plain task, and a parent whose child has an id of
/// another range. So many ended tasks lie between the two.
async fn end_of_two_far_apart(db: &Db, worker: &ScriptedWorker, between: i32) -> i64 {
    let chain = r#"[{"lambda": "work", "name": "a"}, {"lambda": "work", "name": "b", "after": ["a"]},
                    {"lambda": "work", "after": ["b"]}]"#;
    db.run(&format!("select tuskline.schedule_chain('{chain}')")).await;
    worker.succeed(&worker.take().await).await;
    db.schedule("work").await;
    let two = worker.claim(2).await;
    let (ids, fence): (Vec<_>, _) = (two.iter().map(|task| task.id).collect(), two[0].fence);
    assert!(ids[1] - ids[0] > 1 << 40, "{ids:?}");
    db.run(&format!(
        "insert into tuskline_core.task_store (lambda, status, finished_at) select 'work', 'success', tuskline.clock() from generate_series(1, {between});
         analyze tuskline.task"
    ))
    .await;
    let ends = format!(
        "select tuskline.set_results({}, array{ids:?}, array[{fence}, {fence}])",
        worker.executor
    );
    let pages = buffers(&db.client, &ends).await;
    worker.succeed(&worker.take().await).await;
    pages
}

#[tokio::test]
async fn the_end_of_tasks_far_apart_reads_none_of_those_between_them() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let mut pages = Vec::new();
    for between in [1, 1, 1, 1, 20_000, 1, 20_000, 1] {
        pages.push(end_of_two_far_apart(&db, &worker, between).await);
    }
    // The first calls of a session read the catalogue. A call reads it again after much DDL of other
    // tests: that hits one of two calls.
    let (far, near) = (pages[4].min(pages[6]), pages[5].min(pages[7]));
    assert!(far.max(near) < pages[3] + 200, "{pages:?}");
}

#[tokio::test]
async fn the_wear_of_a_drained_queue_does_not_slow_the_claims_above_a_mark() {
    let db = Db::with_lambda("work").await;
    let queue = db.queue("work", "normal").await;
    // A snapshot that keeps every dead queue row where it is.
    let holder = db.connect().await;
    holder
        .batch_execute("begin isolation level repeatable read; select count(*) from tuskline.queue")
        .await
        .unwrap();
    // The settings are those of claim.
    db.run("set enable_seqscan = off; set enable_bitmapscan = off").await;
    let mut seen = Vec::new();
    for _ in 0..60 {
        db.run(&format!("insert into tuskline.queued (queue_id, task_id) select {queue}, n from generate_series(1, 100) n")).await;
        let mark: i64 = db.one("select min(seq) - 1 from tuskline.queued").await;
        let pop = format!("select tuskline_core.pop({queue}, {mark}, 100, 8388608, 5)");
        seen.push(buffers(&db.client, &pop).await);
    }
    let (early, late) = (seen[5..10].iter().max().unwrap(), seen[50..].iter().max().unwrap());
    assert!(*late <= early + 10, "from {early} to {late} pages: {seen:?}");
}

#[tokio::test]
async fn a_rescue_reads_no_lease_that_a_live_executor_has_dropped() {
    let db = Db::with_lambda("work").await;
    let executor = db.worker("work").await.executor;
    let holder = db.connect().await;
    holder
        .batch_execute("begin isolation level repeatable read; select count(*) from tuskline.lease")
        .await
        .unwrap();
    db.run(&format!(
        "insert into tuskline.lease (executor_id, lease_id, task_ids)
         select {executor}, n, '{{1}}' from generate_series(1, 5000) n"
    ))
    .await;
    db.run("delete from tuskline.lease").await;
    let rescue = "select tuskline.rescue(100, '{}', '{}', verified_at)
                    from tuskline_core.verified_incarnation";
    // The first calls of a session read the catalogue.
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(buffers(&db.client, rescue).await);
    }
    assert!(seen[2] < 40, "{seen:?}");
}

#[tokio::test]
async fn a_look_from_far_below_walks_over_what_has_died_once() {
    let db = Db::with_lambda("work").await;
    let queue = db.queue("work", "normal").await;
    let holder = db.connect().await;
    holder.batch_execute("begin isolation level repeatable read; select 1").await.unwrap();
    let put = async |tasks: i32| {
        db.run(&format!("insert into tuskline.queued (queue_id, task_id) select {queue}, n from generate_series(1, {tasks}) n")).await;
    };
    put(20_000).await;
    db.run("delete from tuskline.queued").await;
    put(1).await;
    db.run("set enable_seqscan = off; set enable_bitmapscan = off").await;
    let look =
        format!("select from tuskline_core.queue_{queue} where seq > 0 order by seq limit 1");
    let pop = format!("select tuskline_core.pop({queue}, 0, 100, 8388608, 5)");
    // The first calls of a session read the catalogue. The second finds what the first has undone.
    for _ in 0..2 {
        db.client.batch_execute(&format!("begin; {look}; {pop}; rollback")).await.unwrap();
    }
    let once = buffers(&db.client, &look).await;
    let popped = buffers(&db.client, &pop).await;
    assert!(once > 100 && popped < once + once / 2, "{once} for a look, {popped} for a claim");
}

#[tokio::test]
async fn claim_and_result_are_heap_only_updates_though_nothing_can_be_pruned() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    db.run("select tuskline.schedule_many(array_fill('work'::text, array[1500]), array_fill(to_json(repeat('x', 100)), array[1500]))").await;
    let holder = db.connect().await;
    holder.batch_execute("begin isolation level repeatable read; select 1").await.unwrap();
    loop {
        let tasks = worker.claim(300).await;
        if tasks.is_empty() {
            break;
        }
        worker.succeed_all(&tasks).await;
    }
    // The counts of a session are visible to all when it has ended.
    drop(worker);
    let counts = "select sum(n_tup_upd), sum(n_tup_hot_upd) from pg_stat_user_tables where relname like 'task\\_%'";
    db.until(&format!("select (select sum from ({counts}) c (sum, hot)) >= 3000")).await;
    assert_eq!(db.lines(counts).await, ["3000 | 3000"]);
}

#[tokio::test]
async fn a_chain_that_is_cancelled_or_extended_reads_its_own_tasks_only() {
    let db = large(30_000).await;
    let session = db.connect().await;
    for round in 0..8 {
        db.run(&fan_out("work_1", None, 300)).await;
        let began: i64 = db.one("select max(chain_id) from tuskline.chain_task").await;
        db.run("analyze tuskline.task, tuskline.chain_task").await;
        let after = fan_out("work_1", Some(began), 300);
        let cancel = format!("select tuskline.cancel_chain({began})");
        for (verb, sql) in [("schedule_chain", after), ("cancel_chain", cancel)] {
            let whole: Vec<_> = scans(&session, &sql)
                .await
                .into_iter()
                .filter(|line| grows(line) && line.contains("sequential"))
                .collect();
            assert!(whole.is_empty(), "{verb}, call {round}, reads {whole:?}");
        }
        let left = format!(
            "select count(*) from tuskline.chain_tasks where chain_id = {began} and finished_at is null"
        );
        assert_eq!(db.one::<i64>(&left).await, 0);
    }
}

#[tokio::test]
async fn a_chain_that_is_looked_at_reads_its_own_tasks_only() {
    let db = large(30_000).await;
    let session = db.connect().await;
    let parents: Vec<_> = (0..300).map(|number| format!("parent_{number}")).collect();
    let mut tasks: Vec<_> =
        parents.iter().map(|name| json!({ "lambda": "work_1", "name": name })).collect();
    tasks.push(json!({ "lambda": "work_1", "after": parents }));
    db.run(&format!("select tuskline.schedule_chain('{}')", Value::from(tasks))).await;
    let chain: i64 = db.one("select max(chain_id) from tuskline.chain_task").await;
    let child: i64 = db.one("select max(task_id) from tuskline.dependency").await;
    db.run("analyze tuskline.task, tuskline.chain_task, tuskline.dependency").await;
    for (rows, sql) in [
        (
            301,
            format!(
                "select task_id, status::text from tuskline.chain_tasks where chain_id = {chain}"
            ),
        ),
        (1, format!("select chain_id, tasks from tuskline.chains where chain_id = {chain}")),
        (300, format!("select id, name from tuskline.parents({child})")),
    ] {
        assert_eq!(db.lines(&sql).await.len(), rows, "{sql}");
        let whole: Vec<_> = scans(&session, &sql)
            .await
            .into_iter()
            .filter(|line| grows(line) && line.contains("sequential"))
            .collect();
        assert!(whole.is_empty(), "{sql} reads {whole:?}");
    }
}

#[tokio::test]
async fn a_restarted_task_reads_its_own_children_only() {
    let db = large(30_000).await;
    let session = db.connect().await;
    for _ in 0..2 {
        db.run(&fan_out("work_1", None, 9_999)).await;
    }
    for round in 0..8 {
        db.run(&fan_out("work_1", None, 100)).await;
        let parent: i64 = db.one("select max(chain_id) from tuskline.chain_task").await;
        db.run("analyze tuskline.task, tuskline.chain_task, tuskline.dependency").await;
        assert_eq!(db.cancel(parent).await, "cancelled");
        let whole: Vec<_> = scans(&session, &format!("select tuskline.retry({parent})"))
            .await
            .into_iter()
            .filter(|line| line.contains("sequential"))
            .filter(|line| {
                grows(line) || line.starts_with("dependency") || line.starts_with("chain_task")
            })
            .collect();
        assert!(whole.is_empty(), "call {round} reads {whole:?}");
    }
}

/// A session whose server reports the cost of each statement. No counter shows what a plan compares
/// in vain.
struct Metered {
    client: Client,
    said: UnboundedReceiver<String>,
}

impl Metered {
    async fn new(db: &Db) -> Self {
        let (client, mut connection) = db.config.connect(NoTls).await.unwrap();
        let (report, said) = unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(heard)) =
                poll_fn(|context| pin!(&mut connection).poll_message(context)).await
            {
                if let AsyncMessage::Notice(notice) = heard
                    && let Some(detail) = notice.detail()
                {
                    let _ = report.send(detail.to_owned());
                }
            }
        });
        client
            .batch_execute("set client_min_messages = 'log'; set log_statement_stats = on")
            .await
            .unwrap();
        Self { client, said }
    }

    /// Seconds of processor time that a statement took in its own session. Wall time would vary
    /// with the load of neighbouring tests.
    async fn seconds(&mut self, sql: &str) -> f64 {
        while self.said.try_recv().is_ok() {}
        self.client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{error}: {sql}"));
        let said = self.said.recv().await.unwrap();
        let words: Vec<_> = said.split_whitespace().collect();
        let before = |unit: &str| {
            let place = words.iter().position(|word| *word == unit).unwrap();
            words[place - 2].trim_start_matches('!').parse::<f64>().unwrap()
        };
        before("user,") + before("system,")
    }
}

/// `schedule_chain` of so many after a parent: one of the same call, or one that there is.
fn fan_out(lambda: &str, parent: Option<i64>, children: usize) -> String {
    let mut tasks = vec![json!({ "lambda": lambda, "after": [parent] }); children];
    if parent.is_none() {
        tasks.fill(json!({ "lambda": lambda, "after": ["parent"] }));
        tasks.push(json!({ "lambda": lambda, "name": "parent" }));
    }
    format!("select tuskline.schedule_chain('{}')", Value::from(tasks))
}

/// Checks that eight times the tasks cost less than sixteen times the work. Quadratic work would be
/// 64 times.
fn check_growth(few: f64, many: f64) {
    assert!(many < 16.0 * few, "{few} s for 500 tasks, {many} s for 4000");
}

#[tokio::test]
async fn the_work_of_scheduling_a_chain_grows_with_its_tasks_not_with_their_square() {
    let db = Db::with_lambda("work").await;
    let mut session = Metered::new(&db).await;
    let mut seconds = Vec::new();
    // The first calls of a session read the catalogue.
    for children in [500, 500, 500, 4000] {
        seconds.push(session.seconds(&fan_out("work", None, children)).await);
        db.empty().await;
    }
    check_growth(seconds[2], seconds[3]);
    // The largest chain runs within the deadline of a test's statement.
    db.run(&fan_out("work", None, 9_999)).await;
    assert_eq!(db.count("new").await, 9_999);
}

#[tokio::test]
async fn the_work_of_a_parents_end_grows_with_its_children_not_with_their_square() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let mut session = Metered::new(&db).await;
    let mut seconds = Vec::new();
    for children in [500, 500, 500, 4000] {
        db.run(&fan_out("work", None, children)).await;
        let parent = worker.take().await;
        let ends = format!(
            "select tuskline.set_results({}, array[{}], array[{}])",
            worker.executor, parent.id, parent.fence
        );
        let end = session.seconds(&ends).await;
        seconds.push(end + session.seconds("select tuskline.enqueue_due(null, 4000)").await);
        assert_eq!(db.count("enqueued").await, i64::try_from(children).unwrap());
        db.empty().await;
    }
    check_growth(seconds[2], seconds[3]);
}

/// Pages of a batch of the history of a segment that is gone, of another range, beside so many tasks.
async fn purge_beside(tasks: i32) -> i64 {
    let db = Db::with_lambda("work").await;
    db.run(&format!(
        "insert into tuskline_core.task_store (lambda, status, finished_at)
         select 'work', 'success', tuskline.clock() from generate_series(1, {tasks}) n;
         insert into tuskline.task_failure
         select (1 << 20) * (case when n > 3000 then 1::bigint << 30 else 1 end) + n, 1, 1, 1, 'error', 'm', 'f', now()
           from generate_series(1, 20000) n;
         insert into tuskline.dead_letter (task_id, lambda, status, fingerprint, died_at)
         select (1::bigint << 50) + n, 'work', 'dead', 'f', now() from generate_series(3001, 20000) n;
         insert into tuskline.task_output select (1::bigint << 50) + n, '1', now() from generate_series(3001, 20000) n;
         analyze"
    ))
    .await;
    let purge = "select tuskline.purge_history((1::bigint << 26), 0, 100)";
    // The first calls of a session read the catalogue.
    for _ in 0..2 {
        buffers(&db.client, purge).await;
    }
    buffers(&db.client, purge).await
}

#[tokio::test]
async fn the_history_of_a_segment_goes_without_a_look_at_other_segments() {
    let (few, many) = (purge_beside(1).await, purge_beside(60_000).await);
    assert!(few < 8_000, "{few} pages for a batch of 300");
    assert!(many <= few + 20, "{few} pages beside one task, {many} beside 60,000");
}

#[tokio::test]
async fn a_claim_asks_no_policy_once_the_queue_of_a_limited_lambda_is_sorted() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let session = db.connect().await;
    db.schedule_many("work", 20).await;
    db.run("select tuskline.set_limit('work', 100)").await;
    let policies = ["rule", "slot", "line", "gate"];
    let asked = async || -> Vec<String> {
        let mut scans = scans(&session, &claim_sql(&worker, 5)).await;
        scans.retain(|line| policies.iter().any(|name| line.starts_with(&format!("{name}: "))));
        scans
    };
    assert!(!asked().await.is_empty());
    db.run("select tuskline.run_policies()").await;
    db.schedule_many("work", 20).await;
    db.enqueue_due().await;
    assert_eq!(asked().await, Vec::<String>::new());
    assert_eq!(db.one::<i64>("select count(*) from tuskline.permit").await, 40);
}
