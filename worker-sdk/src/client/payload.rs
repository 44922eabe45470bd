//! The bond between the type of a payload and the name of its lambda.
//!
//! Promises: the caller who schedules and the worker that executes agree on name and type, or do not compile.
//! Must never: derive the name from the type; with a renamed type, tasks that are scheduled would have no
//! lambda.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::definition::Definition;
use crate::client::new_task::{NewTask, is_name};

/// The payload of one lambda, and what a task of it gets unless the call says otherwise.
///
/// One constant is required.
///
/// # Example
/// ```
/// use serde::{Deserialize, Serialize};
/// use tuskline_sdk::{NewTask, Payload, Priority};
///
/// #[derive(Serialize, Deserialize)]
/// struct SendEmail {
///     to: String,
///     template: String,
/// }
///
/// impl Payload for SendEmail {
///     const LAMBDA: &'static str = "send_email";
///
///     fn defaults(&self, task: NewTask) -> NewTask {
///         task.priority(Priority::High).unique_key(format!("{}/{}", self.template, self.to))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the payload of a lambda",
    label = "this type names no lambda",
    note = "name it: implement `Payload` with `const LAMBDA: &'static str = \"send_email\";`",
    note = "a lambda takes its payload by value, and before any other argument",
    note = "for a payload without a type of its own, use `NewTask::new` and `Lambda::named`"
)]
pub trait Payload: Serialize + DeserializeOwned + Send + 'static {
    /// Name of the lambda: `[a-z][a-z0-9_]{0,62}`.
    ///
    /// The name is stored with every task, so it outlives the type. To rename a lambda, serve the old name
    /// beside it until its tasks have ended: `serve(Lambda::named("old_name", function))`.
    ///
    /// `cargo build` refuses a name of another form where it is used; `cargo check` does not look:
    /// ```compile_fail,E0080
    /// # use tuskline_sdk::Payload;
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct SendEmail;
    /// impl Payload for SendEmail {
    ///     const LAMBDA: &'static str = "SendEmail"; // LAMBDA must match [a-z][a-z0-9_]{0,62}
    /// }
    /// let task = SendEmail.task();
    /// ```
    const LAMBDA: &'static str;

    /// Sets on a new task what the call does not set: priority, collection, keys, delay. Default: nothing. A
    /// collection or a key is often a part of the payload.
    fn defaults(&self, task: NewTask) -> NewTask {
        task
    }

    /// Sets what [`Definition::of`] brings to the database: attempts, backoff, timeouts, limits, schedules and
    /// so on. Default: nothing.
    fn settings(lambda: Definition) -> Definition {
        lambda
    }

    /// The task, due at once.
    fn task(self) -> NewTask {
        NewTask::of(&self)
    }

    /// The task, due at an instant; one that has passed means now.
    fn at(self, at: DateTime<Utc>) -> NewTask {
        self.task().at(at)
    }

    /// The task, due `delay` from now on the database's clock.
    fn after(self, delay: Duration) -> NewTask {
        self.task().after(delay)
    }
}

/// The name of a payload's lambda. In a `const` block a wrong one does not build.
pub(crate) const fn name_of<P: Payload>() -> &'static str {
    assert!(is_name(P::LAMBDA), "LAMBDA must match [a-z][a-z0-9_]{{0,62}}");
    P::LAMBDA
}

impl NewTask {
    /// The task of a typed payload, with the [defaults](Payload::defaults) of its type, due at once.
    pub fn of<P: Payload>(payload: &P) -> Self {
        let name = const { name_of::<P>() };
        payload.defaults(Self::new(name, payload))
    }
}

/// A task or its payload: [`Client::schedule`](crate::Client::schedule) accepts a [`Payload`] and a [`NewTask`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a task",
    label = "neither a payload that names its lambda nor a `NewTask`",
    note = "name its lambda: implement `Payload` with `const LAMBDA: &'static str = \"send_email\";`",
    note = "for a payload without a type of its own: `NewTask::new(\"send_email\", &value)`"
)]
pub trait IntoTask: Send {
    /// The task.
    fn into_task(self) -> NewTask;
}

#[diagnostic::do_not_recommend]
impl<P: Payload> IntoTask for P {
    fn into_task(self) -> NewTask {
        self.task()
    }
}

impl IntoTask for NewTask {
    fn into_task(self) -> NewTask {
        self
    }
}

impl IntoTask for &NewTask {
    fn into_task(self) -> NewTask {
        self.clone()
    }
}

impl Definition {
    /// The lambda of a payload, with the [settings](Payload::settings) of its type.
    pub fn of<P: Payload>() -> Self {
        P::settings(Self::new(const { name_of::<P>() }))
    }
}
