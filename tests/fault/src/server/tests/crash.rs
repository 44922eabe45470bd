//! Crashes: what was acknowledged is there afterwards.

use super::*;

/// Rows that are acknowledged before and after each crash.
const ROWS: usize = 30;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_crash_keeps_what_was_acknowledged() {
    let site = Site::new().unwrap();
    let mut server = Server::create(&site, "crashed", &[("max_connections", "30")]).await.unwrap();
    assert_eq!(server.ask("postgres", "show fsync").await.unwrap(), "on");
    let ledger = Ledger::open(&server, 4).await;

    ledger.grow(ROWS).await;
    server.stop(Stop::Immediate).await.unwrap();
    assert!(!server.running());
    assert!(server.config("postgres").connect(tokio_postgres::NoTls).await.is_err());
    let immediate = server.start().await.unwrap();

    ledger.grow(ROWS).await;
    server.kill_postmaster().await;
    let killed = server.start().await.unwrap();

    ledger.grow(ROWS).await;
    let postmaster = server.postmaster_pid();
    let started = "select extract(epoch from pg_postmaster_start_time())::text";
    let before = server.ask("postgres", started).await.unwrap();
    let recoveries = recoveries(&server);
    server.kill_backend(fastrand::u64(..)).await.unwrap();
    until("a recovery by itself", || self::recoveries(&server) > recoveries).await;
    let by_itself = server.wait_until_answering(DEADLINE).await.unwrap();
    assert_eq!(server.postmaster_pid(), postmaster, "the postmaster lives on");
    assert_eq!(server.ask("postgres", started).await.unwrap(), before);

    ledger.grow(ROWS).await;
    ledger.close();
    let (acknowledged, lost) = (ledger.acknowledged(), ledger.lost_on(&server).await);
    eprintln!(
        "PostgreSQL {}: {acknowledged} acknowledged, {lost} lost; back after an immediate stop in \
         {immediate:?}, kill -9 of the postmaster {killed:?}, of a backend {by_itself:?}",
        server.version()
    );
    assert_eq!(lost, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_is_silent_until_thawed_and_forgets_nothing() {
    let site = Site::new().unwrap();
    let server = Server::create(&site, "frozen", &[]).await.unwrap();
    let ledger = Ledger::open(&server, 2).await;
    ledger.grow(ROWS).await;
    server.freeze();
    let silent = server.wait_until_answering(Duration::from_millis(500)).await;
    let still = ledger.acknowledged();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(silent.is_err() && ledger.acknowledged() == still, "nothing moves");
    server.thaw();
    server.wait_until_answering(DEADLINE).await.unwrap();
    ledger.grow(ROWS).await;
    ledger.close();
    assert_eq!(ledger.lost_on(&server).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_start_says_why() {
    let site = Site::new().unwrap();
    let settings = [("shared_preload_libraries", "nonsense")];
    let why = Server::create(&site, "broken", &settings).await.unwrap_err().to_string();
    assert!(why.contains("nonsense"), "{why}");
    assert!(Server::create(&site, "../up", &[]).await.is_err());
}

/// How often the log says that the server came out of a crash.
fn recoveries(server: &Server) -> usize {
    let log = std::fs::read_to_string(server.log()).unwrap();
    log.matches("all server processes terminated; reinitializing").count()
}
