//! Fallbacks, the choice among proposals, the history of metrics, and containers without a request.

use autoscaling::pod::{LabelSet, Phase, ResourceList};
use proptest::prelude::{Strategy as _, prop_assert_eq, proptest};

use super::*;
use crate::spec::{Level, parse};

const START: Timestamp = Timestamp::UNIX_EPOCH;

fn after(seconds: i64) -> Timestamp {
    START + SignedDuration::from_secs(seconds)
}

fn metric(name: &str, outcome: Outcome) -> MetricState {
    MetricState {
        key: format!("External/{name}").into(),
        name: name.into(),
        subject: name.into(),
        label: format!("external metric {name}").into(),
        outcome,
        keeps_status_replicas: false,
        is_replaced: false,
    }
}

fn proposes(name: &str, replicas: i32) -> MetricState {
    metric(name, Outcome::Proposal { replicas, is_zero: false })
}

fn fails(name: &str, cause: Cause) -> MetricState {
    metric(name, Outcome::Failed(cause))
}

fn spec(text: &str) -> PolicySpec {
    let parsed = parse(text, Level::Annotation);
    assert_eq!(parsed.problems, [], "{text}");
    parsed.spec
}

/// The chosen count and the texts of the steps, for 4 current replicas and metrics that have had `states` for
/// `seconds`.
fn chosen(policy: &str, states: &[MetricState], seconds: i64) -> (Option<i32>, Vec<String>) {
    let history = PolicyHistory::default().observe(states, START).observe(states, after(seconds));
    let chosen = choose(&spec(policy), 4, states, &history, after(seconds));
    let texts = chosen.steps().iter().map(ToString::to_string).collect();
    (chosen.choice.map(|choice| choice.replicas), texts)
}

#[test]
fn reference_decides_without_a_rule_that_applies() {
    let all = [proposes("a", 9), fails("b", Cause::Error)];
    for policy in [
        "{}",
        "{combine: Max}",
        "{fallback: [{when: Empty, action: Hold}]}",
        "{fallback: [{when: Error, action: Hold, metric: a}]}",
    ] {
        assert_eq!(chosen(policy, &all, 1000), (None, Vec::new()), "{policy}");
    }
    let equal = [proposes("a", 6), proposes("b", 6)];
    assert_eq!(chosen("{combine: Min}", &equal, 0), (None, Vec::new()));
}

#[test]
fn fallback_acts_after_its_duration() {
    let states = [proposes("a", 2), fails("b", Cause::Error)];
    let text = |effect: &str| vec![format!("b has failed since 1970-01-01T00:00:00Z, so {effect}")];
    for (action, count, effect) in [
        ("Hold", 4, "it proposes the current count 4"),
        ("Ignore", 2, "it is ignored"),
        ("LastValue", 4, "it proposes 4 as before"),
        ("Replicas, replicas: 6", 6, "it proposes 6"),
        ("Replicas, replicas: 1", 2, "it proposes 1"),
        ("Replicas, replicas: 3, strategy: AtLeast", 4, "it proposes 4"),
        ("Replicas, replicas: 6, strategy: AtLeast", 6, "it proposes 6"),
        ("Replicas, replicas: 3, strategy: AtMost", 3, "it proposes 3"),
        ("Replicas, replicas: 6, strategy: AtMost", 4, "it proposes 4"),
    ] {
        let policy = format!("{{fallback: [{{when: Error, action: {action}, failureDurationSeconds: 60}}]}}");
        assert_eq!(chosen(&policy, &states, 59), (None, Vec::new()), "{action}");
        assert_eq!(chosen(&policy, &states, 60), (Some(count), text(effect)), "{action}");
    }
    let default = "{fallback: [{when: Error, action: Hold}]}";
    assert_eq!(chosen(default, &states, 179).0, None);
    assert_eq!(chosen(default, &states, 180).0, Some(4));
}

