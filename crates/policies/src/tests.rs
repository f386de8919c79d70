//! Merged policies: precedence, limits, bounds of overlapping schedules, and settings.

use std::sync::Arc;
use std::time::Duration;

use autoscaling::settings::Settings;
use autoscaling::spec::Spec;
use jiff::Timestamp;
use proptest::prelude::*;

use crate::bounds::{ActiveBound, contradiction, settings, sync_period};
use crate::merge::{Overridden, Policy, Source};
use crate::resolve::{ActiveMode, resolve};
use crate::spec::{
    Combine, FallbackAction, Level, Mode, ModeRule, PolicySpec, RolloutGuard, Strategy as FallbackStrategy,
    When, parse,
};

fn source(level: Level, name: &str, created: i64, text: &str) -> Source {
    let created = Timestamp::from_second(created).ok().filter(|_| created > 0);
    let parsed = parse(text, level);
    assert_eq!(parsed.problems, [], "{text}");
    Source { level, name: name.into(), created, parsed: Arc::new(parsed) }
}

#[test]
fn each_field_comes_from_the_first_policy_that_sets_it() {
    let policy = Policy::merge(vec![
        source(Level::Cluster, "all", 1, "{tolerance: 0.3, combine: Min, guards: {rollout: Hold}}"),
        source(Level::Namespaced, "shop/web", 9, "{tolerance: 0.2, guards: {ownedPodsOnly: true}}"),
        source(Level::Annotation, "", 0, "{tolerance: 0.1}"),
    ]);
    assert_eq!((policy.spec.tolerance, policy.spec.combine), (Some(0.1), Some(Combine::Min)));
    assert_eq!(policy.spec.guards.owned_pods_only, Some(true));
    assert_eq!(policy.spec.guards.rollout, Some(RolloutGuard::Hold));
    let origin = |field| policy.origin(field).map(ToString::to_string);
    assert_eq!(origin("tolerance").as_deref(), Some("annotation concertina.dev/policy"));
    assert_eq!(origin("guards.ownedPodsOnly").as_deref(), Some("ScalingPolicy shop/web"));
    assert_eq!(origin("combine").as_deref(), Some("ClusterScalingPolicy all"));
    assert_eq!(origin("mode"), None);
    assert_eq!((policy.overridden.len(), policy.is_empty()), (0, false));
    assert!(Policy::merge(Vec::new()).is_empty());
}

#[test]
fn mode_replicas_and_until_come_from_one_policy() {
    let policy = Policy::merge(vec![
        source(Level::Cluster, "all", 1, "{mode: Pinned, replicas: 5, until: 2026-12-01T08:00:00Z}"),
        source(Level::Annotation, "", 0, "{mode: Paused}"),
    ]);
    let paused = ModeRule { mode: Some(Mode::Paused), replicas: None, until: None };
    assert_eq!(policy.spec.mode, Some(paused));
}

#[test]
fn older_of_two_policies_at_one_level_wins() {
    let policy = Policy::merge(vec![
        source(Level::Namespaced, "shop/a", 7, "{tolerance: 0.2, combine: Max}"),
        source(Level::Namespaced, "shop/b", 5, "{tolerance: 0.3}"),
        source(Level::Namespaced, "shop/c", 0, "{combine: Min}"),
    ]);
    assert_eq!((policy.spec.tolerance, policy.spec.combine), (Some(0.3), Some(Combine::Max)));
    let expected = [
        Overridden { field: "tolerance", source: 1, by: 0 },
        Overridden { field: "combine", source: 2, by: 1 },
    ];
    assert_eq!(policy.overridden, expected);
}

