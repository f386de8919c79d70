//! The record of decisions: bytes per HPA and time per sync.

use std::error::Error;
use std::sync::Arc;

use autoscaling::explanation::{
    Corrected, Explanation, LimitStep, Measure, MetricExplanation, MetricReading, PodGroup, PodVerdict,
    PolicyUse, ProposalReason, StabilizationStep, Subject,
};
use autoscaling::history::{Changes, Direction, Recommendation};
use autoscaling::spec::{PolicyKind, SelectPolicy, Spec};
use autoscaling::status::{Limit, Status};
use autoscaling::{Action, Answers, Conclusion, ErrorLabel, WriteOutcome};
use engine::reconcile::{ConcludedSync, Observer};
use engine::store::{HpaRecord, Key};
use jiff::{SignedDuration, Timestamp};
use journal::record::Record;
use serde_json::json;
use serde_json::value::to_raw_value;
use tokio::time::Instant;

use super::{micros, resident_bytes};

const HPAS: usize = 10_000;
const PODS: usize = 15;
const ENTRIES: usize = 40;

/// The maximum bytes per HPA in a usual cluster.
const BYTES_PER_HPA: usize = 2048;
/// The maximum time of a sync without a change, in microseconds.
const MICROS_PER_STEADY_SYNC: f64 = 2.0;

/// The frequency of changes of an HPA's replica count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Activity {
    /// The count has changed only once.
    Steady,
    /// The count changes a few times per hour, so the record of the HPA is full after half a day.
    Moving,
    /// The count changes at every sync.
    Changing,
}

impl Activity {
    /// Returns the activity of an HPA in a usual cluster: 90 % of the HPAs are steady, 9 % are moving, and 1 % are
    /// changing.
    fn usual(hpa: usize) -> Self {
        match hpa % 100 {
            0 => Self::Changing,
            1..10 => Self::Moving,
            _ => Self::Steady,
        }
    }

    /// Returns the replica counts before and after each sync.
    fn syncs(self) -> Vec<(i32, i32)> {
        let changes = |count: i32| (0..count).map(|change| 15 + change % 2);
        match self {
            Self::Steady => [vec![(14, 15)], vec![(15, 15); 8]].concat(),
            Self::Moving => changes(25)
                .flat_map(|from| [vec![(from, 31 - from)], vec![(31 - from, 31 - from); 4]].concat())
                .collect(),
            Self::Changing => changes(60).map(|from| (from, 31 - from)).collect(),
        }
    }
}

/// Measures a usual cluster, or a cluster in which every HPA changes at every sync.
pub(super) fn measure(all_changing: bool) -> Result<(), Box<dyn Error>> {
    let hpas = (0..HPAS).map(hpa).collect::<Result<Vec<_>, _>>()?;
    let activity = |hpa| if all_changing { Activity::Changing } else { Activity::usual(hpa) };
    let activities: Vec<_> = (0..HPAS).map(|hpa| activity(hpa).syncs()).collect();
    let mut at = "2026-03-01T10:00:00.123456789Z".parse::<Timestamp>()?;
    let record = Record::new(ENTRIES);
    let before = resident_bytes()?;
    for round in 0..activities.iter().map(Vec::len).max().unwrap_or(0) {
        at = at.checked_add(SignedDuration::from_secs(15))?;
        for (hpa, syncs) in hpas.iter().zip(&activities) {
            if let Some((from, to)) = syncs.get(round).copied() {
                sync(&record, hpa, at, &conclusion(from, to, round, at));
            }
        }
    }
    let bytes = resident_bytes()?.saturating_sub(before) / HPAS;
    let entries = hpas.iter().map(|hpa| record.decisions(&hpa.uid).len()).sum::<usize>();
    let title = if all_changing { "all changing" } else { "usual" };
    println!("record, {title}: {bytes} B per HPA with {:.1} entries", entries as f64 / HPAS as f64);

    let (steady, similar) = (conclusion(15, 15, 1, at), conclusion(15, 15, 2, at));
    let time = |conclusion| {
        let started = Instant::now();
        for hpa in &hpas {
            sync(&record, hpa, at, conclusion);
        }
        micros(started.elapsed()) / HPAS as f64
    };
    // `folded` is the time of a sync that extends the last entry. It is the minimum of several rounds, because other
    // work on the machine only adds time.
    let change = time(&steady);
    let folded = (0..5).flat_map(|_| [time(&similar), time(&steady)]).fold(f64::INFINITY, f64::min);
    println!("record, {title}: {change:.2} µs per sync with a change, {folded:.2} µs per sync without");
    if !all_changing && bytes > BYTES_PER_HPA {
        return Err(format!("{bytes} B per HPA is more than {BYTES_PER_HPA}").into());
    }
    if !all_changing && folded > MICROS_PER_STEADY_SYNC {
        return Err(format!("{folded:.2} µs per steady sync is more than {MICROS_PER_STEADY_SYNC}").into());
    }
    Ok(())
}

