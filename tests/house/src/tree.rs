//! The files of a checkout.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// A directory of the checkout: paths below it, and texts.
#[derive(Debug)]
pub struct Tree {
    /// In order of their paths.
    pub files: Vec<(PathBuf, String)>,
}

impl Tree {
    /// The root of the checkout that this crate was built in.
    pub fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// The files below a directory of the root that have an extension, without those that cargo built.
    ///
    /// # Errors
    /// The directory is not there, or a file is no text.
    pub fn read(root: &Path, directory: &str, extension: &str) -> anyhow::Result<Self> {
        let mut paths = Vec::new();
        collect(&root.join(directory), extension, &mut paths)?;
        paths.sort();
        let read = |path: PathBuf| {
            let text =
                std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            Ok((path.strip_prefix(root.join(directory)).unwrap_or(&path).to_owned(), text))
        };
        Ok(Self { files: paths.into_iter().map(read).collect::<anyhow::Result<_>>()? })
    }

    /// The texts.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|(_, text)| text.as_str())
    }
}

fn collect(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let entries = std::fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, extension, found)?;
        } else if path.extension().is_some_and(|its| its == extension) {
            found.push(path);
        }
    }
    Ok(())
}
