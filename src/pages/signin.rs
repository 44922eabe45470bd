//! Signing in: a token becomes a cookie.
//!
//! Promises: an answer leads to an address of ours only. Must never: log a token.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Form;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Serialize;

use super::asked::Nobody;
use super::parts::{Frame, Part, Show};
use super::refusal::Refused;
use super::site::Site;
use crate::identity::{Refusal, TOKEN_COOKIE, is_same_origin};

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
            "https://evil.example.com",
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
}
