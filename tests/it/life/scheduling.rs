//! A task is accepted when the caller's transaction commits, and not otherwise, by every road.

use std::time::Duration;

use crate::support::{Db, tasks};

#[tokio::test]
async fn a_task_that_is_due_is_in_its_queue_when_the_caller_commits() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    let service = db.connect().await;
    service
        .batch_execute(
            "begin;
             select tuskline.schedule('work', '{\"n\": 1}');
             select tuskline.schedule_many(array['work', 'work']);
             insert into tuskline.task (lambda) values ('work');
             insert into tuskline.task (lambda) values ('work'), ('work')",
        )
        .await
        .unwrap();
    assert_eq!(worker.claim(10).await, [], "no worker sees it before");
    service.batch_execute("commit").await.unwrap();
    assert_eq!(worker.claim(10).await.len(), 6);
}

#[tokio::test]
async fn a_transaction_that_rolls_back_leaves_nothing() {
    let db = Db::with_lambda("work").await;
    db.run(
        "begin;
         select tuskline.schedule('work');
         select tuskline.schedule('work', p_delay => '1 hour');
         select tuskline.schedule_many(array['work'], p_delays => array[interval '1 hour']);
         insert into tuskline.task (lambda, scheduled_at) values ('work', null), ('work', now() + interval '1 hour');
         rollback",
    )
    .await;
    let left: i64 = db.one("select count(*) from tuskline.tasks").await;
    assert_eq!((left, db.queued().await, db.timers().await), (0, 0, 0));
}

#[tokio::test]
async fn ids_come_back_in_the_order_of_the_batch() {
    let db = Db::with_lambda("work").await;
    for delays in [
        "null",
        "array(select case when n % 3 = 0 then interval '1 hour' end from generate_series(1, 1000) n)",
    ] {
        let ids: Vec<i64> = db
            .one(&format!(
                "select tuskline.schedule_many(array_fill('work'::text, array[1000]),
                   array(select to_json(n) from generate_series(1, 1000) n),
                   array(select (array['critical', 'high', 'normal', 'low'])[1 + n % 4] from generate_series(1, 1000) n),
                   null, null, {delays})"
            ))
            .await;
        let payloads: Vec<i32> = db
            .client
            .query("select (t.payload #>> '{}')::integer from unnest($1::bigint[]) with ordinality i (id, n) join tuskline.task t using (id) order by n", &[&ids])
            .await
            .unwrap()
            .iter()
            .map(|row| row.get(0))
            .collect();
        assert_eq!(payloads, (1..=1000).collect::<Vec<_>>());
    }
}

/// The calls insert past the trigger, which routes the plain INSERT.
#[tokio::test]
async fn a_task_by_a_call_is_stored_as_one_by_an_insert() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    db.define("other").await;
    db.run(
        "create table public.wanted as
         select n, case when n % 3 = 0 then 'other' else 'work' end as lambda,
                case when n > 1 then to_json(repeat('x', n * n)) end as payload,
                (enum_range(null::tuskline.priority))[1 + n % 4]::text as priority,
                'c' || chr(96 + n) as collection,
                case when n % 2 = 0 then tuskline.clock() + (n - 5) * interval '1 hour' end as due,
                case when n > 4 then '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' end as trace
           from generate_series(1, 8) n",
    )
    .await;
    let mut stored = Vec::new();
    for way in [
        "insert into tuskline.task (lambda, payload, priority, collection, scheduled_at, traceparent)
         select lambda, payload, priority::tuskline.priority, collection, due, trace from public.wanted",
        "select tuskline.schedule(lambda, payload, priority, collection, due, p_traceparent => trace)
           from public.wanted order by n",
        "select tuskline.schedule_many(array_agg(lambda order by n), array_agg(payload order by n),
                  array_agg(priority order by n), array_agg(collection order by n),
                  array_agg(due order by n), p_traceparents => array_agg(trace order by n))
           from public.wanted",
        "select tuskline.schedule_many(array_agg(lambda order by n), array_agg(payload order by n),
                  array_agg(priority order by n), array_agg(collection order by n),
                  p_delays => array_agg(due - tuskline.clock() order by n),
                  p_traceparents => array_agg(trace order by n)) from public.wanted where n % 2 = 1 or n > 5",
    ] {
        db.empty().await;
        db.run(way).await;
        let rows = "select to_jsonb(t) - 'id' as task, d.queue_id, d.bytes, m.due, m.kind
                      from tuskline.task t left join tuskline.queued d on d.task_id = t.id
                           left join tuskline.timer m on m.task_id = t.id order by t.collection";
        stored.push(db.lines(rows).await);
    }
    assert_eq!(stored[0].len(), 8);
    assert_eq!(stored[1], stored[0]);
    assert_eq!(stored[2], stored[0]);
    assert_eq!(stored[3].len(), 6);
    assert!(stored[3].iter().all(|task| stored[0].contains(task)), "{:#?}", stored[3]);
}

