//! Steps of the database's wall clock in an open session.

use tokio_postgres::Client;

use super::*;

/// Well beyond what a slow machine adds to a few queries, in seconds.
const SLACK: f64 = 30.0;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_moves_the_wall_clock_of_an_open_session_and_no_other_clock() {
    let site = Site::new().unwrap();
    if !possible(&site, "steps of the database's clock") {
        return;
    }
    let created = Server::create_on(&site, "clock", &[], Disk::Plain, Clock::Stepped).await;
    let server = created.unwrap();
    let session = server.session("postgres").await.unwrap();
    let postmaster = server.postmaster_pid();

    for (seconds, offset) in [(-90, -90), (90, 0), (90, 90)] {
        let (wall, monotonic) = step_during_a_query(&server, &session, seconds).await;
        eprintln!("a step of {seconds} s: wall clock {wall:+.1} s, monotonic {monotonic:+.3} s");
        let expected = f64::from(i32::try_from(seconds).unwrap());
        assert!((wall - expected).abs() < SLACK, "the wall clock moved by {wall} s");
        assert!((0.0..SLACK).contains(&monotonic), "the monotonic clock moved by {monotonic} s");
        assert_eq!(server.clock_offset().unwrap(), offset);
    }

    assert_eq!((server.postmaster_pid(), server.running()), (postmaster, true));
    assert!(!session.is_closed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_machines_clock_is_not_ours_to_step() {
    let site = Site::new().unwrap();
    let server = Server::create(&site, "honest", &[]).await.unwrap();
    assert!(server.step_clock(90).is_err());
}

/// Steps the clock while the session waits for a lock in an `explain analyze`, which measures with
/// the backend's monotonic clock. Returns by how much each clock moved, in seconds.
async fn step_during_a_query(server: &Server, session: &Client, seconds: i64) -> (f64, f64) {
    let holder = server.session("postgres").await.unwrap();
    holder.execute("select pg_advisory_lock(1)", &[]).await.unwrap();
    let before = wall_clock(session).await;
    let measured = async {
        let query = "explain (analyze, timing, format json) select pg_advisory_xact_lock(1)";
        let row = session.query_one(query, &[]).await.unwrap();
        let plan: serde_json::Value = row.get(0);
        plan[0]["Execution Time"].as_f64().unwrap() / 1000.0
    };
    let stepped = async {
        let waits = "select count(*)::text from pg_locks where not granted";
        server.ask_until(waits, "1", DEADLINE).await.unwrap();
        server.step_clock(seconds).unwrap();
        holder.execute("select pg_advisory_unlock(1)", &[]).await.unwrap();
    };
    let (monotonic, ()) = tokio::join!(measured, stepped);
    (wall_clock(session).await - before, monotonic)
}

async fn wall_clock(session: &Client) -> f64 {
    let query = "select extract(epoch from clock_timestamp())::float8";
    session.query_one(query, &[]).await.unwrap().get(0)
}
