//! The files beside the pages. Each has a hash in its address, so that a browser keeps it for ever.
//!
//! `htmx.min.js` is htmx 4.0.1, unchanged; its licence is in `htmx.LICENSE` (0BSD). It is the only
//! file here that is not ours.

use std::sync::LazyLock;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};

/// A file, and the hash of its text.
#[derive(Debug)]
pub struct File {
    name: &'static str,
    kind: &'static str,
    text: &'static str,
    hash: String,
}

impl File {
    fn new(name: &'static str, kind: &'static str, text: &'static str) -> Self {
        let hash = Sha256::digest(text.as_bytes());
        let hash = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Self { name, kind, text, hash }
    }

    /// Its address below the base.
    pub fn address(&self) -> String {
        format!("files/{}?{}", self.name, self.hash)
    }
}

/// The style of all pages.
pub static STYLE: LazyLock<File> =
    LazyLock::new(|| File::new("style.css", "text/css; charset=utf-8", include_str!("style.css")));
/// The script of the pages.
pub static SCRIPT: LazyLock<File> = LazyLock::new(|| {
    File::new("pages.js", "text/javascript; charset=utf-8", include_str!("pages.js"))
});
/// Refreshes and swaps.
pub static HTMX: LazyLock<File> = LazyLock::new(|| {
    File::new("htmx.js", "text/javascript; charset=utf-8", include_str!("htmx.min.js"))
});

/// A file by its name.
pub fn serve(name: &str) -> Response {
    let Some(file) = [&*STYLE, &SCRIPT, &HTMX].into_iter().find(|one| one.name == name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let mut answer = file.text.into_response();
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.kind));
    let forever = HeaderValue::from_static("public, max-age=31536000, immutable");
    headers.insert(header::CACHE_CONTROL, forever);
    answer
}
