//! A request: who asks, for what, and its answer as a page or as JSON.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Redirect, Response};
use chrono::{DateTime, Utc};
use serde_json::json;
use tokio_postgres::{Client, Error};

use super::away;
use super::parts::{Frame, Show, Theme, document, encoded};
use super::reading::{Access, Moment, ReadError};
use super::refusal::Refused;
use super::site::Site;
use crate::facts::Facts;
use crate::identity::{Person, Refusal, cookie};
use crate::ids::as_strings;

/// A request: who asks, for what, and how the answer is to look.
#[derive(Debug)]
pub struct Asked {
    pub person: Person,
    pub query: BTreeMap<String, String>,
    /// The address below the base, with its query.
    pub here: String,
    pub theme: Theme,
    pub headers: HeaderMap,
}

/// A request of any sender.
#[derive(Debug)]
pub struct Nobody(pub Asked);

impl FromRequestParts<Arc<Site>> for Nobody {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, site: &Arc<Site>) -> Result<Self, Response> {
        let query: BTreeMap<String, String> =
            axum::extract::Query::try_from_uri(&parts.uri).map(|all| all.0).unwrap_or_default();
        let theme = match query.get("theme") {
            Some(chosen) => Theme::of(chosen),
            None => Theme::of(cookie(&parts.headers, "tuskline_theme").unwrap_or_default()),
        };
        let here = parts.uri.path_and_query().map_or("/", |all| all.as_str()).to_owned();
        let asked =
            Asked { person: Person::unknown(), query, here, theme, headers: parts.headers.clone() };
        if asked.query.contains_key("token") {
            let refused = Refused::bad("a token does not belong into an address: it stays in logs");
            return Err(asked.answer(site, None, &refused));
        }
        if let Err(refusal) = site.access.check_host(&asked.headers) {
            return Err(asked.answer(site, None, &Refused::of(&refusal)));
        }
        Ok(Self(asked))
    }
}

impl FromRequestParts<Arc<Site>> for Asked {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, site: &Arc<Site>) -> Result<Self, Response> {
        let Nobody(mut asked) = Nobody::from_request_parts(parts, site).await?;
        match site.person(&asked.headers).await {
            Ok(person) => asked.person = person,
            Err(Refusal::SignIn) => return Err(asked.sign_in(site)),
            Err(refusal) => return Err(asked.answer(site, None, &Refused::of(&refusal))),
        }
        Ok(asked)
    }
}

impl Asked {
    /// Whether the facts are wanted as JSON.
    pub fn wants_json(&self) -> bool {
        self.query.get("format").is_some_and(|format| format == "json")
    }

    /// Reads as the role of the person.
    pub async fn read<T>(
        &self,
        site: &Site,
        work: impl AsyncFnOnce(&Client) -> Result<T, Error>,
    ) -> Result<(Moment, T), ReadError> {
        site.sessions.of(&self.person.role, Access::Read, work).await
    }

    /// The thing that was found; `ReadError::Unknown` if there is none.
    pub fn found<T>(
        &self,
        read: Result<(Moment, Option<T>), ReadError>,
        missing: &'static str,
    ) -> Result<(Moment, T), ReadError> {
        let (moment, found) = read?;
        found.map(|found| (moment, found)).ok_or(ReadError::Unknown(missing))
    }

    /// The answer with the facts, as a page or as JSON; or why there are none.
    pub fn page<S: Show>(&self, site: &Site, read: Result<(Moment, S), ReadError>) -> Response {
        match read {
            Ok((moment, shown)) => self.answer(site, Some(&moment), &shown),
            Err(error) => self.answer(site, None, &Refused::by(&error)),
        }
    }

    /// The facts of all lambdas, or the answer in place of them.
    pub async fn facts(&self, site: &Site) -> Result<(Moment, Arc<Facts>, Duration), Response> {
        let seen = site.shared.facts(&site.sessions).await;
        match (seen.facts, seen.error) {
            (Some(facts), None) => {
                let installation = facts.installation.clone();
                let moment = Moment { now: facts.now.unwrap_or_default(), installation };
                Ok((moment, facts, seen.every))
            }
            (facts, Some(ReadError::Away(error))) => {
                let age_ms = i64::try_from(seen.age.as_millis()).unwrap_or(i64::MAX);
                let installation =
                    facts.as_ref().map_or_else(String::new, |one| one.installation.clone());
                let moment = Moment { now: Utc::now(), installation };
                Err(self.answer(site, Some(&moment), &away::Away { error, facts, age_ms }))
            }
            (_, error) => {
                let error = error.unwrap_or(ReadError::Away("not read yet".to_owned()));
                Err(self.answer(site, None, &Refused::by(&error)))
            }
        }
    }

    /// The page, or where it is: a browser is led to it, a program is told.
    fn sign_in(&self, site: &Site) -> Response {
        let accepts = self.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
        let is_browser = accepts.is_some_and(|kinds| kinds.contains("text/html"));
        if !is_browser || site.access.tokens.is_empty() || self.wants_json() {
            return self.answer(site, None, &Refused::of(&Refusal::SignIn));
        }
        let to = encoded(&self.here);
        Redirect::to(&format!("{}/signin?to={to}", site.base)).into_response()
    }

    /// The answer, with the time of its facts.
    pub fn answer(&self, site: &Site, moment: Option<&Moment>, shown: &impl Show) -> Response {
        let now: Option<DateTime<Utc>> = moment.map(|moment| moment.now);
        if self.wants_json() {
            return (shown.status(), Json(as_strings(json!(shown)))).into_response();
        }
        let frame = Frame {
            base: site.base.clone(),
            installation: moment.map_or_else(String::new, |moment| moment.installation.clone()),
            database: site.database.clone(),
            person: self.person.name.clone(),
            role: self.person.role.clone(),
            may_act: self.person.may_act,
            can_sign_in: !self.person.may_act && !site.access.tokens.is_empty(),
            has_token: self.person.has_cookie,
            theme: self.theme,
            is_live: self.query.get("live").is_none_or(|live| live != "off"),
            here: self.here.clone(),
            now,
        };
        let page = document(&frame, shown).into_string();
        let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
        let mut answer = (shown.status(), kind, page).into_response();
        let headers = answer.headers_mut();
        if let Some(every) = shown.every() {
            headers.insert("tuskline-every", HeaderValue::from(every.as_secs()));
        }
        if self.query.contains_key("theme") {
            headers.append(header::SET_COOKIE, theme_cookie(self.theme, &site.base));
        }
        answer
    }
}

fn theme_cookie(theme: Theme, base: &str) -> HeaderValue {
    let text = format!(
        "tuskline_theme={}; Path={}; Max-Age=31536000; SameSite=Strict",
        theme.class().unwrap_or("system"),
        if base.is_empty() { "/" } else { base }
    );
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}
