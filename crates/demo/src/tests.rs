use std::error::Error;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use policies::spec::{Level, parse};
use serde_json::{Value, json};
use sources::{Form, PodAddress, PodTarget, SourceObserver, Target, Values};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::NAMESPACE;
use super::files::Files;
use super::observe::Observer;
use super::world::{self, DemoWorld};
use super::{Screen, intro, run, show, summary};
use crate::options::DemoOptions;
use clock::{SharedClock, VirtualClock};
use fake_cluster::Cluster;
use terminal::options::Logging;

/// An output that collects the text of a screen.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<Vec<u8>>>);

impl Output {
    fn screen(&self) -> Screen {
        Screen::plain(Box::new(self.clone()))
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).expect("UTF-8")
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn clock() -> SharedClock {
    Arc::new(VirtualClock::starting_at("2030-01-01T00:00:00Z".parse().expect("time")))
}

fn observer(world: &DemoWorld) -> Observer {
    Observer::new(world.cluster.clone(), Arc::default())
}

/// Starts the demo's cluster without the controller.
fn world() -> (DemoWorld, CancellationToken) {
    let world = DemoWorld::build(&clock(), 10257).expect("world");
    let stop = CancellationToken::new();
    world.start(&TaskTracker::new(), &stop);
    (world, stop)
}

fn scale(cluster: &Cluster, name: &str, replicas: u32) {
    let mut deployment = cluster.get("apps/deployments", NAMESPACE, name).expect("deployment");
    deployment["spec"]["replicas"] = replicas.into();
    cluster.update(deployment).expect("update");
}

async fn until_stopped(stop: CancellationToken) -> Result<(), Box<dyn Error + Send + Sync>> {
    stop.cancelled().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn demo_starts_with_running_workloads() {
    let world = DemoWorld::build(&clock(), 10257).expect("world");
    let ready = |name| {
        world.cluster.get("apps/deployments", NAMESPACE, name).expect("deployment")["status"]["readyReplicas"]
            .clone()
    };
    assert_eq!(["web", "worker", "burst", "cache"].map(ready), [2, 3, 2, 2].map(Value::from));
    assert_eq!(world.cluster.list("autoscaling/horizontalpodautoscalers", None).len(), 3);
}

/// An observer that ignores the states of Prometheus servers, because the demo has no such server.
struct Ignored;

impl SourceObserver for Ignored {
    fn reloaded(&self, usable: bool) {
        assert!(usable);
    }

    fn down(&self, _: &str, _: Option<bool>) {}
}

fn pods_of_burst(world: &DemoWorld) -> Vec<PodTarget> {
    let pods = world.cluster.list("pods", Some(NAMESPACE));
    let of_burst = pods.iter().filter(|pod| pod["metadata"]["labels"]["app"] == "burst");
    let target = |pod: &Value| {
        let text = |path: &str| pod.pointer(path).and_then(Value::as_str).expect("text").to_owned();
        let port = &pod["spec"]["containers"][0]["ports"][0];
        let number = port["containerPort"].as_u64().and_then(|port| port.try_into().ok()).expect("port");
        let ports = [(port["name"].as_str().map(Into::into), number)].into();
        let ip = text("/status/podIP").parse().expect("address");
        let address = PodAddress { ip, is_of_node: false, node: None, ports };
        PodTarget { name: text("/metadata/name").into(), running: true, address: Some(Arc::new(address)) }
    };
    of_burst.map(target).collect()
}

#[tokio::test(start_paused = true)]
async fn burst_follows_the_counters_of_its_pods() {
    let (world, stop) = world();
    let files = Files::write(None, "http://127.0.0.1:1").expect("files");
    let sources = world::sources(&world, files.sources.clone()).expect("sources");
    let running = tokio::spawn(Arc::clone(&sources).run(Ignored));
    let hpa = world.cluster.get("autoscaling/horizontalpodautoscalers", NAMESPACE, "burst").expect("hpa");
    let policy = hpa["metadata"]["annotations"]["concertina.dev/policy"].as_str().expect("policy");
    let parsed = parse(policy, Level::Annotation);
    assert_eq!(parsed.problems, []);
    assert!(parsed.spec.burst.is_some());
    let rule = parsed.spec.metrics.expect("metrics")[0].clone();
    let namespace: Arc<str> = NAMESPACE.into();
    let read = async || {
        let pods = pods_of_burst(&world);
        let target = Target { namespace: &namespace, name: "burst", pods: &pods, secrets: None };
        let reading =
            sources.read(&rule, Form::PerPod, &target, jiff::Timestamp::UNIX_EPOCH).await.expect("reading");
        assert_eq!(reading.missing, None);
        let Values::PerPod(values) = reading.values else { panic!("{:?}", reading.values) };
        values.into_values().collect::<Vec<_>>()
    };
    assert_eq!(read().await, [0.0; 0], "a rate needs two scrapes");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let rates = read().await;
    // The load is 34 requests per second with noise, over two pods.
    assert!(rates.len() == 2 && rates.iter().all(|rate| (12.0..22.0).contains(rate)), "{rates:?}");
    // The counter of a new pod starts at 0.
    scale(&world.cluster, "burst", 4);
    tokio::time::sleep(Duration::from_secs(6)).await;
    read().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let rates = read().await;
    assert!(rates.len() == 4 && rates.iter().all(|rate| (5.0..70.0).contains(rate)), "{rates:?}");
    running.abort();
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn demo_prints_intro_changes_and_summary_when_time_is_over() {
    let (world, ending) = world();
    let (output, controlling, stop) = (Output::default(), CancellationToken::new(), CancellationToken::new());
    let controller = {
        let (cluster, controlling) = (world.cluster.clone(), controlling.clone());
        async move {
            tokio::time::sleep(Duration::from_secs(3)).await;
            scale(&cluster, "web", 6);
            until_stopped(controlling).await
        }
    };
    let intro = ["Hello".to_owned()];
    let ended = Some(Duration::from_secs(20));
    show(observer(&world), ended, output.screen(), &intro, controller, &controlling, &stop)
        .await
        .expect("run");
    ending.cancel();
    let text = output.text();
    assert!(text.starts_with("Hello\n"), "{text}");
    assert!(text.contains("   3s  shop/web  2 -> 6 replicas"), "{text}");
    assert!(text.contains("web 6/6 ready"), "{text}");
    assert!(text.contains("\nConcertina demo: 20 seconds, 0 syncs, 1 rescale.\n"), "{text}");
    assert!(text.contains("\n  shop/web     2 to 6 replicas, 1 rescale\n"), "{text}");
    assert!(controlling.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn demo_prints_a_summary_when_interrupted() {
    let (world, ending) = world();
    let (output, controlling, stop) = (Output::default(), CancellationToken::new(), CancellationToken::new());
    let interrupt = stop.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(7)).await;
        interrupt.cancel();
    });
    let controller = until_stopped(controlling.clone());
    show(observer(&world), None, output.screen(), &[], controller, &controlling, &stop).await.expect("run");
    ending.cancel();
    assert!(output.text().contains("Concertina demo: 7 seconds"), "{}", output.text());
}

#[tokio::test(start_paused = true)]
async fn demo_fails_when_the_controller_fails() {
    let (world, ending) = world();
    let (output, token) = (Output::default(), CancellationToken::new());
    let controller = async { Err(io::Error::other("disk full").into()) };
    let ended = show(observer(&world), None, output.screen(), &[], controller, &token, &token).await;
    ending.cancel();
    assert_eq!(ended.expect_err("error").to_string(), "the controller failed: disk full");
}

#[tokio::test]
async fn demo_names_the_flag_when_the_port_is_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").await.expect("port");
    let port = taken.local_addr().expect("address").port();
    let options = DemoOptions { port, logging: Logging::default(), ..DemoOptions::default() };
    let ended = run(
        &options,
        |_, _, _, stop| Box::pin(until_stopped(stop)),
        clock(),
        Output::default().screen(),
        CancellationToken::new(),
    )
    .await;
    let text = ended.expect_err("error").to_string();
    assert!(text.starts_with(&format!("cannot listen on 127.0.0.1:{port} (--port): ")), "{text}");
}

#[tokio::test(start_paused = true)]
async fn observer_reads_metrics_targets_conditions_and_events() {
    let (world, stop) = world();
    let mut hpa = world.cluster.get("autoscaling/horizontalpodautoscalers", NAMESPACE, "burst").expect("hpa");
    hpa["status"] = json!({
        "currentReplicas": 2,
        "desiredReplicas": 2,
        "currentMetrics": [{
            "type": "Pods",
            "pods": {"metric": {"name": "requests_per_second"}, "current": {"averageValue": "17500m"}},
        }],
        "conditions": [
            {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale", "message": "a"},
            {"type": "ScalingLimited", "status": "True", "reason": "TooFewReplicas", "message": "b"},
        ],
    });
    world.cluster.update_status(hpa).expect("status");
    world
        .cluster
        .create(json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"namespace": NAMESPACE, "name": "burst.1"},
            "involvedObject": {"kind": "HorizontalPodAutoscaler", "namespace": NAMESPACE, "name": "burst"},
            "type": "Normal", "reason": "SuccessfulRescale", "message": "New size: 2", "count": 3,
            "lastTimestamp": "2030-01-01T00:00:00Z",
        }))
        .expect("event");
    let snapshot = observer(&world).observe();
    stop.cancel();
    let burst = &snapshot.hpas[0];
    assert_eq!((burst.key().as_str(), burst.replicas, burst.ready), ("shop/burst", 2, 2));
    assert_eq!(burst.target, "Deployment/burst");
    assert_eq!(burst.metrics[0].current.as_deref(), Some("18"));
    assert_eq!((burst.metrics[0].target.as_str(), burst.metrics[0].ratio), ("20", Some(0.875)));
    assert_eq!(burst.headline().expect("condition").reason, "TooFewReplicas");
    assert_eq!(snapshot.last_event(burst).expect("event").count, 3);
    assert_eq!(snapshot.hpas[1].metrics[0].current, None, "web has no status yet");
}

#[tokio::test(start_paused = true)]
async fn summary_has_extremes_and_rescales_of_each_hpa() {
    let (world, stop) = world();
    let mut observer = observer(&world);
    observer.observe();
    for replicas in [5, 0, 3] {
        scale(&world.cluster, "worker", replicas);
        observer.observe();
    }
    stop.cancel();
    let lines = summary(&observer.observe());
    assert!(lines.contains(&"  shop/worker  0 to 5 replicas, 3 rescales".to_owned()), "{lines:#?}");
}

#[test]
fn introduction_lists_commands_to_try() {
    let files = Files::write(None, "http://127.0.0.1:1234").expect("files");
    let text =
        intro("concertina", "http://127.0.0.1:1234", &files, "http://127.0.0.1:5678/0a/", Some(9)).join("\n");
    assert!(text.contains("http://127.0.0.1:9/metrics"), "{text}");
    for command in ["kubectl get hpa,pods", "kubectl describe hpa burst", "kubectl apply -f /"] {
        assert!(text.contains(command), "{command}");
    }
    let commands: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    assert!(commands[0].starts_with("export KUBECONFIG=/"), "{text}");
    assert_eq!(commands[1], "concertina why web");
}
