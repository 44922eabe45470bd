//! A synchronous standby: nothing acknowledged is lost with the primary.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promotion_after_the_primary_was_killed_loses_nothing() {
    let site = Site::new().unwrap();
    fail_over_by_kill(&site).await;
}

/// As with binaries that have no pg_basebackup.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_copied_by_hand_loses_nothing_either() {
    let site = Site::new().unwrap().without_base_backup();
    assert_eq!(site.tools().pg_basebackup, None);
    fail_over_by_kill(&site).await;
}

async fn fail_over_by_kill(site: &Site) {
    let mut primary = Server::create(site, "primary", &[]).await.unwrap();
    let ledger = Ledger::open(&primary, 4).await;
    ledger.grow(20).await;
    let mut standby = primary.standby(site, "standby").await.unwrap();
    assert!(
        standby.session("postgres").await.unwrap().execute("create table t ()", &[]).await.is_err()
    );
    ledger.grow(100).await;
    primary.kill_postmaster().await;
    let promoted = standby.promote().await.unwrap();
    ledger.close();
    let (acknowledged, lost) = (ledger.acknowledged(), ledger.lost_on(&standby).await);
    eprintln!(
        "PostgreSQL {}: {acknowledged} acknowledged, {lost} lost; promoted in {promoted:?}",
        primary.version()
    );
    assert_eq!(lost, 0);
    write(&standby).await.expect("the new primary takes writes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thawed_old_primary_acknowledges_nothing_after_the_promotion() {
    let site = Site::new().unwrap();
    let primary = Server::create(&site, "old", &[]).await.unwrap();
    let mut standby = primary.standby(&site, "new").await.unwrap();
    let ledger = Ledger::open(&primary, 2).await;
    ledger.grow(20).await;
    primary.freeze();
    standby.promote().await.unwrap();
    primary.thaw();
    primary.wait_until_answering(DEADLINE).await.expect("the old primary answers reads");
    let since_thawed = ledger.acknowledged();
    assert!(write(&primary).await.is_err(), "it must not acknowledge a write of its own");
    ledger.close();
    eprintln!("{} acknowledged, of them {since_thawed} by the thaw", ledger.acknowledged());
    assert_eq!(ledger.lost_on(&standby).await, 0);
    write(&standby).await.expect("the new primary takes writes");
}

/// A write that is acknowledged within two seconds.
async fn write(server: &Server) -> Result<()> {
    let session = server.session("postgres").await?;
    let insert = session.execute("insert into ledger values (-1, '')", &[]);
    tokio::time::timeout(Duration::from_secs(2), insert).await??;
    Ok(())
}
