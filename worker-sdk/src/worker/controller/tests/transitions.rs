//! Each transition of a task is one line of the log.

use std::io::Write;

use serde_json::{Value, json};
use tracing_subscriber::fmt::MakeWriter;

use super::*;

/// Keeps what is written.
#[derive(Debug, Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn each_transition_is_one_line_without_a_payload() {
    let lines = Lines::default();
    let log = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(lines.clone());
    let guard = tracing::subscriber::set_default(log.finish());
    let (controller, _requests) = controller(config());
    let mut first = plan(&controller).await;
    let mut claimed = brought(&first, 7, 0, &[1, 2]);
    if let Some(claimed) = &mut claimed {
        claimed.tasks[0].payload = Some(crate::db::json::JsonOwned(r#""secret""#.into()));
    }
    answer(&controller, &mut first, claimed);
    let (one, two) = (work(&controller), work(&controller));
    let failed = AttemptResult::of(&one, Outcome::retriable("secret"), None);
    controller.finish(0, failed, Duration::from_secs(1));
    succeed(&controller, &two);
    let mut last = plan(&controller).await;
    controller.acknowledged(&mut last, but(2, Verdict::Refused));
    drop(guard);

    let text = lines.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let text = String::from_utf8(text).expect("text");
    assert!(!text.contains("secret"), "{text}");
    let parsed = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let failures: Vec<_> = parsed.clone().filter(|line| line["level"] == "WARN").collect();
    let [failure] = &failures[..] else { panic!("one line: {failures:?}") };
    let said =
        ["message", "lambda", "task", "attempt", "kind", "status"].map(|name| &failure[name]);
    let expected = json!(["attempt failed", "work", 1, 1, "error", "retriable_failure"]);
    assert_eq!(json!(said), expected);
    let logged: Vec<_> = parsed
        .filter(|line| line["target"] == "tuskline::transition")
        .map(|line| {
            assert_eq!((&line["lambda"], &line["fence"]), (&"work".into(), &7.into()), "{line}");
            format!("{} {} -> {}", line["task"], line["from"], line["to"])
        })
        .collect();
    let expected = [
        r#"1 "enqueued" -> "claimed""#,
        r#"2 "enqueued" -> "claimed""#,
        r#"1 "claimed" -> "retriable_failure""#,
        r#"2 "claimed" -> "refused""#,
    ];
    assert_eq!(logged, expected);
}