#[tokio::test]
async fn a_batch_with_one_indirect_lambda_is_routed_row_by_row() {
    let db = Db::with_lambda("work").await;
    db.define_with("slow", "p_direct => false").await;
    let ids: Vec<i64> = db
        .one(
            "select tuskline.schedule_many(array['work', 'slow', 'work'],
               p_delays => array[null, null, interval '1 hour'])",
        )
        .await;
    let born: Vec<String> = db
        .client
        .query("select t.status::text from unnest($1::bigint[]) with ordinality i (id, n) join tuskline.task t using (id) order by n", &[&ids])
        .await
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(born, ["enqueued", "new", "new"]);
    assert_eq!((db.queued().await, db.timers().await), (1, 2));
}

#[tokio::test]
async fn one_statement_may_feed_forty_queues() {
    let db = Db::new().await;
    for number in 0..10 {
        db.define(&format!("work_{number}")).await;
    }
    db.run(
        "insert into tuskline.task (lambda, priority)
         select 'work_' || l, p from generate_series(0, 9) l, unnest(enum_range(null::tuskline.priority)) p, generate_series(1, 3)",
    )
    .await;
    let depths: Vec<i64> = db.all("select depth from tuskline.queues").await;
    assert_eq!(depths, [3; 40]);
    let wrong: i64 = db
        .one("select count(*) from tuskline.queued r join tuskline.task t on t.id = r.task_id join tuskline.queue q using (queue_id)
               where (q.lambda, q.priority) is distinct from (t.lambda, t.priority)")
        .await;
    assert_eq!(wrong, 0);
}

#[tokio::test]
async fn the_largest_batch_is_ten_thousand() {
    let db = Db::with_lambda("work").await;
    let ids = db.schedule_many("work", 10_000).await;
    assert_eq!((ids.len(), db.queued().await), (10_000, 10_000));
}

#[tokio::test]
async fn the_tasks_of_an_indirect_lambda_go_through_the_store_consumer() {
    let db = Db::new().await;
    db.pin().await;
    db.define_with("work", "p_direct => false").await;
    let id = db.schedule("work").await;
    db.run("insert into tuskline.task (lambda) values ('work')").await;
    db.schedule_many("work", 2).await;
    assert_eq!((db.status(id).await.as_str(), db.queued().await, db.timers().await), ("new", 0, 4));
    assert_eq!((db.enqueue_due().await, db.queued().await, db.timers().await), (4, 4, 0));
    assert_eq!(db.worker("work").await.claim(10).await.len(), 4);
    db.run("select tuskline.alter_lambda('work', p_direct => true)").await;
    let id = db.schedule("work").await;
    assert_eq!(db.status(id).await, "enqueued");
}

#[tokio::test]
async fn a_statement_leaves_the_settings_of_its_transaction_as_they_were() {
    let db = Db::with_lambda("work").await;
    let settings = "select array_agg(name || ' ' || setting order by name)::text from pg_settings
                     where name like 'enable_%' or name = 'jit'";
    db.run("begin; set local enable_hashjoin = off").await;
    let before: String = db.one(settings).await;
    db.run("insert into tuskline.task (lambda) values ('work'), ('work')").await;
    assert_eq!(db.one::<String>(settings).await, before);
    db.run("commit").await;
}

#[tokio::test]
async fn urgent_tasks_are_claimed_first_and_each_queue_in_order_of_arrival() {
    let db = Db::with_lambda("work").await;
    let mut expected = Vec::new();
    for (rank, priority) in
        [(3, "low"), (0, "critical"), (2, "normal"), (1, "high"), (0, "critical")]
    {
        let id: i64 = db.ask("select tuskline.schedule('work', null, $1)", &[&priority]).await;
        expected.push((rank, id));
    }
    expected.sort_unstable();
    let worker = db.worker("work").await;
    let mut claimed = Vec::new();
    for _ in 0..5 {
        let task = worker.take().await;
        claimed.push((task.queue, task.id));
    }
    assert_eq!(claimed, expected);
}

#[tokio::test]
async fn the_queues_of_one_lambda_share_its_budget() {
    let db = Db::with_lambda("work").await;
    db.define("other").await;
    db.run("insert into tuskline.task (lambda, priority) select l, p from unnest(array['work', 'other']) l, unnest(enum_range(null::tuskline.priority)) p, generate_series(1, 5)").await;
    let worker = db.worker_with(&["work", "other"], Duration::from_secs(20)).await;
    let groups = vec![1_i16, 1, 1, 1, 2, 2, 2, 2];
    let row = worker
        .client
        .query_one(
            "select * from tuskline.claim($1, $2, array_fill(0::bigint, array[8]), $3, array[7, 3])",
            &[&worker.executor, &worker.queues, &groups],
        )
        .await
        .unwrap();
    let mut per_queue = [0; 8];
    tasks(&row).iter().for_each(|task| per_queue[task.queue] += 1);
    assert_eq!(per_queue, [5, 2, 0, 0, 3, 0, 0, 0]);
}

#[tokio::test]
async fn a_payload_arrives_as_it_was_given() {
    let db = Db::with_lambda("work").await;
    let payloads = [
        "null",
        "{}",
        "[1, 2.50, 1e400]",
        "{\"a\":1, \"a\":2}",
        "\"\u{1f600} \\ud83d\\ude00\"",
        "\"\\\\u0000\"",
    ];
    for payload in payloads {
        db.ask::<i64>("select tuskline.schedule('work', $1::text::json)", &[&payload]).await;
    }
    db.schedule("work").await;
    db.enqueue_due().await;
    let worker = db.worker("work").await;
    let row = worker.claim_by(&worker.client, 10, 0).await.unwrap();
    let ids: Vec<i64> = row.get("task_id");
    let mut got: Vec<Option<String>> = Vec::new();
    for id in ids {
        got.push(db.ask("select payload::text from tuskline.task where id = $1", &[&id]).await);
    }
    let expected: Vec<_> =
        payloads.iter().map(|payload| Some((*payload).to_owned())).chain([None]).collect();
    assert_eq!(got, expected);
}

#[tokio::test]
async fn defining_a_lambda_again_changes_nothing_and_altering_it_changes_what_was_named() {
    let db = Db::with_lambda("work").await;
    let again: bool = db.one("select tuskline.define_lambda('work', p_max_attempts => 1)").await;
    assert!(!again);
    assert_eq!(db.one::<i16>("select max_attempts from tuskline.lambda").await, 20);
    let before = db.lines("select * from tuskline.lambda").await;
    db.run("select tuskline.alter_lambda('work', p_max_attempts => 7)").await;
    let changed: Vec<String> = db.all("select key from jsonb_each((select to_jsonb(l) - 'altered_at' from tuskline.lambda l)) where key = 'max_attempts' and value = '7'").await;
    assert_eq!(changed, ["max_attempts"]);
    assert_ne!(db.lines("select * from tuskline.lambda").await, before);
    assert_eq!(
        db.all::<String>("select verb from tuskline.audit order by at").await,
        ["define_lambda", "alter_lambda"]
    );
}

#[tokio::test]
async fn two_sessions_that_define_one_lambda_make_its_queues_once() {
    let db = Db::new().await;
    let (one, two) = (db.connect().await, db.connect().await);
    let define = "select tuskline.define_lambda('work')";
    let (one, two) = tokio::join!(one.query_one(define, &[]), two.query_one(define, &[]));
    assert!(one.unwrap().get::<_, bool>(0) ^ two.unwrap().get::<_, bool>(0));
    assert_eq!(db.one::<i64>("select count(*) from tuskline.queue").await, 4);
}

#[tokio::test]
async fn a_payload_is_measured_as_it_is_written_not_as_a_table_stores_it() {
    let db = Db::new().await;
    db.define_with("work", "p_max_payload_bytes => 1000").await;
    db.run("create table public.source as select to_json(repeat('x', 50000)) as payload").await;
    for call in [
        "insert into tuskline.task (lambda, payload) select 'work', payload from public.source",
        "select tuskline.schedule('work', payload) from public.source",
        "select tuskline.schedule_many(array['work'], array_agg(payload)) from public.source",
    ] {
        let answer = db.refused(call).await;
        assert!(answer.contains("payload_too_large: at most 1000 bytes, got 50002"), "{answer}");
    }
}

/// The route of a row, straight into its queue or by the store consumer, is decided once. The
/// statement waits for the table of the first row's queue; meanwhile the other rows' lambda
/// changes.
#[tokio::test]
async fn a_lambda_that_changes_while_a_batch_is_routed_strands_none_of_its_rows() {
    for (way, before, after, waits_in) in [
        ("insert", "false", "true", "timer"),
        ("insert", "true", "false", "queued"),
        ("call", "false", "true", "timer"),
        ("call", "true", "false", "queued"),
    ] {
        let db = Db::with_lambda("first").await;
        db.define_with("second", &format!("p_direct => {before}")).await;
        let (service, owner) = (db.connect().await, db.connect().await);
        let queue = db.queue("first", "normal").await;
        owner
            .batch_execute(&format!("begin; lock tuskline_core.queue_{queue} in share mode"))
            .await
            .unwrap();
        let pid: i32 = service.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
        let changes = async {
            db.until_blocked(pid).await;
            db.run(&format!("select tuskline.alter_lambda('second', p_direct => {after})")).await;
            owner.batch_execute("commit").await.unwrap();
        };
        // The last is due later: what is queued is not all, in either case.
        let sql = match way {
            "insert" => "insert into tuskline.task (lambda, scheduled_at)
                   values ('first', null), ('second', null), ('second', null), ('first', now() + interval '1 hour')",
            _ => "select tuskline.schedule_many(array['first', 'second', 'second', 'first'],
                   p_delays => array[null, null, null, interval '1 hour'])",
        };
        let (scheduled, ()) = tokio::join!(service.batch_execute(sql), changes);
        scheduled.unwrap();
        let found: Vec<String> = db
            .lines(
                "select t.lambda, case when q.task_id is not null then 'queued' end, case when r.task_id is not null then 'timer' end
                   from tuskline.task t left join tuskline.queued q on q.task_id = t.id left join tuskline.timer r on r.task_id = t.id
                  order by t.id >> 50, t.id",
            )
            .await;
        let second = match waits_in {
            "timer" => "second | - | timer",
            _ => "second | queued | -",
        };
        assert_eq!(found, ["first | queued | -", second, second, "first | - | timer"]);
    }
}

/// Else a low-water mark may pass these rows: it waits for transactions that have a number.
#[tokio::test]
async fn a_call_has_its_number_before_it_draws_those_of_queue_rows() {
    let db = Db::with_lambda("work").await;
    let queue = db.queue("work", "normal").await;
    db.run(&format!(
        "create function tuskline.has_number() returns trigger language plpgsql as
           $$ begin assert pg_current_xact_id_if_assigned() is not null; return new; end $$;
         create trigger has_number before insert on tuskline_core.queue_{queue}
           for each row execute function tuskline.has_number()"
    ))
    .await;
    for call in [
        "schedule('work')",
        "schedule_many('{work,work}')",
        "schedule_many('{work,work}', p_delays => array[null, interval '1 hour'])",
        "schedule_many('{work,work}', p_unique_keys => '{null,null}')",
    ] {
        // Once in 32 calls, the sequence of the ids writes to the log and so gives the number.
        for _ in 0..3 {
            db.run(&format!("select tuskline.{call}")).await;
        }
    }
    assert_eq!(db.queued().await, 18, "all that are due now");
}
