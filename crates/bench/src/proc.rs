//! Reads from the kernel: CPU and memory of processes, and the machine a figure was taken on.
//!
//! Reads /proc, so it knows nothing on systems without one; then a figure is absent, never zero.

use std::time::{Duration, Instant};

use super::meter::round;

use kernel::{all, model_and_memory, process};
pub(super) use kernel::{is_backend_of, private_kib};

/// Microseconds in one clock tick: Linux counts 100 a second for its users, on every machine.
#[cfg(target_os = "linux")]
const TICK_US: u64 = 10_000;

/// The machine, for readers that compare figures.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Machine {
    /// Cores this process may use.
    pub cpus: usize,
    /// Name of the processor.
    pub model: Option<String>,
    /// Main memory, in MiB.
    pub memory_mib: Option<u64>,
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// How long a fixed sort takes on every core at once, in ms, just after the run: a shared machine
    /// is not always as fast.
    pub sort_ms: f64,
}

impl Machine {
    pub(super) fn here() -> Self {
        let (model, memory_mib) = model_and_memory();
        let kernel = rustix::system::uname().release().to_str().ok().map(str::to_owned);
        Self {
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            model,
            memory_mib,
            kernel,
            sort_ms: sort_ms(),
        }
    }
}

/// The best of three on each core, of these the worst.
fn sort_ms() -> f64 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let best = || (0..3).map(|_| sort_once()).min().unwrap_or_default();
    let slowest = std::thread::scope(|scope| {
        let sorts: Vec<_> = (0..cores).map(|_| scope.spawn(best)).collect();
        sorts.into_iter().filter_map(|sort| sort.join().ok()).max()
    });
    round(slowest.unwrap_or_default().as_secs_f64() * 1_000.0)
}

fn sort_once() -> Duration {
    let mut draw = 1_u64;
    let next = |_| {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        draw >> 20
    };
    let mut numbers: Vec<u64> = (0..200_000).map(next).collect();
    let began = Instant::now();
    numbers.sort_unstable();
    std::hint::black_box(numbers);
    began.elapsed()
}

/// A process at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Process {
    parent: u32,
    cpu_us: u64,
    /// The same for the children that it has reaped.
    reaped_us: u64,
}

/// CPU of a process in µs, with its living children and those it has reaped, but for one child: the
/// server, when it is a child of the bench. A child that is reaped meanwhile would be in neither sum:
/// then they are added up once more.
pub(super) fn family_cpu_us(head: u32, except: Option<u32>) -> Option<u64> {
    let mut reaped_us = process(head)?.reaped_us;
    for _ in 0..100 {
        let children = all().into_iter().filter(|pid| Some(*pid) != except).filter_map(process);
        let children_us: u64 = children.filter(|at| at.parent == head).map(|at| at.cpu_us).sum();
        let own = process(head)?;
        if std::mem::replace(&mut reaped_us, own.reaped_us) == own.reaped_us {
            return Some(own.cpu_us + own.reaped_us + children_us);
        }
    }
    None
}

/// CPU of one process in µs.
pub(super) fn cpu_us(pid: u32) -> Option<u64> {
    Some(process(pid)?.cpu_us)
}

/// The parent of a process.
pub(super) fn parent(pid: u32) -> Option<u32> {
    Some(process(pid)?.parent)
}

#[cfg(target_os = "linux")]
mod kernel {
    use procfs::Current as _;
    use procfs::process::{Process as Found, all_processes};

    use super::{Process, TICK_US};

    fn find(pid: u32) -> Option<Found> {
        Found::new(i32::try_from(pid).ok()?).ok()
    }

    pub(in super::super) fn process(pid: u32) -> Option<Process> {
        let stat = find(pid)?.stat().ok()?;
        Some(Process {
            parent: u32::try_from(stat.ppid).ok()?,
            cpu_us: TICK_US * (stat.utime + stat.stime),
            reaped_us: TICK_US * u64::try_from(stat.cutime + stat.cstime).ok()?,
        })
    }

    pub(in super::super) fn all() -> Vec<u32> {
        let found = all_processes().into_iter().flatten().flatten();
        found.filter_map(|found| u32::try_from(found.pid).ok()).collect()
    }

    /// Memory that a process shares with no other, in KiB.
    pub(in super::super) fn private_kib(pid: u32) -> Option<u64> {
        find(pid)?.status().ok()?.rssanon
    }

    /// Whether a process calls itself a PostgreSQL backend of this database.
    pub(in super::super) fn is_backend_of(pid: u32, database: &str) -> bool {
        let line = find(pid).and_then(|found| found.cmdline().ok()).unwrap_or_default().concat();
        line.starts_with("postgres: ") && line.split(' ').any(|word| word == database)
    }

    /// Name of the processor, and memory in MiB.
    pub(super) fn model_and_memory() -> (Option<String>, Option<u64>) {
        let model =
            procfs::CpuInfo::current().ok().and_then(|info| Some(info.model_name(0)?.to_owned()));
        (model, procfs::Meminfo::current().ok().map(|info| info.mem_total >> 20))
    }
}

/// Without /proc.
#[cfg(not(target_os = "linux"))]
mod kernel {
    use super::Process;

    pub(in super::super) fn process(_: u32) -> Option<Process> {
        None
    }

    pub(in super::super) fn all() -> Vec<u32> {
        Vec::new()
    }

    pub(in super::super) fn private_kib(_: u32) -> Option<u64> {
        None
    }

    pub(in super::super) fn is_backend_of(_: u32, _: &str) -> bool {
        false
    }

    pub(super) fn model_and_memory() -> (Option<String>, Option<u64>) {
        (None, None)
    }
}

/// The host's monotonic clock in ns; the same for every process on it.
pub(super) fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