#[test]
fn policies_of_a_tenant_do_not_exceed_the_limits() {
    let limits = "{syncPeriodSeconds: 1, mode: Pinned, replicas: 999, limits: {shortestSyncPeriodSeconds: 5, \
                  allowedModes: [Pinned, Paused], highestFloor: 10, highestCeiling: 100}}";
    let tenant = "{syncPeriodSeconds: 1, mode: ScaleDownOnly, \
                  schedules: [{name: sale, from: 2026-01-01T00:00:00Z, to: 2026-01-02T00:00:00Z, minReplicas: 50, \
                  maxReplicas: 500}], forecast: {mode: Floor}, fallback: [{when: Error, action: Replicas, replicas: 200}]}";
    let policy = Policy::merge(vec![
        source(Level::Namespaced, "shop/web", 1, tenant),
        source(Level::Cluster, "platform", 1, limits),
    ]);
    assert_eq!(policy.spec.sync_period_seconds, Some(5));
    let schedule = &policy.spec.schedules.as_ref().unwrap()[0];
    assert_eq!((schedule.min_replicas, schedule.max_replicas), (Some(10), Some(100)));
    let mode = policy.spec.mode.unwrap();
    assert_eq!((mode.mode, mode.replicas), (Some(Mode::Pinned), Some(999)), "the platform has no limits");
    assert_eq!(policy.spec.forecast.as_ref().unwrap().highest, Some(10));
    let fallback = &policy.spec.fallback.as_ref().unwrap()[0];
    assert_eq!(fallback.action, FallbackAction::Replicas(100, FallbackStrategy::Static));
    let texts: Vec<_> = policy
        .problems
        .iter()
        .map(|(index, problem)| {
            assert_eq!(*index, 0);
            problem.to_string()
        })
        .collect();
    assert_eq!(
        texts,
        [
            "syncPeriodSeconds: exceeds shortestSyncPeriodSeconds 5 of ClusterScalingPolicy platform; 5 applies",
            "mode: exceeds allowedModes of ClusterScalingPolicy platform; the field is ignored",
            "schedules.sale.minReplicas: exceeds highestFloor 10 of ClusterScalingPolicy platform; 10 applies",
            "schedules.sale.maxReplicas: exceeds highestCeiling 100 of ClusterScalingPolicy platform; 100 applies",
            "fallback[0].replicas: exceeds highestCeiling 100 of ClusterScalingPolicy platform; 100 applies",
        ]
    );
    assert!(policy.problem_text().starts_with("ScalingPolicy shop/web: syncPeriodSeconds: exceeds"));

    let equal = "{mode: Pinned, replicas: 100, syncPeriodSeconds: 5}";
    let equal = Policy::merge(vec![
        source(Level::Annotation, "", 0, equal),
        source(Level::Cluster, "platform", 1, limits),
    ]);
    assert_eq!((equal.spec.mode.unwrap().replicas, equal.problems.len()), (Some(100), 0));

    let pinned = source(Level::Annotation, "", 0, "{mode: Pinned, replicas: 999}");
    let policy = Policy::merge(vec![pinned, source(Level::Cluster, "platform", 1, limits)]);
    assert_eq!(policy.spec.mode.unwrap().replicas, Some(100));
}

proptest! {
    #[test]
    fn order_of_policies_does_not_matter(
        policies in proptest::collection::vec((0..3usize, 0..3i64, 0..6usize), 0..8).prop_shuffle(),
        seed in any::<prop::sample::Index>(),
    ) {
        let texts = ["{tolerance: 0.1}", "{tolerance: 0.2, mode: Paused}", "{combine: Min}", "{mode: Auto}",
            "{guards: {rollout: Hold}}", "{syncPeriodSeconds: 9, combine: Max}"];
        let levels = [Level::Annotation, Level::Namespaced, Level::Cluster];
        let mut sources: Vec<_> = policies.iter().enumerate()
            .map(|(index, (level, created, text))| source(levels[*level], &format!("p{index}"), *created, texts[*text]))
            .collect();
        let one = Policy::merge(sources.clone());
        if !sources.is_empty() {
            let middle = seed.index(sources.len());
            sources.rotate_left(middle);
            sources.reverse();
        }
        let other = Policy::merge(sources);
        prop_assert_eq!(one.spec, other.spec);
        prop_assert_eq!(one.origins, other.origins);
        prop_assert_eq!(one.overridden, other.overridden);
    }
}

