//! The Frontend by RPC: schedule tasks, cancel them and ask about them, by HTTP and JSON.
//!
//! `message` reads a request, `calls` does it as the role of its sender, `wait` waits for the end of a task,
//! and `refusal` is an answer that says why not.
//!
//! Promises: a message does what one verb of SQL does, with the rights of the sender's role; the sender is
//! known before its message is read; a repeated `Schedule` schedules nothing.
//! Must never: read a payload, take a token from a cookie or an address, or act for a page of another site.

mod calls;
mod message;
mod refusal;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::{Extension, Router};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tuskline_sdk::Address;

use crate::health::{Conversation, REQUEST_DEADLINE};
use crate::identity::{Access, Guesses, Person, Refusal, bearer, says_same_origin};
use crate::pages;
use calls::{Calls, PATIENCE};
use message::Message;
use refusal::Refused;

/// Largest message that schedules, in bytes.
const LARGEST: usize = 8 << 20;
/// Largest message of another kind, and largest one that is read before it has a permit. So much is read of a
/// message that is refused: else its sender may not see the answer.
const LARGEST_SHORT: usize = 65_536;
/// Most messages that are done at a time; a further one waits, for [`REQUEST_DEADLINE`] at most.
const MOST_CALLS: usize = 32;
/// Most calls that wait for the end of a task: a quarter of the connections of the port.
const MOST_WAITS: usize = 128;
/// Longest wait for the end of a task. Proxies end a request after 30 s or later.
const LONGEST_WAIT: Duration = Duration::from_secs(25);

/// The senders of messages, and the bounds.
#[derive(Debug, Clone)]
pub struct Options {
    /// People and programs that may call.
    pub access: Access,
    /// The path before every address: empty, or like `/tuskline`.
    pub base: String,
    /// Longest wait for the end of a task.
    pub longest_wait: Duration,
    /// Most calls that wait for the end of a task.
    pub most_waits: usize,
}

impl From<pages::Options> for Options {
    fn from(pages::Options { access, base }: pages::Options) -> Self {
        Self { access, base, longest_wait: LONGEST_WAIT, most_waits: MOST_WAITS }
    }
}

/// The Frontend, for the port of a server ([`crate::health::Beside`]).
pub fn router(address: Address, options: Options) -> Router {
    let base = options.base.trim_end_matches('/').to_owned();
    let frontend = Frontend {
        calls: Calls::new(address),
        access: options.access,
        guesses: Guesses::default(),
        in_work: Semaphore::new(MOST_CALLS),
        waits: Semaphore::new(options.most_waits),
        longest_wait: options.longest_wait,
    };
    Router::new()
        .route(&format!("{base}/tuskline.v1.Frontend/{{message}}"), any(answer))
        .with_state(Arc::new(frontend))
}

/// Everything that a call needs to be done or refused.
#[derive(Debug)]
struct Frontend {
    calls: Calls,
    access: Access,
    guesses: Guesses,
    in_work: Semaphore,
    waits: Semaphore,
    longest_wait: Duration,
}

async fn answer(
    State(frontend): State<Arc<Frontend>>,
    Extension(conversation): Extension<Conversation>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    let (head, body) = request.into_parts();
    let done = match frontend.admit(&head, &name).await {
        Ok(person) => frontend.call(&person, &name, (&head.headers, body), &conversation).await,
        Err(refused) => {
            let _ = timeout(REQUEST_DEADLINE, to_bytes(body, LARGEST_SHORT)).await;
            Err(refused)
        }
    };
    let kind = [(header::CONTENT_TYPE, "application/json")];
    let mut answer = match done {
        Ok(json) => (kind, json).into_response(),
        Err(refused) => refused.into_response(),
    };
    let headers = answer.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

impl Frontend {
    /// The sender of a request whose body is not read yet.
    async fn admit(&self, head: &Parts, name: &str) -> Result<Person, Refused> {
        let headers = &head.headers;
        if head.method != Method::POST {
            return Err(Refused::method());
        }
        if head.uri.query().is_some() {
            let text = "an address has no query: tokens and fields in it stay in logs";
            return Err(Refused::invalid(text, None));
        }
        self.access.check_host(headers).map_err(|refusal| Refused::of(&refusal))?;
        if !is_json(headers) {
            return Err(Refused::kind());
        }
        if says_same_origin(headers) == Some(false) {
            return Err(Refused::of(&Refusal::OtherSite));
        }
        let found = match bearer(headers) {
            Some(token) => self.guesses.check(token, || self.access.program(headers)).await,
            None => self.access.program(headers),
        };
        let person = found.map_err(|refusal| Refused::of(&refusal))?;
        if Message::changes(name).ok_or_else(|| Refused::message(name))? {
            self.access.may_act(&person).map_err(|refusal| Refused::of(&refusal))?;
        }
        Ok(person)
    }

    /// Reads a message and does what it says. Returns the JSON of the answer.
    async fn call(
        &self,
        person: &Person,
        name: &str,
        (headers, body): (&HeaderMap, Body),
        conversation: &Conversation,
    ) -> Result<String, Refused> {
        let length = length(headers);
        let is_short = length.is_some_and(|length| length <= LARGEST_SHORT);
        // A slow sender of a short message has no permit. Long ones would fill the memory without.
        let early = if is_short { None } else { Some(self.permit().await?) };
        let message = Message::read(name, &read(name, length, body).await?)?;
        conversation.has_request.set();
        conversation.prolong(REQUEST_DEADLINE + PATIENCE);
        if let Message::Wait { task, limit } = message {
            return self.wait(person, task, limit, conversation).await;
        }
        let _permit = match early {
            Some(permit) => permit,
            None => self.permit().await?,
        };
        self.calls.perform(person, message).await
    }

    /// A place among the calls that are done now.
    async fn permit(&self) -> Result<SemaphorePermit<'_>, Refused> {
        match timeout(REQUEST_DEADLINE, self.in_work.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(Refused::busy("calls")),
        }
    }
}

/// The length of the body, if the sender says it.
fn length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The whole body.
async fn read(name: &str, length: Option<usize>, body: Body) -> Result<String, Refused> {
    let most = if matches!(name, "Schedule" | "ScheduleMany") { LARGEST } else { LARGEST_SHORT };
    if length.is_some_and(|length| length > most) {
        return Err(Refused::too_large(most));
    }
    match timeout(REQUEST_DEADLINE, to_bytes(body, most)).await {
        Err(_) => Err(Refused::slow(REQUEST_DEADLINE)),
        Ok(Err(_)) if length.is_none() => Err(Refused::too_large(most)),
        Ok(Err(_)) => Err(Refused::invalid("the message ends early", None)),
        Ok(Ok(bytes)) => String::from_utf8(bytes.into())
            .map_err(|_| Refused::invalid("the message must be UTF-8", None)),
    }
}

/// Whether the body is said to be JSON. A page of another site cannot say so without asking first.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.unwrap_or_default().to_ascii_lowercase();
    let (kind, more) = kind.split_once(';').unwrap_or((&kind, ""));
    let is_utf8 = matches!(more.trim(), "" | "charset=utf-8" | "charset=\"utf-8\"");
    kind.trim() == "application/json" && is_utf8
}
