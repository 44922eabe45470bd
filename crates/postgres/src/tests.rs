//! The guarantees of the private server, each seen on a real one.

use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::account::Account;
use super::data_dir::DataDir;
use super::databases::drop_within;
use super::launch::connect;
use super::{Cluster, Error, Options, Stop};

/// How long a test waits for anything before it fails.
const LIMIT: Duration = Duration::from_secs(60);

/// A directory that goes with the test and that the server's account can enter.
fn directory() -> tempfile::TempDir {
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

fn root() -> bool {
    rustix::process::getuid().is_root()
}

async fn start(dir: &Path) -> Cluster {
    Cluster::start(Options::throw_away(dir)).await.unwrap()
}

async fn refusal(options: Options) -> String {
    let error = Cluster::start(options).await.expect_err("it must be refused").to_string();
    assert!(!error.contains('\n'), "one line: {error}");
    error
}

async fn query(cluster: &Cluster, statement: &str) -> Vec<String> {
    let client = connect(&cluster.config("postgres")).await.unwrap();
    let answers = client.simple_query(statement).await.unwrap();
    let mut rows = Vec::new();
    for answer in answers {
        if let tokio_postgres::SimpleQueryMessage::Row(row) = answer {
            rows.push(row.get(0).unwrap_or_default().to_owned());
        }
    }
    rows
}

/// Waits until a condition holds, or fails.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn number(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

fn gone(pid: u32) -> bool {
    test_kill_process(number(pid)).is_err()
}

#[tokio::test]
async fn a_temporary_cluster_starts_answers_and_leaves_nothing() {
    let settings = vec![("work_mem".to_owned(), "5MB".to_owned())];
    let cluster = Cluster::temporary(settings).await.unwrap();
    let shown = |name: &str| format!("show {name}");
    assert_eq!(query(&cluster, &shown("fsync")).await, ["off"]);
    assert_eq!(query(&cluster, &shown("work_mem")).await, ["5MB"]);
    assert_eq!(query(&cluster, &shown("shared_buffers")).await, ["128MB"]);
    assert_eq!(query(&cluster, &shown("max_connections")).await, ["200"]);
    assert_eq!(query(&cluster, &shown("listen_addresses")).await, [""]);
    assert!(!cluster.attached());
    let (dir, pid) = (cluster.site_root(), cluster.postmaster_pid());
    drop(cluster);
    assert!(gone(pid) && !dir.exists());
}

#[tokio::test]
async fn committed_rows_survive_an_immediate_stop() {
    let dir = directory();
    let mut cluster = Cluster::start(Options::durable(dir.path())).await.unwrap();
    assert_eq!(query(&cluster, "show fsync").await, ["on"]);
    query(&cluster, "create table kept as select 'kept' as row").await;
    cluster.stop(Stop::Immediate).await.unwrap();
    assert!(gone(cluster.postmaster_pid()));
    cluster.start_again().await.unwrap();
    assert_eq!(query(&cluster, "select row from kept").await, ["kept"]);
    cluster.stop(Stop::Fast).await.unwrap();
    cluster.stop(Stop::Fast).await.unwrap();
}

#[tokio::test]
async fn a_killed_postmaster_is_started_again_over_its_pid_file() {
    let mut cluster = Cluster::temporary(Vec::new()).await.unwrap();
    let killed = cluster.postmaster_pid();
    kill_process(number(killed), Signal::KILL).unwrap();
    wait_until("the kill", || gone(killed));
    cluster.start_again().await.unwrap();
    assert_ne!(cluster.postmaster_pid(), killed);
    assert_eq!(query(&cluster, "select 'back'").await, ["back"]);
}

#[tokio::test]
async fn a_pid_file_that_names_another_process_is_stale() {
    let dir = directory();
    let mut cluster = start(dir.path()).await;
    let files = ["data/postmaster.pid", "run/.s.PGSQL.5432.lock"].map(|name| dir.path().join(name));
    let texts = files.clone().map(|file| std::fs::read_to_string(file).unwrap());
    cluster.stop(Stop::Fast).await.unwrap();
    // A process of the server's account that is alive: what a restarted container may look like.
    let account = Account::choose(&DataDir::at(dir.path()), rustix::process::getuid().as_raw());
    let mut other = account.unwrap().command(Path::new("/bin/sleep")).arg("60").spawn().unwrap();
    for (file, text) in files.iter().zip(texts) {
        let (_, rest) = text.split_once('\n').unwrap();
        std::fs::write(file, format!("{}\n{rest}", other.id())).unwrap();
    }
    let started = cluster.start_again().await;
    other.kill().unwrap();
    other.wait().unwrap();
    started.unwrap();
}

#[tokio::test]
async fn a_second_start_on_the_directory_attaches_and_never_stops_it() {
    let dir = directory();
    let ours = start(dir.path()).await;
    let mut theirs = start(dir.path()).await;
    assert!(theirs.attached() && !ours.attached());
    assert_eq!(theirs.postmaster_pid(), ours.postmaster_pid());
    theirs.stop(Stop::Immediate).await.unwrap();
    drop(theirs);
    assert_eq!(query(&ours, "select 'alive'").await, ["alive"]);
}

#[tokio::test]
async fn of_two_starts_at_the_same_time_one_launches() {
    let dir = directory();
    let (a, b) = tokio::join!(start(dir.path()), start(dir.path()));
    assert!(a.attached() != b.attached());
    assert_eq!(a.postmaster_pid(), b.postmaster_pid());
}

#[tokio::test]
async fn a_path_too_long_for_a_socket_falls_back_to_a_short_one() {
    let dir = directory();
    let long = dir.path().join("x".repeat(120)).join("and, a space");
    let cluster = start(&long).await;
    let socket_dir = PathBuf::from(query(&cluster, "show unix_socket_directories").await.remove(0));
    assert!(!long.join("run").exists());
    let socket_dir = PathBuf::from(socket_dir.to_string_lossy().trim_matches('"'));
    assert!(socket_dir.starts_with("/tmp"));
    assert_eq!(socket_dir.metadata().unwrap().mode() & 0o777, 0o700);
    drop(cluster);
    assert!(!socket_dir.exists());
}

#[tokio::test]
async fn every_address_reaches_the_database() {
    let dir = directory();
    let cluster = start(&dir.path().join("odd dir 'quoted' & 100%")).await;
    cluster.create_database("a b", None).await.unwrap();
    cluster.create_database("a b", None).await.unwrap();
    cluster.create_database("copy", Some("a b")).await.unwrap();
    let error = cluster.create_database("copy", Some("a b")).await.unwrap_err().to_string();
    assert!(error.contains("already exists"), "{error}");
    let config: tokio_postgres::Config = cluster.url("a b").parse().unwrap();
    let client = connect(&config).await.unwrap();
    let row = client.query_one("select current_database()::text", &[]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), "a b");
    drop(client);
    if cluster.binaries().dir.join("psql").is_file() {
        let line = format!("{} -AXtc 'select current_user'", cluster.psql_command("a b"));
        let output = Command::new("sh").args(["-c", &line]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "tuskline\n", "{output:?}");
    }
}

