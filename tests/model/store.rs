//! The store under test: one database for many cases, the sessions of the actors, and what the
//! model's names are called there.

use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::Client;

use crate::sight::{BASE, Eye, Sight};
use crate::state::{ExecutorNo, LeaseNo, State, TaskNo};
use crate::support::Db;

/// Takes everything out that a case put in, and stops the clock at the start.
const EMPTY: &str = "
    delete from tuskline.task;
    delete from tuskline.queued;
    delete from tuskline.timer;
    delete from tuskline.lease;
    delete from tuskline.cancellation;
    delete from tuskline.task_failure;
    delete from tuskline.task_output;
    delete from tuskline.executor; delete from tuskline_core.live_executor;
    delete from tuskline.audit;
    insert into tuskline_core.queues_complete (since) values (now()) on conflict do nothing;
    do $$ declare q integer; begin
      for q in select queue_id from tuskline.queue where lambda = 'late' loop
        execute format('drop table tuskline_core.%I', 'queue_' || q);
      end loop;
      delete from tuskline.queue where lambda = 'late';
      delete from tuskline.lambda where name = 'late';
    end $$;
    select tuskline.alter_lambda('work', p_max_attempts => 3, p_max_crashes => 3,
      p_retry_base => '2 s', p_retry_cap => '60 s', p_attempt_timeout => '300 s', p_direct => true);
    select tuskline.alter_lambda('mail', p_max_attempts => 2, p_max_crashes => 2,
      p_retry_base => '2 s', p_retry_cap => '60 s', p_attempt_timeout => '300 s', p_direct => false);
    delete from tuskline.audit";

/// The real numbers behind the model's names.
#[derive(Default)]
pub struct Names {
    pub tasks: BTreeMap<TaskNo, i64>,
    pub executors: BTreeMap<ExecutorNo, i64>,
    pub leases: BTreeMap<LeaseNo, i64>,
    /// The highest fence ever issued, in this case or before.
    pub last_fence: i64,
}

impl Names {
    pub fn task(&self, id: i64) -> TaskNo {
        *self.tasks.iter().find(|(_, known)| **known == id).expect("a task of this case").0
    }

    pub fn lease(&self, id: i64) -> LeaseNo {
        *self.leases.iter().find(|(_, known)| **known == id).expect("a lease of this case").0
    }

    /// Fences only grow.
    pub fn issue(&mut self, no: LeaseNo, fence: i64) {
        assert!(fence > self.last_fence, "fence {fence} after {}", self.last_fence);
        self.last_fence = fence;
        self.leases.insert(no, fence);
    }
}

/// A database and its sessions.
pub struct Store {
    pub db: Db,
    pub clients: Vec<Client>,
    pub executors: Vec<Client>,
    pub consumers: Vec<Client>,
    pub operator: Client,
    pub names: Names,
    eye: Eye,
}

impl Store {
    /// A database of its own, in which some harm was done.
    pub async fn new(harm: &str) -> Self {
        let db = Db::new().await;
        db.define("work").await;
        db.define("mail").await;
        db.run(harm).await;
        let mut sessions = Vec::new();
        for _ in 0..8 {
            sessions.push(db.connect().await);
        }
        let eye = Eye::new(&db.client).await;
        Self {
            operator: sessions.remove(0),
            clients: sessions.drain(..2).collect(),
            consumers: sessions.drain(..2).collect(),
            executors: sessions,
            names: Names::default(),
            eye,
            db,
        }
    }

    /// Ready for the next case.
    pub async fn empty(&mut self) {
        let sql = format!("{EMPTY}; update tuskline_test.pin set at = {BASE}");
        self.db.run(&sql).await;
        self.names = Names { last_fence: self.names.last_fence, ..Names::default() };
    }

    pub async fn look(&self) -> Sight {
        self.eye.look(&self.db.client).await
    }

    /// The tasks of which the model knows that something was taken from them.
    pub fn astray(&self, state: &State) -> BTreeSet<i64> {
        let astray = state.tasks.iter().filter(|(_, task)| task.astray);
        astray.map(|(no, _)| self.names.tasks[no]).collect()
    }
}
