//! Lines as text for a terminal, and as HTML.

use super::{Line, Role, Step, escape};

/// How a terminal shows things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    /// Whether emphasis becomes colours.
    pub colours: bool,
    /// Lines longer than so many columns are broken at spaces; `None` leaves that to the terminal.
    pub width: Option<usize>,
}

/// Labels are padded to this.
const LABEL: usize = 10;
/// Less room than this beside the indentation is not used to break lines.
const NARROWEST: usize = 24;

/// Steps for a terminal: titles at the margin, lines indented, their labels in a column. What a step tells in one line
/// without a label stands beside its title.
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

/// Steps as HTML: a heading and a description list each. Emphasis becomes the classes `strong`, `good`, `warn`, `bad` and
/// `dim`.
pub fn page(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        text.push_str("<h4>");
        text.push_str(&escape::html(&step.title));
        text.push_str("</h4><dl>");
        for line in &step.lines {
            text.push_str("<dt>");
            text.push_str(&escape::html(&line.label));
            text.push_str("</dt><dd>");
            text.push_str(&html(line));
            text.push_str("</dd>");
        }
        text.push_str("</dl>");
    }
    text
}

/// The text of a line as HTML, without its label.
pub fn html(line: &Line) -> String {
    let mut text = String::new();
    for piece in &line.pieces {
        let escaped = escape::html(&piece.text);
        match piece.role.class() {
            None => text.push_str(&escaped),
            Some(class) => text.extend(["<span class=\"", class, "\">", &escaped, "</span>"]),
        }
    }
    text
}

impl Role {
    fn class(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Strong => Some("strong"),
            Self::Good => Some("good"),
            Self::Warn => Some("warn"),
            Self::Bad => Some("bad"),
            Self::Dim => Some("dim"),
        }
    }

    /// The parameter of the escape sequence that selects it.
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
    /// One line, `indent` columns from the margin, without a line break at its end. Broken lines go on under the text.
    pub fn line(self, line: &Line, indent: usize) -> String {
        self.labelled(Role::Dim, &line.label, LABEL, line, indent)
    }

    /// A line as it is, with all its spaces and no label; what is beyond the width is cut off.
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
        if self.width.is_some_and(|width| total > width) {
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

/// What is not broken: text without spaces, of one role or several, and the spaces before it.
#[derive(Default)]
struct Word {
    spaces: usize,
    pieces: Vec<(Role, String)>,
}

/// The words of a line, escaped. A unit belongs to its number.
fn words(line: &Line) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut spaces = 0;
    let mut begun = false;
    for piece in &line.pieces {
        let text = escape::terminal(&piece.text);
        for (place, part) in text.split(' ').enumerate() {
            if place > 0 {
                spaces += 1;
                begun = false;
            }
            if part.is_empty() {
                continue;
            }
            let last = words.last_mut();
            match last {
                Some(word) if begun || (spaces == 1 && word.is_number() && is_unit(part)) => {
                    let glue = if begun { "" } else { " " };
                    word.push(piece.role, &format!("{glue}{part}"));
                }
                _ => {
                    let mut word = Word { spaces, pieces: Vec::new() };
                    word.push(piece.role, part);
                    words.push(word);
                }
            }
            spaces = 0;
            begun = true;
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
