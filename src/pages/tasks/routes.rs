//! The addresses of a search.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use chrono::Utc;

use super::{Query, Search, ids, parse};
use crate::pages::asked::Asked;
use crate::pages::parts::encoded;
use crate::pages::site::Site;

/// Leads to what the box on top names: a task, a lambda, or else a search.
pub async fn go(State(site): State<Arc<Site>>, asked: Asked) -> Response {
    let q = asked.query.get("q").map_or("", |q| q.trim());
    let page = match parse(q, Utc::now()) {
        Ok(Query { id: Some(id), .. }) => format!("tasks/{id}"),
        _ => match site.shared.facts(&site.sessions).await.facts {
            Some(facts) if facts.lambda(q).is_some() => format!("lambdas/{q}"),
            _ => format!("tasks?q={}", encoded(q)),
        },
    };
    Redirect::to(&format!("{}/{page}", site.base)).into_response()
}

/// The page of a search.
pub async fn page(State(site): State<Arc<Site>>, asked: Asked) -> Response {
    let q = asked.query.get("q").map_or("", |q| q.as_str());
    let from = ids(asked.query.get("from"));
    let (query, from) = match parse(q, Utc::now()).and_then(|query| Ok((query, from?))) {
        Ok(read) => read,
        Err(error) => return asked.answer(&site, None, &Search::wrong(q, error)),
    };
    if let Some(id) = query.id {
        return Redirect::to(&format!("{}/tasks/{id}", site.base)).into_response();
    }
    let read = asked.read(&site, async |client| Search::read(client, q, from).await).await;
    asked.page(&site, read)
}
