//! Writers that note what was acknowledged to them, and the question whether it is still there.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, NoTls};

use super::super::Server;
use super::until;

/// Some writers of one table, from its making to the count.
pub struct Ledger {
    shared: Arc<Shared>,
    writers: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    next: AtomicI64,
    acknowledged: Mutex<Vec<i64>>,
    closed: AtomicBool,
}

impl Shared {
    fn acknowledged(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }
}

impl Ledger {
    /// Makes the table and lets `writers` write, one row a commit, whatever becomes of the server.
    pub async fn open(server: &Server, writers: usize) -> Self {
        let session = server.session("postgres").await.unwrap();
        let table = "create table ledger (id bigint primary key, filling text)";
        session.batch_execute(table).await.unwrap();
        let shared = Arc::<Shared>::default();
        let config = server.config("postgres");
        let writer = |_| tokio::spawn(write(config.clone(), Arc::clone(&shared)));
        let writers = (0..writers).map(writer).collect();
        Self { shared, writers }
    }

    /// Waits for this many more acknowledged rows.
    pub async fn grow(&self, rows: usize) {
        let wanted = self.shared.acknowledged() + rows;
        until("acknowledged rows", || self.shared.acknowledged() >= wanted).await;
    }

    /// How many rows have been acknowledged.
    pub fn acknowledged(&self) -> usize {
        self.shared.acknowledged()
    }

    /// Ends the writers without asking the server anything.
    pub fn close(&self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.writers.iter().for_each(JoinHandle::abort);
    }

    /// Acknowledged rows that a server does not have.
    pub async fn lost_on(&self, server: &Server) -> usize {
        let session = server.session("postgres").await.unwrap();
        let rows = session.query("select id from ledger", &[]).await.unwrap();
        let there: HashSet<i64> = rows.iter().map(|row| row.get(0)).collect();
        let acknowledged = self.shared.acknowledged.lock().unwrap();
        acknowledged.iter().filter(|id| !there.contains(*id)).count()
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.close();
    }
}

async fn write(config: Config, shared: Arc<Shared>) {
    while !shared.closed.load(Ordering::SeqCst) {
        if let Ok((client, connection)) = config.connect(NoTls).await {
            let driven = tokio::spawn(connection);
            write_until_refused(&client, &shared).await;
            driven.abort();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// An outcome that never comes is noted nowhere: the row may be there or not.
async fn write_until_refused(client: &Client, shared: &Shared) {
    let insert = "insert into ledger select $1, repeat(md5(random()::text), 32)";
    loop {
        let id = shared.next.fetch_add(1, Ordering::SeqCst);
        match client.execute(insert, &[&id]).await {
            Ok(_) => shared.acknowledged.lock().unwrap().push(id),
            Err(_) => return,
        }
    }
}
