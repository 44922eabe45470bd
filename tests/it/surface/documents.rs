//! README.md, CONTRIBUTING.md and `docs/` are true. Each fenced block of `sh`, `sql` and `rust`
//! runs, or says why it does not. Each link leads somewhere, and each refusal is listed.
//!
//! The blocks of a page run in order, in a database of its own. `<!-- given` holds statements that
//! run there and are not shown. Rust blocks stand in `documents/`, where tests compile and run
//! them.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::runbooks;
use crate::support::cli::{TUSKLINE, url};
use crate::support::page::{Block, blocks};
use crate::support::{Db, refusal};

/// The Rust of the pages, as the modules below compile and run it.
const RUST: [&str; 14] = [
    include_str!("documents/worker.rs"),
    include_str!("documents/fenced.rs"),
    include_str!("documents/progress.rs"),
    include_str!("documents/slots.rs"),
    include_str!("documents/order.rs"),
    include_str!("documents/chain.rs"),
    include_str!("documents/patient.rs"),
    include_str!("documents/sqlx.rs"),
    include_str!("documents/defaults.rs"),
    include_str!("documents/definitions.rs"),
    include_str!("documents/walk.rs"),
    include_str!("documents/traces.rs"),
    include_str!("documents/logs.rs"),
    include_str!("../../../crates/testing/tests/kit/example.rs"),
];

/// Pages and documents have at most so many lines.
const LINES: usize = 150;

/// The statements of a text, without comments.
fn statements(text: &str) -> Vec<String> {
    let (mut statements, mut one) = (Vec::new(), String::new());
    let (mut quoted, mut body) = (false, false);
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        if !quoted && rest.starts_with("$$") {
            body = !body;
            one.push_str("$$");
            rest = &rest[2..];
            continue;
        }
        if !quoted && !body && rest.starts_with("--") {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
            continue;
        }
        quoted ^= next == '\'' && !body;
        rest = &rest[next.len_utf8()..];
        match next {
            ';' if !quoted && !body => statements.push(std::mem::take(&mut one).trim().to_owned()),
            _ => one.push(next),
        }
    }
    assert_eq!(one.trim(), "", "a statement ends with a semicolon");
    statements
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The documents whose blocks run: name and text.
fn pages() -> Vec<(String, String)> {
    let in_folder = |folder: &str| -> Vec<String> {
        let files = std::fs::read_dir(root().join(folder)).unwrap();
        files.map(|file| format!("{folder}/{}", file.unwrap().file_name().display())).collect()
    };
    let mut names = [in_folder("docs"), in_folder(runbooks::FOLDER)].concat();
    names.retain(|name| name.ends_with(".md"));
    names.extend(["README.md".to_owned(), "CONTRIBUTING.md".to_owned()]);
    names.sort();
    let text = |name: &String| std::fs::read_to_string(root().join(name)).unwrap();
    names.into_iter().map(|name| (name.clone(), text(&name))).collect()
}

/// Runs a statement; returns the server's error if there is one.
async fn execute(db: &Db, statement: &str) -> Result<(), tokio_postgres::Error> {
    if statement.starts_with("copy ") {
        let sink = db.client.copy_in::<_, &[u8]>(statement).await?;
        return Box::pin(sink).as_mut().finish().await.map(drop);
    }
    db.client.batch_execute(statement).await
}

/// Runs the SQL of a block, whose last statement is refused if the page shows a refusal.
async fn run_sql(db: &Db, block: &Block) -> Result<(), String> {
    let mut statements = statements(&block.text);
    let refused = block.error.as_ref().and_then(|error| Some((statements.pop()?, error)));
    for statement in &statements {
        let done = execute(db, statement).await;
        done.map_err(|error| format!("{}: {statement}", refusal(&error)))?;
    }
    let Some((statement, shown)) = refused else { return Ok(()) };
    let Err(error) = execute(db, &statement).await else {
        return Err(format!("is accepted: {statement}"));
    };
    let Some(said) = error.as_db_error() else { return Err(error.to_string()) };
    let mut lines = format!("ERROR:  {}\n", said.message());
    if let Some(hint) = said.hint().filter(|_| shown.contains("HINT:")) {
        writeln!(lines, "HINT:  {hint}").unwrap();
    }
    if lines == *shown {
        Ok(())
    } else {
        Err(format!("the page shows\n{shown}\nand it says\n{lines}"))
    }
}