fn sync(record: &Record, hpa: &HpaRecord, at: Timestamp, conclusion: &Conclusion) {
    let answers = Answers { metrics: Vec::new(), pods: &[] };
    let rescales = conclusion.action != Action::None;
    let outcome = if rescales { WriteOutcome::Done } else { WriteOutcome::NotNeeded };
    record.concluded(&ConcludedSync {
        hpa,
        at,
        ended: at,
        set: SignedDuration::ZERO,
        answers: &answers,
        outcome: &outcome,
        conclusion,
        withholds_status: false,
        policy: None,
        rules: None,
        sources: &[],
    });
}

fn hpa(index: usize) -> Result<HpaRecord, serde_json::Error> {
    let spec = json!({"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 50});
    Ok(HpaRecord {
        key: Key::new(format!("team-{:03}", index % 50), format!("checkout-{index:05}")),
        uid: format!("4d5b0000-0000-0000-0000-{index:012}").into(),
        generation: Some(3),
        resource_version: "123456789".to_owned(),
        metadata: to_raw_value(&())?,
        spec_raw: to_raw_value(&())?.into(),
        spec: Arc::new(serde_json::from_value::<Spec>(spec)?),
        status: Arc::new(Status::default()),
        status_writers: Vec::new(),
    })
}

/// Returns the conclusion of a sync from one replica count to another. At a scale-up, the last two pods are not ready
/// yet.
fn conclusion(from: i32, to: i32, round: usize, at: Timestamp) -> Conclusion {
    let action = Action::between(from, to);
    let wave = i64::try_from(round % 7).unwrap_or(0);
    let ago = |seconds: i64| at.checked_sub(SignedDuration::from_secs(seconds)).unwrap_or(at);
    let metric = |name: &str, unit: i64| {
        let pods = (0..PODS).map(|pod| PodVerdict {
            name: format!("checkout-00001-5d9c7b8f6d-{pod:05}").into(),
            group: if to > from && pod + 2 >= PODS { PodGroup::UnreadyInitializing } else { PodGroup::Ready },
            sample: Some((100 + wave) * unit),
            request: Some(200 * unit),
        });
        let value = 50 + i32::try_from(wave).unwrap_or(0);
        MetricExplanation::Valid(MetricReading {
            subject: Subject { kind: "Resource".into(), name: name.into(), ..Subject::default() },
            name: format!("{name} resource utilization (percentage of request)").into(),
            target: Measure::Percent(53),
            value: Measure::Percent(value),
            total: None,
            ratio: f64::from(value) / 53.0,
            lowest_tolerated: 0.9,
            highest_tolerated: 1.1,
            pods: pods.collect(),
            unlisted: Vec::new(),
            unmatched: None,
            ready_pods: None,
            corrected: (to > from).then_some(Corrected {
                ratio: 1.17,
                values: 15,
                missing: None,
                unready: true,
            }),
            why: if to == from { ProposalReason::WithinTolerance } else { ProposalReason::Ratio },
            proposal: to,
        })
    };
    let policy = |kind, value, period_seconds| PolicyUse {
        kind,
        value,
        period_seconds,
        added: 1,
        removed: 1,
        start: from,
        allows: from * 2,
        frees_at: Some(ago(5)),
        unknown_rescale: None,
    };
    let direction = match action {
        Action::ScaleUp => Some(Direction::Up),
        Action::ScaleDown => Some(Direction::Down),
        Action::None => None,
    };
    let explanation = Explanation {
        current: from,
        status_replicas: from,
        min: 2,
        max: 50,
        metrics: vec![metric("cpu", 1), metric("memory", 1_048_576)],
        winner: Some(0),
        proposal: Some(to),
        stabilization: Some(StabilizationStep {
            before: to,
            after: to,
            up_window_seconds: Some(0),
            down_window_seconds: 300,
            held_by: Some(Recommendation { at: ago(120), replicas: to }),
            recommendations: Vec::new(),
        }),
        limit: Some(LimitStep {
            before: to,
            after: to,
            limit: Limit::WithinRange,
            direction,
            select: direction.map(|_| SelectPolicy::Max),
            policies: direction
                .map(|_| vec![policy(PolicyKind::Pods, 4, 15), policy(PolicyKind::Percent, 100, 15)])
                .unwrap_or_default(),
            rate_allows: Some(from * 2),
        }),
        desired: Some(to),
        ..Explanation::default()
    };
    Conclusion {
        status: None,
        events: Vec::new(),
        unsent_events: std::collections::BTreeMap::new(),
        last_event: None,
        changes: Changes::default(),
        desired: Some(to),
        action,
        error: ErrorLabel::None,
        computations: Vec::new(),
        explanation,
    }
}
