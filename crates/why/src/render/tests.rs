use autoscaling::pod::Pod;
use serde_json::json;

use super::*;
use crate::findings::findings;
use crate::scene::{Scene, ago, external, external_metric, pod, pods_metric, starting, usage, usages};
use crate::situation::{FieldManager, Owner, Refused};
use journal::record::wire::Difference;
use policies::resolve::ModeStep;
use policies::spec::Mode;
use policies::steps::PolicyEffect;
use terminal::flag_use::FlagUse;

const NARROW: Style = Style { colours: false, width: Some(80) };

fn berlin() -> Zone {
    Zone::new(jiff::tz::TimeZone::fixed(jiff::tz::offset(2)))
}

fn text_of(situation: &Situation, style: Style) -> String {
    whole(situation, &findings(situation), style, &berlin(), false)
}

/// Creates a situation from a cluster, with an incomplete history and assumed flags.
fn from_outside(scene: Scene) -> Situation {
    let mut situation = scene.situation();
    situation.past.complete = false;
    situation.past.entries = vec![
        HistoryEntry {
            at: ago(290),
            earliest: Some(ago(305)),
            what: Memory::Recommendation { replicas: 5 },
            origin: Origin::Condition("ScaleDownStabilized".to_owned()),
        },
        HistoryEntry {
            at: ago(700),
            earliest: None,
            what: Memory::Rescale { from: None, to: 5 },
            origin: Origin::LastScaleTime,
        },
    ];
    situation.flags = vec![FlagUse {
        name: "horizontal-pod-autoscaler-tolerance",
        value: "0.1".to_owned(),
        origin: FlagOrigin::Assumed,
    }];
    let writer = |manager: &str| FieldManager {
        manager: manager.to_owned(),
        operation: "Update".to_owned(),
        subresource: "status".to_owned(),
        time: Some(ago(12)),
    };
    situation.status_writer = Some(writer("kube-controller-manager"));
    situation
}

fn window() -> Situation {
    from_outside(Scene::cpu(5, 200).recommended(&[(290, 5), (250, 4), (200, 4), (10, 3)]))
}

fn starting_pods() -> Situation {
    let mut scene = Scene::cpu(6, 900);
    scene.pods[3] = starting("web-4");
    scene.pods[4] = starting("web-5");
    scene.pods[5].terminating = true;
    let mut samples: Vec<_> = scene.pods.iter().map(|pod| usage(&pod.name, 900)).collect();
    samples[0] = usage("web-1", 300);
    scene.answers = vec![Some(Ok(autoscaling::query::Answer::Resource(samples.into())))];
    scene.situation()
}

fn failing() -> Situation {
    let error = "the server could not find the metric requests_per_second for pods";
    Scene::cpu(5, 200).and(pods_metric("requests_per_second", "30"), Err(error)).situation()
}

fn policies() -> serde_json::Value {
    json!({
        "scaleUp": {"stabilizationWindowSeconds": 0, "policies": [
            {"type": "Pods", "value": 4, "periodSeconds": 60}, {"type": "Percent", "value": 100, "periodSeconds": 60}]},
        "scaleDown": {"stabilizationWindowSeconds": 300, "selectPolicy": "Min", "policies": [
            {"type": "Percent", "value": 10, "periodSeconds": 60}, {"type": "Pods", "value": 1, "periodSeconds": 300}]},
    })
}

fn policy() -> Situation {
    Scene::cpu(7, 1200).behavior(policies()).recommended(&[(400, 7)]).added(&[(40, 4)]).situation()
}

fn maximum() -> Situation {
    let metric = external_metric("jobs", &json!({"type": "AverageValue", "averageValue": "30"}));
    let mut situation = Scene::cpu(10, 430).and(metric, Ok(external("440"))).situation();
    let job = |name: &str| Owner {
        api_version: "batch/v1".to_owned(),
        kind: "Job".to_owned(),
        name: name.to_owned(),
        uid: "uid-job".to_owned(),
        controller: Some(true),
    };
    for name in ["web-9", "web-10"] {
        situation.owners.insert(name.into(), vec![job("report")]);
    }
    situation
}

