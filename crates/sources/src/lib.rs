//! Metrics from Prometheus, pods and kubelets for HPAs whose scaling policies name these sources. A policy may also
//! name the API group of a metrics adapter.
//!
//! - [`SourceFile`] is the file of the operator. It lists the servers and the namespaces that may use them.
//!   [`Sources::run`] reloads the file periodically.
//! - [`Sources::read`] returns the numbers of one metric of an HPA. Each distinct query and each page is requested at
//!   most once per interval for all HPAs.
//! - [`Sources::past`] returns past values of a metric from Prometheus, and [`PastServer`] those of any query.
//! - [`Dial`] opens the connections, over the network or in memory.
//!
//! [`promql`] restricts the queries of servers with `enforceNamespaceLabel` to the series of the tenant. The scraper of
//! pods connects only to pods of the target, at the addresses and declared ports of these pods.

mod dial;
mod file;
mod http;
mod kubelet;
mod pods;
mod prometheus;
mod queries;
mod reload;
mod secrets;
mod settings;
#[cfg(test)]
mod tests;
mod transports;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cluster::client::Client;
use cluster::fair::FairPermit;
use jiff::Timestamp;
use policies::spec::{MetricOrigin, MetricRule};
use promql::PodNames;
use tokio::time::Instant;

pub use crate::dial::{Dial, InMemory, Io, Network, TlsError, TlsProblem};
pub use crate::file::{AdapterGroup, PrometheusServer, SourceFile};
pub use crate::http::{RequestError, SourceError};
pub use crate::kubelet::Usage;
pub use crate::pods::{PodAddress, PodTarget};
pub use crate::prometheus::{PastReading, PastServer, PastTarget, TimeRange};
pub use crate::reload::{SourceObserver, Sources, report_states};
pub use crate::secrets::{SECRET_LABEL, SecretProblem};
pub use crate::settings::{FileError, KubeletSettings, PodSettings};

/// The scale target of an HPA. Queries use its names as variables, and scrapers read its pods.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// The namespace of the HPA and its pods.
    pub namespace: &'a Arc<str>,
    /// The name of the target.
    pub name: &'a str,
    /// The pods that the target's selector matches.
    pub pods: &'a [PodTarget],
    /// The client that reads the Secrets of a policy. Without a client, metrics that need a Secret fail.
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
    /// The age of the oldest number at its request, by the timestamps of its page.
    pub page_age: Duration,
    /// The interval after which the source has new numbers.
    pub interval: Duration,
    /// The source with its query or series, for messages.
    pub source: String,
    /// A pod without a number, and the cause. Other pods have numbers.
    pub missing: Option<(Arc<str>, SourceError)>,
}

impl Reading {
    /// The age of the oldest number.
    pub fn age(&self) -> Duration {
        self.at.elapsed().saturating_add(self.page_age)
    }
}

/// The numbers of a [`Form`].
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// The number of each pod, keyed by pod name.
    PerPod(BTreeMap<Arc<str>, f64>),
    /// One number. `None` for an empty response.
    Single(Option<f64>),
}

/// The turn of [`Sources::turn`], until it is dropped.
#[derive(Debug)]
pub struct Turn {
    _permit: FairPermit,
}

/// Returns the maximum age of a shared number: 90 % of the interval. Consecutive syncs at this interval therefore read
/// different numbers, even if the time between the syncs varies slightly.
pub(crate) fn shared_for(interval: Duration) -> Duration {
    interval * 9 / 10
}

/// Returns the pause after which a page is scraped between syncs: 5 % longer than its interval. Syncs at this interval,
/// which are up to 2 % longer apart, therefore scrape the page themselves, and read a number that is not yet old.
pub(crate) fn pause_between_syncs(interval: Duration) -> Duration {
    interval * 21 / 20
}

/// The numbers of the pods of a target.
#[derive(Debug)]
pub(crate) struct Numbers {
    values: BTreeMap<Arc<str>, f64>,
    oldest: Instant,
    page_age: Duration,
    missing: Option<(Arc<str>, SourceError)>,
}

