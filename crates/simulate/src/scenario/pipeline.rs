//! The path of metrics from the pods to the controller: scrapes, outages of the metrics APIs, and metric sources. Each
//! metric source is a variant of the scenario. The module also lists the events that the scenario causes in the
//! cluster.

use std::time::Duration;

use super::document::Node;
use super::format::ScenarioFile;
use super::load_format::{
    ApiFile, MetricsFile, OutageFile, OutageKindFile, ScrapingFile, SourceFile, SourceKindFile,
};
use super::values::Length;
use super::workloads::{WorkloadPlan, span};
use super::{Problem, Sources, deserialize};
use crate::run::TimelineEvent;
use fake_cluster::MetricsApi;
use fake_cluster::load::{Outage, OutageKind, Pipeline, Relay, SCRAPE_INTERVAL, Scraping};
use fake_cluster::workload::{Failure, Span};
use terminal::words;

/// The default body of an error response, as from a proxy whose backend is down.
const DOWN: &str = "service unavailable";

/// The interval at which a kubelet measures a container.
const KUBELET: Duration = Duration::from_secs(10);
/// The interval at which metrics-server reads kubelets, as in its manifest.
const METRICS_SERVER: Duration = Duration::from_secs(15);
/// The usual scrape interval of Prometheus in a cluster.
const PROMETHEUS: Duration = Duration::from_secs(15);
/// The usual default of `intervalSeconds` in a scaling policy.
const PODS: Duration = Duration::from_secs(5);

pub(super) fn read(
    file: &MetricsFile,
    source: Option<&Source>,
    sources: Sources<'_>,
) -> Result<Pipeline, Problem> {
    let outages = file.outages.iter().enumerate();
    Ok(Pipeline {
        resource: scraping(file, &file.resource, source, "resource", sources)?,
        custom: scraping(file, &file.custom, source, "custom", sources)?,
        external: scraping(file, &file.external, source, "external", sources)?,
        outages: outages
            .map(|(index, outage)| read_outage(outage, &format!("metrics.outages[{index}]"), sources))
            .collect::<Result<_, _>>()?,
    })
}

fn scraping(
    all: &MetricsFile,
    specific: &ScrapingFile,
    source: Option<&Source>,
    api: &str,
    sources: Sources<'_>,
) -> Result<Scraping, Problem> {
    let is_specific =
        specific.scrape_interval.is_some() || specific.window.is_some() || specific.delay.is_some();
    if let Some(source) = source.filter(|_| !is_specific) {
        let relay = source.read_interval.map(|interval| Relay { interval, phase: Duration::ZERO });
        let Source { scrape_interval, window, delay, .. } = *source;
        return Ok(Scraping { window, delay, relay, ..Scraping::every(scrape_interval) });
    }
    let interval =
        specific.scrape_interval.or(all.scrape_interval).map_or(SCRAPE_INTERVAL, |interval| interval.0);
    let field = |name: &str, is_specific: bool| {
        if is_specific { format!("metrics.{api}.{name}") } else { format!("metrics.{name}") }
    };
    if interval < Duration::from_secs(1) {
        let field = field("scrapeInterval", specific.scrape_interval.is_some());
        return Err(sources.problem(&field, "must be at least 1s"));
    }
    let window = specific.window.or(all.window).map_or(interval, |window| window.0);
    if window < interval {
        let field = field("window", specific.window.is_some());
        return Err(sources.problem(&field, "must be at least the scrape interval"));
    }
    let delay = specific.delay.or(all.delay).map_or(Duration::ZERO, |delay| delay.0);
    Ok(Scraping { window, delay, ..Scraping::every(interval) })
}

