//! A case of the kit: what is scheduled, what happens meanwhile, and what must hold afterwards. Cases are data:
//! `conformance/cases/*.json`. A new file has its name in `FILES`, too.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

/// In the expected output: the payload, byte for byte.
pub const PAYLOAD: &str = "\"$PAYLOAD\"";
/// In the expected output: there is none.
pub const NONE: &str = "\"$NONE\"";

macro_rules! files {
    ($($name:literal)*) => {
        /// Each file, in the order in which the cases are played.
        const FILES: &[(&str, &str)] = &[$((
            $name,
            include_str!(concat!("../../../conformance/cases/", $name, ".json")),
        )),*];
    };
}

files! {
    "join" "unknown_lambda"
    "claim" "payloads" "large_payload" "numbers" "outputs"
    "success" "retriable" "fatal" "snoozed"
    "checkpoint" "stale_save" "completed_elsewhere" "progress"
    "slots_stay_filled" "lost_answers"
    "cancel" "deaf_to_cancel" "deadline" "busy_loop" "busy_among_neighbours"
    "crash_by_signal" "crash_by_exit" "silent_exit" "killed" "crash_among_neighbours"
    "out_of_memory" "left_behind"
    "drain"
}

/// See the module.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The name of its file.
    #[serde(skip)]
    pub name: String,
    /// One sentence.
    pub proves: String,
    #[serde(default)]
    pub needs: Needs,
    /// The controller loses each answer of this number.
    #[serde(default)]
    pub lose_answers: Option<u64>,
    /// Settings that lambdas have in this case only.
    #[serde(default)]
    pub settings: BTreeMap<String, Settings>,
    /// No lambda is defined.
    #[serde(default)]
    pub nothing_defined: bool,
    pub steps: Vec<Step>,
    #[serde(default)]
    pub expect: Expect,
}

/// Abilities of an executor without which it is not asked. It needs the lambdas of the tasks as well.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Needs {
    /// Slots for `hold`.
    pub slots: usize,
    /// It has a lane that waits while it runs tasks.
    pub hears_cancel: bool,
}

/// Settings of a lambda.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    pub attempt_timeout_ms: i64,
    pub max_attempts: i32,
    pub max_crashes: i32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { attempt_timeout_ms: 60_000, max_attempts: 3, max_crashes: 2 }
    }
}

/// An event of a case; they come one after the other. Maps and lists name tasks by the name they were scheduled under.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Schedules tasks.
    Schedule(Schedule),
    /// Until each of them has begun so often, as its own file says.
    UntilBegun(BTreeMap<String, usize>),
    /// Until each of them was handed out so often.
    UntilHandedOut(BTreeMap<String, usize>),
    /// Until the database says this of each of them.
    UntilStatus(BTreeMap<String, String>),
    UntilProgress(Progress),
    /// Until so many processes run that `run` has started.
    UntilChildren(usize),
    /// Until so many executors have joined, since the case began.
    UntilExecutors(usize),
    /// Tasks that hold may end.
    Go(Vec<String>),
    /// The same, one after the other in a mixed order. Each time the next one of them has to begin in its place.
    GoOneByOne(String),
    Cancel(Vec<String>),
    /// Ends an attempt in the database, as a business transaction does.
    Complete(Complete),
    /// Sends a signal to the executor that joined last.
    Signal(i32),
    /// SIGTERM to the controller; until an executor has heard of it.
    Drain,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    pub name: String,
    pub lambda: String,
    /// As it stands here: not a byte is changed. `$DIR` is the directory of the case, `$N` a number of its own.
    #[serde(default)]
    pub payload: Option<Box<RawValue>>,
    /// In its place a text of so many bytes.
    #[serde(default)]
    pub payload_bytes: Option<usize>,
    #[serde(default = "one")]
    pub count: usize,
}

const fn one() -> usize {
    1
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    pub task: String,
    pub percent: f32,
    pub text: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Complete {
    pub task: String,
    pub output: Box<RawValue>,
}

/// The state that must hold at the end.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expect {
    pub tasks: BTreeMap<String, Ending>,
    /// Exit code of the controller.
    pub exit: i32,
    /// Executors that have joined.
    pub executors: Option<usize>,
    /// Messages that were repeated, at least.
    pub repeats: usize,
    /// Tasks of a lambda that were in hand at a time, at least.
    pub at_once: BTreeMap<String, usize>,
    /// Names of refusals: each comes, and no other.
    pub refusals: Vec<String>,
}

/// The state of a task. A field that is missing may be anything.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ending {
    pub status: String,
    #[serde(default)]
    pub attempt: Option<i16>,
    #[serde(default)]
    pub crashes: Option<i16>,
    /// As JSON text; also `$PAYLOAD` and `$NONE`.
    #[serde(default)]
    pub output: Option<Box<RawValue>>,
    /// Its failures, in their order.
    #[serde(default)]
    pub failures: Option<Vec<Failure>>,
    /// Attempts that an executor was given.
    #[serde(default)]
    pub handed_out: Option<usize>,
    /// How often it has begun.
    #[serde(default)]
    pub begun: Option<usize>,
    /// The results of its attempts that executors have sent.
    #[serde(default)]
    pub reported: Option<Vec<String>>,
    /// Until it is due again, give or take a minute.
    #[serde(default)]
    pub due_in_ms: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    pub outcome: String,
    #[serde(default)]
    pub class: Option<String>,
    #[serde(default)]
    pub message: Option<String>,
}

impl Case {
    /// All cases.
    ///
    /// # Errors
    /// A file is no case.
    pub fn all() -> anyhow::Result<Vec<Self>> {
        let read = |(name, text): &(&str, &str)| {
            let case: Self = serde_json::from_str(text)
                .map_err(|error| anyhow::anyhow!("conformance/cases/{name}.json: {error}"))?;
            Ok(Self { name: (*name).to_owned(), ..case })
        };
        FILES.iter().map(read).collect()
    }

    /// The lambdas of its tasks.
    pub fn lambdas(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().filter_map(|step| match step {
            Step::Schedule(schedule) => Some(&*schedule.lambda),
            _ => None,
        })
    }
}
