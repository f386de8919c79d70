//! Watches as they arrive: the same events however the bytes are cut, and those that a reader of whole lines finds.
//!
//! The input is how the bytes are cut (see `cuts`), and the bytes; they are a watch of pods, or of HPAs if they begin
//! with `h`.

#![no_main]

mod cuts;
mod plant;

use concertina::api::decode::{HpaObject, WirePod};
use concertina::api::fuzzing::{Told, watch};
use concertina::api::watch::{Deleted, Hpas, Pods, Sink};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// What a sink was given, printed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Given(Vec<String>);

impl Given {
    fn told(&mut self, what: &str, object: &impl std::fmt::Debug) {
        self.0.push(format!("{what} {object:?}"));
    }
}

impl Sink<WirePod<'_>> for Given {
    fn start(&mut self) {}

    fn apply(&mut self, object: WirePod<'_>) {
        self.told("apply", &object);
    }

    fn delete(&mut self, object: Deleted) {
        self.told("delete", &object);
    }

    fn done(&mut self) {}
}

impl Sink<HpaObject> for Given {
    fn start(&mut self) {}

    fn apply(&mut self, object: HpaObject) {
        self.told("apply", &object);
    }

    fn delete(&mut self, object: Deleted) {
        self.told("delete", &object);
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

/// Line by line, as JSON of any form.
fn naive(bytes: &[u8], (given, told): &(Given, Vec<Told>)) {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let lines: Vec<&[u8]> =
        bytes[..end].split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).collect();
    assert!(told.len() <= lines.len());
    let failed = matches!(told.last(), Some(Told::Failed(_)));
    assert!(told.len() == lines.len() || failed, "{told:?}");
    let mut applied = 0;
    for (line, told) in lines.iter().zip(told) {
        let Ok(event) = serde_json::from_slice::<Value>(line) else {
            // Of what nobody looks at only the end is looked for.
            let text = String::from_utf8_lossy(line);
            assert!(closed(line) || matches!(told, Told::Failed(_) | Told::Skipped), "{text}");
            applied += 1;
            continue;
        };
        let version = event["object"]["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        match told {
            Told::Event(read) | Told::InitialEventsEnd(read) => {
                if line.windows(17).filter(|part| part == b"\"resourceVersion\"").count() == 1 {
                    assert_eq!(read, version);
                }
                applied += 1;
            }
            Told::Skipped | Told::Failed(_) => {}
        }
    }
    assert!(given.0.len() <= applied + told.len());
}

/// Whether what is opened first in a line is closed by its last byte.
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
