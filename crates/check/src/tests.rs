//! Tests of the rules by table, and of the command against the embedded cluster.

mod command;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::readings::{
    Api, BuiltIn, GuardState, HandedOver, HandoverPage, Installation, Leader, Lease, Monitoring,
    Requirements, SourceText, Surroundings,
};
use crate::report::{Item, Mark};
use crate::{reader, rules};
use cluster::error::ApiError;
use cluster::permission::{Missing, row};
use cluster::server::Server;
use controller::election::leases::Record;
use flags::FlagSet;
use terminal::forward::ForwardError;

const HOLDER: &str = "concertina-a_1";

fn now() -> Timestamp {
    "2030-01-01T00:00:00Z".parse().unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn failure() -> ApiError {
    ApiError::Request("no answer".to_owned())
}

fn around() -> Surroundings {
    let served = |version: &str| Api::Served(vec![version.to_owned()]);
    Surroundings {
        server: Server { version: "v1.37.1".to_owned(), minor: Some(37), ahead: Some(SignedDuration::ZERO) },
        metrics: vec![("metrics.k8s.io", served("v1beta1")), ("external.metrics.k8s.io", Api::Absent)],
        policies: Api::Absent,
    }
}

fn record(holder: &str, renewed_ago: i64) -> Record {
    Record {
        holder: holder.to_owned(),
        lease_duration_seconds: 15,
        acquire_time: Some(now() - SignedDuration::from_mins(3)),
        renew_time: Some(now() - SignedDuration::from_secs(renewed_ago)),
        transitions: 0,
    }
}

fn leader(checks: &[(&str, bool, &str)]) -> Leader {
    let checks =
        checks.iter().map(|(name, passes, text)| ((*name).to_owned(), (*passes, (*text).to_owned())));
    Leader { version: rules::VERSION.to_owned(), checks: checks.collect(), handover: None }
}

/// An installation that works, with the given flags.
fn installed(flags: &[&str]) -> Installation {
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "concertina-a"}})).unwrap();
    Installation {
        namespace: "concertina-system".to_owned(),
        name: "concertina".to_owned(),
        image: format!("registry/concertina:v{}", rules::VERSION),
        replicas: (2, 2),
        config: FlagSet::controller().resolve(flags.iter().map(ToString::to_string)),
        missing: Ok(Vec::new()),
        sources: None,
        lease: Some(Lease {
            name: "concertina-system/concertina".to_owned(),
            record: Ok(Some(record(HOLDER, 2))),
        }),
        pods: Ok(vec![pod]),
        leader: Some(Ok(leader(&[("ping", true, ""), ("takeover", true, "acting")]))),
        guard: Ok([].into()),
        built_in: Ok(vec![BuiltIn { pod: "kcm-1".to_owned(), enabled: false }]),
        monitoring: Ok(Monitoring { rules_served: true, rules: 1, monitors: 1, annotated: false }),
    }
}

/// Checks that the page of an item exists and has the heading.
fn page_exists(item: &Item) {
    let (path, anchor) = item.page.split_once('#').unwrap_or((item.page, ""));
    let text = std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let anchor_of = |line: &str| {
        let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
        let title: String = line.trim_start_matches('#').trim().to_lowercase().chars().filter(kept).collect();
        title.replace(' ', "-")
    };
    let mut headings = text.lines().filter(|line| line.starts_with('#')).map(anchor_of);
    assert!(anchor.is_empty() || headings.any(|heading| heading == anchor), "{}", item.page);
}

fn only(items: &[Item], name: &str, mark: Mark, text: &str) {
    items.iter().for_each(page_exists);
    let item = items.iter().find(|item| item.name == name).unwrap_or_else(|| panic!("no {name}: {items:#?}"));
    assert_eq!(item.mark, mark, "{item:?}");
    assert!(item.text.contains(text), "{item:?} has no {text:?}");
    let others: Vec<_> = items.iter().filter(|item| item.name != name && item.mark != Mark::Good).collect();
    assert!(others.is_empty(), "{name}: {others:?}");
}

