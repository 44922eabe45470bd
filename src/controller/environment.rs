//! The environment of processes below the guardian, and the hidden command that they begin as.

/// The process id of the guardian.
pub const GUARDIAN: &str = "TUSKLINE_GUARDIAN";
/// Where the controller makes its sockets.
pub const DIRECTORY: &str = "TUSKLINE_SOCKETS";
/// Where executors speak to the controller.
pub const SOCKET: &str = "TUSKLINE_SOCKET";
/// Where their output goes: a socket of the controller.
pub const OUTPUT: &str = "TUSKLINE_OUTPUT";
/// The process id of the executor, for all that it starts: by it they are found when it ends.
pub const PROCESS: &str = "TUSKLINE_PROCESS";

/// A process of the guardian begins as this command of this program.
pub const START: &str = "start-executor";
