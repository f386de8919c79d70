//! The usage of pods from a kubelet's `/metrics/resource`, as metrics-server computes it.
//!
//! The rules are those of `sigs.k8s.io/metrics-server` v0.9.0, `pkg/scraper/client/resource` and `pkg/storage`. CPU
//! usage comes from the counters of two scrapes, memory from the working set of the last scrape. The metrics of nodes
//! are not read.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::entry::Series;
use crate::format::PageError;
use crate::page::{Limits, Page};

/// Minimum age of a container whose usage is averaged since its start, in nanoseconds. An average over a shorter time
/// is inaccurate.
const SHORTEST_SPAN: i64 = 10_000_000_000;
/// The names of the series that are read.
const CPU: &[u8] = b"container_cpu_usage_seconds_total";
const MEMORY: &[u8] = b"container_memory_working_set_bytes";
const START: &[u8] = b"container_start_time_seconds";
const NANOSECONDS: f64 = 1e9;
const NANOSECONDS_PER_MILLISECOND: i64 = 1_000_000;

/// The reason why the page of a kubelet is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KubeletError {
    /// The page is invalid or too large.
    #[error(transparent)]
    Page(#[from] PageError),
    /// A series of a container lacks a label. Contains the number of the line.
    #[error("line {0} lacks one of the labels container, pod and namespace")]
    MissingLabel(usize),
}

/// The identity of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKey {
    /// The namespace of the pod.
    pub namespace: Box<str>,
    /// The name of the pod.
    pub name: Box<str>,
}

/// The counters of one container at one time. Times are in nanoseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Point {
    start: Option<i64>,
    time: Option<i64>,
    /// The CPU time since the start, in nanoseconds.
    cpu: u64,
    /// The working set, in bytes.
    memory: u64,
}

type Containers = BTreeMap<Box<str>, Point>;

/// The counters of all containers of one page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    pods: BTreeMap<PodKey, Containers>,
}

impl Batch {
    /// Keeps the pods for which `keep` is true.
    pub fn retain(&mut self, mut keep: impl FnMut(&PodKey) -> bool) {
        self.pods.retain(|pod, _| keep(pod));
    }

    /// Adds the pods of another node. A pod in both batches keeps the containers of `other`.
    pub fn merge(&mut self, other: Self) {
        self.pods.extend(other.pods);
    }
}

/// A page of a kubelet that arrives in pieces.
#[derive(Debug)]
pub struct KubeletPage {
    page: Page,
    reader: Reader,
}

#[derive(Debug)]
struct Reader {
    scraped: i64,
    batch: Batch,
    missing_label: Option<usize>,
}

impl KubeletPage {
    /// Creates an empty page. `scraped` is the time of the scrape in milliseconds since the Unix epoch, which is the
    /// time of series without a timestamp.
    pub fn new(limits: Limits, scraped: i64) -> Self {
        let reader = Reader { scraped, batch: Batch::default(), missing_label: None };
        Self { page: Page::new(limits), reader }
    }

    /// Adds a piece of the page.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), KubeletError> {
        Ok(self.page.push(piece, |series| {
            self.reader.add(&series);
            Ok(())
        })?)
    }

    /// Finishes the page. Omits pods that have a container without CPU time or memory.
    pub fn finish(mut self) -> Result<Batch, KubeletError> {
        self.page.finish(|series| {
            self.reader.add(&series);
            Ok(())
        })?;
        if let Some(line) = self.reader.missing_label {
            return Err(KubeletError::MissingLabel(line));
        }
        let mut batch = self.reader.batch;
        batch
            .pods
            .retain(|_, containers| containers.values().all(|point| point.cpu != 0 && point.memory != 0));
        Ok(batch)
    }
}

