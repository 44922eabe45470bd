//! The beginning of a scenario, and the checks at its end.
//!
//! Names in the steps: `{e}` holds `{held}` (`{dleh}`: in reverse) under `{fences}`, with the lease
//! `{lease}`, and reports `{notes}` on them. `{e2}` is another executor. `{b}` is a task in the
//! middle of the held ones, `{q}` of the queued, `{d}` of the due. `{claim}` has the other
//! arguments of a claim.

use std::collections::BTreeSet;

use super::session::{self, Session, Watcher};
use super::{Patience, Played, Scenario};
use crate::sight::{BASE, Eye};
use crate::support::{Db, within};

/// How many tasks stand where, and what became of their holder.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stage {
    pub held: i32,
    pub queued: i32,
    pub due: i32,
    pub holder: Holder,
    /// The server has just come back from a crash.
    pub crashed: bool,
}

/// The holder of the held tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Holder {
    #[default]
    Alive,
    /// It has ended.
    Ended,
    /// Its lease is over, and no store consumer has noticed.
    Silent,
}

const EMPTY: &str = "
    delete from tuskline.task; delete from tuskline.queued; delete from tuskline.timer;
    delete from tuskline.lease; delete from tuskline.cancellation; delete from tuskline.task_failure;
    delete from tuskline.task_output; delete from tuskline.executor; delete from tuskline_core.live_executor;
    insert into tuskline_core.queues_complete (since) values (now()) on conflict do nothing";

const CLAIM: &str = "(select array_agg(queue_id order by priority) from tuskline.queue), \
                     array[0, 0, 0, 0]::bigint[], array[1, 1, 1, 1]::smallint[], array[10]";

/// A database and the sessions that play in it.
pub struct Theatre {
    db: Db,
    sessions: Vec<Session>,
    watcher: Watcher,
    eye: Eye,
}

impl Theatre {
    /// With some harm done to the verbs.
    pub async fn open(harm: &str) -> Self {
        let db = Db::with_lambda("work").await;
        db.run(harm).await;
        let mut sessions = Vec::new();
        for _ in 0..3 {
            sessions.push(Session::new(db.connect().await).await);
        }
        let watcher = Watcher::new(db.connect().await).await;
        let eye = Eye::new(&db.client).await;
        Self { db, sessions, watcher, eye }
    }

    /// Sets the stage and plays one order.
    pub async fn play(
        &mut self,
        scenario: &Scenario,
        order: &[usize],
        patience: Patience,
    ) -> Played {
        let names = self.set(scenario.stage).await;
        let count = scenario.sessions.len();
        for (session, steps) in self.sessions.iter_mut().zip(scenario.sessions) {
            let mut steps: Vec<_> = steps.iter().map(|step| (*step).to_owned()).collect();
            if steps.last().is_none_or(|last| last != "rollback") {
                steps.push("commit".to_owned());
            }
            for (name, value) in &names {
                steps.iter_mut().for_each(|step| *step = step.replace(name, value));
            }
            session.prepare(steps);
        }
        session::play(&mut self.sessions[..count], &self.watcher, order, patience).await
    }

    async fn register(&self) -> i64 {
        let sql = "select tuskline.register_executor('host', 1, '{work}', '0.1.0', '20 s')";
        self.db.one(sql).await
    }

