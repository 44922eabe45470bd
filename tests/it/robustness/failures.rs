//! Failures around Tuskline. Each caller gets an error of one line that says what to do.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use tokio_postgres::Config;
use tokio_util::sync::CancellationToken;
use tuskline_postgres::{Cluster, Options};
use tuskline_sdk::{Client, Context, Error, ErrorKind, Lambda, NewTask, Worker};

use crate::support::cli::{Call, PASSWORD, TUSKLINE, copy, on, open_dir, tuskline, url};
use crate::support::{Db, cell, own_cluster, settings, shared, within};

/// Every command that speaks to the task store.
const COMMANDS: [&str; 10] = [
    "lambda list",
    "lambda define work",
    "lambda alter work --max-attempts 2",
    "lambda show work",
    "task schedule work",
    "task status 1",
    "task list",
    "task cancel 1",
    "task wait 1",
    "serve",
];

/// The error of a command at an address.
fn refusal_of(address: &str, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    // A server logs on the stream on which it tells its error.
    tuskline(&words).database(address).env("TUSKLINE_LOG", "off").run().refusal()
}

/// The errors of the SDK's client and worker at an address.
async fn sdk_errors(address: &str) -> [Error; 2] {
    let client = within(Client::connect(address)).await.expect_err("it must be refused");
    let lambda = Lambda::named("work", async |(): (), _: Context| Ok::<_, String>(()));
    let sdk_worker = Worker::builder(address).serve(lambda).until(std::future::pending());
    [client, within(sdk_worker.run()).await.expect_err("it must be refused")]
}

/// A port without a listener.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[tokio::test]
async fn no_server_answers_at_the_address() {
    let address = format!("postgresql://tuskline:{PASSWORD}@127.0.0.1:{}/shop", free_port());
    for line in COMMANDS.iter().chain(&["migrate", "doctor"]).filter(|line| **line != "serve") {
        let said = refusal_of(&address, line);
        assert!(
            said.starts_with("1 error: error connecting to server: Connection refused"),
            "{said}"
        );
        assert!(said.contains("hint: is PostgreSQL running at this address?"), "{said}");
    }
    for error in sdk_errors(&address).await {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
        assert!(!format!("{error} {error:?}").contains(PASSWORD));
    }
}

#[tokio::test]
async fn a_server_waits_for_a_database_that_is_away() {
    let address = format!("postgresql://tuskline:{PASSWORD}@127.0.0.1:{}/shop", free_port());
    let mut serving = tuskline(&["serve"]).database(&address).start();
    serving.until_said("the database is away, waiting for it");
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().code, 0);
}

#[tokio::test]
async fn the_password_is_wrong_or_missing() {
    let dir = open_dir();
    let port = free_port();
    let options = Options { tcp_port: Some(port), ..Options::throw_away(dir.path()) };
    let cluster = Cluster::start(options).await.unwrap();
    let wrong = format!("postgresql://tuskline:{PASSWORD}@127.0.0.1:{port}/postgres");
    for line in COMMANDS.iter().chain(&["migrate", "doctor"]) {
        let said = refusal_of(&wrong, line);
        assert!(said.starts_with("1 error: password authentication failed"), "{line}: {said}");
        assert!(said.contains("(28P01)\nhint: check user and password"), "{line}: {said}");
    }
    for error in sdk_errors(&wrong).await {
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    }
    let without = format!("postgresql://tuskline@127.0.0.1:{port}/postgres");
    let said = refusal_of(&without, "task list");
    assert!(said.contains("hint: the server asks for a password"), "{said}");
    let tcp = cluster.tcp_url("postgres").unwrap();
    let password = tcp.split_once("tuskline:").unwrap().1.split_once('@').unwrap().0;
    let migrate = tuskline(&["migrate"]).database(&without).env("PGPASSWORD", password).run();
    assert!(migrate.fine().contains("installed"));
    let list = tuskline(&["-vv", "task", "list"]).database(&tcp).run();
    assert_eq!(list.code, 0);
    assert!(!list.err.contains(password), "not even to those who ask for everything");
}

#[tokio::test]
async fn the_database_is_missing() {
    let address = url(&shared().config("not_there"));
    for line in COMMANDS.iter().chain(&["migrate", "doctor"]) {
        let said = refusal_of(&address, line);
        let expected = "1 error: database \"not_there\" does not exist (3D000)\nhint: create it";
        assert!(said.starts_with(expected), "{line}: {said}");
    }
    for error in sdk_errors(&address).await {
        assert_eq!(error.sqlstate(), Some("3D000"), "{error:?}");
    }
}

