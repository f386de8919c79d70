//! The declaration of a metric, and the metric with its series.
//!
//! The vectors of the crate `prometheus` identify a series by a hash of its joined label values. This is safe for
//! labels with values from fixed sets, but not for names of HPAs: `web` in `shop` and `webs` in `hop` would share a
//! series.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc, Describer};
use prometheus::proto::{Gauge, LabelPair, Metric as Series, MetricFamily, MetricType};
use prometheus::{CounterVec, GaugeVec, HistogramOpts, HistogramVec, Opts, Registry, Result};

use crate::store::{FixedHasher, Key, shrink};

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A total that only rises. The name ends in `_total`.
    Counter,
    /// A value that rises and falls.
    Gauge,
    /// Observations, counted in buckets.
    Histogram,
}

impl Kind {
    /// Returns the name of the type in both exposition formats.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// The declaration of one metric.
#[derive(Debug)]
pub struct Declaration {
    /// The full name. A counter's name ends in `_total`.
    pub name: &'static str,
    /// The type, as in `# TYPE`.
    pub kind: Kind,
    /// The label names, sorted, without `le`.
    pub labels: &'static [&'static str],
    /// The upper bounds of a histogram's buckets. Empty for other types.
    pub buckets: &'static [f64],
    /// The help text in the exposition.
    pub help: &'static str,
    /// The description in `docs/reference/metrics.md`.
    pub meaning: &'static str,
}

/// A group of metrics in the documentation.
#[derive(Debug)]
pub struct Group {
    /// The heading of the group.
    pub title: &'static str,
    /// The metrics, in the order of the documentation.
    pub metrics: &'static [Declaration],
}

type Text = &'static str;
type Labels = &'static [Text];
type Bounds = &'static [f64];

pub(super) const fn counter(name: Text, labels: Labels, help: Text, meaning: Text) -> Declaration {
    Declaration { name, kind: Kind::Counter, labels, buckets: &[], help, meaning }
}

pub(super) const fn gauge(name: Text, labels: Labels, help: Text, meaning: Text) -> Declaration {
    Declaration { name, kind: Kind::Gauge, labels, buckets: &[], help, meaning }
}

pub(super) const fn histogram(
    name: Text,
    labels: Labels,
    buckets: Bounds,
    help: Text,
    meaning: Text,
) -> Declaration {
    Declaration { name, kind: Kind::Histogram, labels, buckets, help, meaning }
}

/// A metric with all its series.
pub(super) trait Metric: Collector + Clone + 'static {
    /// Creates the metric without series.
    fn new(declaration: &Declaration) -> Result<Self>;

    /// Creates the metric without series, and adds it to `registry`.
    #[expect(
        clippy::expect_used,
        reason = "declarations are constants, and every test registers all of them"
    )]
    fn register(registry: &Registry, declaration: &Declaration) -> Self {
        let metric = Self::new(declaration).expect("the declaration is valid");
        registry.register(Box::new(metric.clone())).expect("every name is declared once");
        metric
    }
}

impl Metric for CounterVec {
    fn new(declaration: &Declaration) -> Result<Self> {
        Self::new(Opts::new(declaration.name, declaration.help), declaration.labels)
    }
}

impl Metric for GaugeVec {
    fn new(declaration: &Declaration) -> Result<Self> {
        Self::new(Opts::new(declaration.name, declaration.help), declaration.labels)
    }
}

impl Metric for HistogramVec {
    fn new(declaration: &Declaration) -> Result<Self> {
        let options = HistogramOpts::new(declaration.name, declaration.help);
        Self::new(options.buckets(declaration.buckets.to_vec()), declaration.labels)
    }
}

/// Values by HPA.
type Values = HashMap<Key, i32, FixedHasher>;

/// A gauge with one value per HPA. Clones share their series. A standby exposes no series, because its values are
/// outdated, and the leader exposes current values.
#[derive(Debug, Clone)]
pub(super) struct HpaGauge {
    description: Desc,
    /// `None` on a standby.
    values: Arc<Mutex<Option<Values>>>,
}

impl HpaGauge {
    /// Sets the value of an HPA, except on a standby.
    pub(super) fn set(&self, key: &Key, value: i32) {
        if let Some(values) = &mut *self.values.lock() {
            match values.get_mut(key) {
                Some(known) => *known = value,
                None => drop(values.insert(key.clone(), value)),
            }
        }
    }

    /// Sets the value of an HPA to 1 if it is in the state of this gauge, and otherwise removes its series.
    pub(super) fn set_state(&self, key: &Key, is_in_state: bool) {
        if is_in_state {
            self.set(key, 1);
        } else {
            self.remove(key);
        }
    }

    pub(super) fn remove(&self, key: &Key) {
        if let Some(values) = &mut *self.values.lock()
            && values.remove(key).is_some()
        {
            shrink(values);
        }
    }

    /// Sets whether this process is the leader. The series of a standby are removed.
    pub(super) fn set_leading(&self, leads: bool) {
        let mut values = self.values.lock();
        *values = leads.then(|| values.take().unwrap_or_default());
    }
}

impl Metric for HpaGauge {
    fn new(declaration: &Declaration) -> Result<Self> {
        let labels = declaration.labels.iter().map(|label| (*label).to_owned());
        let options = Opts::new(declaration.name, declaration.help).variable_labels(labels.collect());
        Ok(Self { description: options.describe()?, values: Arc::new(Mutex::new(Some(HashMap::default()))) })
    }
}

impl Collector for HpaGauge {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.description]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let values = self.values.lock();
        let mut values: Vec<_> = values.iter().flatten().map(|(key, value)| (key.clone(), *value)).collect();
        values.sort_by(|(one, _), (other, _)| {
            (&one.name, &one.namespace).cmp(&(&other.name, &other.namespace))
        });
        let series = values.into_iter().map(|(Key { namespace, name }, value)| {
            // The values are in the order of the labels.
            let labels =
                self.description.variable_labels.iter().zip([name, namespace]).map(|(name, value)| {
                    let mut label = LabelPair::default();
                    label.set_name(name.clone());
                    label.set_value(value.to_string());
                    label
                });
            let mut gauge = Gauge::default();
            gauge.set_value(f64::from(value));
            let mut series = Series::from_label(labels.collect());
            series.set_gauge(gauge);
            series
        });
        let mut family = MetricFamily::default();
        family.set_name(self.description.fq_name.clone());
        family.set_help(self.description.help.clone());
        family.set_field_type(MetricType::GAUGE);
        family.set_metric(series.collect());
        vec![family]
    }
}
