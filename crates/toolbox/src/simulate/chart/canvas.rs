//! Lines of a terminal: pieces of styled text, and a grid of cells.

use super::ChartStyle;
use crate::explain::escape;

/// The style of a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Paint {
    #[default]
    Plain,
    Strong,
    Quiet,
    /// Ready pods and values.
    Main,
    /// Missing pods, and events of the scenario.
    Lacking,
    /// Values above tolerance, and warnings.
    Bad,
    /// Targets.
    Target,
}

impl Paint {
    /// The SGR parameter that selects the style.
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "0",
            Self::Strong => "1",
            Self::Quiet => "2",
            Self::Main => "34",
            Self::Lacking => "33",
            Self::Bad => "31",
            Self::Target => "32",
        }
    }
}

/// A line as a list of styled pieces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Row(Vec<(Paint, String)>);

impl Row {
    /// Appends a piece. Control characters are escaped, so that no text can move the cursor.
    pub(super) fn with(mut self, paint: Paint, piece: &str) -> Self {
        self.0.push((paint, escape::terminal(piece).into_owned()));
        self
    }

    /// Prints the line with its line break, cut to the style's width. Each character counts as one column.
    pub(super) fn print(&self, style: &ChartStyle) -> String {
        let mut left = style.width;
        let length: usize = self.0.iter().map(|(_, piece)| piece.chars().count()).sum();
        let ellipsis = if style.ascii { "..." } else { "…" };
        if length > style.width {
            left = left.saturating_sub(ellipsis.chars().count());
        }
        let mut printed = String::new();
        for (paint, piece) in &self.0 {
            let mut piece: String = piece.chars().take(left).collect();
            left -= piece.chars().count();
            if style.ascii {
                piece = piece.chars().map(to_ascii).collect();
            }
            if style.color && *paint != Paint::Plain && !piece.trim().is_empty() {
                printed.extend(["\x1b[", paint.code(), "m", &piece, "\x1b[0m"]);
            } else {
                printed.push_str(&piece);
            }
        }
        if length > style.width {
            printed.push_str(ellipsis);
        }
        let mut printed = printed.trim_end().to_owned();
        printed.push('\n');
        printed
    }
}

/// The ASCII replacement of a character.
fn to_ascii(character: char) -> char {
    match character {
        '█' | '▇' | '▆' | '▅' | '▄' => '#',
        '▃' | '▂' | '▁' => '_',
        '░' => ':',
        '╌' | '─' => '-',
        '━' => '=',
        '│' | '┤' => '|',
        '┬' | '└' => '+',
        '▲' => '^',
        '▼' => 'v',
        '↕' | '◆' => '!',
        '→' => '>',
        '\u{2800}' => ' ',
        '\u{2801}'..='\u{28ff}' => '*',
        _ if character.is_ascii() => character,
        _ => '?',
    }
}

/// The cells of one panel, from the top left.
#[derive(Debug, Clone)]
pub(super) struct Grid {
    columns: usize,
    cells: Vec<(Paint, char)>,
}

impl Grid {
    /// Creates a grid of empty cells.
    pub(super) fn new(columns: usize, rows: usize) -> Self {
        Self { columns, cells: vec![(Paint::Plain, ' '); columns * rows] }
    }

    /// Sets a cell. Cells outside of the grid are ignored.
    pub(super) fn set(&mut self, column: usize, row: usize, paint: Paint, character: char) {
        if column < self.columns
            && let Some(cell) = self.cells.get_mut(row * self.columns + column)
        {
            *cell = (paint, character);
        }
    }

    /// Adds a braille dot: each cell has two dots across and four down.
    pub(super) fn dot(&mut self, x: usize, y: usize, paint: Paint) {
        /// The bit of each dot, by row and column.
        const DOTS: [[u32; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
        let (column, row) = (x / 2, y / 4);
        let bit = DOTS.get(y % 4).and_then(|dots| dots.get(x % 2)).copied().unwrap_or(0);
        if column < self.columns
            && let Some(cell) = self.cells.get_mut(row * self.columns + column)
        {
            let (before, had) = match u32::from(cell.1) {
                code @ 0x2800..=0x28ff => (code - 0x2800, cell.0),
                _ => (0, paint),
            };
            let paint = if had == Paint::Bad { had } else { paint };
            *cell = (paint, char::from_u32(0x2800 + (before | bit)).unwrap_or(' '));
        }
    }

    /// The rows, each after its label and the axis.
    pub(super) fn rows(&self, labels: &[String], gutter: usize) -> Vec<Row> {
        let rows = self.cells.chunks(self.columns.max(1)).enumerate();
        rows.map(|(index, cells)| {
            let label = labels.get(index).map_or("", String::as_str);
            let axis = if label.is_empty() { '│' } else { '┤' };
            let width = gutter - 2;
            let mut row = Row::default().with(Paint::Quiet, &format!("{label:>width$} {axis}"));
            for piece in cells.chunk_by(|one, other| one.0 == other.0) {
                let text: String = piece.iter().map(|(_, character)| *character).collect();
                row = row.with(piece.first().map_or(Paint::Plain, |(paint, _)| *paint), &text);
            }
            row
        })
        .collect()
    }
}