#[tokio::test]
async fn the_schema_is_absent() {
    let name = format!("{}_bare", Db::new().await.config.get_dbname().unwrap());
    shared().create_database(&name, None).await.unwrap();
    let address = url(&shared().config(&name));
    for line in COMMANDS {
        let said = refusal_of(&address, line);
        assert!(said.starts_with("1 error: "), "{line}: {said}");
        assert!(said.contains("schema is absent or older than this binary"), "{line}: {said}");
        assert!(said.contains("run `tuskline migrate`"), "{line}: {said}");
    }
    for error in sdk_errors(&address).await {
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{error:?}");
        assert!(format!("{error:#}").contains("run `tuskline migrate`"), "{error}");
    }
    tuskline(&["migrate"]).database(&address).run().fine();
    within(Client::connect(&address)).await.unwrap();
}

#[tokio::test]
async fn the_schema_is_older_than_the_binary() {
    let db = Db::with_lambda("work").await;
    db.run("update tuskline_core.stamp set schema_version = 0").await;
    let said = refusal_of(&url(&db.config), "serve");
    assert!(
        said.contains(&format!("function set 0, wanted {}", tuskline::migrate::SCHEMA_VERSION))
            && said.contains("tuskline migrate"),
        "{said}"
    );
    let doctor = on(&db.config, "doctor").run();
    let line = doctor.out.lines().find(|line| line.contains("schema ")).unwrap();
    assert!(line.starts_with("FAIL") && line.ends_with(": tuskline migrate"), "{line}");
    for error in sdk_errors(&url(&db.config)).await {
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{error:?}");
        assert!(format!("{error:#}").contains("run `tuskline migrate`"), "{error}");
    }
}

#[tokio::test]
async fn the_schema_is_newer_than_the_binary() {
    let db = Db::with_lambda("work").await;
    db.run("update tuskline_core.stamp set schema_version = 99").await;
    // An instance that migrates at its start may be rolled back.
    let ours = tuskline::migrate::SCHEMA_VERSION;
    let said = on(&db.config, "migrate").run().fine();
    let newer = format!(
        "the database is newer (function set 99); this binary (function set {ours}) works with it: \
         nothing to do\ninstallation: default" // and the cell, in a leg
    );
    assert!(said.starts_with(&newer), "{said}");
    let said = on(&db.config, "migrate --json").run().json();
    assert_eq!((&said["functions"], &said["schema_version"]), (&"newer".into(), &99.into()));
    assert_eq!(
        on(&db.config, "migrate --plan").run().fine(),
        format!("installed: function set 99; this binary: function set {ours}\nnothing to do\n")
    );
    let stamp: i32 = db.one("select schema_version from tuskline_core.stamp").await;
    assert_eq!(stamp, 99, "it is left alone");
    // A later set understands every call of an earlier one.
    on(&db.config, "task schedule work").run().fine();
    let mut serving = on(&db.config, "serve").start();
    serving.until_said("schema is newer than this binary");
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().code, 0);
    let doctor = on(&db.config, "doctor").run();
    let line = doctor.out.lines().find(|line| line.contains("schema ")).unwrap();
    assert!(line.starts_with("warn") && line.contains("newer than this binary"), "{line}");
    let client = within(Client::connect(&url(&db.config))).await.unwrap();
    let task = tuskline_sdk::NewTask::new("work", &7);
    let id = within(client.schedule(&task)).await.unwrap();
    let gate = crate::support::Gate::open();
    let lambda = gate.lambda("work");
    let sdk_worker = crate::support::Running::start(&db, crate::support::calm(), vec![lambda]);
    db.until_status(id.0, "success").await;
    sdk_worker.stop().await;
}

#[tokio::test]
async fn a_later_migration_has_ended_before_its_functions() {
    let db = Db::with_lambda("work").await;
    db.run(
        "insert into tuskline_core.schema_history (version, name, applied_on, checksum)
         select max(version) + 1, 'later', '', '1' from tuskline_core.schema_history",
    )
    .await;
    let printed = on(&db.config, "migrate").run().fine();
    assert!(printed.starts_with("tables: unchanged\nfunctions: set "), "{printed}");
    assert!(on(&db.config, "migrate --plan").run().fine().ends_with("\nnothing to do\n"));
    // The build has other functions, on tables that it does not know.
    db.run("update tuskline_core.stamp set digest = 'another'").await;
    for call in ["migrate", "migrate --plan"] {
        let said = on(&db.config, call).run().refusal();
        assert!(said.starts_with("1 error: schema is newer than this binary"), "{said}");
    }
}

