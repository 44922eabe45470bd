//! How a client comes about.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::client::Client;
use crate::client::connection::Pool;
use crate::client::sender::OnPool;
use crate::client::setters::setters;
use crate::client::wait::EndListener;
use crate::db::address::{Address, IntoAddress};
use crate::db::version;
use crate::error::{Code, Error};

/// Longest wait for an answer, unless [`ClientBuilder::deadline`] sets another. The same as a worker's.
pub(super) const DEADLINE: Duration = Duration::from_secs(15);
/// Most connections at once, unless [`ClientBuilder::connections`] sets another number.
const CONNECTIONS: usize = 8;

/// Settings of a [`Client`], checked by [`ClientBuilder::connect`].
#[derive(Debug)]
#[must_use = "a builder does nothing until `connect`"]
pub struct ClientBuilder {
    address: Result<Address, Error>,
    role: Option<Arc<str>>,
    connections: usize,
    deadline: Duration,
}

impl ClientBuilder {
    pub(super) fn new(address: impl IntoAddress) -> Self {
        let address = address.into_address();
        let address = address.map_err(|error| Error::refused(Code::InvalidUrl, error));
        Self { address, role: None, connections: CONNECTIONS, deadline: DEADLINE }
    }

    setters! {
        /// Acts as this role from the start: see [`Client::as_role`]. Default: the role of the login.
        role(role: impl Into<Arc<str>>) = Some(role.into());

        /// Most connections at once. At least 1; default 8.
        connections(connections: usize) = connections;

        /// The longest wait for the answer to one call. At least 1 ms; default 15 s. A call without an answer
        /// closes its connection and returns [`Unknown`](crate::ErrorKind::Unknown), or
        /// [`Unavailable`](crate::ErrorKind::Unavailable) if it changes nothing. Calls through [`Client::within`]
        /// and [`Client::connection`] have no deadline of ours.
        deadline(deadline: Duration) = deadline;
    }

    /// Connects, and checks that schema and binary fit together.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid): the address or a setting;
    /// [`Unavailable`](crate::ErrorKind::Unavailable); [`Denied`](crate::ErrorKind::Denied);
    /// [`Incompatible`](crate::ErrorKind::Incompatible).
    pub async fn connect(self) -> Result<Client, Error> {
        let client = self.lazy(None)?;
        version::check(client.version().await?)?;
        Ok(client)
    }

    /// Opens no connection yet. `runtime` drives its connections; none: the runtime of each caller.
    pub(crate) fn lazy(self, runtime: Option<Handle>) -> Result<Client, Error> {
        let Self { address, role, connections, deadline } = self;
        if connections == 0 {
            let text = "connections must be at least 1, got 0";
            return Err(Error::refused(Code::InvalidSetting, text));
        }
        if deadline < Duration::from_millis(1) {
            let text = format!("deadline must be at least 1ms, got {deadline:?}");
            return Err(Error::refused(Code::InvalidSetting, text));
        }
        let address = address?.with(|config| {
            if config.get_application_name().is_none() {
                config.application_name("tuskline-client");
            }
        });
        let end_listener = Arc::new(EndListener::on(address.clone(), runtime.clone()));
        let pool = Pool::own(address, connections, runtime)?;
        Ok(Client { sender: OnPool { pool, role, deadline, end_listener } })
    }
}
