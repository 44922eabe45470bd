//! Random sequences of schedules, claims, results, releases, worker deaths, cancellations, gates,
//! rate changes and time. No limit is exceeded and no key is out of order. No task starts behind a
//! gate, and every task ends.

use std::collections::HashMap;
use std::time::Duration;

use crate::support::{Db, ScriptedWorker, Task};

const MOST: usize = 3;
/// Rate limits of every second sequence: tasks per second, and the burst. The second pair applies
/// after the rate is lowered.
const RATES: [(f64, f64); 2] = [(2.0, 3.0), (1.0, 1.0)];
const CASES: u64 = 12;
const STEPS: usize = 70;

/// The policies that a task was scheduled with.
#[derive(Clone, Debug)]
struct Asked {
    order: Option<&'static str>,
    limit: Option<&'static str>,
    news: bool,
}

struct World {
    db: Db,
    worker: ScriptedWorker,
    rng: fastrand::Rng,
    asked: HashMap<i64, Asked>,
    held: Vec<Task>,
    ended: Vec<i64>,
    /// Number of the gate that is set, and whether it is on `news` only.
    gate: Option<(i64, bool)>,
    /// The index of the rate in RATES, and each start since the rate was set; none: there is no
    /// rate.
    rate: Option<(usize, Vec<(i64, Duration)>)>,
    elapsed: Duration,
}

impl World {
    async fn new(seed: u64) -> Self {
        let db = Db::new().await;
        db.define_with("work", "p_max_attempts => 3, p_retry_base => '1 second'").await;
        db.pin().await;
        db.run(&format!(
            "select tuskline.set_limit('work', {MOST}), tuskline.set_limit('work', 1, p_by_key => true), \
             tuskline.set_order('work', 'skip')"
        ))
        .await;
        let rate = (seed % 2 == 1).then_some((0, Vec::new()));
        if rate.is_some() {
            set_rate(&db, 0).await;
        }
        let worker = db.worker("work").await;
        let rng = fastrand::Rng::with_seed(seed);
        let (asked, held, ended) = (HashMap::new(), Vec::new(), Vec::new());
        let elapsed = Duration::ZERO;
        Self { db, worker, rng, asked, held, ended, gate: None, rate, elapsed }
    }

    async fn step(&mut self) {
        match self.rng.u32(0..14) {
            0..3 => self.schedule().await,
            3..5 => self.claim().await,
            5..7 => self.end_one().await,
            7 => self.consume().await,
            8 => {
                let more = Duration::from_millis(self.rng.u64(1..3_000));
                self.advance(more).await;
            }
            9 => self.cancel_one().await,
            10 => self.turn_gate().await,
            11 => self.release_one().await,
            12 => self.die().await,
            _ => self.change_rate().await,
        }
    }

    /// The worker gives back a task that it has not begun: that claim was no start.
    async fn release_one(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let task = self.held.swap_remove(self.rng.usize(0..self.held.len()));
        assert!(self.worker.release(&task).await);
        if let Some((_, starts)) = &mut self.rate {
            let last = starts.iter().rposition(|(id, _)| *id == task.id);
            last.map(|at| starts.remove(at));
        }
    }

    /// The worker dies, and another one comes. A task of the dead one may end here: it crashed too often.
    async fn die(&mut self) {
        if self.rng.u32(0..3) > 0 {
            return;
        }
        self.advance(Duration::from_secs(30)).await;
        self.db.rescue().await;
        for task in std::mem::take(&mut self.held) {
            self.note_end(task.id).await;
        }
        self.worker = self.db.worker("work").await;
    }

    async fn change_rate(&mut self) {
        if let Some((at, starts)) = &mut self.rate {
            *at = 1 - *at;
            starts.clear();
            set_rate(&self.db, *at).await;
        }
    }

    async fn note_end(&mut self, id: i64) {
        let finished = "select finished_at is not null from tuskline.task where id = $1";
        if self.db.ask::<bool>(finished, &[&id]).await {
            self.ended.push(id);
        }
    }

    async fn advance(&mut self, more: Duration) {
        self.elapsed += more;
        self.db.advance(more).await;
    }

    /// Cancels a random task that no worker holds.
    async fn cancel_one(&mut self) {
        let is_held = |id: &&i64| self.held.iter().any(|task| task.id == **id);
        let mut waiting: Vec<i64> = self
            .asked
            .keys()
            .filter(|id| !self.ended.contains(id) && !is_held(id))
            .copied()
            .collect();
        waiting.sort_unstable();
        if let Some(id) = waiting.get(self.rng.usize(0..waiting.len().max(1))) {
            assert_eq!(self.db.cancel(*id).await, "cancelled");
            self.ended.push(*id);
        }
    }

