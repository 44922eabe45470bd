//! Where tests make their databases: one throw-away cluster per process, or a server that was named.
//!
//! Every `#[tokio::test]` has a runtime of its own, which ends with it. So the cluster is started by a thread
//! with another one, and kept in a static: `tuskline-postgres` stops it and removes its directory when the
//! process ends, however it ends.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use tuskline_sdk::Address;

use super::{Error, clock};
use tuskline::migrate::migrate;
use tuskline::session::Session;
use tuskline_postgres::Cluster;

/// The variable that names a server for tests, as a URL of any database on it. Its role must be allowed to
/// create databases.
pub const URL_VARIABLE: &str = "TUSKLINE_TEST_DATABASE_URL";

/// The migrated database that those of the tests are cloned from.
const TEMPLATE: &str = "tuskline_template";

/// Prefix of the name of every database that belongs to the kit.
const PREFIX: &str = "tuskline_test";

/// No autovacuum, which would join in at moments of its own; connections for as many tests at a time as a
/// large machine has processors, with a worker, a store consumer and a client each.
const SETTINGS: [(&str, &str); 4] = [
    ("timezone", "UTC"),
    ("autovacuum", "off"),
    ("shared_buffers", "64MB"),
    ("max_connections", "500"),
];

/// How often, and after which rest, sessions are told to leave a database that is deleted.
const AWAY_ROUNDS: u32 = 500;
const AWAY_REST: Duration = Duration::from_millis(2);

static CLUSTER: OnceLock<Result<Cluster, String>> = OnceLock::new();
static NUMBER: AtomicU32 = AtomicU32::new(1);

/// A database that was made for a test.
#[derive(Debug)]
pub(super) struct Place {
    pub url: String,
    pub address: Address,
    /// Its name, which is made of our own words and numbers only.
    name: String,
    /// A database beside it, to delete it from.
    beside: Address,
}

impl Place {
    /// On the server of [`URL_VARIABLE`] if it is set, else in the cluster of this process.
    pub async fn make() -> Result<Self, Error> {
        match std::env::var(URL_VARIABLE) {
            Ok(url) if !url.is_empty() => Self::make_at(&url).await,
            _ => Self::clone_template().await,
        }
    }

    /// On a server that was named.
    pub async fn make_at(server: &str) -> Result<Self, Error> {
        let beside = parse(server)?;
        let name = new_name();
        let url = url_of(server, &name);
        let address = parse(&url)?;
        if address.config().get_dbname() != Some(name.as_str()) {
            let twice = "its address names a database among its parameters as well";
            return Err(Error::Server(twice.to_owned()));
        }
        let session = Session::plain(&beside, "testing").await?;
        session.client().batch_execute(&format!("create database {name}")).await?;
        let place = Self { url, address, name, beside };
        if let Err(error) = prepare(&place.address).await {
            place.remove().await?;
            return Err(error);
        }
        Ok(place)
    }

    async fn clone_template() -> Result<Self, Error> {
        let cluster = cluster()?;
        let name = new_name();
        let cloned = cluster.create_database(&name, Some(TEMPLATE)).await;
        cloned.map_err(|error| Error::Server(error.to_string()))?;
        let (address, beside) = (cluster.config(&name).into(), cluster.config("postgres").into());
        // A copy of the template that issues numbers from the first one on: nothing of it is lost.
        let session = Session::plain(&address, "testing").await?;
        session.client().batch_execute("select tuskline.verify()").await?;
        Ok(Self { url: cluster.url(&name), address, name, beside })
    }

    /// Deletes it. Ends its sessions before, because the server itself would look for them each 100 ms only, at
    /// each test's end.
    pub async fn remove(&self) -> Result<(), Error> {
        let session = Session::plain(&self.beside, "testing").await?;
        let away =
            "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = $1";
        for _ in 0..AWAY_ROUNDS {
            match session.client().query_one(away, &[&self.name]).await {
                Ok(row) if row.get::<_, i64>(0) > 0 => tokio::time::sleep(AWAY_REST).await,
                // Sessions of a mightier role: what the next statement says of them counts.
                _ => break,
            }
        }
        Ok(tuskline_postgres::drop_database(session.client(), &self.name).await?)
    }

    /// The same for those who cannot wait: on a thread of its own, which the caller's waits for.
    pub fn remove_now(&self) -> Result<(), Error> {
        on_a_thread(|| self.remove())?
    }
}

/// The cluster of this process; the first to ask starts it.
fn cluster() -> Result<&'static Cluster, Error> {
    let started = CLUSTER.get_or_init(|| {
        on_a_thread(start).and_then(|started| started).map_err(|error| error.to_string())
    });
    started.as_ref().map_err(|error| Error::Server(error.clone()))
}

/// Runs something to its end in a runtime of its own, whatever runtime the caller is in.
fn on_a_thread<T: Send, F: Future<Output = T>>(
    work: impl FnOnce() -> F + Send,
) -> Result<T, Error> {
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map(|runtime| runtime.block_on(work()))
    };
    let done = thread::scope(|scope| scope.spawn(run).join());
    let done = done.map_err(|_| Error::Server("the thread that made it panicked".to_owned()))?;
    done.map_err(|error| Error::Server(error.to_string()))
}

async fn start() -> Result<Cluster, Error> {
    let settings = SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let refused = |error: tuskline_postgres::Error| Error::Server(error.to_string());
    let cluster = Cluster::temporary(settings).await.map_err(refused)?;
    cluster.create_database(TEMPLATE, None).await.map_err(refused)?;
    prepare(&cluster.config(TEMPLATE).into()).await?;
    Ok(cluster)
}

/// A task store with a clock that can be pinned. Its last session has ended when this returns: a database
/// with an open session cannot be cloned.
async fn prepare(address: &Address) -> Result<(), Error> {
    migrate(address).await?;
    clock::install(address).await
}

fn new_name() -> String {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    // By chance as well: of several machines on one server two may have the same process number.
    format!("{PREFIX}_{}_{number}_{:08x}", std::process::id(), fastrand::u32(..))
}

fn parse(url: &str) -> Result<Address, Error> {
    let parsed = url.parse::<Address>();
    parsed.map_err(|error| Error::Server(format!("the address of the server: {error}")))
}

/// The same address with another database, in either form that libpq reads.
fn url_of(server: &str, name: &str) -> String {
    let Some((scheme, rest)) = server.split_once("://") else {
        return format!("{server} dbname={name}");
    };
    let (place, parameters) = match rest.split_once('?') {
        Some((place, parameters)) => (place, format!("?{parameters}")),
        None => (rest, String::new()),
    };
    let host = place.split_once('/').map_or(place, |(host, _)| host);
    format!("{scheme}://{host}/{name}{parameters}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_all_but_its_database() {
        let made = |server| url_of(server, "made");
        assert_eq!(
            made("postgresql://ada:pw@db:5433/app?a=b"),
            "postgresql://ada:pw@db:5433/made?a=b"
        );
        assert_eq!(made("postgresql://db"), "postgresql://db/made");
        assert_eq!(made("postgresql:///app?host=/run/pg"), "postgresql:///made?host=/run/pg");
        assert_eq!(made("host=/run/pg dbname=app"), "host=/run/pg dbname=app dbname=made");
    }
}