#[test]
fn no_data_is_not_an_error() {
    let policy = "{fallback: [{when: Error, action: Replicas, replicas: 9}, {when: Empty, action: Replicas, replicas: 7}]}";
    assert_eq!(chosen(policy, &[fails("a", Cause::Error)], 180).0, Some(9));
    let (count, texts) = chosen(policy, &[fails("a", Cause::Empty)], 180);
    assert_eq!(
        (count, &*texts[0]),
        (Some(7), "a has had no value since 1970-01-01T00:00:00Z, so it proposes 7")
    );
}

#[test]
fn fallback_of_a_metric_comes_before_that_of_all() {
    let policy = "{fallback: [{when: Error, action: Replicas, replicas: 9}, \
                  {when: Error, metric: a, action: Replicas, replicas: 7}]}";
    assert_eq!(chosen(policy, &[fails("a", Cause::Error)], 180).0, Some(7));
    assert_eq!(chosen(policy, &[fails("b", Cause::Error)], 180).0, Some(9));
}

#[test]
fn ignored_metrics_alone_decide_nothing() {
    let policy = "{fallback: [{when: Error, action: Ignore}]}";
    assert_eq!(chosen(policy, &[fails("a", Cause::Error), fails("b", Cause::Error)], 180).0, None);
}

#[test]
fn failed_metric_without_a_fallback_prevents_scale_down() {
    let policy = "{fallback: [{when: Error, metric: b, action: Ignore}]}";
    let states = |count| [proposes("a", count), fails("b", Cause::Error), fails("c", Cause::Error)];
    assert_eq!(chosen(policy, &states(3), 180).0, None);
    assert_eq!(chosen(policy, &states(5), 180).0, Some(5));
}

#[test]
fn lowest_proposal_is_chosen_by_min() {
    let states = [proposes("a", 9), proposes("b", 2), proposes("c", 5)];
    let text = "the lowest proposal 2 is chosen, the highest is 9".to_owned();
    assert_eq!(chosen("{combine: Min}", &states, 0), (Some(2), vec![text]));
    // A failed metric without a fallback keeps the count, for any proposals of the other metrics.
    for valid in [[9, 2], [9, 9], [2, 2]] {
        let states = [proposes("a", valid[0]), proposes("b", valid[1]), fails("c", Cause::Error)];
        let text = "c failed and may propose the lowest count, so the count stays at 4".to_owned();
        assert_eq!(chosen("{combine: Min}", &states, 0), (Some(4), vec![text]));
    }
}

#[test]
fn average_value_within_tolerance_keeps_spec_replicas() {
    let policy = "{corrections: {averageValueWithinTolerance: true}}";
    let within = MetricState { keeps_status_replicas: true, ..proposes("a", 7) };
    let (count, texts) = chosen(policy, std::slice::from_ref(&within), 0);
    let text = "a is within tolerance, so it proposes spec.replicas 4 instead of 7";
    assert_eq!((count, &*texts[0]), (Some(4), text));
    assert_eq!(chosen("{}", std::slice::from_ref(&within), 0).0, None);
    assert_eq!(chosen(policy, &[proposes("a", 7)], 0).0, None);
    assert_eq!(chosen(policy, &[within, proposes("b", 9)], 0).0, Some(9));
}

#[test]
fn failure_lasts_from_the_last_value_whatever_its_cause() {
    let fallbacks =
        spec("{fallback: [{when: Error, action: Hold, failureDurationSeconds: 60}]}").fallback.unwrap();
    let history = PolicyHistory::default().observe(&[proposes("a", 3)], START);
    assert_eq!(history.next_edge(&fallbacks, START), None);
    let history = history.observe(&[fails("a", Cause::Empty)], after(10));
    assert_eq!(history.next_edge(&fallbacks, after(10)), None, "no fallback for this cause");
    let history = history.observe(&[fails("a", Cause::Error)], after(20));
    assert_eq!(history.metrics["External/a"].failing, Some((after(10), Cause::Error)));
    assert_eq!(history.metrics["External/a"].last_proposal, Some(3));
    assert_eq!(history.next_edge(&fallbacks, after(20)), Some(after(70)));
    assert_eq!(history.next_edge(&fallbacks, after(70)), None, "the fallback acts");
    let back = history.observe(&[fails("a", Cause::Error)], after(5));
    assert_eq!(back.metrics["External/a"].failing, Some((after(5), Cause::Error)), "a clock that went back");
    let text = serde_json::to_string(&history).unwrap();
    assert_eq!(serde_json::from_str::<PolicyHistory>(&text).unwrap(), history);
    assert_eq!(history.observe(&[proposes("b", 1)], after(30)).metrics.len(), 1, "a has left the spec");
    assert_eq!(history.observe(&[proposes("a", 1)], after(30)).metrics["External/a"].failing, None);
}

