//! An erased customer is in no table and in no file any more, and nothing of another customer is lost.

use std::time::Duration;

use crate::support::cli::on;
use crate::support::{Db, ScriptedWorker};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

const ADA: &str = "ada@example.org";
const BOB: &str = "bob@example.org";

/// Tables of both schemas that have a row with this text, with the number of such rows.
async fn holders(db: &Db, text: &str) -> Vec<String> {
    let tables: Vec<String> = db
        .all(
            "select format('%I.%I', n.nspname, c.relname)
               from pg_class c join pg_namespace n on n.oid = c.relnamespace
              where n.nspname in ('tuskline', 'tuskline_core') and c.relkind = 'r' order by 1",
        )
        .await;
    let mut found = Vec::new();
    for table in tables {
        let count = format!("select count(*) from {table} t where t::text like $1");
        let rows: i64 = db.ask(&count, &[&format!("%{text}%")]).await;
        if rows > 0 {
            found.push(format!("{table} {rows}"));
        }
    }
    found
}

/// The tables that hold a customer, without the numbers of their segments.
async fn tables(db: &Db, text: &str) -> Vec<String> {
    let name = |holder: &String| {
        let table = holder.split(' ').next().unwrap().to_owned();
        match table.strip_prefix("tuskline_core.task_") {
            Some(no) if no.parse::<i64>().is_ok() => "tuskline.task".to_owned(),
            _ => table,
        }
    };
    holders(db, text).await.iter().map(name).collect()
}

async fn start(db: &Db, what: &str) -> i64 {
    db.one(&format!("select tuskline.start_operation('erase', {what}, p_reason => 'request 17')"))
        .await
}

/// Runs the store consumer's verbs.
async fn consume(db: &Db) {
    db.enqueue_due().await;
    db.run("select tuskline.run_policies()").await;
}

/// Runs a batch of three; returns the state, the rows erased, and the cause of its wait.
async fn advance(db: &Db, erase: i64) -> (String, i64, String) {
    let sql = "select state, changed, coalesce(note, '-') from tuskline.advance_operation($1, 3)";
    let row = db.client.query_one(sql, &[&erase]).await.unwrap();
    (row.get(0), row.get(1), row.get(2))
}

/// Advances the erase beside a store consumer, until it ends or waits for a worker; returns as
/// [`advance`] does.
async fn carry(db: &Db, erase: i64) -> (String, i64, String) {
    let mut before = (String::new(), -1, String::new());
    for _ in 0..200 {
        let now = advance(db, erase).await;
        if now.0 != "running" || now == before && now.2 != "-" {
            return now;
        }
        before = now;
        db.advance(SECOND * 6).await;
        consume(db).await;
    }
    panic!("it goes on for ever: {before:?}");
}

/// A lambda for each feature that stores a key or a text of a task.
async fn with_lambdas() -> Db {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    for lambda in ["ordered", "limited", "fair", "single", "fragile"] {
        db.define(lambda).await;
    }
    db.define_with("archived", "p_archive => 'table'").await;
    db.run(
        "select tuskline.set_order('ordered');
         select tuskline.set_limit('limited', 1, p_by_key => true);
         select tuskline.set_limit('limited', p_per_second => 100, p_by_key => true);
         select tuskline.set_limit('fair', 1, p_fair => true);
         select tuskline.set_unique('single', 'forever');
         select tuskline.set_breaker('fragile', 5)",
    )
    .await;
    db
}

/// Schedules a task and fails it for good with a message that names the customer.
async fn failed(db: &Db, worker: &ScriptedWorker, schedule: &str, customer: &str) -> i64 {
    let id: i64 = db.one(&format!("select tuskline.schedule({schedule})")).await;
    consume(db).await;
    let task = worker.take().await;
    assert_eq!(task.id, id);
    let fields = format!(
        r#""status": "fatal_failure", "error_class": "refused", "message": "no mail to {customer}""#
    );
    worker.note(&task, &fields).await;
    id
}

