//! Merges the policies of one HPA, field by field, and applies the limits of ClusterScalingPolicies.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use crate::spec::{
    FallbackAction, Level, Limits, Mode, ModeRule, Parsed, PolicySpec, Problem, ProblemReason, Schedule,
};

/// One of the policies of an HPA.
#[derive(Debug, Clone)]
pub struct Source {
    /// The level.
    pub level: Level,
    /// The name of the object, with its namespace for a ScalingPolicy. Ignored for an annotation.
    pub name: Arc<str>,
    /// `metadata.creationTimestamp`. Among policies of one level, older policies take precedence. If times are equal or
    /// missing, the names determine the order.
    pub created: Option<Timestamp>,
    /// The policy.
    pub parsed: Arc<Parsed>,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level {
            Level::Annotation => f.write_str("annotation concertina.dev/policy"),
            Level::Namespaced => write!(f, "ScalingPolicy {}", self.name),
            Level::Cluster => write!(f, "ClusterScalingPolicy {}", self.name),
        }
    }
}

/// The policy of an HPA: each field from the first source that sets it. HPAs with equal sources can share it.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// The fields, without limits.
    pub spec: PolicySpec,
    /// The sources, in the order of their precedence.
    pub sources: Vec<Source>,
    /// The index of the source of each field that is set, by the path of the field.
    pub origins: BTreeMap<&'static str, usize>,
    /// Fields that have no effect, because an older source of the same level sets them.
    pub overridden: Vec<Overridden>,
    /// The problems of the sources, each with the index of its source, and values beyond a limit.
    pub problems: Vec<(usize, Problem)>,
}

/// A field that has no effect, because an older policy of the same level sets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overridden {
    /// The path of the field.
    pub field: &'static str,
    /// The index of the source.
    pub source: usize,
    /// The index of the older source.
    pub by: usize,
}

impl Policy {
    /// Merges policies, which may have any order.
    pub fn merge(mut sources: Vec<Source>) -> Self {
        let order = |source: &Source| {
            (source.level, source.created.unwrap_or(Timestamp::MAX), Arc::clone(&source.name))
        };
        sources.sort_by_key(order);
        let mut policy = Self::default();
        for (index, source) in sources.iter().enumerate() {
            policy.problems.extend(source.parsed.problems.iter().map(|problem| (index, problem.clone())));
        }
        let limits = strictest(&sources);
        for index in 0..sources.len() {
            policy.add(index, &sources, &limits);
        }
        policy.sources = sources;
        policy
    }

    /// Whether no field is set.
    pub fn is_empty(&self) -> bool {
        self.origins.is_empty()
    }

    /// The source of a field.
    pub fn origin(&self, field: &str) -> Option<&Source> {
        self.origins.get(field).and_then(|index| self.sources.get(*index))
    }

    /// All problems as text, each with its source, separated by semicolons.
    pub fn problem_text(&self) -> String {
        let text = |(index, problem): &(usize, Problem)| match self.sources.get(*index) {
            Some(source) => format!("{source}: {problem}"),
            None => problem.to_string(),
        };
        self.problems.iter().map(text).collect::<Vec<_>>().join("; ")
    }

    fn add(&mut self, index: usize, sources: &[Source], limits: &[Limit]) {
        let Some(source) = sources.get(index) else { return };
        let mut from = source.parsed.spec.clone();
        if source.level != Level::Cluster {
            for limit in limits {
                self.problems.extend(limit.apply(&mut from).into_iter().map(|problem| (index, problem)));
            }
        }
        let mut adding = Adding { policy: self, index, sources };
        macro_rules! fields {
            ($($field:literal => $($path:ident).+),* $(,)?) => {
                $(adding.field($field, from.$($path).+, |spec| &mut spec.$($path).+);)*
            };
        }
        fields! {
            "mode" => mode,
            "syncPeriodSeconds" => sync_period_seconds,
            "tolerance" => tolerance,
            "cpuInitializationPeriodSeconds" => cpu_initialization_period_seconds,
            "initialReadinessDelaySeconds" => initial_readiness_delay_seconds,
            "downscaleStabilizationSeconds" => downscale_stabilization_seconds,
            "schedules" => schedules,
            "fallback" => fallback,
            "combine" => combine,
            "metrics" => metrics,
            "burst" => burst,
            "guards.pendingPods" => guards.pending_pods,
            "guards.rollout" => guards.rollout,
            "guards.ownedPodsOnly" => guards.owned_pods_only,
            "guards.zeroMetrics" => guards.zero_metrics,
            "guards.maxStep" => guards.max_step,
            "corrections.averageValueWithinTolerance" => corrections.average_value_within_tolerance,
            "corrections.ignoreContainersWithoutRequest" => corrections.ignore_containers_without_request,
        }
    }
}

