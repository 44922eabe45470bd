//! When to claim from a queue, as a state machine.
//!
//! `next` is a pure function: each time that it needs comes with the event. `docs/queue-watch.md` shows its
//! answer for each state and event; a test generates that table. Each state has a time of its next claim
//! (`claim_at`), so no queue is forgotten.
//!
//! It must never read a clock, draw a random number or know a second queue.

use std::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::worker::controller) enum WatchState {
    /// There may be tasks: claim. A claim that was sent before `since` proves nothing.
    Awake { since: Instant },
    /// Called while awake, under a bell that we hold for another queue of ours: claim, or give up the bell.
    Called { since: Instant },
    /// No sleep is possible, or none is worth it: claim at that time.
    Poll { at: Instant },
    /// Found empty. We ask for the bell, and claim at that time if no answer comes.
    FallingAsleep { poll_at: Instant },
    /// We hear of each insert from now on: claim once more, for what was inserted before.
    LastLook { role: Role, since: Instant },
    /// Asleep until it is called. The safety poll comes at that time.
    Asleep { role: Role, poll_at: Instant },
}

/// The worker that looks for the tasks of a sleeping queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::worker::controller) enum Role {
    /// We hold the bell, so each insert notifies us.
    Watching,
    /// Another worker holds the bell, or our connection to it is lost.
    StandingBy,
}

/// An event for one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// A claim found as many tasks as it asked for.
    ClaimedAll { sent_at: Instant },
    /// A claim found fewer tasks than it asked for.
    ClaimedFewer(Fewer),
    /// The lock of the bell is ours. `useful`: an executor is free, and no stream or rest forbids it.
    BellOurs { useful: bool, now: Instant },
    /// Another worker holds the bell. `follow_calls`: it has left a task waiting lately.
    BellTaken { follow_calls: bool, now: Instant },
    /// A transaction that inserts is open, so the bell is not to be had.
    BellBusy { poll_at: Instant },
    /// A notification for the queue on a bell that we hold. `useful`: as above.
    Called { useful: bool, now: Instant },
    /// Any other reason to look. No bell is held for the queue from here on.
    MayHaveTasks { now: Instant },
    /// The lock of the bell is about to be released.
    BellGivenUp { now: Instant },
    /// The watch connection is lost, and each lock with it.
    BellsLost,
    /// No executor is free for tasks of the queue.
    NoFreeSlot,
    /// A peek is on its way, in place of the safety poll.
    PeekSent { answer_by: Instant },
    /// The peek found a row.
    PeekFound { sent_at: Instant },
    /// A peek was due, but only a claim can look: a sweep is due, or the queue waits for a slot.
    CannotPeek { now: Instant },
}

/// The answer of a claim that found fewer tasks than it asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fewer {
    pub found: Found,
    pub sent_at: Instant,
    /// The queue shall be polled at that time: a stream, a resting bell, or a transaction pooler.
    pub poll_at: Option<Instant>,
    /// A queue that had several tasks is looked at again then.
    pub again_at: Instant,
    pub safety_poll_at: Instant,
}

/// The tasks in such an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    One,
    Several,
    /// A task that had been due for long although another worker holds the bell.
    Overdue,
}

/// A request of a queue to the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    AskForBell,
    GiveUpBell,
    /// The holder of the bell left a task waiting: claim at each call ourselves, for a while.
    FollowCalls,
}

