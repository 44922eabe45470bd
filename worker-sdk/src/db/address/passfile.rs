//! The password file of libpq: `passfile` or `PGPASSFILE` names it, and a line is `host:port:database:user:password`.
//!
//! With it, a systemd credential or a mounted secret becomes the password, and no shell is needed.
//! As with libpq, a file that other roles of the machine can read is ignored, with a warning.
//! Must never: quote a line in an error, or read without end.

use std::fs::{File, metadata};
use std::io::{self, Read as _};
use std::path::Path;

use tokio_postgres::Config;
use tokio_postgres::config::Host;

use super::InvalidAddress;

/// The port of an address that has none.
const USUAL_PORT: u16 = 5432;

/// Fields of a line.
const FIELDS: usize = 5;

/// Longest file that is read.
const MOST_BYTES: u64 = 1 << 20;

/// Sets the password of the first line that fits the first host. If no line fits, it sets none.
pub(super) fn complete(config: &mut Config, file: &str) -> Result<(), InvalidAddress> {
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY");
    let lines = read(Path::new(file), credentials.as_deref().map(Path::new)).map_err(|error| {
        InvalidAddress(format!("the password file {file} cannot be read: {error}"))
    })?;
    match lines {
        Ok(lines) => drop(password(&lines, config).map(|password| config.password(password))),
        Err(why) => tracing::warn!(file, "the password file is ignored: {why}"),
    }
    Ok(())
}

/// The text of the file, or why it is ignored.
///
/// `credentials`: where systemd puts credentials. A list of rights (ACL) lets one account read them, and the mode
/// shows that as a right of the group.
fn read(file: &Path, credentials: Option<&Path>) -> io::Result<Result<String, &'static str>> {
    // It is not even opened: a pipe may keep the caller waiting, and a device may never end.
    if !metadata(file)?.is_file() {
        return Ok(Err("it is not a plain file"));
    }
    let opened = File::open(file)?;
    let is_credential = credentials.is_some_and(|folder| file.starts_with(folder));
    if is_open(&opened.metadata()?, is_credential) {
        return Ok(Err("other accounts can read it, set its mode to 0600"));
    }
    let mut text = String::new();
    opened.take(MOST_BYTES + 1).read_to_string(&mut text)?;
    match u64::try_from(text.len()) {
        Ok(..=MOST_BYTES) => Ok(Ok(text)),
        _ => Err(io::Error::other("it has more than 1 MiB")),
    }
}

/// Whether accounts other than that of the owner may do anything with it.
fn is_open(found: &std::fs::Metadata, is_credential: bool) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let read_by_group = if is_credential { 0o040 } else { 0 };
        found.permissions().mode() & 0o077 & !read_by_group != 0
    }
    #[cfg(not(unix))]
    false
}

fn password(lines: &str, config: &Config) -> Option<String> {
    let (hosts, port) = (host_names(config), config.get_ports().first().unwrap_or(&USUAL_PORT));
    let user = config.get_user().unwrap_or_default();
    let database = config.get_dbname().unwrap_or(user);
    let is = |field: &str, value: &str| field == "*" || field == value;
    let fits = |line: &[String]| {
        hosts.iter().any(|host| is(&line[0], host))
            && is(&line[1], &port.to_string())
            && is(&line[2], database)
            && is(&line[3], user)
    };
    let mut lines = lines.lines().filter(|line| !line.starts_with('#')).map(fields);
    lines.find(|line| line.len() == FIELDS && fits(line))?.pop()
}

/// The names of the first host that a line may have. For a socket, `localhost` fits, too.
fn host_names(config: &Config) -> Vec<String> {
    match config.get_hosts().first() {
        Some(Host::Tcp(name)) => vec![name.clone()],
        #[cfg(unix)]
        Some(Host::Unix(directory)) => {
            vec![directory.display().to_string(), "localhost".to_owned()]
        }
        None => config.get_hostaddrs().first().map(ToString::to_string).into_iter().collect(),
    }
}

/// The fields of a line. `\` takes the next character as it is, a colon stays in the password.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut left) = (vec![String::new()], line.chars());
    while let Some(next) = left.next() {
        let taken = match next {
            ':' if fields.len() < FIELDS => {
                fields.push(String::new());
                None
            }
            '\\' => left.next(),
            _ => Some(next),
        };
        fields.last_mut().into_iter().for_each(|field| field.extend(taken));
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "# db:5432:shop:me:no\n\
        db:5432:shop:me:a:b\\\\c\n\
        db:*:*:you:yours\n\
        :::\n\
        localhost:5432:shop:me:socket\n\
        *:6000:*:*:any\n";

    fn of(address: &str) -> Option<String> {
        password(LINES, &address.parse().expect("an address"))
    }

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let password = |text: &str| Some(text.to_owned());
        assert_eq!(of("postgresql://me@db/shop"), password("a:b\\c"));
        assert_eq!(of("postgresql://you@db:7000/x"), password("yours"));
        assert_eq!(of("host=/run/postgresql user=me dbname=shop"), password("socket"));
        assert_eq!(of("postgresql://x@y:6000"), password("any"));
        assert_eq!(of("postgresql://x@y"), None);
    }

    #[test]
    fn only_a_plain_file_of_its_owner_alone_is_read() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("pgpass");
        std::fs::write(&file, LINES).expect("a file");
        let read_with = |mode: u32, credentials: Option<&Path>| {
            let rights = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&file, rights).expect("its owner");
            read(&file, credentials).expect("it is there").is_ok()
        };
        for (mode, is_read) in [(0o600, true), (0o400, true), (0o640, false), (0o644, false)] {
            assert_eq!(read_with(mode, None), is_read, "{mode:o}");
        }
        assert!(read_with(0o440, Some(folder.path())), "a credential of systemd");
        assert!(!read_with(0o444, Some(folder.path())));
        for no_file in [Path::new("/dev/zero"), folder.path()] {
            assert_eq!(read(no_file, None).expect("there"), Err("it is not a plain file"));
        }
        let mut config = Config::new();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("rights");
        config.host("db").port(5432).user("me").dbname("shop");
        complete(&mut config, &file.display().to_string()).expect("ignored");
        assert_eq!(config.get_password(), None);
    }

    #[test]
    fn reading_ends_at_a_bound() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("pgpass");
        let long = vec![b'#'; MOST_BYTES as usize + 1];
        std::fs::write(&file, long).expect("a file");
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .expect("rights");
        let error = complete(&mut Config::new(), &file.display().to_string()).expect_err("long");
        assert!(error.to_string().ends_with("it has more than 1 MiB"), "{error}");
    }

    #[test]
    fn a_file_that_is_absent_is_an_error_that_names_it() {
        let error = complete(&mut Config::new(), "/absent/file").expect_err("absent").to_string();
        assert!(error.starts_with("the password file /absent/file cannot be read: "), "{error}");
    }
}
