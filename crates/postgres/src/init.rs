//! Making a cluster, completely or not at all: `initdb` into `data.tmp`, then a rename.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use rustix::process::Signal;

use super::account::Account;
use super::binaries::Binaries;
use super::data_dir::{DataDir, private_dir};
use super::server::{complaint_in, die_with_parent};
use super::{Durability, Error, SUPERUSER};

/// Written to `postgresql.conf` once, so that ALTER SYSTEM can change them. A short nap of
/// autovacuum suits tables whose rows live for seconds.
const SETTINGS: &str = "
# Tuskline's defaults.
shared_buffers = '128MB'
max_connections = 200
autovacuum_naptime = '10s'
";

/// Makes the cluster. Blocks for about a second; call it under the directory's lock.
pub(super) fn make_cluster(
    data_dir: &DataDir,
    binaries: &Binaries,
    account: &Account,
    durability: Durability,
) -> Result<(), Error> {
    let unfinished = data_dir.root().join("data.tmp");
    if unfinished.exists() {
        std::fs::remove_dir_all(&unfinished).map_err(Error::io("remove", &unfinished))?;
    }
    private_dir(&unfinished, account)?;
    run_initdb(binaries, account, &unfinished)?;
    let settings = unfinished.join("postgresql.conf");
    let opened = OpenOptions::new().append(true).open(&settings);
    let mut file = opened.map_err(Error::io("open", &settings))?;
    file.write_all(SETTINGS.as_bytes()).map_err(Error::io("write", &settings))?;
    if durability == Durability::Durable {
        sync(&file).map_err(Error::io("sync", &unfinished))?;
    }
    let pgdata = data_dir.root().join("data");
    std::fs::rename(&unfinished, &pgdata).map_err(Error::io("rename", &unfinished))
}

fn run_initdb(binaries: &Binaries, account: &Account, pgdata: &Path) -> Result<(), Error> {
    let program = binaries.program("initdb");
    let mut command = account.command(&program);
    // --no-sync because one syncfs afterwards costs less than its walk over a thousand files.
    command.args(["--no-sync", "--no-locale", "-E", "UTF8", "-U", SUPERUSER]);
    // Over the socket its private directory is the guard; over TCP a password is.
    command.args(["--auth-local=trust", "--auth-host=scram-sha-256", "-D"]).arg(pgdata);
    die_with_parent(&mut command, Signal::TERM);
    let output = command.output().map_err(Error::io("run", &program))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(Error::Init { line: complaint_in(&String::from_utf8_lossy(&said)) })
}

/// Writes the file's whole file system to its disk.
fn sync(file: &File) -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::fs::syncfs(file)?;
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        rustix::fs::sync();
    }
    Ok(())
}