/// The failure of a metric that has no numbers.
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
    /// Returns the label of the source in Concertina's metrics. A source that the file does not list has the label
    /// `unknown`, because a policy may name any server.
    pub fn label<'a>(&self, origin: &'a MetricOrigin) -> &'a str {
        match self.error {
            SourceError::UnknownServer | SourceError::UnknownGroup => "unknown",
            _ => name_of(origin),
        }
    }
}

impl Sources {
    /// Reads the numbers of one metric of an HPA. `now` is the time of day.
    pub async fn read(
        &self,
        rule: &MetricRule,
        form: Form,
        target: &Target<'_>,
        now: Timestamp,
    ) -> Result<Reading, Failure> {
        let reading = self.read_origin(&rule.origin, form, target, now).await?;
        let age = reading.age().as_secs();
        match rule.max_age_seconds {
            Some(limit) if age > limit.into() => {
                Err(Failure { source: reading.source, error: SourceError::TooOld(age, limit) })
            }
            _ => Ok(reading),
        }
    }

    /// Waits for the turn of reading much of a Prometheus server's past, which one caller has at a time. Namespaces
    /// alternate. Returns `None` for an origin that is not a server of the file.
    pub async fn turn(&self, origin: &MetricOrigin, namespace: &Arc<str>) -> Option<Turn> {
        let MetricOrigin::Prometheus { server, .. } = origin else { return None };
        let server = Arc::clone(self.current().servers.get(server)?);
        Some(Turn { _permit: server.turn(namespace).await })
    }

    /// Returns the totals of a metric at each step of a time range, with the same restriction of the query as in a
    /// sync. Steps are whole seconds. Prometheus refuses more than 11,000. Returns `None` for an origin that is not
    /// Prometheus.
    pub async fn past(
        &self,
        origin: &MetricOrigin,
        form: Form,
        target: &PastTarget<'_>,
        range: TimeRange,
        step: Duration,
    ) -> Option<Result<PastReading, Failure>> {
        let MetricOrigin::Prometheus { server: name, query } = origin else { return None };
        let current = self.current();
        let read = async {
            let failed = |error| Failure { source: described(origin), error };
            let server = current.servers.get(name).ok_or_else(|| failed(SourceError::UnknownServer))?;
            let query = server.restricted(query, target.namespace).map_err(failed)?;
            let text = query.text_of_past(target.namespace, target.name, PodNames::from_kind(target.kind));
            let text = text.map_err(|error| failed(error.into()))?;
            let failed = |error| Failure { source: described_query(name, &text), error };
            let totals = server.totals(&text, form, target, range, step).await.map_err(failed)?;
            let at_time = |(time, total)| Some((Timestamp::from_millisecond(time).ok()?, total));
            let totals = totals.into_iter().filter_map(at_time);
            let totals: Vec<_> = totals.filter(|(at, _)| (range.start..=range.end).contains(at)).collect();
            if totals.is_empty() {
                return Err(failed(SourceError::NoPast));
            }
            Ok(PastReading { server: name.to_string(), totals })
        };
        Some(read.await)
    }

    /// Returns the usage of the pods of an HPA from their kubelets. Usage older than `max_age_seconds` is an error.
    /// `now` is the time of day.
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
        now: Timestamp,
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
                        let page_age = Duration::ZERO;
                        Ok(Reading { values, at, page_age, interval, source, missing: None })
                    }
                }
            }
            MetricOrigin::Pods(series) => {
                let failed = |error| Failure { source: described(origin), error };
                if form != Form::PerPod {
                    return Err(failed(SourceError::NotPods));
                }
                let numbers = current.scraper.read(series, target, now).await.map_err(failed)?;
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
        let Self { values, oldest: at, page_age, missing } = self;
        Reading { values: Values::PerPod(values), at, page_age, interval, source, missing }
    }
}

/// Returns the name of a source in Concertina's metrics: the name of a server, an API group, `pods` or `kubelet`.
pub fn name_of(origin: &MetricOrigin) -> &str {
    match origin {
        MetricOrigin::Prometheus { server, .. } => server,
        MetricOrigin::Pods(_) => "pods",
        MetricOrigin::Kubelet => "kubelet",
        MetricOrigin::ApiGroup(group) => group,
    }
}

/// Describes a source with its query or series as the policy states them, for messages.
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
