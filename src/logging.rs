//! Logs to standard error, one line per event, as text or JSON.
//!
//! Names and messages from the cluster cannot forge log lines: line breaks, terminal sequences and bidirectional marks
//! are escaped. The output has no colors.

use std::fmt::{self, Write as _};
use std::io::{self, Write};

use tracing::level_filters::LevelFilter;
use tracing::{Subscriber, subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::SubscriberExt;

use clock::SharedClock;
use flags::config::{LogFormat, LogOptions};

/// The error of a second call of [`set_up`].
#[derive(Debug, thiserror::Error)]
#[error("logging is already set up in this process")]
pub struct AlreadySetUp;

/// Returns the level of a verbosity.
fn level(options: LogOptions) -> LevelFilter {
    match options.verbosity {
        0..=3 => LevelFilter::INFO,
        4..=5 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

/// Selects the logged events. The libraries for HTTP and TLS log details only from verbosity 8. kube's client logs
/// only errors, because its warnings contain whole responses of the API server.
fn filter(options: LogOptions) -> Targets {
    let libraries = if options.verbosity >= 8 { LevelFilter::TRACE } else { LevelFilter::WARN };
    Targets::new()
        .with_default(level(options))
        .with_targets(["hyper", "hyper_util", "rustls", "tower", "h2"].map(|library| (library, libraries)))
        .with_target("kube_client", LevelFilter::ERROR)
}

/// Logs the events of this process to standard error, with times from `clock`.
///
/// # Errors
/// Returns [`AlreadySetUp`] on the second call.
pub fn set_up(options: LogOptions, clock: SharedClock) -> Result<(), AlreadySetUp> {
    subscriber::set_global_default(subscriber_to(options, clock, io::stderr)).map_err(|_| AlreadySetUp)
}

/// Creates the subscriber of [`set_up`] with another writer.
pub fn subscriber_to<W>(options: LogOptions, clock: SharedClock, to: W) -> impl Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let layer =
        tracing_subscriber::fmt::layer().with_ansi(false).with_timer(Timer(clock)).with_writer(OneLine(to));
    let layer: Box<dyn tracing_subscriber::Layer<_> + Send + Sync> = match options.format {
        LogFormat::Text => Box::new(layer),
        LogFormat::Json => Box::new(layer.json().flatten_event(true)),
    };
    tracing_subscriber::registry().with(layer).with(filter(options))
}

/// Formats times in UTC with microseconds.
struct Timer(SharedClock);

impl FormatTime for Timer {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        write!(writer, "{:.6}", self.0.now())
    }
}

/// Creates writers that escape each event to one line.
struct OneLine<W>(W);

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for OneLine<W> {
    type Writer = Escaping<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Escaping(self.0.make_writer())
    }
}

/// Escapes the events. Each call of `write` receives one whole event, with a line break at its end.
struct Escaping<W>(W);

impl<W: Write> Write for Escaping<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let mut escaped = escape(line, breaks_out);
        escaped.push('\n');
        self.0.write_all(escaped.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Escapes the text of an error for a terminal, except line breaks. The error may contain text from the cluster.
pub fn for_terminal(error: &str) -> String {
    escape(error, |character| character != '\n' && breaks_out(character))
}

/// Replaces the selected characters by JSON escapes, such as `\u001b`.
fn escape(text: &str, replaces: impl Fn(char) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len() + 1);
    for character in text.chars() {
        if replaces(character) {
            // Writing to a String cannot fail. Four digits are enough for every character that the callers select.
            let _ = write!(escaped, "\\u{:04x}", u32::from(character));
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Returns whether a character is a control character, a line or paragraph separator, or a bidirectional mark.
fn breaks_out(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;
    use parking_lot::Mutex;
    use tracing::{debug, error, info, trace, warn};

    use super::*;
    use clock::Clock;

    #[derive(Debug)]
    struct FixedTestClock;

    impl Clock for FixedTestClock {
        fn now(&self) -> Timestamp {
            "2026-11-21T12:00:00.25Z".parse().unwrap()
        }
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat, verbosity: u32, events: impl FnOnce()) -> String {
        let lines = Lines::default();
        let to = lines.clone();
        let subscriber =
            subscriber_to(LogOptions { format, verbosity }, Arc::new(FixedTestClock), move || to.clone());
        subscriber::with_default(subscriber, events);
        let bytes = lines.0.lock().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn line_has_time_level_target_message_and_fields() {
        let text = logged(LogFormat::Text, 0, || {
            info!(key = "prod/web", replicas = 3, "scaled");
        });
        assert_eq!(
            text,
            "2026-11-21T12:00:00.250000Z  INFO concertina::logging::tests: scaled key=\"prod/web\" replicas=3\n"
        );
    }

    #[test]
    fn json_has_one_object_per_line() {
        let text = logged(LogFormat::Json, 0, || warn!(key = "prod/web", "two\nlines"));
        let line: serde_json::Value = serde_json::from_str(text.strip_suffix('\n').unwrap()).unwrap();
        assert_eq!(line["level"], "WARN");
        assert_eq!(line["message"], "two\nlines");
        assert_eq!(line["key"], "prod/web");
        assert_eq!(line["timestamp"], "2026-11-21T12:00:00.250000Z");
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn verbosity_selects_the_level() {
        let levels = |verbosity| {
            logged(LogFormat::Text, verbosity, || {
                error!("e");
                info!("i");
                debug!("d");
                trace!("t");
            })
            .lines()
            .count()
        };
        assert_eq!([0, 2, 3, 4, 5, 6, 10].map(levels), [2, 2, 2, 3, 3, 4, 4]);
    }

    #[test]
    fn kube_client_logs_errors_only() {
        let text = logged(LogFormat::Text, 10, || {
            warn!(target: "kube_client::client", "a whole answer");
            error!(target: "kube_client::client", "broken");
        });
        assert_eq!(text.lines().count(), 1, "{text}");
    }

    #[test]
    fn error_for_a_terminal_keeps_its_lines_only() {
        assert_eq!(for_terminal("a\u{1b}[2J\n\u{202e}b\r"), "a\\u001b[2J\n\\u202eb\\u000d");
    }

    #[test]
    fn cluster_text_cannot_forge_a_line() {
        let evil = "x\n2026 ERROR forged\r\u{1b}[31m\u{7}\u{2028}\u{202e}\u{61c}";
        for format in [LogFormat::Text, LogFormat::Json] {
            let text = logged(format, 0, || info!(key = evil, message = %evil));
            assert_eq!(text.lines().count(), 1, "{text}");
            if format == LogFormat::Json {
                let line: serde_json::Value = serde_json::from_str(&text).unwrap();
                assert_eq!(line["key"], evil);
            }
            assert!(!text.trim_end_matches('\n').chars().any(breaks_out), "{text:?}");
        }
    }
}
