//! Reads the files of a history, one line at a time.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::Line;

const BUFFER_BYTES: usize = 1 << 20;

/// The history's files in `dir`, in the order of their names; other files are none of ours.
pub(crate) fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let entries = std::fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    for entry in entries {
        let path = entry.with_context(|| dir.display().to_string())?.path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Calls `take` for each line of a file and says whether its last line was cut short.
///
/// # Errors
/// A line that does not parse, unless it is the last one and lacks its newline; what `take` refuses.
pub(crate) fn each_line(path: &Path, mut take: impl FnMut(Line) -> Result<()>) -> Result<bool> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, file);
    let mut text = Vec::new();
    for number in 1_u64.. {
        text.clear();
        let place = || format!("{}:{number}", path.display());
        if reader.read_until(b'\n', &mut text).with_context(place)? == 0 {
            break;
        }
        match serde_json::from_slice(&text) {
            Ok(line) => take(line).with_context(place)?,
            Err(_) if text.last() != Some(&b'\n') => return Ok(true),
            Err(error) => bail!("{}: not an event: {error}", place()),
        }
    }
    Ok(false)
}
