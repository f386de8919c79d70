//! Outages: which samples are missing, which APIs do not answer, and when that changes.

use std::time::Duration;

use super::pipeline::{Outage, OutageKind, Pipeline};
use crate::embedded::workload::seed::Seed;
use crate::embedded::{Cluster, FaultAction, FaultId, FaultRule, MetricsApi};

/// The outages of a pipeline that need something to be done, and what is done about them.
#[derive(Debug, Default)]
pub(super) struct Switches {
    /// By the outage's place; none while it is not on.
    rules: Vec<Option<FaultId>>,
}

impl Switches {
    /// Lets requests fail, or succeed again, as the time has come.
    pub(super) fn update(&mut self, pipeline: &Pipeline, cluster: &Cluster, now: Duration) {
        self.rules.resize(pipeline.outages.len(), None);
        for (rule, outage) in self.rules.iter_mut().zip(&pipeline.outages) {
            match (action(outage).filter(|_| outage.during.contains(now)), *rule) {
                (Some(action), None) => {
                    let prefix = format!("/apis/{}/", group(outage.api));
                    *rule = Some(cluster.faults().add(FaultRule::new(action).path_prefix(&prefix)));
                }
                (None, Some(id)) => {
                    cluster.faults().remove(id);
                    *rule = None;
                }
                _ => {}
            }
        }
    }

    /// When requests begin to fail or succeed next.
    pub(super) fn due(pipeline: &Pipeline, now: Duration) -> Option<Duration> {
        let failing = pipeline.outages.iter().filter(|outage| action(outage).is_some());
        let edges = failing.flat_map(|outage| [Some(outage.during.from), outage.during.until]);
        edges.flatten().filter(|edge| *edge > now).min()
    }
}

fn action(outage: &Outage) -> Option<FaultAction> {
    match &outage.kind {
        OutageKind::Error { code, message } => Some(FaultAction::Text { code: *code, body: message.clone() }),
        OutageKind::Timeout => Some(FaultAction::Silence),
        OutageKind::Empty | OutageKind::Missing { .. } | OutageKind::Stale => None,
    }
}

fn group(api: MetricsApi) -> &'static str {
    match api {
        MetricsApi::Resource => "metrics.k8s.io",
        MetricsApi::Custom => "custom.metrics.k8s.io",
        MetricsApi::External => "external.metrics.k8s.io",
    }
}

/// What is missing from the answers of one API now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gaps<'a> {
    pub(super) pipeline: &'a Pipeline,
    pub(super) api: MetricsApi,
    pub(super) now: Duration,
}

impl Gaps<'_> {
    /// Whether no new samples are taken.
    pub(super) fn are_stale(&self) -> bool {
        self.outages().any(|(_, kind)| *kind == OutageKind::Stale)
    }

    /// Whether the sample of this pod, object or series is missing.
    pub(super) fn swallow(&self, name: &str) -> bool {
        self.outages().any(|(place, kind)| match kind {
            OutageKind::Empty => true,
            OutageKind::Missing { fraction } => Seed::new(place).of(name).share() < *fraction,
            _ => false,
        })
    }

    fn outages(&self) -> impl Iterator<Item = (u64, &OutageKind)> {
        let concerns = |outage: &Outage| outage.api == self.api && outage.during.contains(self.now);
        let all = (0..).zip(&self.pipeline.outages);
        all.filter(move |(_, outage)| concerns(outage)).map(|(place, outage)| (place, &outage.kind))
    }
}
