//! The cost of the most expensive texts of a tenant. A seeded search over the words of each grammar maximises the heap or
//! the CPU time, and each text that it tries stays within the limits, whether it is valid or not.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod grammars;

use std::collections::BTreeMap;
use std::time::Duration;

use limits::{HEAP, TIME};
use peak_alloc::PeakAlloc;
use rustix::time::{ClockId, clock_gettime};

use self::grammars::Grammar;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// The number of texts in a search, of which half maximise the heap and half the CPU time.
const TEXTS: usize = if cfg!(debug_assertions) { 6 } else { 100 };
/// The maximum number of words that a text repeats.
const WORDS: usize = 24;
/// The CPU time of [`reference`] on the machine of the limits while its other core is idle.
const REFERENCE: Duration = Duration::from_millis(25);
/// The maximum slowness of a machine that the test allows for.
const SLOWEST: f64 = 3.0;
/// The number of measurements of a text that takes long. A cold cache or a page fault can make one slow.
const REPEATS: usize = 4;

/// The cost of one text.
#[derive(Clone, Copy, Default)]
struct Cost {
    /// The peak of the heap, in bytes.
    heap: usize,
    /// The CPU time of this thread.
    time: Duration,
}

impl Cost {
    fn max(self, other: Self) -> Self {
        Self { heap: self.heap.max(other.heap), time: self.time.max(other.time) }
    }
}

#[test]
fn no_text_of_a_tenant_costs_more_than_its_limits() {
    let only = std::env::var("COSTS").unwrap_or_default();
    let (mut worst, mut faults) = (BTreeMap::<_, Cost>::new(), Vec::new());
    for grammar in grammars::all().iter().filter(|grammar| grammar.kind.contains(&only)) {
        let found = search(grammar, &mut faults);
        println!("{} as {}: {} KiB, {:.1?}", grammar.kind, grammar.name, found.heap >> 10, found.time);
        let cost = worst.entry(grammar.kind).or_default();
        *cost = cost.max(found);
    }
    println!("\n| text | heap | CPU time |\n|---|--:|--:|");
    for (kind, Cost { heap, time }) in worst {
        println!("| {kind} | {} KiB | {:.1} ms |", heap.div_ceil(1024), time.as_secs_f64() * 1e3);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Searches for the most expensive texts of a grammar, and returns the highest costs. Adds a text beyond the limits to
/// `faults`.
fn search(grammar: &Grammar, faults: &mut Vec<String>) -> Cost {
    let words: Vec<&str> = grammar.words.split('¦').collect();
    let mut highest = Cost::default();
    for by_time in [false, true] {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut best = (vec![words[0]], Cost::default());
        for index in 0..words.len() + TEXTS / 2 {
            // The first texts have one word each, so that the search starts with the most expensive of them.
            let chosen = match words.get(index) {
                Some(word) => vec![*word],
                None => changed(&best.0, &words, &mut random),
            };
            let text = (grammar.text)(&chosen.concat());
            let cost = cost(|| (grammar.read)(&text));
            highest = highest.max(cost);
            // Without optimisation, the time says little.
            if cost.heap > HEAP
                || (cost.time > TIME && !cfg!(debug_assertions) && cost.time > TIME.mul_f64(slowness()))
            {
                let shown: String = text.chars().take(300).collect();
                faults.push(format!(
                    "{} as {}: {} KiB of heap and {:?} for {} bytes: {shown}",
                    grammar.kind,
                    grammar.name,
                    cost.heap >> 10,
                    cost.time,
                    text.len()
                ));
                break;
            }
            if if by_time { cost.time > best.1.time } else { cost.heap > best.1.heap } {
                best = (chosen, cost);
            }
        }
    }
    highest
}

/// The time of this machine now, as a multiple of that of the machine of the limits. A busy neighbour that shares a core
/// slows all code.
fn slowness() -> f64 {
    let times = (0..REPEATS).map(|_| cost(reference).time);
    let least = times.min().unwrap_or_default();
    println!("the reference takes {least:.1?}");
    (least.as_secs_f64() / REFERENCE.as_secs_f64()).clamp(1.0, SLOWEST)
}

/// Reads a JSON text of 1 MB.
fn reference() {
    let text = format!("[{}0]", "{\"name\":\"value\",\"number\":12345},".repeat(30_000));
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(read.as_array().map(Vec::len), Some(30_001));
}

/// The cost of reading a text.
fn cost(read: impl Fn()) -> Cost {
    let measured = || {
        let before = ALLOCATOR.current_usage();
        ALLOCATOR.reset_peak_usage();
        let start = thread_time();
        read();
        let time = thread_time().saturating_sub(start);
        Cost { heap: ALLOCATOR.peak_usage().saturating_sub(before), time }
    };
    let mut cost = measured();
    for _ in 1..REPEATS {
        if cost.time > TIME / 2 && !cfg!(debug_assertions) {
            cost.time = cost.time.min(measured().time);
        }
    }
    cost
}

/// The time that this thread has run. The kernel does not count the time in which other processes run.
fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

/// A generator of pseudorandom numbers, xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(limit).unwrap()).unwrap()
    }
}

/// Changes, adds, removes or repeats words.
fn changed<'a>(words: &[&'a str], all: &[&'a str], random: &mut Random) -> Vec<&'a str> {
    let mut words = words.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(words.len() + 1);
        match random.below(4) {
            0 | 1 => words.insert(at, all[random.below(all.len())]),
            2 if at < words.len() && words.len() > 1 => drop(words.remove(at)),
            3 if at < words.len() => words.extend_from_within(at..),
            _ => {}
        }
        words.truncate(WORDS);
    }
    words
}