#[tokio::test]
async fn a_drop_that_waits_is_begun_again() {
    let dir = directory();
    let cluster = start(dir.path()).await;
    cluster.create_database("a \"b", None).await.unwrap();
    let holder = connect(&cluster.config("postgres")).await.unwrap();
    holder.batch_execute("begin; alter database \"a \"\"b\" rename to c").await.unwrap();
    let client = connect(&cluster.config("postgres")).await.unwrap();
    client.batch_execute("set statement_timeout = '1min'").await.unwrap();
    let patience = Duration::from_secs(2);
    let (dropped, _) = tokio::join!(drop_within(&client, "a \"b", patience), async {
        tokio::time::sleep(patience + patience / 2).await;
        holder.batch_execute("rollback").await.unwrap();
    });
    dropped.unwrap();
    assert_eq!(
        query(&cluster, "select datname from pg_database where datname ~ 'b$'").await,
        [""; 0]
    );
    let kept = client.query_one("show statement_timeout", &[]).await.unwrap();
    assert_eq!(kept.get::<_, String>(0), "1min");
}

#[tokio::test]
async fn tcp_asks_for_the_generated_password() {
    let dir = directory();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    let options = Options { tcp_port: Some(port), ..Options::throw_away(dir.path()) };
    let taken = refusal(options.clone()).await;
    assert!(taken.contains(&format!("port {port} of 127.0.0.1 is taken")), "{taken}");
    drop(free);
    let cluster = Cluster::start(options.clone()).await.unwrap();
    let url = cluster.tcp_url("postgres").unwrap();
    connect(&url.parse().unwrap()).await.unwrap();
    let wrong = format!("postgresql://tuskline:wrong@127.0.0.1:{port}/postgres");
    assert!(connect(&wrong.parse().unwrap()).await.is_err());
    let mode = dir.path().join("tcp_password").metadata().unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
    let attached = Cluster::start(options.clone()).await.unwrap();
    assert_eq!(attached.tcp_url("postgres").unwrap(), url);
    let other = Options { tcp_port: Some(port ^ 1), ..options };
    assert!(refusal(other).await.contains("without TCP port"));
}

