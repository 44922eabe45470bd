//! The public API of the SDK is listed in `worker-sdk/api.txt`, so a change of it is seen in a review.

use std::path::Path;
use std::process::Command;

/// After a change: `TUSKLINE_UPDATE=1 cargo test -p tuskline-house --test public_api -- --ignored`.
///
/// Reads the JSON of rustdoc, whose form is that of Rust 1.95.
#[test]
#[ignore = "documents the SDK as JSON: half a minute, in the leg surface"]
fn the_public_api_is_the_one_that_is_listed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("api");
    let documented = Command::new(env!("CARGO"))
        .args([
            "rustdoc",
            "--quiet",
            "-p",
            "tuskline-sdk",
            "--features",
            "sqlx,otlp,executor",
            "--lib",
        ])
        .arg("--target-dir")
        .arg(&target)
        .args(["--", "-Z", "unstable-options", "--output-format", "json"])
        // A stable compiler gives the JSON only so.
        .env("RUSTC_BOOTSTRAP", "1")
        .current_dir(&root)
        .status()
        .unwrap();
    assert!(documented.success());
    let api = public_api::Builder::from_rustdoc_json(target.join("doc/tuskline_sdk.json"))
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()
        .unwrap()
        .to_string();
    let listing = root.join("worker-sdk/api.txt");
    if std::env::var_os("TUSKLINE_UPDATE").is_some() {
        std::fs::write(&listing, &api).unwrap();
    }
    let listed = std::fs::read_to_string(&listing).unwrap_or_default();
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (listed, found) = (lines(&listed), lines(&api));
    let new: Vec<_> = found.iter().filter(|line| !listed.contains(line)).collect();
    let gone: Vec<_> = listed.iter().filter(|line| !found.contains(line)).collect();
    assert!(new.is_empty() && gone.is_empty(), "not in api.txt: {new:#?}\nonly there: {gone:#?}");
}
