//! `serve`: runs the server's roles in this process until it is told to stop.
//!
//! Promises: a wrong address, password or schema is an error at once; a database that is merely
//! away is waited for, at start and later. Any number of instances serve one database.
//! Must never: migrate by itself.

use std::error::Error as _;
use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tuskline_sdk::Address;
use tuskline_sdk::SchemaCompatibility;

use crate::config::{DEFAULT_INSTALLATION, JanitorOptions, PeriodicOptions, StoreConsumerOptions};
use crate::health::Beside;
use crate::migrate::SCHEMA_VERSION;
use crate::port_tls::PortTls;
use crate::recovery::RoleHealth;
use crate::session::{Deadlines, ErrorChain, Session};
use crate::store::{self, Readiness};
use crate::{health, janitor, periodic, store_consumer};

/// A loop that `serve` runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Role {
    /// Moves due tasks into their queues.
    StoreConsumer,
    /// Fires the ticks of schedules.
    Periodic,
    /// Makes and retires segments.
    Janitor,
}

/// The roles to run, and their options.
#[derive(Debug, Clone)]
pub struct Options {
    /// Roles of this process.
    pub roles: Vec<Role>,
    /// Where `/healthz` and `/readyz` answer; none: nowhere.
    pub listen: Option<SocketAddr>,
    /// People who may look at the pages there, act, and call the Frontend by RPC. None: there is neither.
    #[cfg(feature = "pages")]
    pub pages: Option<crate::pages::Options>,
    /// Certificates of the port.
    pub tls: Option<PortTls>,
    /// Name of the installation that the database must have.
    pub installation: String,
    /// Bounds of the store consumer.
    pub store_consumer: StoreConsumerOptions,
    /// Bounds of the periodic role.
    pub periodic: PeriodicOptions,
    /// Bounds of the janitor.
    pub janitor: JanitorOptions,
}

impl Default for Options {
    /// Every role, no port.
    fn default() -> Self {
        Self {
            roles: vec![Role::StoreConsumer, Role::Periodic, Role::Janitor],
            listen: None,
            #[cfg(feature = "pages")]
            pages: None,
            tls: None,
            installation: DEFAULT_INSTALLATION.to_owned(),
            store_consumer: StoreConsumerOptions::default(),
            periodic: PeriodicOptions::default(),
            janitor: JanitorOptions::default(),
        }
    }
}

/// Why a server does not start, or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nowhere to answer.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Address that was asked for.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// The database answers, and refuses us.
    #[error("{0}")]
    Database(#[from] tokio_postgres::Error),
    /// Its schema will not do.
    #[error("schema is absent or older than this binary ({0}): run `tuskline migrate`")]
    Schema(String),
    /// Its schema means other things than we do.
    #[error(
        "schema is of a later major version than this binary: it has function set {found}, this binary {ours}: bring the binary up to date"
    )]
    SchemaNewer {
        /// Version in the database.
        found: i32,
        /// [`SCHEMA_VERSION`].
        ours: i32,
    },
    /// Every role of ours writes.
    #[error("this server is a standby or read-only: connect to the primary")]
    ReadOnly,
    /// A role panicked; a supervisor had better start us again.
    #[error("a role ended before it was told to")]
    RoleEnded,
}

/// Runs until `shutdown` is cancelled, then ends every role and returns.
///
/// # Errors
/// See [`Error`]. A lost database is none: the roles connect again.
pub async fn run(
    address: impl Into<Address>,
    options: Options,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let address = address.into();
    let listener = match options.listen {
        Some(listen) => {
            let bound = TcpListener::bind(listen).await;
            Some(bound.map_err(|source| Error::Listen { address: listen, source })?)
        }
        None => None,
    };
    check(&address, &options.installation).await?;
    // Whatever ends this call, by error or by dropping it, ends the roles.
    let roles_end = shutdown.child_token();
    let _ends_roles = roles_end.clone().drop_guard();
    let (mut roles, role_health) = (JoinSet::new(), RoleHealth::default());
    for role in &options.roles {
        start(*role, &address, &options, (&role_health, &roles_end), &mut roles);
    }
    tracing::info!(roles = ?options.roles, listen = ?options.listen, "serving");
    let told_to_stop = async {
        match listener {
            Some(listener) => {
                let [pages, rpc] = doors(&address, &options);
                let beside = Beside { pages, rpc, tls: options.tls };
                health::serve(listener, address, role_health, beside, shutdown.clone()).await
            }
            None => shutdown.cancelled().await,
        }
    };
    tokio::select! {
        () = told_to_stop => {}
        Some(_) = roles.join_next() => if !shutdown.is_cancelled() { return Err(Error::RoleEnded) },
    }
    while roles.join_next().await.is_some() {}
    Ok(())
}

