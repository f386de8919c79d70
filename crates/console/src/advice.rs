//! The advice of `concertina advise -o json`, compared with the HPAs of today and put into words.

pub(crate) mod file;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use autoscaling::quantity::Quantity;
use autoscaling::spec::{MetricSource, ResourceTarget, Spec};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use terminal::words::{number, percent};

use crate::Key;

/// The window of scale-downs of an HPA without one, as `advise` assumes it.
const DEFAULT_WINDOW: i32 = 300;
/// The fields of the what-if form for the default rates of scale-ups, with their window, and of scale-downs.
const DEFAULT_RATES: [&[(&str, &str)]; 2] = [
    &[("upWindow", "0"), ("upSelect", "Max"), ("upPolicies", "Pods:4:15,Percent:100:15")],
    &[("downSelect", "Max"), ("downPolicies", "Percent:100:15")],
];
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
    /// The end of the replayed past.
    until: Timestamp,
    /// The position in the answer, in which the most valuable advice is the first.
    rank: usize,
    /// The advice, or the reason against one.
    proposal: Result<Box<Proposal>, String>,
}

#[derive(Debug, PartialEq)]
struct Proposal {
    settings: Settings,
    /// The rates of scale-ups and of scale-downs.
    rates: [Rates; 2],
    fitted: Compared,
    judged: Compared,
    sureness: String,
    floor: Option<Floor>,
    look_at: String,
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

/// The rates of `behavior` in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Rates {
    /// Those of the HPA.
    #[default]
    Kept,
    /// The defaults of the API server.
    Default,
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

/// The advice for an HPA, on the page of this HPA.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Shown {
    /// The end of the replayed past.
    until: Timestamp,
    sentence: String,
    /// Names, each with the value of today and the advised one.
    rows: Vec<[String; 3]>,
    /// The command that changes the HPA. Empty without a change.
    command: String,
}

