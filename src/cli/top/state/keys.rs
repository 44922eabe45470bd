//! The meaning of each key, which depends on the screen.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{Action, Dialog, Inside, Opened, Request, State};
use crate::cli::top::command::Command;
use crate::cli::top::view::{Target, View};

/// Most characters of a reason, the same bound as in the database.
const REASON_CHARS: usize = 500;
/// Lines of a page.
const PAGE: usize = 10;

impl State {
    /// Takes a key in. Escape and a key that arrive together are read as this key with Alt.
    pub(super) fn on_key(&mut self, key: KeyEvent) -> Vec<Action> {
        if key.modifiers.contains(KeyModifiers::ALT) {
            let keys = [KeyEvent::from(KeyCode::Esc), KeyEvent::from(key.code)];
            return keys.into_iter().flat_map(|key| self.on_key(key)).collect();
        }
        match (key.code, key.modifiers.contains(KeyModifiers::CONTROL)) {
            (KeyCode::Char('c'), true) => return vec![Action::Quit],
            (KeyCode::Char('z'), true) => return vec![Action::Suspend],
            (_, true) => return Vec::new(),
            _ => {}
        }
        if self.dialog.is_some() {
            return self.in_dialog(key.code);
        }
        if self.filtering {
            return self.in_filter(key.code);
        }
        self.notice = None;
        if std::mem::take(&mut self.help) {
            return Vec::new();
        }
        match key.code {
            KeyCode::Char('q') => vec![Action::Quit],
            KeyCode::Char('?') => {
                self.help = true;
                Vec::new()
            }
            KeyCode::Char('g') => self.ask_to_pause(),
            KeyCode::Char('u') => self.ask_to_open(),
            KeyCode::Char('r') => self.ask_to_redrive(),
            KeyCode::Esc => self.back(),
            _ if self.opened.is_some() => self.in_opened(key.code),
            code => self.in_list(code),
        }
    }

    fn in_list(&mut self, code: KeyCode) -> Vec<Action> {
        let (at, views) = (self.selected(), View::ALL.len());
        match code {
            KeyCode::Char(digit @ '1'..='5') => {
                self.show(View::ALL[digit as usize - '1' as usize]);
            }
            KeyCode::Tab | KeyCode::Right | KeyCode::Char('l') => self.show(self.view.step(1)),
            KeyCode::BackTab | KeyCode::Left | KeyCode::Char('h') => {
                self.show(self.view.step(views - 1));
            }
            KeyCode::Char('/') => self.filtering = true,
            KeyCode::Enter => return self.open_selected(),
            code => {
                if let Some(to) = moved(code, at) {
                    self.select(to);
                }
            }
        }
        Vec::new()
    }

    fn show(&mut self, view: View) {
        self.view = view;
        self.follow();
    }

    fn in_opened(&mut self, code: KeyCode) -> Vec<Action> {
        if matches!(code, KeyCode::Char('1'..='5') | KeyCode::Tab | KeyCode::BackTab) {
            let closed = self.back();
            self.in_list(code);
            return closed;
        }
        if let Some(opened) = &mut self.opened
            && let Some(to) = moved(code, opened.at)
        {
            opened.at = to;
        }
        self.clamp();
        Vec::new()
    }

    fn in_filter(&mut self, code: KeyCode) -> Vec<Action> {
        match code {
            KeyCode::Enter => self.filtering = false,
            KeyCode::Esc => {
                self.filtering = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) => self.filter.push(c),
            _ => {}
        }
        self.follow();
        Vec::new()
    }

    /// Esc: closes what is open, then the filter.
    fn back(&mut self) -> Vec<Action> {
        if self.opened.take().is_some() {
            return vec![Action::Ask(Request::Open(None))];
        }
        self.filter.clear();
        self.follow();
        Vec::new()
    }

    fn open_selected(&mut self) -> Vec<Action> {
        let facts = self.facts.as_ref().zip(self.row());
        let Some(target) = facts.and_then(|(facts, row)| self.view.target(facts, row)) else {
            return Vec::new();
        };
        self.opened = Some(Opened { target: target.clone(), inside: None, at: 0 });
        vec![Action::Ask(Request::Open(Some(target)))]
    }

