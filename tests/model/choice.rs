//! The possible next steps: steps that make sense in a state, and some that must be refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::strategy::Union;

use crate::state::rules::is_alive;
use crate::state::{ExecutorNo, LeaseNo, State, TaskNo};
use crate::step::{Change, Due, Order, PRIORITIES, Report, Step, Word};

const MOST_TASKS: usize = 12;
const MOST_EXECUTORS: usize = 10;
const LAMBDAS: [&str; 3] = ["work", "mail", "late"];

/// Calls that no state allows, and the code that each is refused with.
const MISTAKES: [(&str, &str); 9] = [
    ("select tuskline.schedule('nobody')", "TK001"),
    ("select tuskline.schedule('work', p_priority => 'urgent')", "TK006"),
    ("select tuskline.schedule('work', p_delay => '-1 s')", "TK005"),
    ("select tuskline.schedule('work', p_collection => 'No')", "TK002"),
    ("select tuskline.schedule_many('{}')", "TK007"),
    ("insert into tuskline.task (lambda, status) values ('work', 'claimed')", "TK008"),
    ("select tuskline.alter_lambda('work', p_max_attempts => 0)", "TK009"),
    ("select tuskline.register_executor('host', 1, '{work}', '0', '1 ms')", "TK010"),
    (
        r#"select tuskline.set_results(1, '{}', '{}', '[{"task": 1, "fence": 1, "status": "done"}]')"#,
        "TK012",
    ),
];

/// Some step that may be taken in this state.
pub fn next(state: &State) -> BoxedStrategy<Step> {
    let mut steps = of_operators();
    if state.tasks.len() < MOST_TASKS {
        steps.extend(of_clients(state.names));
    }
    steps.extend(of_store_consumers(state));
    let alive = state.executors.values().any(is_alive);
    if !alive || state.executors.len() < MOST_EXECUTORS {
        steps.push((if alive { 1 } else { 30 }, register(state.names)));
    }
    if !state.executors.is_empty() {
        steps.extend(of_executors(state));
    }
    if !state.tasks.is_empty() {
        let tasks: Vec<_> = state.tasks.keys().copied().collect();
        steps.push((
            3,
            (0..2_usize, select(tasks)).prop_map(|(by, task)| Step::Cancel { by, task }).boxed(),
        ));
        let task = select(state.tasks.keys().copied().collect::<Vec<_>>());
        steps.push((1, task.prop_map(|task| Step::Mislay { task }).boxed()));
    }
    Union::new_weighted(steps).boxed()
}

/// Whether a step may still be taken, after other steps before it were removed.
pub fn makes_sense(state: &State, step: &Step) -> bool {
    let is_new = |task: TaskNo| !state.tasks.contains_key(&task);
    let knows = |attempts: &[(TaskNo, LeaseNo)]| {
        attempts.iter().all(|(task, fence)| {
            state.leases.get(fence).is_some_and(|lease| lease.tasks.contains(task))
        })
    };
    let named = step.orders().iter().all(|order| is_new(order.task)) && knows(&step.attempts());
    let has = |executor: &ExecutorNo| state.executors.contains_key(executor);
    let have = |leases: &[LeaseNo]| leases.iter().all(|lease| state.leases.contains_key(lease));
    named
        && match step {
            Step::Heartbeat { executor, .. }
            | Step::EndExecutor { executor }
            | Step::Claim { executor, .. }
            | Step::Start { executor, .. } => has(executor),
            Step::Exchange { executor, done, .. }
            | Step::SetResults { executor, done, .. }
            | Step::Release { executor, done, .. } => has(executor) && have(done),
            Step::ReleaseLease { executor, lease } => has(executor) && have(&[*lease]),
            Step::Cancel { task, .. } => !is_new(*task),
            Step::Mislay { task } => state.tasks.get(task).is_some_and(|task| {
                !task.status.is_held() && task.trigger.is_some_and(|trigger| trigger.is_exact())
            }),
            // The order of two overlapping ranges is unknown.
            Step::EnqueueDue { limit, .. } => {
                let due = state.due(usize::MAX);
                due.len() <= *limit || due.iter().all(|(due, _)| due.is_exact())
            }
            _ => true,
        }
}

type Weighted = (u32, BoxedStrategy<Step>);