#[test]
fn surroundings_are_judged_one_by_one() {
    type Change = fn(&mut Surroundings);
    let cases: [(Change, &str, Mark, &str); 12] = [
        (|_| {}, "api-server", Mark::Good, "v1.37.1"),
        (|read| read.server.minor = Some(32), "api-server", Mark::Problem, "older than 1.33"),
        (|read| read.server.minor = Some(39), "api-server", Mark::Warning, "newer than 1.38"),
        (|read| read.server.minor = None, "api-server", Mark::Warning, "not a number"),
        (|read| read.server.ahead = Some(SignedDuration::from_secs(5)), "clock", Mark::Good, "within 5 s"),
        (
            |read| read.server.ahead = Some(SignedDuration::from_secs(7)),
            "clock",
            Mark::Warning,
            "7 s ahead of",
        ),
        (
            |read| read.server.ahead = Some(SignedDuration::from_secs(-70)),
            "clock",
            Mark::Warning,
            "10 s behind",
        ),
        (|read| read.server.ahead = None, "clock", Mark::Warning, "no Date header"),
        (|read| read.metrics[0].1 = Api::Absent, "metrics.k8s.io", Mark::Problem, "install metrics-server"),
        (
            |read| read.metrics[1].1 = Api::Failing("no endpoints".to_owned()),
            "external.metrics.k8s.io",
            Mark::Problem,
            "no endpoints",
        ),
        (
            |read| read.policies = Api::Served(vec!["v1alpha1".to_owned()]),
            "scaling-policies",
            Mark::Good,
            "defined as v1alpha1",
        ),
        (
            |read| read.policies = Api::Served(vec!["v1".to_owned()]),
            "scaling-policies",
            Mark::Problem,
            "not as v1alpha1",
        ),
    ];
    for (change, name, mark, text) in cases {
        let mut read = around();
        change(&mut read);
        only(&rules::surroundings(&read), name, mark, text);
    }
}

#[test]
fn oldest_version_is_that_of_the_chart() {
    let chart = std::fs::read_to_string(root().join("deploy/helm/concertina/Chart.yaml")).unwrap();
    assert!(chart.contains(&format!("kubeVersion: \">=1.{}.0-0\"", rules::OLDEST)), "{chart}");
}

#[test]
fn requirements_are_judged_one_by_one() {
    type Change = fn(&mut Requirements);
    let missing =
        || vec![Missing { permission: row("apps", "deployments", &["create"]), verbs: vec!["create"] }];
    let cases: [(Change, &str, Mark, &str); 8] = [
        (|_| {}, "other-installation", Mark::Good, "no other"),
        (|read| read.uncreatable = Err(failure()), "permissions", Mark::Warning, "no answer"),
        (
            |read| read.leases[0].1 = Ok(Some(record("x_1", 2))),
            "other-installation",
            Mark::Problem,
            "x_1 holds",
        ),
        (|read| read.leases[0].1 = Ok(Some(record("x_1", 20))), "other-installation", Mark::Good, "earlier"),
        (|read| read.leases[0].1 = Ok(Some(Record::default())), "other-installation", Mark::Good, "earlier"),
        (|read| read.leases[0].1 = Err(failure()), "other-installation", Mark::Warning, "no answer"),
        (|read| read.ungrantable = Err(failure()), "roles", Mark::Warning, "no answer"),
        (|read| read.unguardable = Err(failure()), "guard", Mark::Warning, "no answer"),
    ];
    let good = || Requirements {
        namespace: "concertina-system".to_owned(),
        uncreatable: Ok(Vec::new()),
        ungrantable: Ok(Vec::new()),
        unguardable: Ok(Vec::new()),
        leases: vec![("concertina-system/concertina".to_owned(), Ok(None))],
    };
    for (change, name, mark, text) in cases {
        let mut read = good();
        change(&mut read);
        only(&rules::requirements(&read, &around(), now()), name, mark, text);
    }
    let text = "you are not allowed to create deployments.apps";
    let read = Requirements { uncreatable: Ok(missing()), ..good() };
    only(&rules::requirements(&read, &around(), now()), "permissions", Mark::Problem, text);
    let read = Requirements { unguardable: Ok(missing()), ..good() };
    only(&rules::requirements(&read, &around(), now()), "guard", Mark::Warning, text);
}

