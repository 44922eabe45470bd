//! The state machine test: generated sequences of steps, each compared with the model. At the end
//! of each sequence, everything accepted must come to an end.

use std::cell::{Cell, RefCell};
use std::sync::Once;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};
use tokio::runtime::Runtime;

use crate::acts::act;
use crate::choice;
use crate::compare::differences;
use crate::state::{ExecutorNo, LeaseNo, State};
use crate::step::{Report, Step, Word};
use crate::store::Store;
use crate::tally::{self, Tally};

/// Sequences of a run without a given number.
const CASES: u32 = 40;
const STEPS: std::ops::Range<usize> = 30..110;
/// Fair rounds within which everything must have ended.
const ROUNDS: u64 = 3;

/// The tools of a test thread, kept from one case to the next.
struct Bench {
    runtime: Runtime,
    store: Store,
    tally: Tally,
}

thread_local! {
    static BENCH: RefCell<Option<Bench>> = const { RefCell::new(None) };
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

fn with_bench<T>(what: impl FnOnce(&mut Bench) -> T) -> T {
    BENCH.with_borrow_mut(|bench| what(bench.as_mut().expect("a bench")))
}

/// The model as proptest drives it.
struct Model;

impl ReferenceStateMachine for Model {
    type State = State;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<State> {
        Just(State::new()).boxed()
    }

    fn transitions(state: &State) -> BoxedStrategy<Step> {
        choice::next(state)
    }

    fn preconditions(state: &State, step: &Step) -> bool {
        choice::makes_sense(state, step)
    }

    fn apply(mut state: State, step: &Step) -> State {
        state.take(step);
        state
    }
}

/// The store beside it.
struct Beside;

impl StateMachineTest for Beside {
    /// The state of the model before the step.
    type SystemUnderTest = State;
    type Reference = Model;

    fn init_test(state: &State) -> State {
        with_bench(|bench| {
            bench.tally.cases += 1;
            bench.runtime.block_on(bench.store.empty());
        });
        state.clone()
    }

    fn apply(before: State, state: &State, step: Step) -> State {
        with_bench(|bench| bench.take(&before, state, &step));
        state.clone()
    }

    fn teardown(_: State, state: State) {
        with_bench(|bench| bench.bring_to_an_end(state));
    }
}

impl Bench {
    fn new(harm: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let store = runtime.block_on(Store::new(harm));
        Self { runtime, store, tally: Tally::default() }
    }

    /// Takes a step and compares everything.
    fn take(&mut self, before: &State, state: &State, step: &Step) {
        let Self { runtime, store, tally } = self;
        runtime.block_on(async {
            let said = act(store, state, step).await;
            assert_eq!(said, state.said, "{step:?} was answered so, not as the model says");
            tally.count(before, step, &said);
            let sight = store.look().await;
            let wrong = differences(state, &store.names, &sight);
            assert!(wrong.is_empty(), "after {step:?}: {}", wrong.join("; "));
            let torn = sight.net(&store.astray(state));
            assert!(torn.is_empty(), "after {step:?}: {}", torn.join("; "));
        });
    }

    /// Under fair ticks every task that was accepted reaches a terminal status.
    fn bring_to_an_end(&mut self, mut state: State) {
        let mut rounds = 0;
        while state.open() > 0 {
            rounds += 1;
            assert!(rounds <= ROUNDS, "{} tasks never end", state.open());
            for step in fair_round(state.names) {
                self.tick(&mut state, &step);
            }
            let executor = ExecutorNo(state.names - 2);
            let reports = finish(&state, LeaseNo(state.names - 1));
            let done = state
                .leases
                .keys()
                .copied()
                .filter(|no| state.leases[no].executor == executor)
                .collect();
            self.tick(&mut state, &Step::SetResults { executor, reports, done });
        }
        self.tally.most_rounds = self.tally.most_rounds.max(rounds);
        let sight = self.runtime.block_on(self.store.look());
        assert_eq!(
            (sight.open(), sight.timers.len()),
            (Vec::new(), 0),
            "of the store's own account"
        );
    }

    fn tick(&mut self, state: &mut State, step: &Step) {
        let before = state.clone();
        state.take(step);
        self.take(&before, state, step);
    }
}

/// Time passes, every store consumer comes by, and a fresh worker takes all there is.
fn fair_round(names: u32) -> [Step; 7] {
    let executor = ExecutorNo(names);
    [
        Step::Advance { by: 1_500_000 },
        Step::Rebuild { by: 0 },
        Step::EnqueueDue { by: 0, limit: 1_000 },
        Step::Rescue { by: 1, limit: 1_000 },
        Step::FindStalled { by: 1 },
        Step::Register { executor, slot: 0, lease: 60_000 },
        Step::Claim { executor, lease: LeaseNo(names + 1), budget: 1_000 },
    ]
}

/// A success for every task of a lease.
fn finish(state: &State, fence: LeaseNo) -> Vec<Report> {
    let tasks = state.leases.get(&fence).map(|lease| lease.tasks.clone()).unwrap_or_default();
    let report = |task| Report { task, fence, word: Word::Success };
    tasks.into_iter().map(report).collect()
}

/// A run: what is harmed, how many sequences, which, and how long a failing one is shortened.
pub struct Run<'a> {
    pub harm: &'a str,
    pub cases: u32,
    pub seed: u64,
    pub shrinks: u32,
}