fn of_operators() -> Vec<Weighted> {
    let change = prop_oneof![
        any::<bool>().prop_map(Change::Direct),
        (1..4_i16).prop_map(Change::Attempts),
        (1..4_i16).prop_map(Change::Crashes),
        select(vec![1_000_i64, 2_000, 16_000]).prop_map(Change::Base),
    ];
    let mistake = select(MISTAKES.to_vec());
    let pauses = vec![
        (3, select(vec![1_i64, 500, 3_000])),
        (6, select(vec![9_000_i64, 16_000])),
        (2, select(vec![20_000_i64, 21_000, 70_000])),
        (1, select(vec![660_000_i64, 1_500_000])),
    ];
    let pause = Union::new_weighted(pauses);
    vec![
        (1, Just(Step::Define).boxed()),
        (
            1,
            (select(LAMBDAS.to_vec()), change)
                .prop_map(|(lambda, change)| Step::Alter { lambda, change })
                .boxed(),
        ),
        (1, mistake.prop_map(|(sql, code)| Step::Mistake { sql, code }).boxed()),
        (5, pause.prop_map(|by| Step::Advance { by }).boxed()),
        (1, Just(Step::LoseQueues).boxed()),
    ]
}

fn of_clients(names: u32) -> Vec<Weighted> {
    let one = (0..2_usize, order()).prop_map(move |(by, order)| Step::Schedule {
        by,
        order: named(vec![order], names).remove(0),
    });
    let many = (0..2_usize, prop::collection::vec(order(), 1..5))
        .prop_map(move |(by, orders)| Step::ScheduleMany { by, orders: named(orders, names) });
    let rows = (0..2_usize, prop::collection::vec(order(), 1..4))
        .prop_map(move |(by, orders)| Step::Insert { by, orders: named(orders, names) });
    vec![(5, one.boxed()), (3, many.boxed()), (2, rows.boxed())]
}

fn order() -> impl Strategy<Value = Order> {
    let due = prop_oneof![
        4 => Just(Due::Now),
        1 => select(vec![-5_000_i64, 0, 10_000]).prop_map(Due::At),
        2 => select(vec![0_i64, 2_000, 30_000, 600_000]).prop_map(Due::In),
    ];
    let lambda = prop_oneof![4 => Just("work"), 2 => Just("mail"), 1 => Just("late")];
    (lambda, select(PRIORITIES.to_vec()), due).prop_map(|(lambda, priority, due)| Order {
        task: TaskNo(0),
        lambda,
        priority,
        due,
    })
}

fn named(mut orders: Vec<Order>, names: u32) -> Vec<Order> {
    for (order, name) in orders.iter_mut().zip(names..) {
        order.task = TaskNo(name);
    }
    orders
}

fn of_store_consumers(state: &State) -> Vec<Weighted> {
    let by = 0..2_usize;
    let limit = || prop_oneof![4 => Just(1_000_usize), 1 => 1..3_usize];
    let rebuild = if state.booted { 1 } else { 8 };
    vec![
        (4, (by.clone(), limit()).prop_map(|(by, limit)| Step::EnqueueDue { by, limit }).boxed()),
        (4, (by.clone(), limit()).prop_map(|(by, limit)| Step::Rescue { by, limit }).boxed()),
        (rebuild, by.clone().prop_map(|by| Step::Rebuild { by }).boxed()),
        (2, by.prop_map(|by| Step::FindStalled { by }).boxed()),
    ]
}

fn register(names: u32) -> BoxedStrategy<Step> {
    let executor = ExecutorNo(names);
    (0..3_usize, select(vec![20_000_i64, 10_000, 60_000]))
        .prop_map(move |(slot, lease)| Step::Register { executor, slot, lease })
        .boxed()
}

