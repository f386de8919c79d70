//! Watch streams. The events are equal for every cut of the bytes, and consistent with the events that serde_json reads
//! from whole lines.
//!
//! The input is that of `cuts::parts`. The bytes are a watch of HPAs if they start with `h`, otherwise a watch of pods.

#![no_main]

mod cuts;
mod plant;

use cluster::decode::{HpaObject, WirePod};
use cluster::fuzzing::{DecodedLine, watch};
use cluster::watch::{DeletedObject, Hpas, Pods, Sink};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// A sink that records its calls as text.
#[derive(Debug, Default, PartialEq, Eq)]
struct Given(Vec<String>);

impl Given {
    fn record(&mut self, call: &str, object: &impl std::fmt::Debug) {
        self.0.push(format!("{call} {object:?}"));
    }
}

impl Sink<WirePod<'_>> for Given {
    fn start(&mut self) {}

    fn apply(&mut self, object: WirePod<'_>) {
        self.record("apply", &object);
    }

    fn delete(&mut self, object: DeletedObject) {
        self.record("delete", &object);
    }

    fn done(&mut self) {}
}

impl Sink<HpaObject> for Given {
    fn start(&mut self) {}

    fn apply(&mut self, object: HpaObject) {
        self.record("apply", &object);
    }

    fn delete(&mut self, object: DeletedObject) {
        self.record("delete", &object);
    }

    fn done(&mut self) {}
}

fuzz_target!(|input: &[u8]| {
    let (lengths, bytes) = cuts::parts(input);
    let (hpas, bytes) = bytes.strip_prefix(b"h").map_or((false, bytes), |bytes| (true, bytes));
    let read = |pieces: &[&[u8]]| {
        if hpas {
            watch::<Hpas, _>(pieces, Given::default())
        } else {
            watch::<Pods, _>(pieces, Given::default())
        }
    };
    let whole = read(&[bytes]);
    let mut pieces = cuts::cut(bytes, lengths);
    if plant::planted("watch") && pieces.len() > 3 {
        pieces.remove(2);
    }
    assert_eq!(read(&pieces), whole);
    naive(bytes, &whole);
});

/// Compares the events with those that serde_json reads from whole lines.
fn naive(bytes: &[u8], (given, reported): &(Given, Vec<DecodedLine>)) {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let lines: Vec<&[u8]> =
        bytes[..end].split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).collect();
    assert!(reported.len() <= lines.len());
    let failed = matches!(reported.last(), Some(DecodedLine::Failed(_)));
    assert!(reported.len() == lines.len() || failed, "{reported:?}");
    let mut applied = 0;
    for (line, reported) in lines.iter().zip(reported) {
        let Ok(event) = serde_json::from_slice::<Value>(line) else {
            // The decoder does not validate ignored values, so it accepts some invalid lines.
            let text = String::from_utf8_lossy(line);
            assert!(
                closed(line) || matches!(reported, DecodedLine::Failed(_) | DecodedLine::Skipped),
                "{text}"
            );
            applied += 1;
            continue;
        };
        let version = event["object"]["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        match reported {
            DecodedLine::Event(read) | DecodedLine::InitialEventsEnd(read) => {
                if line.windows(17).filter(|part| part == b"\"resourceVersion\"").count() == 1 {
                    assert_eq!(read, version);
                }
                applied += 1;
            }
            DecodedLine::Skipped | DecodedLine::Failed(_) => {}
        }
    }
    assert!(given.0.len() <= applied + reported.len());
}

/// Returns whether the last byte of a line closes its first bracket.
fn closed(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    let (mut depth, mut in_string, mut escaped) = (0, false, false);
    for (at, byte) in line.iter().enumerate() {
        match byte {
            b'\\' => escaped = !escaped,
            b'"' if !escaped => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth -= 1,
            _ => {}
        }
        escaped &= *byte == b'\\';
        if depth == 0 {
            return at + 1 == line.len() && !in_string;
        }
    }
    false
}