/// Runs a block as a script, with `tuskline` in the path.
fn run_sh(db: &Db, block: &Block) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let programs = Path::new(TUSKLINE).parent().unwrap().display();
    let mut sh = Command::new("sh");
    sh.args(["-eu", "-c", &block.text]).current_dir(dir.path()).stdin(Stdio::null());
    sh.env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap()));
    sh.env("TUSKLINE_DATABASE_URL", url(&db.config)).env_remove("TUSKLINE_INSTALLATION");
    let ran = sh.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    if ran.status.success() { Ok(()) } else { Err(format!("{}: {said}", ran.status)) }
}

#[tokio::test]
async fn every_block_runs_or_says_why_not() {
    let (mut run, mut skipped, mut wrong) = (0, 0, Vec::new());
    // A drill runs those of a runbook.
    for (name, text) in pages().into_iter().filter(|(name, _)| !runbooks::has_drill(name)) {
        let mut db = None;
        for block in blocks(&text) {
            if !["sh", "sql", "rust", "given"].contains(&block.language.as_str()) {
                continue;
            }
            let done = match block.runs() {
                Ok(false) => {
                    skipped += 1;
                    continue;
                }
                Ok(true) if block.language == "rust" => match RUST.contains(&&*block.text) {
                    true => Ok(()),
                    false => Err("no file of tests/it/surface/documents has this text".to_owned()),
                },
                Ok(true) => {
                    if db.is_none() {
                        db = Some(match &*name {
                            "docs/rights.md" | "docs/rights-example.md" => Db::owned().await,
                            _ => Db::of_cell_0().await,
                        });
                    }
                    let db = db.as_ref().unwrap();
                    if block.language == "sh" {
                        run_sh(db, &block)
                    } else {
                        run_sql(db, &block).await
                    }
                }
                Err(error) => Err(error),
            };
            run += usize::from(block.language != "given");
            wrong.extend(done.err().map(|error| format!("{name}:{}: {error}", block.line)));
        }
    }
    let counts = format!(
        "documents: {} blocks, {run} run, {skipped} skipped with a reason, {} failed\n",
        run + skipped,
        wrong.len()
    );
    // The counts go to standard error directly: the test harness captures what the macros print.
    std::io::stderr().write_all(counts.as_bytes()).unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_rust_file_is_shown() {
    let pages = pages();
    for text in RUST {
        let block = format!("```rust\n{text}```\n");
        assert!(pages.iter().any(|(_, page)| page.contains(&block)), "no page shows:\n{text}");
    }
}

#[test]
fn a_block_is_not_skipped_without_a_reason() {
    let of = |info: &str| blocks(&format!("```{info}\nx\n```\n"))[0].runs();
    assert_eq!(of("sh"), Ok(true));
    assert_eq!(of("sh no-run: starts a server"), Ok(false));
    for info in ["sh no-run", "sh no-run: ", "sh ignore"] {
        assert!(of(info).is_err(), "{info}");
    }
}

#[test]
fn statements_end_at_semicolons_outside_of_texts() {
    let text = "select 'a;b'; -- c;\ndo $$ begin perform 1; end $$;\nselect '--';";
    assert_eq!(statements(text), ["select 'a;b'", "do $$ begin perform 1; end $$", "select '--'"]);
}

/// The anchors of a document: its headings, as GitHub names them.
pub(super) fn anchors(text: &str) -> Vec<String> {
    let heads = text.lines().filter(|line| line.starts_with('#'));
    let plain = |head: &str| -> String {
        let text = head.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    heads.map(plain).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut wrong = Vec::new();
    let more = ["ARCHITECTURE.md", "CHANGELOG.md", "SECURITY.md", "KNOWN.md"];
    let more =
        more.map(|name| (name.to_owned(), std::fs::read_to_string(root().join(name)).unwrap()));
    for (name, text) in pages().into_iter().chain(more) {
        let here = root().join(&name);
        for link in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')) {
            let (path, anchor) = link.0.split_once('#').unwrap_or((link.0, ""));
            if path.contains("://") {
                continue;
            }
            let to = if path.is_empty() { here.clone() } else { here.parent().unwrap().join(path) };
            let there = anchor.is_empty() && to.exists()
                || std::fs::read_to_string(&to)
                    .is_ok_and(|text| anchors(&text).iter().any(|known| known == anchor));
            if !there {
                wrong.push(format!("{name}: {}", link.0));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_walk_through_the_source_names_what_there_is() {
    let rooms = ["", "migrations/functions", "worker-sdk/src/worker"].map(|room| root().join(room));
    let sources =
        ["migrations", "worker-sdk/src", "src"].map(|room| sources_below(&root().join(room)));
    let sources = sources.concat();
    let page = include_str!("../../../docs/source-walk.md");
    let in_code = page.split('`').skip(1).step_by(2);
    let mut names = 0;
    for name in in_code.filter(|name| !name.contains(['<', ' '])) {
        names += 1;
        if name.ends_with(".rs") || name.ends_with(".sql") || name.ends_with('/') {
            assert!(rooms.iter().any(|room| room.join(name).exists()), "no file is called {name}");
        } else {
            let last = name.rsplit(['.', ':']).next().unwrap();
            assert!(sources.contains(last), "nothing is called {name}");
        }
    }
    assert!(names > 50, "{names}");
}

/// The text of all sources below a folder.
fn sources_below(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let text = |path: PathBuf| match path.is_dir() {
        true => sources_below(&path),
        false => std::fs::read_to_string(path).unwrap_or_default(),
    };
    entries.map(text).collect()
}

#[test]
fn every_page_is_in_the_contents_and_on_three_screens_at_most() {
    let contents = include_str!("../../../docs/README.md");
    for (name, text) in pages() {
        assert!(text.lines().count() <= LINES, "{name} has {} lines", text.lines().count());
        let Some(page) = name.strip_prefix("docs/").filter(|page| *page != "README.md") else {
            continue;
        };
        assert!(contents.contains(&format!("]({page})")), "docs/README.md lists {page}");
    }
}

#[tokio::test]
async fn every_refusal_is_listed() {
    let db = Db::new().await;
    // TK000 and TK034 do not leave the functions that raise them.
    let codes: Vec<String> = db
        .all(
            "select distinct c[1] from pg_proc, regexp_matches(prosrc, '''(TK[0-9]{3})''', 'g') as c
              where pronamespace in ('tuskline'::regnamespace, 'tuskline_core'::regnamespace)
                and c[1] not in ('TK000', 'TK034') order by 1",
        )
        .await;
    assert!(codes.len() > 30, "{codes:?}");
    let page = include_str!("../../../docs/errors.md");
    let missing: Vec<_> =
        codes.iter().filter(|code| !page.contains(&format!("\n| {code} | `"))).collect();
    assert!(missing.is_empty(), "docs/errors.md: {missing:?}");
}

/// The first worker.
mod worker {
    #![allow(dead_code, reason = "its main serves for ever, at a place of its own")]
    include!("documents/worker.rs");

    use crate::support::{Db, Running, calm};
    use tuskline_sdk::Lambda;

    #[tokio::test]
    async fn it_sends_an_email_and_fails_a_payload_that_is_none() {
        let db = Db::with_lambda("send_email").await;
        let worker = Running::start(&db, calm(), vec![Lambda::named("send_email", send_email)]);
        let good = db.schedule_with("send_email", r#"{"to": "ada@example.org"}"#).await;
        let bad = db.schedule_with("send_email", r#"{"form": "ada@example.org"}"#).await;
        db.until_status(good, "success").await;
        db.until_status(bad, "fatal_failure").await;
        worker.stop().await;
    }
}

/// A body whose own writes are fenced.
mod fenced {
    include!("documents/fenced.rs");

    use crate::support::{Db, Running, calm};
    use tuskline_sdk::Lambda;

    #[tokio::test]
    async fn its_booking_and_its_success_are_one_commit() {
        let db = Db::with_lambda("book").await;
        db.run("create table booking (order_no bigint primary key, at xid8 default pg_current_xact_id())")
            .await;
        let worker = Running::start(&db, calm(), vec![Lambda::named("book", book)]);
        let id = db.schedule_with("book", "7").await;
        db.until_status(id, "success").await;
        worker.stop().await;
        let booked: Vec<String> = db.lines("select order_no from booking").await;
        assert_eq!(booked, ["7"]);
        // The row of the task was last written by the transaction that booked.
        let one: bool = db
            .ask("select t.xmin = b.xmin from tuskline.task t, booking b where t.id = $1", &[&id])
            .await;
        assert!(one);
    }
}

/// A long task.
mod progress {
    include!("documents/progress.rs");

    use crate::support::{Db, Running, calm};
    use tuskline_sdk::Lambda;

    #[tokio::test]
    async fn it_says_how_far_it_came_and_what_it_kept() {
        let db = Db::with_lambda("import").await;
        let worker = Running::start(&db, calm(), vec![Lambda::named("import", import)]);
        let id = db.schedule_with("import", "3000").await;
        db.until_status(id, "success").await;
        worker.stop().await;
        let said = db
            .lines(&format!(
                "select percent, message, checkpoint::text from tuskline.task_status({id})"
            ))
            .await;
        assert_eq!(said, ["100 | importing | 3000"]);
    }
}

/// A lambda with slots of its own.
mod slots {
    include!("documents/slots.rs");

    use crate::support::Db;
    use crate::support::cli::url;
    use tokio_util::sync::CancellationToken;

    #[tokio::test]
    async fn its_worker_resizes() {
        let db = Db::with_lambda("resize").await;
        let id = db.schedule_with("resize", r#"{"image": 7}"#).await;
        let token = CancellationToken::new();
        let ended = worker(&url(&db.config)).until(token.clone().cancelled_owned());
        let work = tokio::spawn(ended.run());
        db.until_status(id, "success").await;
        token.cancel();
        work.await.unwrap().unwrap();
    }
}

/// A log without the parameters of statements.
mod logs {
    #![allow(dead_code, reason = "it sets the subscriber of the whole process")]
    include!("documents/logs.rs");
}

/// Spans that leave the process. The example `otlp` runs the same calls.
mod traces {
    #![allow(dead_code, reason = "it sets the subscriber of the whole process")]
    include!("documents/traces.rs");
}

/// A purchase by sqlx.
mod sqlx {
    include!("documents/sqlx.rs");

    use crate::support::Db;
    use crate::support::sqlx_pool;

    #[tokio::test]
    async fn its_purchase_and_its_task_are_one_commit() {
        let db = Db::with_lambda("ship").await;
        db.run("create table purchase (article text primary key)").await;
        let pool = sqlx_pool(&db).await;
        let id = order(&pool, "lamp").await.unwrap();
        assert!(order(&pool, "lamp").await.is_err(), "it was bought already");
        assert_eq!(db.all::<i64>("select id from tuskline.task").await, [id.0]);
    }
}

/// The lambdas of a deploy.
mod definitions {
    include!("documents/definitions.rs");

    use crate::support::Db;

    #[tokio::test]
    async fn its_deploy_brings_two_lambdas_and_a_schedule() {
        let db = Db::new().await;
        let client = Client::connect(&db.config).await.unwrap();
        deploy(&client).await.unwrap();
        let seen = "select l.name || coalesce(' ' || p.name, '') from tuskline.lambda l \
                      left join tuskline.periodic p on p.lambda = l.name order by 1";
        assert_eq!(db.all::<String>(seen).await, ["build_report nightly", "send_email"]);
    }
}

/// A payload with defaults.
mod defaults {
    include!("documents/defaults.rs");

    use crate::support::Db;
    use tuskline_sdk::Client;

    #[tokio::test]
    async fn its_invoice_is_scheduled_once() {
        let db = Db::with_lambda("send_invoice").await;
        db.run("select tuskline.set_unique('send_invoice')").await;
        let client = Client::connect(&db.config).await.unwrap();
        let first = client.schedule(Invoice { number: 7 }).await.unwrap();
        assert_eq!(client.schedule(Invoice { number: 7 }).await.unwrap(), first);
        assert_eq!(client.status(first).await.unwrap().unwrap().priority, Priority::High);
    }
}

/// A purchase and its mail.
mod order {
    include!("documents/order.rs");

    use crate::support::Db;
    use crate::support::cli::url;

    #[tokio::test]
    async fn its_purchase_and_its_mail_are_one_commit() {
        let db = Db::with_lambda("send_email").await;
        db.run("create table purchase (order_no bigint primary key)").await;
        let client = Client::connect(&url(&db.config)).await.unwrap();
        let id = order(&client, 7).await.unwrap();
        assert!(order(&client, 7).await.is_err(), "it was bought already");
        let sql = "select id, order_no, payload from tuskline.tasks, purchase";
        assert_eq!(db.lines(sql).await, [format!("{id} | 7 | {{\"order\":7}}")]);
    }
}

/// Tasks that wait for each other.
mod chain {
    include!("documents/chain.rs");

    use crate::support::Db;
    use crate::support::cli::url;

    #[tokio::test]
    async fn its_last_task_waits_for_all_the_rest() {
        let db = Db::new().await;
        for name in ["fetch", "parse", "clean_up"] {
            db.define(name).await;
        }
        let client = Client::connect(&url(&db.config)).await.unwrap();
        publish(&client).await.unwrap();
        let sql = "select lambda, status from tuskline.tasks order by id";
        assert_eq!(db.lines(sql).await, ["fetch | enqueued", "parse | new", "clean_up | new"]);
    }
}

/// A worker that outlasts a failover.
mod patient {
    include!("documents/patient.rs");

    #[test]
    fn its_timings_hold() {
        assert!(patient().check().is_ok());
    }
}
