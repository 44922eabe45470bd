//! The five lists.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Text;
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use super::{Look, WIDE};
use crate::cli::output::clean;
use crate::cli::top::facts::{ExecutorRow, Facts, LambdaRow, QueueRow, WaitRow};
use crate::cli::top::state::State;
use crate::cli::top::view::View;
use crate::cli::top::words::{age, at_least, count, cut, ms, or_dash, percent, rate};
use crate::duration::milliseconds;
use crate::store::figures::OBJECTIVE;
use crate::store::overview::DeadGroup;

/// A column: its heading, its width (0: the rest), and whether it is aligned to the right.
pub type Column = (&'static str, u16, bool);
/// The texts of a row and its style.
pub type Line = (Vec<String>, Style);

/// Least width of the free column.
const FREE: usize = 12;

const LAMBDAS: [Column; 9] = [
    ("LAMBDA", 0, false),
    ("STATE", 9, false),
    ("QUEUED", 6, true),
    ("HELD", 6, true),
    ("WAITING", 7, true),
    ("START P50", 9, true),
    ("P99", 7, true),
    ("/S", 6, true),
    ("FAIL/S", 6, true),
];
const MORE_OF_LAMBDAS: [Column; 5] = [
    ("IN 5 S", 7, true),
    ("OLDEST", 7, true),
    ("PAUSED", 6, true),
    ("RUN P95", 7, true),
    ("WORKERS", 7, true),
];
const QUEUES: [Column; 8] = [
    ("LAMBDA", 0, false),
    ("PRIORITY", 8, false),
    ("STATE", 6, false),
    ("QUEUED", 6, true),
    ("OLDEST", 7, true),
    ("START P99", 9, true),
    ("/S", 6, true),
    ("FAIL/S", 6, true),
];
const MORE_OF_QUEUES: [Column; 3] =
    [("START P50", 9, true), ("IN 5 S", 7, true), ("RUN P95", 7, true)];
const EXECUTORS: [Column; 8] = [
    ("EXECUTOR", 9, true),
    ("HOST", 0, false),
    ("STATE", 8, false),
    ("BEAT", 7, true),
    ("HELD", 6, true),
    ("BUSY", 6, true),
    ("/S", 6, true),
    ("FAIL/S", 6, true),
];
const MORE_OF_EXECUTORS: [Column; 4] =
    [("PID", 7, true), ("AGE", 7, true), ("SDK", 7, false), ("LAMBDAS", 36, false)];
const WAITS: [Column; 5] = [
    ("WAIT FOR", 12, false),
    ("LAMBDA", 0, false),
    ("TASKS", 7, true),
    ("ENDED", 7, true),
    ("P95", 7, true),
];
const DEAD: [Column; 5] = [
    ("TASKS", 6, true),
    ("LAMBDA", 20, false),
    ("LATEST", 7, true),
    ("COLLECTION", 12, false),
    ("CAUSE", 0, false),
];

/// Draws the list of the view.
pub fn draw(frame: &mut Frame, area: Rect, facts: &Facts, state: &State, look: &Look) {
    let shown = state.shown();
    if shown.is_empty() {
        return frame.render_widget(Paragraph::new(none(state)), area);
    }
    let wide = area.width >= WIDE;
    let (columns, lines): (Vec<Column>, Vec<Line>) = match state.view {
        View::Lambdas => {
            let row = |at: &usize| lambda(&facts.lambdas[*at], wide, look);
            (joined(&LAMBDAS, &MORE_OF_LAMBDAS, wide), shown.iter().map(row).collect())
        }
        View::Queues => {
            let row = |at: &usize| queue(&facts.queues[*at], wide, look);
            (joined(&QUEUES, &MORE_OF_QUEUES, wide), shown.iter().map(row).collect())
        }
        View::Executors => {
            let row = |at: &usize| executor(&facts.executors[*at], wide, look);
            (joined(&EXECUTORS, &MORE_OF_EXECUTORS, wide), shown.iter().map(row).collect())
        }
        View::Waits => {
            let row = |at: &usize| wait(&facts.waits[*at], look);
            (WAITS.to_vec(), shown.iter().map(row).collect())
        }
        View::Dead => {
            let row = |at: &usize| dead(&facts.dead_groups[*at]);
            (DEAD.to_vec(), shown.iter().map(row).collect())
        }
    };
    table(frame, area, &columns, &lines, Some(state.selected()));
}

/// A sentence for an empty list.
fn none(state: &State) -> String {
    if !state.filter.is_empty() {
        return format!("No row has {:?}. Esc clears the filter.", clean(&state.filter));
    }
    match state.view {
        View::Lambdas | View::Queues => "No lambda is defined.",
        View::Executors => "No worker is registered.",
        View::Waits => "No task waits.",
        View::Dead => "No task has failed for good.",
    }
    .to_owned()
}

fn joined(columns: &[Column], more: &[Column], wide: bool) -> Vec<Column> {
    columns.iter().chain(if wide { more } else { &[] }).copied().collect()
}

/// Draws lines under their headings; the selected one is kept in sight.
pub fn table(
    frame: &mut Frame,
    area: Rect,
    columns: &[Column],
    lines: &[Line],
    selected: Option<usize>,
) {
    let fixed: u16 = columns.iter().map(|(_, width, _)| width + 1).sum();
    let rest = usize::from(area.width.saturating_sub(fixed));
    // The free column is as wide as its longest text, so that a line can be read across.
    let free = columns.iter().position(|(_, width, _)| *width == 0).unwrap_or(0);
    let longest = lines.iter().map(|(texts, _)| texts[free].chars().count()).max().unwrap_or(0);
    let rest = rest.min(longest.max(FREE));
    let widths = columns.iter().map(|(_, width, _)| match width {
        0 => Constraint::Length(rest as u16),
        width => Constraint::Length(*width),
    });
    let cell = |text: &str, (_, width, right): &Column| {
        let room = if *width == 0 { rest } else { usize::from(*width) };
        let text = Text::from(cut(&clean(text), room));
        Cell::from(if *right { text.alignment(Alignment::Right) } else { text })
    };
    let heading = columns.iter().map(|column| cell(column.0, column));
    let row = |(texts, style): &Line| {
        Row::new(texts.iter().zip(columns).map(|(text, column)| cell(text, column))).style(*style)
    };
    // Only the rows in sight are made: a list may have thousands.
    let height = usize::from(area.height.saturating_sub(1)).max(1);
    let first = selected.map_or(0, |at| (at + 1).saturating_sub(height));
    let rows = lines.iter().skip(first).take(height).map(row);
    let table = Table::new(rows, widths)
        .header(Row::new(heading).style(Modifier::BOLD))
        .row_highlight_style(Modifier::REVERSED);
    let mut at = TableState::new().with_selected(selected.map(|at| at - first));
    frame.render_stateful_widget(table, area, &mut at);
}

fn lambda(row: &LambdaRow, wide: bool, look: &Look) -> Line {
    let rates = &row.rates;
    let mut texts = vec![
        row.lambda.clone(),
        row.health.word().to_owned(),
        or_dash(count(row.queued)),
        or_dash(at_least(row.held)),
        or_dash(at_least(row.waiting)),
        ms(rates.start_p50_ms),
        ms(rates.start_p99_ms),
        rate(rates.per_second),
        rate(rates.failed_per_second),
    ];
    if wide {
        texts.extend([
            percent(rates.start_within_5s),
            ms(row.oldest_ms.map(|ms| ms as f64)),
            or_dash(count(row.paused)),
            ms(rates.run_p95_ms),
            or_dash(count(row.workers)),
        ]);
    }
    (texts, look.of_health(row.health))
}

/// A queue.
pub fn queue(row: &QueueRow, wide: bool, look: &Look) -> Line {
    let rates = &row.rates;
    let mut texts = vec![
        row.lambda.clone(),
        row.priority.clone(),
        if row.paused { "paused" } else { "" }.to_owned(),
        or_dash(count(row.depth)),
        ms(row.oldest_ms.map(|ms| ms as f64)),
        ms(rates.start_p99_ms),
        rate(rates.per_second),
        rate(rates.failed_per_second),
    ];
    if wide {
        texts.extend([
            ms(rates.start_p50_ms),
            percent(rates.start_within_5s),
            ms(rates.run_p95_ms),
        ]);
    }
    let late = row.oldest_ms.is_some_and(|ms| ms > milliseconds(OBJECTIVE));
    let style = match (row.paused, late) {
        (true, _) => look.warning(),
        (false, true) => look.alarm(),
        _ if row.depth == 0 && rates.per_second == 0.0 => look.faint(),
        _ => Style::new(),
    };
    (texts, style)
}

fn executor(row: &ExecutorRow, wide: bool, look: &Look) -> Line {
    let one = &row.executor;
    let mut texts = vec![
        one.executor_id.to_string(),
        one.host.clone(),
        one.state.clone(),
        age(one.beat_ms),
        or_dash(at_least(row.held)),
        rate(row.busy),
        rate(row.per_second),
        rate(row.failed_per_second),
    ];
    if wide {
        let lambdas = one.lambdas.join(" ");
        texts.extend([one.pid.to_string(), age(one.age_ms), one.sdk_version.clone(), lambdas]);
    }
    let style = match &*one.state {
        "alive" => Style::new(),
        "draining" => look.warning(),
        "silent" | "expired" => look.alarm(),
        _ => look.faint(),
    };
    (texts, style)
}

fn wait(row: &WaitRow, look: &Look) -> Line {
    let texts = vec![
        cause(&row.cause).to_owned(),
        row.lambda.clone(),
        or_dash(at_least(row.count)),
        or_dash(count(row.ended)),
        ms(row.p95_ms),
    ];
    let style = match &*row.cause {
        "server" => look.alarm(),
        "gate" | "pause" if row.count.tasks > 0 => look.warning(),
        _ if row.count.tasks == 0 => look.faint(),
        _ => Style::new(),
    };
    (texts, style)
}

/// The name of a cause on the screen.
pub fn cause(cause: &str) -> &str {
    match cause {
        "due" => "due time",
        "server" => "server (due)",
        other => other,
    }
}

/// A group of dead letters.
pub fn dead(group: &DeadGroup) -> Line {
    let texts = vec![
        at_least(group.count),
        group.lambda.clone(),
        age(group.latest_ms),
        group.collection.clone().unwrap_or_default(),
        error(group),
    ];
    (texts, Style::new())
}

/// The last error of the group: its class and its message.
pub fn error(group: &DeadGroup) -> String {
    let class = group.error_class.as_deref().unwrap_or("no failure");
    format!("{class}: {}", group.message.as_deref().unwrap_or_default())
}