#[tokio::test]
async fn data_of_another_major_is_refused() {
    let dir = directory();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    if root() {
        chown(&data, Some(65_534), None).unwrap();
    }
    std::fs::write(data.join("PG_VERSION"), "99\n").unwrap();
    let error = refusal(Options::durable(dir.path())).await;
    assert!(error.contains("was made by PostgreSQL 99, but the binaries found are"), "{error}");
    std::fs::write(data.join("PG_VERSION"), "9.6\n").unwrap();
    let error = refusal(Options::durable(dir.path())).await;
    assert!(error.contains("PostgreSQL 9 ") && error.contains("too old"), "{error}");
    std::fs::remove_file(data.join("PG_VERSION")).unwrap();
    std::fs::write(data.join("letter"), "").unwrap();
    let error = refusal(Options::durable(dir.path())).await;
    assert!(error.contains("is not a PostgreSQL data directory"), "{error}");
}

#[test]
fn a_directory_of_another_account_is_refused() {
    let dir = directory();
    let place = DataDir::at(dir.path());
    let owner = dir.path().metadata().unwrap().uid();
    let stranger = owner + 1;
    let error = Account::choose(&place, stranger).unwrap_err();
    assert!(matches!(error, Error::ForeignOwner { .. }), "{error}");
    if !root() {
        return;
    }
    // Root becomes the owner of the directory, and refuses a cluster of its own.
    chown(dir.path(), Some(65_534), Some(65_534)).unwrap();
    assert_eq!(Account::choose(&place, 0).unwrap().uid, 65_534);
    std::fs::create_dir(dir.path().join("data")).unwrap();
    let error = Account::choose(&place, 0).unwrap_err();
    assert!(matches!(error, Error::OwnedByRoot { .. }), "{error}");
}

#[tokio::test]
async fn a_directory_the_account_cannot_enter_is_refused() {
    if !root() {
        return;
    }
    let dir = directory();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let error = refusal(Options::durable(dir.path().join("below"))).await;
    let closed = format!("cannot enter {}", dir.path().display());
    assert!(error.contains(&closed) && error.contains("outside it"), "{error}");
    assert!(!dir.path().join("below").exists());
}

#[tokio::test]
async fn a_failed_start_quotes_the_fatal_line() {
    let dir = directory();
    let settings = vec![("shared_buffers".to_owned(), "1 elephant".to_owned())];
    let error = refusal(Options { settings, ..Options::throw_away(dir.path()) }).await;
    assert!(error.contains("FATAL") && error.contains("shared_buffers"), "{error}");
    drop(start(dir.path()).await);
}

/// The other half of the next test: a process that starts a cluster and waits to be killed.
#[tokio::test]
async fn as_a_child_start_a_cluster_and_hang() {
    let Some(dir) = std::env::var_os("TUSKLINE_TEST_CHILD_DIR") else { return };
    let cluster = match dir.to_str() {
        Some("temporary") => Cluster::temporary(Vec::new()).await.unwrap(),
        _ => Cluster::start(Options::durable(dir)).await.unwrap(),
    };
    println!("child: {} {}", cluster.postmaster_pid(), cluster.site_root().display());
    // Its parent kills it long before; this is the deadline if that parent dies.
    std::thread::sleep(LIMIT);
}

/// Runs the test above in a process of its own and kills that with SIGKILL; gives the postmaster
/// and the directory of its cluster.
fn start_in_a_child_and_kill_it(dir: &Path) -> (u32, PathBuf) {
    let name = "tests::as_a_child_start_a_cluster_and_hang";
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env("TUSKLINE_TEST_CHILD_DIR", dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut said, mut byte) = (Vec::new(), [0]);
    let mut stdout = child.stdout.take().unwrap();
    let line = loop {
        assert_eq!(stdout.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&said));
        said.push(byte[0]);
        let text = String::from_utf8_lossy(&said).into_owned();
        if let Some((_, line)) = text.split_once("child: ")
            && let Some(line) = line.strip_suffix('\n')
        {
            break line.to_owned();
        }
    };
    child.kill().unwrap();
    child.wait().unwrap();
    let (pid, dir) = line.split_once(' ').unwrap();
    (pid.parse().unwrap(), PathBuf::from(dir))
}

#[tokio::test]
async fn the_server_dies_with_a_killed_parent() {
    let dir = directory();
    let (pid, _) = start_in_a_child_and_kill_it(dir.path());
    wait_until("the server's end", || gone(pid));
    let log = std::fs::read_to_string(dir.path().join("server.log")).unwrap();
    assert!(log.contains("fast shutdown"), "{log}");
    drop(start(dir.path()).await);
}

#[test]
fn a_temporary_directory_goes_with_a_killed_parent() {
    let (pid, dir) = start_in_a_child_and_kill_it(Path::new("temporary"));
    wait_until("the server's end", || gone(pid));
    wait_until("the directory's end", || !dir.exists());
}
