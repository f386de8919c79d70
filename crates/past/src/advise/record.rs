//! The past of HPAs in saved answers of the decisions API of a controller.
//!
//! The record of an HPA has an entry for each change of its decision. An entry has the ratios of its syncs as a range.
//! The highest one counts, so that no load is missed. Where this would show a shortage that may not have been, the load
//! is unknown.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use autoscaling::explanation::{Measure, MetricExplanation, MetricReading, PodGroup};
use jiff::Timestamp;
use journal::record::wire::{DECISION_LIST, DecisionEntry, DecisionList, RatioRange};

use super::AdviseError;
use super::objects::Hpa;
use super::outcome::Refusal;
use super::recording::{CAPACITY_OF_EXTERNAL, Column, DAY, Recording, Unit};
use super::source::minute_of;
use terminal::values::text_of_file;

/// The largest file in bytes, and the most entries of all files.
const LARGEST: usize = 64 << 20;
const MOST_ENTRIES: usize = 2_000_000;
/// The longest time after an entry for which it counts, in seconds: a longer one is a gap.
const LONGEST_STEP: i64 = 300;
/// The share of the capacity above which a load is unknown, if it is not known within the second share of itself.
const BUSY: (f64, f64) = (0.8, 0.8);

/// An HPA: its namespace, its name and its UID.
type Key = (String, String, String);

/// The entries of saved records.
#[derive(Debug, Default)]
pub(crate) struct Records {
    /// By the second of the first decision.
    entries: BTreeMap<Key, BTreeMap<i64, Entry>>,
    count: usize,
}

#[derive(Debug)]
struct Entry {
    /// The second of the last decision.
    last: i64,
    count: i32,
    bounds: (i32, i32),
    reading: Option<Reading>,
}

/// The reading of cpu or of an external metric.
#[derive(Debug)]
struct Reading {
    /// The name of the external metric. `None` for cpu.
    metric: Option<Box<str>>,
    /// In percent, or the value per pod.
    target: f64,
    /// The ready pods that were measured. `None` if they are unknown.
    ready: Option<f64>,
    /// The highest usage of all pods: in their requests, or in the unit of the external metric. `None` if unknown.
    usage: Option<f64>,
}

impl Records {
    /// Reads files and folders with files. A file has one answer of the decisions API, or several one after another.
    ///
    /// # Errors
    /// Returns the error of a file that cannot be read or has no record.
    pub(crate) fn read(paths: &[PathBuf]) -> Result<Self, AdviseError> {
        let mut records = Self::default();
        for path in paths {
            if !path.is_dir() {
                records.add_file(path)?;
                continue;
            }
            let failed = |error: std::io::Error| failed(path, error.to_string());
            let mut files = Vec::new();
            for file in std::fs::read_dir(path).map_err(failed)? {
                files.push(file.map_err(failed)?.path());
            }
            files.retain(|file| file.extension().is_some_and(|kind| kind == "json" || kind == "jsonl"));
            files.sort();
            files.iter().try_for_each(|file| records.add_file(file))?;
        }
        Ok(records)
    }

    fn add_file(&mut self, path: &Path) -> Result<(), AdviseError> {
        let text = text_of_file(path, LARGEST).map_err(|error| failed(path, error.to_string()))?;
        for list in serde_json::Deserializer::from_str(&text).into_iter::<DecisionList>() {
            let list = list.map_err(|error| failed(path, format!("it is no {DECISION_LIST}: {error}")))?;
            self.count += list.decisions.len();
            if self.count > MOST_ENTRIES {
                return Err(failed(path, format!("the records have more than {MOST_ENTRIES} decisions")));
            }
            let key = (list.metadata.namespace, list.metadata.name, list.metadata.uid);
            let entries = self.entries.entry(key).or_default();
            for decision in &list.decisions {
                let Some(entry) = Entry::new(decision) else { continue };
                let first = decision.first_at.as_second();
                // A later answer has later syncs of the same entry.
                if entries.get(&first).is_none_or(|known| known.last <= entry.last) {
                    entries.insert(first, entry);
                }
            }
        }
        Ok(())
    }

    /// The end of the last minute of all records. `None` without an entry.
    pub(crate) fn end(&self) -> Option<Timestamp> {
        let last =
            self.entries.values().filter_map(|entries| Some(entries.values().next_back()?.last)).max()?;
        Timestamp::from_second(minute_of(last) + 60).ok()
    }

