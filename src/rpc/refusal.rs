//! The answer in place of one that cannot be given: status, code, name, field.
//!
//! Promises: a mistake has the code of SQL (`docs/errors.md`) and the field that is wrong; 503 says when to
//! repeat. Must never: show an address or a password.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tuskline_sdk::{Error, ErrorKind};

use crate::identity::Refusal;
use crate::session::ErrorChain;

/// When to repeat a call that can succeed later.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Why a call is not done.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Refused {
    #[serde(skip)]
    status: StatusCode,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<Box<str>>,
    name: Box<str>,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u32>,
}

/// Refusals of the port itself.
impl Refused {
    fn new(status: StatusCode, name: &str, message: impl Into<String>) -> Self {
        let retry_after_ms = (status == StatusCode::SERVICE_UNAVAILABLE)
            .then(|| RETRY_AFTER.as_millis().try_into().unwrap_or_default());
        let (name, message) = (name.into(), message.into());
        Self { status, name, message, retry_after_ms, ..Self::default() }
    }

    /// The message is not as it must be.
    pub fn invalid(message: impl Into<String>, field: Option<String>) -> Self {
        Self { field, ..Self::new(StatusCode::BAD_REQUEST, "invalid_message", message) }
    }

    /// A refusal with a code of SQL.
    pub fn coded(code: tuskline_sdk::Code, message: String, field: String) -> Self {
        let line = format!("{} {}: {message}", code.as_str(), code.name());
        Self { field: Some(field), ..Self::said(code.as_str(), &line, None, ErrorKind::Invalid) }
    }

    /// Without a name, a repeated call would schedule again.
    pub fn not_repeatable(field: Option<String>) -> Self {
        let text = "a request_id is needed, or a unique_key of each task: a repeated call would schedule again";
        Self { field, ..Self::new(StatusCode::BAD_REQUEST, "not_repeatable", text) }
    }

    /// There is no such message.
    pub fn message(name: &str) -> Self {
        let known = "Schedule, ScheduleMany, Cancel, Status, Explain and Wait";
        let name: String = name.chars().take(80).collect();
        let text = format!("there is no message {name:?}: there are {known}");
        Self::new(StatusCode::NOT_FOUND, "unknown_message", text)
    }

    /// There is no such task.
    pub fn unknown_task(task: i64) -> Self {
        let text = format!("no task has the id {task}, or its retention is over");
        Self {
            field: Some("task".to_owned()),
            ..Self::new(StatusCode::NOT_FOUND, "unknown_task", text)
        }
    }

    /// A message is a POST.
    pub fn method() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_method", "a message is a POST")
    }

    /// A body is JSON, and says so.
    pub fn kind() -> Self {
        let text = "content-type must be application/json";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_content_type", text)
    }

    /// The body is too large.
    pub fn too_large(most: usize) -> Self {
        let text = format!("a message has at most {most} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", text)
    }

    /// The body does not come.
    pub fn slow(deadline: Duration) -> Self {
        let text = format!("the message did not come within {} s", deadline.as_secs());
        Self::new(StatusCode::REQUEST_TIMEOUT, "slow_message", text)
    }

    /// Too much is under way.
    pub fn busy(what: &str) -> Self {
        let text = format!("too many {what} are under way");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", text)
    }

    /// The request is not answered.
    pub fn of(refusal: &Refusal) -> Self {
        let (name, text) = match refusal {
            Refusal::Host => ("wrong_host", "this server is not called by the name of this host"),
            Refusal::OtherSite => ("other_site", "a page of another site sends this"),
            Refusal::SignIn => {
                ("no_identity", "send Authorization: Bearer TOKEN, or a name by the proxy")
            }
            Refusal::TooMany => ("too_many_guesses", "too many wrong tokens arrive"),
            Refusal::Forbidden(why) => ("forbidden", why.as_str()),
        };
        Self::new(refusal.status(), name, text)
    }
}

/// Refusals of the database.
impl Refused {
    /// The role of the sender cannot be set.
    pub fn role(error: tokio_postgres::Error) -> Self {
        match error.as_db_error().filter(|said| ["22023", "42501"].contains(&said.code().code())) {
            Some(said) => Self::new(StatusCode::FORBIDDEN, "no_role", said.message()),
            None => Self::by(error),
        }
    }

