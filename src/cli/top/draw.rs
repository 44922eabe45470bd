//! Draws the state. It reads the state and nothing else.
//!
//! Promises: a frame fits 80 by 24. On a terminal that is too small, a sentence says so. Without
//! colours no fact is lost, because each colour has a word beside it. No control character from the
//! database reaches the terminal.

mod inside;
mod lists;
mod overlay;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::state::State;
use super::view::View;
use crate::cli::output::clean;
use crate::cli::words::{at_least, count, cut, percent, rate};
use crate::facts::{Facts, Health};

pub const SMALLEST: (u16, u16) = (80, 16);
/// Lines around the rows of a list: sums, views, headings, keys.
pub const AROUND: usize = 6;
/// From this width on more columns are shown.
const WIDE: u16 = 120;

/// The settings of the screen.
#[derive(Debug, Clone)]
pub struct Theme {
    /// Colours may be used.
    pub colour: bool,
    /// The database, without its password.
    pub database: String,
    /// How far back rates and delays count, as text.
    pub since: String,
}

impl Theme {
    fn style(&self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    fn alarm(&self) -> Style {
        self.style(Color::Red).add_modifier(Modifier::BOLD)
    }

    fn warning(&self) -> Style {
        self.style(Color::Yellow)
    }

    fn faint(&self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    fn of_health(&self, health: Health) -> Style {
        match health {
            Health::NoWorker | Health::Breaker | Health::Late | Health::Failing => self.alarm(),
            Health::Gated => self.warning(),
            Health::Ok => Style::new(),
            Health::Idle => self.faint(),
        }
    }
}

pub fn draw(frame: &mut Frame, state: &State, theme: &Theme) {
    let area = frame.area();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let (width, height) = SMALLEST;
        let text = format!(
            "tuskline top needs {width} columns and {height} lines. This terminal has {} and {}.",
            area.width, area.height
        );
        let wrapped = Paragraph::new(text).wrap(ratatui::widgets::Wrap { trim: true });
        return frame.render_widget(wrapped, area);
    }
    let [top, tabs, body, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(2),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    heading(frame, top, state, theme);
    frame.render_widget(tabs_of(state, theme), tabs);
    match (&state.facts, &state.opened) {
        (None, _) => {
            frame.render_widget(Paragraph::new("The database has not answered yet."), body)
        }
        (Some(facts), Some(opened)) => inside::draw(frame, body, facts, opened, theme),
        (Some(facts), None) => lists::draw(frame, body, facts, state, theme),
    }
    frame.render_widget(footer(state, theme), foot);
    overlay::draw(frame, body, state, theme);
}

/// The database, the time, and the sums.
fn heading(frame: &mut Frame, area: Rect, state: &State, theme: &Theme) {
    let [first, second] = Layout::vertical([Constraint::Length(1); 2]).areas(area);
    let facts = state.facts.as_ref();
    let now = facts.and_then(|facts| {
        let now = facts.now?.format("%H:%M:%S UTC");
        // After a slow reading the next one comes later, and the operator must see that.
        let every = facts.every.as_secs();
        Some(if every > 2 { format!("every {every} s  {now}") } else { now.to_string() })
    });
    let name = facts.map_or("", |facts| &facts.installation);
    let place = format!("tuskline top  {name}  {}", theme.database);
    let right = now.unwrap_or_default();
    let room = usize::from(first.width).saturating_sub(right.len() + 1);
    let left = format!("{:<room$}", cut(&clean(&place), room));
    let line =
        Line::from(vec![Span::from(left).style(Modifier::BOLD), Span::from(format!(" {right}"))]);
    frame.render_widget(line, first);
    if let Some(why) = &state.lost {
        let banner =
            format!(" NO CONNECTION: {}. These facts are old. It reconnects. ", clean(why));
        let banner = cut(&banner, usize::from(second.width));
        return frame.render_widget(
            Line::from(banner).style(theme.alarm().add_modifier(Modifier::REVERSED)),
            second,
        );
    }
    if let Some(facts) = facts {
        frame.render_widget(Line::from(sums(facts, usize::from(second.width))), second);
    }
}

/// The sums that fit; the most important first.
fn sums(facts: &Facts, room: usize) -> String {
    let totals = &facts.totals;
    let gates = facts.gates.len();
    let parts = [
        format!("queued {}", count(totals.queued)),
        format!("held {}", at_least(totals.held)),
        format!("waiting {}", at_least(totals.waiting)),
        format!("dead ~{}", count(totals.dead_letters)),
        if gates > 0 { format!("gates {gates}") } else { String::new() },
        format!("in 5 s {}", percent(totals.start_within_5s)),
        format!("{}/s", rate(totals.per_second)),
        format!("fail {}/s", rate(totals.failed_per_second)),
        format!("workers {}", totals.workers),
    ];
    let mut line = String::new();
    for part in parts.iter().filter(|part| !part.is_empty()) {
        if line.chars().count() + part.chars().count() + 2 <= room {
            line += &format!("{part}  ");
        }
    }
    line
}

fn tabs_of<'a>(state: &'a State, theme: &Theme) -> Paragraph<'a> {
    let mut spans = Vec::new();
    for (at, view) in View::ALL.iter().enumerate() {
        let rows = state.facts.as_ref().map_or(0, |facts| view.rows(facts));
        let name = format!(" {} {} {rows} ", at + 1, view.title());
        let style = match *view == state.view {
            true => Style::new().add_modifier(Modifier::REVERSED),
            false => Style::new(),
        };
        spans.push(Span::from(name).style(style));
    }
    if !state.filter.is_empty() || state.filtering {
        let mark = if state.filtering { "_" } else { "" };
        spans.push(Span::from(format!("  /{}{mark}", clean(&state.filter))).style(theme.warning()));
    }
    Paragraph::new(Line::from(spans))
}

/// The last notice, or the keys.
fn footer<'a>(state: &'a State, theme: &Theme) -> Line<'a> {
    if let Some(notice) = &state.notice {
        return Line::from(clean(notice)).style(theme.warning());
    }
    let keys = match &state.opened {
        Some(_) => "Esc back  j/k move  g pause  u open gate  r redrive  ? help  q quit",
        None => "1-5 view  j/k move  Enter inside  / filter  g pause  u open  r redrive  ? help",
    };
    Line::from(keys).style(theme.faint())
}
