//! Makes rows of the answers.

use std::collections::{BTreeMap, BTreeSet};

use super::{Answers, ExecutorRow, Health, KEPT, LambdaRow, QueueRow, Totals, WaitRow, is_failing};
use crate::duration::milliseconds;
use crate::store::figures::{
    ExecutorLoad, OBJECTIVE, QueueGauge, QueueStatistics, Rates, Scale, WaitTimes,
};
use crate::store::overview::{Count, Executor};

/// Sums over the installation.
pub fn totals(answers: &Answers, lambdas: &[LambdaRow]) -> Totals {
    let mut sums = Totals {
        start_within_5s: Rates::of(&answers.statistics).start_within_5s,
        workers: answers.executors.iter().filter(|one| is_live(one)).count(),
        dead_letters: gauge(answers, "dead_letters"),
        ..Totals::default()
    };
    for row in lambdas {
        sums.queued += row.queued;
        sums.held += row.held;
        sums.waiting += row.waiting;
        sums.per_second += row.rates.per_second;
        sums.failed_per_second += row.rates.failed_per_second;
    }
    sums
}

fn is_live(executor: &Executor) -> bool {
    matches!(&*executor.state, "alive" | "draining")
}

/// A gauge of the installation by its name; 0 where there is none.
fn gauge(answers: &Answers, name: &str) -> i64 {
    let found = answers.gauges.iter().find(|one| one.name == name && one.lambda.is_none());
    found.map_or(0, |one| one.value as i64)
}

/// A row for each lambda, and how many executors it needs.
pub fn lambdas(answers: &Answers, waits: &[WaitRow]) -> (Vec<LambdaRow>, Vec<Scale>) {
    let mut statistics = BTreeMap::<&str, Vec<&QueueStatistics>>::new();
    for one in &answers.statistics {
        statistics.entry(&one.lambda).or_default().push(one);
    }
    let mut queues = BTreeMap::<&str, Vec<&QueueGauge>>::new();
    for one in &answers.queues {
        queues.entry(&one.lambda).or_default().push(one);
    }
    let mut outside = BTreeMap::<&str, Count>::new();
    for one in waits.iter().filter(|one| one.cause != "worker" && one.cause != "pause") {
        *outside.entry(&one.lambda).or_default() += one.count;
    }
    let mut held = BTreeMap::<&str, Count>::new();
    for one in &answers.held {
        *held.entry(&one.lambda).or_default() += one.count;
    }
    let gauges = |name: &'static str| {
        let of_name = answers.gauges.iter().filter(move |one| one.name == name);
        of_name.filter_map(|one| Some((one.lambda.as_deref()?, &one.value)))
    };
    let workers: BTreeMap<&str, &f64> = gauges("workers").collect();
    let tripped: BTreeSet<&str> =
        gauges("breakers_tripped").filter(|one| *one.1 > 0.0).map(|one| one.0).collect();
    let row = |(lambda, queues): (&&str, &Vec<&QueueGauge>)| {
        let rates = Rates::of(statistics.get(*lambda).into_iter().flatten().copied());
        let open = queues.iter().filter(|one| !one.paused);
        let mut row = LambdaRow {
            lambda: (*lambda).to_owned(),
            health: Health::Ok,
            queued: queues.iter().map(|one| one.depth).sum(),
            paused: queues.iter().filter(|one| one.paused).map(|one| one.depth).sum(),
            oldest_ms: open.filter_map(|one| one.oldest_ms).max(),
            held: held.get(*lambda).copied().unwrap_or_default(),
            waiting: outside.get(*lambda).copied().unwrap_or_default(),
            workers: workers.get(lambda).map_or(0, |workers| **workers as i64),
            gates: answers.gates.iter().filter(|gate| gate.lambda == **lambda).count(),
            rates,
        };
        row.health = health(&row, tripped.contains(lambda));
        let of_it = statistics.get(*lambda).into_iter().flatten().copied();
        let scale = Scale::of(of_it, queues.iter().copied(), (lambda, row.held.tasks, row.workers));
        (row, scale)
    };
    queues.iter().map(row).unzip()
}

