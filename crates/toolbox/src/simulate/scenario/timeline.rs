//! The events that a scenario causes in the cluster, as marks for charts.

use std::time::Duration;

use super::workloads::WorkloadPlan;
use crate::simulate::run::TimelineEvent;
use fake_cluster::MetricsApi;
use fake_cluster::load::{OutageKind, Pipeline};
use fake_cluster::workload::{Failure, Span};

pub(super) fn collect(
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
