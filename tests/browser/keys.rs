//! The keyboard alone is enough: through lists, a search, and an act.

use crate::chromium::Chromium;
use crate::sheets::Sheets;
use crate::shop::ON_CALL;
use crate::tab::Tab;

/// Whether the element that has focus shows that it has.
const SHOWS_FOCUS: &str = "getComputedStyle(document.activeElement).outlineStyle !== 'none'";

async fn go(tab: &Tab, page: &str) {
    tab.key("g").await;
    tab.following(tab.key(page)).await;
}

#[tokio::test]
#[ignore = "needs Chromium: ./x browser"]
async fn keys_lead_through_lists_a_search_and_an_act() {
    let sheets = Sheets::new().await;
    let (db, address) = (&sheets.shop.db, sheets.pages.address);
    let browser = Chromium::start();
    let tab = browser.tab().await;
    sheets.sign_in(&tab).await;
    tab.open(&format!("http://{address}/")).await;

    // The first stop leads past the bar on top.
    tab.key("Tab").await;
    assert_eq!(tab.focused().await, "Skip to the content");
    tab.key("Enter").await;
    assert_eq!(tab.text("document.activeElement.id").await, "main");

    // Rows.
    tab.key("j").await;
    let first = tab.focused().await;
    assert_eq!(tab.eval(SHOWS_FOCUS).await, true, "{first}");
    tab.key("j").await;
    let second = tab.focused().await;
    tab.key("k").await;
    assert_eq!(tab.focused().await, first);
    assert_ne!(first, second);
    tab.following(tab.key("Enter")).await;
    assert_eq!(tab.heading().await, first);

    // Pages, by two keys each.
    for (key, heading) in [
        ("t", "Tasks"),
        ("d", "Dead letters"),
        ("p", "Periodic tasks"),
        ("i", "Time line"),
        ("o", "4 of 12 lambdas need you"),
    ] {
        go(&tab, key).await;
        assert!(tab.heading().await.contains(heading), "g {key}: {}", tab.heading().await);
    }
    // Keys with others held belong to the browser, and a letter in a field is a letter.
    tab.key("g").await;
    tab.key_with("t", 2).await;
    tab.key("/").await;
    assert_eq!(tab.text("document.activeElement.id").await, "go");
    tab.key("j").await;
    assert_eq!(tab.text("document.activeElement.value").await, "j");
    tab.key("Escape").await;
    assert_eq!(tab.text("document.activeElement.tagName").await, "BODY");

    // A search, its filter, and a task of it.
    go(&tab, "t").await;
    tab.key("/").await;
    assert_eq!(tab.text("document.activeElement.id").await, "find");
    tab.write("lambda:parse_feed").await;
    tab.following(tab.key("Enter")).await;
    tab.tab_to("fatal_failure").await;
    tab.following(tab.key("Enter")).await;
    assert_eq!(
        tab.text("document.querySelector('#find').value").await,
        "lambda:parse_feed status:fatal_failure"
    );
    tab.key("j").await;
    let task = tab.focused().await;
    tab.following(tab.key("Enter")).await;
    assert_eq!(tab.heading().await, format!("Task {task}"));

    // The act.
    tab.tab_to("Retry…").await;
    tab.following(tab.key("Enter")).await;
    assert_eq!(tab.heading().await, format!("Retry task {task}?"));
    tab.tab_to(&format!("Retry task {task}")).await;
    assert_eq!(tab.eval(SHOWS_FOCUS).await, true);
    tab.following(tab.key("Enter")).await;
    assert_eq!(db.status(task.parse().unwrap()).await, "new");
    let who = "select actor || ' ' || coalesce(person, '-') || ' ' || verb || ' ' || subject
                 from tuskline.acts order by at desc limit 1";
    assert_eq!(db.one::<String>(who).await, format!("{ON_CALL} Ada Lovelace retry task {task}"));

    // The first remedy of a task that does not run.
    tab.open(&format!("http://{address}/tasks/{}", sheets.shop.waits)).await;
    tab.key("e").await;
    assert_eq!(tab.eval("document.activeElement.closest('.explain') !== null").await, true);
    sheets.end().await;
}
