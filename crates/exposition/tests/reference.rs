//! Compares pages with Prometheus' own parsers, and usage with metrics-server's own code.
//!
//! The Go programs in `tests/exposition` and `tests/metrics-server` run that code. The tests are ignored by default
//! because they build the programs. `CONCERTINA_PAGES` sets the number of pages, and `CONCERTINA_SEED` sets the seed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use exposition::kubelet::{KubeletPage, PodKey, Storage};
use exposition::{Limits, Page};
use serde_json::{Value, json};

const LIMITS: Limits = Limits { bytes: usize::MAX, line: usize::MAX, labels: usize::MAX, series: usize::MAX };

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect(name))
}

/// A sequence of random numbers from a seed (SplitMix64).
struct Random(u64);

impl Random {
    const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    fn number(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// Returns an index below `bound`, or 0 if `bound` is 0.
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.number(u64::try_from(bound).unwrap_or(u64::MAX))).unwrap_or(0)
    }

    /// Returns a number in [0, 1).
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Runs the Go program on pages and compares each line of its output. Returns the number of accepted pages.
fn compare(
    program: &str,
    command: &str,
    pages: &[(u8, Vec<u8>)],
    mut ours: impl FnMut(u8, &[u8]) -> Value,
) -> usize {
    let built = Command::new(root().join("tests").join(program).join("build.sh"))
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(built.status.success(), "{program}: build.sh failed");
    let path = String::from_utf8(built.stdout).unwrap();
    let mut child = Command::new(path.trim())
        .arg(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null()) // metrics-server logs each pod that it skips.
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    let (mut accepted, mut differences) = (0, Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (kind, page) in pages {
                let length = u32::try_from(page.len()).unwrap();
                input.write_all(&[*kind]).unwrap();
                input.write_all(&length.to_be_bytes()).unwrap();
                input.write_all(page).unwrap();
            }
        });
        for (kind, page) in pages {
            let line = output.next().expect("the Go program ended early").unwrap();
            let theirs: Value = serde_json::from_str(&line).unwrap();
            accepted += usize::from(!theirs.is_null());
            let ours = ours(*kind, page);
            if ours != theirs {
                differences.push((page, ours, theirs));
            }
        }
    });
    assert!(child.wait().unwrap().success(), "the Go program failed");
    let summary =
        format!("{command}: {} pages, {accepted} accepted, {} differences\n", pages.len(), differences.len());
    std::io::stdout().write_all(summary.as_bytes()).unwrap();
    for (page, ours, theirs) in differences.iter().take(5) {
        let cut = |text: String| text.chars().take(2_000).collect::<String>();
        println!(
            "page {:?}\nours {}\ntheirs {}\n",
            cut(String::from_utf8_lossy(page).into_owned()),
            cut(ours.to_string()),
            cut(theirs.to_string())
        );
    }
    assert!(differences.is_empty());
    accepted
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// Returns the series of a page in the form of the Go program.
fn series(_: u8, bytes: &[u8]) -> Value {
    let mut all = Vec::new();
    let mut each = |series: exposition::Series<'_>| {
        let mut labels: Vec<[String; 2]> = series
            .labels()
            .map(|(name, value)| [hexadecimal(&name), hexadecimal(value.as_bytes())])
            .collect();
        labels.push([hexadecimal(b"__name__"), hexadecimal(&series.name())]);
        labels.sort();
        // The reference has a single NaN.
        let bits = if series.value.is_nan() { 0x7ff8_0000_0000_0001 } else { series.value.to_bits() };
        let timestamp = series.timestamp.map(|at| match at {
            i64::MIN | i64::MAX => "overflow".to_owned(),
            at => at.to_string(),
        });
        all.push(json!({"labels": labels, "bits": format!("{bits:x}"), "timestamp": timestamp}));
        Ok(())
    };
    let mut page = Page::new(LIMITS);
    for piece in bytes.chunks(1_000) {
        if page.push(piece, &mut each).is_err() {
            return Value::Null;
        }
    }
    if page.finish(&mut each).is_err() { Value::Null } else { json!(all) }
}

