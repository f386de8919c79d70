//! The series of a metric, created from its declaration.
//!
//! The vectors of the crate `prometheus` identify a series by a hash of its joined label values. This is safe
//! for labels with values from fixed sets, but not for names of HPAs: `web` in `shop` and `webs` in `hop`
//! would share a series.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc, Describer};
use prometheus::proto::{Gauge, LabelPair, Metric as Series, MetricFamily, MetricType};
use prometheus::{CounterVec, GaugeVec, HistogramOpts, HistogramVec, Opts, Registry, Result};

use super::declarations::Declaration;

/// All series of one metric.
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

/// Values by name and namespace, in the order of the labels.
type Values = BTreeMap<[String; 2], i32>;

/// A value per HPA. Clones share their series. A standby has none: its values are outdated, and the leader
/// exposes current ones.
#[derive(Debug, Clone)]
pub(super) struct HpaGauge {
    description: Desc,
    /// `None` on a standby.
    values: Arc<Mutex<Option<Values>>>,
}

impl HpaGauge {
    /// Sets the value of an HPA, except on a standby.
    pub(super) fn set(&self, namespace: &str, name: &str, value: i32) {
        if let Some(values) = &mut *self.values.lock() {
            values.insert(key(namespace, name), value);
        }
    }

    /// Sets the value 1 for an HPA in a state. Other HPAs have no series.
    pub(super) fn set_state(&self, namespace: &str, name: &str, is_in_state: bool) {
        if is_in_state {
            self.set(namespace, name, 1);
        } else {
            self.remove(namespace, name);
        }
    }

    /// Removes the series of an HPA.
    pub(super) fn remove(&self, namespace: &str, name: &str) {
        if let Some(values) = &mut *self.values.lock()
            && !values.is_empty()
        {
            values.remove(&key(namespace, name));
        }
    }

    /// Sets whether this process leads. A standby's series are removed.
    pub(super) fn set_leading(&self, leads: bool) {
        let mut values = self.values.lock();
        *values = leads.then(|| values.take().unwrap_or_default());
    }
}

fn key(namespace: &str, name: &str) -> [String; 2] {
    [name.to_owned(), namespace.to_owned()]
}

impl Metric for HpaGauge {
    fn new(declaration: &Declaration) -> Result<Self> {
        let labels = declaration.labels.iter().map(|label| (*label).to_owned());
        let options = Opts::new(declaration.name, declaration.help).variable_labels(labels.collect());
        Ok(Self { description: options.describe()?, values: Arc::new(Mutex::new(Some(BTreeMap::new()))) })
    }
}

impl Collector for HpaGauge {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.description]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let values = self.values.lock();
        let series = values.iter().flatten().map(|(key, value)| {
            let labels = self.description.variable_labels.iter().zip(key).map(|(name, value)| {
                let mut label = LabelPair::default();
                label.set_name(name.clone());
                label.set_value(value.clone());
                label
            });
            let mut gauge = Gauge::default();
            gauge.set_value(f64::from(*value));
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
