//! What the controller logs on this thread.
//!
//! There is one subscriber for the whole test program, as one per test would race: which events are of interest is
//! cached for all threads. Each thread keeps its own lines, and a test in virtual time is one thread.

use std::cell::RefCell;
use std::io::{self, Write};
use std::sync::{Arc, Once};

use concertina::clock::SystemClock;
use concertina::telemetry::logging::{LogOptions, subscriber_to};

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

/// Begins to keep lines, without those of an earlier test on this thread.
pub(crate) fn begin() {
    SET_UP.call_once(|| {
        let subscriber = subscriber_to(LogOptions::default(), Arc::new(SystemClock), || Lines);
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
    LINES.with_borrow_mut(Vec::clear);
}

/// The lines with this in them, as an operator sees them by default.
pub(crate) fn with(part: &str) -> Vec<String> {
    LINES.with_borrow(|lines| {
        let text = std::str::from_utf8(lines).unwrap();
        text.lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
    })
}