fn health(row: &LambdaRow, is_tripped: bool) -> Health {
    let past = row.oldest_ms.is_some_and(|ms| ms > milliseconds(OBJECTIVE));
    let none_elsewhere = row.held.is_none() && row.waiting.is_none();
    let quiet = row.rates.per_second == 0.0 && row.queued == 0 && none_elsewhere;
    match row {
        _ if is_tripped => Health::Breaker,
        row if row.queued > row.paused && row.workers == 0 => Health::NoWorker,
        row if past || row.rates.start_within_5s.is_some_and(|share| share < KEPT) => Health::Late,
        row if is_failing(&row.rates) => Health::Failing,
        row if row.gates > 0 => Health::Gated,
        _ if quiet => Health::Idle,
        _ => Health::Ok,
    }
}

/// A row for each queue, the longest wait first.
pub fn queues(answers: &Answers) -> Vec<QueueRow> {
    let mut statistics = BTreeMap::new();
    for one in &answers.statistics {
        statistics.insert((&*one.lambda, &*one.priority), one);
    }
    let row = |gauge: &QueueGauge| QueueRow {
        lambda: gauge.lambda.clone(),
        priority: gauge.priority.clone(),
        depth: gauge.depth,
        oldest_ms: gauge.oldest_ms,
        paused: gauge.paused,
        rates: Rates::of(statistics.get(&(&*gauge.lambda, &*gauge.priority)).copied()),
    };
    let mut rows: Vec<_> = answers.queues.iter().map(row).collect();
    // The longest wait first; a paused queue waits on purpose.
    let wait = |row: &QueueRow| (row.paused, -row.oldest_ms.unwrap_or(-1), -row.depth);
    rows.sort_by(|a, b| {
        let busy = |row: &QueueRow| row.rates.per_second == 0.0;
        (wait(a), busy(a)).cmp(&(wait(b), busy(b)))
    });
    rows
}

/// A row for each worker, the silent ones first.
pub fn executors(answers: &Answers) -> Vec<ExecutorRow> {
    let loads: BTreeMap<&str, &ExecutorLoad> =
        answers.loads.iter().map(|one| (&*one.executor_id, one)).collect();
    let row = |executor: &Executor| {
        let load = loads.get(&*executor.executor_id.to_string());
        let rate = |of: fn(&ExecutorLoad) -> f64| load.map_or(0.0, |load| of(load));
        let own = answers.held.iter().filter(|one| one.executor_id == Some(executor.executor_id));
        let mut held = Count::default();
        own.for_each(|one| held += one.count);
        // If some workers were not read, a worker without a row may be one of them.
        held.and_more |= held.is_none() && answers.held.iter().any(|one| one.executor_id.is_none());
        ExecutorRow {
            executor: executor.clone(),
            held,
            per_second: rate(ExecutorLoad::per_second),
            failed_per_second: rate(ExecutorLoad::failed_per_second),
            busy: rate(ExecutorLoad::busy),
        }
    };
    let mut rows: Vec<_> = answers.executors.iter().map(row).collect();
    let rank = |state: &str| match state {
        "silent" | "expired" => 0,
        "draining" => 1,
        "alive" => 2,
        _ => 3,
    };
    rows.sort_by_key(|row| (rank(&row.executor.state), -row.executor.beat_ms));
    rows
}

/// The waits of now: those of the statement, paused queues, and the wait for a worker.
pub fn waits(answers: &Answers) -> Vec<WaitRow> {
    let mut now = BTreeMap::<(&str, &str), Count>::new();
    for one in &answers.waits {
        *now.entry((&one.cause, &one.lambda)).or_default() += one.count;
    }
    for queue in &answers.queues {
        let cause = if queue.paused { "pause" } else { "worker" };
        let count = Count { tasks: queue.depth, and_more: false };
        *now.entry((cause, &queue.lambda)).or_default() += count;
    }
    let ended: BTreeMap<(&str, &str), &WaitTimes> =
        answers.ended_waits.iter().map(|one| ((&*one.cause, &*one.lambda), one)).collect();
    for key in ended.keys() {
        now.entry(*key).or_default();
    }
    let row = |((cause, lambda), count): (&(&str, &str), &Count)| WaitRow {
        cause: (*cause).to_owned(),
        lambda: (*lambda).to_owned(),
        count: *count,
        ended: ended.get(&(*cause, *lambda)).map_or(0, |one| one.waits.count()),
        p95_ms: ended.get(&(*cause, *lambda)).and_then(|one| one.waits.quantile(0.95)),
    };
    let mut rows: Vec<_> = now.iter().map(row).collect();
    rows.retain(|row| !row.count.is_none() || row.ended > 0);
    rows.sort_by_key(|row| (-row.count.tasks, -row.ended));
    rows
}
