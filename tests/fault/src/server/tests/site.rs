//! Nothing of a run outlives the injector, even one killed with frozen servers and volumes.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::*;

/// Names the test that plays the injector, and tells it to play.
const VICTIM: (&str, &str) = ("server::tests::site::an_injector_to_kill", "TUSKLINE_FAULT_VICTIM");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_a_killed_injector() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([VICTIM.0, "--exact", "--nocapture"]).env(VICTIM.1, "yes");
    let mut injector = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(injector.stdout.take().unwrap()).lines();
    let root = lines.map(Result::unwrap).find_map(|line| Some(line.strip_prefix("ROOT ")?.into()));
    let root: PathBuf = root.expect("the injector says where it is");
    let before = process::working_in(&root).len();
    assert!(before > 10, "two servers are running: {before} processes");
    let memory = segment(&root.join("frozen/data"));
    assert!(segments().contains(&memory));
    injector.kill().unwrap();
    injector.wait().unwrap();
    until("the end of every process", || process::working_in(&root).is_empty()).await;
    until("the end of the directory", || !root.exists()).await;
    assert!(!segments().contains(&memory), "shared memory {memory} is left");
}

/// Plays the injector for the test above; on its own it has nothing to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_injector_to_kill() {
    if std::env::var_os(VICTIM.1).is_none() {
        return;
    }
    let site = Site::new().unwrap();
    let volume = Volume::mount(&site, 128 * 1024 * 1024).await.unwrap();
    let disk = volume.map_or(Disk::Plain, Disk::Data);
    let on_disk = Server::create_on(&site, "on_disk", &[], disk, Clock::Machine).await.unwrap();
    let frozen = Server::create(&site, "frozen", &[]).await.unwrap();
    frozen.freeze();
    println!("\nROOT {}", site.root().display());
    tokio::time::sleep(Duration::from_secs(600)).await;
    drop((on_disk, frozen));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_orderly_end_removes_the_directory() {
    let site = Site::new().unwrap();
    let root = site.root().to_path_buf();
    let server = Server::create(&site, "orderly", &[]).await.unwrap();
    let mut killed = Server::create(&site, "killed", &[]).await.unwrap();
    killed.kill_postmaster().await;
    let memory = ["orderly/data", "killed/data"].map(|data| segment(&root.join(data)));
    drop((site, killed));
    assert!(!segments().contains(&memory[1]), "a killed server's shared memory is left");
    assert!(server.running(), "a server keeps its place");
    drop(server);
    assert!(!root.exists() && process::working_in(&root).is_empty());
    assert!(!segments().contains(&memory[0]), "shared memory is left");
}

/// The number of a server's shared memory.
fn segment(data: &Path) -> String {
    let pid_file = std::fs::read_to_string(data.join("postmaster.pid")).unwrap();
    let line = pid_file.lines().nth(6).unwrap();
    line.split_whitespace().nth(1).unwrap().to_owned()
}

/// The numbers of all shared memory there is.
fn segments() -> Vec<String> {
    let list = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
    list.lines().filter_map(|line| Some(line.split_whitespace().nth(1)?.to_owned())).collect()
}
