//! Everything that stands while faults are done: a server, the proxy in front of it, the processes,
//! the directories, the history.

mod scenery;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tempfile::TempDir;
use tokio::sync::{Mutex, RwLock};
use tokio_postgres::{Client, NoTls};
use tokio_util::sync::CancellationToken;
use tuskline_history::{Actor, Edge, Event, Rate, Role, Writer};

use crate::families::Families;
use crate::mutant::Mutant;
use crate::role::{Load, RATED, Timings, broken};
use crate::timetable::{
    CHAINS, CONTROL, ENDED_EXECUTORS, EXECUTORS, FROZEN_CONTROLLERS, REDRIVES, TICKS,
};
use crate::workers::{Faults, Plan, Workers};
use tuskline_fault::proxy::{Door, Proxy, Upstream};
use tuskline_fault::server::{OURS, Server, Site};

/// Database under test.
pub const DATABASE: &str = "fault";
/// Tasks of the limited lambda at a time.
pub const MOST: u32 = 8;

/// The rate of the rated lambda: twice what clients schedule, of so many tasks a second in all.
pub fn rate(tasks_per_second: u32) -> Rate {
    let per_second = (f64::from(tasks_per_second) / 8.0).ceil().max(2.0);
    let burst = per_second as u32;
    Rate { lambda: RATED.into(), per_second, burst, from_us: None, to_us: None }
}

/// How long a process may be gone before the next takes its post, at most.
const SUPERVISION: Duration = Duration::from_millis(20);

/// How large a stage is set.
#[derive(Debug, Clone)]
pub struct Scale {
    pub clients: usize,
    pub workers: usize,
    pub store_consumers: usize,
    /// Tasks a second, of all clients together.
    pub tasks_per_second: u32,
    pub timings: Timings,
    pub pill_one_in: u32,
    pub long_one_in: u32,
    /// How long such a one takes at most.
    pub long_most_ms: u64,
    /// With tasks that have keys, limits and gates.
    pub controlled: bool,
    /// With chains.
    pub chained: bool,
    /// With tasks that need parts, which may be broken.
    pub brittle: bool,
    /// Longest wait, after the last fault, for whatever is to come to its end.
    pub patience: Duration,
}

impl Scale {
    /// Enough processes of each role that some go on while others are down.
    pub fn usual(tasks_per_second: u32, timings: Timings) -> Self {
        Self {
            clients: 2,
            workers: 8,
            store_consumers: 2,
            tasks_per_second,
            timings,
            pill_one_in: 1_200,
            long_one_in: 250,
            long_most_ms: 4_000,
            controlled: false,
            chained: false,
            brittle: false,
            // A poison pill takes three leases, a task with bad luck more.
            patience: Duration::from_secs(60) + Duration::from_millis(timings.lease_ms) * 8,
        }
    }

    /// With what phases ask for that are none of the course.
    #[must_use]
    pub fn playing(mut self, phases: &[String]) -> Self {
        let asked = |name| phases.iter().any(|phase| phase == name);
        self.controlled = asked(CONTROL);
        self.chained = asked(CHAINS);
        self.brittle = asked(REDRIVES);
        // Alone, it has the machine for itself: no task but those of the hosts.
        let of_hosts = [EXECUTORS, FROZEN_CONTROLLERS, ENDED_EXECUTORS];
        if phases.iter().all(|phase| of_hosts.contains(&phase.as_str())) && !phases.is_empty() {
            self.clients = 0;
            self.workers = 0;
        }
        // The plan kills a store consumer each second.
        if asked(TICKS) || asked(REDRIVES) {
            self.store_consumers = 3;
        }
        self
    }
}

/// The stage.
pub struct Stage {
    pub site: Site,
    pub server: RwLock<Server>,
    pub proxy: Proxy,
    /// The injector's own way in, which no fault touches but those of the server itself.
    pub own_door: Door,
    pub processes: Arc<Mutex<Workers>>,
    /// Processes below the guardians of the hosts.
    pub families: Mutex<Families>,
    /// Held by the fault that freezes a store consumer.
    pub one_consumer_still: Mutex<()>,
    pub faults: Faults,
    pub scale: Scale,
    pub history: PathBuf,
    locks: TempDir,
    keeper: CancellationToken,
}

