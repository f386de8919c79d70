//! Plays a case through the rules, the histories and the schedule of the controller, in virtual time and without HTTP.
//! A sync reads the clock at its decision and at the end of its write, as the controller does.

use std::sync::Arc;
use std::time::Duration;

use autoscaling::quantity::{Format, Quantity};
use autoscaling::query::{Answer, ExternalValue};
use autoscaling::settings::{Settings, Version};
use autoscaling::spec::Spec;
use autoscaling::status::Status;
use autoscaling::{Answers, Hpa, Overlap, Scale, Verdict, WriteOutcome, conclude, decide, plan};
use engine::reconcile::{Histories, KeptHistory, SyncSchedule};
use engine::store::Key;
use jiff::{SignedDuration, Timestamp};
use journal::history::codec;
use serde_json::{Value, json};
use tokio::time::{Instant, advance};

use crate::model::{Case, Event, Rules, Synced};

/// A count of existing pods that is far from every proposal, so that no proposal is within the tolerance.
pub(crate) const PODS: i32 = 1_000_000;

/// The spec of a case. Its metric `metric` proposes its value.
pub(crate) fn spec(case: &Case, target: &str, metric: &str) -> Value {
    let rules = |rules: &Rules| {
        let policies = rules.policies.iter().map(|policy| {
            let kind = if policy.pods { "Pods" } else { "Percent" };
            json!({"type": kind, "value": policy.value, "periodSeconds": policy.seconds})
        });
        json!({
            "stabilizationWindowSeconds": rules.window, "selectPolicy": rules.select,
            "policies": policies.collect::<Vec<_>>(),
        })
    };
    let mut spec = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
        "minReplicas": 1, "maxReplicas": case.max,
        "metrics": [{"type": "External", "external": {
            "metric": {"name": metric}, "target": {"type": "AverageValue", "averageValue": "1"},
        }}],
    });
    if let Some([up, down]) = &case.behavior {
        spec["behavior"] = json!({"scaleUp": rules(up), "scaleDown": rules(down)});
    }
    spec
}

/// The schedule of a controller that starts now.
fn schedule_of(period: Duration, slots: bool, now: Timestamp, key: &Key) -> SyncSchedule {
    if slots {
        let schedule = SyncSchedule::spread(period, None, now);
        schedule.add(key);
        schedule
    } else {
        SyncSchedule::without_slots(period)
    }
}

async fn pass(millis: u64) {
    advance(Duration::from_millis(millis)).await;
}

async fn pass_until(at: Instant) {
    advance(at.saturating_duration_since(Instant::now())).await;
}

/// The schedule of the syncs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phases {
    /// The controller's schedule, in which the syncs of HPAs are spread over the period.
    Slots,
    /// The controller's schedule without slots.
    NoSlots,
    /// A planted bug: an HPA is due one period after its previous due time.
    FromDueTime,
}

/// Plays a case. `number` names the HPA.
pub(crate) async fn play(case: &Case, phases: Phases, number: u64) -> Vec<Synced> {
    let (slots, has_bug) = (phases == Phases::Slots, phases == Phases::FromDueTime);
    let (origin, mut jumped) = (Instant::now(), 0);
    let epoch = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * 365 * 60);
    let wall = |jumped: i64| {
        let passed = SignedDuration::try_from(origin.elapsed()).unwrap();
        epoch + passed + SignedDuration::from_millis(jumped)
    };
    let spec: Spec = serde_json::from_value(spec(case, "web", "load")).unwrap();
    let settings =
        Settings { downscale_stabilization: Duration::from_secs(case.downscale), ..Settings::default() };
    let (key, uid): (_, Arc<str>) = (Key::new("shop", format!("web-{number}")), "uid".into());
    let period = Duration::from_millis(case.period);
    let mut schedule = schedule_of(period, slots, wall(0), &key);
    let mut histories = Histories::new();
    let (mut status, mut replicas, mut syncs) = (Status::default(), case.replicas, Vec::new());
    let (mut due, mut waiting, mut at) = (Instant::now(), None::<Instant>, None);
    for step in &case.steps {
        pass_until(due).await;
        pass(step.late).await;
        let started = Instant::now();
        pass(step.read).await;
        let hpa = Hpa { namespace: "shop", name: "web", generation: Some(1), spec: &spec, status: &status };
        let scale = Scale::new(replicas, PODS, "app=web", Version::V1_37).unwrap();
        let plan = plan(&hpa, Ok(scale), |_| Overlap::None, &settings);
        let value = Quantity::from_units(step.proposal.into(), Format::DecimalSi);
        let answer = Answer::External([ExternalValue { timestamp: None, value }].into());
        let answers = Answers { metrics: vec![Some(Ok(answer))], pods: &[] };
        let (moment, decided) = (histories.correct_clock(wall(jumped)), Instant::now());
        let history = histories.get(&uid);
        let decision = decide(&hpa, &plan, &answers, &history, &settings, moment.at);
        let mut outcome = WriteOutcome::NotNeeded;
        if let Verdict::Rescale { to, .. } = decision.verdict() {
            replicas = *to;
            outcome = WriteOutcome::Done;
            pass(step.scale).await;
        }
        let ended = moment.at + SignedDuration::try_from(decided.elapsed()).unwrap();
        let conclusion = conclude(&hpa, decision, &outcome, &settings, ended);
        histories.commit(&uid, &conclusion.changes, moment);
        if let Some(new) = conclusion.status {
            status = Arc::unwrap_or_clone(new);
        }
        pass(step.status).await;
        let start = u64::try_from(started.duration_since(origin).as_millis()).unwrap();
        syncs.push(Synced { start, replicas });
        let next =
            if has_bug { (at.unwrap_or(started) + period).max(Instant::now()) } else { schedule.next(&key) };
        // The queue keeps the earlier of two times.
        let regular = waiting.take().map_or(next, |at| at.min(next));
        (due, at) = (regular, Some(regular));
        match step.after {
            Some(Event::Edit(after)) => {
                let edited = Instant::now() + Duration::from_millis(after);
                if edited < regular {
                    (due, waiting, at) = (edited, Some(regular), None);
                }
            }
            Some(Event::Failover(after)) => {
                let kept = KeptHistory::from(histories.get(&uid));
                let stored = codec::decode(&codec::encode(&kept)).unwrap();
                pass(after).await;
                due = Instant::now();
                at = None;
                histories = Histories::new();
                histories.seed(&uid, stored.inherit(wall(jumped)));
                schedule = schedule_of(period, slots, wall(jumped), &key);
            }
            Some(Event::Jump(by)) => jumped += by,
            None => {}
        }
    }
    syncs
}
