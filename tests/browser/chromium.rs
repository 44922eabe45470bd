//! A Chromium of the test's own, told what to do by the Chrome DevTools protocol.
//!
//! The browser reads commands from a pipe and writes answers into another one (`--remote-debugging-pipe`).
//! It ends when the test drops it, or when the pipe closes because the test has died. Must never: open
//! a port, or ask for another host than loopback.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{Notify, oneshot};

use crate::support::{DEADLINE, within};
use crate::tab::Tab;

/// A browser.
pub struct Chromium {
    child: Child,
    link: Arc<Link>,
    _profile: TempDir,
}

/// An event of a session.
#[derive(Debug, Clone)]
pub struct Event {
    pub session: String,
    pub method: String,
    pub params: Value,
}

/// The two pipes.
pub struct Link {
    commands: Mutex<Option<ChildStdin>>,
    last: AtomicU64,
    answers: Mutex<HashMap<u64, oneshot::Sender<Value>>>,
    events: Mutex<Vec<Event>>,
    came: Notify,
}

/// Puts the pipes where Chromium expects them: commands on 3, answers on 4.
const START: &str = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null"#;

const OPTIONS: [&str; 14] = [
    "--headless=new",
    "--remote-debugging-pipe",
    // Nothing but the pages of the test is asked for anything.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--font-render-hinting=none",
    "--force-color-profile=srgb",
    "about:blank",
];

impl Chromium {
    /// Starts the program of `TUSKLINE_CHROMIUM`, else `chromium`.
    pub fn start() -> Self {
        let program = std::env::var("TUSKLINE_CHROMIUM").unwrap_or_else(|_| "chromium".to_owned());
        let profile = tempfile::tempdir().unwrap();
        let log = std::fs::File::create(profile.path().join("log")).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", START, &program]);
        command.arg(format!("--user-data-dir={}", profile.path().display())).args(OPTIONS);
        if rustix::process::geteuid().is_root() {
            command.arg("--no-sandbox");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().unwrap();
        let link = Arc::new(Link {
            commands: Mutex::new(child.stdin.take()),
            last: AtomicU64::default(),
            answers: Mutex::default(),
            events: Mutex::default(),
            came: Notify::new(),
        });
        let (answers, reader) = (child.stdout.take().unwrap(), Arc::clone(&link));
        std::thread::spawn(move || reader.read(answers));
        Self { child, link, _profile: profile }
    }

    /// A tab with cookies of its own.
    pub async fn tab(&self) -> Tab {
        let context = self.link.call("", "Target.createBrowserContext", json!({})).await;
        let context = context["browserContextId"].as_str().unwrap().to_owned();
        Tab::new(Arc::clone(&self.link), &context).await
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // The end of its commands ends it.
        self.link.commands.lock().unwrap().take();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(5) {
            if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Link {
    fn read(&self, answers: ChildStdout) {
        let mut answers = BufReader::new(answers);
        let mut message = Vec::new();
        while answers.read_until(0, &mut message).is_ok_and(|read| read > 0) {
            message.pop();
            let said: Value = serde_json::from_slice(&message).unwrap_or_default();
            message.clear();
            match said["id"].as_u64() {
                Some(id) => {
                    if let Some(waits) = self.answers.lock().unwrap().remove(&id) {
                        let _ = waits.send(said);
                    }
                }
                None => {
                    let text = |field: &str| said[field].as_str().unwrap_or_default().to_owned();
                    let event = Event {
                        session: text("sessionId"),
                        method: text("method"),
                        params: said["params"].clone(),
                    };
                    self.events.lock().unwrap().push(event);
                    self.came.notify_waiters();
                }
            }
        }
        // A call that waits for an answer learns that none comes.
        self.answers.lock().unwrap().clear();
    }

    fn write(&self, command: &[u8]) {
        let mut commands = self.commands.lock().unwrap();
        commands.as_mut().expect("Chromium runs").write_all(command).expect("Chromium reads");
    }

    /// The answer to a command, which must not be an error.
    pub async fn call(&self, session: &str, method: &str, params: Value) -> Value {
        let id = 1 + self.last.fetch_add(1, Ordering::Relaxed);
        let mut command = json!({ "id": id, "method": method, "params": params });
        if !session.is_empty() {
            command["sessionId"] = json!(session);
        }
        let (send, answer) = oneshot::channel();
        self.answers.lock().unwrap().insert(id, send);
        let mut text = command.to_string().into_bytes();
        text.push(0);
        self.write(&text);
        let said = within(answer).await.expect("Chromium answers");
        assert_eq!(said["error"], Value::Null, "{method}");
        said["result"].clone()
    }

    /// The place behind the newest event.
    pub fn now(&self) -> usize {
        self.events.lock().unwrap().len()
    }

    /// The events of a session from a place on.
    pub fn since(&self, session: &str, from: usize) -> Vec<Event> {
        let events = self.events.lock().unwrap();
        events.iter().skip(from).filter(|one| one.session == session).cloned().collect()
    }

    /// The first event of a kind from a place on.
    pub async fn event(&self, session: &str, from: usize, method: &str) -> Event {
        let is_wanted = |one: &Event| one.method == method;
        let looking = async {
            loop {
                let came = self.came.notified();
                tokio::pin!(came);
                came.as_mut().enable();
                if let Some(found) = self.since(session, from).into_iter().find(is_wanted) {
                    return found;
                }
                came.await;
            }
        };
        let found = tokio::time::timeout(DEADLINE, looking).await;
        found.unwrap_or_else(|_| panic!("no {method} comes"))
    }
}
