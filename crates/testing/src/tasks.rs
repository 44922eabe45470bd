//! The tasks of a test's database, as a look found them, and assertions about them.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tuskline_sdk::{Priority, Status};

use super::conditions::{Condition, DueIn};
use super::task::TASKS;
use super::{Database, Error, Task, report};

/// Tasks that a look found, and what is expected of them: conditions first, then one of [`Tasks::once`],
/// [`Tasks::times`], [`Tasks::never`] or, without a word, [`Tasks::list`].
#[must_use = "says nothing before once(), times(), never() or list()"]
pub struct Tasks {
    /// The lambda they are of; none: of any.
    pub(super) lambda: Option<String>,
    pub(super) all: Vec<Task>,
    /// Tasks of other lambdas, for the text when none is found.
    pub(super) others: Vec<String>,
    pub(super) conditions: Vec<Condition>,
}

impl Tasks {
    pub(super) async fn read(db: &Database) -> Result<Self, Error> {
        let rows = db.own().query(TASKS, &[&None::<i64>]).await?;
        let all = rows.iter().map(Task::of_row).collect::<Result<_, _>>()?;
        Ok(Self { lambda: None, all, others: Vec::new(), conditions: Vec::new() })
    }

    /// Selects the tasks of a lambda.
    pub fn of(mut self, lambda: &str) -> Self {
        let (of, others): (Vec<_>, Vec<_>) =
            self.all.into_iter().partition(|task| task.lambda == lambda);
        self.all = of;
        self.others.extend(others.into_iter().map(|task| task.lambda));
        self.lambda = Some(lambda.to_owned());
        self
    }

    /// Selects tasks whose payload contains this: each field of an object, to any depth; anything else as a whole.
    ///
    /// # Panics
    /// It is no JSON.
    #[track_caller]
    pub fn with(self, payload: impl Serialize) -> Self {
        match serde_json::to_value(payload) {
            Ok(wanted) => self.that(Condition::payload(wanted)),
            Err(error) => panic!("what the payload is to contain is no JSON: {error}"),
        }
    }

    /// Selects tasks whose payload decodes as `P` and passes; `what` describes the condition in a few words.
    pub fn where_payload<P: DeserializeOwned + 'static>(
        self,
        what: &str,
        passes: impl Fn(&P) -> bool + 'static,
    ) -> Self {
        self.that(Condition::decoded(what, passes))
    }

    /// Selects tasks of this collection.
    pub fn collection(self, collection: &str) -> Self {
        self.that(Condition::label("collection", collection, |task| task.collection.as_deref()))
    }

    /// Selects tasks of this priority.
    pub fn priority(self, priority: Priority) -> Self {
        self.that(Condition::label("priority", priority.as_str(), |t| Some(t.priority.as_str())))
    }

    /// With this status.
    pub fn status(self, status: Status) -> Self {
        self.that(Condition::label("status", status.as_str(), |task| Some(task.status.as_str())))
    }

    /// With this unique key.
    pub fn unique_key(self, key: &str) -> Self {
        self.that(Condition::label("unique key", key, |task| task.unique_key.as_deref()))
    }

    /// With this ordering key.
    pub fn ordering_key(self, key: &str) -> Self {
        self.that(Condition::label("ordering key", key, |task| task.ordering_key.as_deref()))
    }

    /// Due so long from the time of the look: a duration, which is met to the second, as a clock that is not
    /// pinned has gone on since; or a range of them, `hour..=hour * 2`.
    pub fn due_in(self, when: impl Into<DueIn>) -> Self {
        self.that(Condition::due_in(when.into()))
    }

    /// Due at the time of the look.
    pub fn due_now(self) -> Self {
        self.that(Condition::due_now())
    }

    /// There is one, no more; which.
    ///
    /// # Panics
    /// Else, and shows what there is instead.
    #[track_caller]
    pub fn once(self) -> Task {
        self.expect(1).remove(0)
    }

    /// There are so many, no more and no less; which.
    ///
    /// # Panics
    /// Else, and shows what there is instead.
    #[track_caller]
    pub fn times(self, count: usize) -> Vec<Task> {
        self.expect(count)
    }

    /// There is none.
    ///
    /// # Panics
    /// Else, and shows it.
    #[track_caller]
    pub fn never(self) {
        self.expect(0);
    }

    /// Every one has ended: succeeded, failed for good, cancelled or dropped.
    ///
    /// # Panics
    /// Else, and shows which have not.
    #[track_caller]
    pub fn assert_all_ended(self) {
        let all = self.list();
        let open: Vec<_> = all.iter().filter(|task| !task.status.is_terminal()).collect();
        if !open.is_empty() {
            let mut text =
                format!("expected {} to have ended, but {} have not:\n", all.len(), open.len());
            report::stories(&mut text, &open);
            panic!("{text}");
        }
    }

    /// Returns all tasks that meet the conditions.
    #[must_use]
    pub fn list(self) -> Vec<Task> {
        let Self { all, conditions, .. } = self;
        all.into_iter().filter(|task| conditions.iter().all(|one| one.is_met(task))).collect()
    }

    pub(super) fn into_list(self) -> Vec<Task> {
        self.all
    }

    fn that(mut self, condition: Condition) -> Self {
        self.conditions.push(condition);
        self
    }

    #[track_caller]
    fn expect(self, count: usize) -> Vec<Task> {
        let met = |task: &&Task| self.conditions.iter().all(|one| one.is_met(task));
        let found = self.all.iter().filter(met).count();
        if found != count {
            panic!("{}", report::of(&self, count));
        }
        self.list()
    }
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.all).finish()
    }
}