/// Makes tasks with keys that name a customer. Returns the worker that holds two of them.
async fn keyed(db: &Db, customer: &str) -> ScriptedWorker {
    let worker = db.worker_with(&["ordered"], MINUTE).await;
    let ordered = format!("'ordered', p_ordering_key => '{customer}'");
    failed(db, &worker, &ordered, customer).await;
    db.run(&format!("select tuskline.unblock('ordered', '{customer}')")).await;
    failed(db, &worker, &ordered, customer).await;
    db.run(&format!("select tuskline.schedule({ordered})")).await; // behind the failed one
    let weight = format!(
        "select tuskline.set_weight(limit_id, '{customer}', 2) from tuskline.limits where lambda = 'fair'"
    );
    db.run(&weight).await;
    for key in ["'limited', p_limit_key", "'fair', p_fairness_key", "'single', p_unique_key"] {
        let task = format!("select tuskline.schedule({key} => '{customer}')");
        db.run(&format!("{task}; {task}")).await;
    }
    let worker = db.worker_with(&["limited", "single"], MINUTE).await;
    consume(db).await;
    assert_eq!(worker.claim(10).await.len(), 2);
    worker
}

/// Makes tasks with payloads that name a customer, and all data that is stored about them.
async fn with_payload(db: &Db, customer: &str) {
    let payload = format!(r#"'{{"customer": {{"mail": "{customer}"}}}}'"#);
    let worker = db.worker_with(&["work", "archived"], MINUTE).await;
    db.run(&format!("select tuskline.schedule('work', {payload}, p_delay => '1 year')")).await;
    db.run(&format!("select tuskline.schedule('work', {payload})")).await;
    let task = worker.take().await;
    db.run(&format!(
        "select tuskline.set_progress({}, {}, 50, 'for {customer}', '\"{customer}\"')",
        task.id, task.fence
    ))
    .await;
    worker.succeed_with(&task, &format!("\"sent to {customer}\"")).await;
    let dead = failed(db, &worker, &format!("'work', {payload}"), customer).await;
    db.run(&format!(
        "select tuskline.advance_operation(tuskline.start_operation(
           'redrive', p_ids => array[{dead}::bigint], p_payload => {payload}::text, p_reason => 'typo', p_canary => true));
         select tuskline.enqueue_due()"
    ))
    .await;
    let again = worker.take().await;
    let fields = format!(
        r#""status": "fatal_failure", "error_class": "refused", "message": "none to {customer}""#
    );
    worker.note(&again, &fields).await;
    db.run("select tuskline.run_policies()").await;
    db.run(&format!("select tuskline.schedule('archived', {payload})")).await;
    worker.succeed(&worker.take().await).await;
}

#[tokio::test]
async fn an_erase_leaves_the_messages_of_a_lambda_with_a_longer_name() {
    let db = Db::with_lambda("pay").await;
    db.define("payments").await;
    db.pin().await;
    for lambda in ["pay", "payments"] {
        db.run(&format!("select tuskline.set_breaker('{lambda}', 5)")).await;
        let worker = db.worker(lambda).await;
        for _ in 0..5 {
            failed(&db, &worker, &format!("'{lambda}'"), ADA).await;
        }
    }
    db.advance(SECOND).await;
    db.run("select tuskline.run_policies()").await;
    let with_message = format!(
        "select string_agg(subject, ', ' order by subject) from tuskline.audit
          where verb = 'gate' and detail like '%no mail to {ADA}%'"
    );
    assert_eq!(db.one::<String>(&with_message).await, "pay, payments");
    let erase = start(&db, "p_lambda => 'pay'").await;
    assert_eq!(carry(&db, erase).await.0, "done");
    assert_eq!(db.one::<String>(&with_message).await, "payments");
}

