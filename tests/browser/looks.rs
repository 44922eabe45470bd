//! Each page as a person sees it: without complaints, within its width, small, and drawn for the book.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::chromium::Chromium;
use crate::sheets::Sheets;
use crate::support::{Db, own_cluster_with};
use crate::tab::Tab;

/// Bytes of a first paint with style, scripts and the heads of all answers, as gzip sends them.
const FIRST_PAINT: u64 = 30_000;
/// The narrowest screen.
const NARROWEST: u32 = 320;

/// Elements that reach beyond the right edge of the screen, unless it scrolls by itself.
const BEYOND: &str = "[...document.querySelectorAll('body *')]
    .filter((one) => one.getBoundingClientRect().right > WIDTH + 0.5
      && !one.closest('.scroll, .sr, .skip') && one.checkVisibility()).slice(-3)
    .map((one) => `${one.tagName}.${one.className}: ${one.textContent.trim().slice(0, 60)}`).join('; ')";

/// Whether a page stays within the screen; else what does not.
async fn overflow(tab: &Tab, name: &str, width: u32) -> Option<String> {
    tab.resize(width).await;
    let wide = tab.eval("document.documentElement.scrollWidth").await.as_u64().unwrap();
    let beyond = tab.text(&BEYOND.replace("WIDTH", &width.to_string())).await;
    (wide > u64::from(width)).then(|| format!("{name} at {width} is {wide} wide: {beyond}"))
}

