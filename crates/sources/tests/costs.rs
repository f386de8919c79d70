//! The cost of the most expensive texts of a tenant. A seeded search over the words of each grammar maximises the heap or
//! the CPU time, and each text that it tries stays within the limits, whether it is valid or not.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use autoscaling::quantity::Quantity;
use autoscaling::selector::Selector;
use jiff::Timestamp;
use peak_alloc::PeakAlloc;
use policies::spec::{Level, MAX_BYTES, parse};
use promql::{Query, Tenant};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// The most heap that a text may need, in bytes.
const MAX_HEAP: usize = 8 << 20;
/// The most CPU time that a text may need in an optimised build.
const MAX_TIME: Duration = Duration::from_millis(50);
/// The number of texts in a search, of which half maximise the heap and half the CPU time.
const TEXTS: usize = if cfg!(debug_assertions) { 20 } else { 200 };
/// The maximum number of words that a text repeats.
const WORDS: usize = 24;

/// The cost of one text.
#[derive(Clone, Copy, Default)]
struct Cost {
    /// The peak of the heap, in bytes.
    heap: usize,
    /// The CPU time of this thread.
    time: Duration,
}

/// The time that this thread has run. The kernel does not count the time in which other processes run.
fn thread_time() -> Duration {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(stat.split(' ').next().and_then(|time| time.parse().ok()).unwrap_or(0))
}

fn cost(run: impl Fn()) -> Cost {
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let start = thread_time();
    run();
    let time = thread_time().saturating_sub(start);
    Cost { heap: HEAP.peak_usage().saturating_sub(before), time }
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
fn changed(words: &[&'static str], all: &[&'static str], random: &mut Random) -> Vec<&'static str> {
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

/// Searches for the most expensive texts, and returns the highest costs.
fn worst(kind: &str, all: &[&'static str], text: impl Fn(&str) -> String, run: impl Fn(&str)) -> Cost {
    let mut highest = Cost::default();
    for by_time in [false, true] {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        // The first texts have one word each, so that the search starts with the most expensive of them.
        let mut best = (vec![all[0]], Duration::ZERO, 0);
        for index in 0..all.len() + TEXTS / 2 {
            let words = match all.get(index) {
                Some(word) => vec![*word],
                None => changed(&best.0, all, &mut random),
            };
            let text = text(&words.concat());
            let mut cost = cost(|| run(&text));
            // A cold cache or a page fault can make one run slow.
            for _ in 0..3 {
                if !cfg!(debug_assertions) && cost.time > MAX_TIME / 2 {
                    cost.time = cost.time.min(self::cost(|| run(&text)).time);
                }
            }
            let shown: String = text.chars().take(300).collect();
            assert!(cost.heap <= MAX_HEAP, "{kind}: {} bytes of heap for {shown}", cost.heap);
            // Without optimisation, the time says little.
            assert!(cfg!(debug_assertions) || cost.time <= MAX_TIME, "{kind}: {:?} for {shown}", cost.time);
            highest = Cost { heap: highest.heap.max(cost.heap), time: highest.time.max(cost.time) };
            if if by_time { cost.time > best.1 } else { cost.heap > best.2 } {
                best = (words, cost.time, cost.heap);
            }
        }
    }
    println!("{kind}: at most {} KiB of heap and {:?}", highest.heap >> 10, highest.time);
    highest
}

/// Repeats a text up to a length.
fn filled(text: &str, bytes: usize) -> String {
    text.repeat((bytes / text.len().max(1)).max(1))
}

#[test]
fn no_text_of_a_tenant_costs_more_than_its_limits() {
    let now: Timestamp = "2026-10-25T01:30:00Z".parse().unwrap();
    let policy = |text: &str| {
        let parsed = parse(text, Level::Annotation);
        for schedule in parsed.spec.schedules.iter().flat_map(|schedules| schedules.iter()) {
            schedule.when.phase(now);
        }
    };

    let yaml = [
        "a",
        "a: ",
        "- ",
        "\n",
        "\n  ",
        "{",
        "}",
        "[",
        "]",
        ", ",
        "\"",
        "'",
        "&a ",
        "*a",
        "<<: ",
        "? ",
        "!!str ",
        "|\n",
        "#",
        "{a: 0}, ",
        "[], ",
        "\\u00e9",
        "é",
        "mode: Paused\n",
        "schedules: [",
        "- {name: a, metric: b}\n",
        "0, ",
        "---\n",
        "~",
        "metrics:\n",
        "0x",
        "1e9",
        "{\"a\":{}},",
    ];
    worst("YAML", &yaml, |words| filled(words, MAX_BYTES), policy);
    worst("list of YAML", &yaml, |words| format!("schedules: [{}]", filled(words, MAX_BYTES - 20)), policy);

    // Each expression of words is the start of 100 schedules, with an end that is also a start.
    let cron = [
        "*",
        " ",
        "* ",
        "0 ",
        "29 ",
        "2 ",
        "*/7 ",
        "1-5 ",
        "?",
        ",",
        "/",
        "-",
        "L ",
        "W ",
        "#5 ",
        "+1 ",
        "31 ",
        "4,6,9,11 ",
        "FEB ",
        "MON ",
        "59,58,57,56,55 ",
        "0 0 29 2 * ",
        "* * * * * ",
        "0 0 29 2 1",
    ];
    for end in ["0 0 29 2 *", "* * * * *", "0 0 1 * 1", "59 23 31 12 *"] {
        let schedules = |words: &str| {
            let mut text = "schedules:\n".to_owned();
            for index in 0..100 {
                let zone = if index % 2 == 0 { "Europe/Berlin" } else { "America/New_York" };
                writeln!(
                    text,
                    "- {{name: a{index}, timeZone: {zone}, start: {:?}, end: {end:?}, minReplicas: 1}}",
                    words.trim()
                )
                .unwrap();
            }
            text
        };
        worst("cron", &cron, schedules, policy);
    }

    let query = |text: &str| drop(Query::parse(text, Some(Tenant { label: "namespace", namespace: "shop" })));
    let promql = [
        "a",
        "a,",
        "(",
        ")",
        "{",
        "}",
        "a{b=~\"",
        "\"}",
        "\\\\w{180}",
        "\\\\pL",
        "[1m]",
        " + ",
        "-",
        "sum(",
        "a{b=\"c\"}+",
        "rate(a[1m])+",
        " and ",
        " by (a)",
        "`",
        "'",
        "#",
        "\n",
        "1+",
        "a{b=~\"\\\\w{180}\"}+",
        "=~",
        "!~",
        "\"a\",",
        "offset 1d",
        "label_replace(a,",
        "0x1",
        "1e9",
        "a{b!~\"(((a*)*)*)*\"}",
        "é",
    ];
    worst("PromQL", &promql, |words| filled(words, 16 << 10), query);
    worst("short PromQL", &promql, |words| filled(words, 1 << 10), query);

    let selector = [
        "a",
        "=",
        "==",
        "!=",
        "!",
        ",",
        "a,",
        " in (",
        ")",
        "(",
        "a=b,",
        "a in (b),",
        "a in (b,c,",
        "a>1,",
        "é",
        " ",
    ];
    worst("selector", &selector, |words| filled(words, MAX_BYTES), |text| drop(Selector::parse(text)));

    let quantity =
        ["1", "0", ".", "e", "E", "9", "-", "+", "Ki", "m", "n", "k", "E1", "e-9", "000000", "999999"];
    worst("quantity", &quantity, |words| filled(words, MAX_BYTES), |text| drop(text.parse::<Quantity>()));
}