#[test]
fn settings_replace_the_flags_that_the_policy_sets() {
    let flags = Settings::default();
    assert_eq!(settings(&PolicySpec::default(), &flags), flags);
    assert_eq!(sync_period(&PolicySpec::default()), None);
    let parsed = parse(
        "{syncPeriodSeconds: 5, tolerance: 50m, cpuInitializationPeriodSeconds: 1, \
         initialReadinessDelaySeconds: 2, downscaleStabilizationSeconds: 0, statusPrecision: 5%}",
        Level::Annotation,
    );
    assert!(parsed.problems.is_empty());
    let expected = Settings {
        tolerance: 0.05,
        downscale_stabilization: Duration::ZERO,
        cpu_initialization_period: Duration::from_secs(1),
        initial_readiness_delay: Duration::from_secs(2),
        status_precision: "5%".parse().unwrap(),
        ..flags
    };
    assert_eq!(settings(&parsed.spec, &Settings::default()), expected);
    assert_eq!(sync_period(&parsed.spec), Some(Duration::from_secs(5)));
}

fn policy(text: &str) -> Arc<Policy> {
    let parsed = parse(text, Level::Annotation);
    assert_eq!(parsed.problems, [], "{text}");
    let source =
        Source { level: Level::Annotation, name: "".into(), created: None, parsed: Arc::new(parsed) };
    Arc::new(Policy::merge(vec![source]))
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A schedule on one day: its name, the hours of its start and its end, its floor and its ceiling.
type OfDay = (&'static str, u8, u8, Option<i32>, Option<i32>);

fn day(schedules: &[OfDay]) -> Arc<Policy> {
    let entries: Vec<String> = schedules
        .iter()
        .map(|(name, from, to, min, max)| {
            let bound = |field, value: &Option<i32>| {
                value.map(|value| format!(", {field}: {value}")).unwrap_or_default()
            };
            format!(
                "{{name: {name}, from: 2026-11-23T{from:02}:00:00Z, to: 2026-11-23T{to:02}:00:00Z{}{}}}",
                bound("minReplicas", min),
                bound("maxReplicas", max)
            )
        })
        .collect();
    policy(&format!("schedules: [{}]", entries.join(", ")))
}

fn at(policy: &Arc<Policy>, hour: u8) -> (i32, i32) {
    let bounded = resolve(policy, time(&format!("2026-11-23T{hour:02}:00:00Z"))).bounds.apply(2, 100);
    (bounded.min, bounded.max)
}

#[test]
fn first_contradiction_of_schedules_is_found() {
    let found = |policy: &Arc<Policy>, from: &str| {
        let schedules = policy.spec.schedules.clone().unwrap_or_default();
        contradiction(&schedules, time(from)).map(|found| found.to_string())
    };
    let nested =
        day(&[("a", 1, 20, Some(10), None), ("b", 5, 15, None, Some(10)), ("c", 8, 12, None, Some(9))]);
    let expected = "at 2026-11-23T08:00:00Z, minReplicas 10 of schedule a is above maxReplicas 9 of schedule c: \
                    maxReplicas applies";
    assert_eq!(found(&nested, "2026-11-01T00:00:00Z").as_deref(), Some(expected));
    assert!(found(&nested, "2026-11-23T11:30:00Z").unwrap().starts_with("at 2026-11-23T11:30:00Z"));
    assert_eq!(found(&nested, "2026-11-23T12:00:00Z"), None);
    // The contradiction is more than a year away.
    assert_eq!(found(&nested, "2025-11-01T00:00:00Z"), None);
    assert_eq!(
        found(&day(&[("a", 1, 5, Some(10), None), ("b", 5, 9, None, Some(2))]), "2026-11-01T00:00:00Z"),
        None
    );
    let recurring = "schedules: [{name: day, start: '0 8 * * 1-5', end: '0 18 * * 1-5', timeZone: UTC, minReplicas: 10}, \
                     {name: sunday, start: '0 0 * * 0', end: '0 0 * * 1', timeZone: UTC, maxReplicas: 5}, \
                     {name: january, start: '0 0 1 1 *', end: '0 12 1 1 *', timeZone: UTC, maxReplicas: 3}]";
    let expected = "at 2027-01-01T08:00:00Z, minReplicas 10 of schedule day is above maxReplicas 3 of schedule january: \
                    maxReplicas applies";
    assert_eq!(found(&policy(recurring), "2026-11-24T00:00:00Z").as_deref(), Some(expected));
}

#[test]
fn highest_floor_and_lowest_ceiling_apply() {
    let overlapping = day(&[
        ("a", 1, 10, Some(10), None),
        ("b", 5, 15, Some(20), None),
        ("c", 8, 12, None, Some(50)),
        ("d", 9, 10, None, Some(15)),
        ("e", 18, 20, Some(500), None),
        ("f", 20, 22, None, Some(1)),
    ]);
    for (hour, expected) in [
        (0, (2, 100)),
        (1, (10, 100)),
        (4, (10, 100)),
        (5, (20, 100)),
        (8, (20, 50)),
        (9, (15, 15)),
        (10, (20, 50)),
        (12, (20, 100)),
        (15, (2, 100)),
        (18, (100, 100)),
        (20, (2, 2)),
        (22, (2, 100)),
    ] {
        assert_eq!(at(&overlapping, hour), expected, "{hour}:00");
    }
}

#[test]
fn steps_name_the_schedule_its_bound_and_its_end() {
    let policy = day(&[("sale", 1, 10, Some(500), None), ("brake", 1, 9, None, Some(50))]);
    let bounded = resolve(&policy, time("2026-11-23T05:00:00Z")).bounds.apply(2, 100);
    let texts: Vec<String> = bounded.steps.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "schedule sale sets minReplicas to 50 instead of 2 (500 is out of bounds) until 2026-11-23T10:00:00Z",
            "schedule brake sets maxReplicas to 50 instead of 100 until 2026-11-23T09:00:00Z",
        ]
    );
    assert_eq!(resolve(&policy, time("2026-11-23T10:00:00Z")).bounds.apply(2, 100).steps, []);
    let inverted = resolve(&policy, time("2026-11-23T05:00:00Z")).bounds.apply(9, 3);
    assert_eq!((inverted.min, inverted.max, inverted.steps.len()), (9, 3, 0));
}

