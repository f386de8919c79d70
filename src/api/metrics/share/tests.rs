use std::sync::atomic::{AtomicUsize, Ordering as Order};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use tokio::runtime::Builder;

use super::*;
use crate::api::client::{ClientOptions, Clients};
use crate::api::mapper::Mapper;
use crate::api::metrics::{ApiMetrics, Metrics, MetricsOptions, Way};
use crate::clock::VirtualClock;
use crate::embedded::metrics::StaticMetrics;
use crate::embedded::{Cluster, FaultAction, FaultRule, Status};

const AGE: Duration = Duration::from_secs(5);
const PERIOD: Duration = Duration::from_secs(15);

/// So many pods in every namespace.
#[derive(Debug)]
struct Pods(AtomicUsize);

impl NamespacePods for Pods {
    fn count(&self, _: &str) -> usize {
        self.0.load(Order::Relaxed)
    }
}

/// A cluster, asked with sharing and without.
struct World {
    cluster: Cluster,
    metrics: Arc<StaticMetrics>,
    shared: ApiMetrics,
    alone: ApiMetrics,
}

impl World {
    fn new(items: &[Value]) -> Self {
        Self::with(items, AGE, &MetricsOptions::default())
    }

    fn with(items: &[Value], age: Duration, options: &MetricsOptions) -> Self {
        let start = "2026-01-01T00:00:00Z".parse().unwrap();
        let cluster = Cluster::new(Arc::new(VirtualClock::starting_at(start)));
        let metrics = Arc::new(StaticMetrics::new());
        metrics.set_resource(Some(json!({ "items": items })));
        cluster.set_metrics(Arc::clone(&metrics) as _);
        let ask = |sharing| {
            let clients =
                Clients::over(cluster.connector(), &ClientOptions { qps: 0.0, ..ClientOptions::default() });
            let clients = clients.unwrap();
            let mapper = Arc::new(Mapper::new(clients.discovery.clone()));
            ApiMetrics::new(&clients, mapper, MetricsOptions { sharing, ..options.clone() })
        };
        let pods = Arc::new(Pods(items.len().into()));
        let sharing = Sharing { age, period: PERIOD, pods };
        let (shared, alone) = (ask(Some(sharing)), ask(None));
        Self { cluster, metrics, shared, alone }
    }

    /// Answers of queries that are asked at once.
    async fn ask(&self, queries: &[Query]) -> Vec<Result<Answer, QueryError>> {
        futures::future::join_all(queries.iter().map(|query| self.shared.fetch(query.clone()))).await
    }

    /// Lets so many HPAs ask that a list of the namespace is worth it, and what they got be forgotten.
    async fn begin_sharing(&self, namespace: &str) {
        let queries: Vec<_> = (0..8).map(|n| usage(namespace, &format!("begin={n}"))).collect();
        self.ask(&queries).await;
        tokio::time::sleep(PERIOD).await;
        self.cluster.requests().clear();
    }

    /// The lists of pods so far: their selectors as sent.
    fn lists(&self) -> Vec<String> {
        self.cluster.requests().entries().into_iter().map(|request| request.query).collect()
    }

    fn shares(&self) -> &Arc<Shares> {
        let Way::Shared(shares) = &self.shared.way else { panic!() };
        shares
    }
}

fn usage(namespace: &str, selector: &str) -> Query {
    let selector = Selector::parse(selector).unwrap().to_string();
    Query::Resource { namespace: namespace.into(), selector: selector.into() }
}

fn external(namespace: &str, metric: &str) -> Query {
    Query::External { namespace: namespace.into(), metric: metric.into(), selector: "".into() }
}

fn pod(namespace: &str, name: &str, labels: &Value) -> Value {
    json!({"metadata": {"name": name, "namespace": namespace, "labels": labels},
        "timestamp": "2026-01-01T00:00:00Z", "window": "15s",
        "containers": [{"name": "app", "usage": {"cpu": "100m", "memory": "64Mi"}}]})
}

/// Three pods of each of so many apps.
fn apps(namespace: &str, count: usize) -> Vec<Value> {
    (0..count * 3)
        .map(|number| pod(namespace, &format!("p{number}"), &json!({"app": format!("a{}", number / 3)})))
        .collect()
}

