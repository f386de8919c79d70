//! Compares the index with a model that searches all objects, under random churn.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use autoscaling::pod::Phase;
use autoscaling::quantity::{Format, Quantity};
use autoscaling::selector::{Labels, Selector};
use proptest::prelude::*;

use super::*;
use cluster::decode::pod;

const SELECTORS: [&str; 8] =
    ["app=a", "app=b", "app in (a,b)", "app!=a,tier", "!tier", "tier=x", "app=a,tier=x", "app,app notin (c)"];

type LabelPairs = Vec<(Cow<'static, str>, Cow<'static, str>)>;

fn pairs(labels: &[(&'static str, &'static str)]) -> LabelPairs {
    labels.iter().map(|(key, value)| (Cow::Borrowed(*key), Cow::Borrowed(*value))).collect()
}

fn selector(text: &str) -> Arc<Selector> {
    Arc::new(Selector::parse(text).unwrap())
}

fn apply(pods: &Pods, namespace: &str, name: &str, labels: &[(&'static str, &'static str)]) {
    apply_with(pods, namespace, name, &pairs(labels), 100);
}

fn apply_with(pods: &Pods, namespace: &str, name: &str, labels: &LabelPairs, milli: i64) {
    let requests = [(Cow::Borrowed("cpu"), Quantity::from_milli(milli, Format::DecimalSi))];
    let containers = [ContainerInput { name: "main", restartable: false, requests: &requests }];
    pods.apply(&PodInput {
        namespace,
        name,
        labels,
        terminating: false,
        phase: Phase::Running,
        start_time: None,
        ready: None,
        containers: &containers,
        init_containers: &[],
        pod_level: &[],
    });
}

fn names(pods: &Pods, namespace: &str, text: &str) -> Vec<String> {
    pods.select(namespace, &selector(text)).iter().map(|pod| pod.name.to_string()).collect()
}

fn claim(overlap: &Overlap, pods: &Pods, name: &str, text: &str) -> Vec<String> {
    let keys = overlap.claim(&Key::new("shop", name), &selector(text), pods);
    keys.iter().map(|key| key.name.to_string()).collect()
}

#[test]
fn pods_are_selected_by_name_order_within_their_namespace() {
    let pods = Pods::new();
    apply(&pods, "shop", "web-2", &[("app", "a")]);
    apply(&pods, "shop", "web-1", &[("app", "a"), ("tier", "x")]);
    apply(&pods, "shop", "db-1", &[("app", "b")]);
    apply(&pods, "bank", "web-3", &[("app", "a")]);
    assert_eq!(names(&pods, "shop", "app=a"), ["web-1", "web-2"]);
    assert_eq!(names(&pods, "shop", "app in (a,b)"), ["db-1", "web-1", "web-2"]);
    assert_eq!(names(&pods, "bank", "app=a"), ["web-3"]);
    assert!(names(&pods, "none", "app=a").is_empty());
}

#[test]
fn pod_with_changed_labels_moves_to_another_set() {
    let pods = Pods::new();
    apply(&pods, "shop", "web", &[("app", "a")]);
    apply(&pods, "shop", "web", &[("app", "b")]);
    assert!(names(&pods, "shop", "app=a").is_empty());
    assert_eq!(names(&pods, "shop", "app=b"), ["web"]);
    assert_eq!(pods.stats().label_sets, 1);
}

#[test]
fn equal_label_sets_and_requests_are_shared() {
    let pods = Pods::new();
    apply(&pods, "shop", "web-1", &[("app", "a"), ("tier", "x")]);
    apply(&pods, "shop", "web-2", &[("tier", "x"), ("app", "a")]);
    let before = pods.select("shop", &selector("app=a"));
    assert!(Arc::ptr_eq(&before[0].labels, &before[1].labels));
    assert!(Arc::ptr_eq(&before[0].requests, &before[1].requests));
    apply(&pods, "shop", "web-1", &[("app", "a"), ("tier", "x")]);
    let after = pods.select("shop", &selector("app=a"));
    assert!(Arc::ptr_eq(&before[0], &after[0]));
    apply_with(&pods, "shop", "web-1", &pairs(&[("app", "a"), ("tier", "x")]), 200);
    let changed = pods.select("shop", &selector("app=a"));
    assert_eq!(changed[0].requests.containers[0].requests.get("cpu").unwrap().milli_value(), 200);
    assert_eq!(pods.stats().request_sets, 2);
}

