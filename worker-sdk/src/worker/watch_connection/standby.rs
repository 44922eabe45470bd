//! The bells that another worker holds, and when to ask for their locks again.
//!
//! A watch gives up a lock when its executors are busy, without a message. A worker that stands by hears
//! the same notifications. A moment after one it asks for the lock, four times as much later each time
//! that the lock is still taken, until the safety poll takes over. To ask costs a fiftieth of a claim.
//! If queues share bells, a peek at our queues goes with each question (a fifth of a claim).

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The watch needs about so long to give up a lock.
const SOON: Duration = Duration::from_millis(4);
/// A notification is followed by a question no later than this.
const LATEST: Duration = Duration::from_millis(50);
/// Pauses beyond this are left to the safety poll.
const LONGEST: Duration = Duration::from_secs(1);

/// See the module. By bell.
#[derive(Debug, Default)]
pub(super) struct Standby(HashMap<i32, Turn>);

#[derive(Debug, Default)]
struct Turn {
    ask_at: Option<Instant>,
    pause: Duration,
    /// It may be held for a queue that we do not serve.
    shared: bool,
}

impl Standby {
    /// Another worker has the lock.
    pub(super) fn taken(&mut self, bell: i32, shared: bool, now: Instant) {
        let turn = self.0.entry(bell).or_default();
        turn.shared = shared;
        turn.pause = (turn.pause * 4).max(SOON);
        turn.ask_at = (turn.pause < LONGEST).then(|| now + jittered(turn.pause));
    }

    /// The lock is ours, or free.
    pub(super) fn leave(&mut self, bell: i32) {
        self.0.remove(&bell);
    }

    /// Another worker held its lock when we last asked.
    pub(super) fn contains(&self, bell: i32) -> bool {
        self.0.contains_key(&bell)
    }

    /// A notification came; `own`: for a queue of ours.
    pub(super) fn called(&mut self, bell: i32, own: bool, now: Instant) {
        let Some(turn) = self.0.get_mut(&bell) else { return };
        turn.pause = turn.pause.min(if own && turn.shared { SOON } else { LATEST });
        let ask_at = now + jittered(turn.pause);
        turn.ask_at = Some(turn.ask_at.map_or(ask_at, |planned| planned.min(ask_at)));
    }

    /// When to ask next.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.0.values().filter_map(|turn| turn.ask_at).min()
    }

    /// The bells to ask for now, with those that would follow soon: one question asks for many.
    pub(super) fn due(&self, now: Instant) -> Vec<i32> {
        let due = |turn: &Turn| turn.ask_at.is_some_and(|at| at <= now + LATEST / 2);
        self.0.iter().filter(|(_, turn)| due(turn)).map(|(bell, _)| *bell).collect()
    }
}

fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.75 + 0.5 * fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_soon_after_a_call_then_ever_later_then_not_at_all() {
        let (now, mut standby) = (Instant::now(), Standby::default());
        standby.called(3, true, now);
        assert!(!standby.contains(3), "no worker keeps watch");
        let mut asked = 0;
        standby.taken(3, false, now);
        while let Some(at) = standby.next_at() {
            asked += 1;
            assert!(standby.due(at).contains(&3));
            standby.taken(3, false, at);
        }
        assert_eq!(asked, 4, "4, 16, 64, 256 ms");
        assert!(standby.due(now + LONGEST).is_empty());
        let later = now + Duration::from_secs(60);
        standby.called(3, true, later);
        assert!(standby.next_at().is_some_and(|at| at <= later + LATEST * 2));
    }

    #[test]
    fn calls_do_not_put_off_a_question() {
        let (now, mut standby) = (Instant::now(), Standby::default());
        standby.taken(0, false, now);
        let planned = standby.next_at();
        standby.called(0, true, now + SOON);
        assert_eq!(standby.next_at(), planned);
    }
}