fn of_executors(state: &State) -> Vec<Weighted> {
    let names = state.names;
    let executor = || executor(state);
    let budget = 1..6_i32;
    let state = Arc::new(state.clone());
    let mut steps = vec![
        (
            7,
            (executor(), any::<bool>())
                .prop_map(|(executor, draining)| Step::Heartbeat { executor, draining })
                .boxed(),
        ),
        (1, executor().prop_map(|executor| Step::EndExecutor { executor }).boxed()),
        (
            7,
            (executor(), budget.clone())
                .prop_map(move |(executor, budget)| Step::Claim {
                    executor,
                    lease: LeaseNo(names),
                    budget,
                })
                .boxed(),
        ),
    ];
    if state.leases.is_empty() {
        return steps;
    }
    let leases = select(state.leases.keys().copied().collect::<Vec<_>>());
    let give_back =
        (executor(), leases).prop_map(|(executor, lease)| Step::ReleaseLease { executor, lease });
    let start = (executor(), attempts(&state))
        .prop_map(|(executor, attempts)| Step::Start { executor, attempts });
    let at = state.clone();
    let release =
        (executor(), attempts(&state), 0..12_usize).prop_map(move |(executor, attempts, care)| {
            let done = done_leases(&at, executor, &attempts, care);
            Step::Release { executor, attempts, done }
        });
    let at = state.clone();
    let results =
        (executor(), reports(&state), 0..12_usize).prop_map(move |(executor, reports, care)| {
            let done = done_leases(&at, executor, &of(&reports), care);
            Step::SetResults { executor, reports, done }
        });
    let at = state.clone();
    let exchange = (executor(), reports(&state), 0..12_usize, budget).prop_map(
        move |(executor, reports, care, budget)| {
            let done = done_leases(&at, executor, &of(&reports), care);
            Step::Exchange { executor, reports, done, lease: LeaseNo(names), budget }
        },
    );
    steps.extend([
        (1, give_back.boxed()),
        (4, start.boxed()),
        (4, release.boxed()),
        (6, results.boxed()),
        (4, exchange.boxed()),
    ]);
    steps
}

fn of(reports: &[Report]) -> Vec<(TaskNo, LeaseNo)> {
    reports.iter().map(|report| (report.task, report.fence)).collect()
}

/// Mostly one that is alive.
fn executor(state: &State) -> BoxedStrategy<ExecutorNo> {
    let all: Vec<_> = state.executors.keys().copied().collect();
    let is_alive = |no: &ExecutorNo| is_alive(&state.executors[no]);
    let alive: Vec<_> = all.iter().copied().filter(is_alive).collect();
    let (usual, rare) = (if alive.is_empty() { all.clone() } else { alive }, all);
    prop_oneof![6 => select(usual), 1 => select(rare)].boxed()
}

/// Attempts that are held, and now and then one that is over; each task once.
fn attempts(state: &State) -> BoxedStrategy<Vec<(TaskNo, LeaseNo)>> {
    let all =
        state.leases.iter().flat_map(|(no, lease)| lease.tasks.iter().map(|task| (*task, *no)));
    let (held, over): (Vec<_>, Vec<_>) = all.partition(|(task, fence)| {
        let task = &state.tasks[task];
        task.status.is_held() && task.fence == Some(*fence)
    });
    let (most, few) = (held.len().min(4), over.len().min(3));
    (subsequence(held, 0..=most), subsequence(over, 0..=few))
        .prop_map(|(mut attempts, over)| {
            attempts.extend(over);
            attempts.into_iter().collect::<BTreeMap<_, _>>().into_iter().collect()
        })
        .boxed()
}

fn reports(state: &State) -> BoxedStrategy<Vec<Report>> {
    let word = prop_oneof![
        3 => Just(Word::Success),
        1 => (0..9_u8).prop_map(Word::SuccessWith),
        3 => Just(Word::Retriable(None)),
        4 => select(vec![0_i64, 500, 5_000]).prop_map(|after| Word::Retriable(Some(after))),
        1 => Just(Word::Fatal),
        1 => Just(Word::Cancelled),
    ];
    // A third of the batches are of plain successes, which take a road of their own.
    let words =
        prop_oneof![Just(vec![Word::Success; 6]).boxed(), prop::collection::vec(word, 6).boxed(),];
    (attempts(state), words)
        .prop_map(|(attempts, words)| {
            let report = |((task, fence), word)| Report { task, fence, word };
            attempts.into_iter().zip(words).map(report).collect()
        })
        .boxed()
}

/// The executor's leases of which every task is settled once these are; a careless one in twelve
/// names every lease it knows of.
fn done_leases(
    state: &State,
    executor: ExecutorNo,
    settled: &[(TaskNo, LeaseNo)],
    care: usize,
) -> Vec<LeaseNo> {
    let is_done = |no: &LeaseNo| {
        state.leases[no].tasks.iter().all(|task| {
            let held = state.tasks[task].status.is_held() && state.tasks[task].fence == Some(*no);
            !held || settled.contains(&(*task, *no))
        })
    };
    let own = state.leases.iter().filter(|(_, lease)| lease.executor == executor && !lease.gone);
    match care {
        0 => state.leases.keys().copied().collect(),
        1..4 => Vec::new(),
        _ => own.map(|(no, _)| *no).filter(is_done).collect(),
    }
}
