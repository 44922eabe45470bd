//! Takes lines out of a file of the archive.
//!
//! The file is written again beside itself and takes the old name by a rename, so that a crash
//! leaves either the old or the new file. A lock of the file keeps a server from adding lines to it
//! meanwhile. A file behind a symbolic link is written again where it is, and the link stays.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};

use super::directory::{Directory, Error, create_new, lock, sync};

/// Most lines of one batch.
const BATCH_LINES: usize = 1_000;

/// Bytes of lines after which a batch ends.
const BATCH_BYTES: usize = 4 << 20;

/// A file of the archive, locked, to take lines out of.
#[derive(Debug)]
pub struct Erasure {
    directory: Directory,
    /// In the directory of the archive, which may be a symbolic link.
    name: PathBuf,
    /// Where the file is.
    path: PathBuf,
    reader: BufReader<File>,
    /// The file ends with an incomplete line, left by a server that was killed.
    torn: bool,
}

impl Directory {
    /// Names of the files of the archive, in order.
    ///
    /// # Errors
    /// [`Error::Unreadable`] when the directory cannot be read.
    pub fn files(&self) -> Result<Vec<String>, Error> {
        self.names(|name| name.ends_with(".jsonl") && !name.starts_with('.'))
    }

    /// Names of the files that a server is still writing, or left behind when it was killed.
    ///
    /// # Errors
    /// [`Error::Unreadable`] when the directory cannot be read.
    pub fn unfinished(&self) -> Result<Vec<String>, Error> {
        self.names(|name| name.starts_with('.') && name.ends_with(".tmp"))
    }

    fn names(&self, is_meant: fn(&str) -> bool) -> Result<Vec<String>, Error> {
        let read = || -> io::Result<Vec<String>> {
            let names = std::fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name()));
            let names = names.collect::<io::Result<Vec<_>>>()?.into_iter();
            let mut names: Vec<_> = names.filter_map(|name| name.into_string().ok()).collect();
            names.retain(|name| is_meant(name));
            names.sort();
            Ok(names)
        };
        read().map_err(|source| Error::Unreadable { path: self.path.clone(), source })
    }

    /// Locks a file of the archive, to read it and to take lines out of it.
    ///
    /// # Errors
    /// [`Error::Unreadable`] when it cannot be opened or locked.
    pub async fn erasure(&self, name: &str) -> Result<Erasure, Error> {
        let name = self.path.join(name);
        let of = |source| Error::Unreadable { path: name.clone(), source };
        let path = std::fs::canonicalize(&name).map_err(of)?;
        let file = lock(path.clone(), |path| File::options().read(true).write(true).open(path));
        let reader = BufReader::new(file.await.map_err(of)?);
        Ok(Erasure { directory: self.clone(), name, path, reader, torn: false })
    }
}

impl Erasure {
    /// The next whole lines, without their line ends. Empty: there are no more.
    ///
    /// # Errors
    /// [`Error::Unreadable`] when the file cannot be read.
    pub fn next_lines(&mut self) -> Result<Vec<String>, Error> {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        while lines.len() < BATCH_LINES && bytes < BATCH_BYTES {
            let mut line = String::new();
            let read = self.reader.read_line(&mut line);
            bytes +=
                read.map_err(|source| Error::Unreadable { path: self.path.clone(), source })?;
            if !line.ends_with('\n') {
                self.torn |= !line.is_empty();
                break;
            }
            line.pop();
            lines.push(line);
        }
        Ok(lines)
    }

    /// Writes the file again without these lines, counted from 0, and without an incomplete line at
    /// its end. A file that keeps no line is deleted, with a link to it. If there is nothing to remove, the file is
    /// not touched.
    ///
    /// # Errors
    /// [`Error::File`]. Then the file is unchanged, or completely rewritten.
    pub async fn rewrite_without(mut self, lines: BTreeSet<u64>) -> Result<(), Error> {
        if lines.is_empty() && !self.torn {
            return Ok(());
        }
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let unfinished =
            self.path.with_file_name(format!(".{name}_{:08x}.tmp", self.directory.token));
        let written = self.write(&unfinished, &lines).await;
        let _ = std::fs::remove_file(&unfinished); // it was renamed, or is not needed any more
        written.map_err(|source| Error::File { path: self.path.clone(), source })?;
        self.path.pop();
        Directory { path: self.path, ..self.directory.clone() }.sync_entries().await?;
        self.directory.sync_entries().await
    }

    async fn write(&mut self, unfinished: &Path, without: &BTreeSet<u64>) -> io::Result<()> {
        let _ = std::fs::remove_file(unfinished);
        self.reader.seek(SeekFrom::Start(0))?;
        let new = create_new(unfinished)?;
        self.give_to_the_same_owner(&new)?;
        let mut kept = BufWriter::new(new);
        let mut line = Vec::new();
        let mut is_empty = true;
        for no in 0.. {
            line.clear();
            self.reader.read_until(b'\n', &mut line)?;
            if line.last() != Some(&b'\n') {
                break;
            }
            if !without.contains(&no) {
                is_empty = false;
                kept.write_all(&line)?;
            }
        }
        sync(kept.into_inner().map_err(io::IntoInnerError::into_error)?).await?;
        match is_empty {
            // First the lines: a link to no file is found by the next run.
            true => std::fs::remove_file(&self.path).and_then(|()| match self.name.is_symlink() {
                true => std::fs::remove_file(&self.name),
                false => Ok(()),
            }),
            false => std::fs::rename(unfinished, &self.path),
        }
    }

