//! The five-minute walk of `docs/walk.md`: a release breaks a collection. An operator sees it,
//! stops it, repairs it and loses nothing. The commands and the worker are those of the page.

use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::cli::{TUSKLINE, open_dir, tuskline};
use crate::support::{free_address, get};

/// Longest wait for a step. Workers report what they count every 5 s.
const PATIENCE: Duration = Duration::from_secs(60);

#[allow(dead_code, reason = "the test calls main")]
mod worker {
    include!("documents/walk.rs");

    /// The worker in a process of its own. As a test it has no order and does nothing.
    #[test]
    fn as_a_child_charge() {
        if std::env::var_os("RELEASE").is_some() {
            main().unwrap();
        }
    }
}

/// The page, and the installation that `tuskline dev` started.
struct Walk {
    commands: Vec<String>,
    data: PathBuf,
    url: String,
}

impl Walk {
    /// The commands of the page, in order.
    fn commands() -> Vec<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let page = std::fs::read_to_string(root.join("docs/walk.md")).unwrap();
        let blocks = page.split("```sh no-run: the test of the walk runs it\n").skip(1);
        blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
    }

    /// Runs the next block of the page, which has these words, with the value in place of FINGERPRINT or GATE.
    fn next(&mut self, words: &str, value: &str) -> String {
        let block = self.commands.remove(0);
        assert!(block.contains(words), "{words}: {block}");
        let block = block.replace("FINGERPRINT", value).replace("GATE", value);
        let programs = Path::new(TUSKLINE).parent().unwrap().display();
        let mut sh = Command::new("sh");
        sh.args(["-eu", "-c", &block]).stdin(Stdio::null());
        sh.env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap()));
        sh.env("TUSKLINE_DATA_DIR", &self.data).env_remove("TUSKLINE_DATABASE_URL");
        sh.env_remove("DATABASE_URL").env_remove("PGHOST");
        let ran = sh.output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{block}: {said}");
        String::from_utf8(ran.stdout).unwrap()
    }

    /// Starts a release of the worker, which records the cards that it charges.
    fn release(&self, release: &str, metrics: SocketAddr) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "surface::walk::worker::as_a_child_charge", "--nocapture"])
            .env("RELEASE", release)
            .env("DATABASE_URL", &self.url)
            .env("METRICS", metrics.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// The facts of `tuskline top`.
    fn top(&self) -> Value {
        tuskline(&["--json", "top"]).env("TUSKLINE_DATA_DIR", &self.data).run().json()
    }

    /// Waits until the facts are so.
    async fn until(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let facts = self.top();
            if is_so(&facts) {
                return facts;
            }
            assert!(Instant::now() < deadline, "it never happened that {what}: {facts:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// How many tasks of the collection are in each status.
    fn counts(&self, collection: &str) -> String {
        let sql = format!(
            "select string_agg(s, ', ' order by s) from (select status || ' ' || count(*) as s
               from tuskline.tasks where collection = '{collection}' group by status) t"
        );
        let psql = tuskline(&["psql", "--", "-Atqc", &sql]).env("TUSKLINE_DATA_DIR", &self.data);
        psql.run().fine().trim().to_owned()
    }

    async fn until_counts(&self, collection: &str, expected: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.counts(collection) != expected {
            assert!(Instant::now() < deadline, "{collection}: {}", self.counts(collection));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Ends a worker in order; returns the cards that it charged.
fn end(mut worker: Child) -> Vec<String> {
    kill_process(Pid::from_child(&worker), Signal::TERM).unwrap();
    let mut said = String::new();
    worker.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(worker.wait().unwrap().success());
    let mut charged: Vec<_> =
        said.lines().filter_map(|line| line.split("charged ").nth(1)).map(str::to_owned).collect();
    charged.sort();
    charged
}

/// The cards of a country, as a worker writes them down.
fn cards(country: &str, numbers: impl Iterator<Item = u32>) -> Vec<String> {
    let mut cards: Vec<_> = numbers.map(|number| format!("{country} {number}")).collect();
    cards.sort();
    cards
}

#[tokio::test]
async fn a_bad_release_is_seen_stopped_and_mended_and_each_task_succeeds() {
    let dir = open_dir();
    let data = dir.path().join("data");
    let (server, metrics) = (free_address(), free_address());
    let dev = ["dev", "--json", "--listen", &server.to_string()].map(str::to_owned);
    let mut dev =
        tuskline(&dev.each_ref().map(String::as_str)).env("TUSKLINE_DATA_DIR", &data).start();
    let said: Value = serde_json::from_str(&dev.line()).unwrap();
    let url = said["url"].as_str().unwrap().to_owned();
    let mut walk = Walk { commands: Walk::commands(), data, url };
    walk.next("lambda define", "");
    let first = walk.release("1", metrics);
    walk.next("schedule", "");

    // See it.
    walk.until_counts("eu", "success 20").await;
    walk.until_counts("us", "fatal_failure 20").await;
    let facts =
        walk.until("the lambda fails", |facts| facts["lambdas"][0]["health"] == "failing").await;
    let group = &facts["dead_groups"][0];
    assert_eq!((&group["lambda"], &group["collection"]), (&"charge".into(), &"us".into()));
    assert_eq!((&group["tasks"], &group["and_more"]), (&20.into(), &false.into()));
    assert_eq!(group["message"], "the gateway refuses the currency");
    let installation = get(server, "/metrics").await;
    assert!(installation.contains("tuskline_workers{lambda=\"charge\"} 1"), "{installation}");
    let worker = get(metrics, "/metrics").await;
    let failed = r#"tuskline_worker_attempts_total{lambda="charge",priority="normal",outcome="fatal_failure"} 20"#;
    assert!(worker.contains(failed), "{worker}");
    let groups = walk.next("top --json", "");
    let fingerprint = group["fingerprint"].as_str().unwrap();
    assert!(groups.contains(fingerprint), "{groups}");

    // Stop it.
    let paused = walk.next("gate pause", "");
    let gate = paused.split_whitespace().nth(1).unwrap(); // gate 1 is set; ...
    walk.next("schedule", "");
    walk.until_counts("eu", "success 25").await;
    walk.until("the gate holds five", |facts| facts["gates"][0]["parked"]["tasks"] == 5).await;
    assert_eq!(end(first), cards("eu", 1..=25));

    // Mend it.
    let second = walk.release("2", metrics);
    walk.next("gate open", gate);
    walk.until_counts("us", "fatal_failure 20, success 5").await;
    walk.next("redrive", fingerprint);
    walk.until_counts("us", "success 25").await;
    walk.until("no dead letter is left", |facts| facts["dead_groups"] == Value::Array(vec![]))
        .await;
    assert_eq!(end(second), cards("us", 1..=25), "each card once");
    assert_eq!(walk.counts("eu"), "success 25");
    assert!(walk.commands.is_empty(), "{:?}", walk.commands);
    dev.signal(Signal::INT);
    assert_eq!(dev.end().code, 0);
}
