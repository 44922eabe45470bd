//! A host: a guardian, its controller and the executors of `executors/course.py`. The guardian and the
//! controller are this binary. They are what `tuskline controller` runs, with the timings of the course.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::Layer as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tuskline::controller::environment::{GUARDIAN, START};
use tuskline::controller::{self, Options, guardian, start, wire_log};
use tuskline_history::{Event, Writer};

use super::Order;
use super::trace::Trace;

/// Lambdas that executors run, in processes. Short bodies, some of which hold the interpreter's lock or end their
/// process.
pub const EXECUTED: &str = "executed";
/// Bodies that take longer than a lease, and do not listen.
pub const EXECUTED_LONG: &str = "executed_long";
/// Each body has a process to itself, of which the memory is limited.
pub const EXECUTED_ALONE: &str = "executed_alone";
/// All of them.
pub const HOSTED: [&str; 3] = [EXECUTED, EXECUTED_LONG, EXECUTED_ALONE];

/// Set where executors are forks of a zygote.
const FORKED: &str = "TUSKLINE_FAULT_FORKED";
/// Executors of a host, beside those of [`EXECUTED_ALONE`].
const PROCESSES: usize = 3;
/// Attempts at a time of each lambda in one executor.
const SLOTS: &str = "8";

/// The Python that runs executors, if there is one.
pub fn python() -> Option<&'static str> {
    let mut command = std::process::Command::new("python3");
    command.args(["-c", "import sys; sys.exit(sys.version_info < (3, 10))"]);
    command.status().is_ok_and(|status| status.success()).then_some("python3")
}

/// The environment of a host, whose sockets are below `sockets`.
pub fn environment(sockets: &Path, is_forked: bool) -> Vec<(String, String)> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let modules = [here.join("executors"), here.join("../../clients/python")];
    let modules = modules.map(|path| path.display().to_string()).join(":");
    let mut environment = vec![
        ("PYTHONPATH".to_owned(), modules),
        // Two runs of one checkout must not write to it.
        ("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned()),
        ("XDG_RUNTIME_DIR".to_owned(), sockets.display().to_string()),
    ];
    environment.extend(is_forked.then(|| (FORKED.to_owned(), "1".to_owned())));
    environment
}

/// Whether this process is below a guardian.
pub(super) fn is_guarded() -> bool {
    std::env::var_os(GUARDIAN).is_some()
}

/// Becomes the guardian. This process has one thread so far.
pub(super) fn guard() -> anyhow::Result<()> {
    std::process::exit(i32::from(guardian::run()?))
}

/// Becomes an executor, or the zygote, if the guardian has started this process for that.
pub(super) fn start_executor() {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let [first, _, command @ ..] = arguments.as_slice()
        && first == START
    {
        let _ = start::become_executor(command);
        std::process::exit(2);
    }
}

pub(super) async fn control(order: &Order, writer: Writer) -> anyhow::Result<()> {
    let guardian = std::env::var(GUARDIAN)?.parse()?;
    writer.note(Event::Guarded { guardian });
    let quiet = tracing_subscriber::EnvFilter::new("warn,tuskline_sdk=info,tuskline=info");
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_filter(quiet);
    tracing_subscriber::registry().with(Trace::new(writer.clone())).with(log).init();
    let token = CancellationToken::new();
    let stopping = token.clone();
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        terminate.recv().await;
        stopping.cancel();
    });
    let is_zygote = std::env::var_os(FORKED).is_some();
    let kind = if is_zygote { "zygote" } else { "executor" };
    let command = ["python3", "-m", "tuskline", kind, "course:tusk", "--slots", SLOTS];
    let options = Options {
        address: order.url.parse()?,
        role: None,
        command: command.map(str::to_owned).into(),
        processes: PROCESSES,
        is_zygote,
        socket: None,
        define_missing: false,
        silence: Duration::from_secs(30),
        config: order.timings.worker_config(),
        wire: wire_log::Options { log: None, lose_answers: None },
    };
    let code = controller::run(options, token).await?;
    anyhow::ensure!(code == 0, "the controller ended with {code}");
    writer.note(Event::Exit);
    Ok(())
}
