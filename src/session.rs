//! A session: one connection to the task store, with the settings every role of ours wants.
//!
//! Promises: connecting is bounded in time, the session has deadlines for statements and for idle
//! transactions, and it ends when its [`Session`] is dropped. With [`Session::listening`] whatever the database
//! notifies wakes [`Session::notified`].
//! Must never: retry by itself, or print an address; who calls decides what a loss means.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Error};
use tuskline_sdk::{Address, connect_in_turn, drive};

/// Longest wait for the socket of each host, when the address does not say (`connect_timeout`), and as long
/// again for the server to answer on it; then the next host is asked.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Begin of the option of an address that sets a role.
const SET_ROLE: &str = "-c role=";

/// Refuses a session without a role: a pooler has ignored the option that sets it.
const NEED_ROLE: &str = "
    do $$ begin
      if current_setting('role') = 'none' then
        raise insufficient_privilege using
          message = 'a pooler ignores the parameter options, which sets the role',
          hint = 'connect to the server directly';
      end if;
    end $$";

/// Deadlines that the server applies to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// `statement_timeout`; zero: none.
    pub statement: Duration,
    /// `lock_timeout`; zero: none.
    pub lock: Duration,
    /// `idle_in_transaction_session_timeout`; zero: none.
    pub idle_in_transaction: Duration,
}

impl Deadlines {
    /// For loops and commands: a statement of ours that takes 30 s is stuck.
    pub const USUAL: Self = Self {
        statement: Duration::from_secs(30),
        lock: Duration::ZERO,
        idle_in_transaction: Duration::from_secs(30),
    };
    /// For commands that only read: they report a table that is locked for a second.
    pub const READ: Self = Self { lock: Duration::from_secs(1), ..Self::USUAL };
    /// For migrations and retention, which wait for other people's transactions.
    pub const PATIENT: Self = Self {
        statement: Duration::ZERO,
        lock: Duration::ZERO,
        idle_in_transaction: Duration::from_secs(300),
    };
    /// For a guard, whose transaction is idle as long as its process works.
    pub const NONE: Self = Self { idle_in_transaction: Duration::ZERO, ..Self::PATIENT };
}

/// A connection and the task that drives it.
#[derive(Debug)]
pub struct Session {
    client: Client,
    address: Address,
    driver: JoinHandle<()>,
    notified: Arc<Notify>,
}

impl Session {
    /// Connects and applies `deadlines`. `role` names the session in `pg_stat_activity`
    /// (`tuskline <role>`).
    ///
    /// # Errors
    /// Whatever tokio-postgres says, when there is no connection within the timeout or the
    /// settings are refused.
    pub async fn open(
        address: impl Into<Address>,
        role: &str,
        deadlines: Deadlines,
    ) -> Result<Self, Error> {
        let address = address.into();
        match Self::plain(stating(address.clone(), deadlines, ""), role).await {
            Err(error) if error.code() == Some(&SqlState::PROTOCOL_VIOLATION) => {
                Self::plain(address, role).await
            }
            opened => opened,
        }
    }

    /// As [`Session::open`], with more settings, and only with them: a pooler that refuses them is an error.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub async fn strict(
        address: impl Into<Address>,
        role: &str,
        deadlines: Deadlines,
        settings: &[(&str, &str)],
    ) -> Result<Self, Error> {
        let more = settings.iter().map(|(name, value)| (name, value.replace(' ', "\\ ")));
        let more: String = more.map(|(name, value)| format!(" -c {name}={value}")).collect();
        Self::plain(stating(address.into(), deadlines, &more), role).await
    }

    /// As [`Session::open`], with the settings that every session of the role gets.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub async fn plain(address: impl Into<Address>, role: &str) -> Result<Self, Error> {
        let address = address.into();
        let patience = *address.config().get_connect_timeout().unwrap_or(&CONNECT_TIMEOUT);
        let address = address.with(|config| {
            config.application_name(format!("tuskline {role}")).connect_timeout(patience);
        });
        let each = patience.saturating_mul(2);
        let (client, connection) = connect_in_turn(&address, |_| each).await?;
        let notified = Arc::new(Notify::new());
        let bell = Arc::clone(&notified);
        let driver = tokio::spawn(async move {
            // Notices are dropped here: what a verb has to say it returns.
            let hear = |said| {
                if matches!(said, AsyncMessage::Notification(_)) {
                    bell.notify_one();
                }
            };
            drive(connection, hear).await;
            bell.notify_one();
        });
        let session = Self { client, address, driver, notified };
        if session.address.config().get_options().is_some_and(|all| all.contains(SET_ROLE)) {
            session.client.batch_execute(NEED_ROLE).await?;
        }
        Ok(session)
    }

    /// As [`Session::open`], and listens on `channel`, a plain identifier.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub async fn listening(
        address: impl Into<Address>,
        role: &str,
        channel: &str,
    ) -> Result<Self, Error> {
        let session = Self::open(address, role, Deadlines::USUAL).await?;
        session.client.batch_execute(&format!("listen {channel}")).await?;
        Ok(session)
    }

    /// How it was reached, for another connection of the same process.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The connection, for statements.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The connection, for transactions.
    pub fn client_mut(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Resolves when a notification has arrived since the last call, or the connection is lost.
    pub async fn notified(&self) {
        self.notified.notified().await;
    }

    /// True when a notification on `channel`, sent from another session, arrives here in time. It
    /// does not behind a transaction pooler, where a session lock must not be taken either.
    ///
    /// # Errors
    /// Whatever ends either connection.
    pub async fn hears(
        &self,
        other: &Self,
        channel: &str,
        deadline: Duration,
    ) -> Result<bool, Error> {
        other.client.batch_execute(&format!("notify {channel}")).await?;
        Ok(tokio::time::timeout(deadline, self.notified()).await.is_ok() && !self.is_closed())
    }

    /// Stops listening, on whatever server process a pooler made listen.
    ///
    /// # Errors
    /// Whatever ends the connection.
    pub async fn stop_listening(&self) -> Result<(), Error> {
        self.client.batch_execute("unlisten *").await
    }

    /// True once the connection is lost.
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// An address with our settings as a startup parameter, after its own. Not by SET: behind a transaction
/// pooler that would change other people's sessions. A pooler refuses the parameter, and is spoken to
/// without.
fn stating(address: Address, deadlines: Deadlines, more: &str) -> Address {
    let all = format!(
        "{} -c client_min_messages=warning -c search_path=pg_catalog,pg_temp -c jit=off \
         -c lock_timeout={} -c statement_timeout={} -c idle_in_transaction_session_timeout={}{more}",
        address.config().get_options().unwrap_or_default(),
        deadlines.lock.as_millis(),
        deadlines.statement.as_millis(),
        deadlines.idle_in_transaction.as_millis(),
    );
    address.with(|config| {
        config.options(all);
    })
}

/// Why a loop lost its connection.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// Error of the connection or the server.
    #[error(transparent)]
    Database(#[from] Error),
    /// Nothing was said at all.
    #[error("no answer within {0:?}")]
    Silent(Duration),
}

/// Tells an error with all its causes in one line, without addresses or passwords.
#[derive(Debug)]
pub struct ErrorChain<'e, E: ?Sized>(pub &'e E);

impl<E: std::error::Error + ?Sized> std::fmt::Display for ErrorChain<'_, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut said = self.0.to_string();
        let mut source = self.0.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            // Many errors repeat their cause in their own text.
            if !said.ends_with(&text) {
                write!(f, ": {text}")?;
            }
            said = text;
            source = cause.source();
        }
        Ok(())
    }
}