fn check(file: &str, expected: &str, situation: &Situation) {
    let text = text_of(situation, NARROW);
    if std::env::var_os("WRITE_EXPLANATIONS").is_some() {
        std::fs::write(format!("{}/tests/explain/{file}", env!("CARGO_MANIFEST_DIR")), &text).unwrap();
        return;
    }
    assert_eq!(text, expected, "{file} is stale; WRITE_EXPLANATIONS=1 regenerates it");
}

#[test]
fn full_texts_equal_the_files() {
    macro_rules! explanation {
        ($file:literal, $situation:expr) => {
            check($file, include_str!(concat!("../../tests/explain/", $file)), &$situation)
        };
    }
    explanation!("window.txt", window());
    explanation!("starting-pods.txt", starting_pods());
    explanation!("failing-metric.txt", failing());
    explanation!("policy.txt", policy());
    explanation!("maximum.txt", maximum());
}

#[test]
fn lines_fit_the_terminal() {
    for situation in [window(), starting_pods(), failing(), policy(), maximum()] {
        for line in text_of(&situation, NARROW).lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(text_of(&situation, Style::default()).lines().any(|line| line.chars().count() > 80));
    }
}

#[test]
fn colors_are_optional_and_change_no_text() {
    let situation = maximum();
    let plain = text_of(&situation, NARROW);
    assert!(!plain.contains('\x1b'));
    let coloured = text_of(&situation, Style { colours: true, ..NARROW });
    assert!(coloured.contains("\x1b[33m") && coloured.contains("\x1b[1m"));
    let mut stripped = coloured;
    for code in ["0", "1", "2", "31", "32", "33"] {
        stripped = stripped.replace(&format!("\x1b[{code}m"), "");
    }
    assert_eq!(stripped, plain);
}

#[test]
fn text_of_the_cluster_is_escaped_for_the_terminal() {
    let evil = "\x1b[2J\u{202e}\nfaked line\x07";
    let mut scene = Scene::cpu(3, 400).and(pods_metric(evil, "30"), Err(evil));
    scene.pods = ["a", "b", "c"].map(|name| starting(&format!("{name}{evil}"))).to_vec();
    scene.answers[0] = Some(Ok(usages(&scene.pods, 400)));
    let mut situation = scene.situation();
    situation.key = engine::store::Key::new(evil, evil);
    situation.refused = vec![Refused {
        verb: "get",
        group: evil.to_owned(),
        resource: evil.to_owned(),
        namespace: Some(evil.to_owned()),
        name: Some(evil.to_owned()),
        text: evil.to_owned(),
        decides: true,
    }];
    situation.target.as_mut().unwrap().name = evil.to_owned();
    let found = findings(&situation);
    for text in [text_of(&situation, NARROW), table([(&situation, &found[..])].into_iter(), NARROW)] {
        assert!(!text.contains(['\x1b', '\u{202e}', '\x07']), "{text}");
        assert!(text.lines().all(|line| !line.starts_with("faked")), "{text}");
        assert!(text.contains("\\u{1b}[2J\\u{202e}\\u{a}faked"), "{text}");
    }
}

#[test]
fn record_shows_since_when_the_decision_is_unchanged() {
    let mut situation = Scene::cpu(5, 400).situation();
    situation.hpa = None;
    situation.source = Source::Record {
        url: "http://127.0.0.1:10257".to_owned(),
        read_at: situation.at,
        since: ago(600),
        syncs: 41,
        version: "0.1.0".to_owned(),
    };
    let text = text_of(&situation, Style::default());
    assert!(
        text.contains(
            "Deployment/web, decided by Concertina 0.1.0 at 2026-07-01 14:01:10+02:00, \
             unchanged for 41 syncs since 13:51:10+02:00, record of http://127.0.0.1:10257\n"
        ),
        "{text}"
    );
    assert!(!text.contains("Not known") && !text.contains("What would have to change"), "{text}");
}

