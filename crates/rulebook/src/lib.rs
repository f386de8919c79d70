//! Scaling policies: user-defined rules for HPAs, in addition to the HPA algorithm.
//!
//! A policy comes from the annotation [`ANNOTATION`] of an HPA, from a `ScalingPolicy` of its namespace, or from a
//! `ClusterScalingPolicy`, in this order of precedence. The crate [`policies`] reads, merges and applies the fields.
//! The sync of an HPA without a policy is unchanged.
//!
//! | module | contents |
//! |---|---|
//! | `objects` | the annotation and the policy objects, as the API server serves them |
//! | `watches`, `awaited` | the watches of policy objects and namespaces, and their lists that are not complete yet |
//! | `store` | the policies of each HPA |
//! | `sync` | the policies as a guest of a sync, with the reads for guards |
//! | `sources` | the metrics for which a policy names another origin |
//! | `forecasts` | the forecasts of HPAs |
//! | `inputs` | the pods and containers that count for a decision, and the windows of `burst` |
//! | `status` | the statuses of policy objects |
//!
//! This file contains the merged policies of an HPA, their rules for one sync, and their condition and events.

mod awaited;
mod forecasts;
mod inputs;
mod objects;
mod sources;
mod status;
mod store;
mod sync;
mod watches;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::event::{EventIntent, EventKind};
use autoscaling::settings::Settings;
use autoscaling::spec::Spec;
use autoscaling::status::ConditionUpdate;
use autoscaling::status::{Condition, Status};
use autoscaling::{Conclusion, Hpa};
use jiff::Timestamp;
use parking_lot::Mutex;
use policies::bounds::{ScheduleStep, settings, sync_period};
use policies::merge::{Policy, Source};
use policies::resolve::{Rules, resolve};
use policies::spec::{Level, Parsed, Problem, ProblemReason, parse};
pub use policies::steps::CONDITION as ACTIVE;
use policies::steps::{PolicyEffect, Step};

pub use self::forecasts::{Forecasts, HistoryReader};
pub use self::inputs::Bursts;
pub use self::objects::{ANNOTATION, GROUP, Kind, VERSION};
use self::objects::{PolicyName, PolicyObject};
pub use self::sources::{Adapters, SourceReader};
use self::store::Applicable;
pub use self::store::Policies;
use self::store::StoredPolicy;
pub use self::sync::{PolicyGuest, PolicyRules};
pub use self::watches::PolicyWatches;

/// The reason of the event about fields without effect.
pub const INVALID: &str = "InvalidScalingPolicy";
/// The reason of the condition if no step has an effect.
const INACTIVE: &str = "NoEffect";
/// The reason of the condition if a forecast only shows its floor.
const PREVIEW: &str = "ForecastPreview";
/// The reason of the event if the policy no longer has an effect.
const ENDED: &str = "ScalingPolicyInactive";
/// Maximum length of a message in bytes, without the ellipsis.
const MAX_MESSAGE: usize = 1024;

/// The policies of an HPA. HPAs that match the same policy objects and have no annotation share one instance.
#[derive(Debug)]
pub(crate) struct Merged {
    policy: Arc<Policy>,
    objects: Vec<PolicyName>,
    /// The rules of the last sync, valid until their next change. They are cached, because the search for the times of
    /// schedules is slow.
    rules: Mutex<Option<Arc<Rules>>>,
}

/// The rules of a policy for one sync of an HPA.
#[derive(Debug, Clone)]
pub(crate) struct Resolved {
    /// The rules at the start of the sync.
    pub(crate) rules: Arc<Rules>,
    /// The spec of the HPA, with the bounds of the schedules.
    pub(crate) spec: Arc<Spec>,
    /// The settings of the controller, changed by the policy.
    pub(crate) settings: Settings,
    /// The bounds that the schedules change.
    pub(crate) schedules: Vec<ScheduleStep>,
}

/// Parses the spec of a policy object. An invalid selector is a problem of the policy, which then applies to no HPA.
pub fn read_object(object: &PolicyObject) -> Parsed {
    let mut parsed = parse(&object.spec, level(&object.name));
    for (field, selector) in
        [("selector", &object.selector), ("namespaceSelector", &object.namespace_selector)]
    {
        if let Err(error) = selector {
            let reason = ProblemReason::Selector(error.to_string());
            parsed.problems.push(Problem { path: field.to_owned(), reason });
        }
    }
    parsed
}

fn level(name: &PolicyName) -> Level {
    if name.namespace.is_some() { Level::Namespaced } else { Level::Cluster }
}

