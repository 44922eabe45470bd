//! Which files of the directory become tasks.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use walkdir::{DirEntry, WalkDir};

/// The files found, and how many were left out.
#[derive(Debug)]
pub(super) struct Files {
    pub chosen: Vec<PathBuf>,
    pub left_out: u64,
}

/// Regular files below `dir`, in a stable order, at most `limit` of at most `max_bytes` each; version
/// control's own are skipped.
pub(super) fn find(dir: &Path, limit: usize, max_bytes: u64) -> anyhow::Result<Files> {
    let found = dir.canonicalize().with_context(|| format!("cannot read {}", dir.display()))?;
    anyhow::ensure!(found.is_dir(), "{} is not a directory", dir.display());
    let mut files = Files { chosen: Vec::new(), left_out: 0 };
    let kept = |entry: &DirEntry| entry.file_name() != ".git";
    for entry in WalkDir::new(&found).sort_by_file_name().into_iter().filter_entry(kept) {
        // An unreadable directory hides its files from every process.
        let Ok(entry) = entry else { continue };
        if !entry.file_type().is_file() {
            continue;
        }
        let large = entry.metadata().is_ok_and(|data| data.len() > max_bytes);
        // A task's payload is JSON text: a path that is no text cannot be named in one.
        if large || entry.path().to_str().is_none() || files.chosen.len() >= limit {
            files.left_out += 1;
        } else {
            files.chosen.push(entry.into_path());
        }
    }
    anyhow::ensure!(!files.chosen.is_empty(), "no files to check in {}", dir.display());
    Ok(files)
}
