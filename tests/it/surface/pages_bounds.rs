//! The reading of the pages is bounded: a part that is left out is said, and a short part is exact.
//! `tests/cost/large.rs` counts the buffers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpListener;
use tuskline::pages::{Access, Options};

use crate::support::pages::Pages;
use crate::support::{Db, get, served_pages, within};

/// The facts of a page.
async fn facts(pages: &Pages, path: &str) -> Value {
    let joint = if path.contains('?') { '&' } else { '?' };
    pages.get(&format!("{path}{joint}format=json"), &[]).await.json()
}

/// Pages that read as the owner of the database.
async fn pages(db: &Db) -> Pages {
    let role = db.one("select current_user::text").await;
    Pages::of(db, Access { role, ..Access::default() }, "").await
}

#[tokio::test]
async fn the_hour_of_a_lambda_is_that_of_the_view() {
    let db = Db::with_lambda("work").await;
    db.pin().await;
    let worker = db.worker_with(&["work"], Duration::from_secs(3_600)).await;
    for minute in 1..=5 {
        // Successes, failures, starts within 250 ms and runs within 5 ms, in two queues.
        db.run(&format!(
            "select tuskline.report_attempts({}, array_agg(q.queue_id),
                      array_agg(c.counter::smallint), array_agg(c.amount * {minute}))
               from tuskline.queue q
                    cross join (values (1, 30), (2, 2), (100, 3200), (106, 32), (200, 64), (201, 32))
                      as c (counter, amount)
              where q.lambda = 'work' and q.priority in ('normal', 'low');
             select tuskline.fold_statistics()",
            worker.executor
        ))
        .await;
        db.advance(Duration::from_secs(60)).await;
    }
    let of_view = "select s.at,
               sum(s.success + s.retriable_failure + s.fatal_failure + s.crashed)::bigint,
               sum(s.retriable_failure + s.fatal_failure + s.crashed)::bigint,
               max(s.start_p95_ms)::bigint
          from tuskline.queue_statistics s
         where s.lambda = 'work' and s.at > tuskline.clock() - interval '1 hour'
         group by s.at order by s.at";
    let of_view = db.lines(of_view).await;
    assert!(of_view.len() >= 4, "{of_view:?}");
    assert_eq!(db.lines("select * from tuskline.lambda_hour('work')").await, of_view);
    db.advance(Duration::from_secs(3_600)).await;
    let hour = db.lines("select * from tuskline.lambda_hour('work')").await;
    assert_eq!(hour, [""; 0], "it is over");
}

#[tokio::test]
async fn a_queue_that_is_not_read_has_the_depth_of_the_statistics() {
    let db = Db::new().await;
    db.pin().await;
    let lambdas: Vec<String> = (0..6).map(|n| format!("work_{n}")).collect();
    for lambda in &lambdas {
        db.define(lambda).await;
        db.run(&format!("select tuskline.schedule('{lambda}') from generate_series(1, 3)")).await;
    }
    let fresh = db.connect().await;
    fresh.batch_execute("select pg_stat_force_next_flush()").await.unwrap();
    db.run("select pg_stat_force_next_flush()").await;
    let sums = "select sum(depth), count(head_seq), count(oldest_ms) from tuskline.queue_gauges";
    let all = db.lines(&format!("{sums}()")).await;
    assert_eq!(all, ["18 | 6 | 6"]);
    let read = "select count(head_seq) from tuskline.queue_gauges(p_probes => 2)";
    let read: i64 = db.one(read).await;
    assert!((2..=3).contains(&read), "two, and one in 64 of the remaining: {read}");
    let depth = "select sum(depth)::bigint >= 6 from tuskline.queue_gauges(p_probes => 2)";
    assert!(db.one::<bool>(depth).await);
}

#[tokio::test]
async fn the_waiters_of_a_limit_are_counted_to_a_bound() {
    let db = Db::with_lambda("work").await;
    let worker = db.worker("work").await;
    db.run("select tuskline.set_limit('work', 2)").await;
    db.run("select tuskline.schedule('work') from generate_series(1, 14)").await;
    db.enqueue_due().await;
    let counts = "select held, more_held, waiting, more_waiting from tuskline.limit_gauges";
    assert_eq!(db.lines(&format!("{counts}()")).await, ["2 | false | 12 | false"]);
    assert_eq!(db.lines(&format!("{counts}(p_rows => 10)")).await, ["2 | false | 10 | true"]);
    assert_eq!(db.lines(&format!("{counts}('other')")).await, [""; 0]);
    let pages = pages(&db).await;
    let plain = |field: &Value| field.to_string().trim_matches('"').to_owned();
    for path in ["/waits", "/lambdas/work"] {
        let limit = &facts(&pages, path).await["limits"][0];
        assert_eq!(
            [plain(&limit["held"]), plain(&limit["waiting"])],
            ["2", "12"],
            "{path}: {limit}"
        );
    }
    // The page says what the verb for autoscalers says.
    let scale = &facts(&pages, "/lambdas/work").await["scale"];
    let verb = "select concat_ws(' ', wanted, workers, because) from tuskline.scale('work')";
    let of_page = ["wanted", "workers", "because"].map(|field| plain(&scale[field]));
    assert_eq!(of_page.join(" "), db.one::<String>(verb).await);
    drop(worker);
    pages.end().await;
}