    /// The past of an HPA in the last `days` days before `end`, which is the start of a minute.
    ///
    /// # Errors
    /// Returns the reason why the record has no past of it.
    pub(crate) fn recording(&self, hpa: &Hpa, end: Timestamp, days: usize) -> Result<Recording, Refusal> {
        let today = hpa.today.as_ref().map_err(Clone::clone)?;
        let of_hpa = self.entries.iter().filter(|((namespace, name, uid), _)| {
            (namespace, name) == (&hpa.namespace, &hpa.name) && (hpa.uid.is_empty() || *uid == hpa.uid)
        });
        // An HPA that was created again has the latest entries.
        let last = |entries: &BTreeMap<i64, Entry>| entries.values().next_back().map(|entry| entry.last);
        let Some((_, entries)) = of_hpa.max_by_key(|(_, entries)| last(entries)) else {
            return Err(Refusal::NotRecorded { what: "decision" });
        };
        let external = today.external.as_ref();
        let unit = match (external, today.average_value) {
            (Some(_), Some(per_pod)) => Unit::Value { per_pod },
            (_, None) => Unit::Requests,
            (None, Some(_)) => {
                return Err(Refusal::NotRecorded { what: "cpu request, which a target in cores needs" });
            }
        };
        let minutes = days * DAY;
        let start = end.as_second() - 60 * i64::try_from(minutes).unwrap_or_default();
        let mut recording = Recording::new(Timestamp::from_second(start).unwrap_or(end), minutes);
        (recording.unit, recording.is_upper_bound) = (unit, true);
        let mut next = entries.keys().skip(1);
        for (first, entry) in entries {
            let until = next.next().copied().unwrap_or(entry.last);
            let until = until.min(entry.last + LONGEST_STEP).max(entry.last);
            let minute = |second: i64| (second - start).div_euclid(60);
            let minutes = minute(*first).max(0)..=minute(until);
            for minute in minutes.filter_map(|minute| usize::try_from(minute).ok()) {
                entry.write(&mut recording, minute, external.map(|external| external.name.as_str()));
            }
        }
        Ok(recording)
    }
}

fn failed(path: &Path, problem: String) -> AdviseError {
    AdviseError::File { path: path.to_owned(), problem }
}

impl Entry {
    fn new(decision: &DecisionEntry) -> Option<Self> {
        let explanation = &decision.explanation;
        let read = |metric: &MetricExplanation| {
            Reading::new(metric.reading()?, &decision.ratios, explanation.status_replicas)
        };
        Some(Self {
            last: decision.last_at.as_second(),
            count: decision.result.from?,
            bounds: (explanation.min, explanation.max),
            reading: explanation.metrics.iter().find_map(read),
        })
    }

    fn write(&self, recording: &mut Recording, minute: usize, external: Option<&str>) {
        let Self { count, bounds: (min, max), reading, .. } = self;
        recording.set(Column::Replicas, minute, (*count).into());
        recording.set(Column::Min, minute, (*min).into());
        recording.set(Column::Max, minute, (*max).into());
        let Some(reading) = reading.as_ref().filter(|reading| reading.metric.as_deref() == external) else {
            return;
        };
        recording.set(Column::Target, minute, reading.target);
        if let Some(ready) = reading.ready {
            recording.set(Column::Ready, minute, ready);
        }
        if let Some(usage) = reading.usage {
            recording.set(Column::Usage, minute, usage);
        }
    }
}

impl Reading {
    /// Reads cpu with a target in percent, or an external metric with a target per pod. `None` for others.
    fn new(reading: &MetricReading, ratios: &[RatioRange], pods: i32) -> Option<Self> {
        let subject = &reading.subject;
        let name = subject.to_string();
        let range = ratios.iter().find(|range| range.metric == name);
        let (lowest, highest) =
            range.map_or((reading.ratio, reading.ratio), |range| (range.lowest, range.highest));
        let (metric, target, ready, of_one, capacity) = match (&*subject.kind, &*subject.name, reading.target)
        {
            ("Resource", "cpu", Measure::Percent(percent)) => {
                let ready = reading.count(|group| group == PodGroup::Ready) as f64;
                let target = f64::from(percent);
                (None, target, Some(ready), target / 100.0 * ready, ready)
            }
            ("External", name, Measure::MilliPerPod(milli)) => {
                let target = milli as f64 / 1000.0;
                let of_one = target * f64::from(pods);
                (Some(name.into()), target, None, of_one, CAPACITY_OF_EXTERNAL * of_one)
            }
            _ => return None,
        };
        let (lowest, highest) = (lowest * of_one, highest * of_one);
        let is_known = highest <= BUSY.0 * capacity || lowest >= BUSY.1 * highest;
        Some(Self { metric, target, ready, usage: Some(highest).filter(|_| of_one > 0.0 && is_known) })
    }
}
