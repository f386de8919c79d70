//! Sample runs for tests of reports. A small model produces the runs without a cluster or a controller.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "the numbers of a day are small"
)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::explanation::{
    Explanation, FailedMetric, LimitStep, Measure, MetricExplanation, MetricReading, PodGroup, PodVerdict,
    PolicyUse, ProposalReason, StabilizationStep, Subject,
};
use autoscaling::history::{Direction, Recommendation};
use autoscaling::spec::{PolicyKind, SelectPolicy};
use autoscaling::status::Limit;
use jiff::{SignedDuration, Timestamp};

use super::run::{
    Comparison, DecisionPoint, EventMark, HpaRun, MetricSeries, Run, Sample, Scores, TimelineEvent,
};

/// The start of the sample runs: midnight of a Monday.
pub(super) const START: &str = "2030-01-07T00:00:00Z";
/// The sync period, in seconds.
const PERIOD: u64 = 15;
/// The capacity of a pod, in millicores.
const POD_TAKES: f64 = 500.0;

/// The parameters of a sample run.
#[derive(Debug, Clone)]
pub(super) struct Profile {
    pub(super) name: &'static str,
    pub(super) variant: &'static str,
    pub(super) hours: u64,
    pub(super) window: u64,
    pub(super) max: i32,
    pub(super) outage: Option<(u64, u64)>,
    pub(super) load: fn(f64) -> f64,
}

/// Returns the load at a second of the day, in millicores. The load has peaks before noon, after noon and in the
/// evening, and a spike at 15:30.
pub(super) fn business_day(second: f64) -> f64 {
    let hour = second / 3600.0;
    let hill = |at: f64, width: f64, height: f64| height * (-((hour - at) / width).powi(2)).exp();
    let noise = ((second * 12.9898).sin() * 43_758.545).fract() * 260.0;
    let spike = if (15.5..15.7).contains(&hour) { 3800.0 } else { 0.0 };
    (400.0 + hill(10.5, 2.4, 4200.0) + hill(14.5, 2.6, 3900.0) + hill(20.0, 1.8, 2100.0) + spike + noise)
        .max(0.0)
}

/// Returns the default parameters: one day.
pub(super) fn usual() -> Profile {
    Profile { name: "web", variant: "", hours: 24, window: 300, max: 20, outage: None, load: business_day }
}

/// Returns a day of one variant of one HPA.
pub(super) fn day() -> Comparison {
    compare(&[usual()])
}

/// Returns a day with an hour in which the resource metrics API is down.
pub(super) fn outage() -> Comparison {
    compare(&[Profile { outage: Some((11 * 3600, 12 * 3600)), ..usual() }])
}

/// Returns three variants of a day.
pub(super) fn variants() -> Comparison {
    let variant = |variant, window, max| Profile { variant, window, max, ..usual() };
    compare(&[
        variant("as it is", 300, 20),
        variant("scaleDown.stabilizationWindowSeconds=60", 60, 20),
        variant("maxReplicas=10", 300, 10),
    ])
}

/// Returns a queue with bursts of items. No pod runs while the queue is empty.
pub(super) fn queue() -> Comparison {
    let mut comparison = compare(&[Profile { name: "worker", hours: 8, window: 120, ..usual() }]);
    for run in &mut comparison.runs {
        "A queue that is worked off, down to zero pods".clone_into(&mut run.title);
        for hpa in &mut run.hpas {
            "items/s".clone_into(&mut hpa.unit);
            let mut waiting = 0.0_f64;
            for sample in &mut hpa.samples {
                let hour = sample.at.as_secs_f64() / 3600.0;
                let comes = if hour.rem_euclid(2.0) < 0.6 { 90.0 } else { 0.0 };
                sample.demand = comes;
                sample.ready = (waiting / 900.0).ceil().min(12.0) as i32;
                (sample.wanted, sample.running, sample.min, sample.max) = (sample.ready, sample.ready, 0, 12);
                (sample.proposal, sample.stabilized, sample.rate_allows) =
                    (Some(sample.ready), Some(sample.ready), None);
                sample.capacity = f64::from(sample.ready) * 8.0;
                waiting = (waiting + (comes - sample.capacity) * PERIOD as f64).max(0.0);
                sample.queued = waiting;
            }
            hpa.scores.unserved = hpa.samples.iter().map(|sample| sample.queued * PERIOD as f64).sum();
            hpa.scores.unserved_fraction = 0.0;
        }
    }
    comparison
}

/// Returns a run with many HPAs. Some of their names contain markup or escape sequences.
pub(super) fn many(count: usize) -> Comparison {
    let names =
        ["web", "<script>alert(1)</script>", "a&b", "\u{1b}[31mred", "</script><img src=x onerror=alert(2)>"];
    let profiles: Vec<_> = (0..count)
        .map(|index| Profile {
            name: names[index % names.len()],
            hours: 2,
            load: |second| business_day(second + 30_000.0),
            ..usual()
        })
        .collect();
    let mut comparison = compare(&profiles[..1]);
    for profile in &profiles[1..] {
        let hpas = simulate(profile).hpas;
        comparison.runs[0].hpas.extend(hpas);
    }
    comparison
}

