use super::*;

#[track_caller]
fn problems(text: &str, level: Level) -> Vec<String> {
    parse(text, level).problems.iter().map(ToString::to_string).collect()
}

const WHOLE: &str = r#"
mode: Pinned
replicas: 5
until: 2026-12-01T08:00:00Z
syncPeriodSeconds: 5
tolerance: "0.05"
cpuInitializationPeriodSeconds: 60
initialReadinessDelaySeconds: 10
downscaleStabilizationSeconds: 0
statusPrecision: 10%
schedules:
- {name: business-hours, timeZone: Europe/Berlin, start: "0 8 * * 1-5", end: "0 19 * * 1-5", minReplicas: 10}
- {name: black-friday, from: 2026-11-27T00:00:00Z, to: 2026-11-30T00:00:00Z, minReplicas: 50, maxReplicas: 200}
fallback:
- {when: Error, failureDurationSeconds: 60, action: Replicas, replicas: 6, strategy: AtLeast}
- {when: Empty, metric: queue, action: Hold}
combine: Min
forecast:
  mode: Floor
  budget: 2%
  loadPerPod: 200%
  shortageValue: 50
  timeZone: europe/berlin
  holidays: [2026-12-25, "2026-12-26"]
  horizonSeconds: 90
  minimumHistory: 7d
  maximumFloor: 50%
  history: {server: main, query: 'sum(rate(requests{app="$name"}[1m]))'}
guards:
  pendingPods: {maximum: 20%, unschedulableOnly: true}
  rollout: HoldScaleUp
  ownedPodsOnly: true
  zeroMetrics: Hold
  maxStep: {up: 100%, down: 20%, maximumPodsUp: 50}
corrections:
  averageValueWithinTolerance: true
  ignoreContainersWithoutRequest: [istio-proxy]
"#;

#[test]
fn every_field_of_a_policy_is_read() {
    let Parsed { spec, problems } = parse(WHOLE, Level::Annotation);
    assert_eq!(problems, []);
    let until = Some("2026-12-01T08:00:00Z".parse().unwrap());
    assert_eq!(spec.mode, Some(ModeRule { mode: Some(Mode::Pinned), replicas: Some(5), until }));
    assert_eq!((spec.sync_period_seconds, spec.tolerance), (Some(5), Some(0.05)));
    let seconds = (spec.cpu_initialization_period_seconds, spec.initial_readiness_delay_seconds);
    assert_eq!((seconds, spec.downscale_stabilization_seconds), ((Some(60), Some(10)), Some(0)));
    assert_eq!(spec.status_precision, Some("10%".parse().unwrap()));
    let schedules = spec.schedules.unwrap();
    assert_eq!((schedules[0].min_replicas, schedules[0].max_replicas), (Some(10), None));
    assert_eq!((schedules[1].min_replicas, schedules[1].max_replicas), (Some(50), Some(200)));
    let fallback = spec.fallback.unwrap();
    assert_eq!(fallback[0].action, FallbackAction::Replicas(6, Strategy::AtLeast));
    assert_eq!((fallback[0].failure_duration_seconds, fallback[1].failure_duration_seconds), (60, 180));
    assert_eq!((fallback[1].when, fallback[1].metric.as_deref()), (Cause::Empty, Some("queue")));
    assert_eq!(spec.combine, Some(Combine::Min));
    let forecast = spec.forecast.unwrap();
    let settings = &forecast.settings;
    assert_eq!((settings.mode, settings.minimum_history), (::forecast::Mode::Floor, 7 * 1440));
    assert_eq!((settings.budget, settings.maximum_floor, settings.shortage_value), (0.02, 0.5, 50.0));
    assert_eq!(settings.calendar.zone.iana_name(), Some("Europe/Berlin"));
    let days = [25, 26].map(|day| jiff::civil::date(2026, 12, day));
    assert_eq!(settings.calendar.holidays, days.into());
    assert_eq!((forecast.load_per_pod, forecast.start_minutes), (2.0, Some(2)));
    let query = "sum(rate(requests{app=\"$name\"}[1m]))".into();
    assert_eq!(forecast.history, Some(MetricOrigin::Prometheus { server: "main".into(), query }));
    let max_step = MaxStep {
        up: Some(Amount::Percent(100)),
        down: Some(Amount::Percent(20)),
        maximum_pods_up: Some(50),
        maximum_pods_down: None,
    };
    let guards = Guards {
        pending_pods: Some(PendingPods { maximum: Amount::Percent(20), unschedulable_only: true }),
        rollout: Some(RolloutGuard::HoldScaleUp),
        owned_pods_only: Some(true),
        zero_metrics: Some(ZeroMetrics::Hold),
        max_step: Some(max_step),
    };
    assert_eq!(spec.guards, guards);
    assert_eq!(spec.corrections.average_value_within_tolerance, Some(true));
    let containers = spec.corrections.ignore_containers_without_request.unwrap();
    assert_eq!(&*containers, ["istio-proxy".into()]);
}

