//! A tab: it opens pages, presses keys, clicks, and hears what the page complains about.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::chromium::Link;

/// A tab of a browser.
pub struct Tab {
    link: Arc<Link>,
    session: String,
    context: String,
    clicks: AtomicUsize,
}

/// The files that were loaded for a page.
#[derive(Debug, Clone, Copy, Default)]
pub struct Loaded {
    pub requests: usize,
    /// Bytes on the wire, with the heads of the answers.
    pub bytes: u64,
}

/// Finds what a person would click by its words, and says where it is.
const FIND: &str = r#"
    [...document.querySelectorAll('a, button, summary')]
      .filter((one) => one.checkVisibility() && one.textContent.trim() === TEXT)[0]"#;

const PLACE: &str = r#"((one) => {
    if (!one) return null;
    one.scrollIntoView({ block: 'center', behavior: 'instant' });
    const box = one.getClientRects()[0];
    return [box.x + box.width / 2, box.y + box.height / 2];
  })(ELEMENT)"#;

impl Tab {
    pub async fn new(link: Arc<Link>, context: &str) -> Self {
        let target = json!({ "url": "about:blank", "browserContextId": context });
        let target = link.call("", "Target.createTarget", target).await;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = link.call("", "Target.attachToTarget", attach).await;
        let session = session["sessionId"].as_str().unwrap().to_owned();
        let context = context.to_owned();
        let tab = Self { link, session, context, clicks: AtomicUsize::default() };
        for domain in ["Page", "Runtime", "Log", "Network", "Audits"] {
            tab.call(&format!("{domain}.enable"), json!({})).await;
        }
        tab.call("Network.setCacheDisabled", json!({ "cacheDisabled": true })).await;
        tab.resize(1280).await;
        tab.colours("light").await;
        tab
    }

    /// Another tab with the same cookies, in front of this one.
    pub async fn beside(&self) -> Self {
        let tab = Self::new(Arc::clone(&self.link), &self.context).await;
        tab.call("Page.bringToFront", json!({})).await;
        tab
    }

    /// The answer to a command of the protocol.
    pub async fn call(&self, method: &str, params: Value) -> Value {
        self.link.call(&self.session, method, params).await
    }

    /// Opens an address. The status of the answer.
    pub async fn open(&self, address: &str) -> u64 {
        let from = self.link.now();
        self.following(self.call("Page.navigate", json!({ "url": address }))).await;
        let events = self.link.since(&self.session, from);
        let document = events.iter().find(|one| {
            one.method == "Network.responseReceived" && one.params["type"] == "Document"
        });
        document.map_or(0, |one| one.params["response"]["status"].as_u64().unwrap_or(0))
    }

    /// Does something that leads to another page, and waits until that is there.
    pub async fn following<T>(&self, act: impl Future<Output = T>) -> T {
        let from = self.link.now();
        let done = act.await;
        self.event(from, "Page.loadEventFired").await;
        done
    }

    /// The place behind the newest event.
    pub fn now(&self) -> usize {
        self.link.now()
    }

    /// Waits for an event from a place on.
    pub async fn event(&self, from: usize, method: &str) -> Value {
        self.link.event(&self.session, from, method).await.params
    }

    /// The value of an expression; a promise is awaited.
    pub async fn eval(&self, expression: &str) -> Value {
        let asked =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let said = self.call("Runtime.evaluate", asked).await;
        assert_eq!(said["exceptionDetails"], Value::Null, "{expression}");
        said["result"]["value"].clone()
    }

    /// The text of an expression.
    pub async fn text(&self, expression: &str) -> String {
        self.eval(expression).await.as_str().unwrap_or_default().to_owned()
    }

    /// The heading of the page.
    pub async fn heading(&self) -> String {
        self.text("document.querySelector('h1')?.textContent").await
    }

    /// The words of the element that has focus.
    pub async fn focused(&self) -> String {
        self.text("document.activeElement.textContent.trim()").await
    }

