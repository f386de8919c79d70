//! Captures the log lines of this thread.
//!
//! The whole test program has one subscriber. Tests with separate subscribers would race, since tracing
//! caches the interest in events for all threads. Each thread keeps its own lines, and a test in virtual
//! time runs on one thread.

use std::cell::RefCell;
use std::io::{self, Write};
use std::sync::{Arc, Once};

use clock::SystemClock;
use concertina::logging::subscriber_to;
use flags::config::LogOptions;

static SET_UP: Once = Once::new();

thread_local! {
    static LINES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

struct Lines;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LINES.with_borrow_mut(|lines| lines.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts to capture lines, and drops the lines of an earlier test on this thread.
pub(crate) fn start() {
    SET_UP.call_once(|| {
        let subscriber = subscriber_to(LogOptions::default(), Arc::new(SystemClock), || Lines);
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
    LINES.with_borrow_mut(Vec::clear);
}

/// The captured lines that contain `part`, at the default log level.
pub(crate) fn with(part: &str) -> Vec<String> {
    LINES.with_borrow(|lines| {
        let text = std::str::from_utf8(lines).unwrap();
        text.lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
    })
}
