//! How a worker comes about.
//!
//! Promises: what can be found wrong without the database is refused by [`WorkerBuilder::build`].

use std::collections::HashSet;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use crate::client::new_task::check_name;
use crate::client::payload::Payload;
use crate::client::setters::setters;
use crate::db::address::{Address, IntoAddress};
use crate::error::{Code, Error};
use crate::worker::Worker;
use crate::worker::arguments::Arguments;
use crate::worker::config::WorkerConfig;
use crate::worker::data::DataMap;
use crate::worker::host::Host;
use crate::worker::lambda::{Lambda, LambdaFn};
use crate::worker::layer::{Attempt, Body, Layer, Service};
use crate::worker::outcome::{Failure, IntoOutcome, Outcome};
use crate::worker::statistics::Statistics;
use crate::worker::watchdog::OnLost;

/// Its end tells the worker to drain.
pub(super) type Signal = Pin<Box<dyn Future<Output = ()> + Send>>;
type Wrap = Box<dyn Fn(Body) -> Body + Send + Sync>;

/// Settings of a [`Worker`], checked by [`WorkerBuilder::build`] or [`WorkerBuilder::run`].
#[must_use = "a builder does nothing until `run` or `build`"]
pub struct WorkerBuilder {
    address: Result<Address, Error>,
    role: Option<Arc<str>>,
    config: WorkerConfig,
    lambdas: Vec<Lambda>,
    data: DataMap,
    layers: Vec<Wrap>,
    define: bool,
    until: Option<Signal>,
    on_lost: Option<OnLost>,
    host: Option<Arc<Host>>,
    #[cfg(feature = "metrics")]
    metrics: Option<std::net::SocketAddr>,
}

impl WorkerBuilder {
    pub(super) fn new(address: impl IntoAddress) -> Self {
        let address = address.into_address();
        Self {
            address: address.map_err(|error| Error::refused(Code::InvalidUrl, error)),
            role: None,
            config: WorkerConfig::default(),
            lambdas: Vec::new(),
            data: DataMap::default(),
            layers: Vec::new(),
            define: false,
            until: None,
            on_lost: None,
            host: None,
            #[cfg(feature = "metrics")]
            metrics: None,
        }
    }

    /// Serves a lambda: the same as `serve(Lambda::new(function))`.
    pub fn lambda<F, P, A>(self, function: F) -> Self
    where
        F: LambdaFn<P, A>,
        F::Future: Future<Output: IntoOutcome> + Send + 'static,
        P: Payload,
        A: Arguments,
    {
        self.serve(Lambda::new(function))
    }

    /// Serves a lambda that has slots or a name of its own.
    pub fn serve(mut self, lambda: Lambda) -> Self {
        self.lambdas.push(lambda);
        self
    }

    /// Gives the lambdas a value, which they take as [`Data<T>`](crate::Data). A second value of the same
    /// type replaces the first.
    pub fn data<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.data.insert(value);
        self
    }

    /// Wraps each attempt in a tower layer. The first layer given is the outermost. An error of the layer
    /// ends the attempt as the same error in the lambda would.
    pub fn layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<Body> + Send + Sync + 'static,
        L::Service: Service<Attempt, Response = Outcome> + Clone + Send + Sync + 'static,
        <L::Service as Service<Attempt>>::Future: Send,
        <L::Service as Service<Attempt>>::Error: Into<Failure>,
    {
        self.layers.push(Box::new(move |body| Body::layered(layer.layer(body))));
        self
    }

    setters! {
        /// Sets the knobs.
        config(config: WorkerConfig) = config;

        /// Acts as this role, of which the login is a member: each connection sets it, and behind a transaction
        /// pooler each transaction. So does the client of a [`Context`](crate::Context). Default: the role of
        /// the login. See [`Client::as_role`](crate::Client::as_role).
        role(role: impl Into<Arc<str>>) = Some(role.into());

        /// Defines lambdas that are unknown, with default settings, instead of refusing to start.
        define_missing() in define = true;

        /// Drains when `signal` completes, and leaves SIGTERM and SIGINT to the caller.
        until(signal: impl Future<Output = ()> + Send + 'static) = Some(Box::pin(signal));

        /// Answers `/metrics` (for Prometheus), `/healthz` and `/readyz` on this address. The worker
        /// does not start if the port is in use.
        #[cfg(feature = "metrics")]
        metrics(listen: std::net::SocketAddr) = Some(listen);

        /// For tests that live in the worker's process: called instead of ending it.
        #[doc(hidden)]
        on_lost(act: impl Fn(&str) + Send + Sync + 'static) = Some(Arc::new(act));

        /// For hosted lambdas.
        #[doc(hidden)]
        host(host: Arc<Host>) = Some(host);
    }

    /// Checks everything that was given. The database is not asked yet.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid): the address, the knobs, no lambda, two of one name, a name
    /// that is none, no slots, a [`Data<T>`](crate::Data) that was not given.
    pub fn build(mut self) -> Result<Worker, Error> {
        let config = self.config.bounded();
        config.check()?;
        check(&self.lambdas, &self.data)?;
        for lambda in &mut self.lambdas {
            let body = lambda.body.clone();
            lambda.body = self.layers.iter().rev().fold(body, |inner, wrap| wrap(inner));
        }
        let names = self.lambdas.iter().map(|lambda| Arc::clone(&lambda.name)).collect();
        Ok(Worker {
            statistics: Arc::new(Statistics::new(names)),
            controller: Arc::default(),
            refusal: Arc::default(),
            #[cfg(feature = "metrics")]
            metrics: self.metrics,
            database: self.address?,
            role: self.role,
            config,
            lambdas: self.lambdas,
            data: Arc::new(self.data),
            define: self.define,
            until: Mutex::new(self.until),
            shutdown: tokio_util::sync::CancellationToken::new(),
            on_lost: self.on_lost,
            host: self.host,
        })
    }

    /// Builds the worker and runs it; see [`Worker::run`].
    ///
    /// # Errors
    /// As [`WorkerBuilder::build`] and [`Worker::run`].
    pub async fn run(self) -> Result<(), Error> {
        self.build()?.run().await
    }
}

/// A worker without a lambda would do nothing; of two with one name one would never be called.
fn check(lambdas: &[Lambda], data: &DataMap) -> Result<(), Error> {
    let setting = |text: String| Error::refused(Code::InvalidSetting, text);
    if lambdas.is_empty() {
        let text = "a worker must serve a lambda, got none: call WorkerBuilder::lambda";
        return Err(setting(text.to_owned()));
    }
    let mut names = HashSet::new();
    for lambda in lambdas {
        let name = &lambda.name;
        check_name("lambda", name)?;
        (lambda.check)(data)?;
        if lambda.slots == Some(0) && !lambda.hosted {
            return Err(setting(format!("{name}: slots must be at least 1, got 0")));
        }
        if !names.insert(name) {
            let text = format!("lambdas of a worker must differ in name, got '{name}' twice");
            return Err(setting(text));
        }
    }
    Ok(())
}

impl fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerBuilder").field("lambdas", &self.lambdas).finish_non_exhaustive()
    }
}