#[tokio::test]
async fn an_erased_customer_is_in_no_table() {
    let db = with_lambdas().await;
    let ada = keyed(&db, ADA).await;
    keyed(&db, BOB).await;
    with_payload(&db, ADA).await;
    with_payload(&db, BOB).await;
    db.advance(MINUTE * 2).await;
    db.run("select tuskline.advance_operation(tuskline.start_operation('purge', 'archived'))")
        .await;
    let fragile = db.worker("fragile").await;
    let payload = format!(r#"'{{"customer": {{"mail": "{ADA}"}}}}'"#);
    for _ in 0..5 {
        failed(&db, &fragile, &format!("'fragile', {payload}"), ADA).await;
    }
    db.advance(SECOND).await;
    db.run("select tuskline.run_policies()").await;
    assert_eq!(
        tables(&db, ADA).await,
        [
            "tuskline.audit",
            "tuskline.gate",
            "tuskline.operation",
            "tuskline.permit",
            "tuskline.progress",
            "tuskline.redriven",
            "tuskline.task_archive",
            "tuskline.task_failure",
            "tuskline.task_output",
            "tuskline.tenant",
            "tuskline.unique_key",
            "tuskline.wait_list",
            "tuskline_core.rate_state",
            "tuskline_core.recent_failure",
            "tuskline.task",
            "tuskline.task",
        ],
        "a table that this test does not fill is not checked"
    );
    let of_bob = holders(&db, BOB).await;

    let by_key = start(&db, &format!("p_key => '{ADA}'")).await;
    let waits = carry(&db, by_key).await;
    assert_eq!((waits.0.as_str(), waits.2.contains("they run")), ("running", true), "{waits:?}");
    let held = "select t.id, t.fence from tuskline.tasks t where t.status = 'claimed' and '{0}' in (t.limit_key, t.unique_key)";
    for row in db.client.query(&held.replace("{0}", ADA), &[]).await.unwrap() {
        let sql = "select tuskline.set_results($1, '{}', '{}', json_build_array(json_build_object('task', $2::bigint, 'fence', $3::bigint, 'status', 'cancelled')))";
        let (task, fence): (i64, i64) = (row.get(0), row.get(1));
        ada.client.query_one(sql, &[&ada.executor, &task, &fence]).await.unwrap();
    }
    assert_eq!(carry(&db, by_key).await.0, "done");
    let by_field =
        start(&db, &format!("p_field => '{{customer,mail}}', p_equals => '{ADA}'")).await;
    assert_eq!(carry(&db, by_field).await.0, "done");

    assert_eq!(holders(&db, ADA).await, Vec::<String>::new());
    assert_eq!(holders(&db, BOB).await, of_bob);
    assert_eq!(db.lines("select * from tuskline.invariants() where violations > 0").await, [""; 0]);
    let digest: String = db.ask("select tuskline_core.digest($1)", &[&ADA]).await;
    let audit = "select count(*) from tuskline.audit where verb = 'start_operation' and detail like $1 and detail like '%reason request 17%'";
    assert_eq!(db.ask::<i64>(audit, &[&format!("%{digest}%")]).await, 2);
    let kept =
        "select count(*) from tuskline.operations where $1 in (key, equals) and note is null";
    assert_eq!(db.ask::<i64>(kept, &[&digest]).await, 2);
}

/// Ended tasks of work whose payload has the number n, from 1 on.
async fn numbered(db: &Db, count: i64) -> Vec<i64> {
    let worker = db.worker("work").await;
    let schedule = format!(
        "insert into tuskline.task (lambda, payload)
         select 'work', json_build_object('n', n) from generate_series(1, {count}) as n returning id"
    );
    let ids = db.all(&schedule).await;
    worker.succeed_all(&worker.claim(100).await).await;
    ids
}

async fn left(db: &Db) -> Vec<i64> {
    db.all("select id from tuskline.tasks order by id").await
}

#[tokio::test]
async fn an_erase_deletes_what_its_preview_counted_whatever_the_status() {
    let db = with_lambdas().await;
    db.run("select tuskline.alter_lambda('work', p_archive => 'table')").await;
    let ids = numbered(&db, 4).await;
    let waits: i64 = db.one("select tuskline.schedule('work', '{\"n\": \"2\"}')").await;
    let later: i64 =
        db.one("select tuskline.schedule('work', '{\"n\": 2}', p_delay => '1 day')").await;
    let other: i64 = db.one("select tuskline.schedule('fair', '{\"n\": 2}')").await;
    for (filter, expected) in [
        (format!("p_ids => array[{}, {}]::bigint[]", ids[0], later), vec![ids[0], later]),
        ("p_field => '{n}', p_equals => '2'".to_owned(), vec![ids[1], waits, other, later]),
        ("'work', p_field => '{n}', p_equals => '2'".to_owned(), vec![ids[1], waits, later]),
        ("'fair'".to_owned(), vec![other]),
        ("'work', p_collection => 'old'".to_owned(), vec![]),
        ("p_field => '{n,n}', p_equals => '2'".to_owned(), vec![]),
    ] {
        db.run("begin").await;
        let before = left(&db).await;
        let preview = format!(
            "select coalesce(sum(tasks), 0)::bigint from tuskline.preview_operation('erase', {filter})"
        );
        let counted: i64 = db.one(&preview).await;
        let erase = start(&db, &filter).await;
        let (state, changed, _) = carry(&db, erase).await;
        let after = left(&db).await;
        let gone: Vec<_> = before.into_iter().filter(|id| !after.contains(id)).collect();
        assert_eq!(gone, expected, "{filter}");
        let count = i64::try_from(expected.len()).unwrap();
        assert_eq!((state.as_str(), counted, changed), ("done", count, count), "{filter}");
        db.run("rollback").await;
    }
}

#[tokio::test]
async fn an_erase_waits_for_a_locked_task_and_for_a_chain_that_needs_one() {
    let db = with_lambdas().await;
    let ids = numbered(&db, 2).await;
    let reader = db.connect().await;
    let lock = format!("begin; select from tuskline.task where id = {} for share", ids[0]);
    reader.batch_execute(&lock).await.unwrap();
    let parent: i64 = db.one("select tuskline.schedule('work')").await;
    let slow: i64 = db.one("select tuskline.schedule('work', p_delay => '1 hour')").await;
    let child = format!("select tuskline.schedule_then(array[{parent}, {slow}]::bigint[], 'work')");
    let child: i64 = db.one(&child).await;
    let worker = db.worker("work").await;
    worker.succeed(&worker.take().await).await;
    let erase =
        start(&db, &format!("p_ids => array[{}, {}, {parent}]::bigint[]", ids[0], ids[1])).await;
    for _ in 0..3 {
        assert_eq!(advance(&db, erase).await.0, "running");
        db.advance(SECOND).await;
    }
    let mut stay = vec![ids[0], parent, child, slow];
    stay.sort_unstable();
    assert_eq!(left(&db).await, stay);
    reader.batch_execute("commit").await.unwrap();
    let (_, changed, note) = carry(&db, erase).await;
    let waits = format!(
        "waits for 1 tasks, the first {parent}: they run, or a chain, a session or a redrive needs them"
    );
    assert_eq!((changed, note), (2, waits));
    let looked = "select looked from tuskline.operation";
    let before: i64 = db.one(looked).await;
    for _ in 0..3 {
        db.advance(SECOND).await;
        assert_eq!(advance(&db, erase).await.0, "running");
    }
    assert_eq!(db.one::<i64>(looked).await, before, "it looks at the task, and walks no more");
    db.run(&format!("select tuskline.cancel({child})")).await;
    consume(&db).await;
    db.advance(SECOND).await;
    let (state, changed, _) = carry(&db, erase).await;
    assert_eq!((state.as_str(), changed), ("done", 3));
}

/// Three tasks of work in a segment that is past retention.
async fn old_segment() -> Db {
    let db = with_lambdas().await;
    db.run("select tuskline.alter_lambda('work', p_archive => 'table'); select tuskline.roll_segments()")
        .await;
    numbered(&db, 3).await;
    db.advance(DAY).await;
    db.run("select tuskline.roll_segments()").await;
    db.advance(DAY * 8).await;
    db
}

/// The first half of the retirement of the first segment: its tasks are in no table of the store.
async fn set_aside(db: &Db) {
    let no = db.first_segment();
    assert_eq!(db.one::<i64>(&format!("select tuskline.keep_remaining({no})")).await, 0);
    db.run(&format!(
        "alter table tuskline_core.task_store detach partition tuskline_core.task_{no} concurrently"
    ))
    .await;
    db.run(&format!("alter table tuskline_core.task_{no} rename to gone_{no}")).await;
}

/// The second half: its tasks are in the archive.
async fn archive(db: &Db) {
    let no = db.first_segment();
    db.run(&format!("select tuskline.archive_segment({no})")).await;
    db.run(&format!("drop table tuskline_core.gone_{no}")).await;
    db.run(&format!("select tuskline.purge_history({no}); select tuskline.return_kept({no})"))
        .await;
}

#[tokio::test]
async fn an_erase_finds_the_tasks_of_a_segment_that_was_retired_during_its_walk() {
    for begins_first in [true, false] {
        let db = old_segment().await;
        db.run("select tuskline.schedule_many(array_fill('work'::text, array[4]))").await;
        let filter = "'work', p_field => '{n}', p_equals => '2'";
        let mut erase = None;
        if begins_first {
            erase = Some(start(&db, filter).await);
        }
        set_aside(&db).await;
        let erase = match erase {
            Some(erase) => erase,
            None => start(&db, filter).await,
        };
        assert_eq!(advance(&db, erase).await.0, "running", "its mark is above the segment");
        archive(&db).await;
        let (state, changed, _) = carry(&db, erase).await;
        assert_eq!((state.as_str(), changed), ("done", 1));
        let archived = "select payload ->> 'n' from tuskline.task_archive order by id";
        assert_eq!(db.lines(archived).await, ["1", "3"]);
    }
}

#[tokio::test]
async fn an_erase_waits_for_a_segment_that_is_being_retired() {
    let db = old_segment().await;
    let no = db.first_segment();
    set_aside(&db).await;
    let erase = start(&db, "p_field => '{n}', p_equals => '2'").await;
    let (state, changed, note) = carry(&db, erase).await;
    let waits = format!("waits for segment {no}: a server is retiring it, see tuskline doctor");
    assert_eq!((state.as_str(), changed, note), ("running", 0, waits));
    archive(&db).await;
    db.advance(MINUTE).await;
    let (state, changed, _) = carry(&db, erase).await;
    assert_eq!((state.as_str(), changed), ("done", 1));
    let archived = "select payload ->> 'n' from tuskline.task_archive order by id";
    assert_eq!(db.lines(archived).await, ["1", "3"]);
}

#[tokio::test]
async fn a_schedule_with_such_a_payload_is_named() {
    let db = with_lambdas().await;
    db.run(
        "select tuskline.define_periodic('digest', 'work', '@daily', p_payload => '{\"n\": 2}')",
    )
    .await;
    let erase = start(&db, "p_field => '{n}', p_equals => '2'").await;
    let (state, _, note) = carry(&db, erase).await;
    assert_eq!(
        (state.as_str(), note.as_str()),
        ("done", "these schedules have a matching payload: digest")
    );
    // The definition keeps the payload when an operator has dropped the schedule.
    let schedule = r#"{"name": "nightly", "cron": "@daily", "payload": {"n": 2}}"#;
    let definition = format!(r#"[{{"lambda": "work", "schedules": [{schedule}]}}]"#);
    db.run(&format!("select tuskline.define('{definition}')")).await;
    db.run("select tuskline.drop_periodic(name) from tuskline.periodic").await;
    let erase = start(&db, "'work', p_field => '{n}', p_equals => '2'").await;
    let (state, _, note) = carry(&db, erase).await;
    assert_eq!(
        (state.as_str(), note.as_str()),
        ("done", "so have schedules in the definitions of work")
    );
}

/// The lines of an archive file are counted by the command, each file for itself.
#[tokio::test]
async fn an_erase_counts_each_task_once() {
    let db = with_lambdas().await;
    let ids = numbered(&db, 5).await;
    // A retirement that was cut off: one task is stored and archived.
    db.run(&format!(
        "insert into tuskline.task_archive
         select (jsonb_populate_record(null::tuskline.task_archive,
                   to_jsonb(t) || jsonb_build_object('archived_at', now()))).*
           from tuskline.task t where id = {}",
        ids[1]
    ))
    .await;
    let filter = "p_field => '{n}', p_equals => '2'";
    let preview = format!("select tasks from tuskline.preview_operation('erase', {filter})");
    assert_eq!(db.all::<i64>(&preview).await, [1]);
    let erase = start(&db, filter).await;
    assert_eq!(carry(&db, erase).await, ("done".to_owned(), 1, "-".to_owned()));
    assert_eq!(db.one::<i64>("select looked from tuskline.operation").await, 5);
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task_archive").await, 0);
}

#[tokio::test]
async fn failures_before_a_redrive_replaced_the_payload_lose_their_messages() {
    let db = with_lambdas().await;
    let worker = db.worker_with(&["work"], MINUTE).await;
    let with_progress = |customer: &str| format!(r#"'work', '{{"mail": "{customer}"}}'"#);
    let dead = failed(&db, &worker, &with_progress(ADA), ADA).await;
    db.run(&format!(
        "insert into tuskline.progress (task_id, fence, message, said_at)
         values ({dead}, 1, 'for {ADA}', tuskline.clock());
         insert into tuskline.audit (at, verb, subject, detail)
         values (tuskline.clock(), 'cancel', 'task {dead}', '{ADA} called');
         select tuskline.advance_operation(tuskline.start_operation('redrive',
           p_ids => array[{dead}::bigint], p_payload => '{{\"mail\": \"{BOB}\"}}'::text,
           p_reason => 'typo'))",
    ))
    .await;
    db.advance(SECOND).await;
    consume(&db).await;
    let again = worker.take().await;
    let fields = format!(
        r#""status": "fatal_failure", "error_class": "refused", "message": "none to {BOB}""#
    );
    worker.note(&again, &fields).await;
    let of_bob = holders(&db, BOB).await;
    let erase = start(&db, &format!("p_field => '{{mail}}', p_equals => '{ADA}'")).await;
    assert_eq!(carry(&db, erase).await, ("done".to_owned(), 0, "-".to_owned()));
    assert_eq!(holders(&db, ADA).await, Vec::<String>::new());
    assert_eq!(holders(&db, BOB).await, of_bob);
}

#[tokio::test]
async fn the_reason_of_a_cancel_goes_with_its_task() {
    let db = with_lambdas().await;
    let task = |customer: &str| format!(r#"tuskline.schedule('work', '{{"mail": "{customer}"}}')"#);
    for customer in [ADA, BOB] {
        let cancel = format!("select tuskline.cancel({}, '{customer} called')", task(customer));
        db.run(&cancel).await;
    }
    let erase = start(&db, &format!("p_field => '{{mail}}', p_equals => '{ADA}'")).await;
    assert_eq!(carry(&db, erase).await.1, 1);
    assert_eq!(holders(&db, ADA).await, Vec::<String>::new());
    let acts =
        "select coalesce(detail, '-') from tuskline.audit where verb = 'cancel' order by subject";
    assert_eq!(db.lines(acts).await, ["-".to_owned(), format!("{BOB} called")]);
    // The task of an archive file.
    let id: i64 = db.one("select id from tuskline.tasks").await;
    let line = format!(r#"{{"id": {id}, "lambda": "work"}}"#);
    db.run(&format!("select tuskline.forget_lines(array['{line}'])")).await;
    assert_eq!(db.lines(acts).await, ["-", "-"]);
}

#[tokio::test]
async fn the_unique_key_of_an_archived_task_is_forgotten_with_it() {
    let db = with_lambdas().await;
    db.run("select tuskline.alter_lambda('single', p_archive => 'table')").await;
    let worker = db.worker("single").await;
    for customer in [ADA, BOB] {
        let task = format!(r#"'single', '{{"mail": "{customer}"}}', p_unique_key => '{customer}'"#);
        db.run(&format!("select tuskline.schedule({task})")).await;
        worker.succeed(&worker.take().await).await;
    }
    db.advance(MINUTE * 2).await;
    db.run("select tuskline.advance_operation(tuskline.start_operation('purge', 'single'))").await;
    let erase = start(&db, &format!("p_field => '{{mail}}', p_equals => '{ADA}'")).await;
    assert_eq!(carry(&db, erase).await.1, 1);
    assert_eq!(db.lines("select key from tuskline.unique_key").await, [BOB]);
    assert_eq!(holders(&db, ADA).await, Vec::<String>::new());
}

#[tokio::test]
async fn an_operation_that_has_ended_keeps_no_key_and_no_value() {
    let db = with_lambdas().await;
    for filter in
        [format!("p_key => '{ADA}'"), format!("'work', p_field => '{{mail}}', p_equals => '{ADA}'")]
    {
        let cancel = format!("select tuskline.start_operation('cancel', {filter})");
        carry(&db, db.one(&cancel).await).await;
    }
    assert_eq!(holders(&db, ADA).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_payload_that_a_redrive_replaced_is_erased_by_its_field() {
    let db = with_lambdas().await;
    let worker = db.worker("work").await;
    for customer in [ADA, BOB] {
        let task = format!(r#"'work', '{{"mail": "{customer}"}}'"#);
        let dead = failed(&db, &worker, &task, "the customer").await;
        db.run(&format!(
            "select tuskline.advance_operation(tuskline.start_operation('redrive',
               p_ids => array[{dead}::bigint], p_payload => '{{}}'::text, p_reason => 'typo'))"
        ))
        .await;
    }
    let erase = start(&db, &format!("p_field => '{{mail}}', p_equals => '{ADA}'")).await;
    assert_eq!(carry(&db, erase).await, ("done".to_owned(), 0, "-".to_owned()));
    assert_eq!(holders(&db, ADA).await, Vec::<String>::new());
    let replaced = "select count(*), count(old_payload) from tuskline.redriven";
    assert_eq!(db.lines(replaced).await, ["2 | 1"]);
}

#[tokio::test]
async fn a_key_stays_while_an_erase_leaves_tasks_with_it() {
    let db = with_lambdas().await;
    let weigh = "select tuskline.set_weight(limit_id, key, 2)
        from tuskline.limits, unnest(array['c_1', 'c_1 x']) as key where lambda = 'fair'";
    db.run(weigh).await;
    db.run("select tuskline.schedule('fair', p_fairness_key => 'c_1', p_collection => 'keep')")
        .await;
    let tenants = "select fairness_key from tuskline.tenant order by 1";
    let erase = start(&db, "p_key => 'c_1', p_collection => 'old'").await;
    assert_eq!(carry(&db, erase).await.0, "done");
    assert_eq!(db.lines(tenants).await, ["c_1", "c_1 x"]);
    let erase = start(&db, "p_key => 'c_1'").await;
    assert_eq!(carry(&db, erase).await.0, "done");
    assert_eq!(db.lines(tenants).await, ["c_1 x"]);
    assert_eq!(left(&db).await, [0; 0]);
    let audited =
        "select detail from tuskline.audit where verb = 'set_weight' and detail not like 'sha256%'";
    assert_eq!(db.lines(audited).await, ["c_1 x 2"]);
}

#[tokio::test]
async fn an_erase_carries_no_list_of_the_tasks_that_it_has_cancelled() {
    let db = with_lambdas().await;
    db.run("select tuskline.schedule_many(array_fill('work'::text, array[30]))").await;
    let erase = start(&db, "'work'").await;
    let behind = "select cardinality(behind) from tuskline.operation";
    while db.one::<i64>("select count(*) from tuskline.tasks where status = 'enqueued'").await > 0 {
        assert_eq!(advance(&db, erase).await.0, "running");
        assert_eq!(db.one::<i32>(behind).await, 0);
    }
    assert_eq!(carry(&db, erase).await.1, 30);
}

#[tokio::test]
async fn an_erase_that_is_stopped_keeps_no_key() {
    let db = with_lambdas().await;
    let erase = start(&db, &format!("p_key => '{ADA}'")).await;
    assert_eq!(holders(&db, ADA).await, ["tuskline.operation 1"]);
    db.run(&format!("select tuskline.stop_operation({erase})")).await;
    assert_eq!(holders(&db, ADA).await, Vec::<String>::new());
}

#[tokio::test]
async fn what_makes_no_erase_is_refused() {
    let db = with_lambdas().await;
    let only = "an erase deletes tasks of every status: it takes no statuses, fingerprint, end time or limit".to_owned();
    let path = "field must be a path of 1 to 32 names, with the text that it equals, got";
    for (call, said) in [
        (
            "'erase', p_reason => 'x'",
            "say which tasks: erase needs a lambda, ids, a key, a field or a collection".to_owned(),
        ),
        ("'erase', p_key => 'k'", "reason must have 1 to 500 characters".to_owned()),
        ("'erase', p_key => '', p_reason => 'x'", "key must have 1 to 256 bytes, got 0".to_owned()),
        (
            "'erase', p_field => '{}', p_equals => '1', p_reason => 'x'",
            format!("{path} '{{}}' and '1'"),
        ),
        (
            "'erase', p_field => '{a,null}', p_equals => '1', p_reason => 'x'",
            format!("{path} '{{a,NULL}}' and '1'"),
        ),
        ("'erase', p_field => '{a}', p_reason => 'x'", format!("{path} '{{a}}' and NULL")),
        ("'erase', 'work', p_equals => '1', p_reason => 'x'", format!("{path} NULL and '1'")),
        (
            "'erase', 'work', p_files => true, p_reason => 'x'",
            "files are for a purge, got erase".to_owned(),
        ),
        ("'erase', 'work', p_limit => 1, p_reason => 'x'", only.clone()),
        ("'erase', 'work', p_statuses => '{success}', p_reason => 'x'", only.clone()),
        ("'erase', 'work', p_fingerprint => 'f', p_reason => 'x'", only.clone()),
        ("'erase', 'work', p_ended_to => now(), p_reason => 'x'", only),
        (
            "'priority', p_value => 'low', p_key => 'k'",
            "say which tasks: priority needs a lambda".to_owned(),
        ),
    ] {
        let answer = db.refused(&format!("select tuskline.start_operation({call})")).await;
        assert_eq!(answer.split_once("TK029 invalid_operation: ").unwrap().1, said, "{call}");
    }
}

#[tokio::test]
async fn tasks_of_a_key_are_selected_by_it() {
    let db = with_lambdas().await;
    db.run("select tuskline.schedule('work', p_limit_key => 'a'), tuskline.schedule('work', p_limit_key => 'b')").await;
    let start = "select tuskline.start_operation('cancel', p_key => 'a')";
    assert_eq!(carry(&db, db.one(start).await).await.1, 1);
    assert_eq!(
        db.lines("select status from tuskline.tasks order by id").await,
        ["cancelled", "enqueued"]
    );
    let audit = "select detail from tuskline.audit where verb = 'start_operation'";
    assert!(
        db.one::<String>(audit).await.contains(
            "key sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
        )
    );
}

#[tokio::test]
async fn the_command_erases_the_lines_of_the_archive_too() {
    let db = with_lambdas().await;
    db.run("select tuskline.alter_lambda('work', p_archive => 'file')").await;
    numbered(&db, 3).await;
    let dir = tempfile::tempdir().unwrap();
    let run = |command: &str| on(&db.config, command).env("TUSKLINE_ARCHIVE_DIR", dir.path()).run();
    run("operation start purge work --older-than 0s --wait").fine();
    numbered(&db, 2).await;
    let erase = "operation start erase --field n=2 --reason r17 --json";
    let counted = run(&format!("{erase} --dry-run")).json();
    let name = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().file_name();
    let name = name.to_str().unwrap();
    assert_eq!(
        (&counted[0]["tasks"], &counted[1]["file"], &counted[1]["tasks"]),
        (&1.into(), &name.into(), &1.into())
    );
    let lines = || std::fs::read_to_string(dir.path().join(name)).unwrap().lines().count();
    assert_eq!((left(&db).await.len(), lines()), (2, 3), "a dry run deletes nothing");
    let said = run(erase).json();
    assert_eq!(
        (&said["state"], &said["changed"], &said["files"][0]["tasks"]),
        (&"done".into(), &1.into(), &1.into())
    );
    let text = std::fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!((lines(), text.contains(r#""n" : 2}"#), left(&db).await.len()), (2, false, 1));
    let again = run(erase).json();
    assert_eq!((&again["changed"], &again["files"]), (&0.into(), &serde_json::json!([])));
}

#[tokio::test]
async fn the_unique_key_of_a_task_in_a_file_is_forgotten_with_its_line() {
    let db = with_lambdas().await;
    db.run("select tuskline.alter_lambda('single', p_archive => 'file')").await;
    let worker = db.worker("single").await;
    for customer in [ADA, BOB] {
        let task = format!(r#"'single', '{{"mail": "{customer}"}}', p_unique_key => '{customer}'"#);
        db.run(&format!("select tuskline.schedule({task})")).await;
        worker.succeed(&worker.take().await).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let run = |command: &str| on(&db.config, command).env("TUSKLINE_ARCHIVE_DIR", dir.path()).run();
    run("operation start purge single --older-than 0s --wait").fine();
    let erase = format!("operation start erase --field mail={ADA} --reason r17");
    run(&format!("{erase} --dry-run")).fine();
    assert_eq!(db.lines("select key from tuskline.unique_key order by key").await, [ADA, BOB]);
    let waited = run("operation wait 1");
    assert!(!waited.err.contains("archive"), "{waited:?}");
    let id = start(&db, &format!("p_field => '{{mail}}', p_equals => '{ADA}'")).await;
    let waited = run(&format!("operation wait {id}"));
    assert!(waited.err.contains("the files of the archive are unchanged"), "{waited:?}");
    run(&erase).fine();
    assert_eq!(db.lines("select key from tuskline.unique_key").await, [BOB]);
}
