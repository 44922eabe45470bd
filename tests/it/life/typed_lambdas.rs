//! Typed lambdas: a payload names its lambda and its defaults. A body takes values of the worker,
//! and each error becomes the matching end.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::task::{Context as Poller, Poll};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tuskline_sdk::{
    Attempt, Client, Code, Context, Data, Failure, Lambda, Layer, NewTask, Payload, Priority,
    Service, TaskId, Worker, WorkerBuilder,
};

use crate::support::{Db, Running, calm, within};

#[derive(Serialize, Deserialize)]
struct Resize {
    image: String,
    width: u32,
}

impl Payload for Resize {
    const LAMBDA: &'static str = "resize";

    fn defaults(&self, task: NewTask) -> NewTask {
        task.priority(Priority::High).collection("images").unique_key(&self.image)
    }
}

fn sunset(width: u32) -> Resize {
    Resize { image: "sunset".into(), width }
}

/// A value that the lambdas of a worker share.
#[derive(Default)]
struct Seen(Mutex<Vec<String>>);

impl Seen {
    fn add(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

async fn resize(image: Resize, seen: Data<Arc<Seen>>, context: Context) -> Result<u32, Failure> {
    seen.add(format!("{} by {}, attempt {}", context.lambda(), image.image, context.attempt()));
    match image.width {
        0 => Err(Failure::fatal("no width")),
        1 => Err(Failure::retry_after(Duration::from_secs(60), "the store is busy")),
        2 => Err(Failure::snooze(Duration::from_secs(60))),
        3 => Err(std::io::Error::other("disk"))?,
        4 => Ok("four".parse::<u32>()?),
        width => Ok(width / 2),
    }
}

fn worker(db: &Db) -> WorkerBuilder {
    Worker::builder(&db.config).config(calm())
}

async fn with_resize() -> Db {
    let db = Db::with_lambda("resize").await;
    db.run("select tuskline.set_unique('resize')").await;
    db
}

async fn client(db: &Db) -> Client {
    Client::connect(&db.config).await.unwrap()
}

#[tokio::test]
async fn a_task_has_the_defaults_of_its_payload_unless_the_call_says_otherwise() {
    let db = with_resize().await;
    let client = client(&db).await;
    let first = client.schedule(sunset(80)).await.unwrap();
    assert_eq!(client.schedule(sunset(90)).await.unwrap(), first, "the unique key is held");
    let low = sunset(70).task().priority(Priority::Low).unique_key("another");
    let second = client.schedule(low.after(Duration::from_secs(60))).await.unwrap();
    let (first, second) =
        (client.status(first).await.unwrap(), client.status(second).await.unwrap());
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!((first.priority, second.priority), (Priority::High, Priority::Low));
    assert_eq!(first.collection.as_deref(), Some("images"));
    assert_eq!(first.unique_key.as_deref(), Some("sunset"));
    assert_eq!(first.payload.unwrap()["width"], 80);
    assert_eq!(second.unique_key.as_deref(), Some("another"));
    assert!(second.due_at > first.due_at + Duration::from_secs(30));
}

#[tokio::test]
async fn a_lambda_gets_its_payload_and_values_and_its_output_is_kept() {
    let db = with_resize().await;
    let seen = Arc::new(Seen::default());
    let worker = Running::of(worker(&db).lambda(resize).data(Arc::clone(&seen)));
    let id = client(&db).await.schedule(sunset(80)).await.unwrap();
    db.until_status(id.0, "success").await;
    let status = client(&db).await.status(id).await.unwrap().unwrap();
    assert_eq!(status.output, Some(serde_json::json!(40)));
    assert_eq!(seen.all(), ["resize by sunset, attempt 1"]);
    worker.stop().await;
}

#[tokio::test]
async fn each_error_becomes_the_end_that_it_stands_for() {
    let db = with_resize().await;
    let worker = Running::of(worker(&db).lambda(resize).data(Arc::new(Seen::default())));
    let client = client(&db).await;
    for (width, status, error) in [
        (0, "fatal_failure", Some("no width")),
        (1, "retriable_failure", Some("the store is busy")),
        (2, "new", None),
        (3, "retriable_failure", Some("disk")),
        (4, "retriable_failure", Some("invalid digit found in string")),
    ] {
        let task = sunset(width).task().unique_key(width.to_string());
        let id = client.schedule(task).await.unwrap();
        db.until_status(id.0, status).await;
        let known = client.status(id).await.unwrap().unwrap();
        assert_eq!(known.error.as_deref(), error, "{width}");
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_payload_of_another_type_fails_for_good() {
    let db = with_resize().await;
    let worker = Running::of(worker(&db).lambda(resize).data(Arc::new(Seen::default())));
    let id = db.schedule_with("resize", r#"{"image": 7}"#).await;
    db.until_status(id, "fatal_failure").await;
    let known = client(&db).await.status(TaskId(id)).await.unwrap().unwrap();
    assert_eq!(known.error_class.as_deref(), Some("decode"));
    let error = known.error.unwrap();
    assert!(error.starts_with("payload does not decode: invalid type: integer `7`"), "{error}");
    worker.stop().await;
}

#[tokio::test]
async fn a_worker_whose_lambda_needs_a_value_that_it_has_not_is_not_built() {
    let db = with_resize().await;
    let refused = worker(&db).lambda(resize).build().unwrap_err();
    assert_eq!(refused.code(), Some(Code::InvalidSetting));
    assert!(refused.to_string().contains("a lambda needs Data<"), "{refused}");
    assert!(refused.hint().unwrap().contains("WorkerBuilder::data"), "{refused:?}");
    let blocking = Lambda::blocking(|_: Resize, _: Data<String>| ());
    assert!(worker(&db).serve(blocking).build().is_err());
}

#[tokio::test]
async fn a_setter_that_was_given_something_wrong_is_refused_by_the_last_call() {
    let db = with_resize().await;
    let client = client(&db).await;
    let cases = [
        (NewTask::new("Resize", &1), Code::InvalidName),
        (NewTask::new("resize", &1).collection("No"), Code::InvalidName),
        (NewTask::new("resize", &1).unique_key(""), Code::InvalidKey),
        (NewTask::new("resize", &1).limit_key("a".repeat(257)), Code::InvalidKey),
        (NewTask::new("resize", &"\0"), Code::InvalidPayload),
        (NewTask::new("resize", &"a".repeat(1 << 20)), Code::PayloadTooLarge),
    ];
    for (task, code) in cases {
        let refused = client.schedule(&task).await.unwrap_err();
        assert_eq!(refused.code(), Some(code), "{refused}");
        let refused = client.schedule_many([&task]).await.unwrap_err();
        assert_eq!(refused.code(), Some(code), "{refused}");
    }
    assert_eq!(db.one::<i64>("select count(*) from tuskline.task").await, 0);
}

#[tokio::test]
async fn a_blocking_lambda_takes_the_same_arguments() {
    let db = with_resize().await;
    let body = |image: Resize, factor: Data<u32>, context: Context| {
        assert!(!context.is_cancelled());
        Ok::<_, Failure>(image.width * *factor)
    };
    let worker = Running::of(worker(&db).serve(Lambda::blocking(body)).data(3_u32));
    let id = client(&db).await.schedule(sunset(5)).await.unwrap();
    db.until_status(id.0, "success").await;
    let known = client(&db).await.status(id).await.unwrap().unwrap();
    assert_eq!(known.output, Some(serde_json::json!(15)));
    worker.stop().await;
}

/// Writes down the attempts that pass, and refuses those whose payload holds a word.
#[derive(Clone)]
struct Watch<S> {
    name: &'static str,
    refused: &'static str,
    seen: Arc<Seen>,
    inner: S,
}

struct WatchLayer(&'static str, &'static str, Arc<Seen>);

impl<S> Layer<S> for WatchLayer {
    type Service = Watch<S>;

    fn layer(&self, inner: S) -> Watch<S> {
        Watch { name: self.0, refused: self.1, seen: Arc::clone(&self.2), inner }
    }
}

impl<S> Service<Attempt> for Watch<S>
where
    S: Service<Attempt, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = S::Response;
    type Error = Failure;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<S::Response, Failure>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Poller<'_>) -> Poll<Result<(), Failure>> {
        self.inner.poll_ready(cx).map(|ready| ready.map_err(Failure::retry))
    }

    fn call(&mut self, attempt: Attempt) -> Self::Future {
        self.seen.add(format!("{} {}", self.name, attempt.lambda()));
        if attempt.payload().contains(self.refused) {
            return Box::pin(async { Err(Failure::fatal("refused by a layer")) });
        }
        let call = self.inner.call(attempt);
        Box::pin(async { call.await.map_err(Failure::retry) })
    }
}

#[tokio::test]
async fn layers_wrap_each_attempt_and_their_errors_end_it() {
    let db = with_resize().await;
    let seen = Arc::new(Seen::default());
    let layer = |name, refused| WatchLayer(name, refused, Arc::clone(&seen));
    let worker = worker(&db)
        .lambda(resize)
        .data(Arc::new(Seen::default()))
        .layer(layer("outer", "none of them"))
        .layer(layer("inner", "sunrise"));
    let worker = Running::of(worker);
    let client = client(&db).await;
    let passes = client.schedule(sunset(80)).await.unwrap();
    db.until_status(passes.0, "success").await;
    assert_eq!(seen.all(), ["outer resize", "inner resize"]);
    let refused = Resize { image: "sunrise".into(), width: 80 };
    let refused = client.schedule(refused).await.unwrap();
    db.until_status(refused.0, "fatal_failure").await;
    let known = within(client.status(refused)).await.unwrap().unwrap();
    assert_eq!(known.error.as_deref(), Some("refused by a layer"));
    worker.stop().await;
}