/// Returns the pages of exporters, each with the letter of the text format.
fn exporters() -> Vec<(u8, Vec<u8>)> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(root().join("tests/exposition/pages"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "gz"))
        .collect();
    files.sort();
    let read = |path: &PathBuf| {
        let mut page = Vec::new();
        flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_end(&mut page).unwrap();
        (b'p', page)
    };
    files.iter().map(read).collect()
}

/// Changes a page at random. Some of the changed pages remain valid.
fn mutated(random: &mut Random, (kind, page): &(u8, Vec<u8>)) -> (u8, Vec<u8>) {
    const PARTS: [&str; 44] = [
        "\n",
        " ",
        "\t",
        "\"",
        "\\",
        "{",
        "}",
        ",",
        "=",
        "#",
        "# ",
        "\0",
        "NaN",
        "+Inf",
        "-inf",
        "1e400",
        "0x1p3",
        "1_0",
        "1e5",
        ".",
        "-",
        "é",
        "\u{ff}",
        "# EOF",
        "# EOF\n",
        "# TYPE a counter\n",
        "# HELP a b\n",
        "# UNIT a_b b\n",
        "# TYPE a histogram\n",
        "# TYPE a summary\n",
        "le=\"1\"",
        "quantile=\"0.50\"",
        " 1700000000000",
        " 17e8",
        " # {a=\"b\"} 1",
        " # {a=\"b\"} 1 2",
        "{\"a\"} 1\n",
        "{\"a b\",c=\"d\"} 2\n",
        "\"c\"=\"d\"",
        "\\n",
        "\\\\",
        "\r\n",
        "9999999999999999999",
        "# {",
    ];
    // A window of whole lines keeps pages small and preserves the share of valid pages.
    let lines: Vec<&[u8]> = page.split_inclusive(|byte| *byte == b'\n').collect();
    let first = random.below(lines.len());
    let last = (first + 1 + random.below(6)).min(lines.len());
    let mut page = lines[first..last].concat();
    for _ in 0..random.below(4) {
        let at = random.below(page.len() + 1);
        let end = (at + random.below(4)).min(page.len());
        let part = match random.below(6) {
            0 => vec![],
            1 => vec![u8::try_from(random.below(256)).unwrap()],
            2 => page[random.below(page.len() + 1)..].iter().copied().take(random.below(20)).collect(),
            _ => PARTS[random.below(PARTS.len())].as_bytes().to_vec(),
        };
        page.splice(at..end, part);
    }
    (*kind, page)
}

#[test]
#[ignore = "builds a Go program, see tests/exposition/build.sh"]
fn pages_equal_those_of_prometheus() {
    let exporters = exporters();
    assert!(exporters.len() >= 7, "found only {} pages", exporters.len());
    assert_eq!(
        compare("exposition", "pages", &exporters, series),
        exporters.len(),
        "a page of an exporter is refused"
    );

    let seed = number("CONCERTINA_SEED", 1);
    let mut pages = Vec::new();
    let mut random = Random::new(seed);
    for index in 0..number("CONCERTINA_PAGES", 20_000) {
        let page = &exporters[usize::try_from(index).unwrap() % exporters.len()];
        pages.push(mutated(&mut random, page));
    }
    let accepted = compare("exposition", "pages", &pages, series);
    assert!(accepted * 5 > pages.len(), "only {accepted} of {} pages are valid", pages.len());
}

/// A container on the generated pages of a kubelet. Times are in milliseconds.
#[derive(Clone)]
struct Container {
    started: u64,
    cpu: f64,
    time: u64,
}