#[tokio::test]
async fn a_task_far_behind_says_that_ten_thousand_are_ahead() {
    let db = Db::with_lambda("work").await;
    db.run(
        "select tuskline.schedule_many(array_fill('work'::text, array[1000])) from generate_series(1, 10);
         select tuskline.schedule_many('{work,work}')",
    )
    .await;
    let detail = async |order: &str| -> String {
        let sql = format!(
            "select e.detail from (select task_id from tuskline.queued order by seq {order} limit 1) q
                    cross join lateral tuskline.explain(q.task_id) e where e.reason = 'ahead'"
        );
        db.one(&sql).await
    };
    assert_eq!(detail("asc").await, "0 ahead in its queue, 0 of higher priority");
    assert_eq!(detail("desc").await, "10000 or more ahead in its queue, 0 of higher priority");
}

#[tokio::test]
async fn a_long_list_goes_on_behind_its_last_row() {
    let db = Db::with_lambda("work").await;
    db.run(
        "select tuskline.define_periodic('tick_' || lpad(n::text, 3, '0'), 'work', '30 2 * * *')
           from generate_series(1, 201) n;
         select tuskline.schedule_chain((
           select json_agg(json_build_object('name', 's' || n, 'lambda', 'work', 'after',
                    case when n > 1 then json_build_array('s' || n - 1) else '[]' end) order by n)
             from generate_series(1, 151) n)::text)",
    )
    .await;
    let first: i64 = db.one("select min(task_id) from tuskline.chain_tasks").await;
    let pages = pages(&db).await;
    for (path, rows, most) in
        [("/periodic".to_owned(), "schedules", 200), (format!("/chains/{first}"), "tasks", 150)]
    {
        let page = pages.get(&path, &[]).await;
        let link = page.body.split("?after=").nth(1).unwrap().split('"').next().unwrap();
        let begin = facts(&pages, &path).await;
        assert_eq!(begin[rows].as_array().unwrap().len(), most, "{path}");
        let rest = facts(&pages, &format!("{path}?after={link}")).await;
        assert_eq!(rest[rows].as_array().unwrap().len(), 1, "{path}?after={link}: {rest}");
    }
    pages.end().await;
}

/// An address that cuts each connection.
async fn no_database() -> (tokio_postgres::Config, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = tokio_postgres::Config::new();
    config.host("127.0.0.1").port(listener.local_addr().unwrap().port()).user("x").dbname("x");
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    (config, tries)
}

#[tokio::test]
async fn a_hundred_open_pages_ask_a_database_that_is_away_once() {
    let mut db = Db::new().await;
    let (config, tries) = no_database().await;
    db.config = config;
    let (address, token, serving) = served_pages(&db, Options::default()).await;
    let answers = futures_util::future::join_all((0..100).map(|_| get(address, "/lambdas"))).await;
    assert!(answers.iter().all(|answer| answer.contains(" 503 ")), "{}", answers[0]);
    let tries = tries.load(Ordering::Relaxed);
    assert!(tries <= 5, "{tries} tries for a hundred pages");
    token.cancel();
    within(serving).await.unwrap();
}

#[tokio::test]
async fn after_a_slow_reading_the_pages_rest_for_half_a_minute() {
    let db = Db::with_lambda("work").await;
    db.run(
        "alter function tuskline.wait_gauges rename to quick_wait_gauges;
         create function tuskline.wait_gauges(p_rows integer default 1000)
         returns table (lambda text, cause text, tasks bigint, and_more boolean, estimate bigint,
                        oldest_ms bigint) language plpgsql as $$
         begin
           perform pg_sleep(0.03);
           return query select * from tuskline.quick_wait_gauges(p_rows);
         end $$",
    )
    .await;
    let pages = pages(&db).await;
    let answer = pages.get("/lambdas", &[]).await;
    assert_eq!((answer.status, answer.header("tuskline-every")), (200, Some("30")), "{answer:?}");
    pages.end().await;
}