#[tokio::test]
async fn the_schema_is_of_a_later_major_version_than_the_binary() {
    let db = Db::with_lambda("work").await;
    db.run("update tuskline_core.stamp set schema_version = 1000").await;
    for call in ["migrate", "migrate --plan"] {
        let said = on(&db.config, call).run().refusal();
        assert!(said.starts_with("1 error: schema is newer than this binary"), "{said}");
        assert!(said.contains("hint: bring the binary up to date"), "{said}");
    }
    let said = refusal_of(&url(&db.config), "serve");
    assert!(said.contains("later major version") && said.contains("up to date"), "{said}");
    let doctor = on(&db.config, "doctor").run();
    let line = doctor.out.lines().find(|line| line.contains("schema ")).unwrap();
    assert!(line.starts_with("FAIL") && line.contains("later major version"), "{line}");
    for error in sdk_errors(&url(&db.config)).await {
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{error:?}");
        assert_eq!(error.hint(), Some("update the binary"), "migrate would refuse");
    }
}

/// A streaming standby of a cluster, in a directory of the test's own.
pub(super) async fn standby_of(primary: &Cluster, dir: &Path, more: &[(&str, &str)]) -> Cluster {
    let data = dir.join("data");
    let backup = Command::new(primary.binaries().dir.join("pg_basebackup"))
        .args(["--no-sync", "--checkpoint=fast", "--write-recovery-conf", "-D"])
        .arg(&data)
        .args(["-d", &primary.url("postgres")])
        .output()
        .unwrap();
    assert!(backup.status.success(), "{}", String::from_utf8_lossy(&backup.stderr));
    if rustix::process::getuid().is_root() {
        let client = Db::in_cluster(primary).await;
        let home: String = client.one("select current_setting('data_directory')").await;
        let owner = Path::new(&home).metadata().unwrap();
        let ids = format!("{}:{}", owner.uid(), owner.gid());
        assert!(Command::new("chown").arg("-R").arg(ids).arg(&data).status().unwrap().success());
    }
    // A standby does not start with less of any setting than its primary has.
    let more = more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let settings = settings().into_iter().chain(more).collect();
    Cluster::start(Options { settings, ..Options::throw_away(dir) }).await.unwrap()
}

#[tokio::test]
async fn a_standby_takes_no_tasks() {
    let primary = own_cluster().await;
    let db = Db::in_cluster(&primary).await;
    db.define("work").await;
    let id = db.schedule("work").await;
    let dir = open_dir();
    let standby = standby_of(&primary, dir.path(), &[]).await;
    let config = standby.config(db.config.get_dbname().unwrap());
    only_reads(&config, id).await;
    let migrate = on(&config, "migrate").run().refusal();
    assert!(migrate.starts_with("1 error: this server is a standby"), "{migrate}");
    let serve = refusal_of(&url(&config), "serve");
    assert!(serve.contains("standby") && serve.contains("connect to the primary"), "{serve}");
    let doctor = on(&config, "doctor").run();
    assert_eq!((doctor.code, doctor.err.as_str()), (1, ""), "{}", doctor.out);
    let line = doctor.out.lines().find(|line| line.contains("part ")).unwrap();
    assert!(line.starts_with("FAIL") && line.contains("standby: connect to the primary"), "{line}");
    let fails = doctor.out.lines().filter(|line| line.starts_with("FAIL")).count();
    assert_eq!(fails, 1, "{}", doctor.out);
}

#[tokio::test]
async fn a_standby_shows_the_statistics_that_are_folded() {
    let primary = own_cluster().await;
    let db = Db::in_cluster(&primary).await;
    db.define("work").await;
    db.schedule("work").await;
    let worker = db.worker("work").await;
    worker.succeed(&worker.take().await).await;
    let (executor, queue) = (worker.executor, worker.queues[0]);
    db.run(&format!(
        "select tuskline.report_attempts({executor}, '{{{queue}}}', '{{1}}', '{{3}}');
         select tuskline_core.count_waits('due', 'work', array[tuskline.clock() - interval '1 s'],
                                          tuskline.clock());
         select tuskline.fold_statistics('0 s')"
    ))
    .await;
    let dir = open_dir();
    let standby = standby_of(&primary, dir.path(), &[]).await;
    let config = standby.config(db.config.get_dbname().unwrap());
    let there = Db::on(config.clone(), 0).await;
    let sql = "select concat_ws(' ', s.success, w.total_ms, e.success, c.wanted)
                 from tuskline.statistics() s, tuskline.wait_times() w, tuskline.executor_loads() e,
                      tuskline.scale() c";
    assert_eq!(there.one::<String>(sql).await, "3 1000 3 0");
    assert!(on(&config, "stats").run().fine().contains("work"));
    assert!(on(&config, "top --json").run().fine().contains("work"));
}

