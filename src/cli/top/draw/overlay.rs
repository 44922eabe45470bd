//! The windows above the lists: the question of a command, and the keys.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use super::Theme;
use crate::cli::output::clean;
use crate::cli::top::state::{Dialog, State};

const KEYS: [&str; 14] = [
    "1-5, Tab     change the view",
    "j k, arrows  move; PgUp PgDn Home End",
    "Enter        look inside: a lambda, a worker, a cause of dead letters",
    "Esc          go back, clear the filter",
    "/            show only rows with a text",
    "g            pause the lambda, after a confirmation",
    "u            open its gate, after a confirmation",
    "r            redrive a cause of dead letters: 1, then 10, then the rest",
    "q, Ctrl-C    quit",
    "",
    "QUEUED: due, in a queue. HELD: with workers. WAITING: for another cause.",
    "START: from due to the start of the first attempt.",
    "BUSY: attempts that ran at a time, on average.",
    "A + after a count: there are more. Press any key.",
];

/// Draws the question or the keys, if there are any.
pub fn draw(frame: &mut Frame, area: Rect, state: &State, theme: &Theme) {
    if let Some(dialog) = &state.dialog {
        let lines = of_dialog(dialog, theme);
        window(frame, area, &dialog.command.title(), lines);
    } else if state.help {
        window(frame, area, "Keys", KEYS.map(Line::from).to_vec());
    }
}

fn of_dialog<'a>(dialog: &'a Dialog, theme: &Theme) -> Vec<Line<'a>> {
    let mut lines: Vec<Line> = match &dialog.sentences {
        None => vec![Line::from("The database is counting …")],
        Some(sentences) => sentences.iter().map(|text| Line::from(clean(text))).collect(),
    };
    lines.push(Line::default());
    lines.push(Line::from(format!("Reason: {}_", clean(&dialog.reason))));
    if let Some(complaint) = dialog.complaint {
        lines.push(Line::from(complaint).style(theme.alarm()));
    }
    lines.push(Line::from(format!("Enter: {}   Esc: change nothing", dialog.command.verb())));
    lines
}

/// A frame in the middle, as high as its lines need.
fn window(frame: &mut Frame, area: Rect, title: &str, lines: Vec<Line>) {
    let width = area.width.min(80);
    let inner = usize::from(width.saturating_sub(4)).max(1);
    let needed: usize = lines.iter().map(|line| line.width().div_ceil(inner).max(1)).sum();
    let height = (needed as u16 + 2).min(area.height);
    let place = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    let block = Block::bordered()
        .title(format!(" {} ", clean(title)))
        .padding(ratatui::widgets::Padding::horizontal(1));
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(block), place);
}
