//! The state of the screen. It takes an event and returns actions. It draws nothing and reads
//! nothing.
//!
//! Promises: a command is executed only after its effects were shown and confirmed. A selection
//! follows its row to the place that the row has after the next look.

mod keys;

use std::collections::BTreeMap;

use ratatui::crossterm::event::KeyEvent;

use super::command::{Command, Meant};
use super::view::{Target, View};
use crate::facts::Facts;
use crate::store::overview::{DeadGroup, HeldTask, Letter};

#[derive(Debug)]
pub enum Event {
    /// A key was pressed.
    Key(KeyEvent),
    /// A look at the installation.
    Facts(Box<Facts>),
    /// A look into one thing.
    Inside(Target, Inside),
    /// The database has counted what a command would change.
    Foreseen(Command, Vec<Meant>),
    /// A command is done; a sentence.
    Done(String),
    /// The database has refused something; a sentence.
    Refused(String),
    /// There is no connection; why.
    Lost(String),
}

/// An order to the loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Quit,
    /// Give the terminal back and stop, as Ctrl-Z does.
    Suspend,
    Ask(Request),
}

/// A question or a command for the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Read one thing in detail, now and at each later reading. None: no longer.
    Open(Option<Target>),
    /// Count what a command would change.
    Foresee(Command),
    /// Do it, for a reason.
    Do(Command, String),
}

/// The answer of a look into one thing.
#[derive(Debug, Clone, PartialEq)]
pub enum Inside {
    /// The dead letters of a lambda by cause.
    Lambda(Vec<DeadGroup>),
    /// The tasks that a worker holds.
    Executor(Vec<HeldTask>),
    /// The example; none: it has returned.
    Dead(Option<Letter>),
}

/// A question that waits for its answer.
#[derive(Debug)]
pub struct Dialog {
    pub command: Command,
    /// The sentences that tell its effects. None: the database is still counting.
    pub sentences: Option<Vec<String>>,
    /// The reason so far.
    pub reason: String,
    /// Why it was not confirmed.
    pub complaint: Option<&'static str>,
}

/// The look into one thing.
#[derive(Debug)]
pub struct Opened {
    pub target: Target,
    /// None: the database has not answered.
    pub inside: Option<Inside>,
    pub at: usize,
}

/// A selection: the name of its row, and where it was.
#[derive(Debug, Default, Clone)]
struct Selection {
    key: Option<String>,
    at: usize,
}

/// All that the screen shows.
#[derive(Debug, Default)]
pub struct State {
    /// None: the database has not answered yet.
    pub facts: Option<Facts>,
    pub view: View,
    /// The thing that is looked into.
    pub opened: Option<Opened>,
    /// The question that is asked.
    pub dialog: Option<Dialog>,
    /// The keys are shown.
    pub help: bool,
    /// Only rows that contain this text are shown.
    pub filter: String,
    /// The filter is being typed.
    pub filtering: bool,
    /// There is no connection; why.
    pub lost: Option<String>,
    /// The last thing that was done or refused.
    pub notice: Option<String>,
    selections: BTreeMap<View, Selection>,
}

impl State {
    /// Begins with a view.
    pub fn of(view: View) -> Self {
        Self { view, ..Self::default() }
    }

    /// Takes an event in.
    pub fn on(&mut self, event: Event) -> Vec<Action> {
        match event {
            Event::Key(key) => return self.on_key(key),
            Event::Facts(facts) => {
                self.facts = Some(*facts);
                self.lost = None;
                self.follow();
            }
            Event::Inside(target, inside) => {
                if let Some(opened) = self.opened.as_mut().filter(|one| one.target == target) {
                    opened.inside = Some(inside);
                }
                self.clamp();
            }
            Event::Foreseen(command, meant) => {
                let facts = self.facts.as_ref();
                if let Some(dialog) = self.dialog.as_mut().filter(|one| one.command == command) {
                    dialog.sentences = facts.map(|facts| command.sentences(facts, &meant));
                }
            }
            Event::Done(said) | Event::Refused(said) => self.notice = Some(said),
            Event::Lost(why) => self.lost = Some(why),
        }
        Vec::new()
    }

    /// The rows of the view that pass the filter, as places in the facts.
    pub fn shown(&self) -> Vec<usize> {
        let Some(facts) = &self.facts else { return Vec::new() };
        let passes = |at: &usize| self.view.text(facts, *at).contains(&self.filter);
        (0..self.view.rows(facts)).filter(passes).collect()
    }

    /// The selected row among [`State::shown`].
    pub fn selected(&self) -> usize {
        self.selections.get(&self.view).map_or(0, |one| one.at)
    }

    /// The place of the selected row in the facts.
    fn row(&self) -> Option<usize> {
        self.shown().get(self.selected()).copied()
    }

    /// Selects a row by its place among those shown.
    fn select(&mut self, at: usize) {
        let shown = self.shown();
        let at = at.min(shown.len().saturating_sub(1));
        let key =
            self.facts.as_ref().zip(shown.get(at)).map(|(facts, row)| self.view.key(facts, *row));
        self.selections.insert(self.view, Selection { key, at });
    }

    /// Finds the selected row again after a look.
    fn follow(&mut self) {
        let Selection { key, at } = self.selections.get(&self.view).cloned().unwrap_or_default();
        let found = self.facts.as_ref().zip(key).and_then(|(facts, key)| {
            self.shown().iter().position(|row| self.view.key(facts, *row) == key)
        });
        self.select(found.unwrap_or(at));
        self.clamp();
    }

    fn clamp(&mut self) {
        let last = self.lines().saturating_sub(1);
        if let Some(opened) = &mut self.opened {
            opened.at = opened.at.min(last);
        }
    }

    /// How many lines of the opened thing can be selected: gates and dead groups of a lambda.
    fn lines(&self) -> usize {
        match &self.opened {
            Some(Opened { target: Target::Lambda(lambda), inside, .. }) => {
                let gates = self.facts.as_ref().map_or(0, |facts| facts.gates_of(lambda).count());
                let groups = match inside {
                    Some(Inside::Lambda(groups)) => groups.len(),
                    _ => 0,
                };
                gates + groups
            }
            Some(Opened { inside: Some(Inside::Executor(tasks)), .. }) => tasks.len(),
            _ => 0,
        }
    }
}