#[tokio::test]
async fn a_read_only_database_takes_no_tasks() {
    let db = Db::with_lambda("work").await;
    let id = db.schedule("work").await;
    let name = db.config.get_dbname().unwrap();
    db.run(&format!("alter database {name} set default_transaction_read_only = on")).await;
    only_reads(&db.config, id).await;
    for line in ["migrate", "serve"] {
        let said = refusal_of(&url(&db.config), line);
        assert!(said.starts_with("1 error: this server is a standby or read-only"), "{said}");
    }
    let doctor = on(&db.config, "doctor").run();
    let line = doctor.out.lines().find(|line| line.contains("part ")).unwrap();
    assert!(line.starts_with("FAIL") && line.contains("default_transaction_read_only"), "{line}");
}

/// Questions are answered, changes refused.
async fn only_reads(config: &Config, id: i64) {
    assert!(on(config, "task list").run().fine().contains("work"));
    assert!(on(config, &format!("task status {id}")).run().fine().contains("work"));
    for line in ["task schedule work", "task schedule work --in 5m", "lambda define other"] {
        let said = on(config, line).run().refusal();
        assert!(said.starts_with("1 error: ") && said.contains("(25006)"), "{said}");
        assert!(said.contains("hint: this server is a standby or read-only"), "{said}");
    }
    let client = within(Client::connect(&url(config))).await.unwrap();
    let task = NewTask::new("work", &());
    let error = client.schedule(&task).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
}

#[test]
fn a_server_before_14_is_refused() {
    // PostgreSQL 13 is not installed here, so a thread speaks its protocol and reports its version.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            // A client that has its answer hangs up.
            let _ = be_postgresql_13(connection.unwrap());
        }
    });
    let address = format!("postgresql://tuskline:{PASSWORD}@127.0.0.1:{port}/shop?sslmode=disable");
    let said = refusal_of(&address, "migrate");
    assert_eq!(said, "1 error: PostgreSQL 15 or newer is needed, this server is 13.0");
}

/// Answers the start-up and every query with one row: 130000, 13.0, UTF8, false.
fn be_postgresql_13(mut connection: TcpStream) -> std::io::Result<()> {
    let mut length = [0; 4];
    connection.read_exact(&mut length)?;
    let mut rest = vec![0; u32::from_be_bytes(length) as usize - 4];
    connection.read_exact(&mut rest)?;
    let say = |kind: u8, body: &[u8]| {
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        [&[kind], &length[..], body].concat()
    };
    let ready = say(b'Z', b"I");
    let start = [
        say(b'R', &[0; 4]),
        say(b'S', b"server_version\x0013.0\0"),
        say(b'S', b"client_encoding\0UTF8\0"),
        ready.clone(),
    ];
    connection.write_all(&start.concat())?;
    let (mut columns, mut row) = (vec![0, 4], vec![0, 4]);
    let values: [(i32, &[u8]); 4] =
        [(23, &130_000_i32.to_be_bytes()), (25, b"13.0"), (25, b"UTF8"), (16, &[0])];
    for (number_of_type, value) in values {
        // Name, table, column, type, size, modifier, format.
        columns.extend_from_slice(b"c\0\0\0\0\0\0\0");
        columns.extend_from_slice(&number_of_type.to_be_bytes());
        columns.extend_from_slice(&[0, 8, 0, 0, 0, 0, 0, 1]);
        row.extend_from_slice(&u32::try_from(value.len()).unwrap().to_be_bytes());
        row.extend_from_slice(value);
    }
    loop {
        let mut head = [0; 5];
        connection.read_exact(&mut head)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4;
        let mut body = vec![0; length];
        connection.read_exact(&mut body)?;
        let answer = match head[0] {
            b'P' => say(b'1', b""),
            b'D' => [say(b't', &[0, 0]), say(b'T', &columns)].concat(),
            b'B' => say(b'2', b""),
            b'E' => [say(b'D', &row), say(b'C', b"SELECT 1\0")].concat(),
            b'S' => ready.clone(),
            b'C' => say(b'3', b""),
            b'Q' => [say(b'C', b"SET\0"), ready.clone()].concat(),
            _ => return Ok(()),
        };
        connection.write_all(&answer)?;
    }
}