#[test]
fn readers_see_the_previous_content_until_a_list_ends() {
    let pods = Pods::new();
    pods.begin(None);
    apply(&pods, "shop", "web-1", &[("app", "a")]);
    apply(&pods, "bank", "web-9", &[("app", "a")]);
    assert!(pods.is_empty() && !pods.is_synced());
    pods.finish(None);
    assert!(pods.len() == 2 && pods.is_synced());

    pods.begin(None);
    apply(&pods, "shop", "web-2", &[("app", "c")]);
    apply(&pods, "shop", "web-3", &[("app", "a")]);
    pods.delete("shop", "web-3");
    pods.delete("shop", "web-1");
    assert_eq!(names(&pods, "shop", "app"), ["web-1"]);
    pods.finish(None);
    assert_eq!(names(&pods, "shop", "app"), ["web-2"]);
    assert!(names(&pods, "bank", "app").is_empty());
    assert_eq!(pods.stats().namespaces, 1);
}

#[test]
fn list_of_one_namespace_leaves_others_unchanged() {
    let pods = Pods::new();
    apply(&pods, "shop", "old", &[("app", "a")]);
    apply(&pods, "bank", "old", &[("app", "a")]);
    pods.begin(Some("shop"));
    pods.begin(Some("bank"));
    apply(&pods, "shop", "web", &[("app", "a")]);
    apply(&pods, "bank", "lost", &[("app", "lost")]);
    pods.begin(Some("bank"));
    apply(&pods, "bank", "web", &[("app", "a")]);
    pods.finish(Some("shop"));
    assert_eq!(
        (names(&pods, "shop", "app"), names(&pods, "bank", "app")),
        (vec!["web".into()], vec!["old".into()])
    );
    apply(&pods, "shop", "more", &[("app", "a")]);
    pods.finish(Some("bank"));
    assert_eq!(names(&pods, "shop", "app"), ["more", "web"]);
    assert_eq!(names(&pods, "bank", "app"), ["web"]);
    pods.begin(Some("shop"));
    pods.finish(Some("shop"));
    pods.delete("bank", "web");
    assert_eq!(pods.stats(), Stats::default());
}

#[test]
fn memory_is_freed_with_the_last_object() {
    let (pods, overlap) = (Pods::new(), Overlap::new());
    pods.begin(None);
    apply(&pods, "gone", "lost", &[("app", "c")]);
    pods.begin(None);
    for name in ["web-1", "web-2", "web-3"] {
        apply(&pods, "shop", name, &[("app", "a"), ("tier", "x")]);
        apply(&pods, "shop", name, &[("app", "a")]);
    }
    pods.finish(None);
    claim(&overlap, &pods, "hpa", "app=a");
    claim(&overlap, &pods, "hpa", "app=b");
    let expected = Stats { namespaces: 1, pods: 3, label_sets: 1, request_sets: 1, strings: 4, selectors: 1 };
    assert_eq!(pods.stats(), expected);
    for name in ["web-1", "web-2", "web-3", "web-3"] {
        pods.delete("shop", name);
    }
    overlap.release(&Key::new("shop", "hpa"), &pods);
    overlap.release(&Key::new("shop", "hpa"), &pods);
    assert_eq!(pods.stats(), Stats::default());
    assert!(overlap.is_empty());
}

#[test]
fn hpas_share_pods_that_exist_now() {
    let (pods, overlap) = (Pods::new(), Overlap::new());
    apply(&pods, "shop", "web-1", &[("app", "a"), ("tier", "x")]);
    assert_eq!(claim(&overlap, &pods, "one", "app=a"), ["one"]);
    assert_eq!(claim(&overlap, &pods, "two", "app=b"), Vec::<String>::new());
    assert_eq!(claim(&overlap, &pods, "three", "tier=x"), ["one", "three"]);
    assert_eq!(claim(&overlap, &pods, "one", "app=a"), ["one", "three"]);
    // The next claim includes added pods and excludes removed pods.
    apply(&pods, "shop", "web-2", &[("app", "b"), ("tier", "x")]);
    assert_eq!(claim(&overlap, &pods, "two", "app=b"), ["three", "two"]);
    assert_eq!(claim(&overlap, &pods, "three", "tier=x"), ["one", "three", "two"]);
    pods.delete("shop", "web-1");
    assert_eq!(claim(&overlap, &pods, "three", "tier=x"), ["three", "two"]);
    // Equal selectors share one watched selector. Namespaces are independent.
    assert_eq!(claim(&overlap, &pods, "four", "app=b"), ["four", "three", "two"]);
    assert_eq!(pods.stats().selectors, 3);
    let elsewhere = overlap.claim(&Key::new("bank", "two"), &selector("app=b"), &pods);
    assert!(elsewhere.is_empty());
    overlap.release(&Key::new("shop", "three"), &pods);
    assert_eq!(claim(&overlap, &pods, "two", "app=b"), ["four", "two"]);
}