#[test]
fn spec_without_a_change_is_the_same_spec() {
    let hpa = serde_json::json!({"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 10});
    let hpa: Arc<Spec> = Arc::new(serde_json::from_value(hpa).unwrap());
    let policy = day(&[("a", 1, 10, Some(5), None), ("b", 12, 13, Some(1), None)]);
    let spec = |hour: u8| resolve(&policy, time(&format!("2026-11-23T{hour:02}:00:00Z"))).bounds.spec(&hpa).0;
    assert!(Arc::ptr_eq(&spec(0), &hpa) && Arc::ptr_eq(&spec(12), &hpa));
    assert_eq!((spec(1).min_replicas, spec(1).max_replicas), (Some(5), 10));
}

#[test]
fn mode_ends_at_until() {
    let policy = policy("{mode: Paused, until: 2026-12-01T08:00:00Z}");
    let before = resolve(&policy, time("2026-12-01T07:59:59.999Z"));
    assert_eq!(
        (before.mode.mode, before.next_edge),
        (Some(Mode::Paused), Some(time("2026-12-01T08:00:00Z")))
    );
    assert!(before.apply_at(time("2026-12-01T07:59:59.9999Z")));
    assert!(!before.apply_at(time("2026-12-01T08:00:00Z")) && !before.apply_at(time("2026-12-01T07:00:00Z")));
    let after = resolve(&policy, time("2026-12-01T08:00:00Z"));
    assert_eq!((after.mode, after.next_edge), (ActiveMode::AUTO, None));
}

#[test]
fn next_edge_is_the_first_edge_of_all_schedules() {
    let text = "{mode: Paused, until: 2026-11-23T12:00:00Z, schedules: [\
                {name: a, start: 0 8 * * *, end: 0 19 * * *, timeZone: Europe/Berlin, minReplicas: 3},\
                {name: b, from: 2026-11-23T06:30:00Z, to: 2026-11-23T13:00:00Z, minReplicas: 4}]}";
    let policy = policy(text);
    let mut now = time("2026-11-23T00:00:00Z");
    let mut edges = Vec::new();
    for _ in 0..6 {
        now = resolve(&policy, now).next_edge.unwrap();
        edges.push(now.to_string());
    }
    assert_eq!(
        edges,
        [
            "2026-11-23T06:30:00Z",
            "2026-11-23T07:00:00Z",
            "2026-11-23T12:00:00Z",
            "2026-11-23T13:00:00Z",
            "2026-11-23T18:00:00Z",
            "2026-11-24T07:00:00Z",
        ]
    );
}

proptest! {
    #[test]
    fn bounds_of_schedules_stay_within_those_of_the_hpa(
        schedules in proptest::collection::vec((0..24u8, 0..24u8, 0..30i32, 0..30i32), 1..6),
        min in 0..20i32, extra in 0..20i32, hour in 0..24u8,
    ) {
        let schedules: Vec<_> = schedules.iter().enumerate()
            .filter(|(_, (from, to, ..))| from < to)
            .map(|(index, (from, to, low, more))| {
                let bounds = match index % 3 { 0 => (Some(*low), None), 1 => (None, Some(*low)), _ => (Some(*low), Some(low + more)) };
                (["a", "b", "c", "d", "e"][index], *from, *to, bounds.0, bounds.1)
            })
            .collect();
        let max = min + extra;
        let now = time(&format!("2026-11-23T{hour:02}:00:00Z"));
        let rules = resolve(&day(&schedules), now);
        let bounded = rules.bounds.apply(min, max);
        prop_assert!(min <= bounded.min && bounded.min <= bounded.max && bounded.max <= max);
        prop_assert_eq!(bounded.steps.is_empty(), (bounded.min, bounded.max) == (min, max));

        let reversed: Vec<_> = schedules.iter().rev().copied().collect();
        prop_assert_eq!(&resolve(&day(&reversed), now).bounds, &rules.bounds, "the order does not matter");

        // Computes the bounds and the next edge naively, from the hours of the schedules.
        let active = || schedules.iter().filter(|(_, from, to, ..)| (*from..*to).contains(&hour));
        let ceiling = active().filter_map(|entry| entry.4).min().map_or(max, |ceiling| ceiling.clamp(min, max));
        let floor = active().filter_map(|entry| entry.3).max().map_or(min, |floor| floor.clamp(min, ceiling));
        prop_assert_eq!((bounded.min, bounded.max), (floor, ceiling));
        let edge = schedules.iter().flat_map(|(_, from, to, ..)| [*from, *to]).filter(|edge| *edge > hour).min();
        prop_assert_eq!(rules.next_edge, edge.map(|edge| time(&format!("2026-11-23T{edge:02}:00:00Z"))));
    }

    #[test]
    fn rules_stay_until_the_next_edge(minutes in 0..40_000i64, later in 0.0..1.0f64) {
        let policy = policy("schedules: [\
            {name: a, start: 0 8 * * 1-5, end: 30 19 * * 1-5, timeZone: America/New_York, minReplicas: 3},\
            {name: b, start: 30 2 * * *, end: 45 2 * * *, timeZone: Europe/Berlin, minReplicas: 4},\
            {name: c, from: 2026-03-29T00:30:00Z, to: 2026-03-29T01:30:00Z, maxReplicas: 9}]");
        let now = time("2026-03-15T00:00:00Z") + jiff::SignedDuration::from_mins(minutes);
        let rules = resolve(&policy, now);
        let edge = rules.next_edge.unwrap();
        prop_assert!(edge > now);
        let between = now + edge.duration_since(now).mul_f64(later * 0.999);
        let again = resolve(&policy, between);
        let replicas = |bound: &Option<ActiveBound>| bound.as_ref().map(|bound| bound.replicas);
        prop_assert_eq!(replicas(&again.bounds.floor), replicas(&rules.bounds.floor));
        prop_assert_eq!(replicas(&again.bounds.ceiling), replicas(&rules.bounds.ceiling));
        prop_assert!(rules.apply_at(between));
    }
}

#[test]
fn interval_is_not_active_at_its_end() {
    let when = When::Interval { from: time("2028-02-29T00:00:00Z"), to: time("2028-03-01T00:00:00Z") };
    let phase = |text| when.phase(time(text));
    assert!(!phase("2028-02-28T23:59:59Z").is_active && phase("2028-02-29T00:00:00Z").is_active);
    assert!(phase("2028-02-29T23:59:59Z").is_active && !phase("2028-03-01T00:00:00Z").is_active);
    assert_eq!(phase("2028-03-01T00:00:00Z").until, None);
}