#[tokio::test]
#[ignore = "needs Chromium: ./x browser"]
async fn each_page_is_small_complains_of_nothing_and_fits() {
    let sheets = Sheets::new().await;
    let browser = Chromium::start();
    let tab = browser.tab().await;
    sheets.sign_in(&tab).await;
    let mut wrong = Vec::new();
    println!("{:16} {:>8} {:>8}", "page", "requests", "bytes");
    for sheet in sheets.all() {
        let (name, from) = (sheet.name, tab.now());
        tab.resize(1_280).await;
        assert_eq!(tab.open(&sheet.address).await, sheet.status, "{name}");
        let loaded = tab.loaded(from);
        println!("{name:16} {:8} {:8}", loaded.requests, loaded.bytes);
        assert!(loaded.bytes <= FIRST_PAINT, "{name}: {loaded:?}");
        assert_eq!(loaded.requests, 4, "{name}: page, style and two scripts");
        assert_eq!(tab.eval("document.querySelectorAll('h1').length").await, 1, "{name}");
        for width in [1_280, 1_000, 720, 400, NARROWEST] {
            wrong.extend(overflow(&tab, name, width).await);
        }
        wrong.extend(tab.complaints(from).iter().map(|one| format!("{name}: {one}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    sheets.end().await;
}

#[tokio::test]
#[ignore = "needs Chromium: ./x browser"]
async fn long_names_and_large_payloads_stay_within_the_page() {
    let sheets = Sheets::new().await;
    let db = &sheets.shop.db;
    let name = "w".repeat(63);
    db.define_with(&name, "p_max_payload_bytes => 1048576").await;
    let large = json!({ "blob": "x".repeat(1_048_000) }).to_string();
    let sql = "select tuskline.schedule($1, $2, p_ordering_key => repeat('k', 200))";
    db.run(&format!("select tuskline.set_order('{name}')")).await;
    let task: i64 = db.ask(sql, &[&name, &large]).await;
    db.ask::<i64>(sql, &[&name, &large]).await;
    db.run("update tuskline.installation set name = 'default'").await;
    let worker = db.worker(&name).await;
    db.enqueue_due().await;
    let taken = worker.take().await;
    let message = "e".repeat(10_000);
    let note =
        format!(r#""status": "fatal_failure", "error_class": "{name}", "message": "{message}""#);
    worker.note(&taken, &note).await;
    db.run(&format!(
        "select tuskline.gate('{name}', 'pause', p_reason => repeat('r', 200));
         select tuskline.define_periodic('{}', '{name}', '0 3 * * *')",
        "p".repeat(63)
    ))
    .await;
    let browser = Chromium::start();
    let tab = browser.tab().await;
    sheets.sign_in(&tab).await;
    let mut wrong = Vec::new();
    for path in [
        String::new(),
        "lambdas".to_owned(),
        format!("lambdas/{name}"),
        format!("tasks/{task}?show=contents"),
        format!("tasks?q=lambda%3A{name}"),
        "dead-letters".to_owned(),
        "waits".to_owned(),
        "periodic".to_owned(),
        "executors".to_owned(),
        "operations".to_owned(),
        "time".to_owned(),
        "audit".to_owned(),
        format!("act/redrive?lambda={name}"),
        format!("act/retry?task={task}"),
    ] {
        let address = format!("http://{}/{path}", sheets.pages.address);
        assert_eq!(tab.open(&address).await, 200, "{path}");
        for width in [1_280, 400, NARROWEST] {
            wrong.extend(overflow(&tab, &path, width).await);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    sheets.end().await;
}

/// What axe-core says against the page: rule, element, why.
const AXE: &str = "axe.run(document, { resultTypes: ['violations'] }).then((all) =>
    all.violations.flatMap((rule) => rule.nodes.map((node) =>
      `${rule.id}: ${node.html.slice(0, 120)}: ${node.failureSummary.replaceAll('\\n', ' ').slice(0, 240)}`)))";

#[tokio::test]
#[ignore = "needs Chromium and axe-core: ./x browser"]
async fn axe_has_nothing_against_any_page() {
    let axe = std::env::var("TUSKLINE_AXE").expect("TUSKLINE_AXE names the file axe.min.js");
    let axe = std::fs::read_to_string(axe).unwrap();
    let sheets = Sheets::new().await;
    let browser = Chromium::start();
    let tab = browser.tab().await;
    sheets.sign_in(&tab).await;
    let (mut looked, mut said) = (0, Vec::new());
    for sheet in sheets.all() {
        tab.open(&sheet.address).await;
        tab.eval("document.querySelectorAll('details').forEach((one) => { one.open = true })")
            .await;
        tab.eval(&axe).await;
        for (width, colours) in [(1_280, "light"), (1_280, "dark"), (400, "light")] {
            tab.resize(width).await;
            tab.colours(colours).await;
            let violations = tab.eval(AXE).await;
            let violations = violations.as_array().unwrap().iter().filter_map(Value::as_str);
            said.extend(violations.map(|one| format!("{} {width} {colours}: {one}", sheet.name)));
            looked += 1;
        }
    }
    println!("axe-core looked {looked} times");
    assert!(said.is_empty(), "{} violations:\n{}", said.len(), said.join("\n"));
    sheets.end().await;
}

/// Writes a name of the database that is the same in each run.
const RENAME: &str = "((walker) => {
    while (walker.nextNode()) {
      walker.currentNode.data = walker.currentNode.data.replace(/test_\\d+ at \\S+/g, 'shop at localhost');
    }
  })(document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT))";

/// The font of the pictures, where it is installed: that of the system may be any.
const FONT: &str = "document.documentElement.style.setProperty('--sans', 'Inter, system-ui')";

/// Pictures in `target/browser`. The book has a choice of them: `docs/pages/`.
#[tokio::test]
#[ignore = "needs Chromium: ./x browser"]
async fn each_page_is_drawn() {
    let target = std::env::current_exe().unwrap();
    let target: PathBuf = target.ancestors().nth(3).unwrap().join("browser");
    std::fs::create_dir_all(&target).unwrap();
    // In a cluster that the doctor likes better than that of the tests.
    let durable = ["fsync", "full_page_writes", "synchronous_commit", "autovacuum"];
    let settings = durable.map(|name| (name, "on"));
    let rest = [("autovacuum_naptime", "1d"), ("idle_in_transaction_session_timeout", "5min")];
    let settings = [&settings[..], &rest].concat();
    let cluster = own_cluster_with(&settings).await;
    let sheets = Sheets::of(Db::in_cluster(&cluster).await).await;
    let browser = Chromium::start();
    let tab = browser.tab().await;
    sheets.sign_in(&tab).await;
    for sheet in sheets.all() {
        tab.open(&sheet.address).await;
        tab.eval(RENAME).await;
        tab.eval(FONT).await;
        for (width, most) in [(1_280, 1_100), (400, 1_400)] {
            for colours in ["light", "dark"] {
                tab.resize(width).await;
                tab.colours(colours).await;
                let picture = tab.picture(most).await;
                assert!(picture.starts_with(b"\x89PNG"), "{}", sheet.name);
                let file = target.join(format!("{}-{width}-{colours}.png", sheet.name));
                std::fs::write(file, picture).unwrap();
            }
        }
    }
    println!("pictures: {}", target.display());
    sheets.end().await;
}