#[test]
fn policy_as_json_equals_the_policy_as_yaml() {
    let value: serde_json::Value = serde_saphyr::from_str(WHOLE).unwrap();
    let yaml = parse(WHOLE, Level::Annotation);
    assert_eq!(parse(&value.to_string(), Level::Annotation), yaml);
    assert_eq!(read(value, Level::Cluster), yaml);
    assert_eq!(parse("", Level::Annotation), Parsed::default());
    assert_eq!(parse("{}", Level::Annotation), Parsed::default());
}

#[test]
fn invalid_field_is_reported_and_the_others_stand() {
    for (text, expected) in [
        ("mood: Auto", "mood: is unknown and has no effect; did you mean mode?"),
        ("Combine: Max", "Combine: is unknown and has no effect; did you mean combine?"),
        ("zzz: 1", "zzz: is unknown and has no effect"),
        ("guards: {rollOut: Hold}", "guards.rollOut: is unknown and has no effect; did you mean rollout?"),
        ("syncPeriodSeconds: 0", "syncPeriodSeconds: must be a whole number from 1 to 3600, not 0"),
        ("syncPeriodSeconds: \"5\"", "syncPeriodSeconds: must be a whole number from 1 to 3600, not \"5\""),
        ("tolerance: -0.1", "tolerance: must be a fraction of at least 0, such as 0.1, not -0.1"),
        ("tolerance: x", "tolerance: must be a fraction of at least 0, such as 0.1, not \"x\""),
        ("combine: Avg", "combine: must be Max or Min, not \"Avg\""),
        ("schedules: 5", "schedules: must be a list, not 5"),
        ("schedules: [5]", "schedules[0]: must be a mapping, not 5"),
        ("guards: []", "guards: must be a mapping, not a list"),
        (
            "guards: {ownedPodsOnly: yes please}",
            "guards.ownedPodsOnly: must be true or false, not \"yes please\"",
        ),
        ("guards: {pendingPods: {}}", "guards.pendingPods.maximum: is required"),
        (
            "guards: {pendingPods: {maximum: -1}}",
            "guards.pendingPods.maximum: must be a count of pods such as 5, or a percentage such as 20%, not -1",
        ),
        ("until: 2026-12-01T08:00:00Z", "until: has no effect without mode"),
        ("{mode: Auto, replicas: 5}", "replicas: has an effect with the mode Pinned only"),
        ("limits: {}", "limits: has an effect in a ClusterScalingPolicy only"),
        ("selector: {}", "selector: is unknown and has no effect"),
    ] {
        let text = if text.starts_with('{') {
            text.to_owned()
        } else {
            format!("{{{text}, downscaleStabilizationSeconds: 7}}")
        };
        assert_eq!(problems(&text, Level::Annotation), [expected], "{text}");
        if !text.contains("mode: Auto") {
            let spec = parse(&text, Level::Annotation).spec;
            assert_eq!(spec.downscale_stabilization_seconds, Some(7), "{text}");
            let alone = PolicySpec { downscale_stabilization_seconds: Some(7), ..PolicySpec::default() };
            assert_eq!(PolicySpec { schedules: None, ..spec }, alone, "{text}");
        }
    }
}

#[test]
fn text_that_is_no_yaml_is_reported_with_its_place() {
    for (text, expected) in [
        ("mode: [Auto", "unclosed bracket '[' at line 1, column 7"),
        ("a: 1\n  b: 2", "mapping values are not allowed in this context at line 2, column 4"),
        ("{mode: Auto, mode: Paused}", "duplicate mapping key: mode not allowed here at line 1, column 14"),
    ] {
        let expected = format!("the policy cannot be read: {expected}; the policy is ignored");
        assert_eq!(problems(text, Level::Annotation), [expected], "{text}");
    }
}

