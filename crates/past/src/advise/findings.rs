//! What a recording shows in addition to the advice.

use std::collections::VecDeque;
use std::fmt;

use serde::Serialize;

use super::objects::Hpa;
use super::recording::{Column, DAY, Load, Recording, index, quantile};
use super::search::DEFAULT_WINDOW;
use backtest::number::ceil_to_count;
use backtest::replay::Metric;
use terminal::words::percent;

/// The minutes after which a change in the other direction is flapping.
const BACK: usize = 10;
/// The number of such changes per day.
const FLAPS: f64 = 12.0;
/// The shares of the requests between which the median use is usual.
const USUAL: (f64, f64) = (0.15, 1.2);
/// The median load relative to the highest of a window of scale-downs, below which the window keeps the pods of each
/// peak until the next one.
const KEPT: f64 = 0.6;

/// An observation about an HPA.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "finding", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "AdviceFinding"))]
pub enum Finding {
    /// The HPA was at its maximum for a day or longer in total.
    AtMaximum {
        /// The total in days.
        days: f64,
    },
    /// The count never fell to `minReplicas`.
    MinimumNeverReached {
        /// The lowest count.
        lowest: i32,
    },
    /// The count often changes in one direction and soon back.
    Flapping {
        /// The number of such changes per day.
        times_a_day: f64,
    },
    /// The memory was at its target or above in each minute, so the HPA could never scale down.
    MemoryNeverFalls {
        /// The lowest share of the requests.
        lowest: f64,
        /// The target as a share of the requests.
        target: f64,
    },
    /// The window of scale-downs is longer than the period of the load.
    WindowLongerThanPeriod {
        /// The window.
        window_seconds: i32,
        /// The median of the load, relative to the highest load of the window before.
        median: f64,
    },
    /// A VerticalPodAutoscaler controls the same resources of the same target: each changes what the other measures.
    SharedWithVpa {
        /// Its name.
        name: String,
        /// The resources: `cpu`, `memory`.
        resources: Vec<&'static str>,
    },
    /// The median use is far from the requests.
    RequestsFarFromUse {
        /// The median use as a share of the requests.
        median: f64,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let round = |value: f64| (value * 10.0).round() / 10.0;
        match self {
            Self::AtMaximum { days } => {
                write!(f, "at maxReplicas for {} days: raise it, or the requests", round(*days))
            }
            Self::MinimumNeverReached { lowest } => {
                write!(f, "never below {lowest} replicas: minReplicas has no effect")
            }
            Self::Flapping { times_a_day } => write!(
                f,
                "changes direction within ten minutes {} times a day: lengthen the window of scale-downs",
                round(*times_a_day)
            ),
            Self::MemoryNeverFalls { lowest, target } => write!(
                f,
                "memory never fell below {} of its requests with a target of {}: it prevents every scale-down",
                percent(*lowest),
                percent(*target)
            ),
            Self::WindowLongerThanPeriod { window_seconds, median } => write!(
                f,
                "its window of scale-downs keeps the pods of each peak for {window_seconds} seconds, and its load is \
                 {} of the highest of a window in the median: shorten it",
                percent(*median)
            ),
            Self::SharedWithVpa { name, resources } => write!(
                f,
                "scales on {0}, whose requests VerticalPodAutoscaler {name} changes: let only one of them control {0}",
                resources.join(" and ")
            ),
            Self::RequestsFarFromUse { median } => {
                write!(
                    f,
                    "its pods use {} of their cpu requests in the median: correct the requests",
                    percent(*median)
                )
            }
        }
    }
}

/// Returns the observations about an HPA that need no recording.
pub fn findings_of_objects(hpa: &Hpa) -> Vec<Finding> {
    let shared = hpa.shared.iter().cloned();
    shared.map(|(name, resources)| Finding::SharedWithVpa { name, resources }).collect()
}

/// Returns the observations about an HPA and its recording.
pub fn findings(hpa: &Hpa, recording: &Recording, load: Option<&Load>) -> Vec<Finding> {
    let (min, max) = hpa.bounds;
    let mut found = findings_of_objects(hpa);
    let counts: Vec<(usize, f64)> = recording.known(Column::Replicas, 0).collect();
    let at_max = counts.iter().filter(|(_, count)| *count >= f64::from(max)).count();
    if at_max >= DAY && max > min {
        found.push(Finding::AtMaximum { days: at_max as f64 / DAY as f64 });
    }
    let lowest = counts.iter().map(|(_, count)| ceil_to_count(*count)).min();
    if let Some(lowest) = lowest.filter(|lowest| *lowest > min && counts.len() >= DAY) {
        found.push(Finding::MinimumNeverReached { lowest });
    }
    let times_a_day = flaps(&counts) * DAY as f64 / counts.len().max(1) as f64;
    if times_a_day >= FLAPS {
        found.push(Finding::Flapping { times_a_day });
    }
    let lowest = recording.known(Column::Memory, 0).map(|(_, share)| share).min_by(f64::total_cmp);
    if let Some((lowest, target)) = lowest.zip(hpa.memory).filter(|(lowest, target)| *lowest >= 0.9 * target)
    {
        found.push(Finding::MemoryNeverFalls { lowest, target });
    }
    let window = hpa.today.as_ref().map_or(0, |today| today.choice.scale_down_window_seconds);
    if window > DEFAULT_WINDOW {
        let median = load.and_then(|load| kept(load, index(f64::from(window) / 60.0)));
        found.extend(
            median
                .filter(|median| *median < KEPT)
                .map(|median| Finding::WindowLongerThanPeriod { window_seconds: window, median }),
        );
    }
    let of_cpu = load.filter(|load| load.unit.metric() == Metric::Cpu);
    let median = of_cpu.and_then(|load| quantile(&load.utilizations, 0.5));
    found.extend(
        median
            .filter(|median| *median < USUAL.0 || *median > USUAL.1)
            .map(|median| Finding::RequestsFarFromUse { median }),
    );
    found
}

/// The median of the load, relative to the highest load of the window before, in minutes.
fn kept(load: &Load, window: usize) -> Option<f64> {
    // Loads in falling order with their minutes, of which the first is the highest of the window.
    let mut highest: VecDeque<(usize, f64)> = VecDeque::new();
    let mut shares = Vec::new();
    for (minute, load) in load.series.loads.iter().enumerate() {
        let Some(load) = *load else { continue };
        while highest.back().is_some_and(|(_, other)| *other <= load) {
            highest.pop_back();
        }
        highest.push_back((minute, load));
        while highest.front().is_some_and(|(at, _)| at + window < minute) {
            highest.pop_front();
        }
        shares.extend(highest.front().filter(|(_, top)| *top > 0.0).map(|(_, top)| load / top));
    }
    shares.sort_by(f64::total_cmp);
    quantile(&shares, 0.5)
}

/// The number of changes of the count that follow soon after a change in the other direction.
fn flaps(counts: &[(usize, f64)]) -> f64 {
    let mut flaps = 0.0;
    let mut last: Option<(usize, bool)> = None;
    for pair in counts.windows(2) {
        let [(_, before), (minute, after)] = pair else { continue };
        if before == after {
            continue;
        }
        let is_up = after > before;
        if last.is_some_and(|(at, was_up)| was_up != is_up && minute - at <= BACK) {
            flaps += 1.0;
        }
        last = Some((*minute, is_up));
    }
    flaps
}
