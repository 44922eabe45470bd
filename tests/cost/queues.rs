//! The cost of a claim over many queues: pages of a look into an empty one and of two tasks in a full
//! one, and the memory that a session takes for each queue.

use serde_json::Value;
use tokio_postgres::{Client, NoTls};

/// Lambdas, and queues of each.
const LAMBDAS: i32 = 20;
const PRIORITIES: i32 = 4;

/// Most pages of a look, most pages of two tasks that are claimed, and most memory of a queue in KiB.
const LOOK: f64 = 1.1;
const TWO_TASKS: f64 = 60.0;
const QUEUE_KIB: f64 = 130.0;

struct Worker {
    client: Client,
    executor: i64,
}

impl Worker {
    /// The pages of a claim, and its tasks.
    async fn claim(&self, queues: &[i32]) -> (f64, i64) {
        let (executor, count) = (self.executor, queues.len());
        let sql = format!(
            "explain (analyze, buffers, timing off, format json)
             select tuskline.claim({executor}, array{queues:?}, array_fill(0::bigint, array[{count}]),
               array(select g::smallint from generate_series(1, {count}) as g),
               array_fill(32, array[{count}]))"
        );
        let claimed = "select count(*) from tuskline.task where status = 'claimed'";
        let before: i64 = self.client.query_one(claimed, &[]).await.unwrap().get(0);
        let plan: Value = self.client.query_one(&sql, &[]).await.unwrap().get(0);
        let after: i64 = self.client.query_one(claimed, &[]).await.unwrap().get(0);
        let count = |name: &str| plan[0]["Plan"][name].as_f64().unwrap();
        (count("Shared Hit Blocks") + count("Shared Read Blocks"), after - before)
    }

    /// The same for the cheapest of some claims, each of two tasks from each of `full`.
    async fn cheapest(&self, full: &[i32], empty: &[i32]) -> f64 {
        let mut least = f64::INFINITY;
        for _ in 0..10 {
            self.fill(full).await;
            let (pages, tasks) = self.claim(&[full, empty].concat()).await;
            assert_eq!(tasks, 2 * i64::try_from(full.len()).unwrap());
            least = least.min(pages);
        }
        least
    }

    async fn fill(&self, queues: &[i32]) {
        let fill = format!(
            "select tuskline.schedule_many(array_agg(q.lambda), p_priorities => array_agg(q.priority::text))
               from tuskline.queue q cross join generate_series(1, 2)
              where q.queue_id = any (array{queues:?}::integer[]) having count(*) > 0"
        );
        self.client.batch_execute(&fill).await.unwrap();
    }

    async fn memory_kib(&self) -> f64 {
        let sum = "select sum(total_bytes)::float8 / 1024 from pg_backend_memory_contexts";
        self.client.query_one(sum, &[]).await.unwrap().get(0)
    }
}

#[tokio::test]
async fn a_claim_over_many_queues_costs_no_more_than_its_bound() {
    let _alone = super::ALONE.lock().await;
    let server = super::server().await;
    let address = tuskline_sdk::Address::from(server.config("postgres"));
    tuskline::migrate::migrate(&address).await.unwrap();
    let (client, connection) = server.config("postgres").connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    let lambdas = format!(
        "select count(tuskline.define_lambda('work_' || n)) from generate_series(1, {LAMBDAS}) n"
    );
    client.batch_execute(&lambdas).await.unwrap();
    let register = "select tuskline.register_executor('host', 1, array(select name from tuskline.lambda), '0.1.0', '1 hour')";
    let executor = client.query_one(register, &[]).await.unwrap().get(0);
    let worker = Worker { client, executor };

    let queues: Vec<i32> = (1..=LAMBDAS * PRIORITIES).collect();
    let (full, empty) = queues.split_at(20);
    let (few, many) = (&empty[..8], &empty[..48]);
    worker.cheapest(few, &[]).await;
    let before = worker.memory_kib().await;
    let rest: Vec<i32> = queues.iter().copied().filter(|queue| !few.contains(queue)).collect();
    worker.cheapest(&rest, &[]).await;
    let kib = (worker.memory_kib().await - before) / f64::from(u32::try_from(rest.len()).unwrap());

    let looks = worker.cheapest(&[], many).await;
    let look = (looks - worker.cheapest(&[], few).await) / 40.0;
    let two_tasks = (worker.cheapest(full, many).await - looks) / 20.0;
    let found = format!(
        "{look:.2} pages a look, bound {LOOK}; {two_tasks:.1} for two tasks, bound {TWO_TASKS}; {kib:.0} KiB a queue, bound {QUEUE_KIB}"
    );
    println!("{found}");
    assert!(look <= LOOK && two_tasks <= TWO_TASKS && kib <= QUEUE_KIB, "{found}");
}