#[tokio::test]
async fn the_port_is_taken() {
    let db = Db::new().await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let said = refusal_of(&url(&db.config), &format!("serve --listen 127.0.0.1:{port}"));
    assert!(said.starts_with(&format!("1 error: cannot listen on 127.0.0.1:{port}: ")), "{said}");
    assert!(said.contains("hint: another process may use this port"), "{said}");
    let dir = open_dir();
    let dev = |more: &[&str]| {
        let home = dir.path().join("home");
        tuskline(&["dev"]).env("TUSKLINE_DATA_DIR", home).with(|command| {
            command.args(more);
        })
    };
    let said = dev(&["--port", &port.to_string()]).run().refusal();
    assert_eq!(
        said,
        format!("1 error: port {port} of 127.0.0.1 is taken; choose another or leave TCP out")
    );
    // The same for the port of the health check, after PostgreSQL was started, and stopped again.
    let ran = dev(&["--listen", &format!("127.0.0.1:{port}")]).run();
    assert_eq!(ran.code, 1);
    assert!(
        ran.err.starts_with(&format!("error: cannot listen on 127.0.0.1:{port}: ")),
        "{}",
        ran.err
    );
    assert_eq!(crate::support::cli::processes_in(dir.path()), [""; 0]);
}

/// Starts `dev` in a directory that will not do.
fn refused_in(home: &Path, call: impl Fn(&[&str]) -> Call, expected: &str) {
    let said = call(&["dev"]).env("TUSKLINE_DATA_DIR", home).run().refusal();
    assert!(said.starts_with("1 error: ") && said.contains(expected), "{said}");
}

#[test]
fn the_data_directory_belongs_to_another_account() {
    let dir = open_dir();
    let home = dir.path().join("home");
    std::fs::create_dir(&home).unwrap();
    if !rustix::process::getuid().is_root() {
        refused_in(Path::new("/"), tuskline, "/ belongs to root, not to ");
        return;
    }
    let binary = dir.path().join("tuskline");
    copy(Path::new(TUSKLINE), &binary);
    let nobody = |arguments: &[&str]| {
        Call::of(&binary, arguments).with(|command| {
            command.uid(65_534).gid(65_534);
        })
    };
    let expected = format!("{} belongs to root, not to nobody; run as root or", home.display());
    refused_in(&home, nobody, &expected);
    std::fs::create_dir(home.join("data")).unwrap();
    let expected = "belongs to root and PostgreSQL refuses to run as root; chown it";
    refused_in(&home, tuskline, expected);
}

#[test]
fn the_data_directory_was_made_by_another_major() {
    let dir = open_dir();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    if rustix::process::getuid().is_root() {
        chown(&data, Some(65_534), None).unwrap();
    }
    std::fs::write(data.join("PG_VERSION"), "99\n").unwrap();
    refused_in(dir.path(), tuskline, "was made by PostgreSQL 99, but the binaries found are");
    assert_eq!(std::fs::read_to_string(data.join("PG_VERSION")).unwrap(), "99\n");
}

#[test]
fn the_binaries_are_missing() {
    let dir = open_dir();
    let call = |arguments: &[&str]| tuskline(arguments).env("TUSKLINE_PG_BIN", dir.path());
    refused_in(&dir.path().join("home"), call, ": no postgres there; set it to a directory with");
}

#[test]
fn a_socket_path_that_is_too_long_falls_back_to_a_short_one() {
    let dir = open_dir();
    let home = dir.path().join("x".repeat(120));
    let at = |words: &[&str]| tuskline(words).env("TUSKLINE_DATA_DIR", &home);
    let mut dev = at(&["dev", "--json"]).start();
    let said = dev.line();
    assert!(said.contains("@%2Ftmp%2Ftuskline-run-"), "{said}");
    assert_eq!(at(&["lambda", "define", "work"]).run().fine(), "lambda work is defined\n");
    dev.signal(Signal::TERM);
    assert_eq!(dev.end().code, 0);
}

/// Names the directory for the second half of the next test.
const SMALL_DISK: &str = "TUSKLINE_TEST_SMALL_DISK";

