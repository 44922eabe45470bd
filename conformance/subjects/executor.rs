//! The lambdas of the conformance kit by the Rust SDK, with its feature `executor`:
//! `tuskline conform -- target/debug/examples/conformance`.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use serde::Deserialize;
use serde_json::value::RawValue;
use tuskline_sdk::{Context, ErrorKind, Failure, Lambda, Outcome, Worker};

const PAUSE: Duration = Duration::from_millis(10);

async fn echo(payload: Box<RawValue>) -> Outcome {
    Outcome::SuccessJson(payload.get().to_owned())
}

#[derive(Deserialize)]
struct Results {
    results: Vec<Wanted>,
}

#[derive(Clone, Deserialize)]
struct Wanted {
    status: String,
    output: Option<String>,
    #[serde(default)]
    message: String,
    error_class: Option<String>,
    after_ms: Option<u64>,
}

async fn outcome(payload: Results, context: Context) -> Result<Outcome, Failure> {
    let attempt = usize::try_from(context.attempt())?;
    let wanted = payload.results[attempt.min(payload.results.len()) - 1].clone();
    let Wanted { status, output, message: reason, error_class, after_ms } = wanted;
    let (after, class) = (after_ms.map(Duration::from_millis), error_class.map(Into::into));
    Ok(match &*status {
        "retriable_failure" => Outcome::Retriable { after, class, reason },
        "fatal_failure" => Outcome::Fatal { class, reason },
        "snoozed" => Outcome::Snooze(after.unwrap_or_default()),
        _ => output.map_or(Outcome::Success(None), Outcome::SuccessJson),
    })
}

#[derive(Deserialize)]
struct Hold {
    dir: PathBuf,
    #[serde(default)]
    deaf: bool,
    percent: Option<f32>,
    #[serde(default)]
    text: String,
    #[serde(default)]
    mib: usize,
}

fn begin(dir: &Path, context: &Context) -> std::io::Result<PathBuf> {
    let of_task = |what| dir.join(format!("{}.{what}", context.task()));
    let mut file = OpenOptions::new().create(true).append(true).open(of_task("begun"))?;
    writeln!(file, "{}", context.fence().0)?;
    Ok(of_task("go"))
}

/// In a thread of its own: one that is deaf to a cancel can only be ended with its process.
fn hold(payload: Hold, context: Context) -> Result<(), Failure> {
    let held = vec![1_u8; payload.mib << 20];
    let go = begin(&payload.dir, &context)?;
    if let Some(percent) = payload.percent {
        tokio::runtime::Handle::current().block_on(context.progress(percent, &payload.text))?;
    }
    while !go.exists() {
        if context.is_cancelled() && !payload.deaf {
            return Err(Failure::fatal("told to stop"));
        }
        std::thread::sleep(PAUSE);
    }
    std::hint::black_box(held);
    Ok(())
}

async fn busy(payload: Hold, context: Context) -> Result<(), Failure> {
    begin(&payload.dir, &context)?;
    loop {
        std::hint::spin_loop();
    }
}

#[derive(Deserialize)]
struct Crash {
    signal: Option<String>,
    exit: Option<i32>,
}

async fn crash(payload: Crash) -> Result<(), Failure> {
    let signal = match payload.signal.as_deref() {
        Some("SEGV") => Signal::SEGV,
        Some("ABRT") => Signal::ABORT,
        Some(_) => Signal::KILL,
        None => std::process::exit(payload.exit.unwrap_or(1)),
    };
    loop {
        // Rust's own handler takes the first SIGSEGV, and leaves the next to the kernel.
        kill_process(getpid(), signal)?;
        std::thread::sleep(PAUSE);
    }
}

#[derive(Deserialize)]
struct Run {
    command: Vec<String>,
}

async fn run(payload: Run) -> Result<(), Failure> {
    let mut command = Command::new("setsid");
    command.args(payload.command).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn()?;
    Ok(())
}

#[derive(Deserialize)]
struct Save {
    checkpoint: String,
    dir: Option<PathBuf>,
}

async fn save(payload: Save, context: Context) -> Result<Outcome, Failure> {
    if let Some(checkpoint) = context.checkpoint::<Box<RawValue>>().await? {
        return Ok(Outcome::SuccessJson(checkpoint.get().to_owned()));
    }
    if let Some(dir) = payload.dir {
        let go = begin(&dir, &context)?;
        while !go.exists() {
            tokio::time::sleep(PAUSE).await;
        }
    }
    match context.save(&RawValue::from_string(payload.checkpoint)?).await {
        Err(error) if error.kind() == ErrorKind::Fenced => return Ok(Outcome::Returned),
        saved => saved?,
    }
    Ok(Outcome::Retriable { after: Some(Duration::ZERO), class: None, reason: "saved".into() })
}

#[tokio::main]
async fn main() -> ExitCode {
    let worker = Worker::builder(std::env::var("TUSKLINE_DATABASE_URL").unwrap_or_default())
        .serve(Lambda::named("echo", echo))
        .serve(Lambda::named("outcome", outcome))
        .serve(Lambda::blocking_named("hold", hold))
        .serve(Lambda::named("busy", busy))
        .serve(Lambda::named("crash", crash))
        .serve(Lambda::blocking_named("memory", hold).memory_mib(128))
        .serve(Lambda::named("run", run))
        .serve(Lambda::named("save", save));
    match worker.run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            // 2: it is wrong, and shall not be started again.
            ExitCode::from(if error.kind() == ErrorKind::Invalid { 2 } else { 1 })
        }
    }
}
