//! Renders lines as terminal text.

use super::{Line, Role, Step, escape};

/// The style of terminal output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    /// Whether emphasis is shown as colors.
    pub colours: bool,
    /// The maximum number of columns. Longer lines are broken at spaces. `None` leaves wrapping to the terminal.
    pub width: Option<usize>,
}

/// The width to which labels are padded.
const LABEL: usize = 10;
/// The minimum number of columns after the indentation. Lines with fewer columns are not broken.
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

    /// Renders a line without its label, cut off at the width. All spaces are kept.
    pub fn cut(self, line: &Line) -> String {
        let pieces: Vec<(Role, String)> = line
            .pieces
            .iter()
            .map(|piece| (piece.role, escape::terminal(&piece.text).into_owned()))
            .collect();
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
            let label = escape::terminal(label);
            self.paint(&mut written, role, &format!("{label:columns$}"));
            written.push(' ');
            margin += columns.max(label.chars().count()) + 1;
        }
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

/// A unit that is never broken: text without spaces in one or several roles, and the preceding spaces.
#[derive(Default)]
struct Word {
    spaces: usize,
    pieces: Vec<(Role, String)>,
}

/// Splits a line into words, escaped. A number and its unit form one word.
fn words(line: &Line) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut spaces = 0;
    let mut in_word = false;
    for piece in &line.pieces {
        let text = escape::terminal(&piece.text);
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