/// A tmpfs in a mount namespace, which goes with the processes in it, however they end.
#[test]
fn a_full_disk_refuses_tasks_and_loses_none() {
    let dir = open_dir();
    let root = rustix::process::getuid().is_root();
    let user = if root { &[][..] } else { &["-U", "--map-current-user", "--keep-caps"] };
    let mount = "mount -t tmpfs -o size=64m none \"$1\" && shift && exec \"$@\"";
    let allowed = |command: &[&str]| {
        let mut shell = Command::new("unshare");
        shell.args(user).args(["-m", "sh", "-c", mount, "sh"]).arg(dir.path()).args(command);
        shell.env(SMALL_DISK, dir.path());
        shell
    };
    if !allowed(&["true"]).output().is_ok_and(|output| output.status.success()) {
        // The reason goes to standard error directly: the test harness captures what the macros
        // print.
        let why =
            "skipped: a_full_disk_refuses_tasks_and_loses_none: no tmpfs may be mounted here\n";
        std::io::stderr().write_all(why.as_bytes()).unwrap();
        return;
    }
    let us = std::env::current_exe().unwrap();
    let half = ["--exact", "robustness::failures::on_a_small_disk_fill_it", "--nocapture"];
    let output = allowed(&[&[us.to_str().unwrap()], &half[..]].concat()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("the disk was full"), "{said}");
}

#[tokio::test]
async fn on_a_small_disk_fill_it() {
    let Some(disk) = std::env::var_os(SMALL_DISK) else { return };
    // The tablespace is on the small disk and the WAL on the usual disk. PostgreSQL stops without
    // room for the WAL, and this test does not cover that.
    let cluster = own_cluster().await;
    let db = on_small_disk(&cluster, Path::new(&disk)).await;
    db.define("work").await;
    let client = within(Client::connect(&url(&db.config))).await.unwrap();
    let noise: String = std::iter::repeat_with(fastrand::alphanumeric).take(8_000).collect();
    let task = NewTask::new("work", &noise);
    let mut accepted = client.schedule_many(&vec![task.clone(); 100]).await.unwrap();

    let filler = Path::new(&disk).join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    while file.write_all(&[1; 1 << 16]).is_ok() {}
    let error = loop {
        match client.schedule(&task).await {
            Ok(id) => accepted.push(id),
            Err(error) => break error,
        }
        assert!(accepted.len() < 10_000, "the disk is full");
    };
    assert!(error.is_retryable() && error.to_string().contains("No space left"), "{error:?}");
    let error = client.schedule_many(&vec![task.clone(); 100]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    let said = on(&db.config, "task schedule work").arg(&format!("\"{noise}\"")).run().refusal();
    assert!(said.contains("(53100)\nhint: the server's disk is full"), "{said}");
    let count = || db.one::<i64>("select count(*) from tuskline.tasks");
    let all = |accepted: &[_]| i64::try_from(accepted.len()).unwrap();
    assert_eq!((count().await, db.queued().await), (all(&accepted), all(&accepted)));
    println!("the disk was full");

    drop(file);
    std::fs::remove_file(&filler).unwrap();
    accepted.extend(client.schedule_many(&vec![task.clone(); 100]).await.unwrap());
    accepted.push(client.schedule(&task).await.unwrap());
    let stop = CancellationToken::new();
    let lambda = Lambda::named("work", async |_: String, _: Context| Ok::<_, String>(()));
    let sdk_worker =
        Worker::builder(url(&db.config)).serve(lambda).until(stop.clone().cancelled_owned());
    let working = tokio::spawn(sdk_worker.run());
    db.until("select not exists (select from tuskline.tasks where status <> 'success')").await;
    stop.cancel();
    within(working).await.unwrap().unwrap();
    assert_eq!(count().await, all(&accepted));
}

/// Makes a database whose tables lie on a disk of their own.
async fn on_small_disk(cluster: &Cluster, disk: &Path) -> Db {
    let any = Db::in_cluster(cluster).await;
    let home: String = any.one("select current_setting('data_directory')").await;
    let owner = Path::new(&home).metadata().unwrap();
    let space = disk.join("space");
    std::fs::create_dir(&space).unwrap();
    chown(&space, Some(owner.uid()), Some(owner.gid())).unwrap();
    any.run(&format!("create tablespace small location '{}'", space.display())).await;
    any.run("create database small template tuskline_template tablespace small").await;
    let config = cluster.config("small");
    let (client, connection) = within(config.connect(tokio_postgres::NoTls)).await.unwrap();
    tokio::spawn(connection);
    client.execute("select tuskline.verify()", &[]).await.unwrap();
    Db { config, client, place: None, cell: cell() }
}
