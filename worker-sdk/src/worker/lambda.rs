//! Lambdas: functions of the application, known by name.
//!
//! Promises: each mistake is reported where it was made: shape, payload, argument and output are separate
//! bounds. Must never: fold them into one trait; then every mistake reads "not a lambda".

use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::client::payload::{Payload, name_of};
use crate::client::setters::setters;
use crate::error::Error;
use crate::task::Priority;
use crate::worker::arguments::Arguments;
use crate::worker::data::DataMap;
use crate::worker::layer::{Attempt, Body};
use crate::worker::outcome::{IntoOutcome, Outcome};

/// A function that a worker executes, with its name and its slots.
///
/// The payload comes first and by value. Up to four arguments follow, in any order:
/// [`Context`](crate::Context), and [`Data<T>`](crate::Data) for each value of the worker.
///
/// # Example
/// ```
/// # use tuskline_sdk::{Context, Data, Failure, Lambda, Payload};
/// # #[derive(serde::Serialize, serde::Deserialize)] struct Resize { width: u32 }
/// # impl Payload for Resize { const LAMBDA: &'static str = "resize"; }
/// # struct Store;
/// async fn resize(image: Resize, store: Data<Store>, context: Context) -> Result<u32, Failure> {
///     Ok(image.width / 2)
/// }
///
/// let lambda = Lambda::new(resize).slots(4);
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Lambda {
    pub(crate) name: Arc<str>,
    pub(crate) body: Body,
    pub(crate) slots: Option<usize>,
    /// Bounds within these, for some priorities.
    pub(crate) bounds: Vec<(Priority, usize)>,
    pub(crate) blocking: bool,
    #[cfg(feature = "executor")]
    pub(crate) memory_mib: Option<u64>,
    /// Its attempts run in other processes: see [`Host`](crate::worker::host::Host).
    pub(crate) hosted: bool,
    /// Whether the worker has the values that it takes.
    pub(crate) check: fn(&DataMap) -> Result<(), Error>,
}

impl Lambda {
    /// The async lambda that the payload's type names. While it blocks its thread, other tasks of the same
    /// lambda may have to wait for one.
    pub fn new<F, P, A>(function: F) -> Self
    where
        F: LambdaFn<P, A>,
        F::Future: Future<Output: IntoOutcome> + Send + 'static,
        P: Payload,
        A: Arguments,
    {
        Self::named(const { name_of::<P>() }, function)
    }

    /// An async lambda known by name only, for payloads without a type of their own. A wrong name is refused
    /// when the worker is built.
    pub fn named<F, P, A>(name: &str, function: F) -> Self
    where
        F: LambdaFn<P, A>,
        F::Future: Future<Output: IntoOutcome> + Send + 'static,
        P: DeserializeOwned + Send + 'static,
        A: Arguments,
    {
        let function = Arc::new(function);
        let body = Body::new(move |attempt| {
            let function = Arc::clone(&function);
            async move {
                match taken::<P, A>(&attempt) {
                    Ok((payload, arguments)) => {
                        // The text of a large payload is freed before the body runs.
                        drop(attempt);
                        function.call(payload, arguments).await.into_outcome()
                    }
                    Err(refused) => refused,
                }
            }
        });
        Self::of(name, body, A::check)
    }

    /// The lambda that the payload's type names, of a function that blocks its thread: each execution gets
    /// one of the runtime's blocking threads. It cannot be stopped from outside: if it ignores
    /// [`Context::is_cancelled`](crate::Context::is_cancelled) past its deadline and grace, the process is
    /// ended.
    pub fn blocking<F, P, A>(function: F) -> Self
    where
        F: BlockingFn<P, A>,
        F::Output: IntoOutcome + 'static,
        P: Payload,
        A: Arguments,
    {
        Self::blocking_named(const { name_of::<P>() }, function)
    }

    /// The same, known by name only.
    pub fn blocking_named<F, P, A>(name: &str, function: F) -> Self
    where
        F: BlockingFn<P, A>,
        F::Output: IntoOutcome + 'static,
        P: DeserializeOwned + Send + 'static,
        A: Arguments,
    {
        let function = Arc::new(function);
        let body = Body::new(move |attempt| {
            let function = Arc::clone(&function);
            async move {
                // A blocking body goes on when its future is dropped, so the thread keeps the guard of
                // the context.
                let run = move || match taken::<P, A>(&attempt) {
                    Ok((payload, arguments)) => function.call(payload, arguments).into_outcome(),
                    Err(refused) => refused,
                };
                match tokio::task::spawn_blocking(run).await {
                    Ok(outcome) => outcome,
                    Err(error) => match error.try_into_panic() {
                        Ok(panic) => std::panic::resume_unwind(panic),
                        Err(error) => Outcome::retriable(error),
                    },
                }
            }
        });
        Self { blocking: true, ..Self::of(name, body, A::check) }
    }

