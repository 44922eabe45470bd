//! Processes of the server by kind: CPU of each kind, and memory that no other process shares.

use std::collections::BTreeMap;

use super::meter::{Observer, round};
use super::proc::{cpu_us, private_kib};
use super::report::Outcome;

/// The kind is told by the name of the application; an exchange connection, by its last statement.
const KINDS: &str = "\
select pid, case when backend_type = 'client backend' then case
           when application_name = 'tuskline-client' then 'scheduling'
           when application_name <> 'tuskline-worker' then 'server'
           when query like '%tuskline.exchange(%' then 'exchange'
           else 'control' end
         when backend_type like 'autovacuum%' then 'autovacuum'
         else 'background' end
  from pg_stat_activity
 where pid <> pg_backend_pid() and coalesce(datname = current_database(), true)";

/// All kinds, in the order of a report.
const ALL: [&str; 6] = ["scheduling", "exchange", "control", "server", "autovacuum", "background"];

/// The processes at one moment.
#[derive(Debug)]
pub(super) struct Backends(BTreeMap<u32, Backend>);

#[derive(Debug)]
struct Backend {
    kind: String,
    cpu_us: u64,
    private_kib: u64,
}

impl Backends {
    /// Processes of this database and of the server itself; none where their memory cannot be read.
    pub(super) async fn read(observer: &Observer) -> anyhow::Result<Self> {
        let mut found = BTreeMap::new();
        for row in observer.rows(KINDS).await? {
            let pid = u32::try_from(row.get::<_, i32>(0))?;
            if let (Some(cpu_us), Some(private_kib)) = (cpu_us(pid), private_kib(pid)) {
                found.insert(pid, Backend { kind: row.get(1), cpu_us, private_kib });
            }
        }
        Ok(Self(found))
    }

    /// Adds CPU a task, connections and memory of each kind to a measurement. Processes that ended meanwhile
    /// count as autovacuum: workers of it come and go, and all others stay. So does the postmaster.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn until(&self, later: &Self, queues: u64, mut outcome: Outcome) -> Outcome {
        let Some(all_us) = outcome.cost.server_cpu_us_per_task else { return outcome };
        let mut rest_us = all_us;
        for kind in ALL {
            let of_kind: Vec<_> = later.0.iter().filter(|(_, at)| at.kind == kind).collect();
            let before = |pid: &u32| self.0.get(pid).map_or(0, |at| at.cpu_us);
            let used = of_kind.iter().map(|(pid, at)| at.cpu_us.saturating_sub(before(pid)));
            let used_us = used.sum::<u64>() as f64 / outcome.tasks.max(1) as f64;
            rest_us -= used_us;
            let private = of_kind.iter().map(|(_, at)| at.private_kib);
            let (sum, most) = (private.clone().sum::<u64>(), private.max().unwrap_or(0));
            outcome = outcome
                .with(&format!("{kind}_cpu_us_per_task"), round(used_us))
                .with(&format!("{kind}_processes"), of_kind.len())
                .with(&format!("{kind}_private_mib"), round(sum as f64 / 1024.0));
            if kind == "exchange" {
                let each = round(most as f64 / queues as f64);
                outcome = outcome.with("exchange_private_kib_per_queue", each);
            }
        }
        let seen = outcome.extra("autovacuum_cpu_us_per_task").unwrap_or(0.0);
        outcome.with("autovacuum_cpu_us_per_task", round(seen + rest_us.max(0.0)))
    }
}
