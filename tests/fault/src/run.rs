//! A run: the stage is set, the phases are played, everything ends, the history is checked.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use crate::mutant::Mutant;
use crate::report::{Report, machine};
use crate::stage::{Scale, Stage};
use crate::timetable::{self, Extent, Phase};
use crate::{inflict, record, stale};

/// The options of a run.
#[derive(Debug, Clone)]
pub struct Options {
    pub seed: u64,
    /// The part of the course that is played.
    pub extent: Extent,
    pub scale: Scale,
    pub mutant: Option<&'static Mutant>,
    /// Where to leave the history; none: nowhere.
    pub keep: Option<PathBuf>,
    pub quiet: bool,
}

/// Runs, and says what the history proves.
///
/// # Errors
/// Whatever keeps the run from its end. A violation is a report, not an error.
pub async fn run(options: &Options) -> anyhow::Result<Report> {
    let began = Instant::now();
    let dir = tempfile::Builder::new().prefix("tuskline-fault-").tempdir()?;
    open_to_all(dir.path())?;
    let say = |text: &str| {
        if !options.quiet {
            eprintln!("{:>6.1} s  {text}", began.elapsed().as_secs_f64());
        }
    };
    say("setting the stage");
    let stage = Stage::set(dir.path(), options.scale.clone(), options.seed, options.mutant).await?;
    let outcome = play(&Arc::new(stage), options, &say).await;
    let (mut report, history) = match outcome {
        Ok(played) => played,
        Err(error) => {
            keep(&dir.path().join("history"), options, true)?;
            keep_logs(dir.path(), options)?;
            return Err(error);
        }
    };
    report.seconds = began.elapsed().as_secs_f64();
    say(&report.verdict());
    keep(&history, options, !report.ok)?;
    if !report.ok {
        keep_logs(dir.path(), options)?;
    }
    Ok(report)
}

async fn play(
    stage: &Arc<Stage>,
    options: &Options,
    say: &dyn Fn(&str),
) -> anyhow::Result<(Report, PathBuf)> {
    let stale = tokio::spawn(stale::send(Arc::clone(stage)));
    let (mut skipped, mut failed) = (Vec::new(), Vec::new());
    let course = timetable::course(options.seed, &options.extent);
    anyhow::ensure!(!course.is_empty(), "no such phase: {:?}", options.extent.only);
    for phase in &course {
        say(&format!("{} ({} s, {} faults)", phase.name, phase.seconds, phase.faults.len()));
        let left = inflict::play(stage, phase).await;
        for one in &left.skipped {
            say(&format!("SKIPPED {}: {}", one.what, one.why));
        }
        for one in &left.failed {
            say(&format!("FAILED {}: {}", one.what, one.why));
        }
        skipped.extend(left.skipped);
        failed.extend(left.failed);
    }
    stale.abort();
    say("waiting for the last tasks");
    let quiet = stage.quiet().await?;
    say("reading the record");
    record::export(&stage.session().await?, &stage.history).await?;
    say("checking the history");
    let checked = tuskline_history::check(&stage.history)?;
    let ok = checked.ok && quiet && failed.is_empty();
    if !ok {
        let log = stage.server.read().await.log();
        std::fs::copy(log, stage.history.join("server.log"))?;
    }
    let planned = timetable::doses(&course);
    let report = Report {
        ok,
        timetable: fingerprint(&course),
        seconds: 0.0,
        machine: machine(),
        planned: planned.into_iter().map(|(kind, n)| (inflict::word(kind), n)).collect(),
        skipped,
        failed,
        quiet,
        checked,
    };
    Ok((report, stage.history.clone()))
}

/// A number for a timetable, to compare runs by.
fn fingerprint(phases: &[Phase]) -> String {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    serde_json::to_string(phases).unwrap_or_default().hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// The servers run under another account when we are root.
fn open_to_all(dir: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755))?)
}

/// The history of a red run stays, where `--keep` says or below the build directory.
fn keep(history: &Path, options: &Options, red: bool) -> anyhow::Result<()> {
    let Some(to) = place(options, red) else { return Ok(()) };
    std::fs::create_dir_all(&to)?;
    for entry in std::fs::read_dir(history)? {
        let entry = entry?;
        std::fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    eprintln!("fault: the history is in {}", to.display());
    Ok(())
}

fn keep_logs(dir: &Path, options: &Options) -> anyhow::Result<()> {
    let Some(to) = place(options, true) else { return Ok(()) };
    std::fs::create_dir_all(&to)?;
    for entry in std::fs::read_dir(dir.join("logs"))? {
        let entry = entry?;
        if entry.metadata()?.len() > 0 {
            std::fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

fn place(options: &Options, red: bool) -> Option<PathBuf> {
    match &options.keep {
        Some(to) => Some(to.clone()),
        None if red && options.mutant.is_none() => {
            let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
            Some(PathBuf::from(target).join("fault").join(format!("seed-{}", options.seed)))
        }
        None => None,
    }
}