    fn of(name: &str, body: Body, check: fn(&DataMap) -> Result<(), Error>) -> Self {
        let (slots, bounds) = (None, Vec::new());
        Self {
            name: name.into(),
            body,
            slots,
            bounds,
            blocking: false,
            #[cfg(feature = "executor")]
            memory_mib: None,
            hosted: false,
            check,
        }
    }

    setters! {
        /// How many executions of it may run at once in this process. At least 1; default
        /// [`WorkerConfig::slots`](crate::WorkerConfig).
        slots(slots: usize) = Some(slots);

        /// In a process of a host controller (`tuskline controller`): the process is ended when it holds more memory
        /// than so many MiB while a task of this lambda is in hand. A worker without such a controller ignores it.
        #[cfg(feature = "executor")]
        memory_mib(mib: u64) = Some(mib);
    }

    /// How many of its slots tasks of one priority may hold at once; default all. Bounding `Low`
    /// keeps some slots free for urgent tasks, however long the tasks of low priority take.
    pub fn slots_for(mut self, priority: Priority, slots: usize) -> Self {
        self.bounds.retain(|(bounded, _)| *bounded != priority);
        self.bounds.push((priority, slots));
        self
    }

    pub(crate) fn bound(&self, priority: Priority) -> Option<usize> {
        self.bounds.iter().find_map(|(bounded, slots)| (*bounded == priority).then_some(*slots))
    }
}

/// Payload and arguments of an attempt. A payload that does not decode fails this task only, and for good: no
/// retry can mend it.
fn taken<P: DeserializeOwned, A: Arguments>(attempt: &Attempt) -> Result<(P, A), Outcome> {
    let payload = serde_json::from_str(&attempt.payload)
        .map_err(|error| Outcome::Undecodable { reason: error.to_string() })?;
    // The worker has checked that each value is there.
    let arguments = A::extract(&attempt.context).map_err(Outcome::retriable)?;
    Ok((payload, arguments))
}

/// The shape of an async lambda and nothing else. Its parts have bounds of their own.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not have the shape of a lambda",
    label = "expected `async fn(payload, ...) -> Result<T, E>`",
    note = "the payload comes first and by value; up to four of `Context` and `Data<T>` may follow",
    note = "it must be async (else use `Lambda::blocking`); a closure must name the types of its arguments"
)]
pub trait LambdaFn<P, A>: Send + Sync + 'static {
    /// The future of a call.
    type Future: Future;

    /// Calls the function.
    fn call(&self, payload: P, arguments: A) -> Self::Future;
}

/// The shape of a lambda that blocks its thread.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not have the shape of a blocking lambda",
    label = "expected `fn(payload, ...) -> Result<T, E>`",
    note = "the payload comes first and by value; up to four of `Context` and `Data<T>` may follow",
    note = "a closure must name the types of its arguments"
)]
pub trait BlockingFn<P, A>: Send + Sync + 'static {
    /// The value of a call.
    type Output;

    /// Calls the function.
    fn call(&self, payload: P, arguments: A) -> Self::Output;
}

macro_rules! shapes {
    ($(($($argument:ident),*))*) => { $(
        impl<Func, Fut, P, $($argument),*> LambdaFn<P, ($($argument,)*)> for Func
        where
            Func: Fn(P, $($argument),*) -> Fut + Send + Sync + 'static,
            Fut: Future,
        {
            type Future = Fut;

            #[allow(non_snake_case, reason = "each is called as its type")]
            fn call(&self, payload: P, ($($argument,)*): ($($argument,)*)) -> Fut {
                self(payload, $($argument),*)
            }
        }

        impl<Func, Out, P, $($argument),*> BlockingFn<P, ($($argument,)*)> for Func
        where
            Func: Fn(P, $($argument),*) -> Out + Send + Sync + 'static,
        {
            type Output = Out;

            #[allow(non_snake_case, reason = "each is called as its type")]
            fn call(&self, payload: P, ($($argument,)*): ($($argument,)*)) -> Out {
                self(payload, $($argument),*)
            }
        }
    )* };
}

shapes! { () (A) (A, B) (A, B, C) (A, B, C, D) }
