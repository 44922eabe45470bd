//! Signing in: a token becomes a cookie. Wrong tokens are slowed down.
//!
//! Promises: an answer leads to an address of ours only; at most [`GUESSES`] wrong tokens a second
//! are looked at, and a token that was right before passes at once. Must never: log a token.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Form;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::identity::{Person, Refusal, TOKEN_COOKIE, hash, is_same_origin, presented};
use super::parts::{Frame, Part, Show};
use super::refusal::Refused;
use super::{Asked, Nobody, Site};

/// Wrong tokens that are looked at in a second.
const GUESSES: u32 = 5;
/// Wrong tokens that wait for their answer. More are not looked at.
const WAITING: usize = 10;

/// Slows guesses down.
#[derive(Debug)]
pub struct Guesses {
    /// Hashes of tokens that were right.
    known: Mutex<HashSet<[u8; 32]>>,
    waiting: Semaphore,
    turn: tokio::sync::Mutex<()>,
}

impl Default for Guesses {
    fn default() -> Self {
        let (known, turn) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { known, waiting: Semaphore::new(WAITING), turn }
    }
}

impl Guesses {
    /// Looks a token up. A wrong one waits for its turn.
    ///
    /// # Errors
    /// What the look-up says; or too many guesses.
    pub async fn check<T>(
        &self,
        token: &str,
        look_up: impl FnOnce() -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let hash = hash(token);
        if self.known.lock().unwrap_or_else(PoisonError::into_inner).contains(&hash) {
            return look_up();
        }
        let _place = self.waiting.try_acquire().map_err(|_| Refusal::TooMany)?;
        match look_up() {
            Err(Refusal::SignIn) => {
                let _turn = self.turn.lock().await;
                sleep(Duration::from_secs(1) / GUESSES).await;
                Err(Refusal::SignIn)
            }
            // A token is known by its hash, which the file has, too.
            Ok(found) => {
                self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(hash);
                Ok(found)
            }
            other => other,
        }
    }
}

/// The page that asks for a token.
#[derive(Debug, Serialize)]
pub struct SignIn {
    /// Where it leads.
    to: String,
    error: Option<&'static str>,
    #[serde(skip)]
    status: StatusCode,
}

impl Show for SignIn {
    fn title(&self) -> String {
        "Sign in".to_owned()
    }

    fn part(&self) -> Part {
        Part::Other
    }

    fn status(&self) -> StatusCode {
        self.status
    }

    fn body(&self, frame: &Frame) -> Markup {
        html! {
            div .alone.small {
                h1 { "Sign in" }
                p .muted { (frame.database) }
                @if let Some(error) = self.error { p .note.warm role="alert" { (error) } }
                form method="post" action=(frame.to("signin")) {
                    input type="hidden" name="to" value=(self.to);
                    p .field {
                        label for="token" { "Token" }
                        input #token name="token" type="password" required autofocus
                            autocomplete="current-password";
                        small {
                            "A line of the file that " code { "tuskline serve --token-file" } " names has \
                             its hash, and says which role you act as."
                        }
                    }
                    p .field.acts { button .go-on type="submit" { "Sign in" } }
                }
                details {
                    summary { "No token, or signed in already?" }
                    p {
                        "Ask the person who runs this server. The same facts are in a terminal: "
                        code { "tuskline top" } ", with a database role of your own."
                    }
                    p {
                        "A link from another site does not bring your sign-in along: "
                        a href=(format!("{}{}", frame.base, self.to)) { "go on to the page" } "."
                    }
                }
            }
        }
    }
}

/// The page, or where it is: a browser is led to it, a program is told.
pub fn ask(site: &Site, asked: &Asked) -> Response {
    let accepts = asked.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let is_browser = accepts.is_some_and(|kinds| kinds.contains("text/html"));
    if !is_browser || site.access.tokens.is_empty() || asked.wants_json() {
        return asked.answer(site, None, &Refused::of(&Refusal::SignIn));
    }
    let to = super::parts::encoded(&asked.here);
    Redirect::to(&format!("{}/signin?to={to}", site.base)).into_response()
}

/// `GET`: asks for a token.
pub async fn page(State(site): State<Arc<Site>>, Nobody(asked): Nobody) -> Response {
    let to = asked.query.get("to").filter(|to| is_ours(to)).map_or("/", String::as_str).to_owned();
    asked.answer(&site, None, &SignIn { to, error: None, status: StatusCode::OK })
}

