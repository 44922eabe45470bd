use serde_json::{Value, json};

use super::*;

/// Name and field of a refusal.
fn refused(name: &str, text: &str) -> (String, Option<String>) {
    let refused = Message::read(name, text).expect_err(text);
    let shown: Value = serde_json::to_value(&refused).expect("JSON");
    let of = |field: &str| shown[field].as_str().map(str::to_owned);
    (of("name").unwrap_or_default(), of("field"))
}

#[test]
fn every_field_of_a_task_is_read() {
    let text = json!({
        "request_id": "r", "lambda": "l", "payload": "{\"cents\":9007199254740993}",
        "priority": "high", "collection": "c", "scheduled_at": "2026-11-28T19:00:00+01:00",
        "delay_ms": 5, "ordering_key": "o", "limit_key": "k", "fairness_key": "f",
        "unique_key": "u", "traceparent": "t",
    });
    let Ok(Message::Schedule(order)) = Message::read("Schedule", &text.to_string()) else {
        panic!("a schedule");
    };
    let task = &order.tasks[0];
    let texts = [
        &task.payload,
        &task.priority,
        &task.collection,
        &task.ordering_key,
        &task.limit_key,
        &task.fairness_key,
        &task.unique_key,
        &task.traceparent,
        &order.request_id,
    ];
    let texts: Vec<&str> = texts.iter().map(|text| text.as_deref().unwrap_or_default()).collect();
    assert_eq!(texts.join(" "), r#"{"cents":9007199254740993} high c o k f u t r"#);
    assert_eq!((task.lambda.as_str(), task.delay_ms), ("l", Some(5)));
    let at = task.scheduled_at.map(|at| at.to_rfc3339());
    assert_eq!(at.as_deref(), Some("2026-11-28T18:00:00+00:00"));
}

#[test]
fn a_field_that_is_null_is_not_given() {
    let text = r#"{"lambda": "l", "request_id": "r", "payload": null, "delay_ms": null}"#;
    let Ok(Message::Schedule(order)) = Message::read("Schedule", text) else { panic!("read") };
    assert!(order.tasks[0].payload.is_none() && order.tasks[0].delay_ms.is_none());
}

/// A message, its text, and the name and field of its refusal.
type Wrong<'t> = (&'t str, &'t str, &'t str, Option<&'t str>);

#[rustfmt::skip]
const WRONG: [Wrong<'static>; 26] = [
    ("Schedule", r#"{"request_id":"r"}"#, "invalid_message", Some("lambda")),
    ("Schedule", r#"{"request_id":"r","lambda":7}"#, "invalid_message", Some("lambda")),
    ("Schedule", r#"{"request_id":"r","lambda":"a\u0000"}"#, "invalid_message", Some("lambda")),
    ("Schedule", r#"{"lambda":"l","delay":5}"#, "not_repeatable", None),
    ("Schedule", r#"{"lambda":"l","request_id":"r","delay":5}"#, "invalid_message", Some("delay")),
    ("Schedule", r#"{"lambda":"l","request_id":"r","delay_ms":"5"}"#, "invalid_message", Some("delay_ms")),
    ("Schedule", r#"{"lambda":"l","request_id":"r","delay_ms":1.5}"#, "invalid_message", Some("delay_ms")),
    ("Schedule", r#"{"lambda":"l","request_id":"r","payload":{}}"#, "invalid_message", Some("payload")),
    ("Schedule", r#"{"lambda":"l","request_id":"r","payload":"{a}"}"#, "invalid_payload", Some("payload")),
    ("Schedule", r#"{"lambda":"l","request_id":"r","payload":"\"\\u0000\""}"#, "invalid_payload", Some("payload")),
    ("Schedule", r#"{"lambda":"l","request_id":"r","scheduled_at":"2026-11-28T18:00:00"}"#, "invalid_message", Some("scheduled_at")),
    ("Schedule", r#"{"lambda":"l","request_id":"a\u0000"}"#, "invalid_message", Some("request_id")),
    ("Schedule", r#"{"lambda":"l","request_id":"r","request_id":"s"}"#, "invalid_message", None),
    ("ScheduleMany", r#"{"request_id":"r","tasks":[{"lambda":"l"},{"lambda":"l","lamda":"x"}]}"#, "invalid_message", Some("tasks[1].lamda")),
    ("ScheduleMany", r#"{"tasks":[{"lambda":"l","unique_key":"u"},{"lambda":"l"}]}"#, "not_repeatable", Some("tasks[1]")),
    ("ScheduleMany", r#"{"request_id":"r","tasks":[7]}"#, "invalid_message", Some("tasks[0]")),
    ("ScheduleMany", r#"{"request_id":"r"}"#, "invalid_message", Some("tasks")),
    ("Status", r#"{"task":4711}"#, "invalid_message", Some("task")),
    ("Status", r#"{"task":""}"#, "invalid_message", Some("task")),
    ("Status", r#"{"task":"+4711"}"#, "invalid_message", Some("task")),
    ("Status", r#"{"task":"99999999999999999999"}"#, "invalid_message", Some("task")),
    ("Wait", r#"{"task":"1","wait_ms":-1}"#, "invalid_message", Some("wait_ms")),
    ("Cancel", r#"{"task":"1","why":"x"}"#, "invalid_message", Some("why")),
    ("Cancel", "[]", "invalid_message", None),
    ("Cancel", r#"{"task":"1"} {}"#, "invalid_message", None),
    ("Redrive", "{}", "unknown_message", None),
];

#[test]
fn a_wrong_field_is_refused_by_its_name() {
    let deep = format!("{}1{}", "[".repeat(65), "]".repeat(65));
    let deep = json!({ "lambda": "l", "request_id": "r", "payload": deep }).to_string();
    let brackets = "[".repeat(100_000);
    let within = format!("{{\"task\":{brackets}");
    let deep: [Wrong<'_>; 3] = [
        ("Schedule", &deep, "invalid_payload", Some("payload")),
        ("Cancel", &brackets, "invalid_message", None),
        ("Cancel", &within, "invalid_message", None),
    ];
    for (message, text, name, field) in WRONG.into_iter().chain(deep) {
        let wanted = (name.to_owned(), field.map(str::to_owned));
        assert_eq!(refused(message, text), wanted, "{message} {}", &text[..text.len().min(90)]);
    }
}