/// One step of the churn. Names and selectors come from small sets, so that steps affect the same objects.
#[derive(Debug, Clone)]
enum Step {
    Apply(u8, u8, LabelPairs, i64),
    Delete(u8, u8),
    Begin,
    Finish,
    Claim(u8, u8, usize),
    Release(u8, u8),
}

fn steps() -> impl Strategy<Value = Step> {
    let labels = proptest::collection::vec(
        (prop_oneof![Just("app"), Just("tier"), Just("zone")], prop_oneof![Just("a"), Just("b"), Just("x")]),
        0..4,
    );
    prop_oneof![
        8 => (0..2u8, 0..12u8, labels, 1..3i64).prop_map(|(ns, pod, labels, milli)| {
            Step::Apply(ns, pod, pairs(&labels), milli)
        }),
        3 => (0..2u8, 0..12u8).prop_map(|(ns, pod)| Step::Delete(ns, pod)),
        1 => Just(Step::Begin),
        1 => Just(Step::Finish),
        4 => (0..2u8, 0..5u8, 0..SELECTORS.len()).prop_map(|(ns, hpa, text)| Step::Claim(ns, hpa, text)),
        1 => (0..2u8, 0..5u8).prop_map(|(ns, hpa)| Step::Release(ns, hpa)),
    ]
}

type View = BTreeMap<(u8, u8), BTreeMap<String, String>>;

/// The expected content, without any index.
#[derive(Default)]
struct Model {
    pods: View,
    listing: Option<View>,
    selectors: BTreeMap<(u8, u8), Arc<Selector>>,
}

struct Map<'a>(&'a BTreeMap<String, String>);

impl Labels for Map<'_> {
    fn value(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }
}

impl Model {
    fn written(&mut self) -> &mut View {
        self.listing.as_mut().unwrap_or(&mut self.pods)
    }

    fn select(&self, namespace: u8, selector: &Selector) -> BTreeSet<String> {
        self.pods
            .iter()
            .filter(|((ns, _), labels)| *ns == namespace && selector.matches(&Map(labels)))
            .map(|((_, pod), _)| pod_name(*pod))
            .collect()
    }

    fn sharing(&self, namespace: u8, selector: &Selector) -> Vec<String> {
        let mine = self.select(namespace, selector);
        self.selectors
            .iter()
            .filter(|((ns, _), other)| *ns == namespace && !mine.is_disjoint(&self.select(namespace, other)))
            .map(|((_, hpa), _)| format!("hpa-{hpa}"))
            .collect()
    }
}

fn pod_name(pod: u8) -> String {
    format!("pod-{pod:02}")
}

