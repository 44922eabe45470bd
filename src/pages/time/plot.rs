//! The drawing of the time line: delays as bars, events as points and spans on a row of their kind.

use std::fmt::Write as _;

use chrono::{DateTime, DurationRound, TimeDelta, Utc};
use maud::{Markup, html};

use super::events::Event;
use super::{Line, PARTS};
use crate::pages::overview::OBJECTIVE;
use crate::pages::words::span;

const WIDE: f64 = 1232.0;
/// Where the time begins; the names of the rows stand before it.
const LEFT: f64 = 150.0;
const ROW: f64 = 32.0;
/// The kinds of events that have a row: name, kinds.
const ROWS: [(&str, &[&str]); 5] = [
    ("Definitions", &["definition", "right", "installation"]),
    ("Limits", &["limit"]),
    ("Gates, breakers", &["gate", "breaker"]),
    ("Operations", &["operation"]),
    ("Executors", &["executor", "recovery"]),
];

/// The drawing of a time line.
pub fn drawn(line: &Line) -> Markup {
    let names = &line.lambdas;
    let rows = names.len() + ROWS.len();
    let high = ROW * rows as f64;
    html! {
        div .scroll .late tabindex="0" role="region"
            aria-label="Time line, drawn; the tables below have the same facts" {
            svg .plot width=(WIDE) height=(high + 22.0) viewBox=(format!("0 0 {WIDE} {}", high + 22.0))
                role="img" aria-label="Delays, and events by kind" {
                (ticks(line, high))
                @for (no, name) in names.iter().enumerate() { (delays(line, name, ROW * no as f64)) }
                @for (no, (name, kinds)) in ROWS.iter().enumerate() {
                    (events(line, name, kinds, ROW * (names.len() + no) as f64))
                }
            }
        }
    }
}

/// Where a time is.
fn x(line: &Line, at: DateTime<Utc>) -> f64 {
    let all = (line.until - line.from).num_milliseconds().max(1) as f64;
    let share = (at - line.from).num_milliseconds() as f64 / all;
    LEFT + (WIDE - LEFT) * share.clamp(0.0, 1.0)
}

fn ticks(line: &Line, high: f64) -> Markup {
    let span = line.until - line.from;
    let steps = [1, 2, 5, 10, 30, 60, 120, 240, 720, 1_440, 7_200].map(TimeDelta::minutes);
    let step = steps.into_iter().find(|step| *step * 8 >= span).unwrap_or(TimeDelta::days(5));
    let first = line.from.duration_trunc(step).unwrap_or(line.from);
    let format = if span > TimeDelta::days(2) { "%-d %b" } else { "%H:%M" };
    let times = (1..=10).map(|no| first + step * no).filter(|at| *at < line.until);
    html! {
        @for at in times {
            path .axis d=(format!("M{:.0} 0V{high}", x(line, at))) {}
            text x=(format!("{:.0}", x(line, at).min(WIDE - 20.0))) y=(high + 17.0) text-anchor="middle" { (at.format(format)) }
        }
    }
}

fn base(y: f64) -> Markup {
    html! { path .axis d=(format!("M0 {:.1}H{WIDE}", y + ROW - 1.5)) {} }
}

fn delays(line: &Line, lambda: &str, y: f64) -> Markup {
    let own = line.delays.iter().filter(|one| one.lambda == lambda);
    let own: Vec<(DateTime<Utc>, i64)> =
        own.filter_map(|one| one.p95_ms.map(|ms| (one.at, ms))).collect();
    let most = own.iter().map(|(_, ms)| *ms).max().unwrap_or(0).max(OBJECTIVE * 6 / 5);
    let wide = (WIDE - LEFT) / f64::from(PARTS);
    let bars = |is_over: bool| {
        let mut path = String::new();
        for (at, ms) in own.iter().filter(|(_, ms)| (*ms > OBJECTIVE) == is_over) {
            let high = ((ROW - 6.0) * *ms as f64 / most as f64).max(1.0);
            let left = (x(line, *at) - wide).max(LEFT);
            let _ = write!(
                path,
                "M{left:.1} {:.1}v-{high:.1}h{:.1}v{high:.1}z",
                y + ROW - 2.0,
                wide - 1.5
            );
        }
        path
    };
    let goal = y + ROW - 2.0 - (ROW - 6.0) * OBJECTIVE as f64 / most as f64;
    html! {
        text .name x="0" y=(y + 14.0) { (short(lambda, 20)) }
        text x="0" y=(y + 27.0) { @if own.is_empty() { "no start" } @else { "start p95, 0 to " (span(most)) } }
        (base(y))
        path .bars d=(bars(false)) {}
        path .bars .over d=(bars(true)) {}
        path .goal d=(format!("M{LEFT} {goal:.1}H{WIDE}")) {}
    }
}

/// A text of so many characters.
fn short(name: &str, most: usize) -> String {
    match name.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name.to_owned(),
    }
}

fn events(line: &Line, name: &str, kinds: &[&str], y: f64) -> Markup {
    let own: Vec<&Event> = line.events.iter().filter(|one| kinds.contains(&one.kind)).collect();
    // The newest event of a place has a text; texts do not stand on each other.
    let mut free = WIDE;
    html! {
        text .name x="0" y=(y + 20.0) { (name) }
        (base(y))
        @for (no, event) in own.iter().enumerate() {
            @let from = x(line, event.at);
            @let to = event.ended_at.or(event.goes_on.then_some(line.until)).map(|end| x(line, end));
            @match to {
                Some(to) => rect .span .hot[event.kind == "breaker" && event.goes_on]
                    x=(format!("{from:.1}")) y=(y + 7.0) width=(format!("{:.1}", (to - from).max(3.0))) height="17" rx="3" {},
                None => circle .dot cx=(format!("{from:.1}")) cy=(y + 16.0) r="4" {},
            }
            @let older = own.get(no + 1).map_or(LEFT, |older| x(line, older.at));
            @if let Some((place, anchor)) = label(&event.what, from, older, &mut free) {
                text x=(format!("{place:.0}")) y=(y + 20.0) text-anchor=(anchor) { (short(&event.what, 30)) }
            }
        }
    }
}

/// Where the text of an event begins or ends, if it has room: behind the event, else before it.
fn label(text: &str, from: f64, older: f64, free: &mut f64) -> Option<(f64, &'static str)> {
    let wide = 7.0 * text.chars().count().min(30) as f64;
    let (after, before) = (from + 9.0, from - 9.0);
    let place = match ((*free).min(WIDE) - after >= wide, before - wide > older + 9.0) {
        (true, _) => Some((after, "start")),
        (false, true) if from <= *free => Some((before, "end")),
        _ => None,
    };
    let left = if let Some((before, "end")) = place { before - wide } else { from };
    *free = free.min(left - 6.0);
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_do_not_stand_on_each_other() {
        let mut free = WIDE;
        let mut place = |from, older| label("0123456789", from, older, &mut free);
        assert_eq!(place(1_000.0, 900.0), Some((1_009.0, "start")));
        assert_eq!(place(900.0, 890.0), Some((909.0, "start")));
        // 890 has no room behind it, but before it.
        assert_eq!(place(890.0, 790.0), Some((881.0, "end")));
        assert_eq!(place(888.0, 700.0), None);
        // The text before 890 still stands there, and an older event would stand in the text.
        assert_eq!(place(800.0, 700.0), Some((791.0, "end")));
        assert_eq!(place(720.0, 700.0), None);
    }
}