#[test]
fn installation_is_judged_item_by_item() {
    type Change = fn(&mut Installation);
    fn denied(essential: bool) -> Vec<Missing> {
        let without = "no HPA is scaled";
        let permission = cluster::permission::Permission { essential, without, ..row("", "pods", &["list"]) };
        vec![Missing { permission, verbs: vec!["list"] }]
    }
    fn lease(read: &mut Installation, record: Result<Option<Record>, ApiError>) {
        read.lease.as_mut().unwrap().record = record;
    }
    fn state(read: &mut Installation, text: &str) {
        read.leader = Some(Ok(leader(&[("takeover", true, text)])));
    }
    fn sources(text: Option<&str>) -> SourceText {
        let text = text.map(str::to_owned);
        SourceText::Text { config_map: "files".to_owned(), key: "sources.yaml".to_owned(), text }
    }
    let cases: [(Change, &str, Mark, &str); 26] = [
        (|_| {}, "deployment", Mark::Good, "2 of 2 replicas"),
        (|read| read.replicas = (1, 2), "deployment", Mark::Warning, "1 of 2"),
        (|read| read.replicas = (0, 2), "deployment", Mark::Problem, "0 of 2"),
        (|_| {}, "version", Mark::Good, rules::VERSION),
        (
            |read| read.leader.as_mut().unwrap().as_mut().unwrap().version = "9.0".to_owned(),
            "version",
            Mark::Warning,
            "9.0",
        ),
        (|read| read.missing = Ok(denied(true)), "permissions", Mark::Problem, "not allowed to list pods"),
        (|read| read.missing = Ok(denied(false)), "permissions", Mark::Warning, "no HPA is scaled"),
        (|read| read.missing = Err(failure()), "permissions", Mark::Warning, "no answer"),
        (
            |read| read.sources = Some(sources(Some("pods: {enabled: true}"))),
            "metric-sources",
            Mark::Good,
            "pods",
        ),
        (
            |read| read.sources = Some(sources(Some("pods: {concurrency: 0}"))),
            "metric-sources",
            Mark::Problem,
            "pods.concurrency",
        ),
        (|read| read.sources = Some(sources(None)), "metric-sources", Mark::Problem, "has no sources.yaml"),
        (|read| read.sources = Some(SourceText::Elsewhere), "metric-sources", Mark::Warning, "sources check"),
        (
            |read| read.sources = Some(SourceText::Unread(failure())),
            "metric-sources",
            Mark::Warning,
            "no answer",
        ),
        (|_| {}, "lease", Mark::Good, "has held concertina-system/concertina for 3 min, renewed 2 s ago"),
        (|read| lease(read, Ok(None)), "lease", Mark::Problem, "does not exist"),
        (|read| lease(read, Ok(Some(record("", 2)))), "lease", Mark::Problem, "no holder"),
        (|read| lease(read, Ok(Some(record(HOLDER, 16)))), "lease", Mark::Problem, "renewed it 16 s ago"),
        (
            |read| lease(read, Ok(Some(record("other_1", 2)))),
            "lease",
            Mark::Problem,
            "no pod of this Deployment",
        ),
        (|read| lease(read, Err(failure())), "lease", Mark::Warning, "no answer"),
        (|read| read.pods = Err(failure()), "lease", Mark::Warning, "no answer"),
        (|read| state(read, "holding: kcm wrote"), "takeover", Mark::Warning, "holding: kcm wrote"),
        (|read| state(read, "observing: a change"), "takeover", Mark::Warning, "observing"),
        (
            |read| read.built_in = Ok(vec![BuiltIn { pod: "kcm-2".to_owned(), enabled: true }]),
            "takeover",
            Mark::Warning,
            "acting; the arguments of kcm-2 do not exclude",
        ),
        (|read| read.monitoring = Ok(Monitoring::default()), "alerts", Mark::Warning, "no ServiceMonitor"),
        (|read| read.monitoring.as_mut().unwrap().rules = 0, "alerts", Mark::Warning, "no PrometheusRule"),
        (|read| read.monitoring = Err(failure()), "alerts", Mark::Warning, "no answer"),
    ];
    for (change, name, mark, text) in cases {
        let mut read = installed(&[]);
        change(&mut read);
        only(&rules::installation(&read, &around(), now()), name, mark, text);
    }
    let mut unready = installed(&[]);
    unready.leader = Some(Ok(leader(&[("takeover", true, "acting"), ("pods", false, "not listed yet")])));
    only(
        &rules::installation(&unready, &around(), now()),
        "readiness",
        Mark::Problem,
        "pods: not listed yet",
    );
}

