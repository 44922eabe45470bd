//! Every mistake of a caller is refused with its code, a stable name, one line, and no effect.
//!
//! The snapshot is the list of what callers may rely on: code and text. Where the text is
//! PostgreSQL's own only the code is kept.

use std::fmt::Write as _;

use tuskline_sdk::{Chain, Client, NewTask};

use crate::support::cli::url;
use crate::support::{Db, refusal, within};

/// A fault, and a statement that has it.
const BAD: &[(&str, &str)] = &[
    ("lambda null", "select tuskline.schedule(null)"),
    ("lambda empty", "select tuskline.schedule('')"),
    ("lambda unknown", "select tuskline.schedule('nobody')"),
    ("lambda too long", "select tuskline.schedule(repeat('a', 100))"),
    ("lambda with control characters", "select tuskline.schedule(E'a\\nb\\x01')"),
    ("lambda with a quote", "select tuskline.schedule('a''; drop table tuskline.task')"),
    ("lambda null by insert", "insert into tuskline.task (lambda) values (null)"),
    ("lambda unknown by insert", "insert into tuskline.task (lambda) values ('nobody')"),
    ("name null", "select tuskline.define_lambda(null)"),
    ("name empty", "select tuskline.define_lambda('')"),
    ("name of 64 letters", "select tuskline.define_lambda(repeat('a', 64))"),
    ("name in upper case", "select tuskline.define_lambda('Work')"),
    ("name with a digit first", "select tuskline.define_lambda('1work')"),
    ("name composed", "select tuskline.define_lambda(U&'caf\\00e9')"),
    ("name decomposed", "select tuskline.define_lambda(U&'cafe\\0301')"),
    ("name with a line break", "select tuskline.define_lambda(E'work\\n')"),
    ("payload not JSON", "select tuskline.schedule('work', '{a}')"),
    ("payload NaN", "select tuskline.schedule('work', 'NaN')"),
    ("payload with a NUL", r#"select tuskline.schedule('work', '{"a": "\u0000"}')"#),
    (
        "payload with a NUL in a key",
        r#"insert into tuskline.task (lambda, payload) values ('work', '{"\u0000": 1}')"#,
    ),
    (
        "payload too deep",
        "select tuskline.schedule('work', (repeat('[', 120000) || repeat(']', 120000))::json)",
    ),
    ("payload too large", "select tuskline.schedule('work', to_json(repeat('x', 262143)))"),
    (
        "payload too large, compressible, by insert",
        "insert into tuskline.task (lambda, payload) select 'work', to_json(repeat('x', 400000))",
    ),
    ("traceparent", "select tuskline.schedule('work', p_traceparent => '00-1')"),
    (
        "traceparent by insert",
        "insert into tuskline.task (lambda, traceparent) values ('work', upper(repeat('a', 55)))",
    ),
    ("due infinity", "select tuskline.schedule('work', p_scheduled_at => 'infinity')"),
    ("due minus infinity", "select tuskline.schedule('work', p_scheduled_at => '-infinity')"),
    (
        "due infinity by insert",
        "insert into tuskline.task (lambda, scheduled_at) values ('work', 'infinity')",
    ),
    (
        "due minus infinity by insert",
        "insert into tuskline.task (lambda, scheduled_at) values ('work', '-infinity')",
    ),
    (
        "due beyond the calendar",
        "select tuskline.schedule('work', p_scheduled_at => '300000-01-01')",
    ),
    (
        "due in 11 years",
        "select tuskline.schedule('work', p_scheduled_at => '2041-01-01 00:00:00+00')",
    ),
    (
        "due in 11 years by insert",
        "insert into tuskline.task (lambda, scheduled_at) values ('work', '2041-01-01 00:00:00+00')",
    ),
    ("delay of 11 years", "select tuskline.schedule('work', p_delay => '11 years')"),
    ("delay negative", "select tuskline.schedule('work', p_delay => '-1 second')"),
    (
        "instant and delay beyond 10 years together",
        "select tuskline.schedule('work', p_scheduled_at => '2039-06-01 00:00:00+00', p_delay => '9 years')",
    ),
    ("priority unknown", "select tuskline.schedule('work', null, 'urgent')"),
    ("priority a number", "select tuskline.schedule('work', null, '40000')"),
    (
        "priority unknown by insert",
        "insert into tuskline.task (lambda, priority) values ('work', 'urgent')",
    ),
    ("collection empty", "select tuskline.schedule('work', null, 'normal', '')"),
    ("collection in upper case", "select tuskline.schedule('work', null, 'normal', 'EU')"),
    (
        "collection too long",
        "insert into tuskline.task (lambda, collection) values ('work', repeat('a', 64))",
    ),
    ("status success", "insert into tuskline.task (lambda, status) values ('work', 'success')"),
    ("status claimed", "insert into tuskline.task (lambda, status) values ('work', 'claimed')"),
    (
        "status new without a look",
        "insert into tuskline.task (lambda, status, next_trigger_at) values ('work', 'new', null)",
    ),
    ("fence", "insert into tuskline.task (lambda, fence) values ('work', 7)"),
    ("attempt", "insert into tuskline.task (lambda, attempt) values ('work', 1)"),
    ("crashes", "insert into tuskline.task (lambda, crashes) values ('work', 1)"),
    ("finished", "insert into tuskline.task (lambda, finished_at) values ('work', '2030-01-01')"),
    ("started", "insert into tuskline.task (lambda, started_at) values ('work', '2030-01-01')"),
    ("id of no segment", "insert into tuskline.task (id, lambda) values (-1, 'work')"),
    (
        "id beyond every segment",
        "insert into tuskline.task (id, lambda) values (9223372036854775807, 'work')",
    ),
    ("batch null", "select tuskline.schedule_many(null)"),
    ("request null", "select tuskline.schedule_once(null, '{work}')"),
    ("batch empty", "select tuskline.schedule_many('{}')"),
    ("batch of 10001", "select tuskline.schedule_many(array_fill('work'::text, array[10001]))"),
    ("batch uneven", "select tuskline.schedule_many(array['work', 'work'], array['1']::json[])"),
    ("batch, lambda of row 2", "select tuskline.schedule_many(array['work', 'nobody', 'work'])"),
    ("batch, lambda null in row 3", "select tuskline.schedule_many(array['work', 'work', null])"),
    (
        "batch, priority of row 2",
        "select tuskline.schedule_many(array['work', 'work'], p_priorities => array['low', 'urgent'])",
    ),
    (
        "batch, priority of row 2, delayed",
        "select tuskline.schedule_many(array['work', 'work'], p_priorities => array['low', 'urgent'], p_delays => array[interval '1 s', '1 s'])",
    ),
    (
        "batch, collection of row 2",
        "select tuskline.schedule_many(array['work', 'work', 'work'], p_collections => array['eu', 'E U', null])",
    ),
    (
        "batch, payload of row 3",
        "select tuskline.schedule_many(array['work', 'work', 'work'], array['1', '2', to_json(repeat('x', 300000))::text]::json[])",
    ),
    (
        "batch, delay of row 2",
        "select tuskline.schedule_many(array['work', 'work'], p_delays => array[interval '1 s', '-1 s'])",
    ),
    (
        "batch with delays, lambda of row 2",
        "select tuskline.schedule_many(array['work', 'nobody', null], p_delays => array[interval '1 s', '1 s', null])",
    ),
    (
        "batch with delays, collection of row 3",
        "select tuskline.schedule_many(array['work', 'work', 'work'], p_collections => array['eu', null, 'E U'], p_delays => array[null, null, interval '1 s'])",
    ),
    (
        "batch with delays, payload of row 1",
        "select tuskline.schedule_many(array['work', 'work'], array[to_json(repeat('x', 300000))::text, '1']::json[], p_delays => array[interval '1 s', null])",
    ),
    (
        "batch, delay of row 3 before priority of row 1",
        "select tuskline.schedule_many(array['nobody', 'work', 'work'], p_priorities => array['urgent', 'low', 'low'], p_delays => array[null, interval '1 s', '-1 s'])",
    ),
    (
        "delayed, collection",
        "select tuskline.schedule('work', null, 'normal', 'EU', p_delay => '1 s')",
    ),
    (
        "delayed, payload too large",
        "select tuskline.schedule('work', to_json(repeat('x', 262143)), p_delay => '1 s')",
    ),
    (
        "batch, due of row 1",
        "select tuskline.schedule_many(array['work', 'work'], p_scheduled_at => array[timestamptz 'infinity', null])",
    ),
    (
        "rows, lambda of row 2",
        "insert into tuskline.task (lambda) values ('work'), ('nobody'), ('work')",
    ),
    (
        "rows, due of row 3",
        "insert into tuskline.task (lambda, scheduled_at) values ('work', null), ('work', '2030-02-01'), ('work', 'infinity')",
    ),
    ("attempt_timeout 0", "select tuskline.define_lambda('bad', p_attempt_timeout => '0')"),
    (
        "attempt_timeout of 8 days",
        "select tuskline.define_lambda('bad', p_attempt_timeout => '8 days')",
    ),
    ("max_attempts 0", "select tuskline.define_lambda('bad', p_max_attempts => 0)"),
    ("max_attempts -1", "select tuskline.define_lambda('bad', p_max_attempts => -1)"),
    ("max_attempts 32768", "select tuskline.alter_lambda('work', p_max_attempts => 32768)"),
    ("max_crashes 0", "select tuskline.alter_lambda('work', p_max_crashes => 0)"),
    ("retry_base negative", "select tuskline.define_lambda('bad', p_retry_base => '-1 s')"),
    (
        "retry_cap below the base",
        "select tuskline.define_lambda('bad', p_retry_base => '2 h', p_retry_cap => '1 h')",
    ),
    ("retry_cap of 25 hours", "select tuskline.define_lambda('bad', p_retry_cap => '25 hours')"),
    ("retention negative", "select tuskline.define_lambda('bad', p_retention => '-1 day')"),
    ("dead_retention null", "select tuskline.define_lambda('bad', p_dead_retention => null)"),
    ("direct null", "select tuskline.define_lambda('bad', p_direct => null)"),
    ("max_payload_bytes 0", "select tuskline.define_lambda('bad', p_max_payload_bytes => 0)"),
    (
        "max_payload_bytes over 1 MiB",
        "select tuskline.define_lambda('bad', p_max_payload_bytes => 1048577)",
    ),
    ("alter of nobody", "select tuskline.alter_lambda('nobody', p_max_attempts => 1)"),
    ("alter of null", "select tuskline.alter_lambda(null)"),
    ("worker without lambdas", "select tuskline.register_executor('h', 1, '{}', '0', '20 s')"),
    ("worker of null", "select tuskline.register_executor('h', 1, null, '0', '20 s')"),
    (
        "worker of nobody",
        "select tuskline.register_executor('h', 1, array['work', 'nobody'], '0', '20 s')",
    ),
    ("lease 0", "select tuskline.register_executor('h', 1, array['work'], '0', '0')"),
    ("lease negative", "select tuskline.register_executor('h', 1, array['work'], '0', '-20 s')"),
    (
        "lease over an hour",
        "select tuskline.register_executor('h', 1, array['work'], '0', '61 min')",
    ),
    ("lease null", "select tuskline.register_executor('h', 1, array['work'], '0', null)"),
    (
        "result unknown",
        r#"select tuskline.set_results(1, '{}', '{}', '[{"task": 1, "fence": 1, "status": "done"}]')"#,
    ),
    (
        "result without a status",
        r#"select tuskline.set_results(1, '{}', '{}', '[{"task": 1, "fence": 1}]')"#,
    ),
    ("results not a list", r#"select tuskline.set_results(1, '{}', '{}', '{"task": 1}')"#),
];

/// Everything that a refused statement could have left behind.
const TRACES: &str = "select (select count(*) from tuskline.tasks) + (select count(*) from tuskline.queued)
    + (select count(*) from tuskline.timer) + (select count(*) from tuskline.lambda where name <> 'work')
    + (select count(*) from tuskline.executor) + (select count(*) from tuskline.audit)";

#[tokio::test]
async fn every_bad_input_is_refused_in_one_line_and_leaves_nothing() {
    let db = Db::with_lambda("work").await;
    db.run(
        "update tuskline_test.pin set at = '2030-01-01 00:00:00+00'; delete from tuskline.audit",
    )
    .await;
    let before: Vec<String> = db.lines("select * from tuskline.lambda").await;
    let mut said = String::new();
    for (what, sql) in BAD {
        let mut refused = db.refused(sql).await;
        if !refused.starts_with("TK") {
            refused.truncate(5);
        }
        assert!(!refused.contains('\n'), "{what}: more than one line: {refused}");
        assert_eq!(db.one::<i64>(TRACES).await, 0, "{what}");
        writeln!(said, "{what}\n    {refused}").unwrap();
    }
    assert_eq!(db.lines("select * from tuskline.lambda").await, before);
    insta::assert_snapshot!("bad_input", said);
}

#[tokio::test]
async fn an_infinite_duration_is_refused_by_every_server() {
    let db = Db::with_lambda("work").await;
    // Before version 17 the type itself refuses it.
    for sql in [
        "select tuskline.schedule('work', p_delay => 'infinity')",
        "select tuskline.schedule('work', p_delay => '-infinity')",
        "select tuskline.define_lambda('bad', p_attempt_timeout => 'infinity')",
        "select tuskline.define_lambda('bad', p_retention => 'infinity')",
        "select tuskline.register_executor('h', 1, array['work'], '0', 'infinity')",
    ] {
        db.refused(sql).await;
    }
    assert_eq!(db.one::<i64>("select count(*) from tuskline.tasks").await, 0);
}

#[tokio::test]
async fn the_limits_themselves_are_accepted() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    for sql in [
        "select tuskline.define_lambda(repeat('a', 63))",
        "select tuskline.define_lambda('most', '7 days', 32767, '24 hours', '24 hours', '3650 days', '3650 days', false, 1048576, 32767)",
        "select tuskline.define_lambda('least', '10 ms', 1, '0', '0', '0', '0', true, 1, 1)",
        "select tuskline.schedule('work', to_json(repeat('x', 262142)))",
        "select tuskline.schedule('work', p_scheduled_at => tuskline.clock() + interval '10 years')",
        "select tuskline.schedule('work', p_delay => '10 years')",
        "select tuskline.schedule('least', '1')",
        "select tuskline.schedule('work', null, null, null, null, null)",
        "select tuskline.schedule('work', null, 'low', repeat('a', 63))",
        "insert into tuskline.task (lambda) select 'work' where false",
        "select tuskline.register_executor(null, null, array['work'], null, '100 ms')",
        "select tuskline.register_executor(repeat('h', 1000), 1, array['work'], repeat('v', 1000), '1 hour')",
    ] {
        db.run(sql).await;
    }
}

#[tokio::test]
async fn a_bad_row_of_a_copy_refuses_all_of_it_and_is_named() {
    use futures_util::SinkExt;
    let db = Db::with_lambda("work").await;
    let sink = db
        .client
        .copy_in("copy tuskline.task (lambda, collection) from stdin with (format csv)")
        .await
        .unwrap();
    let mut sink = std::pin::pin!(sink);
    sink.send(std::io::Cursor::new("work,eu\nwork,us\nwork,E U\nwork,eu\n".as_bytes()))
        .await
        .unwrap();
    let refused = refusal(&sink.as_mut().finish().await.unwrap_err());
    assert_eq!(
        refused,
        "TK002: TK002 invalid_name: collection must match [a-z][a-z0-9_]{0,62}, got 'E U' (row 3 of 4) [null means no collection]"
    );
    assert_eq!(
        (db.queued().await, db.one::<i64>("select count(*) from tuskline.tasks").await),
        (0, 0)
    );
}

#[tokio::test]
async fn questions_about_what_is_not_there_have_an_answer() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let alive: bool = db.one("select alive from tuskline.heartbeat(4711)").await;
    assert!(!alive);
    let alive: bool =
        db.one("select alive from tuskline.claim(4711, '{1}', '{0}', '{1}', '{10}')").await;
    assert!(!alive);
    assert!(db.all::<i64>("select id from tuskline.task_status(4711)").await.is_empty());
    assert!(db.one::<Vec<i64>>("select tuskline.start(4711, '{1}', '{1}')").await.is_empty());
    assert!(
        db.one::<Vec<i64>>("select released from tuskline.release(4711, '{1}', '{1}')")
            .await
            .is_empty()
    );
    assert_eq!(db.one::<Option<Vec<i64>>>("select tuskline.release_lease(4711, 1)").await, None);
    for (ids, fences) in
        [("{}", "{}"), ("{1}", "{}"), ("{}", "{1}"), ("{null}", "{null}"), ("{1,1}", "{1,1}")]
    {
        let sql = format!("select tuskline.set_results({}, '{ids}', '{fences}')", worker.executor);
        db.run(&sql).await;
    }
    assert_eq!(worker.claim(0).await, []);
    assert_eq!(worker.claim(-5).await, []);
}

