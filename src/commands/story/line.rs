//! Text with marks of emphasis, of which terminals and pages make colours.

use std::borrow::Cow;

/// One step of a story.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What it is about.
    pub title: String,
    /// What it tells.
    pub lines: Vec<Line>,
}

/// One line: a word that says what it is about, and its text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Line {
    /// Such as `target`; may be empty.
    pub label: Cow<'static, str>,
    /// The text, to be read one after the other.
    pub pieces: Vec<Piece>,
}

/// A piece of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// How it is meant.
    pub role: Role,
    /// The text, as the cluster has it: not escaped.
    pub text: String,
}

/// How a piece of text is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Role {
    /// As such.
    #[default]
    Plain,
    /// What the eye should find first.
    Strong,
    /// As it should be.
    Good,
    /// Something to look at.
    Warn,
    /// Something that is broken.
    Bad,
    /// Beside the point.
    Dim,
}

impl Step {
    /// A step that tells nothing yet.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), lines: Vec::new() }
    }

    /// Adds a line.
    pub fn push(&mut self, line: Line) {
        self.lines.push(line);
    }
}

impl Line {
    /// An empty line with a label.
    pub fn new(label: impl Into<Cow<'static, str>>) -> Self {
        Self { label: label.into(), pieces: Vec::new() }
    }

    /// The text alone.
    pub fn text(&self) -> String {
        self.pieces.iter().map(|piece| piece.text.as_str()).collect()
    }

    /// With a piece more.
    #[must_use]
    pub fn with(mut self, role: Role, text: impl Into<String>) -> Self {
        self.pieces.push(Piece { role, text: text.into() });
        self
    }

    /// With plain text.
    #[must_use]
    pub fn plain(self, text: impl Into<String>) -> Self {
        self.with(Role::Plain, text)
    }

    /// With text that the eye should find.
    #[must_use]
    pub fn strong(self, text: impl Into<String>) -> Self {
        self.with(Role::Strong, text)
    }

    /// With good news.
    #[must_use]
    pub fn good(self, text: impl Into<String>) -> Self {
        self.with(Role::Good, text)
    }

    /// With something to look at.
    #[must_use]
    pub fn warn(self, text: impl Into<String>) -> Self {
        self.with(Role::Warn, text)
    }

    /// With something broken.
    #[must_use]
    pub fn bad(self, text: impl Into<String>) -> Self {
        self.with(Role::Bad, text)
    }

    /// With something beside the point.
    #[must_use]
    pub fn dim(self, text: impl Into<String>) -> Self {
        self.with(Role::Dim, text)
    }
}
