//! A copy of the directory of a running server, for binaries that have no pg_basebackup.
//!
//! Files change and vanish while it is made; between `pg_backup_start` and `pg_backup_stop` that is
//! allowed, and the log makes up for it.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use anyhow::Result;

/// Files that a copy must not have: the identity of the running server.
const LEFT_OUT: [&str; 3] = ["postmaster.pid", "postmaster.opts", "pg_internal.init"];

/// Directories of which only the outside is copied: the log is streamed, the rest is rebuilt.
const EMPTIED: [&str; 9] = [
    "pg_wal",
    "pg_replslot",
    "pg_dynshmem",
    "pg_notify",
    "pg_serial",
    "pg_snapshots",
    "pg_stat_tmp",
    "pg_subtrans",
    "pgsql_tmp",
];

/// Copies what is in `from` to `to`, which exists, with owners and modes. Blocks.
pub(super) fn copy_cluster(from: &Path, to: &Path) -> Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let among = |names: &[&str]| names.iter().any(|known| name == **known);
        // A link stands for what it leads to: pg_wal may be elsewhere.
        let Some(found) = unless_gone(entry.path().metadata())? else { continue };
        if among(&LEFT_OUT) {
            continue;
        }
        let (source, target) = (entry.path(), to.join(&name));
        if found.is_dir() {
            std::fs::create_dir(&target)?;
            if !among(&EMPTIED) {
                copy_cluster(&source, &target)?;
            }
        } else if unless_gone(std::fs::copy(&source, &target))?.is_none() {
            continue;
        }
        take_over(&found, &target)?;
    }
    Ok(())
}

fn take_over(like: &Metadata, path: &Path) -> Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(like.mode() & 0o7777))?;
    chown(path, Some(like.uid()), Some(like.gid()))?;
    Ok(())
}

/// The result, or none when the file has gone.
fn unless_gone<T>(result: std::io::Result<T>) -> std::io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