#[test]
fn verdict_mentions_incomplete_data() {
    let mut situation = Scene::cpu(5, 400).situation();
    situation.refused = vec![Refused {
        verb: "list",
        group: String::new(),
        resource: "pods".to_owned(),
        namespace: Some("shop".to_owned()),
        name: None,
        text: "pods is forbidden".to_owned(),
        decides: true,
    }];
    assert!(text_of(&situation, NARROW).starts_with("shop/web (incomplete data) stays at 5: "));
}

#[test]
fn table_is_aligned_and_sorted_by_severity() {
    let named = |mut situation: Situation, name: &str| {
        situation.key.name = name.into();
        let found = findings(&situation);
        (situation, found)
    };
    let mut norequest = Scene::cpu(5, 400);
    norequest.pods[1] = Pod { ..pod("web-2", None) };
    let answers = [
        named(Scene::cpu(5, 400).situation(), "api"),
        named(maximum(), "jobs"),
        named(Scene::cpu(5, 600).situation(), "search"),
        named(norequest.situation(), "web"),
    ];
    let rows = || answers.iter().map(|(situation, found)| (situation, found.as_slice()));
    assert_eq!(
        table(rows(), Style::default()),
        "STATE    NAMESPACE NAME   REPLICAS WHY\n\
         error    shop      web    5        cpu cannot be read: missing request for cpu in container app of Pod web-2 \
         [missing-request]\n\
         warning  shop      jobs   10       jobs asks for 15, but maxReplicas is 10 [foreign-pods, max-replicas]\n\
         ok       shop      api    5        cpu is at its target of 80 %\n\
         ok       shop      search 5 → 8    cpu is at 120 %, above its target of 80 %\n"
    );
    let narrow = table(rows(), Style { width: Some(64), ..Style::default() });
    assert!(narrow.lines().all(|line| line.chars().count() <= 64), "{narrow}");
    let broken = "ok       shop      search 5 → 8    cpu is at 120 %, above its\n                                   target of 80 %\n";
    assert!(narrow.contains(broken), "{narrow}");
}

#[test]
fn summary_counts_the_states() {
    let text = |states: &[(State, bool)]| Style::default().line(&summary(states.iter().copied()), 0);
    let (error, warning, ok) = ((State::Error, true), (State::Warning, true), (State::Ok, true));
    assert_eq!(text(&[ok, error, warning, warning, ok]), "5 HPAs: 1 error, 2 warnings, 2 ok");
    assert_eq!(text(&[error, (State::Ok, false)]), "2 HPAs: 1 error, 1 ok (1 not shown)");
    assert_eq!(text(&[ok]), "1 HPA: 1 ok");
}

