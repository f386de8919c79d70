//! The exit codes of the commands.

/// The result needs attention, such as a finding or a difference.
pub const FOUND: u8 = 3;
/// The user interrupted the command: 128 plus the number of SIGINT, as in shells.
pub const INTERRUPTED: u8 = 130;
