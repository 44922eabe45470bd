//! A process, and what happened to it.

use crate::span::{Span, Spans};
use crate::{Actor, Edge};

/// A process, which a file of the history describes. Only the injector describes a store consumer.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) actor: Actor,
    pub(crate) pid: u32,
    pub(crate) opened: u64,
    /// The guardian above it: of a host controller, or of an executor.
    pub(crate) guardian: Option<u32>,
    /// When it sent each registration as an executor that was answered.
    pub(crate) registered: Vec<u64>,
    /// When each of them was answered.
    pub(crate) enlisted: Vec<u64>,
    /// When a registration was over, and why.
    pub(crate) lost: Vec<(u64, String)>,
    /// The time at which it reported its end.
    pub(crate) exit: Option<u64>,
    /// Why it was about to end itself.
    pub(crate) last_words: Option<String>,
    /// The time at which the kernel reported its end.
    pub(crate) reaped: Option<u64>,
    /// The signal that ended it, if one did.
    pub(crate) signal: Option<i32>,
    /// While it stood still.
    pub(crate) stopped: Spans,
    /// Acknowledged heartbeats, in order.
    pub(crate) beats: Vec<Beat>,
    /// When it gave up its LISTENing connection.
    pub(crate) lines_lost: Vec<u64>,
    /// Heartbeats without an answer so far: number and moment.
    sent: Vec<(u64, u64)>,
    stops: Vec<(u64, Edge)>,
}

/// An acknowledged heartbeat.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beat {
    pub(crate) sent: u64,
    pub(crate) acked: u64,
}

/// An act or an observation of the injector.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fate {
    Stop(Edge),
    Reaped { signal: Option<i32> },
}

impl Process {
    pub(crate) fn new(actor: Actor, pid: u32, opened: u64) -> Self {
        let (guardian, exit, reaped, stopped) = (None, None, None, Spans::default());
        let (registered, enlisted, lost) = (Vec::new(), Vec::new(), Vec::new());
        let (beats, sent, stops) = (Vec::new(), Vec::new(), Vec::new());
        let (signal, lines_lost, last_words) = (None, Vec::new(), None);
        Self {
            actor,
            pid,
            opened,
            guardian,
            registered,
            enlisted,
            lost,
            exit,
            last_words,
            reaped,
            signal,
            stopped,
            beats,
            lines_lost,
            sent,
            stops,
        }
    }

    pub(crate) fn beat_sent(&mut self, beat: u64, at: u64) {
        self.sent.push((beat, at));
    }

    pub(crate) fn beat_acked(&mut self, beat: u64, acked: u64) {
        let place = self.sent.iter().rposition(|(number, _)| *number == beat);
        let sent = place.map_or(acked, |place| self.sent.swap_remove(place).1);
        self.beats.push(Beat { sent, acked });
    }

    /// An act on its number after its end belongs to another process.
    pub(crate) fn meets(&mut self, fate: Fate, at: u64) {
        if self.reaped.is_some() {
            return;
        }
        match fate {
            Fate::Stop(edge) => self.stops.push((at, edge)),
            Fate::Reaped { signal } => {
                self.reaped = Some(at);
                self.signal = signal;
            }
        }
    }

    /// After the last event; `end` is the end of the history.
    pub(crate) fn settle(&mut self, end: u64) {
        let ended = self.reaped.unwrap_or(end);
        self.stopped = Spans::pair(std::mem::take(&mut self.stops), ended);
        self.beats.sort_by_key(|beat| beat.acked);
    }

    /// When the last heartbeat was sent that was acknowledged by `at`, or when it registered since: from
    /// there its time counts.
    pub(crate) fn last_word(&self, at: u64) -> u64 {
        let known = self.beats.partition_point(|beat| beat.acked <= at);
        let registered = self.registered.iter().rfind(|registered| **registered <= at).copied();
        let sent = known.checked_sub(1).map(|last| self.beats[last].sent);
        sent.max(registered).unwrap_or(self.opened)
    }

    /// From each registration to its end, which for the last is `end`.
    pub(crate) fn lives(&self, end: u64) -> Vec<Span> {
        let over = |from: u64| self.lost.iter().map(|(at, _)| *at).find(|at| *at >= from);
        let life = |from: &u64| Span { from: *from, to: over(*from).unwrap_or(end.max(*from)) };
        self.registered.iter().map(life).collect()
    }

    /// Whether it had a registration that was not over.
    pub(crate) fn is_registered_at(&self, at: u64) -> bool {
        self.lives(u64::MAX).iter().any(|life| life.from <= at && at < life.to)
    }

    /// Whether two of its registrations ran at once. A host controller whose executors bring along a lambda registers
    /// again, and the former registration drains. Then a heartbeat or an end names neither of them.
    pub(crate) fn has_two_registrations(&self) -> bool {
        self.registered.iter().enumerate().any(|(before, at)| {
            let lost = self.lost.iter().filter(|(lost, _)| lost <= at).count();
            before > lost
        })
    }

    /// From the end of a registration to the next one, if there is one.
    pub(crate) fn between_lives(&self) -> Vec<Span> {
        let next = |at: u64| self.registered.iter().find(|registered| **registered > at).copied();
        let pause = |(at, _): &(u64, String)| Span { from: *at, to: next(*at).unwrap_or(u64::MAX) };
        self.lost.iter().map(pause).collect()
    }

    /// Whether it lived and was not stopped at any time between two moments.
    pub(crate) fn ran_through(&self, from: u64, to: u64) -> bool {
        let lived = self.opened <= from && self.reaped.is_none_or(|reaped| to < reaped);
        lived && self.stopped.within(from, to) == 0
    }

    /// Whether a registration of it was over between two moments.
    pub(crate) fn lost_between(&self, from: u64, to: u64) -> bool {
        self.lost.iter().any(|(at, _)| from <= *at && *at <= to)
    }

    /// Whether it ended between two moments without a report.
    pub(crate) fn died_between(&self, from: u64, to: u64) -> bool {
        self.reaped.is_some_and(|reaped| from <= reaped && reaped <= to)
    }
}
