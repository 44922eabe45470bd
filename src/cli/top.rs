//! `top`: the installation on a terminal, for an operator who watches it.
//!
//! `facts` are the rows. `state` takes events and returns actions. `draw` makes a frame of the
//! state. `source` reads the database. `screen` owns the terminal. This file is the loop that joins
//! them.

mod command;
mod draw;
mod screen;
mod source;
mod state;
#[cfg(test)]
mod tests;
mod view;

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use self::draw::Theme;
use self::screen::{Input, Screen};
use self::source::Pace;
use self::state::{Action, Event, Request, State};
use self::view::View;
use super::global::Global;
use super::{database, output};
use crate::duration;
use crate::facts::FactsReader;

/// Most requests that wait for the database.
const REQUESTS: usize = 16;
/// Most columns of a frame that is not on a terminal.
const WIDEST: u16 = 400;
/// Most lines of a frame that is not on a terminal.
const LINES: usize = 10_000;

const EXAMPLES: &str = "\
Piped, it prints one frame as plain text; with --json the facts of all views
as one object. NO_COLOR turns colours off. The page docs/top.md has the keys.

Examples:
  tuskline top
  tuskline top --view dead
  tuskline top --json | jq '.lambdas[] | select(.health == \"late\")'";

/// Interval, span and first view.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct TopArgs {
    /// Time between two readings; longer if one takes more than a tenth of it.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "1s")]
    interval: Duration,
    /// How far back rates and delays count.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "5m")]
    since: Duration,
    /// Begin with this view.
    #[arg(long, value_enum, default_value = "lambdas")]
    view: View,
}

pub async fn run(global: &Global, args: TopArgs) -> Result<()> {
    let address = database::find(global)?;
    let theme = Theme {
        colour: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        database: database::shown(&address),
        since: duration::show(duration::milliseconds(args.since)),
    };
    if global.json || !std::io::stdout().is_terminal() {
        return once(global, &args, &theme).await;
    }
    let pace = Pace { interval: args.interval.max(Duration::from_millis(100)), since: args.since };
    let (ask, requests) = mpsc::channel(REQUESTS);
    let (tell, mut events) = mpsc::unbounded_channel();
    let _source = AbortOnDropHandle::new(tokio::spawn(source::run(address, pace, requests, tell)));
    watch(Screen::take()?, State::of(args.view), &theme, &ask, &mut events).await
}

/// One reading: as JSON, or as a frame of text.
async fn once(global: &Global, args: &TopArgs, theme: &Theme) -> Result<()> {
    let session = database::open(global).await?;
    let facts = FactsReader::default().read(session.client(), args.since).await?;
    if global.json {
        return Ok(output::put_json(&json!(facts))?);
    }
    let mut state = State::of(args.view);
    state.on(Event::Facts(Box::new(facts)));
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let columns = columns.unwrap_or_else(output::width).clamp(draw::SMALLEST.0, WIDEST);
    // High enough for all rows. The last line has the keys, and is left out below.
    let lines = (draw::AROUND + state.shown().len()).clamp(usize::from(draw::SMALLEST.1), LINES);
    let mut terminal = Terminal::new(TestBackend::new(columns, u16::try_from(lines)?))?;
    terminal.draw(|frame| draw::draw(frame, &state, theme))?;
    let text = text_of(terminal.backend().buffer());
    let lines: Vec<_> = text.trim_end().lines().collect();
    Ok(output::put(lines[..lines.len() - 1].join("\n").trim_end())?)
}

fn text_of(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width);
    let lines = buffer.content.chunks(width).map(|row| {
        let line: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned() + "\n"
    });
    lines.collect()
}

/// Handles the events of the keys, the database and signals one by one, and draws after each of
/// them.
async fn watch(
    mut screen: Screen,
    mut state: State,
    theme: &Theme,
    ask: &mpsc::Sender<Request>,
    events: &mut mpsc::UnboundedReceiver<Event>,
) -> Result<()> {
    let (keys, mut inputs) = mpsc::unbounded_channel();
    screen::read_keys(keys);
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let mut hup = signal(SignalKind::hangup())?;
    let mut stop = signal(SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw()))?;
    loop {
        screen.terminal().draw(|frame| draw::draw(frame, &state, theme))?;
        let actions = tokio::select! {
            input = inputs.recv() => match input {
                Some(Input::Key(key)) => state.on(Event::Key(key)),
                Some(Input::Resize) => Vec::new(),
                None => vec![Action::Quit],
            },
            Some(event) = events.recv() => state.on(event),
            _ = term.recv() => vec![Action::Quit],
            _ = int.recv() => vec![Action::Quit],
            _ = hup.recv() => vec![Action::Quit],
            _ = stop.recv() => vec![Action::Suspend],
        };
        for action in actions {
            match action {
                Action::Quit => return Ok(()),
                Action::Suspend => screen.suspend()?,
                Action::Ask(request) => {
                    if ask.try_send(request).is_err() {
                        let busy = "The database is busy: try again.".to_owned();
                        state.on(Event::Refused(busy));
                    }
                }
            }
        }
    }
}