impl Run<'_> {
    /// Runs sequences; the shortest failing one, if any, and the counts.
    pub fn go(self) -> (Option<String>, Tally) {
        BENCH.set(Some(Bench::new(self.harm)));
        let config = Config {
            cases: self.cases,
            max_shrink_iters: self.shrinks,
            max_shrink_time: 60_000,
            failure_persistence: None,
            ..Config::default()
        };
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
        let mut runner = TestRunner::new_with_rng(config.clone(), rng);
        let failing = quietly(|| {
            let verdict = runner.run(&Model::sequential_strategy(STEPS), |(state, steps, seen)| {
                // Counting the seen steps requires shrinking: without shrinks the counter is not
                // passed on.
                let seen = seen.filter(|_| self.shrinks > 0);
                Beside::test_sequential(config.clone(), state, steps, seen);
                Ok(())
            });
            verdict.err().map(shortest)
        });
        let bench = BENCH.take().expect("the bench of this run");
        (failing, bench.tally)
    }
}

fn shortest<T>(error: TestError<(State, Vec<Step>, T)>) -> String {
    match error {
        TestError::Fail(why, (_, steps, _)) => {
            let steps = steps.iter().map(|step| format!("\n  {step:?}"));
            format!("{why}\nby:{}", steps.collect::<String>())
        }
        TestError::Abort(why) => format!("gave up: {why}"),
    }
}

/// Shortening a sequence fails many times over; only the shortest failure is worth reading.
fn quietly<T>(what: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                usual(panic);
            }
        }));
    });
    QUIET.set(true);
    let said = what();
    QUIET.set(false);
    said
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

#[test]
fn whatever_the_actors_do_the_store_does_what_the_model_says() {
    let cases = number("TUSKLINE_MODEL_CASES").map_or(CASES, |cases| u32::try_from(cases).unwrap());
    let seed = number("TUSKLINE_MODEL_SEED").unwrap_or(1);
    let (failing, tally) = Run { harm: "", cases, seed, shrinks: 2_000 }.go();
    tally::print(format!("seed {seed}:\n{tally}"), &tally.json(seed));
    if let Some(failing) = failing {
        panic!("seed {seed}: {failing}");
    }
    assert!(tally.stale > 0, "no result was stale");
    assert!(tally.verbs.len() == 23 || cases < CASES, "a verb was left out: {:?}", tally.verbs);
}
