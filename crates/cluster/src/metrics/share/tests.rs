use std::sync::atomic::{AtomicUsize, Ordering as Order};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use tokio::runtime::Builder;

use super::*;
use crate::client::{ClientOptions, Clients};
use crate::mapper::Mapper;
use crate::metrics::{ApiMetrics, Metrics, MetricsOptions};
use clock::VirtualClock;
use fake_cluster::metrics::StaticMetrics;
use fake_cluster::{Cluster, FaultAction, FaultRule, Status};

const AGE: Duration = Duration::from_secs(5);
const PERIOD: Duration = Duration::from_secs(15);

/// A source that reports the same number of pods for every namespace.
#[derive(Debug)]
struct Pods(AtomicUsize);

impl NamespacePods for Pods {
    fn count(&self, _: &str) -> usize {
        self.0.load(Order::Relaxed)
    }
}

/// A cluster, with a client that shares responses and a client that does not.
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

    /// Returns the answers to queries that are sent at the same time.
    async fn ask(&self, queries: &[Query]) -> Vec<Result<Answer, QueryError>> {
        futures::future::join_all(queries.iter().map(|query| self.shared.fetch(query.clone()))).await
    }

    /// Sends enough queries to make a list of the namespace worthwhile. Then waits until the answers are evicted.
    async fn start_sharing(&self, namespace: &str) {
        let queries: Vec<_> = (0..8).map(|n| usage(namespace, &format!("start={n}"))).collect();
        self.ask(&queries).await;
        tokio::time::sleep(PERIOD).await;
        self.cluster.requests().clear();
    }

    /// Returns the query strings of all requests so far.
    fn lists(&self) -> Vec<String> {
        self.cluster.requests().entries().into_iter().map(|request| request.query).collect()
    }

    fn shares(&self) -> &Arc<Shares> {
        &self.shared.shares
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

/// Returns three pods for each of `count` apps.
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
async fn snapshot_serves_within_its_age_and_is_then_fetched_again() {
    let world = World::new(&apps("shop", 4));
    world.start_sharing("shop").await;
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
async fn zero_age_shares_only_concurrent_queries() {
    let world = World::with(&apps("shop", 8), Duration::ZERO, &MetricsOptions::default());
    world.start_sharing("shop").await;
    let queries: Vec<_> = (0..8).map(|app| usage("shop", &format!("app=a{app}"))).collect();
    world.ask(&queries).await;
    assert_eq!(world.lists(), [""]);
    tokio::time::sleep(Duration::from_millis(1)).await;
    world.ask(&queries).await;
    assert_eq!(world.lists(), ["", ""]);
}

#[tokio::test(start_paused = true)]
async fn namespaces_are_listed_separately() {
    let world = World::new(&[apps("shop", 8), apps("bank", 8)].concat());
    world.start_sharing("shop").await;
    world.start_sharing("bank").await;
    let queries = ["shop", "bank"].map(|namespace| usage(namespace, "app=a1"));
    for answer in world.ask(&queries).await {
        assert_eq!(names(&answer), ["p3", "p4", "p5"]);
    }
    let paths = world.cluster.requests().entries().into_iter().map(|request| request.path);
    let path = |namespace| format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods");
    assert_eq!(paths.collect::<Vec<_>>(), [path("shop"), path("bank")]);
}

#[tokio::test(start_paused = true)]
async fn equal_external_queries_share_an_answer_within_the_age() {
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
async fn shared_failure_reads_like_a_separate_one() {
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
        world.start_sharing("shop").await;
        world.cluster.faults().add(FaultRule::new(fault.clone()));
        let queries = ["app=a1", "app in (a2,a3),tier!=x"].map(|selector| usage("shop", selector));
        let answers = world.ask(&queries).await;
        let lists = world.lists().len();
        for (query, answer) in queries.iter().zip(answers) {
            let expected = world.alone.fetch(query.clone()).await;
            assert!(expected.is_err(), "{fault:?}");
            assert_eq!(answer, expected, "{fault:?}");
        }
        // After an error of the API as a whole, no further list is sent. A broken connection is retried. Any other
        // error leads to a list per HPA.
        let attempts = if fault == FaultAction::Close { 11 } else { 1 };
        assert_eq!(lists, if is_of_api { attempts } else { 3 }, "{fault:?}");
        // Errors are not shared with later queries.
        world.cluster.faults().clear();
        assert!(world.ask(&queries).await.iter().all(Result::is_ok), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn unlistable_namespace_is_queried_by_selectors_for_five_minutes() {
    let world = World::new(&apps("shop", 8));
    world.start_sharing("shop").await;
    let forbidden = FaultAction::Status(Status::new(403, "Forbidden", "you may not"));
    world.cluster.faults().add(FaultRule::new(forbidden).times(1));
    let query = [usage("shop", "app=a1")];
    let by_selector = "labelSelector=app%3Da1";
    assert_eq!(names(&world.ask(&query).await[0]), ["p3", "p4", "p5"]);
    assert_eq!(world.lists(), ["", by_selector]);
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
async fn hpas_query_separately_when_items_have_no_labels() {
    let world = World::new(&[pod("shop", "a", &Value::Null), pod("shop", "b", &json!({}))]);
    world.start_sharing("shop").await;
    let queries: Vec<_> = (0..8).map(|n| usage("shop", &format!("!a{n}"))).collect();
    for answer in world.ask(&queries).await {
        assert_eq!(names(&answer), ["a", "b"]);
    }
    assert_eq!(world.lists().iter().filter(|list| list.is_empty()).count(), 0, "paused since the start");
    // One pod with labels shows that the server supports labels and that the other pods have no labels.
    let items = [pod("shop", "a", &Value::Null), pod("shop", "b", &json!({"app": "b"}))];
    world.metrics.set_resource(Some(json!({ "items": items })));
    tokio::time::sleep(Duration::from_mins(5)).await;
    world.start_sharing("shop").await;
    assert_eq!(names(&world.ask(&[usage("shop", "!app")]).await[0]), ["a"]);
    assert_eq!(world.lists(), [""]);
}

#[tokio::test(start_paused = true)]
async fn hpa_without_pods_in_the_list_queries_separately() {
    let world = World::new(&apps("shop", 8));
    world.start_sharing("shop").await;
    assert!(names(&world.ask(&[usage("shop", "app=none")]).await[0]).is_empty());
    assert_eq!(world.lists(), ["", "labelSelector=app%3Dnone"]);
    world.metrics.set_resource(Some(json!({"items": []})));
    tokio::time::sleep(PERIOD).await;
    world.cluster.requests().clear();
    assert!(names(&world.ask(&[usage("shop", "app=a1")]).await[0]).is_empty());
    assert_eq!(world.lists(), [""], "an empty list is trusted");
}

#[tokio::test(start_paused = true)]
async fn namespace_lists_open_the_circuit_and_errors_are_reworded() {
    let world = World::new(&apps("shop", 8));
    world.start_sharing("shop").await;
    let down = FaultAction::Text { code: 503, body: "service unavailable\n".to_owned() };
    world.cluster.faults().add(FaultRule::new(down));
    for _ in 0..5 {
        assert!(world.ask(&[usage("shop", "app=a1")]).await[0].is_err());
    }
    assert_eq!(world.lists().len(), 5);
    let queries = ["app=a1", "app=a2"].map(|selector| usage("shop", selector));
    let errors = world.ask(&queries).await;
    assert_eq!(world.lists().len(), 5, "answered by the circuit breaker");
    for (query, error) in queries.iter().zip(errors) {
        assert_eq!(error, world.alone.fetch(query.clone()).await);
    }
    world.cluster.faults().clear();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(world.ask(&queries).await.iter().all(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn stale_answers_and_idle_namespaces_are_evicted() {
    let world = World::new(&[apps("shop", 8), apps("bank", 8)].concat());
    world.start_sharing("shop").await;
    world.start_sharing("bank").await;
    world.metrics.set_external(json!({"queue": {"items": []}}));
    world.ask(&[usage("shop", "app=a1"), usage("bank", "app=a1"), external("shop", "queue")]).await;
    let shares = world.shares();
    let kept = || (shares.snapshots.len(), shares.queries.len(), shares.choices.lock().len());
    assert_eq!(kept(), (2, 1, 2));
    tokio::time::sleep(AGE + SWEEP + Duration::from_millis(1)).await;
    assert_eq!(kept(), (0, 0, 2));
    // The HPAs of `shop` no longer send queries.
    for _ in 0..3 {
        tokio::time::sleep(PERIOD).await;
        world.ask(&[usage("bank", "app=a1")]).await;
    }
    assert_eq!(kept(), (1, 0, 1));
    tokio::time::sleep(PERIOD * 3).await;
    assert_eq!(kept(), (0, 0, 0));
    assert!(!shares.sweeping.load(Ordering::Relaxed), "the eviction task has ended");
    world.ask(&[usage("bank", "app=a1")]).await;
    tokio::time::sleep(PERIOD * 3).await;
    assert_eq!(kept(), (0, 0, 0), "evicted again after a later query");
}

#[test]
fn selection_equals_the_servers_selection() {
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
    let result = runner.run(&(pods, selectors), |(pods, selectors)| {
        let items = pods.iter().enumerate().map(|(number, (labels, has_any))| {
            let labels = if *has_any || !labels.is_empty() { json!(labels) } else { Value::Null };
            pod("shop", &format!("p{number}"), &labels)
        });
        let items: Vec<_> = items.collect();
        runtime.block_on(async {
            let world = World::new(&items);
            world.start_sharing("shop").await;
            let queries: Vec<_> =
                selectors.iter().map(|requirements| usage("shop", &requirements.join(","))).collect();
            for (query, answer) in queries.iter().zip(world.ask(&queries).await) {
                prop_assert_eq!(answer, world.alone.fetch(query.clone()).await);
            }
            Ok(())
        })
    });
    assert_eq!(result, Ok(()));
}