    /// The server that owns the file adds lines to it, and readers have its group.
    fn give_to_the_same_owner(&self, new: &File) -> io::Result<()> {
        let old = self.reader.get_ref().metadata()?;
        fchown(new, Some(old.uid()), Some(old.gid()))?;
        new.set_permissions(old.permissions())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    async fn without(text: &str, lines: &[u64]) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("task_7.jsonl");
        std::fs::write(&path, text).unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        assert_eq!(directory.files().unwrap(), ["task_7.jsonl"]);
        let mut erasure = directory.erasure("task_7.jsonl").await.unwrap();
        while !erasure.next_lines().unwrap().is_empty() {}
        erasure.rewrite_without(lines.iter().copied().collect()).await.unwrap();
        assert!(directory.unfinished().unwrap().is_empty());
        std::fs::read_to_string(&path).ok()
    }

    #[tokio::test]
    async fn only_the_lines_that_are_named_go() {
        for (text, lines, left) in [
            ("a\nb\nc\n", &[][..], Some("a\nb\nc\n")),
            ("a\nb\nc\n", &[0], Some("b\nc\n")),
            ("a\nb\nc\n", &[1, 2], Some("a\n")),
            ("a\nb\nc\n", &[0, 1, 2], None),
            ("a\nb\nc", &[1], Some("a\n")),
            ("a\nb", &[], Some("a\n")),
        ] {
            assert_eq!(without(text, lines).await.as_deref(), left, "{text:?} {lines:?}");
        }
    }

    #[tokio::test]
    async fn a_server_adds_to_the_new_file_and_not_to_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kept.jsonl");
        std::fs::write(&path, "a\nb\n").unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        let mut erasure = directory.erasure("kept.jsonl").await.unwrap();
        erasure.next_lines().unwrap();
        let server = tokio::spawn(lock(path.clone(), |path| {
            File::options().append(true).create(true).open(path)
        }));
        assert!(!server.is_finished(), "the file is locked");
        erasure.rewrite_without([0].into()).await.unwrap();
        server.await.unwrap().unwrap().write_all(b"c\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "b\nc\n");
    }

    #[tokio::test]
    async fn the_new_file_has_the_owner_and_the_mode_of_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("task_7.jsonl");
        std::fs::write(&path, "a\nb\n").unwrap();
        let file = File::open(&path).unwrap();
        // Only root can give a file away.
        let given = fchown(&file, Some(65_534), Some(65_534)).is_ok();
        file.set_permissions(PermissionsExt::from_mode(0o640)).unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        let mut erasure = directory.erasure("task_7.jsonl").await.unwrap();
        erasure.next_lines().unwrap();
        erasure.rewrite_without([0].into()).await.unwrap();
        let new = std::fs::metadata(&path).unwrap();
        let old = file.metadata().unwrap();
        assert_ne!(new.ino(), old.ino());
        assert_eq!((new.uid(), new.gid(), new.mode()), (old.uid(), old.gid(), old.mode()));
        assert_eq!((new.mode() & 0o777, new.uid() == 65_534), (0o640, given));
    }

    #[tokio::test]
    async fn lines_behind_a_symbolic_link_go_where_they_are() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (link, target) = (dir.path().join("task_7.jsonl"), other.path().join("moved.jsonl"));
        std::fs::write(&target, "a\nb\n").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        for (lines, left) in [(0, Some("b\n")), (0, None)] {
            let mut erasure = directory.erasure("task_7.jsonl").await.unwrap();
            erasure.next_lines().unwrap();
            erasure.rewrite_without([lines].into()).await.unwrap();
            assert_eq!(std::fs::read_to_string(&target).ok().as_deref(), left);
            assert_eq!(link.is_symlink(), left.is_some());
            assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), left.iter().count());
        }
    }

    #[tokio::test]
    async fn a_file_that_is_gone_cannot_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        let said = directory.erasure("task_1.jsonl").await.unwrap_err().to_string();
        assert!(
            said.starts_with("cannot open or read ") && said.contains("/task_1.jsonl: "),
            "{said}"
        );
        dir.close().unwrap();
        let said = directory.files().unwrap_err().to_string();
        assert!(said.starts_with("cannot open or read "), "{said}");
    }

    #[tokio::test]
    async fn a_batch_ends_after_so_many_lines() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("task_1.jsonl"), "{}\n".repeat(BATCH_LINES + 1)).unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        let mut erasure = directory.erasure("task_1.jsonl").await.unwrap();
        let batches = [0; 3].map(|_| erasure.next_lines().unwrap().len());
        assert_eq!(batches, [BATCH_LINES, 1, 0]);
    }
}
