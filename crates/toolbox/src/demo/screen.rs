//! The output of the demo: a terminal that is redrawn, or a stream of lines.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::process::{Command, Stdio};

use super::frame::{self, Size};
use super::observe::Snapshot;
use super::plain::Plain;
use crate::options::answer::Color;

/// The size of a terminal if `stty` does not report it.
const DEFAULT_SIZE: Size = Size { columns: 100, rows: 30 };
/// The number of frames between two reads of the terminal's size. The frames take five seconds.
const RESIZE: u32 = 20;

const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";
const CLEAR: &str = "\x1b[2J\x1b[H";
const HOME: &str = "\x1b[H";
const CLEAR_TO_END_OF_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// The output of the demo. Dropping it restores the terminal's cursor.
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
    /// Creates a screen on standard output. The screen is live on a capable terminal, and has colours unless
    /// `NO_COLOR` is set.
    pub fn stdout() -> Self {
        let out = Box::new(io::stdout());
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        if !io::stdout().is_terminal() || is_dumb {
            return Self::plain(out);
        }
        let color = Color::Auto.applies(true);
        Self { out, mode: Mode::Live { color, is_drawing: false, size: terminal_size(), frames: 0 } }
    }

    /// Creates a screen that prints a stream of lines.
    pub fn plain(out: Box<dyn Write + Send>) -> Self {
        Self { out, mode: Mode::Plain(Plain::default()) }
    }

    /// Starts the output with the introduction, or with an empty screen in live mode.
    pub(super) fn start(&mut self, intro: &[String]) -> io::Result<()> {
        match &mut self.mode {
            Mode::Live { is_drawing, .. } => {
                *is_drawing = true;
                write!(self.out, "{HIDE_CURSOR}{CLEAR}")?;
                self.out.flush()
            }
            Mode::Plain(_) => self.print(intro),
        }
    }

    pub(super) fn show(&mut self, intro: &[String], snapshot: &Snapshot) -> io::Result<()> {
        match &mut self.mode {
            Mode::Live { color, size, frames, .. } => {
                *frames = frames.wrapping_add(1);
                if frames.is_multiple_of(RESIZE) {
                    *size = terminal_size();
                }
                let lines = frame::render(intro, snapshot, *size, *color);
                // Each frame takes one write, so that no partial frame is visible.
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

    /// Stops drawing and restores the cursor. The last frame stays.
    pub(super) fn stop(&mut self) -> io::Result<()> {
        if let Mode::Live { is_drawing, .. } = &mut self.mode
            && std::mem::take(is_drawing)
        {
            write!(self.out, "{SHOW_CURSOR}")?;
            self.out.flush()?;
        }
        Ok(())
    }

    /// Prints lines below the previous output.
    pub(super) fn print(&mut self, lines: &[String]) -> io::Result<()> {
        for line in lines {
            writeln!(self.out, "{line}")?;
        }
        self.out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A closed terminal needs no cursor, so the error is ignored.
        let _ = self.stop();
    }
}

/// Returns the width of the terminal, in columns.
pub(crate) fn terminal_columns() -> usize {
    terminal_size().columns
}

/// Returns the size of the terminal at standard input, as `stty` reports it. The system call would need
/// unsafe code.
fn terminal_size() -> Size {
    let answer = Command::new("stty").arg("size").stdin(Stdio::inherit()).stderr(Stdio::null()).output();
    let text = answer.map(|answer| String::from_utf8_lossy(&answer.stdout).into_owned()).unwrap_or_default();
    read_size(&text).unwrap_or(DEFAULT_SIZE)
}

/// Parses rows and columns. `stty` prints 0 for an unknown size.
fn read_size(text: &str) -> Option<Size> {
    let (rows, columns) = text.trim().split_once(' ')?;
    let size = Size { columns: columns.parse().ok()?, rows: rows.parse().ok()? };
    (size.columns > 0 && size.rows > 0).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::{Size, read_size};

    #[test]
    fn read_size_requires_rows_and_columns_above_zero() {
        assert_eq!(read_size("24 80\n"), Some(Size { columns: 80, rows: 24 }));
        assert_eq!(read_size("0 0\n"), None);
        assert_eq!(read_size(""), None);
    }
}