impl Stage {
    /// Makes the server, the schema with its record, and the posts.
    ///
    /// # Errors
    /// Whatever keeps the run from beginning.
    pub async fn set(
        dir: &Path,
        scale: Scale,
        seed: u64,
        mutant: Option<&Mutant>,
    ) -> anyhow::Result<Self> {
        let (history, logs) = (dir.join("history"), dir.join("logs"));
        for made in [&history, &logs] {
            std::fs::create_dir_all(made)?;
        }
        let locks = directory_of_locks(dir)?;
        let writer = Writer::open(&history, Actor::Injector)?;
        let site = Site::new()?;
        let server = scenery::make_server(&site).await?;
        writer.note(Event::Settings(scenery::settings(&scale, seed, &server)));
        let user = server.config("postgres").get_user().unwrap_or("postgres").to_owned();
        let proxy = Proxy::new(Upstream::Unix(server.socket_file()));
        let own_door = proxy.open_door("injector").await?;
        scenery::prepare_database(&server, &scale, mutant).await?;
        let plan = Plan {
            history: history.clone(),
            locks: locks.path().to_path_buf(),
            logs,
            user,
            database: DATABASE.into(),
            timings: scale.timings,
            load: Load {
                tasks_per_second: scale.tasks_per_second / u32::try_from(scale.clients.max(1))?,
                pill_one_in: scale.pill_one_in,
                long_one_in: scale.long_one_in,
                long_most_ms: scale.long_most_ms,
                controlled: scale.controlled,
                chained: scale.chained,
                brittle: scale.brittle,
            },
            environment: mutant.map(Mutant::environment).unwrap_or_default(),
        };
        let shift = match mutant {
            Some(mutant) if mutant.shifted => ahead(&site)?,
            _ => Vec::new(),
        };
        let processes = Arc::new(Mutex::new(Workers::new(plan, writer.clone())));
        let faults = Faults::new(writer);
        let server = RwLock::new(server);
        let keeper = CancellationToken::new();
        let one_consumer_still = Mutex::new(());
        let families = Mutex::new(Families::new(faults.writer().clone()));
        let stage = Self {
            site,
            server,
            proxy,
            own_door,
            processes,
            families,
            one_consumer_still,
            faults,
            scale,
            history,
            locks,
            keeper,
        };
        stage.raise(&shift).await?;
        Ok(stage)
    }

    /// Starts the processes, and the supervisor that replaces those that end.
    async fn raise(&self, shift: &[(String, String)]) -> anyhow::Result<()> {
        let roles = [
            (Role::StoreConsumer, self.scale.store_consumers),
            (Role::Worker, self.scale.workers),
            (Role::Client, self.scale.clients),
        ];
        for (role, count) in roles {
            for n in 0..count {
                let door = self.proxy.open_door(&format!("{role:?}-{n}")).await?;
                let environment = match role {
                    Role::StoreConsumer => shift.to_vec(),
                    _ => Vec::new(),
                };
                self.processes.lock().await.post(role, door, environment)?;
            }
        }
        let (processes, keeper) = (Arc::clone(&self.processes), self.keeper.clone());
        tokio::spawn(keeper.run_until_cancelled_owned(async move {
            loop {
                if let Err(error) = processes.lock().await.fill_all() {
                    eprintln!("fault: a process cannot be replaced: {error:#}");
                }
                tokio::time::sleep(SUPERVISION).await;
            }
        }));
        Ok(())
    }

    /// A session of the injector's own, on whatever server is the one now.
    ///
    /// # Errors
    /// No server answers.
    pub async fn connect(&self) -> anyhow::Result<Client> {
        let mut config = self.server.read().await.config(DATABASE);
        config.application_name(OURS);
        let (client, connection) =
            tokio::time::timeout(Duration::from_secs(5), config.connect(NoTls)).await??;
        tokio::spawn(connection);
        client.batch_execute("set statement_timeout = '20s'").await?;
        Ok(client)
    }

