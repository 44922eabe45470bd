//! Pages for people: what is wrong, why a task waits, and acts with a preview.
//!
//! `identity` says who asks, `reading` reads as the role of that person, a module for each page turns
//! facts into HTML, and `parts` has what they share. Nothing runs while no page is open.
//!
//! Promises: a page works without JavaScript; its address is its whole state; `?format=json` has the
//! same facts. Must never: read as the owner of the schema, or write a script or style into HTML.

mod act;
mod away;
mod chain;
mod dead;
mod drawing;
mod files;
mod identity;
mod lambda;
mod lists;
mod overview;
mod parts;
mod periodic;
mod reading;
mod refusal;
mod signin;
mod table;
mod task;
mod tasks;
mod time;
mod waits;
mod words;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use chrono::{DateTime, Utc};
use serde_json::json;
use tokio_postgres::{Client, Error};
use tower_http::compression::CompressionLayer;
use tuskline_sdk::Address;

pub use act::bytes as hex;
pub use identity::{Access, Proxy, Token, VIEWER, hash};

use crate::facts::Facts;
use crate::ids::as_strings;
use identity::{Person, Refusal, cookie};
use parts::{Frame, Show, Theme, document};
use reading::{Look, Moment, Sessions, Trouble};
use refusal::Refused;
use signin::Guesses;

/// Everything that a page needs to be read and refused.
#[derive(Debug)]
struct Site {
    access: Access,
    base: String,
    database: String,
    sessions: Sessions,
    look: Look,
    guesses: Guesses,
    /// Signs previews.
    key: act::Key,
}

/// Where the pages are, and who may see them.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Who may look, and who may act.
    pub access: Access,
    /// The path before every address: empty, or like `/tuskline`.
    pub base: String,
}

/// The pages.
///
/// They read the database at `address` as the roles of `access`, of which the login must be a member.
pub fn router(address: Address, options: Options) -> Router {
    let access = options.access;
    let base = options.base.trim_end_matches('/').to_owned();
    let site = Arc::new(Site {
        database: database_of(&address),
        look: Look::new(access.role.clone()),
        guesses: Guesses::default(),
        key: key(&access),
        sessions: Sessions::new(address),
        access,
        base: base.clone(),
    });
    let routes = Router::new()
        .route("/", get(overview_page))
        .route("/lambdas", get(lambdas_page))
        .route("/lambdas/{name}", get(lambda_page))
        .route("/go", get(tasks::go))
        .route("/tasks", get(tasks::page))
        .route("/tasks/{id}", get(task_page))
        .route("/chains/{id}", get(chain_page))
        .route("/dead-letters", get(dead_page))
        .route("/waits", get(waits_page))
        .route("/time", get(time::page))
        .route("/periodic", get(async |site, asked| periodic_page(site, asked, None).await))
        .route(
            "/periodic/{name}",
            get(async |site, asked, Path(name)| periodic_page(site, asked, Some(name)).await),
        )
        .route(
            "/executors",
            get(async |site, asked| list_page(site, asked, &lists::EXECUTORS, None).await),
        )
        .route(
            "/executors/{number}",
            get(async |site, asked, Path(number)| {
                list_page(site, asked, &lists::EXECUTORS, Some(number)).await
            }),
        )
        .route(
            "/operations",
            get(async |site, asked| list_page(site, asked, &lists::OPERATIONS, None).await),
        )
        .route(
            "/operations/{number}",
            get(async |site, asked, Path(number)| {
                list_page(site, asked, &lists::OPERATIONS, Some(number)).await
            }),
        )
        .route("/audit", get(async |site, asked| list_page(site, asked, &lists::AUDIT, None).await))
        .route("/act/{verb}", get(act::preview).post(act::perform))
        .route("/signin", get(signin::page).post(signin::enter))
        .route("/signout", post(signin::leave))
        .route("/files/{name}", get(async |Path(name): Path<String>| files::serve(&name)))
        .layer(DefaultBodyLimit::max(LARGEST_FORM))
        .with_state(site)
        .layer(CompressionLayer::new())
        .layer(axum::middleware::map_response(guarded));
    match base.is_empty() {
        true => routes,
        false => Router::new()
            .route(&format!("{base}/"), get(Redirect::permanent(&base)))
            .nest(&base, routes),
    }
}