impl Reader {
    fn add(&mut self, series: &Series<'_>) {
        let text = series.as_written();
        let name_length = text.iter().position(|byte| *byte == b'{').unwrap_or(text.len());
        let (name, labels) = text.split_at_checked(name_length).unwrap_or((text, &[]));
        let set: fn(&mut Point, i64, f64) = match name {
            CPU => |point, time, value| {
                point.cpu = truncate_to_u64(value * NANOSECONDS);
                point.time = Some(time);
            },
            MEMORY => |point, time, value| {
                point.memory = truncate_to_u64(value);
                point.time = Some(time);
            },
            START => |point, _, value| {
                point.start = Some(truncate_to_i64(value * NANOSECONDS));
            },
            _ => return,
        };
        let (Some(container), Some(pod), Some(namespace)) =
            (label(labels, b"container=\""), label(labels, b"pod=\""), label(labels, b"namespace=\""))
        else {
            self.missing_label.get_or_insert(series.line);
            return;
        };
        let time = series.timestamp.unwrap_or(self.scraped).saturating_mul(NANOSECONDS_PER_MILLISECOND);
        let containers = self.batch.pods.entry(PodKey { namespace, name: pod }).or_default();
        set(containers.entry(container).or_default(), time, series.value);
    }
}

/// Returns the value after `start`, up to the next quote. The values are names, which need no escapes.
fn label(labels: &[u8], start: &[u8]) -> Option<Box<str>> {
    let at = labels.windows(start.len()).position(|window| window == start)?;
    let value = labels.get(at.checked_add(start.len())?..)?;
    let end = value.iter().position(|byte| *byte == b'"')?;
    Some(String::from_utf8_lossy(value.get(..end)?).into())
}

/// The usage of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodUsage {
    /// The time of the earliest counters of a container, in nanoseconds since the Unix epoch.
    pub time: i64,
    /// The time over which the CPU usage of the container with the earliest counters is averaged.
    pub window: Duration,
    /// The usage of each container, without containers whose counter or start time decreased.
    pub containers: BTreeMap<Box<str>, Usage>,
    /// The time of the first scrape with these counters, as passed to [`Storage::store`].
    pub scraped: Duration,
}

/// The usage of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// The CPU usage, in billionths of a core.
    pub cpu_nanocores: u64,
    /// The working set, in bytes.
    pub memory_bytes: u64,
}

/// The counters of the containers of a pod, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Counters(Box<[(Box<str>, Point)]>);

impl Counters {
    fn get(&self, container: &str) -> Option<&Point> {
        let at = self.0.binary_search_by(|(name, _)| (**name).cmp(container)).ok()?;
        self.0.get(at).map(|(_, point)| point)
    }
}

/// The last scrape of a pod.
#[derive(Debug, Clone)]
struct Last {
    /// The time of the first scrape with these counters.
    scraped: Duration,
    counters: Counters,
}

/// The last two scrapes of pods.
#[derive(Debug, Clone)]
pub struct Storage {
    /// The interval of scrapes, in nanoseconds.
    interval: i64,
    last: BTreeMap<PodKey, Last>,
    previous: BTreeMap<PodKey, Counters>,
}

impl Storage {
    /// Creates an empty storage. `interval` is the interval of scrapes. The usage of a container younger than
    /// `interval`, but at least 10 s old, is averaged since its start.
    pub fn new(interval: Duration) -> Self {
        let interval = i64::try_from(interval.as_nanos()).unwrap_or(i64::MAX);
        Self { interval, last: BTreeMap::new(), previous: BTreeMap::new() }
    }