impl Merged {
    /// Merges the policy of an annotation with policy objects.
    fn new(annotation: Option<&Arc<Parsed>>, objects: &[&Arc<StoredPolicy>]) -> Self {
        let annotation = annotation.map(|parsed| Source {
            level: Level::Annotation,
            name: "".into(),
            created: None,
            parsed: Arc::clone(parsed),
        });
        let named = objects.iter().map(|policy| {
            let PolicyObject { name, created, .. } = &policy.object;
            Source {
                level: level(name),
                name: match &name.namespace {
                    Some(namespace) => format!("{namespace}/{}", name.name).into(),
                    None => Arc::clone(&name.name),
                },
                created: *created,
                parsed: Arc::clone(&policy.parsed),
            }
        });
        let policy = Arc::new(Policy::merge(annotation.into_iter().chain(named).collect()));
        let objects = objects.iter().map(|policy| policy.object.name.clone()).collect();
        Self { policy, objects, rules: Mutex::default() }
    }

    fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the names of the policy objects.
    fn objects(&self) -> &[PolicyName] {
        &self.objects
    }

    /// Returns the rules for a sync that starts at `now`. `flags` are the settings of the controller.
    pub(crate) fn resolve(&self, hpa: &Arc<Spec>, flags: &Settings, now: Timestamp) -> Resolved {
        let rules = self.rules(now);
        let (spec, schedules) = rules.bounds.spec(hpa);
        Resolved { spec, schedules, settings: settings(&self.policy.spec, flags), rules }
    }

    fn rules(&self, now: Timestamp) -> Arc<Rules> {
        let mut last = self.rules.lock();
        match &*last {
            Some(rules) if rules.apply_at(now) => Arc::clone(rules),
            _ => Arc::clone(last.insert(Arc::new(resolve(&self.policy, now)))),
        }
    }
}

impl Resolved {
    /// Returns the sync period. `None` means the period of the controller.
    pub(crate) fn period(&self) -> Option<Duration> {
        sync_period(&self.rules.policy.spec)
    }

    /// Returns whether a later sync needs the history of the metrics.
    pub(crate) fn keeps_history(&self) -> bool {
        let spec = &self.rules.policy.spec;
        spec.fallback.as_ref().is_some_and(|fallbacks| !fallbacks.is_empty())
            || spec.guards.zero_metrics == Some(policies::spec::ZeroMetrics::Hold)
    }
}

/// Adds the condition and the events of a policy to a conclusion. `effect` is `None` after the end of the last policy
/// of the HPA. `reports_problems` means that the problems differ from those of the last event.
pub(crate) fn publish(
    conclusion: &mut Conclusion,
    hpa: &Hpa<'_>,
    effect: Option<&PolicyEffect>,
    reports_problems: bool,
    now: Timestamp,
) {
    let before = find(&hpa.status.conditions);
    let mut status: Status = conclusion.status.as_deref().unwrap_or(hpa.status).clone();
    let mut event = |kind, reason: &'static str, message: String| {
        conclusion.events.push(EventIntent { kind, reason, message: cut(message) });
    };
    match effect {
        None => {
            status.conditions.retain(|condition| condition.kind != ACTIVE);
            if before.is_some_and(|condition| condition.status == "True") {
                event(EventKind::Normal, ENDED, "the HPA has no scaling policy any more".to_owned());
            }
        }
        Some(effect) => {
            let first = effect.steps.first();
            let without = match &effect.forecast {
                Some(forecast) if forecast.is_preview() => PREVIEW,
                _ => INACTIVE,
            };
            let reason = first.map_or(without, |step| step.reason().as_str());
            let mut message = effect
                .sentence()
                .unwrap_or_else(|| "the scaling policy changes nothing at the moment".to_owned());
            // A step prints a floor that applies.
            if let Some(forecast) = effect.forecast.as_ref().filter(|it| !it.applies || it.floor.is_none()) {
                let _ = write!(message, "; {forecast}");
            }
            if !effect.problems.is_empty() {
                message.push_str("; without effect: ");
                message.push_str(&effect.problems);
            }
            let was = |reason| before.is_some_and(|condition| condition.reason == reason);
            let has_ended = before.is_some() && !was(INACTIVE) && reason == INACTIVE;
            // The message of a forecast changes with its candidate.
            let is_forecast = reason == PREVIEW || matches!(first, Some(Step::Forecast(_)));
            let other = before.is_none_or(|before| is_forecast && *before.message != *cut(message.clone()));
            if (reason != INACTIVE && (other || !was(reason))) || has_ended {
                let event_reason = if has_ended { ENDED } else { reason };
                event(EventKind::Normal, event_reason, message.clone());
            }
            if reports_problems && !effect.problems.is_empty() {
                event(EventKind::Warning, INVALID, effect.problems.clone());
            }
            let update = ConditionUpdate {
                kind: ACTIVE,
                status: first.is_some(),
                reason,
                message: cut(message).into(),
            };
            update.set(&mut status.conditions, now);
        }
    }
    conclusion.status = (status != *hpa.status).then(|| Arc::new(status));
}

/// Returns the condition of a policy in a status, if present.
pub(crate) fn find(conditions: &[Condition]) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.kind == ACTIVE)
}

fn cut(mut message: String) -> String {
    if message.len() > MAX_MESSAGE {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        message.push('…');
    }
    message
}
