//! A bad release, from the alert to its end, by a browser only. The database is asked after each step.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tuskline_sdk::{Context, Lambda, Outcome};

use crate::chromium::Chromium;
use crate::shop::{ON_CALL, TOKEN, make_people, people};
use crate::support::pages::Pages;
use crate::support::{Db, Running, quick};

/// Tasks that the bad release spoils.
const SPOILED: i64 = 40;

/// The lambda of a release that is bad while the flag says so.
fn release(is_bad: &Arc<AtomicBool>) -> Lambda {
    let is_bad = Arc::clone(is_bad);
    Lambda::named("charge_card", move |_: serde_json::Value, _: Context| {
        let is_bad = is_bad.load(Ordering::Relaxed);
        async move {
            match is_bad {
                true => Outcome::fatal("no field amount_minor"),
                false => Outcome::Success(None),
            }
        }
    })
}

/// The newest act: who, as which role, what.
async fn newest_act(db: &Db) -> String {
    db.one(
        "select coalesce(person, '-') || ' as ' || actor || ': ' || verb
           from tuskline.acts order by at desc limit 1",
    )
    .await
}

#[tokio::test]
#[ignore = "needs Chromium: ./x browser"]
async fn a_bad_release_is_stopped_and_mended_by_a_browser() {
    let db = Db::with_lambda("charge_card").await;
    make_people(&db).await;
    let is_bad = Arc::new(AtomicBool::new(false));
    let worker = Running::start(&db, quick(), vec![release(&is_bad)]);
    let consumer = db.store_consumer();
    let pages = Pages::of(&db, people(), "").await;
    let at = |path: &str| format!("http://{}/{path}", pages.address);
    db.schedule_many("charge_card", 5).await;
    db.until_count("success", 5).await;

    is_bad.store(true, Ordering::Relaxed);
    db.schedule_many("charge_card", i32::try_from(SPOILED).unwrap()).await;
    db.until(&format!("select count(*) = {SPOILED} from tuskline.dead_letter")).await;
    db.until("select coalesce(sum(fatal_failure), 0) = 40 from tuskline.statistics(null)").await;

    // The alert: the overview, opened by a person who looks.
    let browser = Chromium::start();
    let tab = browser.tab().await;
    tab.open(&at("")).await;
    assert_eq!(tab.heading().await, "1 of 1 lambdas needs you");
    assert_eq!(tab.text("document.querySelector('.state').textContent").await, "failing");
    tab.click("tuskline_viewer").await;
    tab.follow("Sign in").await;
    assert_eq!(tab.text("document.activeElement.id").await, "token");
    tab.write(TOKEN).await;
    tab.following(tab.key("Enter")).await;

    // The gate.
    tab.follow("charge_card").await;
    tab.follow("Pause…").await;
    tab.fill("#reason", "release 2 does not know amount_minor").await;
    tab.follow("Set a gate on charge_card: pause").await;
    let gate =
        "select count(*) from tuskline.gates where lambda = 'charge_card' and action = 'pause'";
    assert_eq!(db.one::<i64>(gate).await, 1);
    assert_eq!(newest_act(&db).await, format!("Ada Lovelace as {ON_CALL}: gate"));
    let kept = db.schedule_many("charge_card", 3).await;

    // The fix is a release, which no page makes.
    is_bad.store(false, Ordering::Relaxed);

    // The redrive, with a canary, of the cause on the list of dead letters.
    tab.follow("Dead letters").await;
    tab.follow("Redrive…").await;
    assert_eq!(tab.heading().await, format!("Redrive {SPOILED} tasks?"));
    assert_eq!(tab.eval("document.querySelector('[name=canary]').checked").await, true);
    tab.fill("#reason", "release 3 knows it").await;
    tab.follow(&format!("Redrive {SPOILED} tasks")).await;
    assert!(tab.text("location.pathname").await.starts_with("/operations/"));
    let canary = "select count(*) = 1 from tuskline.operations
                   where action = 'redrive' and state = 'canary' and changed = 1";
    db.until(canary).await;
    assert_eq!(db.count("success").await, 5, "the gate holds the canary");

    // The gate opens; the canary succeeds, and the rest follows.
    tab.follow("Overview").await;
    tab.follow("Open…").await;
    tab.fill("#reason", "release 3 is out").await;
    let button = tab.text("document.querySelector('button.go-on').textContent").await;
    tab.follow(&button).await;
    assert_eq!(db.one::<i64>(gate).await, 0);
    db.until_count("success", 5 + 3 + 40).await;
    db.until("select count(*) = 1 from tuskline.operations where state = 'done'").await;
    assert_eq!(db.one::<i64>("select count(*) from tuskline.dead_letter").await, 0);
    assert_eq!(db.status(kept[0]).await, "success");
    let acts: Vec<String> = db
        .all("select verb from tuskline.acts where person = 'Ada Lovelace' order by at, verb")
        .await;
    assert_eq!(acts, ["gate", "start_operation", "ungate"]);

    // Mended: nothing fails any more.
    tab.follow("Dead letters").await;
    assert_eq!(tab.text("document.querySelector('main > .muted').textContent").await, "None.");
    println!("a bad release: {} clicks from the alert to its end", tab.clicks());
    assert!(tab.clicks() <= 12, "{} clicks", tab.clicks());
    pages.end().await;
    drop(consumer);
    worker.stop().await;
}
