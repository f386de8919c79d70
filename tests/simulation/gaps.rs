//! What the controller does not promise yet; nothing else is excused.

/// What is remembered survives a fail-over and a restart.
pub(crate) const SURVIVES_RESTARTS: bool = true;
/// A write whose answer was lost is read back, and remembered if it was done.
pub(crate) const READS_BACK: bool = true;
/// A clock that jumps does not change how old what is remembered is.
pub(crate) const STANDS_JUMPS: bool = false;