#[test]
fn metrics_that_drop_to_zero_at_once_are_remembered() {
    let value = |name: &str, is_zero| metric(name, Outcome::Proposal { replicas: 1, is_zero });
    let busy = PolicyHistory::default().observe(&[value("a", false), value("b", false)], START);
    let zero = [value("a", true), value("b", true)];
    assert_eq!(busy.observe(&zero, after(15)).zero_since, Some(after(15)));
    assert_eq!(busy.observe(&zero, after(15)).observe(&zero, after(9000)).zero_since, Some(after(15)));
    assert_eq!(busy.observe(&zero, after(9000)).zero_since, Some(after(9000)), "the next sync, however late");
    assert_eq!(PolicyHistory::default().observe(&zero, after(15)).zero_since, None, "no value before");
    assert_eq!(PolicyHistory::default().observe(&[], after(15)).zero_since, None);
    let one = [value("a", true), value("b", false)];
    assert_eq!(busy.observe(&one, after(15)).zero_since, None);
    assert_eq!(busy.observe(&one, after(15)).observe(&zero, after(30)).zero_since, Some(after(30)));
    assert_eq!(busy.observe(&one, after(15)).observe(&zero, after(120)).zero_since, Some(after(120)));
    assert_eq!(busy.observe(&one, after(15)).observe(&zero, after(121)).zero_since, None, "not at once");
    let failed = [value("a", true), fails("b", Cause::Error)];
    let held = busy.observe(&zero, after(15)).observe(&failed, after(30));
    assert_eq!(held.zero_since, Some(after(15)), "a failure is no value");
    assert_eq!(busy.observe(&failed, after(15)).observe(&zero, after(30)).zero_since, Some(after(30)));
    assert_eq!(held.observe(&one, after(45)).zero_since, None);
}

fn any_metric() -> impl proptest::strategy::Strategy<Value = Outcome> {
    (0..3u8, 0..12i32).prop_map(|(kind, replicas)| match kind {
        0 => Outcome::Failed(Cause::Error),
        1 => Outcome::Failed(Cause::Empty),
        _ => Outcome::Proposal { replicas, is_zero: replicas == 0 },
    })
}

proptest! {
    #[test]
    fn order_of_metrics_does_not_matter(
        outcomes in proptest::collection::vec(any_metric(), 1..6), rotation in 0..6usize, policy in 0..6usize,
        current in 0..12i32, seconds in 0..400i64,
    ) {
        let policies = [
            "{}", "{combine: Min}", "{fallback: [{when: Error, action: Ignore}, {when: Empty, action: Hold}]}",
            "{combine: Min, fallback: [{when: Error, action: LastValue, failureDurationSeconds: 0}]}",
            "{fallback: [{when: Error, action: Replicas, replicas: 6, strategy: AtLeast}, {when: Empty, metric: m0, action: Ignore}]}",
            "{combine: Min, fallback: [{when: Empty, action: Replicas, replicas: 2}]}",
        ];
        let policy = spec(policies[policy]);
        let states: Vec<_> = outcomes.iter().enumerate().map(|(index, outcome)| metric(&format!("m{index}"), *outcome)).collect();
        let history = PolicyHistory::default().observe(&states, START).observe(&states, after(seconds));
        let mut other = states.clone();
        other.rotate_left(rotation % states.len());
        let again = PolicyHistory::default().observe(&other, START).observe(&other, after(seconds));
        prop_assert_eq!(&again, &history);
        let count = |states: &[MetricState]| {
            choose(&policy, current, states, &history, after(seconds)).choice.map(|choice| choice.replicas)
        };
        prop_assert_eq!(count(&other), count(&states));
    }
}

