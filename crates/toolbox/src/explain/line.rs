//! Text with emphasis, which terminals and pages show as colors.

use std::borrow::Cow;

/// One step of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The title.
    pub title: String,
    /// The content.
    pub lines: Vec<Line>,
}

/// One line: a label and its text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Line {
    /// The label, such as `target`. May be empty.
    pub label: Cow<'static, str>,
    /// The pieces of the text, in order.
    pub pieces: Vec<StyledSpan>,
}

/// A piece of a line with one role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StyledSpan {
    /// The emphasis.
    pub role: Role,
    /// The text, not escaped.
    pub text: String,
}

/// The emphasis of a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Role {
    /// No emphasis.
    #[default]
    Plain,
    /// The main statement.
    Strong,
    /// A healthy state.
    Good,
    /// A state that needs attention.
    Warn,
    /// An error.
    Bad,
    /// Secondary information.
    Dim,
}

impl Step {
    /// Creates a step without lines.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), lines: Vec::new() }
    }

    /// Adds a line.
    pub fn push(&mut self, line: Line) {
        self.lines.push(line);
    }
}

impl Line {
    /// Creates an empty line with a label.
    pub fn new(label: impl Into<Cow<'static, str>>) -> Self {
        Self { label: label.into(), pieces: Vec::new() }
    }

    /// Returns the text without its label.
    pub fn text(&self) -> String {
        self.pieces.iter().map(|piece| piece.text.as_str()).collect()
    }

    /// Appends a piece with the given role.
    #[must_use]
    pub fn with(mut self, role: Role, text: impl Into<String>) -> Self {
        self.pieces.push(StyledSpan { role, text: text.into() });
        self
    }

    /// Appends plain text.
    #[must_use]
    pub fn plain(self, text: impl Into<String>) -> Self {
        self.with(Role::Plain, text)
    }

    /// Appends strong text.
    #[must_use]
    pub fn strong(self, text: impl Into<String>) -> Self {
        self.with(Role::Strong, text)
    }

    /// Appends text for a healthy state.
    #[must_use]
    pub fn good(self, text: impl Into<String>) -> Self {
        self.with(Role::Good, text)
    }

    /// Appends text for a state that needs attention.
    #[must_use]
    pub fn warn(self, text: impl Into<String>) -> Self {
        self.with(Role::Warn, text)
    }

    /// Appends text for an error.
    #[must_use]
    pub fn bad(self, text: impl Into<String>) -> Self {
        self.with(Role::Bad, text)
    }

    /// Appends secondary information.
    #[must_use]
    pub fn dim(self, text: impl Into<String>) -> Self {
        self.with(Role::Dim, text)
    }
}