    /// Waits until an expression is true.
    pub async fn until(&self, expression: &str) {
        let wait = format!(
            "new Promise((done, fail) => {{
               const end = Date.now() + 15000;
               const look = () => ({expression}) ? done(true)
                 : Date.now() > end ? fail(new Error('never')) : setTimeout(look, 20);
               look();
             }})"
        );
        self.eval(&wait).await;
    }

    /// Sets the width of the screen. Narrow ones are those of telephones.
    pub async fn resize(&self, width: u32) {
        let height = if width < 600 { 800 } else { 900 };
        let screen = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.call("Emulation.setDeviceMetricsOverride", screen).await;
    }

    /// Sets the colours of the system.
    pub async fn colours(&self, scheme: &str) {
        // Without transitions, so that what is seen is the end of each.
        let features = json!([
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features })).await;
    }

    /// Clicks what has these words.
    pub async fn click(&self, words: &str) {
        let element = FIND.replace("TEXT", &json!(words).to_string());
        let place = self.eval(&PLACE.replace("ELEMENT", &element)).await;
        assert!(place.is_array(), "nothing to click says {words:?}: {}", self.heading().await);
        for kind in ["mousePressed", "mouseReleased"] {
            let mouse = json!({
                "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1,
            });
            self.call("Input.dispatchMouseEvent", mouse).await;
        }
        self.clicks.fetch_add(1, Ordering::Relaxed);
    }

    /// Clicks what leads to another page.
    pub async fn follow(&self, words: &str) {
        self.following(self.click(words)).await;
    }

    /// Clicks until now.
    pub fn clicks(&self) -> usize {
        self.clicks.load(Ordering::Relaxed)
    }

    /// Puts the focus into a field, as a click into it does, and types.
    pub async fn fill(&self, selector: &str, text: &str) {
        self.eval(&format!("document.querySelector({}).focus()", json!(selector))).await;
        self.write(text).await;
    }

    /// Types into the field that has focus.
    pub async fn write(&self, text: &str) {
        self.call("Input.insertText", json!({ "text": text })).await;
    }

    /// Presses a key, which may be a letter.
    pub async fn key(&self, key: &str) {
        self.key_with(key, 0).await;
    }

    /// Presses a key with others held: 1 Alt, 2 Ctrl, 4 Meta, 8 Shift.
    pub async fn key_with(&self, key: &str, held: u8) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            "Escape" => (27, ""),
            " " => (32, " "),
            letter => (u32::from(letter.to_ascii_uppercase().as_bytes()[0]), letter),
        };
        let text = if held == 0 || held == 8 { text } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let press = json!({
                "type": kind, "key": key, "windowsVirtualKeyCode": code, "modifiers": held,
                "text": if kind == "keyDown" { text } else { "" },
            });
            self.call("Input.dispatchKeyEvent", press).await;
        }
    }

    /// Presses Tab until the element that has focus says these words.
    pub async fn tab_to(&self, words: &str) {
        for _ in 0..80 {
            self.key("Tab").await;
            if self.focused().await == words {
                return;
            }
        }
        panic!("Tab never comes to {words:?}");
    }

    /// Complaints of the page since a place: errors, and what its policy refused.
    pub fn complaints(&self, from: usize) -> Vec<String> {
        let events = self.link.since(&self.session, from).into_iter();
        let messages = events.filter_map(|one| {
            let entry = &one.params["entry"];
            match one.method.as_str() {
                "Runtime.exceptionThrown" | "Audits.issueAdded" => Some(one.params.to_string()),
                "Runtime.consoleAPICalled" if one.params["type"] != "log" => {
                    Some(one.params.to_string())
                }
                // The status of the document is asserted where it is expected.
                "Log.entryAdded" if entry["source"] != "network" && entry["level"] != "verbose" => {
                    Some(entry.to_string())
                }
                "Network.loadingFailed" => Some(one.params.to_string()),
                _ => None,
            }
        });
        messages.collect()
    }

    /// The files that were loaded since a place.
    pub fn loaded(&self, from: usize) -> Loaded {
        let events = self.link.since(&self.session, from).into_iter();
        let ended = events.filter(|one| one.method == "Network.loadingFinished");
        ended.fold(Loaded::default(), |sum, one| Loaded {
            requests: sum.requests + 1,
            bytes: sum.bytes + one.params["encodedDataLength"].as_f64().unwrap_or(0.0) as u64,
        })
    }

    /// The addresses that were asked for since a place.
    pub fn asked(&self, from: usize) -> Vec<String> {
        let events = self.link.since(&self.session, from).into_iter();
        let sent = events.filter(|one| one.method == "Network.requestWillBeSent");
        sent.map(|one| one.params["request"]["url"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// The page as a PNG, to a height.
    pub async fn picture(&self, most: u64) -> Vec<u8> {
        let size = self.eval("[innerWidth, document.documentElement.scrollHeight]").await;
        let height = size[1].as_u64().unwrap().min(most);
        let clip = json!({ "x": 0, "y": 0, "width": size[0], "height": height, "scale": 1 });
        let asked = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let said = self.call("Page.captureScreenshot", asked).await;
        decoded(said["data"].as_str().unwrap())
    }
}

/// The bytes of a text in base 64.
fn decoded(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut number, mut bytes) = (0, 0_u32, Vec::new());
    for digit in text.bytes().filter_map(|byte| DIGITS.iter().position(|one| *one == byte)) {
        number = (number << 6 | digit as u32) & 0xffff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((number >> bits) as u8);
        }
    }
    bytes
}