#[test]
fn invalid_entry_of_a_list_is_ignored_as_a_whole() {
    for (entry, expected) in [
        (
            "{from: 2026-01-01T00:00:00Z, to: 2026-01-02T00:00:00Z, minReplicas: 1}",
            "name: is missing; conditions and events need it",
        ),
        (
            "{name: a, from: 2026-01-02T00:00:00Z, to: 2026-01-02T00:00:00Z, minReplicas: 1}",
            "to: is not later than from",
        ),
        (
            "{name: a, from: 2026-01-02T00:00:00Z, minReplicas: 1}",
            "to: is missing; a schedule needs from and to",
        ),
        ("{name: a, start: 0 8 * * *, minReplicas: 1}", "end: is missing; a schedule needs start and end"),
        (
            "{name: a, start: 0 8 * * *, end: 0 9 * * *, minReplicas: 2, maxReplicas: 1}",
            "minReplicas: is higher than maxReplicas",
        ),
        (
            "{name: a, start: 0 8 * * *, end: 0 9 * * *, minReplica: 2, maxReplicas: 1}",
            "minReplica: is unknown and has no effect; did you mean minReplicas?",
        ),
        (
            "{name: a, start: 0 8 * * *, end: 0 9 * * *, minReplicas: -2}",
            "minReplicas: must be a whole number from 0 to 2147483647, not -2",
        ),
        ("{name: a, start: 0 8 * * *, end: 0 9 * * *}", "needs minReplicas or maxReplicas, or both"),
        ("{name: a, minReplicas: 1}", "needs from and to, or start and end"),
        (
            "{name: a, start: 0 8 * * *, to: 2026-01-02T00:00:00Z, minReplicas: 1}",
            "has from or to, and also start, end or timeZone",
        ),
        (
            "{name: a, timeZone: Berlin, start: 0 8 * * *, end: 0 9 * * *, minReplicas: 1}",
            "timeZone: no time zone has the name \"Berlin\"; did you mean \"Europe/Berlin\"?",
        ),
    ] {
        let text =
            format!("schedules: [{entry}, {{name: b, start: 0 8 * * *, end: 0 9 * * *, minReplicas: 1}}]");
        let Parsed { spec, problems } = parse(&text, Level::Annotation);
        let texts: Vec<_> = problems
            .iter()
            .map(|problem| {
                assert!(problem.path.starts_with("schedules[0]"), "{problem}");
                problem
                    .to_string()
                    .trim_start_matches("schedules[0]")
                    .trim_start_matches(['.', ':', ' '])
                    .to_owned()
            })
            .collect();
        assert_eq!(texts, [expected], "{entry}");
        assert_eq!(spec.schedules.unwrap().iter().map(|schedule| &*schedule.name).collect::<Vec<_>>(), ["b"]);
    }
    for (entry, expected) in [
        ("{action: Hold}", "fallback[0].when: is missing; a fallback needs when and action"),
        ("{when: Error}", "fallback[0].action: is missing; a fallback needs when and action"),
        ("{when: Error, action: Replicas}", "fallback[0].replicas: is missing; the action Replicas needs it"),
        ("{when: Error, action: Hold, replicas: 1}", "fallback[0].replicas: needs the action Replicas"),
        (
            "{when: Error, action: Hold, metrc: a}",
            "fallback[0].metrc: is unknown and has no effect; did you mean metric?",
        ),
    ] {
        let text = format!("fallback: [{entry}]");
        assert_eq!(problems(&text, Level::Annotation), [expected]);
        assert_eq!(parse(&text, Level::Annotation).spec.fallback.as_deref(), Some(&[][..]));
    }
}

#[test]
fn invalid_mode_holds_the_count() {
    for (text, expected) in [
        (
            "mode: Pause",
            "mode: must be Auto, Paused, ScaleUpOnly, ScaleDownOnly, Pinned or DryRun, not \"Pause\"; the count is held",
        ),
        ("{mode: Pinned}", "mode: Pinned needs replicas; the count is held"),
        ("{mode: Paused, until: tomorrow}", "mode: until is invalid; the count is held"),
    ] {
        let Parsed { spec, problems } = parse(text, Level::Annotation);
        assert!(problems.iter().any(|problem| problem.to_string() == expected), "{problems:?}");
        assert_eq!(spec.mode.unwrap().mode, None, "{text}");
    }
}