/// A caller who reads it in psql sees the refusal and not the plumbing.
#[tokio::test]
async fn a_refusal_of_a_task_passes_three_places_at_most() {
    let db = Db::with_lambda("work").await;
    db.run(
        "select tuskline.define_lambda('once'), tuskline.set_unique('once', 'running', 'reject')",
    )
    .await;
    db.run("select tuskline.schedule('once', p_unique_key => 'a')").await;
    for sql in [
        "select tuskline.schedule('nope')",
        "select tuskline.schedule('work', p_collection => 'E U')",
        "select tuskline.schedule('work', p_delay => '-1 second')",
        "select tuskline.schedule('work', p_priority => 'urgent')",
        "select tuskline.schedule('work', p_ordering_key => 'a')",
        "select tuskline.schedule('work', p_unique_key => 'a')",
        "select tuskline.schedule('work', 'not json')",
        "select tuskline.schedule_many(array['work', 'nope'])",
        "select tuskline.schedule_many(array['work'], p_unique_keys => array['a'])",
        r#"select tuskline.schedule_chain('[{"lambda": "nope"}]')"#,
        "select tuskline.define_periodic('p', 'nope', '* * * * *')",
        "insert into tuskline.task (lambda) values ('nope')",
        &format!("insert into tuskline.task (lambda, id) values ('work', {})", db.id(70000)),
        "insert into tuskline.task (lambda, status) values ('work', 'dead')",
        "select tuskline.schedule('once', p_unique_key => 'a')",
        "select tuskline.schedule('once', p_unique_key => '')",
        "select tuskline.schedule_many(array['once'], p_unique_keys => array['a'])",
        "insert into tuskline.task (lambda, unique_key) values ('once', 'a')",
        "select tuskline.schedule('work', p_scheduled_at => now(), p_delay => '1 hour')",
        "select tuskline.define_lambda('new', p_max_attempts => 0)",
        "select tuskline.set_limit('work', p_max_concurrency => -1)",
        "select tuskline.start_operation('cancle', 'work')",
        "select tuskline.define_periodic('p', 'work', '* * * * *', p_missed => 'never')",
        r#"select tuskline.define('[{"lambda": "work", "max_attempts": 0}]')"#,
        "select tuskline.define('[]', 'first')",
    ] {
        let error = db.client.batch_execute(sql).await.unwrap_err();
        let said = error.as_db_error().unwrap();
        assert!(said.code().code().starts_with("TK"), "{sql}: {said}");
        let context = said.where_().unwrap();
        let begins = ["PL/pgSQL function ", "SQL statement \"", "SQL function "];
        let is_place = |line: &&str| begins.iter().any(|begin| line.starts_with(begin));
        let places = context.lines().filter(is_place).count();
        assert!((1..=3).contains(&places), "{sql}:\n{context}");
    }
    // The error for a misspelt lambda has three lines.
    for sql in [
        "select tuskline.schedule('wokr')",
        "select tuskline.schedule('wokr', p_delay => '1 hour')",
        "insert into tuskline.task (lambda) values ('wokr')",
        "select tuskline.set_unique('wokr', 'forever')",
    ] {
        let error = db.client.batch_execute(sql).await.unwrap_err();
        let context = error.as_db_error().unwrap().where_().unwrap();
        assert!(context.lines().count() <= 3, "{sql}:\n{context}");
    }
}