/// Generates pages of one kubelet. Pods are created and deleted, containers restart, and counters decrease or stay
/// constant.
fn kubelet_pages(random: &mut Random, count: usize) -> Vec<(u8, Vec<u8>)> {
    let mut now = 1_700_000_000_000_u64;
    let mut pods: BTreeMap<(usize, usize), Container> = BTreeMap::new();
    let mut pages = Vec::new();
    for index in 0..count {
        let fresh = index == 0 || random.below(60) == 0;
        let longest = if random.below(3) == 0 { 70_000 } else { 20_000 };
        now += 1_000 + random.number(longest);
        for pod in 0..6 {
            for container in 0..3 {
                let key = (pod, container);
                match pods.get_mut(&key) {
                    None if random.below(4) == 0 || fresh => {
                        let age = random.number(90_000);
                        pods.insert(key, Container { started: now - age, cpu: 0.0, time: now });
                    }
                    None => {}
                    Some(_) if random.below(25) == 0 => drop(pods.remove(&key)),
                    Some(known) => match random.below(12) {
                        0 => {} // The counters stay the same.
                        1 => *known = Container { started: now - random.number(30_000), cpu: 0.0, time: now },
                        2 => known.cpu /= 2.0,
                        3 => known.time = known.time.saturating_sub(random.number(30_000)),
                        _ => {
                            known.time = now - random.number(900);
                            known.cpu += random.unit() * 40.0;
                        }
                    },
                }
            }
        }
        let mut page =
            String::from("# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time\n");
        page.push_str("# TYPE container_cpu_usage_seconds_total counter\n");
        let faulty = random.below(10) == 0;
        for ((pod, container), known) in &pods {
            // The times are distinct, because metrics-server uses the window of any container with the earliest time.
            let time = known.time / 100 * 100 + u64::try_from(pod * 3 + container).unwrap();
            let labels =
                format!("{{container=\"c{container}\",namespace=\"ns{}\",pod=\"pod-{pod}\"}}", pod % 2);
            if !(faulty && random.below(15) == 0) {
                writeln!(page, "container_cpu_usage_seconds_total{labels} {} {time}", known.cpu).unwrap();
            }
            if !(faulty && random.below(15) == 0) {
                let memory = random.number(1 << 33);
                writeln!(page, "container_memory_working_set_bytes{labels} {:e} {time}", memory as f64)
                    .unwrap();
            }
            if random.below(20) > 0 {
                let started = known.started as f64 / 1e3;
                writeln!(page, "container_start_time_seconds{labels} {started}").unwrap();
            }
        }
        page.push_str("node_cpu_usage_seconds_total 1.5 1700000000000\nscrape_error 0\n");
        if random.below(50) == 0 {
            page.push_str("node_memory_working_set_bytes broken\n");
        }
        pages.push((if fresh { b'n' } else { b's' }, page.into_bytes()));
    }
    pages
}

#[test]
#[ignore = "builds a Go program, see tests/metrics-server/build.sh"]
fn usage_equals_that_of_metrics_server() {
    let count = usize::try_from(number("CONCERTINA_PAGES", 20_000)).unwrap();
    let pages = kubelet_pages(&mut Random::new(number("CONCERTINA_SEED", 1)), count);
    let new = || Storage::new(Duration::from_mins(1));
    let mut storage = new();
    let mut reported = 0;
    compare("metrics-server", "usage", &pages, |kind, bytes| {
        if kind == b'n' {
            storage = new();
        }
        let mut page = KubeletPage::new(LIMITS, 0);
        let Ok(batch) = page.push(bytes).and_then(|()| page.finish()) else { return Value::Null };
        storage.store(batch, Duration::ZERO);
        let mut all = Vec::new();
        for pod in 0..6 {
            let key =
                PodKey { namespace: format!("ns{}", pod % 2).into(), name: format!("pod-{pod}").into() };
            let Some(usage) = storage.usage(&key) else { continue };
            reported += usage.containers.len();
            let containers: BTreeMap<&str, [u64; 2]> = usage
                .containers
                .iter()
                .map(|(name, usage)| (&**name, [usage.cpu_nanocores, usage.memory_bytes]))
                .collect();
            let window = u64::try_from(usage.window.as_nanos()).unwrap();
            all.push(json!({
                "namespace": key.namespace, "name": key.name, "time": usage.time, "window": window,
                "containers": containers,
            }));
        }
        all.sort_by_key(|one| format!("{}/{}", one["namespace"], one["name"]));
        json!(all)
    });
    assert!(reported > pages.len(), "only {reported} containers with usage");
}
