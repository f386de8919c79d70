//! The advice of `concertina advise -o json`, compared with the HPAs of today and put into words.

pub(crate) mod file;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use autoscaling::quantity::Quantity;
use autoscaling::spec::{MetricSource, ResourceTarget, Spec};
use serde::{Deserialize, Serialize};

use crate::Key;

/// The window of scale-downs of an HPA without one, as `advise` assumes it.
const DEFAULT_WINDOW: i32 = 300;
/// The text for an HPA whose settings are not those of the advice.
const CHANGED: &str = "changed since";

/// The advice for each HPA.
pub(crate) type AllAdvice = BTreeMap<Key, Arc<Advice>>;

/// The advice for an HPA, or the reason against one.
#[derive(Debug, PartialEq)]
pub struct Advice {
    /// The scale target, as `Kind/name`.
    target: String,
    /// The settings that the advice is about. `None` if they cannot be replayed.
    today: Option<Settings>,
    /// The position in the answer, in which the most valuable advice is the first.
    rank: usize,
    /// `None` without an advice.
    proposal: Option<Box<Proposal>>,
}

#[derive(Debug, PartialEq)]
struct Proposal {
    settings: Settings,
    judged: Compared,
}

/// The settings of an HPA that an advice may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings {
    /// `None` if the HPA has no target of cpu, or others than cpu and memory.
    cpu: Option<CpuTarget>,
    min: i32,
    max: i32,
    /// In seconds.
    window: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CpuTarget {
    /// In percent of a pod's request.
    Percent(i32),
    /// In thousandths of a core.
    Milli(i32),
}

/// The advice for an HPA, in a table of all HPAs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// The advice in words.
    pub text: String,
    /// The position among all advice, the most valuable first. `None` if the HPA has changed since.
    pub rank: Option<usize>,
}

/// The answer of `concertina advise`. It has further fields.
#[derive(Debug, Deserialize)]
struct Report {
    kind: String,
    hpas: Vec<ReportedHpa>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReportedHpa {
    namespace: String,
    name: String,
    target: String,
    today: Option<Choice>,
    advice: Option<ReportedProposal>,
    average_value: Option<AverageValue>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReportedProposal {
    settings: Choice,
    judged: Compared,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Choice {
    target: i32,
    min_replicas: i32,
    max_replicas: i32,
    scale_down_window_seconds: i32,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct AverageValue {
    today: Quantity,
    advised: Option<Quantity>,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
struct Compared {
    today: Measured,
    advised: Measured,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Measured {
    pod_hours_a_week: f64,
}

impl fmt::Display for CpuTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(percent) => write!(f, "{percent} %"),
            Self::Milli(milli) => write!(f, "{milli}m"),
        }
    }
}

impl CpuTarget {
    fn milli(value: Quantity) -> Self {
        Self::Milli(i32::try_from(value.milli_value()).unwrap_or(i32::MAX))
    }
}

impl Settings {
    /// Reads the settings of an HPA.
    pub(crate) fn new(spec: &Spec) -> Self {
        let is_resource = |metric: &MetricSource, names: &[&str]| matches!(metric, MetricSource::Resource { resource, .. } if names.contains(&&**resource));
        let cpu = spec.metrics.iter().rfind(|metric| is_resource(metric, &["cpu"]));
        let cpu = cpu.filter(|_| spec.metrics.iter().all(|metric| is_resource(metric, &["cpu", "memory"])));
        let down = spec.behavior.as_ref().map(|behavior| &behavior.scale_down);
        let window = down.and_then(|down| down.stabilization_window_seconds).unwrap_or(DEFAULT_WINDOW);
        Self {
            cpu: cpu.and_then(|metric| match metric {
                MetricSource::Resource { target: ResourceTarget::Utilization(percent), .. } => {
                    Some(CpuTarget::Percent(*percent))
                }
                MetricSource::Resource { target: ResourceTarget::AverageValue(value), .. } => {
                    Some(CpuTarget::milli(*value))
                }
                _ => None,
            }),
            min: spec.min_replicas.unwrap_or(1),
            max: spec.max_replicas,
            window: window.max(0),
        }
    }

    /// `value` is the target of cpu if the HPA has it in cores.
    fn chosen(choice: Choice, value: Option<Quantity>) -> Self {
        Self {
            cpu: Some(value.map_or(CpuTarget::Percent(choice.target), CpuTarget::milli)),
            min: choice.min_replicas,
            max: choice.max_replicas,
            window: choice.scale_down_window_seconds,
        }
    }

    fn named(self) -> [(&'static str, String); 4] {
        [
            ("cpu", self.cpu.map(|cpu| cpu.to_string()).unwrap_or_default()),
            ("minReplicas", self.min.to_string()),
            ("maxReplicas", self.max.to_string()),
            ("window", format!("{} s", self.window)),
        ]
    }
}

impl Compared {
    /// The saved pod-hours per week. Negative if the advice costs.
    fn saved(&self) -> f64 {
        self.today.pod_hours_a_week - self.advised.pod_hours_a_week
    }
}

impl Report {
    fn into_advice(self) -> AllAdvice {
        let advice = self.hpas.into_iter().enumerate().map(|(rank, hpa)| {
            let value = hpa.average_value;
            let proposal = hpa.advice.map(|ReportedProposal { settings, judged }| {
                let settings = Settings::chosen(settings, value.and_then(|value| value.advised));
                Box::new(Proposal { settings, judged })
            });
            let advice = Advice {
                target: hpa.target,
                today: hpa.today.map(|today| Settings::chosen(today, value.map(|value| value.today))),
                rank,
                proposal,
            };
            ((hpa.namespace, hpa.name), Arc::new(advice))
        });
        advice.collect()
    }
}

impl Advice {
    /// Whether an HPA has the target and the settings that the advice is about.
    fn is_about(&self, target: &str, settings: Settings) -> bool {
        self.target == target && self.today.is_none_or(|today| today == settings)
    }

    /// Returns the cell of an HPA with these settings. `None` without an advice.
    pub(crate) fn cell(&self, target: &str, settings: Settings) -> Option<Box<Cell>> {
        let proposal = self.proposal.as_ref()?;
        let is_about = self.is_about(target, settings);
        let text = if is_about { proposal.brief(settings) } else { CHANGED.to_owned() };
        Some(Box::new(Cell { text, rank: is_about.then_some(self.rank) }))
    }
}

impl Proposal {
    /// The effect and the changed settings.
    fn brief(&self, today: Settings) -> String {
        let pairs = today.named().into_iter().zip(self.settings.named());
        let changes = pairs.filter(|(old, new)| old != new);
        let changes = changes.map(|((name, old), (_, new))| format!("{name} {old} → {new}"));
        let changes = changes.collect::<Vec<_>>().join(", ");
        format!("{:+.0} pod-hours a week: {changes}", -self.judged.saved())
    }
}