    fn in_dialog(&mut self, code: KeyCode) -> Vec<Action> {
        let Some(dialog) = &mut self.dialog else { return Vec::new() };
        match code {
            KeyCode::Esc => self.dialog = None,
            KeyCode::Enter => return self.confirm(),
            KeyCode::Backspace => drop(dialog.reason.pop()),
            KeyCode::Char(c) if dialog.reason.chars().count() < REASON_CHARS => {
                dialog.reason.push(c);
                dialog.complaint = None;
            }
            _ => {}
        }
        Vec::new()
    }

    /// Enter: the command is executed only if its sentences were shown and a reason is given.
    fn confirm(&mut self) -> Vec<Action> {
        let Some(mut dialog) = self.dialog.take() else { return Vec::new() };
        dialog.complaint = if dialog.sentences.is_none() {
            Some("The database is still counting.")
        } else if dialog.reason.trim().is_empty() {
            Some("A reason is needed.")
        } else {
            let reason = dialog.reason.trim().to_owned();
            return vec![Action::Ask(Request::Do(dialog.command, reason))];
        };
        self.dialog = Some(dialog);
        Vec::new()
    }

    /// The lambda that the selection is about.
    fn lambda(&self) -> Option<String> {
        match &self.opened {
            Some(Opened { target: Target::Lambda(lambda) | Target::Dead(lambda, ..), .. }) => {
                Some(lambda.clone())
            }
            Some(_) => None,
            None => {
                let (facts, row) = self.facts.as_ref().zip(self.row())?;
                self.view.lambda(facts, row).map(str::to_owned)
            }
        }
    }

    fn ask_to_pause(&mut self) -> Vec<Action> {
        match self.lambda() {
            Some(lambda) => self.ask(Command::Pause { lambda }),
            None => self.refuse("Select a lambda to pause."),
        }
    }

    /// The gate that is selected inside a lambda, or the only one of a lambda.
    fn ask_to_open(&mut self) -> Vec<Action> {
        let (Some(lambda), Some(facts)) = (self.lambda(), &self.facts) else {
            return self.refuse("Select a lambda with a gate.");
        };
        let gates: Vec<i64> = facts.gates_of(&lambda).map(|gate| gate.gate_id).collect();
        let at = self.opened.as_ref().map(|opened| opened.at);
        match (gates.as_slice(), at.and_then(|at| gates.get(at))) {
            ([gate], _) | (_, Some(gate)) => self.ask(Command::Open { gate: *gate, lambda }),
            ([], _) => self.refuse("No gate of this lambda is set."),
            _ => self.refuse("Several gates are set: press Enter and select one."),
        }
    }

    fn ask_to_redrive(&mut self) -> Vec<Action> {
        let group = match &self.opened {
            Some(Opened { target: Target::Dead(lambda, fingerprint, _), .. }) => {
                Some((lambda.clone(), fingerprint.clone()))
            }
            Some(Opened {
                target: Target::Lambda(lambda),
                inside: Some(Inside::Lambda(groups)),
                at,
            }) => {
                let gates = self.facts.as_ref().map_or(0, |facts| facts.gates_of(lambda).count());
                let group = at.checked_sub(gates).and_then(|at| groups.get(at));
                group.map(|group| (group.lambda.clone(), group.fingerprint.clone()))
            }
            None if self.view == View::Dead => {
                self.facts.as_ref().zip(self.row()).map(|(facts, row)| {
                    let group = &facts.dead_groups[row];
                    (group.lambda.clone(), group.fingerprint.clone())
                })
            }
            _ => None,
        };
        match group {
            Some((lambda, fingerprint)) => self.ask(Command::Redrive { lambda, fingerprint }),
            None => self.refuse("Select a cause of dead letters (view 5)."),
        }
    }

    /// Opens a dialog. It shows its sentences once the database has counted.
    fn ask(&mut self, command: Command) -> Vec<Action> {
        self.dialog = Some(Dialog {
            command: command.clone(),
            sentences: None,
            reason: String::new(),
            complaint: None,
        });
        vec![Action::Ask(Request::Foresee(command))]
    }

    fn refuse(&mut self, why: &str) -> Vec<Action> {
        self.notice = Some(why.to_owned());
        Vec::new()
    }
}

/// The line that a key moves to.
fn moved(code: KeyCode, at: usize) -> Option<usize> {
    Some(match code {
        KeyCode::Down | KeyCode::Char('j') => at + 1,
        KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
        KeyCode::PageDown => at + PAGE,
        KeyCode::PageUp => at.saturating_sub(PAGE),
        KeyCode::Home => 0,
        KeyCode::End | KeyCode::Char('G') => usize::MAX,
        _ => return None,
    })
}