    async fn schedule(&mut self) {
        let draw = |rng: &mut fastrand::Rng, of: &[&'static str]| {
            of.get(rng.usize(0..of.len() * 2)).copied()
        };
        let asked = Asked {
            order: draw(&mut self.rng, &["a", "b"]),
            limit: draw(&mut self.rng, &["x", "y"]),
            news: self.rng.bool(),
        };
        let id = self
            .db
            .ask(
                "select tuskline.schedule('work', p_ordering_key => $1, p_limit_key => $2, \
                 p_collection => case when $3 then 'news' end)",
                &[&asked.order, &asked.limit, &asked.news],
            )
            .await;
        self.asked.insert(id, asked);
    }

    async fn consume(&mut self) {
        while self.db.enqueue_due().await > 0 {}
        self.db.run("select tuskline.run_policies()").await;
    }

    async fn claim(&mut self) {
        self.consume().await;
        for task in self.worker.claim(self.rng.i32(1..6)).await {
            self.check_start(task.id);
            if let Some((_, starts)) = &mut self.rate {
                starts.push((task.id, self.elapsed));
            }
            self.held.push(task);
        }
        self.check_rate();
        assert!(self.held.len() <= MOST, "{:?}", self.held);
    }

    /// Checks the rate in each span that begins with a start and ends now.
    fn check_rate(&self) {
        let Some((at, starts)) = &self.rate else { return };
        let (rate, burst) = RATES[*at];
        for (before, (_, since)) in starts.iter().enumerate() {
            let started = starts.len() - before;
            let most = burst + rate * (self.elapsed - *since).as_secs_f64();
            assert!(started as f64 <= most + 1e-6, "{started} starts since {since:?}, of {most}");
        }
    }

    fn check_start(&self, id: i64) {
        let asked = &self.asked[&id];
        let of = |key: fn(&Asked) -> Option<&'static str>| {
            let same = |task: &&Task| key(&self.asked[&task.id]) == key(asked);
            key(asked).and_then(|_| self.held.iter().find(same))
        };
        assert_eq!(of(|asked| asked.limit), None, "{id}: one at a time by limit key");
        assert_eq!(of(|asked| asked.order), None, "{id}: one at a time by ordering key");
        let before = self.asked.iter().filter(|(other, _)| **other < id);
        let skipped = before
            .filter(|(_, other)| asked.order.is_some() && other.order == asked.order)
            .find(|(other, _)| !self.ended.contains(other));
        assert!(skipped.is_none(), "{id} overtook {skipped:?}");
        if let Some((gate, news_only)) = self.gate {
            assert!(news_only && !asked.news, "{id} started behind gate {gate}");
        }
    }

    async fn end_one(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let task = self.held.swap_remove(self.rng.usize(0..self.held.len()));
        match self.rng.u32(0..10) {
            0..2 => drop(self.worker.fail(&task).await),
            2 => drop(self.worker.fail_for_good(&task).await),
            _ => drop(self.worker.succeed(&task).await),
        }
        self.note_end(task.id).await;
    }

    async fn turn_gate(&mut self) {
        self.gate = match self.gate {
            Some((gate, _)) => {
                self.db.run(&format!("select tuskline.ungate({gate})")).await;
                None
            }
            None => {
                let news_only = self.rng.bool();
                let on = if news_only { ", 'news', p_unseen => true" } else { "" };
                let sql = format!("select tuskline.gate('work', 'pause'{on}, p_reason => 'x')");
                Some((self.db.one(&sql).await, news_only))
            }
        };
    }

    /// Everything that is left ends, and leaves nothing behind.
    async fn finish(mut self) {
        if self.gate.is_some() {
            self.turn_gate().await;
        }
        let mut idle = 0;
        for _ in 0..self.asked.len() * 10 + 20 {
            idle = if self.ended.len() == self.asked.len() { idle + 1 } else { 0 };
            if idle > 10 {
                break;
            }
            self.advance(Duration::from_secs(2)).await;
            self.claim().await;
            while !self.held.is_empty() {
                self.end_one().await;
            }
        }
        let open = "select id || ' ' || status from tuskline.task where finished_at is null";
        assert_eq!(self.db.all::<String>(open).await, Vec::<String>::new());
        for table in ["permit where fence is null", "wait_list", "parked", "gate", "timer"] {
            let left: i64 = self.db.one(&format!("select count(*) from tuskline.{table}")).await;
            assert_eq!(left, 0, "{table}");
        }
        self.db.assert_invariants().await;
    }
}

async fn set_rate(db: &Db, at: usize) {
    let (rate, burst) = RATES[at];
    db.run(&format!(
        "select tuskline.set_limit('work', p_per_second => {rate}, p_burst => {burst})"
    ))
    .await;
}

#[tokio::test]
async fn no_sequence_breaks_a_limit_an_order_or_a_gate() {
    for seed in 0..CASES {
        let mut world = World::new(seed).await;
        for _ in 0..STEPS {
            world.step().await;
        }
        world.db.assert_invariants().await;
        world.finish().await;
    }
}
