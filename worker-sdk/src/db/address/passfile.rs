//! The password file of libpq: `PGPASSFILE` names it, and a line is `host:port:database:user:password`.
//!
//! With it, a systemd credential or a mounted secret becomes the password, and no shell is needed.
//! Must never: quote a line in an error.

use tokio_postgres::Config;
use tokio_postgres::config::Host;

use super::InvalidAddress;

/// The port of an address that has none.
const USUAL_PORT: u16 = 5432;

/// Fields of a line.
const FIELDS: usize = 5;

/// Sets the password of the first line that fits the first host. If no line fits, it sets none.
pub(super) fn complete(config: &mut Config, file: &str) -> Result<(), InvalidAddress> {
    let lines = std::fs::read_to_string(file)
        .map_err(|error| InvalidAddress(format!("PGPASSFILE={file} cannot be read: {error}")))?;
    let found = password(&lines, config);
    found.map(|password| config.password(password));
    Ok(())
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
        let said = |text: &str| Some(text.to_owned());
        assert_eq!(of("postgresql://me@db/shop"), said("a:b\\c"));
        assert_eq!(of("postgresql://you@db:7000/x"), said("yours"));
        assert_eq!(of("host=/run/postgresql user=me dbname=shop"), said("socket"));
        assert_eq!(of("postgresql://x@y:6000"), said("any"));
        assert_eq!(of("postgresql://x@y"), None);
    }

    #[test]
    fn a_file_that_is_absent_is_an_error_that_names_it() {
        let said = complete(&mut Config::new(), "/absent/file").expect_err("absent").to_string();
        assert!(said.starts_with("PGPASSFILE=/absent/file cannot be read: "), "{said}");
    }
}
