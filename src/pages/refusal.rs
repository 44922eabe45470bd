//! The page in place of one that cannot be shown: why, and what would change it.

use axum::http::StatusCode;
use maud::{Markup, html};
use serde::Serialize;

use super::parts::{Frame, Part, Show};
use super::reading::ReadError;
use crate::identity::Refusal;

/// Why a page is not shown.
#[derive(Debug, Serialize)]
pub struct Refused {
    #[serde(skip)]
    status: StatusCode,
    error: String,
    detail: String,
    hint: Option<String>,
}

impl Refused {
    fn new(status: StatusCode, error: &str, detail: &str, hint: Option<&str>) -> Self {
        let owned = str::to_owned;
        Self { status, error: owned(error), detail: owned(detail), hint: hint.map(owned) }
    }

    /// The request is not understood.
    pub fn bad(detail: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "This address is not understood", detail, None)
    }

    /// The act has changed nothing.
    pub fn nothing(why: &str) -> Self {
        Self::new(StatusCode::CONFLICT, "Nothing has changed", why, None)
    }

    /// The reason.
    pub fn text(&self) -> String {
        self.detail.clone()
    }

    /// The database does not give the facts.
    pub fn by(error: &ReadError) -> Self {
        match error {
            ReadError::Away(text) => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "The database does not answer",
                text,
                Some("Workers wait, and continue by themselves. Tasks stay as they are."),
            ),
            ReadError::Denied(text, hint) => {
                Self::new(StatusCode::FORBIDDEN, "This role may not do this", text, hint.as_deref())
            }
            ReadError::Unknown(text) => Self::new(StatusCode::NOT_FOUND, "Not found", text, None),
            ReadError::Refused(text, hint) => Self::new(
                StatusCode::BAD_REQUEST,
                "The database refuses this",
                text,
                hint.as_deref(),
            ),
        }
    }

    /// The request is not answered.
    pub fn of(refusal: &Refusal) -> Self {
        let status = refusal.status();
        match refusal {
            Refusal::Host => Self::new(
                status,
                "Wrong host",
                "the pages are not asked for by the name of this host",
                Some("tuskline serve --host NAME"),
            ),
            Refusal::OtherSite => Self::new(
                status,
                "Another site sends this",
                "an act is a POST from a page of this server",
                None,
            ),
            Refusal::SignIn => Self::new(
                status,
                "Sign in",
                "a token is needed here, or a name from the proxy",
                Some("Authorization: Bearer TOKEN"),
            ),
            Refusal::TooMany => {
                Self::new(status, "Too many wrong tokens", "try again in a second", None)
            }
            Refusal::Forbidden(why) => Self::new(status, "Not allowed", why, None),
        }
    }
}

impl Show for Refused {
    fn title(&self) -> String {
        self.error.clone()
    }

    fn part(&self) -> Part {
        Part::Other
    }

    fn status(&self) -> StatusCode {
        self.status
    }

    fn body(&self, _: &Frame) -> Markup {
        html! {
            div .lead { h1 { (self.error) } }
            p { (self.detail) }
            @if let Some(hint) = &self.hint { p .muted { (hint) } }
        }
    }
}
