//! The terminal: the screen takes it while it runs, and gives it back in every case.
//!
//! Promises: raw mode and the alternate screen end with [`Screen`], at a panic, and before the process stops.

use std::io;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, KeyEvent, KeyEventKind};
use rustix::process::{Signal, kill_current_process_group};
use tokio::sync::mpsc::UnboundedSender;

/// The terminal, in the state that the screen needs.
pub struct Screen {
    terminal: DefaultTerminal,
}

/// Something that the terminal has sent.
#[derive(Debug)]
pub enum Input {
    Key(KeyEvent),
    /// It has another size.
    Resize,
}

impl Screen {
    /// Takes the terminal. A panic gives it back before the message of the panic is printed.
    ///
    /// # Errors
    /// The terminal refuses.
    pub fn take() -> io::Result<Self> {
        Ok(Self { terminal: ratatui::try_init()? })
    }

    pub fn terminal(&mut self) -> &mut DefaultTerminal {
        &mut self.terminal
    }

    /// Gives the terminal back and stops the process group, as a shell expects at Ctrl-Z. Returns when the
    /// process goes on, with the terminal taken again.
    ///
    /// # Errors
    /// The terminal refuses.
    pub fn suspend(&mut self) -> io::Result<()> {
        self.terminal.show_cursor()?;
        ratatui::try_restore()?;
        kill_current_process_group(Signal::STOP)?;
        // A new terminal draws everything. Its `clear` would ask for the cursor, and the thread that reads
        // the keys would get the answer.
        self.terminal = ratatui::try_init()?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Reads the terminal in a thread of its own, which ends with the process.
pub fn read_keys(inputs: UnboundedSender<Input>) {
    std::thread::spawn(move || {
        while let Ok(read) = event::read() {
            let input = match read {
                event::Event::Key(key) if key.kind != KeyEventKind::Release => Input::Key(key),
                event::Event::Resize(..) => Input::Resize,
                _ => continue,
            };
            if inputs.send(input).is_err() {
                return;
            }
        }
    });
}
