//! Plays a case: its steps, one after the other, and then the end of the subject.

mod refill;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::case::{Case, Schedule, Step};
use super::stage::{Stage, Task, processes_with};
use super::subject::{LOOK, Program, Subject};
use super::wire::Wire;

/// Statuses that no worker changes any more.
const ENDED: [&str; 5] = ["success", "fatal_failure", "dead", "cancelled", "dropped"];

/// A case that was played.
#[derive(Debug)]
pub struct Played {
    pub wire: Wire,
    /// By the name that they were scheduled under.
    pub tasks: BTreeMap<String, Vec<PlayedTask>>,
    /// Exit code of the controller; none: it had to be killed.
    pub exit: Option<i32>,
    /// A step that did not come about: what was waited for, and what was seen.
    pub stuck: Option<String>,
    /// The controller's log.
    pub said: String,
    pub took: Duration,
    /// Lanes of the last executor that waited for an answer before the drain; none: it was not looked at.
    pub open_lanes: Option<usize>,
}

#[derive(Debug)]
pub struct PlayedTask {
    pub id: i64,
    pub payload: Option<String>,
    pub task: Task,
    /// Fences under which it has begun, as its own file says.
    pub begun: Vec<String>,
}

struct Play<'a> {
    stage: &'a Stage,
    program: &'a Program,
    subject: Subject,
    dir: PathBuf,
    number: u64,
    is_drained: bool,
    tasks: BTreeMap<String, Vec<(i64, Option<String>)>>,
}

/// Plays it.
///
/// # Errors
/// The stage fails, not the subject.
pub async fn play(stage: &mut Stage, program: &Program, case: &Case) -> Result<Played> {
    let began = Instant::now();
    let url = stage.set(case).await?;
    let dir = stage.dir_of(&case.name)?;
    let subject = Subject::start(program, &url, &dir, case.lose_answers)?;
    let number = fastrand::u64(1_000_000_000..10_000_000_000);
    let mut play =
        Play { stage, program, subject, dir, number, is_drained: false, tasks: BTreeMap::new() };
    let mut stuck = None;
    for step in &case.steps {
        stuck = play.step(step).await?;
        if stuck.is_some() {
            break;
        }
    }
    if stuck.is_none() {
        stuck = play.until_expected(case).await?;
    }
    let open_lanes = play.until_asked(case).await?;
    if !case.nothing_defined {
        play.drain();
    }
    if stuck.is_some() {
        play.subject.end();
    }
    let exit = play.subject.until_ended().await?;
    let tasks = play.read().await?;
    let said = play.subject.said();
    let wire = std::mem::take(&mut play.subject.wire);
    Ok(Played { wire, tasks, exit, stuck, said, took: began.elapsed(), open_lanes })
}

