//! The inside of a lambda, a worker or a group of dead letters.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line as Text;
use ratatui::widgets::{Paragraph, Wrap};

use super::Theme;
use super::lists::{Column, QUEUES, cause, error, of_queue, table};
use crate::cli::output::clean;
use crate::cli::top::state::{Inside, Opened};
use crate::cli::top::view::Target;
use crate::cli::words::{age, at_least, count, ms, percent, rate, tasks};
use crate::facts::Facts;
use crate::store::overview::{DeadGroup, Gate, HeldTask, Letter};

/// The texts of a row and its style.
type Line = ([String; 4], Style);

const LINES: [Column<Line>; 4] = [
    ("", 9, false, |line| line.0[0].clone()),
    ("TASKS", 7, true, |line| line.0[1].clone()),
    ("SINCE", 7, true, |line| line.0[2].clone()),
    ("CAUSE OR REASON", 0, false, |line| line.0[3].clone()),
];
const HELD: [Column<HeldTask>; 6] = [
    ("TASK", 16, true, |task| task.id.to_string()),
    ("LAMBDA", 0, false, |task| task.lambda.clone()),
    ("COLLECTION", 16, false, |task| task.collection.clone().unwrap_or_default()),
    ("STATUS", 10, false, |task| task.status.clone()),
    ("ATTEMPT", 7, true, |task| task.attempt.to_string()),
    ("DUE AGO", 7, true, |task| age(task.due_ms)),
];

/// Draws the opened thing.
pub fn draw(frame: &mut Frame, area: Rect, facts: &Facts, opened: &Opened, theme: &Theme) {
    match (&opened.target, &opened.inside) {
        (Target::Lambda(lambda), inside) => {
            let groups = match inside {
                Some(Inside::Lambda(groups)) => groups.as_slice(),
                _ => &[],
            };
            of_lambda(frame, area, facts, (lambda, groups, opened.at), theme);
        }
        (Target::Executor(executor), Some(Inside::Executor(held))) => {
            of_executor(frame, area, facts, (*executor, held, opened.at));
        }
        (Target::Dead(lambda, fingerprint, id), Some(Inside::Dead(letter))) => {
            let group = facts
                .dead_groups
                .iter()
                .find(|group| group.lambda == *lambda && group.fingerprint == *fingerprint);
            let text = of_letter((lambda, fingerprint, *id), group, letter.as_ref());
            frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }), area);
        }
        _ => frame.render_widget(Paragraph::new("Looking …"), area),
    }
}

