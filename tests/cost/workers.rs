//! An idle worker holds few threads, descriptors and bytes for each lambda, as the kernel counts them.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio_postgres::{Client, NoTls};
use tuskline_postgres::Cluster;

/// KiB of memory for an idle lambda with 32 slots. Measured: 7. A slot that waits as a future takes 600.
const KIB_PER_LAMBDA: u64 = 60;
const LAMBDAS: u64 = 100;
const PATIENCE: Duration = Duration::from_secs(120);

/// A worker process, killed with its test.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Descriptors, threads and KiB of memory of a worker that has so many lambdas and no task.
async fn idle(server: &Cluster, client: &Client, lambdas: u64) -> (usize, u64, u64) {
    let names = (0..lambdas).flat_map(|n| ["--lambda".to_owned(), format!("idle_{n}")]);
    let worker = Command::new(env!("CARGO_BIN_EXE_tuskline-bench"))
        .args(["--database-url", &server.url("postgres"), "worker"])
        .args(["--database", "postgres", "--part", "noop"])
        .args(names)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let worker = Worker(worker);
    let pid = worker.0.id();
    let asleep = format!(
        "select count(*) >= least({lambdas} * 4, 256) from pg_locks k join tuskline.executor e on e.pid = {pid}
          where k.locktype = 'advisory' and k.mode = 'ExclusiveLock' and k.granted"
    );
    let deadline = Instant::now() + PATIENCE;
    while !client.query_one(&asleep, &[]).await.unwrap().get::<_, bool>(0) {
        assert!(Instant::now() < deadline, "it sleeps in time");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let fields: BTreeMap<_, _> = status.lines().filter_map(|line| line.split_once(':')).collect();
    let number = |name| fields[name].split_whitespace().next().unwrap().parse().unwrap();
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    (descriptors, number("Threads"), number("VmRSS"))
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_idle_lambda_costs_a_worker_neither_threads_nor_descriptors_and_little_memory() {
    let _alone = super::ALONE.lock().await;
    let server = super::server().await;
    let config = server.config("postgres");
    tuskline::migrate::migrate(&tuskline_sdk::Address::from(config.clone())).await.unwrap();
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    for first in (0..LAMBDAS).step_by(20) {
        let define = format!(
            "select tuskline.define_lambda('idle_' || n)
               from generate_series({first}, {first} + 19) as n"
        );
        client.batch_execute(&define).await.unwrap();
    }
    let (one, many) = (idle(&server, &client, 1).await, idle(&server, &client, LAMBDAS).await);
    let kib = many.2.saturating_sub(one.2) / (LAMBDAS - 1);
    println!("one lambda: {one:?}; {LAMBDAS}: {many:?}; KiB for each lambda: {kib}");
    // A worker of many queues may open one exchange connection more.
    assert!(many.0 <= one.0 + 4, "{} descriptors", many.0);
    assert!(many.1 <= one.1 + 4, "{} threads", many.1);
    assert!(kib <= KIB_PER_LAMBDA, "{kib} KiB for each lambda");
}
