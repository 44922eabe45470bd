//! Without JavaScript each page has the same facts, and an act is done.

use serde_json::json;

use crate::chromium::Chromium;
use crate::sheets::Sheets;

#[tokio::test]
#[ignore = "needs Chromium: ./x browser"]
async fn each_page_and_an_act_work_without_scripts() {
    let sheets = Sheets::new().await;
    let browser = Chromium::start();
    let (plain, scripted) = (browser.tab().await, browser.tab().await);
    plain.call("Emulation.setScriptExecutionDisabled", json!({ "value": true })).await;
    for tab in [&plain, &scripted] {
        sheets.sign_in(tab).await;
    }
    // A look at a payload is a row of the audit, which the next look shows.
    scripted.open(&sheets.all().iter().find(|one| one.name == "task-shown").unwrap().address).await;
    for sheet in sheets.all() {
        let name = sheet.name;
        for tab in [&plain, &scripted] {
            assert_eq!(tab.open(&sheet.address).await, sheet.status, "{name}");
        }
        let is_plain = "!document.documentElement.classList.contains('js')";
        assert_eq!(plain.eval(is_plain).await, true, "{name}");
        let hidden =
            "[...document.querySelectorAll('.js-only')].every((one) => !one.checkVisibility())";
        assert_eq!(plain.eval(hidden).await, true, "{name} shows what would do nothing");
        // The same facts, but for a preview's signature and the time that a look took.
        let facts = "[...document.querySelectorAll('main :is(h1, th, dt, .acts a, .acts button)')]
            .filter((one) => !one.matches('.js-only')).map((one) => one.textContent.replace(/ of .* ago/, '')).join('|')";
        assert_eq!(plain.text(facts).await, scripted.text(facts).await, "{name}");
    }
    let (db, task) = (&sheets.shop.db, sheets.shop.waits);
    plain.open(&format!("http://{}/tasks/{task}", sheets.pages.address)).await;
    plain.follow("Cancel…").await;
    plain.fill("#reason", "the customer has gone").await;
    plain.follow(&format!("Cancel task {task}")).await;
    assert_eq!(plain.heading().await, format!("Task {task}"));
    assert_eq!(db.status(task).await, "cancelled");
    let who = "select person || ': ' || detail from tuskline.acts order by at desc limit 1";
    assert!(db.one::<String>(who).await.starts_with("Ada Lovelace: "));
    sheets.end().await;
}
