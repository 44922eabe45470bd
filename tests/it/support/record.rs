//! The record of executions: a line when a body begins and a line when it ends, in an append-only
//! file. Lines that were written survive SIGKILL: they are in the kernel by then.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tuskline_sdk::Context;

use super::DEADLINE;

/// An execution, from the beginning of its body to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    /// The task.
    pub task: i64,
    /// Its fence.
    pub fence: i64,
    /// Nanoseconds of the host's monotonic clock.
    pub began_ns: u64,
    /// The same; none: it runs, or its process was killed.
    pub ended_ns: Option<u64>,
}

/// A record that executions append to, in this process or another.
#[derive(Debug, Clone)]
pub struct Record {
    path: PathBuf,
    file: Arc<File>,
}

/// Writes the end of an execution when its body has ended, returned or dropped.
#[derive(Debug)]
pub struct Begun {
    record: Record,
    task: i64,
    fence: i64,
}

impl Record {
    /// Opens the record at a path.
    pub fn at(path: &Path) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        Self { path: path.to_path_buf(), file: Arc::new(file) }
    }

    /// Where it is, for another process.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes that a body has begun; its end is written when the answer is dropped.
    pub fn begin(&self, context: &Context) -> Begun {
        self.begin_attempt(context.task().0, context.fence().0)
    }

    /// The same for an attempt without a context.
    pub fn begin_attempt(&self, task: i64, fence: i64) -> Begun {
        self.write("begin", task, fence);
        Begun { record: self.clone(), task, fence }
    }

    /// Appends a line with a single write.
    fn write(&self, what: &str, task: i64, fence: i64) {
        let line = format!("{what} {task} {fence} {}\n", now_ns());
        (&*self.file).write_all(line.as_bytes()).unwrap();
    }

    /// Every execution so far, in the order of their beginnings.
    pub fn executions(&self) -> Vec<Execution> {
        let text = std::fs::read_to_string(&self.path).unwrap();
        let mut open: HashMap<(i64, i64), usize> = HashMap::new();
        let mut all = Vec::new();
        // A last line without its end was cut short by SIGKILL.
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            let words: Vec<_> = line.split(' ').collect();
            let (task, fence) = (words[1].parse().unwrap(), words[2].parse().unwrap());
            let at_ns = words[3].parse().unwrap();
            if words[0] == "begin" {
                let twice = open.insert((task, fence), all.len());
                assert_eq!(twice, None, "fence {fence} of task {task} was executed twice");
                all.push(Execution { task, fence, began_ns: at_ns, ended_ns: None });
            } else {
                all[open[&(task, fence)]].ended_ns = Some(at_ns);
            }
        }
        all
    }

    /// Executions that have ended.
    pub fn ended(&self) -> usize {
        self.executions().iter().filter(|one| one.ended_ns.is_some()).count()
    }

    /// The tasks in the order in which their bodies began.
    pub fn tasks(&self) -> Vec<i64> {
        self.executions().iter().map(|one| one.task).collect()
    }

    /// Waits until the record says something.
    pub async fn until(&self, what: impl Fn(&[Execution]) -> bool) -> Vec<Execution> {
        let asking = async {
            loop {
                let executions = self.executions();
                if what(&executions) {
                    return executions;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        match tokio::time::timeout(DEADLINE, asking).await {
            Ok(executions) => executions,
            Err(_) => panic!("the record never said it: {:?}", self.executions()),
        }
    }

    /// Waits until so many bodies have begun.
    pub async fn until_begun(&self, count: usize) -> Vec<Execution> {
        self.until(|all| all.len() >= count).await
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.record.write("end", self.task, self.fence);
    }
}

/// Panics if two executions of a task overlap. An execution without an end counts up to `dead_ns`,
/// when its process was known to be gone.
pub fn assert_no_overlap(mut executions: Vec<Execution>, dead_ns: u64) {
    executions.sort_by_key(|one| (one.task, one.began_ns));
    for pair in executions.windows(2) {
        let (first, second) = (&pair[0], &pair[1]);
        if first.task == second.task {
            assert!(first.fence < second.fence, "fences only grow: {first:?} {second:?}");
            let ended_ns = first.ended_ns.unwrap_or(dead_ns);
            assert!(ended_ns <= second.began_ns, "overlap: {first:?} {second:?}");
        }
    }
}

/// The host's monotonic clock, the same for every process.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}
