//! The body of a task. It takes the kernel's lock of its task, records its beginning, ticks, and
//! records its end. The lock is a proof without a clock. The kernel refuses it while another
//! execution of the task goes on, and frees it when a process is gone.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use tuskline_history::{Ended, Event, LockAnswer, Writer};
use tuskline_sdk::{Context, Outcome};

use super::worker::{PARTS, Payload, broken};

/// Time between two lines of a body that goes on.
const TICK: Duration = Duration::from_millis(50);
/// Why bodies fail that are to fail.
const AS_ASKED: &str = "as it was told";
/// Why they end before their time.
const STOPPED: &str = "told to stop";
/// Lock files are spread over so many directories.
const DIRECTORIES: i64 = 256;

/// Where bodies leave their traces.
#[derive(Debug)]
pub struct Bodies {
    locks: PathBuf,
    writer: Writer,
}

/// A body that runs. Its end is written when it is dropped, whatever drops it.
#[derive(Debug)]
pub struct Running {
    writer: Writer,
    task: i64,
    fence: i64,
    ended: Ended,
    _lock: File,
    /// Where the lock is, if we have it.
    path: Option<PathBuf>,
}

impl Bodies {
    pub fn new(locks: &Path, writer: Writer) -> Self {
        Self { locks: locks.to_path_buf(), writer }
    }

    /// Takes the lock and writes down that the body begins, and whether the lock was free.
    pub fn begin(&self, payload: &Payload, context: &Context) -> Running {
        let (task, fence) = (context.task().0, context.fence().0);
        // By its op, too: a restored copy may give the id of a task that it does not know to another.
        let name = format!("{task}-{}", payload.op);
        let path = self.locks.join(task.rem_euclid(DIRECTORIES).to_string()).join(name);
        let (file, lock) = match lock(&path, fence) {
            Ok(taken) => taken,
            Err(error) => panic!("the lock of task {task} cannot be tried: {error}"),
        };
        let (op, n, attempt) = (payload.op, payload.n, context.attempt());
        self.writer.note(Event::BodyStart { task, fence, attempt, op, n, lock });
        Running {
            writer: self.writer.clone(),
            task,
            fence,
            ended: Ended::Stopped,
            _lock: file,
            path: (lock == LockAnswer::Free).then_some(path),
        }
    }
}

fn lock(path: &Path, fence: i64) -> std::io::Result<(File, LockAnswer)> {
    let open = || OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path);
    let mut file = match open() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            std::fs::create_dir_all(path.parent().unwrap_or(path))?;
            open()?
        }
        opened => opened?,
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            file.set_len(0)?;
            file.rewind()?;
            write!(file, "{} {fence}", std::process::id())?;
            Ok((file, LockAnswer::Free))
        }
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let holder = held_by(&mut file)?;
            Ok((file, holder))
        }
        Err(error) => Err(error.into()),
    }
}

/// The holder of the lock by the kernel's list, and its fence by its own note. The holder may be
/// frozen between the lock and its note. Then the file has no note, or the note of an earlier
/// holder.
fn held_by(file: &mut File) -> std::io::Result<LockAnswer> {
    let (mut word, inode) = (String::new(), format!(":{}", file.metadata()?.ino()));
    file.read_to_string(&mut word)?;
    let mut words = word.split(' ').map(str::parse);
    let (said_pid, said_fence) = (words.next(), words.next());
    let locks = std::fs::read_to_string("/proc/locks")?;
    // "12: FLOCK  ADVISORY  WRITE 4711 fd:01:131 0 EOF"
    let holder = locks.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let ours = fields.get(1) == Some(&"FLOCK") && fields.get(5)?.ends_with(&inode);
        ours.then(|| fields[4].parse::<u32>().ok())?
    });
    let said_pid = said_pid.and_then(Result::ok).and_then(|pid: i64| u32::try_from(pid).ok());
    let fence = said_fence.and_then(Result::ok).filter(|_| holder.is_none() || holder == said_pid);
    Ok(LockAnswer::Held { pid: holder.or(said_pid).unwrap_or(0), fence: fence.unwrap_or(0) })
}

impl Running {
    fn tick(&self) {
        self.writer.note(Event::BodyTick { task: self.task, fence: self.fence });
    }

    fn end(mut self, ended: Ended, why: &str) -> Outcome {
        self.ended = ended;
        match ended {
            Ended::Success => Outcome::Success(None),
            Ended::Fatal => Outcome::fatal(why),
            Ended::Retriable | Ended::Stopped => Outcome::retriable(why),
        }
    }
}

impl Drop for Running {
    /// Written before the lock goes with the file.
    fn drop(&mut self) {
        self.writer.note(Event::BodyEnd { task: self.task, fence: self.fence, ended: self.ended });
        // Without this, a run would leave hundreds of thousands of files. An execution that runs
        // beside this one has read the file by now.
        if let (Ended::Success, Some(path)) = (self.ended, &self.path) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// How it ends, and why.
fn verdict(bodies: &Bodies, payload: &Payload, context: &Context) -> (Ended, String) {
    if let Some(part) = payload.part.as_ref().filter(|part| broken(&bodies.locks, part).exists()) {
        let may_pass = PARTS.last().is_some_and(|last| part == last);
        let ended = if may_pass { Ended::Retriable } else { Ended::Fatal };
        return (ended, format!("the {part} is broken"));
    }
    let ended = match context.attempt() <= payload.fail_until {
        true => Ended::Retriable,
        false if payload.fatal => Ended::Fatal,
        false => Ended::Success,
    };
    (ended, AS_ASKED.to_owned())
}

/// A body that waits without holding a thread.
pub async fn waiting(bodies: &Bodies, payload: &Payload, context: &Context) -> Outcome {
    let running = bodies.begin(payload, context);
    let end = Instant::now() + Duration::from_millis(payload.ms);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let (ended, why) = verdict(bodies, payload, context);
            return running.end(ended, &why);
        }
        tokio::select! {
            () = tokio::time::sleep(left.min(TICK)) => {}
            () = context.cancelled() => return running.end(Ended::Stopped, STOPPED),
        }
        running.tick();
    }
}

/// A body that holds a thread.
pub fn blocking(bodies: &Bodies, payload: &Payload, context: &Context) -> Outcome {
    let running = bodies.begin(payload, context);
    let end = Instant::now() + Duration::from_millis(payload.ms);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let (ended, why) = verdict(bodies, payload, context);
            return running.end(ended, &why);
        }
        std::thread::sleep(left.min(TICK));
        if context.is_cancelled() {
            return running.end(Ended::Stopped, STOPPED);
        }
        running.tick();
    }
}