#[test]
fn unknown_leader_is_a_warning() {
    let read = Installation { leader: Some(Err(ForwardError::NoUser)), ..installed(&[]) };
    let items = rules::installation(&read, &around(), now());
    let warned: Vec<_> =
        items.iter().filter(|item| item.mark == Mark::Warning).map(|item| item.name).collect();
    assert_eq!(warned, ["readiness", "takeover"], "{items:#?}");
    assert!(items.iter().all(|item| item.mark != Mark::Problem), "{items:#?}");
}

#[test]
fn flags_determine_the_items() {
    let names = |flags: &[&str]| {
        let items = rules::installation(&installed(flags), &around(), now());
        items.iter().map(|item| item.name).collect::<Vec<_>>()
    };
    assert_eq!(names(&["--dry-run"]), ["deployment", "version", "emulated-version", "permissions"]);
    assert_eq!(names(&["--no-such-flag"]), ["deployment", "version", "flags"]);
    let labelled = names(&["--scope=labelled"]);
    assert!(labelled.ends_with(&["handover", "guard", "alerts"]), "{labelled:?}");
    let old = installed(&["--emulated-version=1.36"]);
    only(
        &rules::installation(&old, &around(), now()),
        "emulated-version",
        Mark::Warning,
        "remove --emulated-version",
    );
    let server = Server { minor: Some(35), ..around().server };
    let older = Surroundings { server, ..around() };
    only(&rules::installation(&old, &older, now()), "emulated-version", Mark::Good, "1.36");
    let off = installed(&["--takeover=off"]);
    only(&rules::installation(&off, &around(), now()), "takeover", Mark::Warning, "does not notice");
}

#[test]
fn guard_is_that_of_the_leader_or_of_the_objects() {
    let page = |guard: &str, hpa: &str| HandoverPage {
        guard: GuardState { state: guard.to_owned(), reason: Some("no caBundle".to_owned()) },
        hpas: vec![HandedOver {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            state: hpa.to_owned(),
        }],
    };
    let flags = ["--scope=labelled", "--handover-guard=policy"];
    for (guard, hpa, name, mark, text) in [
        ("proven", "in_charge", "handover", Mark::Good, "in charge of 1 HPA"),
        ("proven", "claiming", "handover", Mark::Warning, "not yet in charge of shop/web"),
        ("proven", "contested", "handover", Mark::Problem, "another controller writes shop/web"),
        ("broken", "in_charge", "guard", Mark::Problem, "no caBundle"),
        ("unknown", "in_charge", "guard", Mark::Problem, "does not exist"),
    ] {
        let leader = Leader { handover: Some(page(guard, hpa)), ..leader(&[("ping", true, "")]) };
        let read = Installation { leader: Some(Ok(leader)), ..installed(&flags) };
        only(&rules::installation(&read, &around(), now()), name, mark, text);
    }
    let leader = Leader { handover: Some(page("unknown", "in_charge")), ..leader(&[("ping", true, "")]) };
    let mut read = Installation { leader: Some(Ok(leader)), ..installed(&flags) };
    let objects = rules::guard_objects(read.config.as_ref().unwrap());
    let expected = objects.policies().into_iter().chain(objects.bindings());
    let text = |object: &Value, path: &str| object.pointer(path).unwrap().as_str().unwrap().to_owned();
    read.guard = Ok(expected
        .map(|object| ((text(&object, "/kind"), text(&object, "/metadata/name")), object))
        .collect());
    only(&rules::installation(&read, &around(), now()), "guard", Mark::Warning, "not proven them yet");
    read.guard = Err(failure());
    only(&rules::installation(&read, &around(), now()), "guard", Mark::Warning, "no answer");
}

#[test]
fn every_kind_of_the_default_installation_is_checked() {
    let mut kinds = BTreeSet::new();
    for entry in std::fs::read_dir(root().join("deploy/kustomize/base")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        kinds.extend(text.lines().filter_map(|line| line.strip_prefix("kind: ")).map(str::to_owned));
    }
    kinds.remove("Kustomization");
    let plural = |kind: &String| match kind.to_lowercase() {
        kind if kind.ends_with("policy") => kind.replace("policy", "policies"),
        kind => format!("{kind}s"),
    };
    let plurals: BTreeSet<String> = kinds.iter().map(plural).collect();
    assert_eq!(plurals, reader::created().into_iter().map(str::to_owned).collect());
}
