//! Events as intents: what should be told about an HPA.

/// One event about an HPA, still to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventIntent {
    /// Normal or Warning.
    pub kind: EventKind,
    /// One word for machines: `SuccessfulRescale`, `FailedGetScale`, ...
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
}

/// `type` of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventKind {
    /// `Normal`
    Normal,
    /// `Warning`
    Warning,
}

impl EventKind {
    /// As it is written in the object.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}
