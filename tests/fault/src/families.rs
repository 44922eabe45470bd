//! The processes below the guardians of the hosts: controllers, zygotes, executors. The injector has not started
//! them. It finds them by their parent, and watches each by its pidfd.

use std::collections::{HashMap, HashSet};

use tuskline::controller::environment::START;
use tuskline_history::Writer;

use crate::workers::Member;

/// A part of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Guardian,
    Controller,
    Zygote,
    Executor,
}

/// A process below a guardian.
#[derive(Debug, Clone)]
pub struct Child {
    pub guardian: u32,
    pub member: Member,
}

/// See the module.
#[derive(Debug)]
pub struct Families {
    writer: Writer,
    known: HashMap<u32, Child>,
    /// Guardians that stand still, or whose controllers do. The other of the two must run.
    still: HashSet<u32>,
}

impl Families {
    pub fn new(writer: Writer) -> Self {
        Self { writer, known: HashMap::new(), still: HashSet::new() }
    }

    /// Watches the children that are new, and forgets those that have ended.
    pub fn look(&mut self, guardians: &[Member]) {
        self.known.retain(|_, child| !child.member.is_over());
        for guardian in guardians.iter().map(|guardian| guardian.pid) {
            for pid in children_of(guardian) {
                if !self.known.contains_key(&pid)
                    && let Ok(member) = Member::adopt(pid, self.writer.clone())
                {
                    self.known.insert(pid, Child { guardian, member });
                }
            }
        }
    }

    /// The processes that are this part of a host.
    pub fn of(&self, part: Part) -> Vec<Child> {
        let mut found: Vec<Child> = self
            .known
            .values()
            .filter(|child| part_of(child.member.pid) == Some(part))
            .cloned()
            .collect();
        found.sort_by_key(|child| child.member.pid);
        found
    }

    /// Whether the guardian, or its controller, may stand still now: then neither does. It does until
    /// [`Self::goes_on`].
    pub fn stands_still(&mut self, guardian: u32) -> bool {
        self.still.insert(guardian)
    }

    pub fn goes_on(&mut self, guardian: u32) {
        self.still.remove(&guardian);
    }
}

fn children_of(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    text.unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// By its arguments, which are its title where it has one; none: it is on its way to be one, or was left behind.
fn part_of(pid: u32) -> Option<Part> {
    let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
    let ours = std::env::current_exe().ok()?;
    let is_ours = std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == ours);
    if arguments.starts_with("tuskline: executor") {
        Some(Part::Executor)
    } else if arguments.starts_with("tuskline: zygote") {
        Some(Part::Zygote)
    } else if is_ours && !arguments.contains(START) {
        Some(Part::Controller)
    } else {
        None
    }
}
