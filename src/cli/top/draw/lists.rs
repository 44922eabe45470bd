//! The five lists.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Text;
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use super::{Theme, WIDE};
use crate::cli::output::clean;
use crate::cli::top::state::State;
use crate::cli::top::view::View;
use crate::cli::words::{age, at_least, count, cut, ms, or_dash, percent, rate};
use crate::duration::milliseconds;
use crate::facts::{ExecutorRow, Facts, LambdaRow, QueueRow, WaitRow};
use crate::store::figures::OBJECTIVE;
use crate::store::overview::DeadGroup;

/// A column: its heading, its width (0: the rest), whether it is aligned to the right, and its text.
pub type Column<T> = (&'static str, u16, bool, fn(&T) -> String);

/// Least width of the free column.
const FREE: usize = 12;

/// The last 5 on a wide terminal only.
const LAMBDAS: [Column<LambdaRow>; 14] = [
    ("LAMBDA", 0, false, |row| row.lambda.clone()),
    ("STATE", 9, false, |row| row.health.word().to_owned()),
    ("QUEUED", 6, true, |row| or_dash(count(row.queued))),
    ("HELD", 6, true, |row| or_dash(at_least(row.held))),
    ("WAITING", 7, true, |row| or_dash(at_least(row.waiting))),
    ("START P50", 9, true, |row| ms(row.rates.start_p50_ms)),
    ("P99", 7, true, |row| ms(row.rates.start_p99_ms)),
    ("/S", 6, true, |row| rate(row.rates.per_second)),
    ("FAIL/S", 6, true, |row| rate(row.rates.failed_per_second)),
    ("IN 5 S", 7, true, |row| percent(row.rates.start_within_5s)),
    ("OLDEST", 7, true, |row| ms(row.oldest_ms.map(|ms| ms as f64))),
    ("PAUSED", 6, true, |row| or_dash(count(row.paused))),
    ("RUN P95", 7, true, |row| ms(row.rates.run_p95_ms)),
    ("WORKERS", 7, true, |row| or_dash(count(row.workers))),
];
/// The last 3 on a wide terminal only.
pub const QUEUES: [Column<QueueRow>; 11] = [
    ("LAMBDA", 0, false, |row| row.lambda.clone()),
    ("PRIORITY", 8, false, |row| row.priority.clone()),
    ("STATE", 6, false, |row| if row.paused { "paused" } else { "" }.to_owned()),
    ("QUEUED", 6, true, |row| or_dash(count(row.depth))),
    ("OLDEST", 7, true, |row| ms(row.oldest_ms.map(|ms| ms as f64))),
    ("START P99", 9, true, |row| ms(row.rates.start_p99_ms)),
    ("/S", 6, true, |row| rate(row.rates.per_second)),
    ("FAIL/S", 6, true, |row| rate(row.rates.failed_per_second)),
    ("START P50", 9, true, |row| ms(row.rates.start_p50_ms)),
    ("IN 5 S", 7, true, |row| percent(row.rates.start_within_5s)),
    ("RUN P95", 7, true, |row| ms(row.rates.run_p95_ms)),
];
/// The last 4 on a wide terminal only.
const EXECUTORS: [Column<ExecutorRow>; 12] = [
    ("EXECUTOR", 9, true, |row| row.executor.executor_id.to_string()),
    ("HOST", 0, false, |row| row.executor.host.clone()),
    ("STATE", 8, false, |row| row.executor.state.clone()),
    ("BEAT", 7, true, |row| age(row.executor.beat_ms)),
    ("HELD", 6, true, |row| or_dash(at_least(row.held))),
    ("BUSY", 6, true, |row| rate(row.busy)),
    ("/S", 6, true, |row| rate(row.per_second)),
    ("FAIL/S", 6, true, |row| rate(row.failed_per_second)),
    ("PID", 7, true, |row| row.executor.pid.to_string()),
    ("AGE", 7, true, |row| age(row.executor.age_ms)),
    ("SDK", 7, false, |row| row.executor.sdk_version.clone()),
    ("LAMBDAS", 36, false, |row| row.executor.lambdas.join(" ")),
];
const WAITS: [Column<WaitRow>; 5] = [
    ("WAIT FOR", 12, false, |row| cause(&row.cause).to_owned()),
    ("LAMBDA", 0, false, |row| row.lambda.clone()),
    ("TASKS", 7, true, |row| or_dash(at_least(row.count))),
    ("ENDED", 7, true, |row| or_dash(count(row.ended))),
    ("P95", 7, true, |row| ms(row.p95_ms)),
];
const DEAD: [Column<DeadGroup>; 5] = [
    ("TASKS", 6, true, |group| at_least(group.count)),
    ("LAMBDA", 20, false, |group| group.lambda.clone()),
    ("LATEST", 7, true, |group| age(group.latest_ms)),
    ("COLLECTION", 12, false, |group| group.collection.clone().unwrap_or_default()),
    ("CAUSE", 0, false, error),
];

/// Draws the list of the view.
pub fn draw(frame: &mut Frame, area: Rect, facts: &Facts, state: &State, theme: &Theme) {
    let shown = state.shown();
    if shown.is_empty() {
        return frame.render_widget(Paragraph::new(none(state)), area);
    }
    let shown = Shown { area, rows: &shown, selected: state.selected() };
    match state.view {
        View::Lambdas => {
            shown.draw(frame, &LAMBDAS, 5, &facts.lambdas, |row| theme.of_health(row.health));
        }
        View::Queues => shown.draw(frame, &QUEUES, 3, &facts.queues, |row| of_queue(row, theme)),
        View::Executors => {
            shown.draw(frame, &EXECUTORS, 4, &facts.executors, |row| of_executor(row, theme));
        }
        View::Waits => shown.draw(frame, &WAITS, 0, &facts.waits, |row| of_wait(row, theme)),
        View::Dead => shown.draw(frame, &DEAD, 0, &facts.dead_groups, |_| Style::new()),
    }
}

/// The rows of a list that are shown, and the selected one among them.
struct Shown<'a> {
    area: Rect,
    rows: &'a [usize],
    selected: usize,
}

