//! The policies of an HPA, merged once, and their rules for one sync.

use std::sync::Arc;
use std::time::Duration;

use autoscaling::settings::Settings;
use autoscaling::spec::Spec;
use jiff::Timestamp;
use parking_lot::Mutex;
use policies::bounds::ScheduleStep;
use policies::merge::{Policy, Source};
use policies::resolve::{Rules, resolve};
use policies::settings::{settings, sync_period};
use policies::spec::{Level, Parsed, Problem, ProblemReason, parse};

use super::objects::{PolicyName, PolicyObject};
use super::store::StoredPolicy;

/// The policies of an HPA. HPAs that match the same policy objects and have no annotation share one instance.
#[derive(Debug)]
pub(crate) struct Merged {
    policy: Arc<Policy>,
    objects: Vec<PolicyName>,
    /// The rules of the last sync, which are valid until their next change. The search for the times of schedules takes
    /// longer than the rest of a resolution.
    rules: Mutex<Option<Arc<Rules>>>,
}

/// The rules of a policy for one sync of an HPA.
#[derive(Debug, Clone)]
pub(crate) struct Resolved {
    /// The rules at the start of the sync.
    pub(crate) rules: Arc<Rules>,
    /// The HPA's spec with the bounds of the schedules.
    pub(crate) spec: Arc<Spec>,
    /// The settings of the controller, with the changes by the policy.
    pub(crate) settings: Settings,
    /// The bounds that the schedules change.
    pub(crate) schedules: Vec<ScheduleStep>,
}

/// Reads the policy of an object. A policy with an invalid selector applies to no HPA.
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
    pub(super) fn new(annotation: Option<&Arc<Parsed>>, objects: &[&Arc<StoredPolicy>]) -> Self {
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

    pub(super) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The names of the policy objects.
    pub(super) fn objects(&self) -> &[PolicyName] {
        &self.objects
    }

    /// The rules for a sync of an HPA that starts now.
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
    /// The sync period. `None`: the period of the controller.
    pub(crate) fn period(&self) -> Option<Duration> {
        sync_period(&self.rules.policy.spec)
    }

    /// Whether a later sync needs the history of the metrics.
    pub(crate) fn keeps_history(&self) -> bool {
        let spec = &self.rules.policy.spec;
        spec.fallback.as_ref().is_some_and(|fallbacks| !fallbacks.is_empty())
            || spec.guards.zero_metrics == Some(policies::spec::ZeroMetrics::Hold)
    }
}