fn read_outage(file: &OutageFile, field: &str, sources: Sources<'_>) -> Result<Outage, Problem> {
    let only_with = |name: &str, given: bool, kind: OutageKindFile| {
        if given && file.kind != kind {
            let kind = if kind == OutageKindFile::Error { "error" } else { "missing" };
            return Err(
                sources.problem(&format!("{field}.{name}"), format!("is only valid with kind: {kind}"))
            );
        }
        Ok(())
    };
    only_with("code", file.code.is_some(), OutageKindFile::Error)?;
    only_with("message", file.message.is_some(), OutageKindFile::Error)?;
    only_with("fraction", file.fraction.is_some(), OutageKindFile::Missing)?;
    let kind = match file.kind {
        OutageKindFile::Error => {
            let code = file.code.unwrap_or(503);
            if !(400..600).contains(&code) {
                return Err(
                    sources.problem(&format!("{field}.code"), "must be an HTTP error status from 400 to 599")
                );
            }
            OutageKind::Error { code, message: file.message.clone().unwrap_or_else(|| DOWN.to_owned()) }
        }
        OutageKindFile::Timeout => OutageKind::Timeout,
        OutageKindFile::Empty => OutageKind::Empty,
        OutageKindFile::Missing => {
            let fraction = file.fraction.ok_or_else(|| {
                sources.problem(field, "kind: missing requires a fraction, such as fraction: 50%")
            })?;
            OutageKind::Missing { fraction: fraction.0 }
        }
        OutageKindFile::Stale => OutageKind::Stale,
    };
    let api = match file.api {
        ApiFile::Resource => MetricsApi::Resource,
        ApiFile::Custom => MetricsApi::Custom,
        ApiFile::External => MetricsApi::External,
    };
    Ok(Outage { api, during: span(file.from, file.r#for), kind })
}

/// A source of metrics. Values that the file omits have the defaults of the kind of source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) scrape_interval: Duration,
    /// The interval at which metrics-server reads kubelets. `None` for any other kind of source.
    pub(super) read_interval: Option<Duration>,
    pub(super) window: Duration,
    pub(super) delay: Duration,
    /// The sync period of the variant. `None` for the period of the flags.
    pub(super) sync_period: Option<Duration>,
}

/// Returns the names of a document's sources of metrics. The result is `[None]` for a document without sources.
pub(in super::super) fn source_names(document: &Node) -> Result<Vec<Option<String>>, Problem> {
    let list = document.get("metrics").and_then(|metrics| metrics.get("sources"));
    if list.is_none_or(|list| list.items().is_empty()) {
        return Ok(vec![None]);
    }
    let file: ScenarioFile = deserialize(document)?;
    let sources = Sources { document };
    let read = |(index, file)| Ok(Some(read_source(file, index, sources)?.name));
    file.metrics.sources.iter().enumerate().map(read).collect()
}

pub(super) fn read_source(file: &SourceFile, index: usize, sources: Sources<'_>) -> Result<Source, Problem> {
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

/// Returns the outages, failures and rollouts of a scenario, by start.
pub(super) fn happenings(
    pipeline: &Pipeline,
    workloads: &[WorkloadPlan],
    rollouts: &[(Duration, usize)],
    duration: Duration,
) -> Vec<TimelineEvent> {
    let event = |span: &Span, what: String| TimelineEvent {
        from: span.from.min(duration),
        to: span.until.unwrap_or(duration).min(duration),
        what,
    };
    let mut all = Vec::new();
    for outage in &pipeline.outages {
        let api = match outage.api {
            MetricsApi::Resource => "resource metrics API",
            MetricsApi::Custom => "custom metrics API",
            MetricsApi::External => "external metrics API",
        };
        let what = match &outage.kind {
            OutageKind::Error { code, .. } => format!("{api} responds with {code}"),
            OutageKind::Timeout => format!("{api} does not respond"),
            OutageKind::Empty => format!("{api} returns empty lists"),
            OutageKind::Missing { fraction } => format!("{api} lacks {:.0} % of samples", fraction * 100.0),
            OutageKind::Stale => format!("{api} serves stale samples"),
        };
        all.push(event(&outage.during, what));
    }
    for workload in workloads {
        let name = &workload.name;
        for failure in &workload.model.failures {
            let percent = |fraction: &f64| format!("{:.0} %", fraction * 100.0);
            all.push(match failure {
                Failure::CrashLoop { during, fraction, .. } => {
                    event(during, format!("{} of {name}'s pods crash", percent(fraction)))
                }
                Failure::NeverReady { created, fraction } => {
                    event(created, format!("{} of {name}'s new pods never become ready", percent(fraction)))
                }
                Failure::Unready { during, fraction } => {
                    event(during, format!("{} of {name}'s pods are unready", percent(fraction)))
                }
                Failure::SlowPull { created, .. } => {
                    event(created, format!("{name}'s images are pulled slowly"))
                }
                Failure::Unschedulable { created, .. } => {
                    event(created, format!("no free node for {name}'s new pods"))
                }
            });
        }
    }
    for (at, index) in rollouts {
        if let Some(workload) = workloads.get(*index) {
            all.push(TimelineEvent { from: *at, to: *at, what: format!("rollout of {}", workload.name) });
        }
    }
    all.retain(|event| event.from < duration);
    all.sort_by(|one, other| (one.from, &one.what).cmp(&(other.from, &other.what)));
    all
}