/// The answer of `concertina advise`. It has further fields.
#[derive(Debug, Deserialize)]
struct Report {
    kind: String,
    to: Timestamp,
    hpas: Vec<ReportedHpa>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReportedHpa {
    namespace: String,
    name: String,
    target: String,
    /// The external metric. `None` for cpu.
    metric: Option<String>,
    today: Option<Choice>,
    advice: Option<ReportedProposal>,
    average_value: Option<AverageValue>,
    why: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReportedProposal {
    settings: Choice,
    fitted: Compared,
    judged: Compared,
    sureness: String,
    with_floor: Option<Floor>,
    look_at: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Choice {
    target: i32,
    min_replicas: i32,
    max_replicas: i32,
    scale_down_window_seconds: i32,
    #[serde(default)]
    scale_up_rates: Rates,
    #[serde(default)]
    scale_down_rates: Rates,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct AverageValue {
    today: Quantity,
    advised: Option<Quantity>,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
struct Floor {
    settings: Choice,
    judged: Compared,
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
    unserved_ppm: f64,
    minutes_above80_a_week: f64,
    rescales_a_week: f64,
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

    /// `value` is the target of cpu if the HPA has it in cores. An HPA on another metric has no target of cpu.
    fn chosen(choice: Choice, value: Option<Quantity>, is_of_cpu: bool) -> Self {
        let cpu = value.map_or(CpuTarget::Percent(choice.target), CpuTarget::milli);
        Self {
            cpu: is_of_cpu.then_some(cpu),
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
        let until = self.to;
        let advice = self.hpas.into_iter().enumerate().map(|(rank, hpa)| {
            let (value, is_of_cpu) = (hpa.average_value, hpa.metric.is_none());
            let proposal = hpa.advice.map(
                |ReportedProposal { settings, fitted, judged, sureness, with_floor, look_at }| {
                    let rates = [settings.scale_up_rates, settings.scale_down_rates];
                    let settings =
                        Settings::chosen(settings, value.and_then(|value| value.advised), is_of_cpu);
                    Box::new(Proposal {
                        settings,
                        rates,
                        fitted,
                        judged,
                        sureness,
                        floor: with_floor,
                        look_at,
                    })
                },
            );
            let advice = Advice {
                target: hpa.target,
                today: hpa
                    .today
                    .map(|today| Settings::chosen(today, value.map(|value| value.today), is_of_cpu)),
                until,
                rank,
                proposal: proposal.ok_or_else(|| hpa.why.unwrap_or_else(|| "no reason is given".to_owned())),
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
        let proposal = self.proposal.as_ref().ok()?;
        let is_about = self.is_about(target, settings);
        let text = if is_about { proposal.brief(settings) } else { CHANGED.to_owned() };
        Some(Box::new(Cell { text, rank: is_about.then_some(self.rank) }))
    }

    /// Returns the fields of the what-if form that the advice changes in an HPA with these settings, with their values.
    /// `cpu` is the index of the metric.
    pub(crate) fn fields(&self, target: &str, settings: Settings, cpu: usize) -> Vec<(String, String)> {
        let Ok(proposal) = &self.proposal else { return Vec::new() };
        if !self.is_about(target, settings) {
            return Vec::new();
        }
        let to = proposal.settings;
        let cpu = to.cpu.filter(|_| settings.cpu != to.cpu).map(|target| {
            let value = match target {
                CpuTarget::Percent(percent) => percent.to_string(),
                CpuTarget::Milli(_) => target.to_string(),
            };
            (format!("metric{cpu}"), value)
        });
        let counts = [
            ("min", settings.min, to.min),
            ("max", settings.max, to.max),
            ("downWindow", settings.window, to.window),
        ];
        let changed = counts.into_iter().filter(|(_, old, new)| old != new);
        let changed = changed.map(|(name, _, new)| (name.to_owned(), new.to_string()));
        let rates = DEFAULT_RATES.iter().zip(proposal.rates).filter(|(_, rates)| *rates == Rates::Default);
        let rates = rates.flat_map(|(fields, _)| fields.iter());
        let rates = rates.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        cpu.into_iter().chain(changed).chain(rates).collect()
    }

    /// Returns the advice for the page of an HPA with these settings. `command` changes the HPA.
    pub(crate) fn shown(&self, target: &str, settings: Settings, command: String) -> Shown {
        let (sentence, rows) = match &self.proposal {
            _ if !self.is_about(target, settings) => {
                (format!("The HPA has {CHANGED}: run concertina advise again."), Vec::new())
            }
            Ok(proposal) => (proposal.sentence(), proposal.rows(settings)),
            Err(why) => (format!("No advice: {why}."), Vec::new()),
        };
        Shown { until: self.until, sentence, rows, command }
    }
}

impl Proposal {
    /// The effect and the changed settings.
    fn brief(&self, today: Settings) -> String {
        let pairs = today.named().into_iter().zip(self.settings.named());
        let changes = pairs.filter(|(old, new)| old != new);
        let changes = changes.map(|((name, old), (_, new))| format!("{name} {old} → {new}"));
        let rates = self.default_rates().map(|direction| format!("{direction} at the default rates"));
        let changes = changes.chain(rates).collect::<Vec<_>>().join(", ");
        format!("{:+.0} pod-hours a week: {changes}", -self.judged.saved())
    }

    /// The directions whose rates become the default ones.
    fn default_rates(&self) -> impl Iterator<Item = &'static str> {
        let directions = ["scale-ups", "scale-downs"].into_iter().zip(self.rates);
        directions.filter(|(_, rates)| *rates == Rates::Default).map(|(direction, _)| direction)
    }

    fn sentence(&self) -> String {
        let (judged, fitted) = (self.judged.saved(), self.fitted.saved());
        let floor = self.floor.map(|Floor { settings, judged }| {
            let share = judged.saved() / judged.today.pod_hours_a_week.max(f64::MIN_POSITIVE);
            let target = settings.target;
            format!(
                " With a floor from earlier days and a target of {target} %, it saves {}.",
                percent(share)
            )
        });
        format!(
            "{} {} pod-hours a week (predicted {}). Sureness: {}. After the change, look at {}.{}",
            if judged < 0.0 { "Costs" } else { "Saves" },
            number(judged.abs()),
            number(if judged < 0.0 { -fitted } else { fitted }),
            self.sureness,
            self.look_at,
            floor.unwrap_or_default()
        )
    }

    /// The settings, and what the judged part of the load costs and lacks with them.
    fn rows(&self, today: Settings) -> Vec<[String; 3]> {
        let settings = today.named().into_iter().zip(self.settings.named());
        let settings = settings.map(|((name, old), (_, new))| [name.to_owned(), old, new]);
        let rates = self.default_rates();
        let rates = rates
            .map(|direction| [format!("rates of {direction}"), "its own".to_owned(), "default".to_owned()]);
        let Compared { today, advised } = self.judged;
        let hours = |measured: &Measured| number(measured.pod_hours_a_week);
        let measured =
            |name: &str, words: fn(&Measured) -> String| [name.to_owned(), words(&today), words(&advised)];
        let predicted = &self.fitted;
        let replays = [
            ["pod-hours a week, predicted".to_owned(), hours(&predicted.today), hours(&predicted.advised)],
            measured("pod-hours a week, judged", |it| number(it.pod_hours_a_week)),
            measured("unserved load", |it| percent(it.unserved_ppm * 1e-6)),
            measured("minutes a week above 80 % of capacity", |it| number(it.minutes_above80_a_week)),
            measured("rescales a week", |it| number(it.rescales_a_week)),
        ];
        settings.chain(rates).chain(replays).collect()
    }
}