    /// The same, asked for until it is there.
    ///
    /// # Errors
    /// Not within a minute.
    pub async fn session(&self) -> anyhow::Result<Client> {
        let began = std::time::Instant::now();
        loop {
            match self.connect().await {
                Ok(client) => return Ok(client),
                Err(error) if began.elapsed() > Duration::from_secs(60) => {
                    return Err(error.context("the server does not come back"));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Runs what makes the database unreachable, and waits for its return.
    ///
    /// # Errors
    /// What the fault fails with, or that the server does not come back.
    pub async fn outage<T>(
        &self,
        why: &str,
        fault: impl AsyncFnOnce(&mut Server) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let writer = self.faults.writer();
        writer.note(Event::Database { edge: Edge::Begin, why: why.into() });
        let mut server = self.server.write().await;
        let done = fault(&mut server).await;
        server.wait_until_answering(Duration::from_secs(60)).await.context("no return")?;
        drop(server);
        writer.note(Event::Database { edge: Edge::End, why: why.into() });
        done
    }

    /// Where locks and sockets are.
    pub fn locks(&self) -> &Path {
        self.locks.path()
    }

    /// Breaks a part that tasks need, or mends it.
    ///
    /// # Errors
    /// The file that stands for it cannot be made or removed.
    pub fn set_part(&self, part: &str, is_broken: bool) -> std::io::Result<()> {
        let file = broken(self.locks.path(), part);
        match is_broken {
            true => std::fs::write(file, ""),
            false if file.exists() => std::fs::remove_file(file),
            false => Ok(()),
        }
    }

    /// Stops the load, waits until every task has ended, and ends all processes in order.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn quiet(&self) -> anyhow::Result<bool> {
        let limit = self.scale.patience;
        let writer = self.faults.writer();
        writer.note(Event::Phase { name: "quiet".into(), edge: Edge::Begin });
        self.processes.lock().await.end(Role::Client, Duration::from_secs(30)).await;
        let client = self.session().await?;
        let began = std::time::Instant::now();
        let open = "select count(*) from tuskline.task where finished_at is null";
        let mut left: i64 = i64::MAX;
        while left > 0 && began.elapsed() < limit {
            left = client.query_one(open, &[]).await?.get(0);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.keeper.cancel();
        let mut processes = self.processes.lock().await;
        let in_order = processes.end(Role::Worker, Duration::from_secs(20)).await;
        processes.end(Role::StoreConsumer, Duration::from_secs(20)).await;
        drop(processes);
        writer.note(Event::Phase { name: "quiet".into(), edge: Edge::End });
        if left > 0 {
            eprintln!("fault: {left} tasks had not ended after {limit:?}");
        }
        Ok(left == 0 && in_order)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.keeper.cancel();
    }
}

/// The environment that makes a process live an hour ahead.
fn ahead(site: &Site) -> anyhow::Result<Vec<(String, String)>> {
    let library = site.tools().faketime.as_ref().context("libfaketime is absent")?;
    Ok(shifted(library, "+3600s"))
}

/// The environment that makes a process live at another time, by libfaketime; its monotonic clock
/// stays true.
pub fn shifted(library: &Path, offset: &str) -> Vec<(String, String)> {
    vec![
        ("LD_PRELOAD".into(), library.display().to_string()),
        ("FAKETIME".into(), offset.into()),
        ("FAKETIME_DONT_FAKE_MONOTONIC".into(), "1".into()),
    ]
}

/// Makes the directory of the locks in memory, because each body makes a file and removes it. A
/// disk's file system searches long for a place that was not freed in the last seconds. This took
/// an eighth of all the CPU of a run.
fn directory_of_locks(dir: &Path) -> anyhow::Result<TempDir> {
    let named = |place: &Path| tempfile::Builder::new().prefix("tuskline-locks-").tempdir_in(place);
    named(Path::new("/dev/shm")).or_else(|_| named(dir)).context("no place for the lock files")
}