fn names(answer: &Result<Answer, QueryError>) -> Vec<String> {
    let Ok(Answer::Resource(usage)) = answer else { panic!("{answer:?}") };
    usage.iter().map(|usage| usage.pod.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn hpas_of_a_namespace_share_one_list_from_the_start() {
    let world = World::new(&apps("shop", 20));
    let queries: Vec<_> = (0..20).map(|app| usage("shop", &format!("app=a{app}"))).collect();
    for lists in [&["labelSelector=app%3Da0", ""][..], &[""], &[""]] {
        let answers = world.ask(&queries).await;
        for (app, answer) in answers.iter().enumerate() {
            let expected: Vec<_> = (app * 3..app * 3 + 3).map(|pod| format!("p{pod}")).collect();
            assert_eq!(names(answer), expected);
        }
        let (mut asked, mut lists) = (world.lists(), lists.to_vec());
        asked.sort();
        lists.sort_unstable();
        assert_eq!(asked, lists);
        world.cluster.requests().clear();
        tokio::time::sleep(PERIOD).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_serves_who_asks_within_its_age_and_is_then_taken_anew() {
    let world = World::new(&apps("shop", 4));
    world.begin_sharing("shop").await;
    let query = [usage("shop", "app=a1")];
    let first = world.ask(&query).await;
    let later = [pod("shop", "p9", &json!({"app": "a1"}))];
    world.metrics.set_resource(Some(json!({ "items": later })));
    tokio::time::sleep(AGE).await;
    assert_eq!(world.ask(&query).await, first);
    assert_eq!(world.lists(), [""]);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(names(&world.ask(&query).await[0]), ["p9"]);
    assert_eq!(world.lists(), ["", ""]);
}

#[tokio::test(start_paused = true)]
async fn with_an_age_of_zero_only_those_who_ask_at_one_time_share() {
    let world = World::with(&apps("shop", 8), Duration::ZERO, &MetricsOptions::default());
    world.begin_sharing("shop").await;
    let queries: Vec<_> = (0..8).map(|app| usage("shop", &format!("app=a{app}"))).collect();
    world.ask(&queries).await;
    assert_eq!(world.lists(), [""]);
    tokio::time::sleep(Duration::from_millis(1)).await;
    world.ask(&queries).await;
    assert_eq!(world.lists(), ["", ""]);
}

#[tokio::test(start_paused = true)]
async fn namespaces_are_listed_each_for_itself() {
    let world = World::new(&[apps("shop", 8), apps("bank", 8)].concat());
    world.begin_sharing("shop").await;
    world.begin_sharing("bank").await;
    let queries = ["shop", "bank"].map(|namespace| usage(namespace, "app=a1"));
    for answer in world.ask(&queries).await {
        assert_eq!(names(&answer), ["p3", "p4", "p5"]);
    }
    let paths = world.cluster.requests().entries().into_iter().map(|request| request.path);
    let path = |namespace| format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods");
    assert_eq!(paths.collect::<Vec<_>>(), [path("shop"), path("bank")]);
}

#[tokio::test(start_paused = true)]
async fn equal_custom_and_external_queries_share_an_answer_within_the_age() {
    let world = World::new(&[]);
    let value = json!({"items": [{"metricName": "queue", "value": "7"}]});
    world.metrics.set_external(json!({"queue": value, "other": value}));
    let queries = [external("shop", "queue"), external("shop", "other"), external("bank", "queue")];
    for _ in 0..3 {
        assert!(world.ask(&[&queries[..], &queries].concat()).await.iter().all(Result::is_ok));
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    assert_eq!(world.lists().len(), 3);
    world.ask(&queries).await;
    assert_eq!(world.lists().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_failure_reads_as_if_each_had_asked_for_itself() {
    let text = |code, body: &str| FaultAction::Text { code, body: body.to_owned() };
    let body = |body: &str| FaultAction::Body(body.to_owned());
    let bad_item =
        r#"{"kind":"PodMetricsList","items":[{"containers":[{"name":"c","usage":{"cpu":"lots"}}]}]}"#;
    for (fault, is_of_api) in [
        (text(503, "service unavailable\n"), true),
        (text(500, "boom\n"), true),
        (text(429, ""), true),
        (text(404, "404 page not found\n"), true),
        (text(401, ""), true),
        (FaultAction::Silence, true),
        (FaultAction::Close, true),
        (FaultAction::Truncate(10), true),
        (FaultAction::Status(Status::new(403, "Forbidden", "you may not")), false),
        (body("<html>hello</html>"), false),
        (body(bad_item), false),
        (body(&format!("{{\"kind\":\"PodMetricsList\",\"x\":\"{}\"}}", "x".repeat(70_000))), false),
    ] {
        let options = MetricsOptions { max_response: 60_000, ..MetricsOptions::default() };
        let world = World::with(&apps("shop", 8), AGE, &options);
        world.begin_sharing("shop").await;
        world.cluster.faults().add(FaultRule::new(fault.clone()));
        let queries = ["app=a1", "app in (a2,a3),tier!=x"].map(|selector| usage("shop", selector));
        let answers = world.ask(&queries).await;
        let lists = world.lists().len();
        for (query, answer) in queries.iter().zip(answers) {
            let expected = world.alone.fetch(query.clone()).await;
            assert!(expected.is_err(), "{fault:?}");
            assert_eq!(answer, expected, "{fault:?}");
        }
        // What any query meets is met once. Otherwise each has its own.
        assert_eq!(lists, if is_of_api { 1 } else { 3 }, "{fault:?}");
        // No failure is kept.
        world.cluster.faults().clear();
        assert!(world.ask(&queries).await.iter().all(Result::is_ok), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_cannot_be_listed_is_asked_for_by_selectors_for_five_minutes() {
    let world = World::new(&apps("shop", 8));
    world.begin_sharing("shop").await;
    let forbidden = FaultAction::Status(Status::new(403, "Forbidden", "you may not"));
    world.cluster.faults().add(FaultRule::new(forbidden).times(1));
    let query = [usage("shop", "app=a1")];
    let own = "labelSelector=app%3Da1";
    assert_eq!(names(&world.ask(&query).await[0]), ["p3", "p4", "p5"]);
    assert_eq!(world.lists(), ["", own]);
    for _ in 1..20 {
        tokio::time::sleep(PERIOD).await;
        world.cluster.requests().clear();
        world.ask(&(0..8).map(|app| usage("shop", &format!("app=a{app}"))).collect::<Vec<_>>()).await;
        assert_eq!(world.lists().len(), 8);
    }
    tokio::time::sleep(PERIOD).await;
    world.cluster.requests().clear();
    world.ask(&query).await;
    assert_eq!(world.lists(), [""]);
}

#[tokio::test(start_paused = true)]
async fn where_items_come_without_labels_each_asks_for_its_own() {
    let world = World::new(&[pod("shop", "a", &Value::Null), pod("shop", "b", &json!({}))]);
    world.begin_sharing("shop").await;
    let queries: Vec<_> = (0..8).map(|n| usage("shop", &format!("!a{n}"))).collect();
    for answer in world.ask(&queries).await {
        assert_eq!(names(&answer), ["a", "b"]);
    }
    assert_eq!(world.lists().iter().filter(|list| list.is_empty()).count(), 0, "paused since the beginning");
    // One pod with labels is enough: the server writes them, the others have none.
    let items = [pod("shop", "a", &Value::Null), pod("shop", "b", &json!({"app": "b"}))];
    world.metrics.set_resource(Some(json!({ "items": items })));
    tokio::time::sleep(Duration::from_mins(5)).await;
    world.begin_sharing("shop").await;
    assert_eq!(names(&world.ask(&[usage("shop", "!app")]).await[0]), ["a"]);
    assert_eq!(world.lists(), [""]);
}

#[tokio::test(start_paused = true)]
async fn whoever_finds_no_pod_in_a_list_of_others_asks_for_its_own() {
    let world = World::new(&apps("shop", 8));
    world.begin_sharing("shop").await;
    assert!(names(&world.ask(&[usage("shop", "app=none")]).await[0]).is_empty());
    assert_eq!(world.lists(), ["", "labelSelector=app%3Dnone"]);
    world.metrics.set_resource(Some(json!({"items": []})));
    tokio::time::sleep(PERIOD).await;
    world.cluster.requests().clear();
    assert!(names(&world.ask(&[usage("shop", "app=a1")]).await[0]).is_empty());
    assert_eq!(world.lists(), [""], "a list of nothing holds nothing back");
}

#[tokio::test(start_paused = true)]
async fn lists_of_namespaces_open_the_circuit_too_and_its_errors_read_as_those_of_each() {
    let world = World::new(&apps("shop", 8));
    world.begin_sharing("shop").await;
    world.cluster.faults().add(FaultRule::new(FaultAction::Close));
    for _ in 0..5 {
        assert!(world.ask(&[usage("shop", "app=a1")]).await[0].is_err());
    }
    assert_eq!(world.lists().len(), 5);
    let queries = ["app=a1", "app=a2"].map(|selector| usage("shop", selector));
    let errors = world.ask(&queries).await;
    assert_eq!(world.lists().len(), 5, "spared");
    for (query, error) in queries.iter().zip(errors) {
        assert_eq!(error, world.alone.fetch(query.clone()).await);
    }
    world.cluster.faults().clear();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(world.ask(&queries).await.iter().all(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn answers_are_let_go_when_they_are_old_and_namespaces_when_nobody_asks() {
    let world = World::new(&[apps("shop", 8), apps("bank", 8)].concat());
    world.begin_sharing("shop").await;
    world.begin_sharing("bank").await;
    world.metrics.set_external(json!({"queue": {"items": []}}));
    world.ask(&[usage("shop", "app=a1"), usage("bank", "app=a1"), external("shop", "queue")]).await;
    let shares = world.shares();
    let kept = || (shares.snapshots.len(), shares.queries.len(), shares.choices().len());
    assert_eq!(kept(), (2, 1, 2));
    tokio::time::sleep(AGE + SWEEP + Duration::from_millis(1)).await;
    assert_eq!(kept(), (0, 0, 2));
    // The HPAs of one namespace are deleted.
    for _ in 0..3 {
        tokio::time::sleep(PERIOD).await;
        world.ask(&[usage("bank", "app=a1")]).await;
    }
    assert_eq!(kept(), (1, 0, 1));
    tokio::time::sleep(PERIOD * 3).await;
    assert_eq!(kept(), (0, 0, 0));
    assert!(!shares.sweeping.load(Ordering::Relaxed), "nobody looks any more");
    world.ask(&[usage("bank", "app=a1")]).await;
    tokio::time::sleep(PERIOD * 3).await;
    assert_eq!(kept(), (0, 0, 0), "until somebody asks again");
}

#[test]
fn a_selection_is_what_the_server_selects() {
    let label = || prop::collection::btree_map("[ab]", "[xyz]?", 0..3);
    let pods = prop::collection::vec((label(), any::<bool>()), 0..12);
    let requirement = prop_oneof![
        "[ab]=[xyz]",
        "[ab]!=[xyz]",
        "[ab]",
        "![ab]",
        "[ab] in \\([xyz],[xyz]\\)",
        "[ab] in \\([xyz]\\)",
        "[ab] notin \\([xyz],[xyz]\\)",
    ];
    let selectors = prop::collection::vec(prop::collection::vec(requirement, 1..4), 1..6);
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let mut runner = TestRunner::new(Config { cases: 200, failure_persistence: None, ..Config::default() });
    let holds = runner.run(&(pods, selectors), |(pods, selectors)| {
        let items = pods.iter().enumerate().map(|(number, (labels, has_any))| {
            let labels = if *has_any || !labels.is_empty() { json!(labels) } else { Value::Null };
            pod("shop", &format!("p{number}"), &labels)
        });
        let items: Vec<_> = items.collect();
        runtime.block_on(async {
            let world = World::new(&items);
            world.begin_sharing("shop").await;
            let queries: Vec<_> =
                selectors.iter().map(|requirements| usage("shop", &requirements.join(","))).collect();
            for (query, answer) in queries.iter().zip(world.ask(&queries).await) {
                prop_assert_eq!(answer, world.alone.fetch(query.clone()).await);
            }
            Ok(())
        })
    });
    assert_eq!(holds, Ok(()));
}
