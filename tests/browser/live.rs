//! An open page asks again and keeps its focus. A hidden one asks for nothing.

use serde_json::json;

use crate::chromium::Chromium;
use crate::sheets::Sheets;
use crate::tab::Tab;

/// Lets the timers of a page run for so many ms, without waiting for them.
async fn pass(tab: &Tab, ms: u32) {
    let from = tab.now();
    let budget = json!({ "policy": "pauseIfNetworkFetchesPending", "budget": ms });
    tab.call("Emulation.setVirtualTimePolicy", budget).await;
    tab.event(from, "Emulation.virtualTimeBudgetExpired").await;
}

#[tokio::test]
#[ignore = "needs Chromium: ./x browser"]
async fn a_refresh_shows_new_facts_and_keeps_the_focus() {
    let sheets = Sheets::new().await;
    let browser = Chromium::start();
    let tab = browser.tab().await;
    sheets.sign_in(&tab).await;
    let address = format!("http://{}/tasks/{}", sheets.pages.address, sheets.shop.waits);
    tab.open(&address).await;
    tab.key("j").await;
    tab.tab_to("Show").await;
    tab.eval("document.activeElement.isTheSame = true; scrollTo(0, 120)").await;
    let before = tab.eval("scrollY").await;
    sheets.shop.db.run(&format!("select tuskline.cancel({})", sheets.shop.waits)).await;
    let from = tab.now();
    pass(&tab, 6_000).await;
    tab.until("document.querySelector('.lead .state').textContent === 'cancelled'").await;
    assert_eq!(tab.asked(from), [address], "one request, for this page");
    assert_eq!(tab.focused().await, "Show");
    assert_eq!(tab.eval("document.activeElement.isTheSame").await, true);
    assert_eq!(tab.eval("scrollY").await, before);
    // The task has ended, so its page never asks again.
    let from = tab.now();
    pass(&tab, 120_000).await;
    assert_eq!(tab.asked(from), Vec::<String>::new());
    sheets.end().await;
}

#[tokio::test]
#[ignore = "needs Chromium: ./x browser"]
async fn a_page_that_is_hidden_paused_or_being_used_asks_for_nothing() {
    let sheets = Sheets::new().await;
    let browser = Chromium::start();
    let tab = browser.tab().await;
    sheets.sign_in(&tab).await;
    let overview = format!("http://{}/", sheets.pages.address);
    // The time of a tab stands still afterwards, so each question has its own.
    let asked = async |tab: &Tab| {
        let from = tab.now();
        pass(tab, 60_000).await;
        tab.asked(from).len()
    };
    let opened = async || {
        let tab = tab.beside().await;
        tab.open(&overview).await;
        tab
    };
    let seen = opened().await;
    assert!(asked(&seen).await >= 2, "a page that is seen asks");
    let used = opened().await;
    used.key("/").await;
    assert_eq!(asked(&used).await, 0, "a field has focus");
    let selected = opened().await;
    selected.eval("getSelection().selectAllChildren(document.querySelector('h1'))").await;
    assert_eq!(asked(&selected).await, 0, "a text is selected");
    let paused = opened().await;
    paused.follow("Pause").await;
    assert!(paused.text("location.search").await.contains("live=off"));
    assert_eq!(asked(&paused).await, 0, "paused");
    let resumed = opened().await;
    resumed.follow("Pause").await;
    resumed.follow("Go on").await;
    assert!(asked(&resumed).await >= 2, "it goes on");
    let hidden = opened().await;
    let _other = opened().await;
    assert_eq!(hidden.eval("document.hidden").await, true, "another tab is in front");
    assert_eq!(asked(&hidden).await, 0, "hidden");
    sheets.end().await;
}