impl Play<'_> {
    /// None: it came about.
    async fn step(&mut self, step: &Step) -> Result<Option<String>> {
        match step {
            Step::Schedule(schedule) => self.schedule(schedule).await?,
            Step::Go(names) => self.ids(names)?.iter().try_for_each(|id| self.go(*id))?,
            Step::Cancel(names) => {
                for id in self.ids(names)? {
                    self.stage.cancel(id).await?;
                }
            }
            Step::Complete(complete) => {
                self.subject.look()?;
                let id = self.ids([&complete.task])?[0];
                let fence = self.fence_of(id).context("it was not handed out")?;
                self.stage.complete(id, fence, complete.output.get()).await?;
            }
            Step::Signal(signal) => self.subject.signal_executor(*signal)?,
            Step::GoOneByOne(name) => return self.go_one_by_one(name).await,
            Step::Drain => self.drain(),
            _ => {}
        }
        let deadline = Instant::now() + self.program.patience;
        loop {
            self.subject.look()?;
            let Some(missing) = self.missing(step).await? else { return Ok(None) };
            if Instant::now() > deadline || self.subject.ended()?.is_some() {
                return Ok(Some(missing));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Once: the second SIGTERM ends all at once.
    fn drain(&mut self) {
        if !std::mem::replace(&mut self.is_drained, true) {
            self.subject.drain();
        }
    }

    /// The state that a step still waits for.
    async fn missing(&self, step: &Step) -> Result<Option<String>> {
        let wire = &self.subject.wire;
        Ok(match step {
            Step::UntilBegun(counts) => self.too_few(counts, "begun", |id| self.begun(id).len())?,
            Step::UntilHandedOut(counts) => {
                let all = wire.handed_out();
                let given = |id: i64| all.iter().filter(|one| one.0.0 == id.to_string()).count();
                self.too_few(counts, "handed out", given)?
            }
            Step::UntilStatus(statuses) => {
                let mut missing = None;
                for (name, status) in statuses {
                    for id in self.ids([name])? {
                        let seen = self.stage.task(id).await?.status;
                        if seen != *status {
                            missing = Some(format!("{name}: status {status}; it is {seen}"));
                        }
                    }
                }
                missing
            }
            Step::UntilProgress(wanted) => {
                let seen = self.stage.progress(self.ids([&wanted.task])?[0]).await?;
                let is_so = seen.as_ref().is_some_and(|(percent, text)| {
                    *percent == Some(wanted.percent) && text.as_deref() == Some(&*wanted.text)
                });
                (!is_so).then(|| {
                    format!("progress {} {:?}; seen {seen:?}", wanted.percent, wanted.text)
                })
            }
            Step::UntilChildren(wanted) => {
                let seen = processes_with(&self.mark());
                (seen != *wanted).then(|| format!("{wanted} processes of run; there are {seen}"))
            }
            Step::UntilExecutors(wanted) => {
                let seen = wire.joined().len();
                (seen < *wanted).then(|| format!("{wanted} executors; {seen} have joined"))
            }
            Step::Drain if self.stage.workers_that_claim().await? > 0 => {
                Some("a worker that claims no more; it does".to_owned())
            }
            // One that runs its only task hears of it later.
            Step::Drain if !wire.is_draining() && self.open_lanes() > 0 => {
                Some("an executor that hears of the drain; it has heard nothing".to_owned())
            }
            _ => None,
        })
    }

    async fn schedule(&mut self, schedule: &Schedule) -> Result<()> {
        let (dir, mark) = (self.dir.to_string_lossy(), self.mark());
        let payload = match schedule.payload_bytes {
            Some(bytes) => Some(format!("\"{}\"", "x".repeat(bytes.saturating_sub(2)))),
            None => schedule
                .payload
                .as_ref()
                .map(|text| text.get().replace("$DIR", &dir).replace("$N", &mark)),
        };
        for _ in 0..schedule.count {
            let id = self.stage.schedule(&schedule.lambda, payload.as_deref()).await?;
            let tasks = self.tasks.entry(schedule.name.clone()).or_default();
            tasks.push((id, payload.clone()));
        }
        Ok(())
    }

    /// Waits until each task has the status that is expected of it, or none of them can change any more.
    async fn until_expected(&mut self, case: &Case) -> Result<Option<String>> {
        let deadline = Instant::now() + self.program.patience;
        loop {
            self.subject.look()?;
            let (mut missing, mut may_change) = (None, false);
            for (name, ending) in &case.expect.tasks {
                for id in self.ids([name])? {
                    let task = self.stage.task(id).await?;
                    if task.status != ending.status {
                        may_change |= !ENDED.contains(&&*task.status);
                        missing = Some(format!(
                            "{name}: status {}; it is {}",
                            ending.status, task.status
                        ));
                    }
                }
            }
            if missing.is_none() || !may_change || Instant::now() > deadline {
                return Ok(missing.filter(|_| may_change));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until the last executor waits for work, unless it drains. The lanes on which it does.
    async fn until_asked(&mut self, case: &Case) -> Result<Option<usize>> {
        if case.nothing_defined || self.subject.wire.is_draining() {
            return Ok(None);
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            self.subject.look()?;
            let open = self.open_lanes();
            if open > 0 || Instant::now() > deadline || self.subject.ended()?.is_some() {
                return Ok(Some(open));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Lanes of the executor that joined last on which a message waits for its answer.
    fn open_lanes(&self) -> usize {
        let last = self.subject.wire.joined().pop();
        last.map_or(0, |last| self.subject.wire.open_lanes(&last.name))
    }

    async fn read(&self) -> Result<BTreeMap<String, Vec<PlayedTask>>> {
        let mut all = BTreeMap::new();
        for (name, tasks) in &self.tasks {
            let mut read = Vec::new();
            for (id, payload) in tasks {
                let (id, payload) = (*id, payload.clone());
                let task = self.stage.task(id).await?;
                read.push(PlayedTask { id, payload, task, begun: self.begun(id) });
            }
            all.insert(name.clone(), read);
        }
        Ok(all)
    }

    fn ids<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Result<Vec<i64>> {
        let mut ids = Vec::new();
        for name in names {
            let name = name.as_ref();
            let Some(tasks) = self.tasks.get(name) else {
                bail!("no task was scheduled as {name}")
            };
            ids.extend(tasks.iter().map(|(id, _)| *id));
        }
        Ok(ids)
    }

    fn too_few(
        &self,
        counts: &BTreeMap<String, usize>,
        what: &str,
        seen: impl Fn(i64) -> usize,
    ) -> Result<Option<String>> {
        for (name, wanted) in counts {
            for id in self.ids([name])? {
                let seen = seen(id);
                if seen < *wanted {
                    return Ok(Some(format!("{name}: {what} {wanted} times; {seen} times so far")));
                }
            }
        }
        Ok(None)
    }

    /// The newest fence of a task.
    fn fence_of(&self, id: i64) -> Option<i64> {
        let (task, all) = (id.to_string(), self.subject.wire.handed_out());
        all.iter().rev().find(|one| one.0.0 == task).and_then(|one| one.0.1.parse().ok())
    }

    fn begun(&self, id: i64) -> Vec<String> {
        lines_of(&self.dir.join(format!("{id}.begun")))
    }

    fn go(&self, id: i64) -> Result<()> {
        let path = self.dir.join(format!("{id}.go"));
        std::fs::write(&path, "").with_context(|| format!("cannot write {}", path.display()))
    }

    /// A number by which the processes of `run` are found.
    fn mark(&self) -> String {
        format!("0.{}", self.number)
    }
}

fn lines_of(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}
