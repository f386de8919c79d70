//! The metric sources of a scenario. Each source is a variant.

use std::time::Duration;

use super::document::Node;
use super::format::{SourceFile, SourceKindFile};
use super::problem::Problem;
use super::values::Length;
use super::{Sources, reading};
use crate::words;

/// The interval at which a kubelet measures a container.
const KUBELET: Duration = Duration::from_secs(10);
/// The interval at which metrics-server reads kubelets, as in its manifest.
const METRICS_SERVER: Duration = Duration::from_secs(15);
/// The usual scrape interval of Prometheus in a cluster.
const PROMETHEUS: Duration = Duration::from_secs(15);
/// The default of `intervalSeconds` of a scaling policy.
const PODS: Duration = Duration::from_secs(5);

/// A source with its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) scrape_interval: Duration,
    /// The interval at which metrics-server reads kubelets.
    pub(super) read_interval: Option<Duration>,
    pub(super) window: Duration,
    pub(super) delay: Duration,
    pub(super) sync_period: Option<Duration>,
}

/// The names of a document's sources. A document without sources has one source without a name.
pub(in super::super) fn names(document: &Node) -> Result<Vec<Option<String>>, Problem> {
    let list = document.get("metrics").and_then(|metrics| metrics.get("sources"));
    if list.is_none_or(|list| list.items().is_empty()) {
        return Ok(vec![None]);
    }
    let file: super::format::ScenarioFile = reading::read(document)?;
    let sources = Sources { document };
    let read = |(index, file)| Ok(Some(read(file, index, sources)?.name));
    file.metrics.sources.iter().enumerate().map(read).collect()
}

pub(super) fn read(file: &SourceFile, index: usize, sources: Sources<'_>) -> Result<Source, Problem> {
    let problem = |name: &str, message: &str| {
        sources.problem(&format!("metrics.sources[{index}].{name}"), message.to_owned())
    };
    let has_relay = file.from == SourceKindFile::MetricsServer;
    if file.read_interval.is_some() && !has_relay {
        return Err(problem("readInterval", "is only valid with from: metricsServer"));
    }
    let given = |length: Option<Length>| length.map(|length| length.0);
    let (kind, scrape_interval) = match file.from {
        SourceKindFile::MetricsServer => ("metrics-server", KUBELET),
        SourceKindFile::Kubelet => ("kubelets", KUBELET),
        SourceKindFile::Adapter => ("adapter", PROMETHEUS),
        SourceKindFile::Prometheus => ("Prometheus", PROMETHEUS),
        SourceKindFile::Pods => ("pods", PODS),
    };
    let scrape_interval = given(file.scrape_interval).unwrap_or(scrape_interval);
    let read_interval = has_relay.then(|| given(file.read_interval).unwrap_or(METRICS_SERVER));
    let sync_period = given(file.sync_period);
    for (name, interval) in [
        ("scrapeInterval", Some(scrape_interval)),
        ("readInterval", read_interval),
        ("syncPeriod", sync_period),
    ] {
        if interval.is_some_and(|interval| interval < Duration::from_secs(1)) {
            return Err(problem(name, "must be at least 1s"));
        }
    }
    let window = given(file.window).unwrap_or_else(|| match file.from {
        // metrics-server computes cpu from the counters of two of its readings.
        SourceKindFile::MetricsServer => read_interval.unwrap_or_default().max(scrape_interval),
        // A rate of PromQL needs two samples.
        SourceKindFile::Adapter | SourceKindFile::Prometheus => scrape_interval.saturating_mul(2),
        SourceKindFile::Kubelet | SourceKindFile::Pods => scrape_interval,
    });
    if window < scrape_interval {
        return Err(problem("window", "must be at least the scrape interval"));
    }
    let name = file.name.clone().unwrap_or_else(|| {
        let read = read_interval.map(|interval| format!(" + {}", words::duration(interval)));
        let sync = sync_period.map(|period| format!(", sync {}", words::duration(period)));
        let scrape = words::duration(scrape_interval);
        format!("{kind} {scrape}{}{}", read.unwrap_or_default(), sync.unwrap_or_default())
    });
    let delay = given(file.delay).unwrap_or_default();
    Ok(Source { name, scrape_interval, read_interval, window, delay, sync_period })
}