impl Shown<'_> {
    /// Draws them, on a narrow terminal without the last `more` columns.
    fn draw<T>(
        &self,
        frame: &mut Frame,
        columns: &[Column<T>],
        more: usize,
        all: &[T],
        style: impl Fn(&T) -> Style,
    ) {
        let wide = self.area.width >= WIDE;
        let columns = if wide { columns } else { &columns[..columns.len() - more] };
        let rows: Vec<&T> = self.rows.iter().map(|at| &all[*at]).collect();
        table(frame, self.area, columns, &rows, style, Some(self.selected));
    }
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

/// Draws rows under their headings; the selected one is kept in sight.
pub fn table<T>(
    frame: &mut Frame,
    area: Rect,
    columns: &[Column<T>],
    rows: &[&T],
    style: impl Fn(&T) -> Style,
    selected: Option<usize>,
) {
    let fixed: u16 = columns.iter().map(|(_, width, ..)| width + 1).sum();
    let rest = usize::from(area.width.saturating_sub(fixed));
    // The free column is as wide as its longest text, so that a line can be read across.
    let free = columns.iter().find(|(_, width, ..)| *width == 0);
    let longest = free.and_then(|free| rows.iter().map(|row| free.3(row).chars().count()).max());
    let rest = rest.min(longest.unwrap_or(0).max(FREE));
    let widths = columns.iter().map(|(_, width, ..)| match width {
        0 => Constraint::Length(rest as u16),
        width => Constraint::Length(*width),
    });
    let cell = |text: &str, (_, width, right, _): &Column<T>| {
        let room = if *width == 0 { rest } else { usize::from(*width) };
        let text = Text::from(cut(&clean(text), room));
        Cell::from(if *right { text.alignment(Alignment::Right) } else { text })
    };
    let heading = columns.iter().map(|column| cell(column.0, column));
    let line = |row: &&T| {
        Row::new(columns.iter().map(|column| cell(&column.3(row), column))).style(style(row))
    };
    // Only the rows in sight are made: a list may have thousands.
    let height = usize::from(area.height.saturating_sub(1)).max(1);
    let first = selected.map_or(0, |at| (at + 1).saturating_sub(height));
    let lines = rows.iter().skip(first).take(height).map(line);
    let table = Table::new(lines, widths)
        .header(Row::new(heading).style(Modifier::BOLD))
        .row_highlight_style(Modifier::REVERSED);
    let mut at = TableState::new().with_selected(selected.map(|at| at - first));
    frame.render_stateful_widget(table, area, &mut at);
}

/// The style of a queue.
pub fn of_queue(row: &QueueRow, theme: &Theme) -> Style {
    let late = row.oldest_ms.is_some_and(|ms| ms > milliseconds(OBJECTIVE));
    match (row.paused, late) {
        (true, _) => theme.warning(),
        (false, true) => theme.alarm(),
        _ if row.depth == 0 && row.rates.per_second == 0.0 => theme.faint(),
        _ => Style::new(),
    }
}

fn of_executor(row: &ExecutorRow, theme: &Theme) -> Style {
    match &*row.executor.state {
        "alive" => Style::new(),
        "draining" => theme.warning(),
        "silent" | "expired" => theme.alarm(),
        _ => theme.faint(),
    }
}

fn of_wait(row: &WaitRow, theme: &Theme) -> Style {
    match &*row.cause {
        "server" => theme.alarm(),
        "gate" | "pause" if row.count.tasks > 0 => theme.warning(),
        _ if row.count.tasks == 0 => theme.faint(),
        _ => Style::new(),
    }
}

/// The name of a cause on the screen.
pub fn cause(cause: &str) -> &str {
    match cause {
        "due" => "due time",
        "server" => "server (due)",
        other => other,
    }
}

/// The last error of the group: its class and its message.
pub fn error(group: &DeadGroup) -> String {
    let class = group.error_class.as_deref().unwrap_or("no failure");
    format!("{class}: {}", group.message.as_deref().unwrap_or_default())
}
