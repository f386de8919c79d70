//! Runs many seeds on all cores. The tests of the simulation, the handover and the scaling policies use this module.

use std::io::Write as _;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use parking_lot::Mutex;

/// The seeds in an environment variable, like `300` or `300..600`, or `default`.
pub(crate) fn chosen(variable: &str, default: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var(variable) else { return default };
    let (from, to) = text.split_once("..").unwrap_or(("0", &text));
    let range = from.trim().parse().ok().zip(to.trim().parse().ok()).map(|(from, to)| from..to);
    range.unwrap_or_else(|| panic!("{variable}: {text:?} must be like 300 or 300..600"))
}

/// Plays each seed once. Each core takes the next seed.
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

pub(crate) use bugs;