/// Summary, waits, queues, and below them gates and dead letters, which can be selected.
fn of_lambda(
    frame: &mut Frame,
    area: Rect,
    facts: &Facts,
    (lambda, groups, at): (&str, &[DeadGroup], usize),
    theme: &Theme,
) {
    let queues: Vec<_> = facts.queues.iter().filter(|row| row.lambda == lambda).collect();
    let [head, list, rest] = Layout::vertical([
        Constraint::Length(4),
        Constraint::Length(2 + queues.len() as u16),
        Constraint::Fill(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(summary(facts, lambda, theme)), head);
    table(frame, list, &QUEUES[1..8], &queues, |row| of_queue(row, theme), None);
    let gates = facts.gates_of(lambda).map(|gate| of_gate(gate, facts, theme));
    let lines: Vec<Line> = gates.chain(groups.iter().map(of_group)).collect();
    if lines.is_empty() {
        return frame.render_widget(Paragraph::new("No gate is set. No dead letter."), rest);
    }
    let at = at.min(lines.len() - 1);
    table(frame, rest, &LINES, &lines.iter().collect::<Vec<_>>(), |line| line.1, Some(at));
}

fn summary<'a>(facts: &Facts, lambda: &str, theme: &Theme) -> Vec<Text<'a>> {
    let Some(row) = facts.lambda(lambda) else {
        return vec![Text::from(format!("{} is not defined any more.", clean(lambda)))];
    };
    let rates = &row.rates;
    let waits: Vec<_> = facts
        .waits
        .iter()
        .filter(|wait| wait.lambda == lambda && !wait.count.is_none())
        .map(|wait| format!("{} {}", cause(&wait.cause), at_least(wait.count)))
        .collect();
    let waits = if waits.is_empty() { "none".to_owned() } else { waits.join(", ") };
    vec![
        Text::from(format!("{}: {}", clean(lambda), row.health.word()))
            .style(theme.of_health(row.health).add_modifier(Modifier::BOLD)),
        Text::from(format!(
            "last {}: {}/s, failed {}/s, start p50 {} p99 {}, in 5 s {}, run p95 {}",
            theme.since,
            rate(rates.per_second),
            rate(rates.failed_per_second),
            ms(rates.start_p50_ms),
            ms(rates.start_p99_ms),
            percent(rates.start_within_5s),
            ms(rates.run_p95_ms),
        )),
        Text::from(format!(
            "held by workers {}, live workers {}; waits: {waits}",
            at_least(row.held),
            count(row.workers),
        )),
    ]
}

fn of_gate(gate: &Gate, facts: &Facts, theme: &Theme) -> Line {
    let whole = gate.collection.is_none();
    let paused = facts.lambda(&gate.lambda).map_or(0, |row| row.paused);
    let held = if whole { count(paused) } else { at_least(gate.parked) };
    let scope = [("collection", &gate.collection), ("priority", &gate.priority)];
    let scope: String = scope
        .iter()
        .filter_map(|(name, value)| Some(format!(" {name} {}", value.as_ref()?)))
        .collect();
    let ends = gate.opens_in_ms.map(|ms| format!(", opens in {}", age(ms))).unwrap_or_default();
    let reason = format!(
        "{} {}{scope}, by {}{ends}: {}",
        gate.action, gate.gate_id, gate.author, gate.reason
    );
    (["gate".to_owned(), held, age(gate.age_ms), reason], theme.warning())
}

fn of_group(group: &DeadGroup) -> Line {
    let cause = match &group.collection {
        Some(collection) => format!("[{collection}] {}", error(group)),
        None => error(group),
    };
    (["dead".to_owned(), at_least(group.count), age(group.latest_ms), cause], Style::new())
}

fn of_executor(
    frame: &mut Frame,
    area: Rect,
    facts: &Facts,
    (executor, held, at): (i64, &[HeldTask], usize),
) {
    let [head, list] = Layout::vertical([Constraint::Length(3), Constraint::Fill(1)]).areas(area);
    let row = facts.executors.iter().find(|row| row.executor.executor_id == executor);
    let text = row.map_or_else(
        || vec![Text::from(format!("Executor {executor} has ended."))],
        |row| {
            let one = &row.executor;
            let lambdas = one.lambdas.join(", ");
            vec![
                Text::from(clean(&format!(
                    "executor {executor}: {} on {}, process {}, SDK {}",
                    one.state, one.host, one.pid, one.sdk_version
                )))
                .style(Modifier::BOLD),
                Text::from(clean(&format!(
                    "heartbeat {} ago, registered {} ago; serves {lambdas}",
                    age(one.beat_ms),
                    age(one.age_ms)
                ))),
            ]
        },
    );
    frame.render_widget(Paragraph::new(text), head);
    if held.is_empty() {
        return frame.render_widget(Paragraph::new("It holds no task."), list);
    }
    let at = at.min(held.len() - 1);
    table(frame, list, &HELD, &held.iter().collect::<Vec<_>>(), |_| Style::new(), Some(at));
}

/// The example of a group: its message first.
fn of_letter<'a>(
    (lambda, fingerprint, id): (&str, &str, i64),
    group: Option<&DeadGroup>,
    letter: Option<&Letter>,
) -> Vec<Text<'a>> {
    let number = group.map_or_else(
        || tasks(0),
        |group| {
            let all = tasks(group.count.tasks);
            if group.count.and_more { format!("more than {all}") } else { all }
        },
    );
    let mut lines = vec![
        Text::from(clean(&format!("{lambda}: {number} of the cause {fingerprint}")))
            .style(Modifier::BOLD),
    ];
    let Some(letter) = letter else {
        lines.push(Text::from(format!("Task {id} is no dead letter any more.")));
        return lines;
    };
    let text = |field: &Option<String>| clean(field.as_deref().unwrap_or("-"));
    let pairs = [
        ("error", format!("{}: {}", text(&letter.error_class), text(&letter.message))),
        ("example", format!("task {} ({}, attempt {})", letter.id, letter.status, letter.attempt)),
        ("collection", text(&letter.collection)),
        ("priority", letter.priority.clone()),
        ("died", format!("{} ago, can return for {}", age(letter.died_ms), age(letter.expires_ms))),
        ("payload", text(&letter.payload)),
    ];
    lines.push(Text::default());
    lines.extend(pairs.into_iter().map(|(name, value)| Text::from(format!("{name:<11} {value}"))));
    lines
}
