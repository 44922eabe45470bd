//! Parts of all pages: the shell around the facts, and the parts that several pages draw.
//!
//! Promises: every function here is pure; a part has a class and no style; a text is escaped once.

use std::time::Duration;

use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use maud::{DOCTYPE, Markup, html};
use serde::Serialize;

use super::files;
use super::words::{self, NOTHING};
use crate::identity::NOBODY;

/// The contents of a page. Its JSON has the same facts.
pub trait Show: Serialize {
    /// The title, without the name of the installation.
    fn title(&self) -> String;

    /// Which of the pages on top it belongs to.
    fn part(&self) -> Part;

    /// The page without its shell.
    fn body(&self, frame: &Frame) -> Markup;

    /// How soon an open page asks again. None: never.
    fn every(&self) -> Option<Duration> {
        None
    }

    /// The status of the answer.
    fn status(&self) -> StatusCode {
        StatusCode::OK
    }
}

/// The pages on top.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Overview,
    Tasks,
    DeadLetters,
    Waits,
    Periodic,
    Time,
    /// None of them.
    Other,
}

impl Part {
    const ALL: [(Self, &'static str, &'static str); 6] = [
        (Self::Overview, "", "Overview"),
        (Self::Tasks, "tasks", "Tasks"),
        (Self::DeadLetters, "dead-letters", "Dead letters"),
        (Self::Waits, "waits", "Waits"),
        (Self::Periodic, "periodic", "Periodic"),
        (Self::Time, "time", "Time line"),
    ];
}

/// Colours: those of the system, or what the person chose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Theme {
    #[default]
    System,
    Light,
    Dark,
}

impl Theme {
    /// Reads the value of `?theme=` and of the cookie.
    pub fn of(text: &str) -> Self {
        match text {
            "light" => Self::Light,
            "dark" => Self::Dark,
            _ => Self::System,
        }
    }

    /// The class of the document, and the value of the cookie.
    pub fn class(self) -> Option<&'static str> {
        match self {
            Self::System => None,
            Self::Light => Some("light"),
            Self::Dark => Some("dark"),
        }
    }
}

/// The surroundings of a page.
#[derive(Debug, Clone)]
pub struct Frame {
    /// The path before every address, without a slash at its end.
    pub base: String,
    /// The name of the installation.
    pub installation: String,
    /// Database and host, as in `shop at db.example`.
    pub database: String,
    /// Who looks: the name that the page shows.
    pub person: String,
    /// The role whose rights hold.
    pub role: String,
    /// Whether the person may act at all.
    pub may_act: bool,
    /// Whether the person has no token, and could have one.
    pub can_sign_in: bool,
    /// Whether the person signed in, and so can sign out.
    pub has_token: bool,
    /// The colours.
    pub theme: Theme,
    /// Whether an open page asks again.
    pub is_live: bool,
    /// The address of this page below the base, with its query.
    pub here: String,
    /// The database's time. None: the database is away.
    pub now: Option<DateTime<Utc>>,
}

impl Frame {
    /// An address of a page.
    pub fn to(&self, path: &str) -> String {
        match (self.base.as_str(), path) {
            (base, "") if !base.is_empty() => base.to_owned(),
            (base, path) => format!("{base}/{path}"),
        }
    }

    /// This address with one more member in its query.
    pub fn here_with(&self, member: &str) -> String {
        let joint = if self.here.contains('?') { '&' } else { '?' };
        format!("{}{joint}{member}", self.to(self.here.trim_start_matches('/')))
    }
}

/// The whole document.
pub fn document(frame: &Frame, shown: &impl Show) -> Markup {
    let every = shown.every().filter(|_| frame.is_live);
    html! {
        (DOCTYPE)
        html lang="en" class=[frame.theme.class()] {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="htmx-config" content=r#"{"includeIndicatorCSS":false}"#;
                title { (shown.title()) " · " (frame.installation) " · Tuskline" }
                link rel="stylesheet" href=(frame.to(&files::STYLE.address()));
                script src=(frame.to(&files::HTMX.address())) defer {}
                script src=(frame.to(&files::SCRIPT.address())) defer {}
            }
            body {
                a .skip href="#main" { "Skip to the content" }
                (top(frame, shown.part()))
                // A refresh asks for this address again and morphs `main`, so that focus stays.
                main #main tabindex="-1" data-every=[every.map(|every| every.as_secs())]
                    data-hx-get=[every.map(|_| "")] data-hx-select="#main" data-hx-trigger="tick"
                    data-hx-swap="outerMorph" { (shown.body(frame)) }
                footer {
                    "Tuskline " (env!("CARGO_PKG_VERSION")) " · " (frame.database) " · all times in UTC"
                }
            }
        }
    }
}