    /// Stores a scrape of all pods, and drops pods that are missing from the scrape. `scraped` is the time of the
    /// scrape on a clock of the caller, for [`PodUsage::scraped`].
    pub fn store(&mut self, batch: Batch, scraped: Duration) {
        let (mut last, mut previous) = (BTreeMap::new(), BTreeMap::new());
        for (key, containers) in batch.pods {
            let (last_pod, previous_pod) = (self.last.get(&key), self.previous.get(&key));
            let kept: Box<[_]> = containers
                .iter()
                .filter_map(|(name, point)| {
                    let last = last_pod.and_then(|pod| pod.counters.get(name));
                    let earlier = previous_pod.map(|pod| pod.get(name).copied().unwrap_or_default());
                    Some((name.clone(), self.previous_point(point, last, earlier)?))
                })
                .collect();
            if !kept.is_empty() {
                previous.insert(key.clone(), Counters(kept));
            }
            let counters = Counters(containers.into_iter().collect());
            let same = last_pod.filter(|last| last.counters == counters);
            let scraped = same.map_or(scraped, |last| last.scraped);
            last.insert(key, Last { scraped, counters });
        }
        (self.last, self.previous) = (last, previous);
    }

    /// Returns the earlier point for the usage at `point`. `None` if no usage can be computed.
    fn previous_point(&self, point: &Point, last: Option<&Point>, earlier: Option<Point>) -> Option<Point> {
        if let (Some(start), Some(time)) = (point.start, point.time) {
            let age = time.saturating_sub(start);
            if age > 0 && age < self.interval && age >= SHORTEST_SPAN {
                return Some(Point { time: Some(start), cpu: 0, ..*point });
            }
        }
        let last = *last?;
        if point.start >= last.time {
            return None; // The container has restarted since the last scrape.
        }
        if point.time > last.time {
            return Some(last);
        }
        // The counters are unchanged since the last scrape. As in metrics-server, a container that was missing from the
        // earlier scrape has an earlier point without a time. Its CPU usage is then averaged over the longest possible
        // time.
        earlier.filter(|earlier| earlier.time < point.time)
    }

    /// Returns the usage of a pod, as metrics-server does. `None` until each container of the pod has an earlier point,
    /// from a scrape or from the start of the container.
    pub fn usage(&self, pod: &PodKey) -> Option<PodUsage> {
        let (last, previous) = (self.last.get(pod)?, self.previous.get(pod)?);
        let mut containers = BTreeMap::new();
        let mut earliest: Option<(i64, i64)> = None;
        for (name, point) in &last.counters.0 {
            let before = previous.get(name)?;
            let Some((usage, time, window)) = usage(point, before) else { continue };
            containers.insert(name.clone(), usage);
            if earliest.is_none_or(|(earliest, _)| time < earliest) {
                earliest = Some((time, window));
            }
        }
        let (time, window) = earliest.unwrap_or_default();
        let window = Duration::from_nanos(u64::try_from(window).unwrap_or(0));
        Some(PodUsage { time, window, containers, scraped: last.scraped })
    }

    /// Returns the usage of a pod, like [`Self::usage`]. Also `None` if two scrapes have returned the same counters of
    /// a container, and no earlier counters are known. For such a container, metrics-server returns a CPU usage close
    /// to 0.
    pub fn measured(&self, pod: &PodKey) -> Option<PodUsage> {
        let previous = self.previous.get(pod)?;
        previous.0.iter().all(|(_, point)| point.time.is_some()).then(|| self.usage(pod)).flatten()
    }
}

/// Returns usage, time and window. `None` if the start time or the counter decreased.
fn usage(last: &Point, previous: &Point) -> Option<(Usage, i64, i64)> {
    if last.start < previous.start {
        return None;
    }
    let increase = last.cpu.checked_sub(previous.cpu)?;
    let time = last.time?;
    let window = previous.time.map_or(i64::MAX, |previous| time.saturating_sub(previous));
    let seconds = Duration::from_nanos(u64::try_from(window).unwrap_or(0)).as_secs_f64();
    let usage =
        Usage { cpu_nanocores: truncate_to_u64(increase as f64 / seconds), memory_bytes: last.memory };
    Some((usage, time, window))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` from a float saturates, and NaN becomes 0: both are intended"
)]
fn truncate_to_u64(value: f64) -> u64 {
    value as u64
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "`as` from a float saturates, and NaN becomes 0: both are intended"
)]
fn truncate_to_i64(value: f64) -> i64 {
    value as i64
}
