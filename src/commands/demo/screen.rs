//! Where the demo is shown: a terminal that is redrawn, or anything else that gets lines.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::process::{Command, Stdio};

use super::frame::{self, Size};
use super::observe::Snapshot;
use super::plain::Plain;

/// The size of a terminal that does not tell.
const DEFAULT_SIZE: Size = Size { columns: 100, rows: 30 };
/// After how many frames the terminal is asked for its size again: five seconds.
const RESIZE: u32 = 20;

const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";
const CLEAR: &str = "\x1b[2J\x1b[H";
const HOME: &str = "\x1b[H";
const CLEAR_TO_END_OF_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// Shows the demo. On a terminal the cursor comes back when this value goes.
pub struct Screen {
    out: Box<dyn Write + Send>,
    mode: Mode,
}

enum Mode {
    Live { color: bool, is_drawing: bool, size: Size, frames: u32 },
    Plain(Plain),
}

impl fmt::Debug for Screen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            Mode::Live { .. } => "live",
            Mode::Plain(_) => "plain",
        };
        f.debug_struct("Screen").field("mode", &mode).finish_non_exhaustive()
    }
}

impl Screen {
    /// Standard output: live if it is a terminal that can do it, in color unless `NO_COLOR` is set.
    pub fn stdout() -> Self {
        let out = Box::new(io::stdout());
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        if !io::stdout().is_terminal() || is_dumb {
            return Self::plain(out);
        }
        let color = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { out, mode: Mode::Live { color, is_drawing: false, size: terminal_size(), frames: 0 } }
    }

    /// Lines, one after the other.
    pub fn plain(out: Box<dyn Write + Send>) -> Self {
        Self { out, mode: Mode::Plain(Plain::default()) }
    }

    /// Whether frames are drawn over each other, so that nobody else should write to the terminal.
    pub fn is_live(&self) -> bool {
        matches!(self.mode, Mode::Live { .. })
    }

    /// Begins: with the introduction, or with an empty screen.
    pub(super) fn begin(&mut self, intro: &[String]) -> io::Result<()> {
        match &mut self.mode {
            Mode::Live { is_drawing, .. } => {
                *is_drawing = true;
                write!(self.out, "{HIDE_CURSOR}{CLEAR}")?;
                self.out.flush()
            }
            Mode::Plain(_) => self.print(intro),
        }
    }

    /// Shows a snapshot.
    pub(super) fn show(&mut self, intro: &[String], snapshot: &Snapshot) -> io::Result<()> {
        match &mut self.mode {
            Mode::Live { color, size, frames, .. } => {
                *frames = frames.wrapping_add(1);
                if frames.is_multiple_of(RESIZE) {
                    *size = terminal_size();
                }
                let lines = frame::render(intro, snapshot, *size, *color);
                // One write a frame, so that none is seen half drawn.
                let mut text = HOME.to_owned();
                for line in lines {
                    text.push_str(&line);
                    text.push_str(CLEAR_TO_END_OF_LINE);
                    text.push_str("\r\n");
                }
                text.push_str(CLEAR_BELOW);
                self.out.write_all(text.as_bytes())?;
                self.out.flush()
            }
            Mode::Plain(plain) => {
                let lines = plain.lines(snapshot);
                self.print(&lines)
            }
        }
    }

    /// Ends drawing and brings the cursor back. The last frame stays.
    pub(super) fn end(&mut self) -> io::Result<()> {
        if let Mode::Live { is_drawing, .. } = &mut self.mode
            && std::mem::take(is_drawing)
        {
            write!(self.out, "{SHOW_CURSOR}")?;
            self.out.flush()?;
        }
        Ok(())
    }

    /// Prints lines below everything else.
    pub(super) fn print(&mut self, lines: &[String]) -> io::Result<()> {
        for line in lines {
            writeln!(self.out, "{line}")?;
        }
        self.out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs no cursor.
        let _ = self.end();
    }
}

/// How wide the terminal is.
pub(in crate::commands) fn terminal_columns() -> usize {
    terminal_size().columns
}

/// The size of the terminal at standard input, as `stty` tells it: asking the system needs code that is not safe.
fn terminal_size() -> Size {
    let answer = Command::new("stty").arg("size").stdin(Stdio::inherit()).stderr(Stdio::null()).output();
    let text = answer.map(|answer| String::from_utf8_lossy(&answer.stdout).into_owned()).unwrap_or_default();
    read_size(&text).unwrap_or(DEFAULT_SIZE)
}

/// Rows and columns; a terminal that does not know its size says 0.
fn read_size(text: &str) -> Option<Size> {
    let (rows, columns) = text.trim().split_once(' ')?;
    let size = Size { columns: columns.parse().ok()?, rows: rows.parse().ok()? };
    (size.columns > 0 && size.rows > 0).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::{Size, read_size};

    #[test]
    fn a_size_is_rows_and_columns_and_both_above_zero() {
        assert_eq!(read_size("24 80\n"), Some(Size { columns: 80, rows: 24 }));
        assert_eq!(read_size("0 0\n"), None);
        assert_eq!(read_size(""), None);
    }
}