    /// Brings tasks where the scenario wants them; what the names in the steps stand for.
    async fn set(&self, stage: Stage) -> Vec<(&'static str, String)> {
        let db = &self.db;
        db.run(&format!("{EMPTY}; update tuskline_test.pin set at = {BASE}")).await;
        let holder = self.register().await;
        let held = self.schedule(stage.held, "").await;
        let claim = format!("select lease_id from tuskline.claim({holder}, {CLAIM})");
        let lease = db.one::<Option<i64>>(&claim).await.unwrap_or(0);
        let due =
            self.schedule(stage.due, ", p_delays => array_fill(interval '21 s', array[$1])").await;
        match stage.holder {
            Holder::Alive => {}
            Holder::Ended => db.run(&format!("select tuskline.end_executor({holder})")).await,
            Holder::Silent => assert_eq!(stage.due, 0, "they would be due"),
        }
        if stage.due > 0 || stage.holder == Holder::Silent {
            db.run("update tuskline_test.pin set at = at + interval '21 s'").await;
        }
        let other = self.register().await;
        let queued = self.schedule(stage.queued, "").await;
        if stage.crashed {
            db.run("delete from tuskline.queued; delete from tuskline_core.queues_complete").await;
        }
        let middle = |ids: &[i64]| ids.get(ids.len() / 2).copied().unwrap_or(0).to_string();
        let backwards: Vec<_> = held.iter().rev().copied().collect();
        vec![
            ("{e}", holder.to_string()),
            ("{e2}", other.to_string()),
            ("{held}", array(&held)),
            ("{dleh}", array(&backwards)),
            ("{fences}", array(&vec![lease; held.len()])),
            ("{lease}", lease.to_string()),
            ("{notes}", notes(&backwards, lease)),
            ("{b}", middle(&held)),
            ("{q}", middle(&queued)),
            ("{d}", middle(&due)),
            ("{claim}", CLAIM.to_owned()),
        ]
    }

    async fn schedule(&self, count: i32, more: &str) -> Vec<i64> {
        if count == 0 {
            return Vec::new();
        }
        let sql = format!(
            "select tuskline.schedule_many(array_fill('work'::text, array[$1::integer]){more})"
        );
        self.db.ask(&sql, &[&count]).await
    }

    /// The violations of an order.
    pub async fn judge(&self, scenario: &Scenario, played: Played) -> Vec<String> {
        let in_order =
            |error: &String| scenario.refusals.iter().any(|code| error.starts_with(code));
        let mut wrong: Vec<_> =
            played.errors.into_iter().filter(|error| !in_order(error)).collect();
        if !scenario.sum.contains(&played.sum) {
            wrong.push(format!("the answers add up to {}, not {:?}", played.sum, scenario.sum));
        }
        let sight = self.eye.look(&self.db.client).await;
        wrong.extend(sight.net(&BTreeSet::new()));
        for (id, task) in &sight.tasks {
            if !scenario.allowed.contains(&task.status.as_str()) {
                wrong.push(format!("task {id} is {}", task.status));
            }
        }
        wrong.extend(self.bring_to_an_end().await);
        wrong
    }

    /// Time passes, the store consumer comes by, and a fresh worker takes all there is: twice is enough.
    async fn bring_to_an_end(&self) -> Option<String> {
        let db = &self.db;
        let mut open = Vec::new();
        for _ in 0..2 {
            db.run(
                "update tuskline_test.pin set at = at + interval '2 hours';
                 select tuskline.rebuild_queues(); select tuskline.enqueue_due(); select tuskline.rescue()",
            )
            .await;
            let executor = self.register().await;
            let finish = format!(
                "select tuskline.set_results({executor}, c.task_id, array_fill(c.lease_id, array[coalesce(cardinality(c.task_id), 0)]),
                    null, array[c.lease_id]) from tuskline.claim({executor}, {CLAIM}) c"
            );
            within(db.client.query(&finish, &[])).await.unwrap();
            open = self.eye.look(&db.client).await.open();
            if open.is_empty() {
                return None;
            }
        }
        Some(format!("tasks {open:?} never end"))
    }
}

fn array(numbers: &[i64]) -> String {
    format!("array{numbers:?}::bigint[]")
}

/// A result for every task: the first fails, the second returns an output, the third fails for
/// good, and so on.
fn notes(ids: &[i64], fence: i64) -> String {
    let says = [
        r#""status": "retriable_failure", "after_ms": 60000"#,
        r#""status": "success", "output": 1"#,
        r#""status": "fatal_failure""#,
    ];
    let note = |(id, says): (&i64, &&str)| format!(r#"{{"task": {id}, "fence": {fence}, {says}}}"#);
    let notes: Vec<_> = ids.iter().zip(says.iter().cycle()).map(note).collect();
    format!("'[{}]'", notes.join(", "))
}
