//! Which files of the directory become tasks.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use walkdir::{DirEntry, WalkDir};

/// The files found, and how many were left out.
#[derive(Debug)]
pub(super) struct Files {
    pub chosen: Vec<PathBuf>,
    pub left_out: u64,
}

/// Regular files below `dir`, in a stable order, at most `limit` of at most `max_bytes` each: those that git
/// tracks; without any, all but those of version control and of caches, such as cargo's `target`.
pub(super) fn find(dir: &Path, limit: usize, max_bytes: u64) -> anyhow::Result<Files> {
    let found = dir.canonicalize().with_context(|| format!("cannot read {}", dir.display()))?;
    anyhow::ensure!(found.is_dir(), "{} is not a directory", dir.display());
    let mut files = Files { chosen: Vec::new(), left_out: 0 };
    for path in tracked(&found).unwrap_or_else(|| walked(&found)) {
        // A tracked file may be gone.
        let Ok(data) = path.symlink_metadata() else { continue };
        if !data.is_file() {
            continue;
        }
        // A task's payload is JSON text: a path that is no text cannot be named in one.
        if data.len() > max_bytes || path.to_str().is_none() || files.chosen.len() >= limit {
            files.left_out += 1;
        } else {
            files.chosen.push(path);
        }
    }
    anyhow::ensure!(!files.chosen.is_empty(), "no files to check in {}", dir.display());
    Ok(files)
}

/// The files that git tracks below a directory. None: nothing, or it is no work tree.
fn tracked(dir: &Path) -> Option<Vec<PathBuf>> {
    let mut git = Command::new("git");
    git.arg("-C").arg(dir).args(["ls-files", "-z"]);
    // In a hook these name the work tree of the hook.
    git.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE").env_remove("GIT_INDEX_FILE");
    let listed = git.output().ok()?.stdout;
    let names = listed.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let paths: Vec<_> = names.map(|name| dir.join(OsStr::from_bytes(name))).collect();
    Some(paths).filter(|paths| !paths.is_empty())
}

fn walked(dir: &Path) -> Vec<PathBuf> {
    let kept = |entry: &DirEntry| {
        entry.file_name() != ".git" && !entry.path().join("CACHEDIR.TAG").exists()
    };
    // An unreadable directory hides its files from every process.
    let entries = WalkDir::new(dir).sort_by_file_name().into_iter().filter_entry(kept).flatten();
    entries.map(DirEntry::into_path).collect()
}