pub(super) fn compare(profiles: &[Profile]) -> Comparison {
    Comparison { runs: profiles.iter().map(simulate).collect(), ..Comparison::default() }
}

fn cpu() -> Subject {
    Subject { kind: "Resource".into(), name: "cpu".into(), ..Subject::default() }
}

/// Runs the model. The target is 60 %, and pods become ready after 45 s. Per minute, the count may rise by 4 pods, or
/// by 100 % if that is more. It may fall by 10 %, or by 1 pod if that is more.
fn simulate(profile: &Profile) -> Run {
    let start: Timestamp = START.parse().unwrap();
    let end = profile.hours * 3600;
    let mut wanted = 2_i32;
    let mut readiness: VecDeque<u64> = VecDeque::from([0, 0]);
    let mut recommendations: VecDeque<(u64, i32)> = VecDeque::new();
    let mut changes: VecDeque<(u64, i32)> = VecDeque::new();
    let mut hpa = HpaRun {
        namespace: "shop".to_owned(),
        name: profile.name.to_owned(),
        target: format!("Deployment/{}", profile.name),
        unit: "millicores".to_owned(),
        period: Duration::from_secs(PERIOD),
        interval: Duration::from_secs(PERIOD),
        samples: Vec::new(),
        metrics: vec![MetricSeries {
            subject: cpu(),
            unit: "%",
            target: 60.0,
            tolerated_from: 54.0,
            tolerated_to: 66.0,
            values: Vec::new(),
        }],
        decisions: Vec::new(),
        policies: Vec::new(),
        events: Vec::new(),
        scores: Scores::default(),
    };
    let mut last = String::new();
    for second in (0..end).step_by(PERIOD as usize) {
        let now = start + SignedDuration::from_secs(second as i64);
        let ready = readiness.iter().filter(|at| **at <= second).count() as i32;
        let demand = (profile.load)(second as f64);
        let capacity = f64::from(ready) * POD_TAKES;
        let is_down = profile.outage.is_some_and(|(from, to)| (from..to).contains(&second));
        let percent = (demand / f64::from(ready.max(1)) / POD_TAKES * 100.0).min(140.0).round();
        let ratio = percent / 60.0;
        let mut explanation = Explanation {
            current: wanted,
            status_replicas: wanted,
            min: 2,
            max: profile.max,
            ..Explanation::default()
        };
        let (mut stabilized, mut allowed) = (None, None);
        if is_down {
            explanation.metrics = vec![MetricExplanation::Failed(FailedMetric {
                subject: cpu(),
                reason: "FailedGetResourceMetric".into(),
                class: None,
                error: "failed to get cpu utilization: unable to fetch metrics from resource metrics API"
                    .into(),
            })];
            explanation.failure = Some("no metric has a value".into());
            if hpa.events.last().is_none_or(|event| second - event.at.as_secs() >= 300) {
                hpa.events.push(EventMark {
                    at: Duration::from_secs(second),
                    reason: "FailedGetResourceMetric".to_owned(),
                    warning: true,
                    message: "failed to get cpu utilization".to_owned(),
                });
            }
        } else {
            let tolerated = (ratio - 1.0).abs() <= 0.1;
            let proposal = if tolerated { wanted } else { (ratio * f64::from(ready)).ceil() as i32 };
            recommendations.push_back((second, proposal));
            recommendations.retain(|(at, _)| second - at < profile.window.max(1));
            let held = recommendations.iter().copied().max_by_key(|(at, count)| (*count, *at)).unwrap();
            let after = if proposal < wanted { held.1.min(wanted) } else { proposal };
            changes.retain(|(at, _)| second - at < 60);
            let added: i32 = changes.iter().map(|(_, count)| (*count).max(0)).sum();
            let removed: i32 = changes.iter().map(|(_, count)| (-*count).max(0)).sum();
            let period_start = wanted - added + removed;
            let rate = if after > wanted {
                (period_start + 4).max(period_start * 2)
            } else {
                period_start - (period_start / 10).max(1)
            };
            let limited = if after > wanted { after.min(rate) } else { after.max(rate.min(wanted)) };
            let desired = limited.clamp(2, profile.max);
            let direction = match after.cmp(&wanted) {
                std::cmp::Ordering::Greater => Some(Direction::Up),
                std::cmp::Ordering::Less => Some(Direction::Down),
                std::cmp::Ordering::Equal => None,
            };
            let limit = if limited != desired {
                if desired == 2 { Limit::Minimum } else { Limit::Maximum }
            } else if limited == after {
                Limit::WithinRange
            } else if after > wanted {
                Limit::ScaleUpRate
            } else {
                Limit::ScaleDownRate
            };
            explanation.metrics = vec![MetricExplanation::Valid(MetricReading {
                subject: cpu(),
                name: "cpu resource utilization (percentage of request)".into(),
                target: Measure::Percent(60),
                value: Measure::Percent(percent as i32),
                total: None,
                ratio,
                lowest_tolerated: 0.9,
                highest_tolerated: 1.1,
                pods: (0..wanted.min(3))
                    .map(|index| PodVerdict {
                        name: format!("{}-{index}", profile.name).into(),
                        group: PodGroup::Ready,
                        sample: Some(300),
                        request: Some(500),
                    })
                    .collect(),
                unlisted: Vec::new(),
                unmatched: None,
                ready_pods: None,
                corrected: None,
                why: if tolerated { ProposalReason::WithinTolerance } else { ProposalReason::Ratio },
                proposal,
            })];
            explanation.winner = Some(0);
            explanation.proposal = Some(proposal);
            explanation.stabilization = Some(StabilizationStep {
                before: proposal,
                after,
                up_window_seconds: Some(0),
                down_window_seconds: profile.window as i64,
                held_by: (after != proposal).then(|| Recommendation {
                    at: start + SignedDuration::from_secs(held.0 as i64),
                    replicas: held.1,
                }),
                recommendations: Vec::new(),
            });
            explanation.limit = Some(LimitStep {
                before: after,
                after: desired,
                limit,
                direction,
                select: direction.map(|_| SelectPolicy::Max),
                policies: direction
                    .map(|_| PolicyUse {
                        kind: PolicyKind::Pods,
                        value: 4,
                        period_seconds: 60,
                        added,
                        removed,
                        start: period_start,
                        allows: rate,
                        frees_at: changes
                            .front()
                            .map(|(at, _)| start + SignedDuration::from_secs((at + 60) as i64)),
                        unknown_rescale: None,
                    })
                    .into_iter()
                    .collect(),
                rate_allows: direction.map(|_| rate),
            });
            explanation.desired = Some(desired);
            (stabilized, allowed) = (Some(after), direction.map(|_| rate));
            if desired != wanted {
                changes.push_back((second, desired - wanted));
                hpa.events.push(EventMark {
                    at: Duration::from_secs(second),
                    reason: "SuccessfulRescale".to_owned(),
                    warning: false,
                    message: format!("New size: {desired}; reason: cpu resource utilization"),
                });
                hpa.scores.rescales += 1;
            }
            while readiness.len() < desired as usize {
                readiness.push_back(second + 45);
            }
            readiness.truncate(desired.max(0) as usize);
            wanted = desired;
        }
        let steps =
            format!("{:?}{:?}{:?}", explanation.limiting_step(), explanation.proposal, explanation.desired);
        if steps != last {
            last = steps;
            let sentence = explanation.sentence(now);
            let explanation = Arc::new(explanation.clone());
            hpa.decisions.push(DecisionPoint {
                at: Duration::from_secs(second),
                sentence,
                explanation,
                policy: None,
            });
        }
        hpa.metrics[0].values.push((!is_down && second >= 60).then_some(percent));
        hpa.samples.push(Sample {
            at: Duration::from_secs(second),
            wanted,
            running: readiness.len() as i32,
            ready,
            demand,
            capacity,
            queued: 0.0,
            min: 2,
            max: profile.max,
            proposal: explanation.proposal,
            stabilized,
            rate_allows: allowed,
            withheld: None,
            forecast: None,
        });
    }
    score(&mut hpa);
    let happenings = profile.outage.map(|(from, to)| TimelineEvent {
        from: Duration::from_secs(from),
        to: Duration::from_secs(to),
        what: "resource metrics API is down".to_owned(),
    });
    Run {
        title: "A shop on a business day".to_owned(),
        variant: profile.variant.to_owned(),
        seed: 7,
        start,
        duration: Duration::from_secs(end),
        period: Duration::from_secs(PERIOD),
        hpas: vec![hpa],
        happenings: happenings.into_iter().collect(),
    }
}

fn score(hpa: &mut HpaRun) {
    let step = PERIOD as f64;
    let demand: f64 = hpa.samples.iter().map(|sample| sample.demand * step).sum();
    let scores = &mut hpa.scores;
    scores.unserved =
        hpa.samples.iter().map(|sample| (sample.demand - sample.capacity).max(0.0) * step).sum();
    scores.unserved_fraction = scores.unserved / demand;
    scores.pod_hours = hpa.samples.iter().map(|sample| f64::from(sample.running) * step / 3600.0).sum();
    let above = hpa.metrics[0].values.iter().flatten().filter(|value| **value > 66.0).count();
    scores.above_target = Duration::from_secs(above as u64 * PERIOD);
    scores.peak = hpa.samples.iter().map(|sample| sample.running).max().unwrap_or(0);
    scores.longest_reaction = Duration::from_secs(105);
    let counts: Vec<_> = hpa.samples.iter().map(|sample| sample.wanted).collect();
    let steps: Vec<_> =
        counts.windows(2).map(|pair| (pair[1] - pair[0]).signum()).filter(|step| *step != 0).collect();
    scores.direction_changes = steps.windows(2).filter(|pair| pair[0] != pair[1]).count() as u32;
}
