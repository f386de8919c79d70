//! Steps, lines and tables, with emphasis that terminals and pages show as colors, and their terminal text.

use std::borrow::Cow;

use crate::words;

/// One step of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The title, such as `Result`.
    pub title: String,
    /// The lines below the title.
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
    /// The emphasis of the text.
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

    /// Appends text without emphasis.
    #[must_use]
    pub fn plain(self, text: impl Into<String>) -> Self {
        self.with(Role::Plain, text)
    }

    /// Appends text for the main statement.
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

/// The style of terminal output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    /// Whether emphasis is shown as colors.
    pub colours: bool,
    /// The maximum number of columns. Longer lines are broken at spaces. `None` leaves wrapping to the terminal.
    pub width: Option<usize>,
}

/// Number of columns to which labels are padded.
const LABEL: usize = 10;
/// Minimum number of columns for the text of a line. A line with fewer columns after its label is not broken.
const NARROWEST: usize = 24;

/// Renders steps for a terminal. Titles are at the margin. Lines are indented, with their labels in a column.
/// A step with a single line without a label becomes one line with title and text.
pub fn terminal(steps: &[Step], style: Style) -> String {
    let mut text = String::new();
    for step in steps {
        match &step.lines[..] {
            [only] if only.label.is_empty() => {
                text.push_str(&style.labelled(Role::Strong, &step.title, LABEL + 2, only, 0));
                text.push('\n');
            }
            lines => {
                text.push_str(&style.line(&Line::new("").strong(step.title.as_str()), 0));
                text.push('\n');
                for line in lines {
                    text.push_str(&style.line(line, 2));
                    text.push('\n');
                }
            }
        }
    }
    text
}

impl Role {
    /// Returns the parameter of the ANSI escape sequence.
    fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Strong => Some("1"),
            Self::Good => Some("32"),
            Self::Warn => Some("33"),
            Self::Bad => Some("31"),
            Self::Dim => Some("2"),
        }
    }
}

impl Style {
    /// Renders one line, `indent` columns from the margin, without a trailing line break. Broken lines
    /// continue under the text.
    pub fn line(self, line: &Line, indent: usize) -> String {
        self.labelled(Role::Dim, &line.label, LABEL, line, indent)
    }

    /// Renders a line without its label, with all spaces. A line that exceeds the width is cut off and ends with `…`.
    pub fn cut(self, line: &Line) -> String {
        let pieces: Vec<(Role, String)> =
            line.pieces.iter().map(|piece| (piece.role, words::terminal(&piece.text).into_owned())).collect();
        let total: usize = pieces.iter().map(|(_, text)| text.chars().count()).sum();
        let mut written = String::new();
        let mut room = match self.width {
            Some(width) if total > width => width.saturating_sub(1),
            _ => usize::MAX,
        };
        for (role, text) in &pieces {
            let kept: String = text.chars().take(room).collect();
            room -= kept.chars().count();
            if !kept.is_empty() {
                self.paint(&mut written, *role, &kept);
            }
        }
        if self.width.is_some_and(|width| width > 0 && total > width) {
            written.push('…');
        }
        written
    }

    fn labelled(self, role: Role, label: &str, columns: usize, line: &Line, indent: usize) -> String {
        let mut written = " ".repeat(indent);
        let mut margin = indent;
        if !label.is_empty() {
            let label = words::terminal(label);
            self.paint(&mut written, role, &format!("{label:columns$}"));
            written.push(' ');
            margin += columns.max(label.chars().count()) + 1;
        }
        self.broken(written, margin, line)
    }

    /// Renders the columns of a row, without breaking them, and the text of its last column. Broken lines continue in
    /// the last column.
    pub fn row(self, columns: &Line, last: &Line) -> String {
        let written = Self { width: None, ..self }.cut(columns);
        self.broken(written, self::columns(&columns.text()), last)
    }

