//! Reads from the kernel: CPU of processes, and the machine a figure was taken on.
//!
//! Reads /proc, so it knows nothing on systems without one; then a figure is absent, never zero.

use std::time::{Duration, Instant};

use super::meter::round;

/// Microseconds in one clock tick: Linux counts 100 a second for its users, on every machine.
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
        Self {
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            model: field("/proc/cpuinfo", "model name"),
            memory_mib: field("/proc/meminfo", "MemTotal")
                .and_then(|text| text.trim_end_matches(" kB").trim().parse::<u64>().ok())
                .map(|kib| kib / 1024),
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")
                .ok()
                .map(|text| text.trim().to_owned()),
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

/// The first `name : value` of a file.
fn field(file: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// CPU of a process in µs, with its living children and those it has reaped, but for one child: the
/// server, when it is a child of the bench. A child that is reaped meanwhile would be in neither sum:
/// then they are added up once more.
pub(super) fn family_cpu_us(head: u32, except: Option<u32>) -> Option<u64> {
    let mut reaped = reaped_us(head)?;
    for _ in 0..100 {
        let children = children_cpu_us(head, except)?;
        let before = std::mem::replace(&mut reaped, reaped_us(head)?);
        if reaped == before {
            return Some(cpu_us(head)? + reaped + children);
        }
    }
    None
}

fn children_cpu_us(head: u32, except: Option<u32>) -> Option<u64> {
    let mut total = 0;
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        if parent(pid) == Some(head) && except != Some(pid) {
            total += cpu_us(pid).unwrap_or(0); // it may have ended just now
        }
    }
    Some(total)
}

/// CPU of one process in µs.
pub(super) fn cpu_us(pid: u32) -> Option<u64> {
    ticks_us(pid, [11, 12])
}

/// CPU in µs of the children that a process has reaped.
fn reaped_us(pid: u32) -> Option<u64> {
    ticks_us(pid, [13, 14])
}

/// The sum of two fields of a process's stat line that count ticks.
fn ticks_us(pid: u32, at: [usize; 2]) -> Option<u64> {
    let fields = stat(pid)?;
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    Some(TICK_US * (ticks(at[0])? + ticks(at[1])?))
}

/// The parent of a process.
pub(super) fn parent(pid: u32) -> Option<u32> {
    stat(pid)?.get(1)?.parse().ok()
}

/// The words of a process's stat line after its name, which may hold spaces and brackets.
fn stat(pid: u32) -> Option<Vec<String>> {
    let line = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(line.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

/// Whether a process calls itself a PostgreSQL backend of this database.
pub(super) fn is_backend_of(pid: u32, database: &str) -> bool {
    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.starts_with("postgres: ") && line.split(' ').any(|word| word == database)
}

/// The host's monotonic clock in ns; the same for every process on it.
pub(super) fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
