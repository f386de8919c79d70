//! The path of metrics from the pods to the controller.

use std::time::Duration;

use super::Sources;
use super::format::{ApiFile, MetricsFile, OutageFile, OutageKindFile, ScrapingFile};
use super::problem::Problem;
use super::sources::Source;
use super::workloads::span;
use fake_cluster::MetricsApi;
use fake_cluster::load::{Outage, OutageKind, Pipeline, Relay, SCRAPE_INTERVAL, Scraping};

/// The body of a proxy's response while the adapter behind it is down.
const DOWN: &str = "service unavailable";

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
