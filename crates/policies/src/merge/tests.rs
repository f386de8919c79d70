//! Precedence, conflicts and limits.

use proptest::prelude::*;

use super::*;
use crate::spec::parse;

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
    assert_eq!((policy.spec.tolerance, policy.spec.combine), (Some(0.1), Some(crate::spec::Combine::Min)));
    assert_eq!(policy.spec.guards.owned_pods_only, Some(true));
    assert_eq!(policy.spec.guards.rollout, Some(crate::spec::RolloutGuard::Hold));
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
    assert_eq!((policy.spec.tolerance, policy.spec.combine), (Some(0.3), Some(crate::spec::Combine::Max)));
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
                  maxReplicas: 500}], fallback: [{when: Error, action: Replicas, replicas: 200}]}";
    let policy = Policy::merge(vec![
        source(Level::Namespaced, "shop/web", 1, tenant),
        source(Level::Cluster, "platform", 1, limits),
    ]);
    assert_eq!(policy.spec.sync_period_seconds, Some(5));
    let schedule = &policy.spec.schedules.as_ref().unwrap()[0];
    assert_eq!((schedule.min_replicas, schedule.max_replicas), (Some(10), Some(100)));
    let mode = policy.spec.mode.unwrap();
    assert_eq!((mode.mode, mode.replicas), (Some(Mode::Pinned), Some(999)), "the platform has no limits");
    let fallback = &policy.spec.fallback.as_ref().unwrap()[0];
    assert_eq!(fallback.action, FallbackAction::Replicas(100, crate::spec::Strategy::Static));
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