#[test]
fn size_of_a_policy_is_bounded() {
    let long = format!("mode: Paused # {}", "x".repeat(200_000));
    assert_eq!(
        problems(&long, Level::Annotation),
        ["the policy has 200015 bytes, at most 65536 are allowed; the policy is ignored"]
    );
    assert_eq!(parse(&long, Level::Annotation).spec, PolicySpec::default());
    let many = format!("schedules: [{}]", "{name: a}, ".repeat(1000));
    assert_eq!(
        problems(&many, Level::Annotation),
        ["schedules: has 1000 entries, at most 100 are allowed; the field is ignored"]
    );
    let unknown: Vec<String> = (0..100).map(|index| format!("x{index}: 1")).collect();
    let problems = problems(&unknown.join("\n"), Level::Annotation);
    assert_eq!((problems.len(), &*problems[20]), (21, "the policy 80 more problems"));
}

#[test]
fn anchors_aliases_and_merge_keys_are_refused() {
    for text in [
        "mode: &mode Paused",
        "mode: &mode Paused\nreplicas: *mode",
        "mode: *mode",
        "<<: {mode: Paused}",
        "guards: {<<: {ownedPodsOnly: true}}",
        "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b,*b]",
    ] {
        let problems = problems(text, Level::Annotation);
        assert!(problems[0].starts_with("the policy cannot be read: "), "{text}: {problems:?}");
        assert_eq!(parse(text, Level::Annotation).spec, PolicySpec::default(), "{text}");
    }
    assert_eq!(problems("mode: '*mode'", Level::Annotation).len(), 1);
}

#[test]
fn nodes_and_depth_of_a_policy_are_bounded() {
    let of_nodes = |nodes: usize| format!("mode: Paused\na: [{}]", "0,".repeat(nodes - 5));
    let of_depth =
        |depth: usize| format!("mode: Paused\na: {}{}", "[".repeat(depth - 1), "]".repeat(depth - 1));
    for (text, is_valid) in [
        (of_nodes(MAX_NODES), true),
        (of_nodes(MAX_NODES + 1), false),
        (of_depth(16), true),
        (of_depth(17), false),
        (of_depth(20_000), false),
    ] {
        assert_eq!(parse(&text, Level::Annotation).spec.mode.is_some(), is_valid, "{} bytes", text.len());
    }
}

#[test]
fn texts_of_strange_characters_are_refused_in_few_words() {
    for unit in
        ["m\0o\0d\0e\0", "\0", "\u{202e}mode\u{2066}", "\u{feff}", "\u{fffd}\u{fffd}m\0", "\r", "\u{2028}"]
    {
        for bytes in [unit.len(), 1_000, MAX_BYTES, 1 << 20] {
            let text = unit.repeat(bytes / unit.len());
            for level in [Level::Annotation, Level::Namespaced, Level::Cluster] {
                let Parsed { spec, problems } = parse(&text, level);
                assert_eq!(spec, PolicySpec::default(), "{unit:?}");
                let words: Vec<String> = problems.iter().map(ToString::to_string).collect();
                assert!(words.iter().all(|words| words.len() < 500), "{words:?}");
            }
        }
    }
}

#[test]
fn bounds_are_inclusive() {
    let padded = |bytes: usize| format!("mode: Paused #{}", "x".repeat(bytes - "mode: Paused #".len()));
    assert_eq!(parse(&padded(MAX_BYTES), Level::Annotation).problems, []);
    assert_eq!(problems(&padded(MAX_BYTES + 1), Level::Annotation).len(), 1);
    let unknown =
        |count: usize| (0..count).map(|index| format!("x{index}: 1")).collect::<Vec<_>>().join("\n");
    for (count, reported) in [(MAX_PROBLEMS, MAX_PROBLEMS), (MAX_PROBLEMS + 1, MAX_PROBLEMS + 1)] {
        let problems = problems(&unknown(count), Level::Annotation);
        assert_eq!(problems.len(), reported);
        assert_eq!(problems.last().unwrap().contains("more"), count > MAX_PROBLEMS, "{problems:?}");
    }
    // Reports contain values of up to 40 characters in full.
    for (length, is_whole) in [(40, true), (41, false)] {
        let [problem] = &problems(&format!("combine: {}", "x".repeat(length)), Level::Annotation)[..] else {
            panic!("one problem");
        };
        assert_eq!(!problem.contains('…'), is_whole, "{problem}");
    }
}

#[test]
fn names_of_values_are_those_of_the_spec() {
    for mode in ["Auto", "Paused", "ScaleUpOnly", "ScaleDownOnly", "Pinned", "DryRun"] {
        let parsed = parse(&format!("{{mode: {mode}, replicas: 1}}"), Level::Annotation);
        assert_eq!(parsed.spec.mode.and_then(|rule| rule.mode).map(Mode::as_str), Some(mode));
    }
}