/// The pages and the Frontend by RPC, if the server has any: the same persons come by both.
fn doors(address: &Address, options: &Options) -> [axum::Router; 2] {
    #[cfg(feature = "pages")]
    if let Some(pages) = &options.pages {
        return [
            crate::pages::router(address.clone(), pages.clone()),
            crate::rpc::router(address.clone(), pages.clone().into()),
        ];
    }
    let _ = (address, options);
    [axum::Router::new(), axum::Router::new()]
}

fn start(
    role: Role,
    address: &Address,
    options: &Options,
    (health, end): (&RoleHealth, &CancellationToken),
    roles: &mut JoinSet<()>,
) {
    let (address, health, end) = (address.clone(), health.clone(), end.clone());
    let installation = options.installation.clone();
    match role {
        Role::StoreConsumer => {
            let own = StoreConsumerOptions { installation, ..options.store_consumer.clone() };
            roles.spawn(store_consumer::run(address, own, health, end))
        }
        Role::Periodic => {
            let own = PeriodicOptions { installation, ..options.periodic.clone() };
            roles.spawn(periodic::run(address, own, health, end))
        }
        Role::Janitor => {
            let own = JanitorOptions { installation, ..options.janitor.clone() };
            roles.spawn(janitor::run(address, own, health, end))
        }
    };
}

/// One check before the loops start. A refusal is final; an absent database is waited for.
async fn check(address: &Address, installation: &str) -> Result<(), Error> {
    let looked = async {
        let session = Session::open(address, "serve", Deadlines::USUAL).await?;
        let readiness = store::readiness(session.client()).await?;
        // A later verb would say it, too; here it ends the process with the reason.
        let compatibility = readiness.schema_version.map(SchemaCompatibility::of);
        let fits =
            matches!(compatibility, Some(SchemaCompatibility::Same | SchemaCompatibility::Later));
        if fits && !readiness.read_only {
            store::check_installation(session.client(), installation).await?;
        }
        Ok(readiness)
    };
    match looked.await {
        Ok(Readiness { read_only: true, .. }) => Err(Error::ReadOnly),
        Ok(Readiness { schema_version: Some(set), .. }) => fits(set),
        Ok(Readiness { schema_version: None, .. }) => {
            Err(Error::Schema(format!("function set none, wanted {SCHEMA_VERSION}")))
        }
        Err(error) if store::is_absent(&error) => Err(Error::Schema("none".to_owned())),
        Err(error) if is_passing(&error) => {
            tracing::warn!(error = %ErrorChain(&error), "the database is away, waiting for it");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

fn fits(set: i32) -> Result<(), Error> {
    match SchemaCompatibility::of(set) {
        SchemaCompatibility::Same => Ok(()),
        SchemaCompatibility::Later => {
            tracing::warn!(set, ours = SCHEMA_VERSION, "schema is newer than this binary");
            Ok(())
        }
        SchemaCompatibility::TooOld => {
            Err(Error::Schema(format!("function set {set}, wanted {SCHEMA_VERSION}")))
        }
        SchemaCompatibility::TooNew => Err(Error::SchemaNewer { found: set, ours: SCHEMA_VERSION }),
    }
}

/// No answer at all, or one that says it is starting, stopping or full (classes 57P and 53).
fn is_passing(error: &tokio_postgres::Error) -> bool {
    match error.code() {
        Some(code) => code.code().starts_with("57P") || code.code().starts_with("53"),
        None => error.is_closed() || error.source().is_some_and(|cause| cause.is::<io::Error>()),
    }
}
