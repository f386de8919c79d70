//! The output of the demo: a terminal that is redrawn, or a stream of lines.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use super::frame;
use super::observe::{HpaState, Snapshot};
use terminal::options::{Color, Size};

/// The number of frames between two reads of the terminal's size: the frames of five seconds.
const RESIZE: u32 = 20;
/// The interval between lines with the state of all HPAs.
const STATE: Duration = Duration::from_secs(5);
/// The minimum interval between two lines about the same event. The count of some events increases with every sync.
const REPEAT: Duration = Duration::from_secs(30);

const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";
const CLEAR: &str = "\x1b[2J\x1b[H";
const HOME: &str = "\x1b[H";
const CLEAR_TO_END_OF_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// The output of the demo. Dropping the screen restores the terminal's cursor.
pub struct Screen {
    out: Box<dyn Write + Send>,
    mode: Mode,
}

#[derive(Debug)]
enum Mode {
    /// `frames` is the number of frames since the start.
    Live {
        color: bool,
        is_drawing: bool,
        size: Size,
        frames: u32,
    },
    Plain(Plain),
}

impl fmt::Debug for Screen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Screen").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Screen {
    /// Creates a screen on standard output. On a capable terminal, the screen is redrawn, in color if
    /// `color` applies. Any other output is a stream of lines without colors.
    pub fn stdout(color: Color) -> Self {
        let out = Box::new(io::stdout());
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        if !io::stdout().is_terminal() || is_dumb {
            return Self::plain(out);
        }
        let color = color.applies(true);
        Self { out, mode: Mode::Live { color, is_drawing: false, size: Size::from_terminal(), frames: 0 } }
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

    /// Draws a snapshot, or prints its changes.
    pub(super) fn show(&mut self, intro: &[String], snapshot: &Snapshot) -> io::Result<()> {
        match &mut self.mode {
            Mode::Live { color, size, frames, .. } => {
                *frames = frames.wrapping_add(1);
                if frames.is_multiple_of(RESIZE) {
                    *size = Size::from_terminal();
                }
                let lines = frame::render(intro, snapshot, *size, *color);
                // A frame is a single write, so that no partial frame is visible.
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
        // The error is ignored, because a closed terminal has no cursor.
        let _ = self.stop();
    }
}

/// The view without a terminal: one line per change, and every 5 seconds a line with the state of all HPAs.
#[derive(Debug, Default)]
struct Plain {
    /// The printed replicas of each HPA, by namespace and name.
    replicas: BTreeMap<String, i64>,
    /// The printed count of each event and the time of its line, by the event's UID.
    events: BTreeMap<String, (i64, Duration)>,
    /// The time of the next line with the state of all HPAs.
    next_state: Duration,
}

impl Plain {
    /// Returns the lines to print for a snapshot.
    fn lines(&mut self, snapshot: &Snapshot) -> Vec<String> {
        let time = format!("{:>4}s", snapshot.elapsed.as_secs());
        let mut lines = Vec::new();
        for hpa in &snapshot.hpas {
            let key = hpa.key();
            let before = self.replicas.insert(key.clone(), hpa.replicas);
            if let Some(before) = before.filter(|before| *before != hpa.replicas) {
                lines.push(format!("{time}  {key}  {before} -> {} replicas  {}", hpa.replicas, metrics(hpa)));
            }
        }
        self.replicas.retain(|key, _| snapshot.hpas.iter().any(|hpa| hpa.key() == *key));
        for event in &snapshot.events {
            let printed = self.events.get(&event.uid);
            let is_due = printed
                .is_none_or(|printed| event.count > printed.0 && snapshot.elapsed >= printed.1 + REPEAT);
            // The line about the change of the replicas already reports a rescale.
            if is_due && event.reason != "SuccessfulRescale" {
                self.events.insert(event.uid.clone(), (event.count, snapshot.elapsed));
                lines.push(format!("{time}  {}  {}  {}", event.hpa, event.reason, one_line(&event.message)));
            }
        }
        self.events.retain(|uid, _| snapshot.events.iter().any(|event| event.uid == *uid));
        if snapshot.elapsed >= self.next_state && !snapshot.hpas.is_empty() {
            self.next_state = snapshot.elapsed + STATE;
            let states: Vec<_> = snapshot.hpas.iter().map(state).collect();
            lines.push(format!("{time}  {}", states.join(" | ")));
        }
        lines
    }
}

fn state(hpa: &HpaState) -> String {
    format!("{} {}/{} ready  {}", hpa.name, hpa.ready, hpa.replicas, metrics(hpa)).trim_end().to_owned()
}

fn metrics(hpa: &HpaState) -> String {
    let each = hpa.metrics.iter().map(|metric| {
        format!("{} {} of {}", metric.name, metric.current.as_deref().unwrap_or("unknown"), metric.target)
    });
    each.collect::<Vec<_>>().join(", ")
}

fn one_line(message: &str) -> String {
    message.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::super::observe::{EventState, MetricState};
    use super::*;

    #[test]
    fn read_size_requires_rows_and_columns_above_zero() {
        assert_eq!(Size::parse("24 80\n"), Some(Size { columns: 80, rows: 24 }));
        assert_eq!(Size::parse("0 0\n"), None);
        assert_eq!(Size::parse(""), None);
    }

    fn snapshot(seconds: u64, replicas: i64) -> Snapshot {
        let metric = MetricState {
            name: "cpu".to_owned(),
            current: Some("90%".to_owned()),
            target: "60%".to_owned(),
            ratio: Some(1.5),
        };
        let hpa = HpaState {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            replicas,
            ready: 1,
            metrics: vec![metric],
            ..HpaState::default()
        };
        Snapshot { elapsed: Duration::from_secs(seconds), hpas: vec![hpa], ..Snapshot::default() }
    }

    #[test]
    fn plain_prints_changes_once_and_the_state_every_5_s() {
        let mut plain = Plain::default();
        assert_eq!(plain.lines(&snapshot(0, 2)), ["   0s  web 1/2 ready  cpu 90% of 60%"]);
        assert_eq!(plain.lines(&snapshot(1, 2)), Vec::<String>::new());
        assert_eq!(plain.lines(&snapshot(2, 4)), ["   2s  shop/web  2 -> 4 replicas  cpu 90% of 60%"]);
        assert_eq!(plain.lines(&snapshot(3, 4)), Vec::<String>::new());
        assert_eq!(plain.lines(&snapshot(5, 4)), ["   5s  web 1/4 ready  cpu 90% of 60%"]);
    }

    #[test]
    fn plain_repeats_an_event_when_it_is_ongoing() {
        let mut plain = Plain { next_state: Duration::MAX, ..Plain::default() };
        let mut lines = |seconds, reason: &str, count| {
            let event = EventState {
                uid: reason.to_owned(),
                count,
                hpa: "shop/web".to_owned(),
                reason: reason.to_owned(),
                message: "no\nmetrics".to_owned(),
                ..EventState::default()
            };
            plain.lines(&Snapshot { events: vec![event], ..snapshot(seconds, 2) })
        };
        let failed = "FailedGetResourceMetric";
        assert_eq!(lines(1, failed, 1), ["   1s  shop/web  FailedGetResourceMetric  no metrics"]);
        assert_eq!(lines(2, failed, 2), Vec::<String>::new());
        assert_eq!(lines(31, failed, 31).len(), 1);
        assert_eq!(lines(90, failed, 31), Vec::<String>::new(), "the event stopped");
        assert_eq!(
            lines(91, "SuccessfulRescale", 1),
            Vec::<String>::new(),
            "the line with the counts reports it"
        );
    }
}