#[test]
fn schedules_with_other_times_differ() {
    let schedule = |end: &str, zone: &str| {
        let text = format!(
            "schedules: [{{name: a, start: '0 8 * * *', end: '{end}', timeZone: {zone}, minReplicas: 1}}]"
        );
        parse(&text, Level::Annotation).spec.schedules.unwrap()
    };
    let one = schedule("0 19 * * *", "UTC");
    assert_eq!(one, schedule("0 19 * * *", "UTC"));
    assert_ne!(one, schedule("0 20 * * *", "UTC"));
    assert_ne!(one, schedule("0 19 * * *", "Europe/Berlin"));
}

#[test]
fn text_that_is_no_mapping_is_refused() {
    for text in ["[1, 2]", "text", "5"] {
        let problems = problems(text, Level::Annotation);
        assert!(problems[0].starts_with("the policy must be a mapping, not "), "{problems:?}");
    }
    let problems = problems("mode: [", Level::Annotation);
    assert!(problems[0].starts_with("the policy cannot be read: "), "{problems:?}");
}

#[test]
fn limits_are_read_from_cluster_policies_only() {
    let text = "{selector: {}, namespaceSelector: {}, limits: {shortestSyncPeriodSeconds: 5, allowedModes: [Paused], \
                highestFloor: 10, highestCeiling: 100}}";
    let Parsed { spec, problems: found } = parse(text, Level::Cluster);
    let limits = Limits {
        shortest_sync_period_seconds: Some(5),
        allowed_modes: Some(vec![Mode::Paused]),
        highest_floor: Some(10),
        highest_ceiling: Some(100),
    };
    assert_eq!((spec.limits, found), (Some(limits), Vec::new()));
    let found = problems(text, Level::Namespaced);
    assert_eq!(found[0], "limits: has an effect in a ClusterScalingPolicy only");
}

#[test]
fn forecast_is_valid_as_a_whole() {
    let defaults = parse("forecast: {}", Level::Annotation);
    assert_eq!((defaults.problems, defaults.spec.forecast), (vec![], Some(Arc::default())));
    let auto = parse("forecast: {horizonSeconds: auto, mode: Preview, timeZone: UTC}", Level::Annotation);
    assert_eq!((auto.problems, auto.spec.forecast.map(|spec| spec.start_minutes)), (vec![], Some(None)));
    for (text, expected) in [
        ("mode: Apply", "forecast.mode: must be Preview or Floor, not \"Apply\""),
        ("budget: 5", "forecast.budget: must be a percentage from 1% to 100%, not 5"),
        ("budget: 101%", "forecast.budget: must be a percentage from 1% to 100%, not \"101%\""),
        ("loadPerPod: 99%", "forecast.loadPerPod: must be a percentage from 100% to 1000%, not \"99%\""),
        ("maximumFloor: +8%", "forecast.maximumFloor: must be a percentage from 1% to 100%, not \"+8%\""),
        ("shortageValue: 0", "forecast.shortageValue: must be a whole number from 1 to 10000, not 0"),
        (
            "minimumHistory: 15d",
            "forecast.minimumHistory: must be a number of days from 1d to 14d, such as 3d, not \"15d\"",
        ),
        (
            "horizonSeconds: 30",
            "forecast.horizonSeconds: must be auto or a whole number from 60 to 900, not 30",
        ),
        (
            "timeZone: Berlin",
            "forecast: timeZone: no time zone has the name \"Berlin\"; did you mean \"Europe/Berlin\"?",
        ),
        (
            "holidays: [2026-02-30]",
            "forecast.holidays: must be a list of at most 100 dates such as 2026-12-25, not a list",
        ),
        ("history: {server: main}", "forecast.history.query: is required"),
        (
            "history: {server: main, query: ''}",
            "forecast.history.query: must be a text of 1 to 16384 bytes, not \"\"",
        ),
        (
            "history: {server: main, query: up, days: 7}",
            "forecast.history.days: is unknown and has no effect",
        ),
        ("history: main", "forecast.history: must be a mapping, not \"main\""),
        ("modes: Floor", "forecast.modes: is unknown and has no effect; did you mean mode?"),
    ] {
        let Parsed { spec, problems } = parse(&format!("forecast: {{{text}}}"), Level::Annotation);
        assert_eq!(problems.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
        assert_eq!(spec.forecast, None, "{text}");
    }
}