#[test]
fn unknown_facts_are_one_line_unless_details_are_requested() {
    let situation = window();
    let text = text_of(&situation, Style::default());
    let last = "Not known    older recommendations, the flags of the controller; -v 1 explains it\n";
    assert!(text.ends_with(last), "{text}");
    assert!(text.contains("\nDeployment/web, last rescale 11 min 40 s ago, decided here"), "{text}");
    let text = whole(&situation, &[], Style::default(), &berlin(), true);
    for line in [
        "What cannot be known from outside the controller\n",
        "assumed    --horizontal-pod-autoscaler-tolerance=0.1\n",
        "remembered 5 recommended between 13:56:05+02:00 and 13:56:20+02:00",
        "remembered scaled to 5 at 13:49:30+02:00",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn comparison_of_a_dry_run_is_shown() {
    let mut situation = window();
    let comparison = Comparison {
        since: ago(7200),
        same: 40,
        different: 1,
        unknown: 2,
        last_difference: Some(Difference {
            at: ago(600),
            sentence: "the built-in controller: 4 to 6; the dry run: 4 to 4, because it stays at 4"
                .to_owned(),
        }),
    };
    let recorder = Recorder {
        from: "pod kube-system/concertina-shadow-0".to_owned(),
        version: "0.1.0".to_owned(),
        last: None,
        comparison: Some(comparison),
    };
    situation.source = Source::Cluster { watching_since: None, record: Recorded::Read(recorder) };
    let text = text_of(&situation, Style::default());
    assert!(text.contains("The dry run's own record"), "{text}");
    assert!(text.contains("40 changes the same, 1 different, 2 unknown, since "), "{text}");
    assert!(text.contains("the built-in controller: 4 to 6; the dry run: 4 to 4"), "{text}");
}

#[test]
fn policy_steps_state_the_applied_count() {
    let mut situation = Scene::cpu(5, 900).situation();
    let step = ModeStep {
        mode: Some(Mode::Paused),
        until: None,
        current: 5,
        recommended: Some(9),
        applied: Some(5),
    };
    situation.policy = Some(PolicyEffect {
        recommended: Some(9),
        applied: Some(5),
        steps: vec![policies::steps::Step::Mode(step)],
        problems: "annotation concertina.dev/policy: x: is unknown and has no effect".to_owned(),
        next: None,
        forecast: None,
    });
    let text = text_of(&situation, Style::default());
    for line in [
        "Scaling policy",
        "paused at 5, the recommendation is 9",
        "5 instead of 9",
        "annotation concertina.dev/policy: x: is unknown and has no effect",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn windows_of_a_burst_are_shown() {
    let step: BurstStep = serde_json::from_value(serde_json::json!({
        "metric": "queue", "targetMilli": 10_000, "ready": 4, "reference": 9, "replicas": 12,
        "stable": {"averageMilli": 42_500, "seconds": 60, "replicas": 5},
        "panic": {"averageMilli": 120_000, "seconds": 6, "replicas": 12},
        "mode": {"panic": {"since": 1, "lastOver": 2, "highest": 12}}, "limit": {"panic": "none"},
    }))
    .unwrap();
    let mut situation = Scene::cpu(4, 400).situation();
    let steps = vec![PolicyStep::Burst(step)];
    situation.policy = Some(PolicyEffect { steps, ..PolicyEffect::default() });
    let text = whole(&situation, &[], Style::default(), &Zone::local(true), false);
    for line in [
        "queue, 10 for each of 4 ready pods",
        "42.5 over 60 s asks for 5",
        "120 over 6 s asks for 12",
        "12 instead of 9, in panic mode, by the panic window",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

/// The custom metrics API returns the value of the HPA's own namespace for any described namespace.
#[test]
fn value_of_the_own_namespace_is_named() {
    let mut scene = Scene::cpu(2, 400);
    scene.spec["metrics"] = json!([{"type": "Object", "object": {
        "describedObject": {"apiVersion": "v1", "kind": "Namespace", "name": "default"},
        "metric": {"name": "hits"}, "target": {"type": "Value", "value": "10"}}}]);
    let value = autoscaling::query::CustomValue {
        object: "shop".into(),
        timestamp: Some(ago(10)),
        window_seconds: None,
        value: "40".parse().unwrap(),
    };
    scene.answers = vec![Some(Ok(autoscaling::query::Answer::Custom([value].into())))];
    let situation = scene.situation();
    let text = text_of(&situation, NARROW);
    assert!(text.contains("hits of Namespace/shop asks for 8"), "{text}");
    assert!(!text.contains("Namespace/default"), "{text}");
    let codes: Vec<_> = findings(&situation).iter().map(|finding| finding.code.as_str()).collect();
    assert!(codes.contains(&"other-namespace"), "{codes:?}");
}

/// The HPA scaled its target to zero, and then the gate was switched off.
#[test]
fn zero_replicas_name_the_gate_that_holds_them() {
    let at_zero = |by_hpa: bool| {
        let mut scene = Scene::cpu(0, 0);
        scene.scale = Ok((0, 0));
        scene.settings.scale_to_zero = false;
        scene.status["conditions"] = json!([{"type": "ScaledToZero", "status": if by_hpa { "True" } else { "False" },
            "reason": "ScaledToZero", "message": "", "lastTransitionTime": "2026-07-01T11:00:00Z"}]);
        scene.situation()
    };
    let (own, other) = (text_of(&at_zero(true), NARROW), text_of(&at_zero(false), NARROW));
    assert!(own.contains("HPAScaleToZero"), "{own}");
    assert!(!other.contains("HPAScaleToZero"), "{other}");
    for text in [own, other] {
        assert!(!text.contains("writer"), "{text}");
    }
}
