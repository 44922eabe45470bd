//! `/metrics` and `/scale/{lambda}`: the figures of the whole installation, for Prometheus and for
//! an autoscaler.
//!
//! Promises: the database is read at most once in [`FRESH`], however many requests arrive. Labels
//! are lambda, priority and a few words, never a task. Each request gets an answer within
//! [`DEADLINE`], also while another request reads.

mod families;
mod reader;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout_at};
use tuskline_sdk::Address;
use tuskline_sdk::metrics::{CONTENT_TYPE, text};

use self::reader::{Part, Reader};
use crate::duration;
use crate::store::figures::{OBJECTIVE, Scale};

/// All scrapes within this time get the same answer.
pub const FRESH: Duration = Duration::from_secs(5);
/// Longest wait for the database, and for another request that is reading.
pub const DEADLINE: Duration = Duration::from_secs(4);

/// One session for all requests.
struct Metrics {
    last: Mutex<Last>,
}

/// State between two requests.
struct Last {
    reader: Reader,
    text: Option<(Instant, Bytes)>,
}

type Answer = (StatusCode, Json<Value>);

/// The routes of this module.
pub fn routes(address: Address) -> Router {
    let last = Last { reader: Reader::of(address), text: None };
    let metrics = Arc::new(Metrics { last: Mutex::new(last) });
    Router::new()
        .route("/metrics", get(scrape))
        .route("/scale/{lambda}", get(scale))
        .with_state(metrics)
}

/// If the database cannot be reached, the scrape succeeds, too, with `tuskline_database_up 0`.
async fn scrape(State(metrics): State<Arc<Metrics>>) -> Response {
    match metrics.text().await {
        Some(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        None => busy().into_response(),
    }
}

/// `?objective=5s` sets the time within which tasks should start.
async fn scale(
    State(metrics): State<Arc<Metrics>>,
    Path(lambda): Path<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Answer {
    let text = query.get("objective");
    let objective = match text.map_or(Ok(OBJECTIVE), |text| duration::parse(text)) {
        Ok(Duration::ZERO) => return refused("objective must be above 0"),
        Ok(objective) => objective,
        Err(wrong) => return refused(&format!("objective {wrong}")),
    };
    match metrics.scale(&lambda).await {
        Ok(Some(scale)) if objective == OBJECTIVE => (StatusCode::OK, Json(json!(scale))),
        Ok(Some(scale)) => (StatusCode::OK, Json(json!(scale.within(objective)))),
        Ok(None) => (StatusCode::NOT_FOUND, Json(json!({"error": "no such lambda"}))),
        Err(answer) => answer,
    }
}

fn refused(why: &str) -> Answer {
    (StatusCode::BAD_REQUEST, Json(json!({"error": why})))
}

/// The answer while another request still reads.
fn busy() -> Answer {
    let said = format!("the database did not answer within {} s", DEADLINE.as_secs());
    (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"error": said})))
}

impl Metrics {
    async fn last(&self, until: Instant) -> Option<MutexGuard<'_, Last>> {
        timeout_at(until, self.last.lock()).await.ok()
    }

    /// None: another request read for too long.
    async fn text(&self) -> Option<Bytes> {
        let until = Instant::now() + DEADLINE;
        let mut last = self.last(until).await?;
        if let Some((at, text)) = &last.text
            && at.elapsed() < FRESH
        {
            return Some(text.clone());
        }
        last.reader.refresh(&Part::ALL, until).await;
        let mut families = last.reader.figures().families();
        families.extend(families::of_reader(&last.reader));
        let text = Bytes::from(text(families));
        last.text = Some((Instant::now(), text.clone()));
        Some(text)
    }

    /// The figures of one lambda, taken from a reading of all lambdas that is at most [`FRESH`]
    /// old.
    async fn scale(&self, lambda: &str) -> Result<Option<Scale>, Answer> {
        let until = Instant::now() + DEADLINE;
        let mut last = self.last(until).await.ok_or_else(busy)?;
        last.reader.refresh(&Part::OF_SCALE, until).await;
        match last.reader.error(Part::Scale) {
            Some(error) => Err((StatusCode::SERVICE_UNAVAILABLE, Json(json!({"error": error})))),
            None => {
                let of_all = &last.reader.figures().scale;
                Ok(of_all.iter().find(|one| one.lambda == lambda).cloned())
            }
        }
    }
}
