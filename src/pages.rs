//! Pages for people: what is wrong, why a task waits, and acts with a preview.
//!
//! `identity` says who asks, `reading` reads as the role of that person, a module for each page turns
//! facts into HTML, and `parts` has what they share. Nothing runs while no page is open.
//!
//! Promises: a page works without JavaScript; its address is its whole state; `?format=json` has the
//! same facts. Must never: read tasks as the owner of the schema, or write a script or style into HTML.

mod act;
mod asked;
mod away;
mod chain;
mod dead;
mod doctor;
mod drawing;
mod files;
mod lambda;
mod lists;
mod overview;
mod parts;
mod periodic;
mod reading;
mod refusal;
mod signin;
mod site;
mod table;
mod task;
mod tasks;
mod time;
mod token;
mod waits;
mod words;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Path};
use axum::http::{HeaderValue, header};
use axum::response::{Redirect, Response};
use axum::routing::{get, post};
use tower_http::compression::CompressionLayer;
use tuskline_sdk::Address;

pub use crate::identity::{Access, Proxy, Token, VIEWER, hash};
pub use site::Options;
pub use token::bytes as hex;

use site::Site;

/// The pages, for a server of axum.
///
/// They read the database at `address` as the roles of [`Options::access`], of which the login must be a
/// member. [`Options::base`] is where they stand in the server; health and metrics stand elsewhere
/// ([`crate::health`]).
///
/// ```no_run
/// use tuskline::pages::{Access, Options, router};
///
/// # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
/// let database: tokio_postgres::Config = "postgresql://shop@db.example/shop".parse()?;
/// let access = Access { read_only: true, hosts: vec!["shop.example".into()], ..Access::default() };
/// let pages = router(database.into(), Options { access, base: "/tasks".into() });
/// let app = axum::Router::new().merge(pages);
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
/// axum::serve(listener, app).await?;
/// # Ok(())
/// # }
/// ```
pub fn router(address: Address, options: Options) -> Router {
    let site = Arc::new(Site::new(address, options));
    let base = site.base.clone();
    let routes = Router::new()
        .route("/", get(overview::page))
        .route("/lambdas", get(lists::lambdas))
        .route("/lambdas/{name}", get(lambda::page))
        .route("/go", get(tasks::go))
        .route("/tasks", get(tasks::page))
        .route("/tasks/{id}", get(task::page))
        .route("/chains/{id}", get(chain::page))
        .route("/dead-letters", get(dead::page))
        .route("/waits", get(waits::page))
        .route("/time", get(time::page))
        .route("/periodic", get(async |site, asked| periodic::page(site, asked, None).await))
        .route(
            "/periodic/{name}",
            get(async |site, asked, Path(name)| periodic::page(site, asked, Some(name)).await),
        )
        .route(
            "/executors",
            get(async |site, asked| lists::page(site, asked, &lists::EXECUTORS, None).await),
        )
        .route(
            "/executors/{number}",
            get(async |site, asked, Path(number)| {
                lists::page(site, asked, &lists::EXECUTORS, Some(number)).await
            }),
        )
        .route(
            "/operations",
            get(async |site, asked| lists::page(site, asked, &lists::OPERATIONS, None).await),
        )
        .route(
            "/operations/{number}",
            get(async |site, asked, Path(number)| {
                lists::page(site, asked, &lists::OPERATIONS, Some(number)).await
            }),
        )
        .route(
            "/audit",
            get(async |site, asked| lists::page(site, asked, &lists::AUDIT, None).await),
        )
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

/// Forbids to each page and file what none needs in a browser.
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