proptest! {
    #[test]
    fn index_equals_a_full_search(
        steps in proptest::collection::vec(steps(), 1..120)
    ) {
        let (pods, overlap, mut model) = (Pods::new(), Overlap::new(), Model::default());
        for step in steps {
            match step {
                Step::Apply(ns, pod, labels, milli) => {
                    apply_with(&pods, &ns.to_string(), &pod_name(pod), &labels, milli);
                    let labels = labels.into_iter().map(|(key, value)| (key.into_owned(), value.into_owned()));
                    model.written().insert((ns, pod), labels.collect());
                }
                Step::Delete(ns, pod) => {
                    pods.delete(&ns.to_string(), &pod_name(pod));
                    model.written().remove(&(ns, pod));
                }
                Step::Begin => {
                    pods.begin(None);
                    model.listing = Some(View::new());
                }
                Step::Finish => {
                    pods.finish(None);
                    if let Some(listing) = model.listing.take() {
                        model.pods = listing;
                    }
                }
                Step::Claim(ns, hpa, text) => {
                    let selector = selector(SELECTORS[text]);
                    let key = Key::new(ns.to_string(), format!("hpa-{hpa}"));
                    let found = overlap.claim(&key, &selector, &pods);
                    model.selectors.insert((ns, hpa), Arc::clone(&selector));
                    let found: Vec<_> = found.iter().map(|key| key.name.to_string()).collect();
                    prop_assert_eq!(found, model.sharing(ns, &selector));
                }
                Step::Release(ns, hpa) => {
                    overlap.release(&Key::new(ns.to_string(), format!("hpa-{hpa}")), &pods);
                    model.selectors.remove(&(ns, hpa));
                }
            }
            for (ns, text) in [0u8, 1].into_iter().flat_map(|ns| SELECTORS.map(|text| (ns, text))) {
                let selector = selector(text);
                let found = names(&pods, &ns.to_string(), text);
                prop_assert!(found.is_sorted());
                prop_assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), model.select(ns, &selector));
            }
            prop_assert_eq!(pods.len(), model.pods.len());
        }
        pods.begin(None);
        pods.finish(None);
        for (ns, hpa) in model.selectors.keys() {
            overlap.release(&Key::new(ns.to_string(), format!("hpa-{hpa}")), &pods);
        }
        prop_assert_eq!(pods.stats(), Stats::default());
        prop_assert!(overlap.is_empty());
    }
}

fn apply_address(addresses: &Addresses, name: &str, ip: &str, host: &str) {
    apply_address_in(addresses, name, ip, host, false);
}

fn apply_address_in(addresses: &Addresses, name: &str, ip: &str, host: &str, host_network: bool) {
    let json = format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"shop"}},
        "spec":{{"hostNetwork":{host_network},"containers":[{{"name":"app","ports":[{{"name":"http","containerPort":8080}},
            {{"containerPort":53,"protocol":"UDP"}}]}}],
          "initContainers":[{{"name":"setup","ports":[{{"containerPort":1}}]}},
            {{"name":"proxy","restartPolicy":"Always","ports":[{{"containerPort":15020}}]}}]}},
        "status":{{"podIP":"{ip}","hostIP":"{host}"}}}}"#
    );
    addresses.apply(&pod(json.as_bytes()).unwrap());
}

#[test]
fn address_has_the_tcp_ports_of_running_containers() {
    let addresses = Addresses::default();
    apply_address(&addresses, "web", "10.0.0.1", "192.168.0.1");
    let web = addresses.get("shop", "web").unwrap();
    assert_eq!(web.ports[..], [(Some("http".into()), 8080), (None, 15020)]);
    assert!(!web.is_of_node);
    assert_eq!(web.node, Some([192, 168, 0, 1].into()));
    apply_address(&addresses, "web", "192.168.0.1", "192.168.0.1");
    assert!(addresses.get("shop", "web").unwrap().is_of_node);
    apply_address(&addresses, "web", "", "192.168.0.1");
    assert_eq!(addresses.get("shop", "web"), None);
}

#[test]
fn address_in_the_network_of_the_node_is_known_by_the_pod_or_by_the_address() {
    let addresses = Addresses::default();
    let is_of_node = |ip, host, host_network| {
        apply_address_in(&addresses, "web", ip, host, host_network);
        addresses.get("shop", "web").unwrap().is_of_node
    };
    // The node of a pod with two addresses may report the other address.
    assert!(is_of_node("fd00::1", "192.168.0.1", true));
    assert!(is_of_node("fd00::1", "FD00:0::1", false));
    assert!(!is_of_node("10.0.0.1", "", false) && is_of_node("10.0.0.1", "", true));
}

#[test]
fn list_drops_the_pods_that_it_lacks() {
    let addresses = Addresses::default();
    apply_address(&addresses, "web", "10.0.0.1", "");
    apply_address(&addresses, "old", "10.0.0.2", "");
    let listed = BTreeSet::from([("shop".into(), "web".into())]);
    addresses.retain(Some("bank"), &BTreeSet::new());
    assert!(addresses.get("shop", "old").is_some());
    addresses.retain(None, &listed);
    assert!(addresses.get("shop", "web").is_some() && addresses.get("shop", "old").is_none());
    addresses.delete("shop", "web");
    assert!(addresses.by_namespace.read().is_empty());
}