struct Adding<'a> {
    policy: &'a mut Policy,
    index: usize,
    sources: &'a [Source],
}

impl Adding<'_> {
    fn field<T>(
        &mut self,
        field: &'static str,
        value: Option<T>,
        target: impl FnOnce(&mut PolicySpec) -> &mut Option<T>,
    ) {
        if value.is_none() {
            return;
        }
        let source = self.index;
        match self.policy.origins.get(field) {
            None => {
                *target(&mut self.policy.spec) = value;
                self.policy.origins.insert(field, source);
            }
            Some(&by) => {
                let level = |index: usize| self.sources.get(index).map(|source| source.level);
                if level(by) == level(source) {
                    self.policy.overridden.push(Overridden { field, source, by });
                }
            }
        }
    }
}

/// The limits of one ClusterScalingPolicy.
struct Limit<'a> {
    policy: &'a str,
    limits: &'a Limits,
}

fn strictest(sources: &[Source]) -> Vec<Limit<'_>> {
    let limit = |source: &'_ Source| source.level == Level::Cluster && source.parsed.spec.limits.is_some();
    let limiting = sources.iter().filter(|source| limit(source));
    limiting
        .filter_map(|source| {
            Some(Limit { policy: &source.name, limits: source.parsed.spec.limits.as_ref()? })
        })
        .collect()
}

impl Limit<'_> {
    /// Applies the limits to the fields of a policy.
    fn apply(&self, spec: &mut PolicySpec) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut report = |path: String, limit: String, effect: String| {
            let reason = ProblemReason::Limited { limit, policy: self.policy.to_owned(), effect };
            problems.push(Problem { path, reason });
        };
        if let (Some(shortest), Some(period)) =
            (self.limits.shortest_sync_period_seconds, &mut spec.sync_period_seconds)
            && *period < shortest
        {
            *period = shortest;
            let limit = format!("shortestSyncPeriodSeconds {shortest}");
            report("syncPeriodSeconds".to_owned(), limit, format!("{shortest} applies"));
        }
        if let (Some(allowed), Some(ModeRule { mode: Some(mode), .. })) =
            (&self.limits.allowed_modes, &spec.mode)
            && *mode != Mode::Auto
            && !allowed.contains(mode)
        {
            report("mode".to_owned(), "allowedModes".to_owned(), "the field is ignored".to_owned());
            spec.mode = None;
        }
        let mut bounded = |path: String, name: &str, highest: Option<i32>, value: &mut i32| {
            if let Some(highest) = highest.filter(|highest| *value > *highest) {
                *value = highest;
                report(path, format!("{name} {highest}"), format!("{highest} applies"));
            }
        };
        let (floor, ceiling) = (self.limits.highest_floor, self.limits.highest_ceiling);
        if let Some(ModeRule { replicas: Some(replicas), .. }) = &mut spec.mode {
            bounded("replicas".to_owned(), "highestCeiling", ceiling, replicas);
        }
        if let Some(schedules) = &mut spec.schedules {
            let mut limited: Vec<Schedule> = schedules.to_vec();
            for Schedule { name, min_replicas, max_replicas, .. } in &mut limited {
                let path = |field| format!("schedules.{name}.{field}");
                if let Some(replicas) = min_replicas {
                    // A floor above the highest ceiling would be above every ceiling.
                    bounded(path("minReplicas"), "highestFloor", floor, replicas);
                    bounded(path("minReplicas"), "highestCeiling", ceiling, replicas);
                }
                if let Some(replicas) = max_replicas {
                    bounded(path("maxReplicas"), "highestCeiling", ceiling, replicas);
                }
            }
            if *limited != **schedules {
                *schedules = limited.into();
            }
        }
        if let Some(fallbacks) = &mut spec.fallback {
            let mut limited = fallbacks.to_vec();
            for (index, fallback) in limited.iter_mut().enumerate() {
                if let FallbackAction::Replicas(replicas, _) = &mut fallback.action {
                    bounded(format!("fallback[{index}].replicas"), "highestCeiling", ceiling, replicas);
                }
            }
            if *limited != **fallbacks {
                *fallbacks = limited.into();
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests;
