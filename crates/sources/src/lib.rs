//! Metrics from Prometheus, pods and kubelets, for HPAs with policies that name these sources, and the API groups of
//! metrics adapters that such policies may name.
//!
//! - [`SourceFile`] is the operator's file: the servers, and the namespaces that may use them. [`Sources::run`] reads
//!   the file again while the process runs.
//! - [`Sources::read`] returns the numbers of one metric of an HPA. Equal queries and pages are requested once
//!   per interval for all HPAs.
//! - [`Sources::past`] returns the past of a metric from Prometheus.
//! - [`Dial`] opens the connections, over the network or in memory.
//!
//! [`promql`] restricts the queries of servers with `enforceNamespaceLabel` to the tenant's own series. Pages are read
//! from pods of the target only, at their own addresses and declared ports.

mod adapters;
mod error;
mod field;
mod file;
mod http;
mod in_memory;
mod kubelet;
mod pods;
mod prometheus;
mod range;
mod reload;
mod secrets;
#[cfg(test)]
mod tests;
mod transports;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cluster::client::Client;
use jiff::Timestamp;
use policies::spec::{MetricOrigin, MetricRule};
use tokio::time::Instant;

pub use crate::adapters::AdapterGroup;
pub use crate::error::SourceError;
pub use crate::field::FileError;
pub use crate::file::{PodSettings, PrometheusServer, SourceFile};
pub use crate::http::{Dial, Io, Network, RequestError, TlsError, TlsProblem};
pub use crate::in_memory::InMemory;
pub use crate::kubelet::{KubeletSettings, Usage};
pub use crate::pods::{PodAddress, PodTarget};
pub use crate::range::{PastReading, PastTarget, TimeRange};
pub use crate::reload::{SourceObserver, Sources, report_states};
pub use crate::secrets::{SECRET_LABEL, SecretProblem};

/// The target of an HPA, for the variables and the pods of a source.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// The namespace of the HPA and its pods.
    pub namespace: &'a Arc<str>,
    /// The name of the target.
    pub name: &'a str,
    /// The pods that the target's selector matches.
    pub pods: &'a [PodTarget],
    /// Reads the Secrets of the namespace that a policy names.
    pub secrets: Option<&'a Client>,
}

/// The form of the number that a metric of an HPA needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One number for each pod: type Pods.
    PerPod,
    /// One number: types Object and External.
    Single,
}

/// The numbers of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// The numbers. A missing number is neither 0 nor an error.
    pub values: Values,
    /// The time at which the oldest number was requested.
    pub at: Instant,
    /// The interval after which the source has new numbers.
    pub interval: Duration,
    /// The source, with the query or the series as it was sent.
    pub source: String,
    /// A pod without a number, and the cause. Other pods have numbers.
    pub missing: Option<(Arc<str>, SourceError)>,
}

/// The numbers of a [`Form`].
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// By the name of the pod.
    PerPod(BTreeMap<Arc<str>, f64>),
    /// One number. `None` for an empty answer.
    Single(Option<f64>),
}

/// The maximum age of a shared number. It is shorter than the interval, so consecutive syncs at the interval of the
/// source read different numbers, even if the time between the syncs varies.
pub(crate) fn shared_for(interval: Duration) -> Duration {
    interval * 9 / 10
}

/// Numbers by pod.
#[derive(Debug)]
pub(crate) struct Numbers {
    values: BTreeMap<Arc<str>, f64>,
    oldest: Instant,
    missing: Option<(Arc<str>, SourceError)>,
}

/// A metric without numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// The source, with the query or the series as the policy states it.
    pub source: String,
    /// The cause.
    pub error: SourceError,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.source, self.error)
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// The label of the source in metrics. A policy may name any server, so only servers of the source file become
    /// labels.
    pub fn label<'a>(&self, origin: &'a MetricOrigin) -> &'a str {
        match self.error {
            SourceError::UnknownServer | SourceError::UnknownGroup => "unknown",
            _ => name_of(origin),
        }
    }
}

impl Sources {
    /// The numbers of one metric of an HPA.
    pub async fn read(&self, rule: &MetricRule, form: Form, target: &Target<'_>) -> Result<Reading, Failure> {
        let result = self.read_origin(&rule.origin, form, target).await;
        let reading = result?;
        let age = reading.at.elapsed().as_secs();
        match rule.max_age_seconds {
            Some(limit) if age > limit.into() => {
                Err(Failure { source: reading.source, error: SourceError::TooOld(age, limit) })
            }
            _ => Ok(reading),
        }
    }

