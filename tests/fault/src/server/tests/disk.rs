//! Full disks. A full data disk is an error of the statement. A full disk of the WAL ends the
//! server until there is room again. Neither loses acknowledged commits.

use tokio_postgres::error::SqlState;

use super::*;

const MEGABYTE: u64 = 1024 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_data_disk_refuses_writes_and_the_server_stays_up() {
    let site = Site::new().unwrap();
    let Some(volume) = Volume::mount(&site, 128 * MEGABYTE).await.unwrap() else { return };
    let settings = [("autovacuum", "off")];
    let disk = Disk::Data(volume);
    let created = Server::create_on(&site, "data_full", &settings, disk, Clock::Machine).await;
    let server = created.unwrap();
    let ledger = Ledger::open(&server, 1).await;
    ledger.grow(20).await;
    ledger.close();
    let postmaster = server.postmaster_pid();
    let taken = server.volume().unwrap().fill().unwrap();
    assert!(taken > MEGABYTE, "there was room to take: {taken} bytes");

    for _ in 0..2 {
        let refused = grow_by(&server, 10_000).await.unwrap_err();
        assert_eq!(refused.code(), Some(&SqlState::DISK_FULL), "{refused}");
    }
    assert_eq!(server.postmaster_pid(), postmaster);
    assert!(server.running());
    assert_eq!(ledger.lost_on(&server).await, 0);

    server.volume().unwrap().free().unwrap();
    grow_by(&server, 1000).await.expect("there is room again");
    nothing_is_mounted_outside(&site);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_log_disk_ends_the_server_until_there_is_room() {
    let site = Site::new().unwrap();
    let Some(volume) = Volume::mount(&site, 24 * MEGABYTE).await.unwrap() else { return };
    let disk = Disk::Wal(volume);
    let created = Server::create_on(&site, "wal_full", &[], disk, Clock::Machine).await;
    let mut server = created.unwrap();
    let ledger = Ledger::open(&server, 2).await;
    ledger.grow(20).await;
    server.volume().unwrap().fill().unwrap();
    until("the end of the server", || !server.running()).await;
    let why = server.start().await.expect_err("it cannot recover without room").to_string();
    assert!(why.contains("No space left on device"), "{why}");

    server.volume().unwrap().free().unwrap();
    let back = server.start().await.unwrap();
    ledger.grow(20).await;
    ledger.close();
    let lost = ledger.lost_on(&server).await;
    eprintln!("{} acknowledged, {lost} lost; back in {back:?}", ledger.acknowledged());
    assert_eq!(lost, 0);
    nothing_is_mounted_outside(&site);
}

async fn grow_by(server: &Server, rows: i64) -> Result<u64, tokio_postgres::Error> {
    let session = server.session("postgres").await.unwrap();
    let insert = "insert into ledger select -row - extract(epoch from now())::bigint * 100000,
         repeat('x', 4000) from generate_series(1, $1::bigint) row";
    session.execute("alter table ledger alter filling set storage plain", &[]).await?;
    session.execute(insert, &[&rows]).await
}

fn nothing_is_mounted_outside(site: &Site) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(&site.root().display().to_string()));
}