/// Largest body of a form, in bytes.
const LARGEST_FORM: usize = 16_384;

/// The key of previews: of what all servers with these tokens know, or of this server.
fn key(access: &Access) -> act::Key {
    let mut secrets: Vec<u8> = access.tokens.iter().flat_map(|token| token.hash).collect();
    secrets.extend(access.proxy.iter().flat_map(|proxy| proxy.secret.bytes()));
    if secrets.is_empty() {
        secrets = (0..4).flat_map(|_| fastrand::u64(..).to_be_bytes()).collect();
    }
    act::Key::of(&secrets)
}

/// Database and host, as in `shop at db.example`.
fn database_of(address: &Address) -> String {
    let config = address.config();
    let host = config.get_hosts().first().map(|host| match host {
        tokio_postgres::config::Host::Tcp(name) => name.clone(),
        #[cfg(unix)]
        tokio_postgres::config::Host::Unix(path) => path.display().to_string(),
    });
    let name = config.get_dbname().or(config.get_user()).unwrap_or("postgres");
    format!("{name} at {}", host.as_deref().unwrap_or("localhost"))
}

/// What no page and no file may do in a browser.
async fn guarded(mut answer: Response) -> Response {
    let headers = answer.headers_mut();
    for (name, value) in [
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert_with(|| HeaderValue::from_static("private, no-store"));
    answer
}

/// A request: who asks, for what, and how the answer is to look.
#[derive(Debug)]
struct Asked {
    person: Person,
    query: BTreeMap<String, String>,
    /// The address below the base, with its query.
    here: String,
    theme: Theme,
    headers: HeaderMap,
}

/// A request, whoever sends it.
#[derive(Debug)]
struct Nobody(Asked);

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
        match signin::person(site, &asked.headers).await {
            Ok(person) => asked.person = person,
            Err(Refusal::SignIn) => return Err(signin::ask(site, &asked)),
            Err(refusal) => return Err(asked.answer(site, None, &Refused::of(&refusal))),
        }
        Ok(asked)
    }
}

impl Asked {
    fn wants_json(&self) -> bool {
        self.query.get("format").is_some_and(|format| format == "json")
    }

    /// Reads as the role of the person.
    async fn read<T>(
        &self,
        site: &Site,
        work: impl AsyncFnOnce(&Client) -> Result<T, Error>,
    ) -> Result<(Moment, T), Trouble> {
        site.sessions.of(&self.person.role, reading::Access::Read, work).await
    }

    /// What was found; `Trouble::Unknown` if nothing was.
    fn found<T>(
        &self,
        read: Result<(Moment, Option<T>), Trouble>,
        missing: &'static str,
    ) -> Result<(Moment, T), Trouble> {
        let (moment, found) = read?;
        found.map(|found| (moment, found)).ok_or(Trouble::Unknown(missing))
    }

    /// The answer with the facts, as a page or as JSON; or why there are none.
    fn page<S: Show>(&self, site: &Site, read: Result<(Moment, S), Trouble>) -> Response {
        match read {
            Ok((moment, shown)) => self.answer(site, Some(&moment), &shown),
            Err(trouble) => self.answer(site, None, &Refused::by(&trouble)),
        }
    }

