//! Events as data: the reports of a sync about an HPA.

/// One event about an HPA, before it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventIntent {
    /// `Normal` or `Warning`.
    pub kind: EventKind,
    /// Machine-readable reason in one word: `SuccessfulRescale`, `FailedGetScale`, ...
    pub reason: &'static str,
    /// Human-readable sentence.
    pub message: String,
}

/// The `type` of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventKind {
    /// `Normal`
    Normal,
    /// `Warning`
    Warning,
}

impl EventKind {
    /// The value in the Event object.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}
