//! Random numbers from seeds, runs of many seeds on all cores, and planted bugs. The tests of the simulation, the
//! handover and the scaling policies use this module.

use std::io::Write as _;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use bytes::Bytes;
use fake_cluster::Answer;
use futures::StreamExt as _;
use parking_lot::Mutex;
use serde_json::Value;

/// The seeds in an environment variable, such as `300` or `300..600`, or `default`.
pub(crate) fn chosen(variable: &str, default: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var(variable) else { return default };
    let (from, to) = text.split_once("..").unwrap_or(("0", &text));
    let range = from.trim().parse().ok().zip(to.trim().parse().ok()).map(|(from, to)| from..to);
    range.unwrap_or_else(|| panic!("{variable}: {text:?} must be like 300 or 300..600"))
}

/// Runs `play` once for each seed, on all cores.
pub(crate) fn each_seed(seeds: &Range<u64>, play: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(seeds.start);
    let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    play(seed);
                }
            });
        }
    });
}

/// The lowest seed below `count` with a finding. Prints the seed and its finding under `name`.
pub(crate) fn first_finding(
    name: &str,
    count: u64,
    find: impl Fn(u64) -> Option<&'static str> + Sync,
) -> Option<u64> {
    let first = Mutex::new(None::<(u64, &'static str)>);
    each_seed(&(0..count), |seed| {
        let is_later = |(found, _)| found < seed;
        if !first.lock().is_some_and(is_later)
            && let Some(finding) = find(seed)
        {
            let mut first = first.lock();
            if !first.is_some_and(is_later) {
                *first = Some((seed, finding));
            }
        }
    });
    let first = first.into_inner();
    match first {
        Some((seed, finding)) => print(&format!("{name}: found by seed {seed}: {finding}")),
        None => print(&format!("{name}: not found by {count} seeds")),
    }
    first.map(|(seed, _)| seed)
}

/// Prints to standard error even if the test runner captures output.
pub(crate) fn print(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Defines an enum of planted bugs with `ALL` and `name`.
macro_rules! bugs {
    ($kind:ident: $($(#[$doc:meta])* $bug:ident: $name:literal,)*) => {
        /// A planted bug.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $kind {
            $($(#[$doc])* $bug,)*
        }

        impl $kind {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$bug,)*];

            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$bug => $name,)*
                }
            }
        }
    };
}

/// A small random number generator (splitmix64): equal seeds yield equal numbers on every machine.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(mix(seed ^ 0x9e37_79b9_7f4a_7c15))
    }

    /// A separate generator for one purpose. More draws for one purpose do not affect the other generators.
    pub(crate) fn for_purpose(seed: u64, purpose: u64) -> Self {
        Self::new(mix(seed) ^ mix(purpose.wrapping_mul(0xd129_0d3f_8a5b_11c7)))
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number from 0 to `bound`, excluding `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound.max(1)
    }

    /// A number from `low` to `high`, including both.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Returns true in `percent` of 100 cases.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap()
    }

    pub(crate) fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())].clone()
    }
}

/// A random number that depends on its two arguments only.
pub(crate) fn hash(one: u64, other: u64) -> u64 {
    mix(mix(one) ^ other.wrapping_mul(0x2545_f491_4f6c_dd1d))
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

pub(crate) use bugs;

/// Changes the objects in a response to a list or a watch request. `change` receives the type of a watch event, or
/// `LIST` for an item of a list. It returns whether the watch event is delivered.
pub(crate) fn change_objects(
    answer: Answer,
    change: impl Fn(&str, &mut Value) -> bool + Send + 'static,
) -> Answer {
    match answer {
        Answer::Pieces(pieces) => Answer::Pieces(Box::pin(pieces.map(move |piece| {
            let piece = piece?;
            let mut changed = Vec::new();
            for line in piece.split_inclusive(|byte| *byte == b'\n') {
                let Ok(mut event) = serde_json::from_slice::<Value>(line) else {
                    changed.extend_from_slice(line);
                    continue;
                };
                let kind = event["type"].as_str().unwrap_or_default().to_owned();
                if change(&kind, &mut event["object"]) {
                    changed.extend_from_slice(format!("{event}\n").as_bytes());
                }
            }
            Ok(Bytes::from(changed))
        }))),
        Answer::Whole(whole) if whole.code == 200 => {
            let Ok(mut list) = serde_json::from_slice::<Value>(&whole.body) else {
                return Answer::Whole(whole);
            };
            for item in list["items"].as_array_mut().into_iter().flatten() {
                change("LIST", item);
            }
            Answer::json(200, list.to_string())
        }
        answer => answer,
    }
}
