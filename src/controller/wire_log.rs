//! The wire log: each message of an executor and each answer, a line of JSON each, in their order. It shows a
//! person what an executor says, and `tuskline conform` judges by it.
//!
//! It can also cut answers off, as a broken connection does: an executor must repeat its message then.
//! Must never: stand in the way where neither was asked for.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Extension, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::incoming::{LARGEST, Peer, body};

/// Looks at the wire, and its disturbance. By default there is neither.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Write each message and each answer to this file.
    pub log: Option<PathBuf>,
    /// Cut off each answer of this number to a message that is repeatable.
    pub lose_answers: Option<u64>,
}

/// See the module.
#[derive(Debug)]
pub struct WireLog {
    file: Option<Mutex<File>>,
    lose_answers: Option<u64>,
    answers: AtomicU64,
}

/// A line of the log.
#[derive(Debug, Serialize)]
struct Line<'a> {
    /// Microseconds since 1970.
    at_us: i64,
    /// The process at the other end of the connection.
    pid: u32,
    message: &'a str,
    /// `up`: by the executor. `down`: its answer.
    direction: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    lane: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    no: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    executor: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    /// The answer was cut off.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    lost: bool,
    body: Text<'a>,
}

/// A body as it is, or as a string if it is no JSON.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Text<'a> {
    Json(Box<RawValue>),
    Other(Cow<'a, str>),
}

/// Fields by which a person finds a message.
#[derive(Debug, Default, Deserialize)]
struct Names<'a> {
    #[serde(default, borrow)]
    executor: Option<Cow<'a, str>>,
    #[serde(default)]
    lane: u32,
    #[serde(default)]
    no: Option<u64>,
}

impl WireLog {
    /// None: nothing was asked for.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn open(options: &Options) -> io::Result<Option<Arc<Self>>> {
        if options.log.is_none() && options.lose_answers.is_none() {
            return Ok(None);
        }
        // For this user alone: payloads stand in it.
        let create = |path| {
            let mut file = File::options();
            std::os::unix::fs::OpenOptionsExt::mode(&mut file, 0o600);
            file.write(true).create(true).truncate(true).open(path)
        };
        let file = options.log.as_ref().map(create).transpose()?.map(Mutex::new);
        let lose_answers = options.lose_answers;
        Ok(Some(Arc::new(Self { file, lose_answers, answers: AtomicU64::new(0) })))
    }

    /// The routes, with all that passes written down.
    pub fn around(self: Arc<Self>, routes: Router) -> Router {
        routes.layer(from_fn_with_state(self, pass))
    }

    fn write(&self, line: &Line<'_>) {
        let Some(file) = &self.file else { return };
        // Texts and numbers: it cannot fail.
        let mut text = serde_json::to_vec(line).unwrap_or_default();
        // Between the words of a JSON text a line end is a space; within a string there is none.
        text.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
        text.push(b'\n');
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(&text) {
            tracing::warn!(%error, "the wire log cannot be written");
        }
    }

    fn loses(&self, message: &str, status: StatusCode) -> bool {
        let Some(each) = self.lose_answers else { return false };
        matches!(message, "NextWork" | "Save")
            && status == StatusCode::OK
            && (self.answers.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(each)
    }
}

async fn pass(
    State(log): State<Arc<WireLog>>,
    Extension(Peer(pid)): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, incoming) = request.into_parts();
    let asked = match body(Request::new(incoming)).await {
        Ok(asked) => asked,
        Err(refusal) => return refusal.into_response(),
    };
    let path = parts.uri.path().to_owned();
    let message = path.rsplit('/').next().unwrap_or_default();
    let names: Names = serde_json::from_slice(&asked).unwrap_or_default();
    let line = |direction, status, lost, body| Line {
        at_us: chrono::Utc::now().timestamp_micros(),
        pid,
        message,
        direction,
        lane: names.no.map(|_| names.lane),
        no: names.no,
        executor: names.executor.clone(),
        status,
        lost,
        body,
    };
    log.write(&line("up", None, false, text(&asked)));
    let answer = next.run(Request::from_parts(parts, Body::from(asked.clone()))).await;
    let (parts, answered) = answer.into_parts();
    // It is a text in memory: its reading cannot fail.
    let answered = to_bytes(answered, 2 * LARGEST).await.unwrap_or_default();
    let lost = log.loses(message, parts.status);
    log.write(&line("down", Some(parts.status.as_u16()), lost, text(&answered)));
    let body = if lost { cut_off() } else { Body::from(answered) };
    Response::from_parts(parts, body)
}

/// The connection ends where the body would begin.
fn cut_off() -> Body {
    let cut = std::future::ready(Err::<Bytes, _>(io::Error::other("the answer is cut off")));
    Body::from_stream(futures_util::stream::once(cut))
}

fn text(body: &[u8]) -> Text<'_> {
    let json =
        std::str::from_utf8(body).ok().and_then(|text| RawValue::from_string(text.into()).ok());
    json.map_or_else(|| Text::Other(String::from_utf8_lossy(body)), Text::Json)
}