fn top(frame: &Frame, part: Part) -> Markup {
    html! {
        header .top {
            a .brand href=(frame.to("")) {
                svg .mark viewBox="0 0 16 16" aria-hidden="true" {
                    path d="M3 2c0 7 4 11 11 11" {}
                    path d="M8 2c0 3 2 6 6 6" {}
                }
                "Tuskline"
            }
            span .place title=(frame.database) { (frame.installation) }
            @if frame.role != NOBODY { (ways(frame, part)) }
        }
    }
}

/// The ways to all pages.
fn ways(frame: &Frame, part: Part) -> Markup {
    html! {
            nav aria-label="Pages" {
                @for (one, address, title) in Part::ALL {
                    a href=(frame.to(address)) aria-current=[(one == part).then_some("page")] { (title) }
                }
            }
            form .go role="search" aria-label="Go to" action=(frame.to("go")) {
                label .sr for="go" { "Task id, or words to search for" }
                input #go name="q" placeholder="Task id or search" autocomplete="off";
                kbd .js-only aria-hidden="true" { "/" }
            }
            (who(frame))
    }
}

fn who(frame: &Frame) -> Markup {
    html! {
        details .who {
            summary { (frame.person) }
            div {
                p .muted {
                    "Role " (frame.role) ", " @if frame.may_act { "may look and act" } @else { "may look" }
                }
                @for theme in ["light", "dark", "system"] {
                    a href=(frame.here_with(&format!("theme={theme}"))) {
                        @match theme { "light" => "Light", "dark" => "Dark", _ => "As the system" }
                    }
                }
                @for (address, title) in [
                    ("lambdas", "Lambdas"), ("executors", "Executors"), ("operations", "Operations"),
                    ("audit", "Audit"),
                ] {
                    a href=(frame.to(address)) { (title) }
                }
                @if frame.can_sign_in { a href=(frame.to(&format!("signin?to={}", encoded(&frame.here)))) { "Sign in" } }
                @if frame.has_token {
                    form method="post" action=(frame.to("signout")) { button { "Sign out" } }
                }
            }
        }
    }
}

/// When the facts are from, and how often they are read again.
pub fn as_of(frame: &Frame, every: Option<Duration>) -> Markup {
    html! {
        @if let Some(now) = frame.now {
            p .asof {
                (time(now, &now.format("%H:%M:%S UTC").to_string()))
                @if let Some(every) = every {
                    span .js-only {
                        @if frame.is_live {
                            " · every " (every.as_secs()) " s · "
                            a href=(frame.here_with("live=off")) { "Pause" }
                        } @else {
                            " · paused · "
                            a href=(frame.to(frame.here.replace("live=off", "live=on").trim_start_matches('/'))) { "Go on" }
                        }
                    }
                }
            }
        }
    }
}

/// A time in words, with the absolute one behind it.
pub fn time(at: DateTime<Utc>, text: &str) -> Markup {
    html! { time datetime=(at.to_rfc3339()) title=(words::moment(at)) { (text) } }
}

/// How long ago a time was.
pub fn ago(frame: &Frame, at: DateTime<Utc>) -> Markup {
    time(at, &words::ago(frame.now.unwrap_or(at) - at))
}

/// A cell with a number.
pub fn number(text: &str, is_wide: bool, is_hot: bool) -> Markup {
    let wide = if is_wide { " wide" } else { "" };
    let tone = match text {
        _ if is_hot => " hot",
        "0" | NOTHING => " zero",
        _ => "",
    };
    html! { td class={ "n" (wide) (tone) } { (text) } }
}

/// A figure of the list at the head of a page.
pub fn figure(label: &str, value: &str, is_hot: bool) -> Markup {
    html! { div { dt { (label) } dd class=[is_hot.then_some("hot")] { (value) } } }
}

/// A statement to copy.
pub fn command(id: &str, text: &str) -> Markup {
    html! {
        div .cmd {
            code id=(id) { (text) }
            button .copy .js-only type="button" aria-controls=(id) { "Copy" }
        }
    }
}

/// A member of a query, percent-encoded.
pub fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}