    fn answer(&self, site: &Site, moment: Option<&Moment>, shown: &impl Show) -> Response {
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

async fn overview_page(State(site): State<Arc<Site>>, asked: Asked) -> Response {
    let (moment, facts, every) = match facts(&site, &asked).await {
        Ok(found) => found,
        Err(answer) => return answer,
    };
    match facts.lambdas.is_empty() {
        true => asked.answer(&site, Some(&moment), &away::Nothing { lambdas: [] }),
        false => asked.answer(&site, Some(&moment), &overview::Overview { facts, every }),
    }
}

/// The facts of all lambdas, or the answer in place of them.
async fn facts(site: &Site, asked: &Asked) -> Result<(Moment, Arc<Facts>, Duration), Response> {
    let seen = site.look.facts(&site.sessions).await;
    match (seen.facts, seen.trouble) {
        (Some(facts), None) => {
            let installation = facts.installation.clone();
            let moment = Moment { now: facts.now.unwrap_or_default(), installation };
            Ok((moment, facts, seen.every))
        }
        (facts, Some(Trouble::Away(error))) => {
            let age_ms = i64::try_from(seen.age.as_millis()).unwrap_or(i64::MAX);
            let installation =
                facts.as_ref().map_or_else(String::new, |one| one.installation.clone());
            let moment = Moment { now: Utc::now(), installation };
            Err(asked.answer(site, Some(&moment), &away::Away { error, facts, age_ms }))
        }
        (_, trouble) => {
            let trouble = trouble.unwrap_or(Trouble::Away("not read yet".to_owned()));
            Err(asked.answer(site, None, &Refused::by(&trouble)))
        }
    }
}

async fn lambdas_page(State(site): State<Arc<Site>>, asked: Asked) -> Response {
    match facts(&site, &asked).await {
        Ok((moment, facts, every)) => {
            asked.answer(&site, Some(&moment), &lists::Lambdas { facts, every })
        }
        Err(answer) => answer,
    }
}

async fn lambda_page(
    State(site): State<Arc<Site>>,
    asked: Asked,
    Path(name): Path<String>,
) -> Response {
    let (_, facts, every) = match facts(&site, &asked).await {
        Ok(found) => found,
        Err(answer) => return answer,
    };
    let read = asked.read(&site, async |client| lambda::Read::of(client, &name).await).await;
    let read = asked.found(read, "there is no lambda of this name");
    asked.page(&site, read.map(|(moment, read)| (moment, read.with(name, facts, every))))
}

async fn task_page(
    State(site): State<Arc<Site>>,
    asked: Asked,
    Path(id): Path<String>,
) -> Response {
    let Ok(id) = id.parse() else {
        return asked.answer(&site, None, &Refused::bad("a task has a number"));
    };
    let shows = asked.query.get("show").is_some_and(|show| show == "contents");
    let Person { name: person, role, .. } = &asked.person;
    let access = if shows { reading::Access::Act { person } } else { reading::Access::Read };
    let read = site
        .sessions
        .of(role, access, async |client| task::Task::read(client, id, shows).await)
        .await;
    let read = asked.found(read, "no task has this id, or its retention is over");
    asked.page(&site, read)
}

async fn chain_page(
    State(site): State<Arc<Site>>,
    asked: Asked,
    Path(id): Path<String>,
) -> Response {
    let Ok(id) = id.parse() else {
        return asked.answer(&site, None, &Refused::bad("a chain has a number"));
    };
    let read = asked.read(&site, async |client| chain::Chain::read(client, id).await).await;
    asked.page(&site, asked.found(read, "no chain has this number, or its retention is over"))
}

async fn dead_page(State(site): State<Arc<Site>>, asked: Asked) -> Response {
    let lambda = asked.query.get("lambda").cloned();
    let read = asked.read(&site, async |client| dead::Dead::read(client, lambda).await).await;
    asked.page(&site, read)
}

async fn waits_page(State(site): State<Arc<Site>>, asked: Asked) -> Response {
    let (_, facts, _) = match facts(&site, &asked).await {
        Ok(found) => found,
        Err(answer) => return answer,
    };
    let read = asked.read(&site, async |client| waits::Waits::read(client, &facts).await).await;
    asked.page(&site, read)
}

async fn periodic_page(
    State(site): State<Arc<Site>>,
    asked: Asked,
    name: Option<String>,
) -> Response {
    let read = asked.read(&site, async |client| periodic::Periodic::read(client, name).await).await;
    asked.page(&site, asked.found(read, "there is no schedule of this name"))
}

async fn list_page(
    State(site): State<Arc<Site>>,
    asked: Asked,
    kind: &'static lists::Listed,
    number: Option<String>,
) -> Response {
    let number: Option<i64> = match number.map(|number| number.parse()).transpose() {
        Ok(number) => number,
        Err(_) => return asked.answer(&site, None, &Refused::bad("it has a number")),
    };
    let read =
        asked.read(&site, async |client| lists::List::read(client, kind, number).await).await;
    asked.page(&site, asked.found(read, "there is none of this number"))
}