#[tokio::test]
async fn a_misspelt_lambda_is_told_the_name_that_is_meant() {
    let db = Db::with_lambda("send_email").await;
    db.run(
        "select tuskline.define_lambda(name) from unnest('{send_mails,resize,ab}'::text[]) name",
    )
    .await;
    for (name, near) in [
        ("send_emial", Some("send_email")),  // moved
        ("send_emai", Some("send_email")),   // missing
        ("send_emaill", Some("send_email")), // twice
        ("sand_email", Some("send_email")),  // another
        ("Resize", Some("resize")),          // no name at all
        ("send_mail", Some("send_email")),   // as near as send_mails
        ("receive_email", None),
        ("a", None),
    ] {
        let said = db.refused(&format!("select tuskline.schedule('{name}')")).await;
        let meant = near.map_or(String::new(), |near| format!("did you mean '{near}'? else "));
        let define = match name {
            "Resize" => "a name matches [a-z][a-z0-9_]{0,62}".to_owned(),
            name => format!("define it: select tuskline.define_lambda('{name}')"),
        };
        let expected =
            format!("TK001: TK001 unknown_lambda: '{name}' is not defined [{meant}{define}]");
        assert_eq!(said, expected);
    }
    // Every verb says it.
    for call in [
        "gate('send_emial', 'pause', p_reason => 'r')",
        "set_limit('send_emial', 1)",
        "set_unique('send_emial', 'forever')",
        "set_breaker('send_emial', 5)",
        "alter_lambda('send_emial')",
        "start_operation('cancel', 'send_emial')",
        "define_periodic('p', 'send_emial', '@daily')",
        "schedule_many(array['send_email', 'send_emial'])",
    ] {
        let said = db.refused(&format!("select tuskline.{call}")).await;
        assert!(said.contains("did you mean 'send_email'? else define it"), "{call}: {said}");
    }
}