    /// The database refuses the call, or does not answer.
    pub fn by(error: tokio_postgres::Error) -> Self {
        let Some(said) = error.as_db_error() else {
            return Self::no_database(ErrorChain(&error).to_string());
        };
        let (code, message) = (said.code().code().to_owned(), said.message().to_owned());
        let hint = said.hint().map(str::to_owned);
        Self::said(&code, &message, hint, Error::from_write(error).kind())
    }

    /// An error of the SDK.
    pub fn error(error: &Error) -> Self {
        let text = ErrorChain(error).to_string();
        match error.sqlstate() {
            Some(code) => Self::said(code, &text, error.hint().map(str::to_owned), error.kind()),
            None => Self::no_database(text),
        }
    }

    /// The database does not answer.
    pub fn no_database(text: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "no_database", text)
    }

    fn said(code: &str, line: &str, hint: Option<String>, kind: ErrorKind) -> Self {
        let (status, usual) = match (code, kind) {
            ("TK004", _) => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            ("TK020", _) => (StatusCode::SERVICE_UNAVAILABLE, "backlog_full"),
            ("TK027" | "TK058", _) => (StatusCode::CONFLICT, "conflict"),
            ("22P02" | "22021" | "54001", _) => (StatusCode::BAD_REQUEST, "invalid_payload"),
            (_, ErrorKind::Denied) => (StatusCode::FORBIDDEN, "forbidden"),
            (_, ErrorKind::Unavailable | ErrorKind::Unknown | ErrorKind::Incompatible) => {
                (StatusCode::SERVICE_UNAVAILABLE, "no_database")
            }
            _ if code.starts_with("TK") => (StatusCode::BAD_REQUEST, "invalid_message"),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        };
        let line = line.strip_prefix(code).map_or(line, str::trim_start);
        let is_name = |name: &str| name.bytes().all(|one| one == b'_' || one.is_ascii_lowercase());
        let (name, message) = match line.split_once(": ").filter(|(name, _)| is_name(name)) {
            Some((name, message)) => (name, message),
            None => (usual, line),
        };
        let field = field_of(code, message);
        let (code, hint) = (Some(code.into()), hint.map(String::into_boxed_str));
        Self { code, field, hint, ..Self::new(status, name, message) }
    }

    /// Names the task of a batch that is wrong: the database names its row.
    pub fn in_tasks(mut self) -> Self {
        let row = self.message.rsplit_once("(row ").and_then(|(_, rest)| rest.split(' ').next());
        let row = row.and_then(|number| number.parse::<usize>().ok()).unwrap_or(1);
        if let Some(field) = self.field.take_if(|field| *field != "request_id") {
            self.field = Some(format!("tasks[{}].{field}", row.saturating_sub(1)));
        }
        self
    }
}

/// The field that a refusal concerns.
fn field_of(code: &str, message: &str) -> Option<String> {
    let first = message.split(' ').next().unwrap_or_default();
    let key = || message.split([' ', ':']).find(|word| word.ends_with("_key")).unwrap_or(first);
    let field = match code {
        "TK001" | "TK020" => "lambda",
        "TK002" => first,
        "TK003" | "TK004" => "payload",
        "TK005" if message.starts_with("delay") => "delay_ms",
        "TK005" => "scheduled_at",
        "TK006" => "priority",
        "TK007" => "tasks",
        "TK019" => key(),
        "TK027" => "unique_key",
        "TK054" => "traceparent",
        "TK057" | "TK058" => "request_id",
        _ => return None,
    };
    Some(field.to_owned())
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = self.status;
        let more = match status {
            StatusCode::UNAUTHORIZED => Some((header::WWW_AUTHENTICATE, "Bearer")),
            StatusCode::METHOD_NOT_ALLOWED => Some((header::ALLOW, "POST")),
            StatusCode::SERVICE_UNAVAILABLE => Some((header::RETRY_AFTER, "1")),
            _ => None,
        };
        let mut answer = (status, Json(self)).into_response();
        if let Some((name, value)) = more {
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        answer
    }
}
