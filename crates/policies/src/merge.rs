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
    /// The kind of the source, which determines its precedence.
    pub level: Level,
    /// The name of the object, as `namespace/name` for a ScalingPolicy. Ignored for an annotation.
    pub name: Arc<str>,
    /// `metadata.creationTimestamp`. Of two policies of one level, the older policy takes precedence. A policy without
    /// a time counts as the newest. If the times are equal, the first policy by name takes precedence.
    pub created: Option<Timestamp>,
    /// The fields of the policy, and its problems.
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

/// The merged policy of an HPA. Each field comes from the first source that sets it. HPAs with equal sources can share
/// the policy.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// The fields after the limits of ClusterScalingPolicies are applied. [`PolicySpec::limits`] is `None`.
    pub spec: PolicySpec,
    /// The sources, in the order of their precedence.
    pub sources: Vec<Source>,
    /// For each field that is set, the index of its source in [`Self::sources`], by the path of the field.
    pub origins: BTreeMap<&'static str, usize>,
    /// The fields without an effect, because another source of the same level takes precedence.
    pub overridden: Vec<Overridden>,
    /// The problems of the sources, including values beyond a limit. Each has the index of its source.
    pub problems: Vec<(usize, Problem)>,
}

/// A field that has no effect, because another policy of the same level sets it and takes precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overridden {
    /// The path of the field: `guards.rollout`.
    pub field: &'static str,
    /// The index of the policy in [`Policy::sources`].
    pub source: usize,
    /// The index of the policy that takes precedence.
    pub by: usize,
}

impl Policy {
    /// Merges policies, in any order.
    pub fn merge(mut sources: Vec<Source>) -> Self {
        let order = |source: &Source| {
            (source.level, source.created.unwrap_or(Timestamp::MAX), Arc::clone(&source.name))
        };
        sources.sort_by_key(order);
        let mut policy = Self::default();
        for (index, source) in sources.iter().enumerate() {
            policy.problems.extend(source.parsed.problems.iter().map(|problem| (index, problem.clone())));
        }
        let limits = |source: &Source| {
            let limits = source.parsed.spec.limits.clone().filter(|_| source.level == Level::Cluster)?;
            Some(Limit { policy: Arc::clone(&source.name), limits })
        };
        let limits: Vec<Limit> = sources.iter().filter_map(limits).collect();
        policy.sources = sources;
        for index in 0..policy.sources.len() {
            policy.add(index, &limits);
        }
        policy
    }

    /// Whether no field is set.
    pub fn is_empty(&self) -> bool {
        self.origins.is_empty()
    }

    /// The source of a field, by the path of the field. `None` if no source sets the field.
    pub fn origin(&self, field: &str) -> Option<&Source> {
        self.origins.get(field).and_then(|index| self.sources.get(*index))
    }

    /// Prints all problems with their sources, separated by semicolons.
    pub fn problem_text(&self) -> String {
        let text = |(index, problem): &(usize, Problem)| match self.sources.get(*index) {
            Some(source) => format!("{source}: {problem}"),
            None => problem.to_string(),
        };
        self.problems.iter().map(text).collect::<Vec<_>>().join("; ")
    }

    fn add(&mut self, index: usize, limits: &[Limit]) {
        let Some(source) = self.sources.get(index) else { return };
        let mut from = source.parsed.spec.clone();
        if source.level != Level::Cluster {
            for limit in limits {
                self.problems.extend(limit.apply(&mut from).into_iter().map(|problem| (index, problem)));
            }
        }
        macro_rules! fields {
            ($($field:literal => $($path:ident).+),* $(,)?) => {
                $(self.add_field(index, $field, from.$($path).+, |spec| &mut spec.$($path).+);)*
            };
        }
        fields! {
            "mode" => mode,
            "syncPeriodSeconds" => sync_period_seconds,
            "tolerance" => tolerance,
            "cpuInitializationPeriodSeconds" => cpu_initialization_period_seconds,
            "initialReadinessDelaySeconds" => initial_readiness_delay_seconds,
            "downscaleStabilizationSeconds" => downscale_stabilization_seconds,
            "statusPrecision" => status_precision,
            "schedules" => schedules,
            "fallback" => fallback,
            "combine" => combine,
            "metrics" => metrics,
            "burst" => burst,
            "forecast" => forecast,
            "guards.pendingPods" => guards.pending_pods,
            "guards.rollout" => guards.rollout,
            "guards.ownedPodsOnly" => guards.owned_pods_only,
            "guards.zeroMetrics" => guards.zero_metrics,
            "guards.maxStep" => guards.max_step,
            "corrections.averageValueWithinTolerance" => corrections.average_value_within_tolerance,
            "corrections.ignoreContainersWithoutRequest" => corrections.ignore_containers_without_request,
        }
    }

    fn add_field<T>(
        &mut self,
        source: usize,
        field: &'static str,
        value: Option<T>,
        target: impl FnOnce(&mut PolicySpec) -> &mut Option<T>,
    ) {
        if value.is_none() {
            return;
        }
        match self.origins.get(field) {
            None => {
                *target(&mut self.spec) = value;
                self.origins.insert(field, source);
            }
            Some(&by) => {
                let level = |index: usize| self.sources.get(index).map(|source| source.level);
                if level(by) == level(source) {
                    self.overridden.push(Overridden { field, source, by });
                }
            }
        }
    }
}

/// The limits of one ClusterScalingPolicy.
struct Limit {
    policy: Arc<str>,
    limits: Limits,
}

impl Limit {
    /// Applies the limits to the fields of a policy. Returns a problem for each value beyond a limit.
    fn apply(&self, spec: &mut PolicySpec) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut report = |path: String, limit: String, effect: String| {
            let reason = ProblemReason::Limited { limit, policy: self.policy.to_string(), effect };
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
                    // A floor must not exceed the highest allowed ceiling.
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
        // No text of the policy contains the floor, so nothing is reported.
        if let (Some(forecast), Some(highest)) = (&mut spec.forecast, floor.into_iter().chain(ceiling).min())
        {
            let known = forecast.highest.unwrap_or(i32::MAX);
            Arc::make_mut(forecast).highest = Some(known.min(highest));
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