#[tokio::test]
async fn the_sdk_names_the_row_that_it_refuses() {
    let db = Db::with_lambda("work").await;
    let client = within(Client::connect(&url(&db.config))).await.unwrap();
    let task = |lambda: &str| NewTask::new(lambda, &1);
    for (wrong, said) in [
        (task("Work"), r#"TK002 invalid_name: lambda must match [a-z][a-z0-9_]{0,62}, got "Work""#),
        (
            task("work").limit_key(""),
            "TK019 invalid_key: limit_key must have 1 to 256 bytes and no NUL, got 0",
        ),
        (
            task("work").unique_key("x".repeat(257)),
            "TK019 invalid_key: unique_key must have 1 to 256 bytes and no NUL, got 257",
        ),
    ] {
        let tasks = [task("work"), wrong.clone(), task("work")];
        let many = within(client.schedule_many(tasks)).await.unwrap_err();
        assert_eq!(many.to_string(), format!("{said} (row 2 of 3)"));
        let one = within(client.schedule_many([wrong.clone()])).await.unwrap_err();
        assert_eq!(one.to_string(), said, "there is one row");
        if said.contains("unique_key") {
            continue; // no task of a chain has one
        }
        let mut chain = Chain::new();
        chain.task(task("work"));
        chain.task(wrong);
        let chained = within(client.schedule_chain(&chain)).await.unwrap_err();
        assert!(chained.to_string().ends_with("_2, 2 of 2)"), "{chained}");
    }
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task").await, 0);
}
