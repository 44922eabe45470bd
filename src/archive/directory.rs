//! A directory of archive files, and what is written there.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use futures_util::StreamExt as _;
use tokio_postgres::CopyOutStream;

/// Payloads are private to the server: other accounts of the machine read no file.
const MODE: u32 = 0o600;

/// Bytes read at a time when the end of the last whole line is looked for.
const BLOCK: u64 = 64 * 1024;

/// Why tasks were not archived.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or the directory cannot be written.
    #[error("cannot write to {}: {source}", .path.display())]
    File {
        /// The file that could not be written.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file or the directory cannot be opened or read.
    #[error("cannot open or read {}: {source}", .path.display())]
    Unreadable {
        /// The file that could not be read.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Where the tasks come from.
    #[error("{0}")]
    Database(#[from] tokio_postgres::Error),
}

/// A directory for the archives of one database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    pub(super) path: PathBuf,
    /// Part of the names of files: no two processes add to one.
    pub(super) token: u32,
}

impl Directory {
    /// A directory that is there and can be written to.
    ///
    /// # Errors
    /// [`Error::File`] when it is not.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let directory = Self { path: path.into(), token: fastrand::u32(..) };
        let probe = directory.path.join(format!(".probe_{:08x}", directory.token));
        let tried = create_new(&probe).and_then(|_| std::fs::remove_file(&probe));
        tried.map_err(|source| Error::File { path: directory.path.clone(), source })?;
        Ok(directory)
    }

    /// Writes the tasks of a segment to `task_<no>.jsonl`, or, if there is one from an earlier try or an
    /// earlier segment of that number, to `task_<no>_2.jsonl` and so on. How many tasks; no file for none.
    ///
    /// # Errors
    /// See [`Error`]. Then there is no such file.
    pub async fn put_segment(&self, no: i64, lines: CopyOutStream) -> Result<u64, Error> {
        let unfinished = self.path.join(format!(".task_{no}_{:08x}.tmp", self.token));
        // A file that an earlier, abandoned try of this process left.
        let _ = std::fs::remove_file(&unfinished);
        let written = self.put(no, &unfinished, lines).await;
        let _ = std::fs::remove_file(&unfinished);
        written
    }

    async fn put(&self, no: i64, unfinished: &Path, lines: CopyOutStream) -> Result<u64, Error> {
        let of = |source| Error::File { path: unfinished.to_owned(), source };
        let file = create_new(unfinished).map_err(of)?;
        let (file, tasks) = copy(file, unfinished, lines).await?;
        sync(file).await.map_err(of)?;
        if tasks > 0 {
            self.name(no, unfinished).map_err(of)?;
            self.sync_entries().await?;
        }
        Ok(tasks)
    }

    /// Gives a file its name by a link, which, other than a rename, takes no name that is in use.
    fn name(&self, no: i64, unfinished: &Path) -> io::Result<()> {
        let names = std::iter::once(format!("task_{no}.jsonl"))
            .chain((2_u32..).map(|n| format!("task_{no}_{n}.jsonl")));
        for name in names {
            match std::fs::hard_link(unfinished, self.path.join(name)) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                linked => return linked,
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Adds tasks to this process's `<kind>_<day>_<token>.jsonl`. How many.
    ///
    /// # Errors
    /// See [`Error`]. Then the file is as it was.
    pub async fn add(&self, kind: &str, lines: CopyOutStream) -> Result<u64, Error> {
        let day = chrono::Utc::now().format("%Y-%m-%d");
        let path = self.path.join(format!("{kind}_{day}_{:08x}.jsonl", self.token));
        let of = |source| Error::File { path: path.clone(), source };
        let file = lock(path.clone(), |path| {
            OpenOptions::new().read(true).append(true).create(true).mode(MODE).open(path)
        });
        let mut file = file.await.map_err(of)?;
        let before = end_of_lines(&mut file).map_err(of)?;
        file.set_len(before).map_err(of)?;
        let undo = file.try_clone().map_err(of)?;
        match copy(file, &path, lines).await {
            Ok((file, tasks)) => {
                sync(file).await.map_err(of)?;
                self.sync_entries().await?;
                Ok(tasks)
            }
            Err(error) => {
                // If this fails too, the next call cuts what is no whole line.
                let _ = undo.set_len(before);
                Err(error)
            }
        }
    }

    pub(super) async fn sync_entries(&self) -> Result<(), Error> {
        let synced = match File::open(&self.path) {
            Ok(directory) => sync(directory).await,
            Err(error) => Err(error),
        };
        synced.map_err(|source| Error::File { path: self.path.clone(), source })
    }
}

pub(super) fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(MODE).open(path)
}

/// Opens a file and locks it, on a thread that may wait. The file has its name still when it is locked.
pub(super) async fn lock(path: PathBuf, open: fn(&Path) -> io::Result<File>) -> io::Result<File> {
    let locked = move || loop {
        let file = open(&path)?;
        match file.lock() {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(file),
            locked => locked?,
        }
        match std::fs::metadata(&path) {
            Ok(named) if named.ino() == file.metadata()?.ino() => return Ok(file),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {} // it was written again meanwhile
        }
    };
    tokio::task::spawn_blocking(locked).await.map_err(io::Error::other)?
}

/// Copies what comes, a piece at a time, and counts the lines.
async fn copy(file: File, path: &Path, lines: CopyOutStream) -> Result<(File, u64), Error> {
    let of = |source| Error::File { path: path.to_owned(), source };
    let mut file = BufWriter::new(file);
    let mut tasks = 0;
    let mut lines = std::pin::pin!(lines);
    while let Some(piece) = lines.next().await {
        let piece = piece?;
        tasks += piece.iter().filter(|byte| **byte == b'\n').count() as u64;
        file.write_all(&piece).map_err(of)?;
    }
    let file = file.into_inner().map_err(|error| of(error.into_error()))?;
    Ok((file, tasks))
}

/// Waits for the disk on a thread that may.
pub(super) async fn sync(file: File) -> io::Result<()> {
    tokio::task::spawn_blocking(move || file.sync_all()).await.map_err(io::Error::other)?
}

/// Where the last whole line ends: a call that was given up half-way may have left a piece of one.
fn end_of_lines(file: &mut File) -> io::Result<u64> {
    let mut end = file.seek(SeekFrom::End(0))?;
    while end > 0 {
        let start = end.saturating_sub(BLOCK);
        let mut block = Vec::new();
        file.seek(SeekFrom::Start(start))?;
        (&mut *file).take(end - start).read_to_end(&mut block)?;
        if let Some(at) = block.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_of_a_line_is_no_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lines");
        let long = "x".repeat(usize::try_from(BLOCK).unwrap() * 2);
        for (text, end) in [
            ("".to_owned(), 0),
            ("{}\n".to_owned(), 3),
            ("{}\n{\"a".to_owned(), 3),
            ("{\"a".to_owned(), 0),
            (format!("{{}}\n{long}"), 3),
        ] {
            std::fs::write(&path, text).unwrap();
            let mut file = File::open(&path).unwrap();
            assert_eq!(end_of_lines(&mut file).unwrap(), end);
        }
    }

    #[test]
    fn a_directory_that_is_not_there_is_refused() {
        let said = Directory::open("/nonexistent/archive").unwrap_err().to_string();
        assert!(said.starts_with("cannot write to /nonexistent/archive: "), "{said}");
    }

    #[test]
    fn a_name_that_is_taken_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        let unfinished = dir.path().join(".new");
        for text in ["first", "second", "third"] {
            std::fs::write(&unfinished, text).unwrap();
            directory.name(7, &unfinished).unwrap();
            std::fs::remove_file(&unfinished).unwrap();
        }
        let read = |name| std::fs::read_to_string(dir.path().join(name)).unwrap();
        let texts = ["task_7.jsonl", "task_7_2.jsonl", "task_7_3.jsonl"].map(read);
        assert_eq!(texts, ["first", "second", "third"]);
    }
}