fn list(resource: &str) -> ResourceList {
    ResourceList::new([(resource.into(), "100m".parse().unwrap())])
}

fn container(name: &str, requests: ResourceList) -> ContainerRequests {
    ContainerRequests { name: name.into(), restartable: false, requests }
}

fn pod(name: &str, containers: &[(&str, Option<&str>)], pod_level: ResourceList) -> Arc<Pod> {
    let containers =
        containers.iter().map(|(name, resource)| container(name, resource.map(list).unwrap_or_default()));
    let requests = PodRequests { containers: containers.collect(), pod_level, ..PodRequests::default() };
    Arc::new(Pod {
        name: name.into(),
        labels: Arc::new(LabelSet::default()),
        requests: Arc::new(requests),
        phase: Phase::Running,
        terminating: false,
        ready: None,
        start_time: None,
    })
}

fn usage(pod: &str, containers: &[&str]) -> PodUsage {
    let containers =
        containers.iter().map(|name| ContainerUsage { name: (*name).into(), usage: list("cpu") }).collect();
    PodUsage { pod: pod.into(), timestamp: None, window_nanos: 0, containers }
}

fn names(pod: &Pod) -> Vec<&str> {
    pod.requests.containers.iter().map(|container| &*container.name).collect()
}

#[test]
fn container_without_a_request_counts_neither_in_requests_nor_in_usage() {
    let none = ResourceList::default;
    let pods = [
        pod("b", &[("app", Some("cpu")), ("proxy", None)], none()),
        pod("a", &[("app", Some("cpu")), ("proxy", Some("memory"))], none()),
        pod("c", &[("app", Some("cpu")), ("proxy", Some("cpu"))], none()),
        pod("d", &[("proxy", None)], none()),
        pod("e", &[("app", Some("cpu")), ("proxy", None)], list("cpu")),
    ];
    let answer = Answer::Resource(["a", "b", "c", "x"].map(|pod| usage(pod, &["app", "proxy"])).into());
    let proxy = ["proxy".into(), "other".into()];
    let corrected = ignore_containers(&proxy, "cpu", &answer, &pods).unwrap();
    let kept: Vec<_> = corrected.pods.iter().map(|pod| names(pod)).collect();
    assert_eq!(kept, [vec!["app"], vec!["app"], vec!["app", "proxy"], vec!["proxy"], vec!["app", "proxy"]]);
    let Answer::Resource(usage) = &corrected.answer else { panic!() };
    let counted =
        |usage: &PodUsage| usage.containers.iter().map(|it| it.name.to_string()).collect::<Vec<_>>();
    let counted: Vec<_> = usage.iter().map(counted).collect();
    assert_eq!(counted, [vec!["app"], vec!["app"], vec!["app", "proxy"], vec!["app", "proxy"]]);
    assert_eq!(corrected.step.to_string(), "container proxy requests no cpu and does not count in 2 pods");

    assert_eq!(ignore_containers(&["app".into()], "cpu", &answer, &pods), None);
    assert_eq!(ignore_containers(&[], "cpu", &answer, &pods), None);
    assert_eq!(ignore_containers(&proxy, "cpu", &Answer::External([].into()), &pods), None);
}

#[test]
fn pods_of_one_template_share_the_corrected_requests() {
    let one = pod("a", &[("app", Some("cpu")), ("proxy", None)], ResourceList::default());
    let other = Arc::new(Pod { name: "b".into(), ..(*one).clone() });
    let answer = Answer::Resource([usage("a", &["app"])].into());
    let corrected = ignore_containers(&["proxy".into()], "cpu", &answer, &[one, other]).unwrap();
    assert!(Arc::ptr_eq(&corrected.pods[0].requests, &corrected.pods[1].requests));
}
