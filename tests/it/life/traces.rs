//! The trace context of a caller reaches each attempt of its task, by each way to schedule it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tuskline_sdk::{
    Chain, Client, Code, Context, Data, Failure, Lambda, NewTask, TaskId, TraceLayer, Worker,
};

use crate::support::{Db, Running, calm};

/// The example of W3C Trace Context.
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

type Seen = Arc<Mutex<Vec<(i64, i16, Option<String>)>>>;

/// Fails at the first attempt.
async fn work(_: Value, seen: Data<Seen>, context: Context) -> Result<(), Failure> {
    let traceparent = context.traceparent().map(str::to_owned);
    seen.lock().unwrap().push((context.task().0, context.attempt(), traceparent));
    match context.attempt() {
        1 => Err(Failure::retry_after(Duration::ZERO, "not yet")),
        _ => Ok(()),
    }
}

#[tokio::test]
async fn each_attempt_gets_the_trace_of_the_call_that_scheduled_it() {
    let db = Db::with_lambda("work").await;
    let client = Client::connect(&db.config).await.unwrap();
    let task = || NewTask::new("work", &json!(1)).traceparent(TRACE);
    let plain = client.schedule(NewTask::new("work", &json!(1))).await.unwrap();
    let mut ids = vec![client.schedule(task()).await.unwrap()];
    ids.push(client.schedule(task().after(Duration::from_millis(1))).await.unwrap());
    let two = [NewTask::new("work", &json!(1)).traceparent(TRACE), task()];
    ids.extend(client.schedule_many(two).await.unwrap());
    let mut chain = Chain::new();
    let first = chain.task(task());
    let second = chain.task(task());
    chain.after(second, first);
    ids.extend(client.schedule_chain(&chain).await.unwrap().ids);
    let sql = "insert into tuskline.task (lambda, traceparent) values ('work', $1) returning id";
    ids.push(TaskId(db.ask(sql, &[&TRACE]).await));

    let seen = Seen::default();
    let worker = Worker::builder(&db.config).config(calm()).layer(TraceLayer);
    let worker = worker.serve(Lambda::named("work", work)).data(Arc::clone(&seen));
    let worker = Running::of(worker);
    for id in ids.iter().chain([&plain]) {
        while db.status(id.0).await != "success" {
            db.enqueue_due().await;
        }
    }
    worker.stop().await;
    let mut seen = seen.lock().unwrap().clone();
    seen.sort();
    let traced = ids.iter().map(|id| (id.0, Some(TRACE.to_owned())));
    let all = traced.chain([(plain.0, None)]);
    let mut expected: Vec<_> =
        all.flat_map(|(id, trace)| [1, 2].map(|attempt| (id, attempt, trace.clone()))).collect();
    expected.sort();
    assert_eq!(seen, expected);
    let status = client.status(ids[0]).await.unwrap().unwrap();
    assert_eq!(status.traceparent.as_deref(), Some(TRACE));
}

#[tokio::test]
async fn a_text_that_is_no_traceparent_is_refused_by_each_way() {
    let db = Db::with_lambda("work").await;
    let client = Client::connect(&db.config).await.unwrap();
    let error = client.schedule(NewTask::new("work", &1).traceparent("00-1-2-3")).await;
    assert_eq!(error.unwrap_err().code(), Some(Code::InvalidTraceparent));
    let zero = |part: &str| TRACE.replace(part, &"0".repeat(part.len()));
    for wrong in [zero(&TRACE[3..35]), zero(&TRACE[36..52]), format!("ff{}", &TRACE[2..])] {
        for sql in [
            format!("select tuskline.schedule('work', p_traceparent => '{wrong}')"),
            format!("insert into tuskline.task (lambda, traceparent) values ('work', '{wrong}')"),
        ] {
            let said = db.refused(&sql).await;
            assert!(said.contains("TK054 invalid_traceparent"), "{sql}: {said}");
        }
    }
    let upper = TRACE.to_uppercase();
    for sql in [
        format!("select tuskline.schedule('work', p_traceparent => '{upper}')"),
        format!("select tuskline.schedule('work', p_traceparent => '{upper}', p_delay => '1 h')"),
        format!("select tuskline.schedule_many('{{work}}', p_traceparents => '{{{upper}}}')"),
        format!("insert into tuskline.task (lambda, traceparent) values ('work', '{upper}')"),
        format!(
            r#"select tuskline.schedule_chain('[{{"lambda": "work", "traceparent": "{upper}"}}]')"#
        ),
    ] {
        let said = db.refused(&sql).await;
        assert!(said.contains("TK054 invalid_traceparent"), "{sql}: {said}");
    }
    let two = "select tuskline.schedule_many('{work}', p_traceparents => '{null,null}')";
    assert!(db.refused(two).await.contains("TK007"));
    assert_eq!(db.count("enqueued").await, 0);
}