    /// Appends a line to `written`, which takes `margin` columns.
    fn broken(self, mut written: String, margin: usize, line: &Line) -> String {
        let room = self.width.map(|width| width.saturating_sub(margin)).filter(|room| *room >= NARROWEST);
        let mut column = 0;
        for word in words(line) {
            let length: usize = word.pieces.iter().map(|(_, text)| text.chars().count()).sum();
            if column > 0 {
                if room.is_some_and(|room| column + word.spaces + length > room) {
                    written.push('\n');
                    written.push_str(&" ".repeat(margin));
                    column = 0;
                } else {
                    written.push_str(&" ".repeat(word.spaces));
                    column += word.spaces;
                }
            }
            for (role, text) in &word.pieces {
                self.paint(&mut written, *role, text);
            }
            column += length;
        }
        written
    }

    fn paint(self, written: &mut String, role: Role, text: &str) {
        match role.code() {
            Some(code) if self.colours => written.extend(["\x1b[", code, "m", text, "\x1b[0m"]),
            _ => written.push_str(text),
        }
    }
}

/// A part of a line that is never broken: a word, or a number with its unit, and the number of spaces before it.
#[derive(Default)]
struct Word {
    spaces: usize,
    pieces: Vec<(Role, String)>,
}

/// Escapes a line and splits it into words.
fn words(line: &Line) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut spaces = 0;
    let mut in_word = false;
    for piece in &line.pieces {
        let text = words::terminal(&piece.text);
        for (index, part) in text.split(' ').enumerate() {
            if index > 0 {
                spaces += 1;
                in_word = false;
            }
            if part.is_empty() {
                continue;
            }
            let last = words.last_mut();
            match last {
                Some(word) if in_word || (spaces == 1 && word.is_number() && is_unit(part)) => {
                    let glue = if in_word { "" } else { " " };
                    word.push(piece.role, &format!("{glue}{part}"));
                }
                _ => {
                    let mut word = Word { spaces, pieces: Vec::new() };
                    word.push(piece.role, part);
                    words.push(word);
                }
            }
            spaces = 0;
            in_word = true;
        }
    }
    words
}

impl Word {
    fn push(&mut self, role: Role, text: &str) {
        match self.pieces.last_mut() {
            Some((last, written)) if *last == role => written.push_str(text),
            _ => self.pieces.push((role, text.to_owned())),
        }
    }

    fn is_number(&self) -> bool {
        self.pieces
            .last()
            .and_then(|(_, text)| text.chars().next_back())
            .is_some_and(|last| last.is_ascii_digit())
    }
}

fn is_unit(text: &str) -> bool {
    let unit = text.trim_end_matches(|character: char| !character.is_alphanumeric() && character != '%');
    matches!(unit, "%" | "s" | "min" | "h" | "d" | "Ki" | "Mi" | "Gi" | "Ti" | "pod" | "pods")
}

/// A cell of a table: its emphasis and its text, not escaped.
pub type Cell = (Role, String);

/// Creates a cell without emphasis. An empty text becomes a dash.
pub fn plain(text: impl Into<String>) -> Cell {
    let text = text.into();
    (Role::Plain, if text.is_empty() { "-".to_owned() } else { text })
}

impl Style {
    /// Renders rows with columns as wide as their widest cells. The last column is not padded.
    pub fn table(self, head: &[&str], rows: &[Vec<Cell>]) -> String {
        let head = head.iter().map(|title| (Role::Strong, (*title).to_owned())).collect::<Vec<_>>();
        let all = [&head].into_iter().chain(rows);
        let mut widths = vec![0; head.len()];
        for row in all.clone() {
            for (width, (_, text)) in widths.iter_mut().zip(row) {
                *width = (*width).max(columns(text));
            }
        }
        let mut rendered = String::new();
        for row in all {
            let mut line = Line::new("");
            let last = row.len().saturating_sub(1);
            for (index, ((role, text), width)) in row.iter().zip(&widths).enumerate() {
                let padding = if index == last { 0 } else { (width + 1).saturating_sub(columns(text)) };
                line = line.with(*role, text.as_str()).plain(" ".repeat(padding));
            }
            rendered.push_str(&self.cut(&line));
            rendered.push('\n');
        }
        rendered
    }

    /// Renders a label and a text as one line, with its line break. An empty label takes no space.
    pub fn text_line(self, label: &'static str, text: impl Into<String>) -> String {
        self.line(&Line::new(label).plain(text), 0) + "\n"
    }
}

/// Returns the width of an escaped text in columns.
fn columns(text: &str) -> usize {
    words::terminal(text).chars().count()
}