/// The next state, and a request to the worker.
pub(super) fn next(state: WatchState, event: Event) -> (WatchState, Option<Request>) {
    use Role::{StandingBy, Watching};
    use WatchState::{Asleep, Awake, Called, FallingAsleep, LastLook, Poll};
    let waits_for_bell = matches!(state, FallingAsleep { .. } | Asleep { role: StandingBy, .. });
    let next = match (event, state) {
        (Event::ClaimedAll { sent_at }, _) => {
            let since = state.claims_since().map_or(sent_at, |since| since.max(sent_at));
            return (Awake { since }, state.needs_bell().then_some(Request::GiveUpBell));
        }
        (Event::ClaimedFewer(answer), _) => return after_fewer(state, answer),

        (Event::BellOurs { useful: true, now }, _) if waits_for_bell => {
            LastLook { role: Watching, since: now }
        }
        (Event::BellOurs { useful: false, now }, _) if waits_for_bell => Awake { since: now },
        (Event::BellBusy { poll_at }, _) if waits_for_bell => Poll { at: poll_at },
        (Event::BellTaken { follow_calls: true, now }, FallingAsleep { .. }) => {
            LastLook { role: StandingBy, since: now }
        }
        (Event::BellTaken { .. }, FallingAsleep { poll_at }) => {
            Asleep { role: StandingBy, poll_at }
        }

        (Event::Called { useful: true, now }, _) if state.is_watching() => {
            LastLook { role: Watching, since: now }
        }
        (Event::Called { useful: true, now }, _) => Called { since: now },
        (Event::Called { now, .. } | Event::MayHaveTasks { now }, _) => Awake { since: now },

        (Event::BellGivenUp { now }, _) if state.is_watching() => Awake { since: now },
        (Event::BellGivenUp { .. } | Event::BellsLost, Called { since }) => Awake { since },
        (Event::BellsLost, LastLook { since, .. }) => LastLook { role: StandingBy, since },
        (Event::BellsLost, Asleep { poll_at, .. }) => Asleep { role: StandingBy, poll_at },
        (Event::NoFreeSlot, Called { since } | LastLook { role: Watching, since }) => {
            return (Awake { since }, Some(Request::GiveUpBell));
        }

        (Event::PeekSent { answer_by }, Asleep { role, poll_at }) => {
            Asleep { role, poll_at: poll_at.max(answer_by) }
        }
        (Event::PeekFound { sent_at }, Asleep { role, .. }) => Asleep { role, poll_at: sent_at },
        (Event::CannotPeek { now }, Asleep { role: StandingBy, .. }) => Awake { since: now },
        (_, unconcerned) => unconcerned,
    };
    (next, None)
}

/// After a claim that found fewer tasks than it asked for.
fn after_fewer(state: WatchState, answer: Fewer) -> (WatchState, Option<Request>) {
    use Role::{StandingBy, Watching};
    use WatchState::{Asleep, Awake, Called, FallingAsleep, LastLook, Poll};
    let Fewer { found, sent_at, poll_at, again_at, safety_poll_at } = answer;
    if state.claims_since().is_some_and(|since| sent_at <= since) {
        return (state, None);
    }
    let asleep = |role| Asleep { role, poll_at: safety_poll_at };
    let next = match (state, found, poll_at) {
        // From now on each insert notifies us, also if this claim found nothing.
        _ if state.is_watching() => asleep(Watching),
        (LastLook { .. } | Asleep { .. }, Found::Nothing, _) => asleep(StandingBy),
        (LastLook { .. }, ..) => Awake { since: sent_at },
        // No notification came, or we did not look for it.
        (Asleep { .. }, Found::Overdue, _) => {
            return (Awake { since: sent_at }, Some(Request::FollowCalls));
        }
        (_, _, Some(at)) => Poll { at },
        (Awake { .. } | Called { .. } | Poll { .. }, Found::Several, None) => Poll { at: again_at },
        // Asleep: the watching worker may be about to look, or has given up the bell.
        _ => return (FallingAsleep { poll_at: safety_poll_at }, Some(Request::AskForBell)),
    };
    (next, None)
}

impl WatchState {
    /// The time from which the queue is worth a claim, if nothing happens before.
    pub(in crate::worker::controller) fn claim_at(self) -> Instant {
        match self {
            Self::Awake { since: at }
            | Self::Called { since: at }
            | Self::LastLook { since: at, .. }
            | Self::Poll { at }
            | Self::FallingAsleep { poll_at: at }
            | Self::Asleep { poll_at: at, .. } => at,
        }
    }

    /// A queue that is worth a claim at once: only a claim that was sent after this time counts.
    pub(in crate::worker::controller) fn claims_since(self) -> Option<Instant> {
        let at_once =
            matches!(self, Self::Awake { .. } | Self::Called { .. } | Self::LastLook { .. });
        at_once.then(|| self.claim_at())
    }

    /// The queue sleeps, or looks for the last time before it does, under a bell that we hold.
    pub(in crate::worker::controller) fn is_watching(self) -> bool {
        matches!(
            self,
            Self::LastLook { role: Role::Watching, .. } | Self::Asleep { role: Role::Watching, .. }
        )
    }

    /// The bell shall go if no executor is free for the queue.
    fn needs_bell(self) -> bool {
        self.is_watching() || matches!(self, Self::Called { .. })
    }

    pub(in crate::worker::controller) fn is_asleep(self) -> bool {
        matches!(self, Self::Asleep { .. })
    }

    pub(super) fn is_last_look(self) -> bool {
        matches!(self, Self::LastLook { .. })
    }

    pub(super) fn is_polled(self) -> bool {
        matches!(self, Self::Poll { .. })
    }
}

#[cfg(test)]
mod tests;