    /// The total of a metric in a time range, from the query of its rule, with the same restriction as in a sync.
    /// `None` for a rule with an origin other than Prometheus, because other origins have no past.
    pub async fn past(
        &self,
        rule: &MetricRule,
        form: Form,
        target: &PastTarget<'_>,
        range: TimeRange,
    ) -> Option<Result<PastReading, Failure>> {
        let MetricOrigin::Prometheus { server: name, query } = &rule.origin else { return None };
        let current = self.current();
        let read = async {
            let failed = |error| Failure { source: described(&rule.origin), error };
            let server = current.servers.get(name).ok_or_else(|| failed(SourceError::UnknownServer))?;
            let query = server.restricted(query, target.namespace).map_err(failed)?;
            let text = query.text_of_past(target.namespace, target.name, target.pod_names());
            let text = text.map_err(|error| failed(error.into()))?;
            let failed = |error| Failure { source: described_query(name, &text), error };
            let totals = server.totals(&text, form, target, range).await.map_err(failed)?;
            let totals = totals
                .into_iter()
                .filter_map(|(time, total)| Timestamp::from_millisecond(time).ok().map(|at| (at, total)));
            let totals: Vec<_> = totals.collect();
            if totals.is_empty() {
                return Err(failed(SourceError::NoPast));
            }
            Ok(PastReading { server: name.to_string(), totals })
        };
        Some(read.await)
    }

    /// The usage of the pods of an HPA from their kubelets. Usage older than `max_age_seconds` is an error. `now` is
    /// the time of day.
    pub async fn usage(
        &self,
        max_age_seconds: Option<u32>,
        target: &Target<'_>,
        now: Timestamp,
    ) -> Result<Usage, SourceError> {
        let usage = self.current().kubelets.read(target, now).await?;
        let age = usage.oldest.elapsed().as_secs();
        match max_age_seconds {
            Some(limit) if age > limit.into() => Err(SourceError::TooOld(age, limit)),
            _ => Ok(usage),
        }
    }

    async fn read_origin(
        &self,
        origin: &MetricOrigin,
        form: Form,
        target: &Target<'_>,
    ) -> Result<Reading, Failure> {
        let current = self.current();
        match origin {
            MetricOrigin::Prometheus { server: name, query } => {
                let source = |text: &str| described_query(name, text);
                let failed = |error| Failure { source: source(query), error };
                let server = current.servers.get(name).ok_or_else(|| failed(SourceError::UnknownServer))?;
                let text = server.text(query, target).map_err(failed)?;
                match form {
                    Form::PerPod => {
                        let numbers = server.by_pod(&text, target).await.map_err(failed)?;
                        Ok(numbers.reading(source(&text), server.settings().interval))
                    }
                    Form::Single => {
                        let (value, at) = server.single(&text, target.namespace).await.map_err(failed)?;
                        let (values, source) = (Values::Single(value), source(&text));
                        let interval = server.settings().interval;
                        Ok(Reading { values, at, interval, source, missing: None })
                    }
                }
            }
            MetricOrigin::Pods(series) => {
                let failed = |error| Failure { source: described(origin), error };
                if form != Form::PerPod {
                    return Err(failed(SourceError::NotPods));
                }
                let numbers = current.scraper.read(series, target).await.map_err(failed)?;
                let interval = Duration::from_secs(series.interval_seconds.into());
                Ok(numbers.reading(described(origin), interval))
            }
            MetricOrigin::Kubelet => {
                Err(Failure { source: described(origin), error: SourceError::NotResource })
            }
            MetricOrigin::ApiGroup(_) => {
                Err(Failure { source: described(origin), error: SourceError::OfApiServer })
            }
        }
    }
}

impl Numbers {
    fn reading(self, source: String, interval: Duration) -> Reading {
        let Self { values, oldest: at, missing } = self;
        Reading { values: Values::PerPod(values), at, interval, source, missing }
    }
}

/// The name of a source in metrics: a server's, an API group, `pods` or `kubelet`.
pub fn name_of(origin: &MetricOrigin) -> &str {
    match origin {
        MetricOrigin::Prometheus { server, .. } => server,
        MetricOrigin::Pods(_) => "pods",
        MetricOrigin::Kubelet => "kubelet",
        MetricOrigin::ApiGroup(group) => group,
    }
}

/// A source with its query or series, as the policy states it.
pub fn described(origin: &MetricOrigin) -> String {
    match origin {
        MetricOrigin::Prometheus { server, query } => described_query(server, query),
        MetricOrigin::Pods(series) => {
            let over = if series.transport.is_some() { " over TLS" } else { "" };
            format!("pods, series {:?} at {}{over}", shown(&series.series), shown(&series.path))
        }
        MetricOrigin::Kubelet => "kubelets, /metrics/resource".to_owned(),
        MetricOrigin::ApiGroup(group) => format!("API group {group:?}"),
    }
}

fn described_query(server: &str, text: &str) -> String {
    format!("prometheus {:?}, query {:?}", shown(server), shown(text))
}

/// Truncates a text of a policy for messages.
fn shown(text: &str) -> String {
    const SHOWN: usize = 300;
    let cut: String = text.chars().take(SHOWN).collect();
    if cut.len() < text.len() { cut + "…" } else { cut }
}
