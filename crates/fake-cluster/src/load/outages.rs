//! Outages: missing samples, failing APIs, and the times of changes.

use std::time::Duration;

use super::pipeline::{Outage, OutageKind, Pipeline};
use crate::workload::seed::Seed;
use crate::{Cluster, FaultAction, FaultId, FaultRule, MetricsApi};

/// The fault rules of a pipeline's outages.
#[derive(Debug, Default)]
pub(super) struct OutageRules {
    /// One entry per outage. `None` while the outage is inactive.
    rules: Vec<Option<FaultId>>,
}

impl OutageRules {
    /// Adds and removes the fault rules of outages that have started or ended.
    pub(super) fn update(&mut self, pipeline: &Pipeline, cluster: &Cluster, now: Duration) {
        self.rules.resize(pipeline.outages.len(), None);
        for (rule, outage) in self.rules.iter_mut().zip(&pipeline.outages) {
            match (action(outage).filter(|_| outage.during.contains(now)), *rule) {
                (Some(action), None) => {
                    let prefix = format!("/apis/{}/", outage.api.group());
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

    /// Returns the next time at which a fault rule is added or removed.
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

/// The data that one API lacks at an instant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gaps<'a> {
    pub(super) pipeline: &'a Pipeline,
    pub(super) api: MetricsApi,
    pub(super) now: Duration,
}

impl Gaps<'_> {
    /// Whether sampling is suspended.
    pub(super) fn are_stale(&self) -> bool {
        self.outages().any(|(_, kind)| *kind == OutageKind::Stale)
    }

    /// Whether the sample of the named pod, object or series is missing.
    pub(super) fn hides(&self, name: &str) -> bool {
        self.outages().any(|(index, kind)| match kind {
            OutageKind::Empty => true,
            OutageKind::Missing { fraction } => Seed::new(index).for_name(name).share() < *fraction,
            _ => false,
        })
    }

    fn outages(&self) -> impl Iterator<Item = (u64, &OutageKind)> {
        let applies = |outage: &Outage| outage.api == self.api && outage.during.contains(self.now);
        let all = (0..).zip(&self.pipeline.outages);
        all.filter(move |(_, outage)| applies(outage)).map(|(index, outage)| (index, &outage.kind))
    }
}