/// `POST`: takes a token.
pub async fn enter(
    State(site): State<Arc<Site>>,
    Nobody(asked): Nobody,
    Form(form): Form<BTreeMap<String, String>>,
) -> Response {
    if !is_same_origin(&asked.headers) {
        return asked.answer(&site, None, &Refused::of(&Refusal::OtherSite));
    }
    let to = form.get("to").filter(|to| is_ours(to)).map_or("/", String::as_str).to_owned();
    let token = form.get("token").map(|token| token.trim()).unwrap_or_default();
    let look_up = || match is_cookie(token) {
        true => site.access.token(token).map(|_| ()).ok_or(Refusal::SignIn),
        false => Err(Refusal::SignIn),
    };
    let (error, status) = match site.guesses.check(token, look_up).await {
        Ok(()) => {
            let cookie = set_cookie(&site, token, "");
            let to = format!("{}{to}", site.base);
            return ([(header::SET_COOKIE, cookie)], Redirect::to(&to)).into_response();
        }
        Err(Refusal::TooMany) => {
            ("Too many wrong tokens arrive. Try again in a second.", StatusCode::TOO_MANY_REQUESTS)
        }
        Err(_) => ("This token is in no line of the token file.", StatusCode::UNAUTHORIZED),
    };
    asked.answer(&site, None, &SignIn { to, error: Some(error), status })
}

/// `POST`: forgets the token.
pub async fn leave(State(site): State<Arc<Site>>, Nobody(asked): Nobody) -> Response {
    if !is_same_origin(&asked.headers) {
        return asked.answer(&site, None, &Refused::of(&Refusal::OtherSite));
    }
    let cookie = set_cookie(&site, "", "; Max-Age=0");
    let to = format!("{}/signin", site.base);
    ([(header::SET_COOKIE, cookie)], Redirect::to(&to)).into_response()
}

fn set_cookie(site: &Site, token: &str, more: &str) -> HeaderValue {
    let secure = if site.access.is_secure { "; Secure" } else { "" };
    let path = if site.base.is_empty() { "/" } else { &site.base };
    let text =
        format!("{TOKEN_COOKIE}={token}; Path={path}; HttpOnly; SameSite=Strict{secure}{more}");
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// A token that a cookie can hold.
fn is_cookie(token: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_graphic() && !b",;\"\\".contains(&byte);
    !token.is_empty() && token.len() <= 512 && token.bytes().all(fits)
}

/// Whether an address is one below our base: a path that no browser reads as another host, and that
/// does not lead upwards.
pub fn is_ours(to: &str) -> bool {
    let path = to.split(['?', '#']).next().unwrap_or_default().to_ascii_lowercase();
    let path = path.replace("%2e", ".");
    let starts_well = path.starts_with('/') && !path.starts_with("//");
    let is_plain = to.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    starts_well && is_plain && path.split('/').all(|part| part != ".." && part != ".")
}

/// Who asks; a wrong token is slowed down.
pub async fn person(site: &Site, headers: &HeaderMap) -> Result<Person, Refusal> {
    match presented(headers) {
        Some((token, _)) => site.guesses.check(token, || site.access.person(headers)).await,
        None => site.access.person(headers),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_in_leads_to_no_other_site() {
        for to in ["/", "/tasks/7", "/tasks?q=a%2F%2Fb", "/lambdas/..a", "/act/gate?lambda=x#a"] {
            assert!(is_ours(to), "{to}");
        }
        for to in [
            "",
            "//evil.example",
            "/\\evil.example",
            "\\\\evil.example",
            "https://evil.example",
            "https:evil.example",
            "javascript:alert(1)",
            "evil.example",
            "/..",
            "/../x",
            "/a/../../x",
            "/%2e%2e/x",
            "/a/%2E./x",
            "/./x",
            "/\t/evil.example",
            "/ x",
            "/\n/evil",
            "/é",
        ] {
            assert!(!is_ours(to), "{to}");
        }
    }

    #[test]
    fn a_token_that_would_end_a_cookie_is_none() {
        for (token, fits) in [
            ("abc-_.~+/=9", true),
            ("a;b", false),
            ("a b", false),
            ("", false),
            ("a\r\nb", false),
            ("a,b", false),
            ("é", false),
        ] {
            assert_eq!(is_cookie(token), fits, "{token:?}");
        }
        assert!(!is_cookie(&"x".repeat(513)));
    }

    #[tokio::test]
    async fn wrong_tokens_are_slowed_down_and_a_known_one_passes() {
        let guesses = Guesses::default();
        let wrong = || Err::<u8, _>(Refusal::SignIn);
        assert_eq!(guesses.check("right", || Ok(7)).await, Ok(7));
        let all = (0..WAITING + 5).map(|at| {
            let guesses = &guesses;
            async move { guesses.check(&format!("wrong {at}"), wrong).await }
        });
        // Polled after the guesses, which wait then.
        let during = async {
            (guesses.check("right", || Ok(7)).await, guesses.check("new", || Ok(7)).await)
        };
        let (said, during) = tokio::join!(futures_util::future::join_all(all), during);
        let count =
            |refusal: Refusal| said.iter().filter(|one| **one == Err(refusal.clone())).count();
        assert_eq!((count(Refusal::SignIn), count(Refusal::TooMany)), (WAITING, 5));
        assert_eq!(during, (Ok(7), Err(Refusal::TooMany)));
        assert_eq!(guesses.check("new", || Ok(7)).await, Ok(7));
    }
}
