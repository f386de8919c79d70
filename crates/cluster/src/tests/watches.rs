//! Tests of the list and watch loop against failures of the server.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::*;
use crate::decode::{HpaObject, WirePod};
use crate::watch::{DeletedObject, Handle, Hpas, Pods, Restart, Sink, WatchOptions, watch};
use fake_cluster::{Answer, Exchange, FaultAction, FaultRule, Link, Server, Status};

/// A minimal store of names, which are replaced when a list is complete.
#[derive(Debug, Default)]
struct Names {
    current: BTreeMap<String, bool>,
    next: Option<BTreeMap<String, bool>>,
    lists: u32,
}

#[derive(Debug, Clone, Default)]
struct Store(Arc<Mutex<Names>>);

impl Store {
    fn names(&self) -> String {
        self.0.lock().current.keys().cloned().collect::<Vec<_>>().join(" ")
    }

    fn lists(&self) -> u32 {
        self.0.lock().lists
    }

    fn with<R>(&self, change: impl FnOnce(&mut BTreeMap<String, bool>) -> R) -> R {
        let mut names = self.0.lock();
        let Names { current, next, .. } = &mut *names;
        change(next.as_mut().unwrap_or(current))
    }

    fn start_list(&self) {
        self.0.lock().next = Some(BTreeMap::new());
    }

    fn complete_list(&self) {
        let mut names = self.0.lock();
        names.lists += 1;
        names.current = names.next.take().unwrap();
    }
}

impl<'a> Sink<WirePod<'a>> for Store {
    fn start(&mut self) {
        self.start_list();
    }

    fn apply(&mut self, pod: WirePod<'a>) {
        self.with(|names| names.insert(pod.name.into_owned(), true));
    }

    fn delete(&mut self, object: DeletedObject) {
        self.with(|names| names.remove(&object.name));
    }

    fn done(&mut self) {
        self.complete_list();
    }
}

impl Sink<HpaObject> for Store {
    fn start(&mut self) {
        self.start_list();
    }

    fn apply(&mut self, hpa: HpaObject) {
        self.with(|names| names.insert(hpa.name, true));
    }

    fn delete(&mut self, object: DeletedObject) {
        self.with(|names| names.remove(&object.name));
    }

    fn done(&mut self) {
        self.complete_list();
    }
}

fn watch_pods(cluster: &Cluster, streaming_lists: bool) -> (Store, Handle) {
    let store = Store::default();
    let options = WatchOptions { streaming_lists, ..WatchOptions::default() };
    let (handle, run) = watch::<Pods, _>(clients(cluster).watch, options, store.clone());
    tokio::spawn(run);
    (store, handle)
}

/// Waits until all pending tasks have run.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

fn create(cluster: &Cluster, names: &[&str]) {
    for name in names {
        cluster.create(pod(name)).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn streaming_list_becomes_a_watch() {
    let cluster = cluster();
    create(&cluster, &["a", "b"]);
    let (store, handle) = watch_pods(&cluster, true);
    handle.wait_synced().await;
    assert_eq!(store.names(), "a b");
    create(&cluster, &["c"]);
    cluster.delete_now("pods", "default", "a").unwrap();
    settle().await;
    assert_eq!(store.names(), "b c");
    assert_eq!(cluster.requests().len(), 1, "{:?}", log(&cluster));
    assert!(handle.is_synced() && handle.status().error.is_none());
}

#[tokio::test(start_paused = true)]
async fn paged_list_becomes_a_watch() {
    let cluster = cluster();
    for n in 0..1_001 {
        cluster.create(pod(&format!("p{n}"))).unwrap();
    }
    let (store, handle) = watch_pods(&cluster, false);
    handle.wait_synced().await;
    assert_eq!(store.0.lock().current.len(), 1_001);
    create(&cluster, &["q"]);
    settle().await;
    assert!(store.names().ends_with(" q"));
    let verbs: Vec<_> = cluster.requests().entries().iter().map(|request| request.verb).collect();
    assert_eq!(verbs, ["list", "list", "list", "watch"]);
}

#[tokio::test(start_paused = true)]
async fn server_without_streaming_lists_is_listed_by_pages() {
    let cluster = cluster();
    create(&cluster, &["a"]);
    let refusal =
        Status::new(422, "Invalid", "sendInitialEvents is forbidden for watch unless the gate is enabled");
    cluster.faults().add(FaultRule::new(FaultAction::Status(refusal)).times(1));
    let start = Instant::now();
    let (store, handle) = watch_pods(&cluster, true);
    handle.wait_synced().await;
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(store.names(), "a");
}

#[tokio::test(start_paused = true)]
async fn incomplete_streaming_list_is_abandoned_after_a_minute() {
    let cluster = cluster();
    create(&cluster, &["a"]);
    let rule = cluster.faults().add(FaultRule::new(FaultAction::WatchSilence));
    let start = Instant::now();
    let (store, handle) = watch_pods(&cluster, true);
    handle.wait_synced().await;
    cluster.faults().remove(rule);
    assert_eq!(start.elapsed(), Duration::from_mins(1));
    assert_eq!(store.names(), "a");
}

#[tokio::test(start_paused = true)]
async fn expired_version_relists_while_the_previous_view_stays() {
    let cluster = cluster();
    create(&cluster, &["a", "b"]);
    let (store, handle) = watch_pods(&cluster, true);
    handle.wait_synced().await;
    // The watch fails, because its resourceVersion has expired.
    cluster
        .faults()
        .add(FaultRule::new(FaultAction::WatchError(Status::expired("too old resource version"))).times(1));
    settle().await;
    cluster.delete_now("pods", "default", "a").unwrap();
    create(&cluster, &["c"]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(store.names(), "b c");
    assert_eq!(store.lists(), 2);
    assert!(handle.status().error.is_none());
}

#[tokio::test(start_paused = true)]
async fn watch_resumes_at_its_last_version_without_a_list() {
    let cluster = cluster();
    create(&cluster, &["a"]);
    let (store, handle) = watch_pods(&cluster, true);
    handle.wait_synced().await;
    for name in ["b", "c", "d"] {
        tokio::time::sleep(Duration::from_secs(700)).await;
        create(&cluster, &[name]);
    }
    settle().await;
    assert_eq!(store.names(), "a b c d");
    assert_eq!(store.lists(), 1);
    assert!((3..10).contains(&handle.status().restarts.values().sum::<u64>()), "{:?}", handle.status());
}

#[tokio::test(start_paused = true)]
async fn watches_that_close_at_once_do_not_become_a_hot_loop() {
    let cluster = cluster();
    create(&cluster, &["a"]);
    let (_, handle) = watch_pods(&cluster, false);
    cluster.faults().add(FaultRule::new(FaultAction::WatchClose));
    handle.wait_synced().await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    let watches = cluster.requests().count(|request| request.verb == "watch");
    assert!((30..120).contains(&watches), "{watches}");
}

#[tokio::test(start_paused = true)]
async fn recovered_server_is_noticed_within_half_a_period() {
    let cluster = cluster();
    create(&cluster, &["a"]);
    let (store, handle) = watch_pods(&cluster, true);
    handle.wait_synced().await;
    let unavailable =
        cluster.faults().add(FaultRule::new(FaultAction::Text { code: 503, body: "unavailable".to_owned() }));
    let closing = cluster.faults().add(FaultRule::new(FaultAction::WatchClose));
    tokio::time::sleep(Duration::from_mins(3)).await;
    assert_eq!(store.names(), "a");
    assert!(handle.is_synced() && handle.status().error.is_some());
    create(&cluster, &["b"]);
    cluster.faults().remove(unavailable);
    cluster.faults().remove(closing);
    let back = Instant::now();
    while store.names() != "a b" {
        settle().await;
    }
    assert!(back.elapsed() <= Duration::from_millis(7_501), "{:?}", back.elapsed());
    assert!(handle.status().error.is_none());
    assert_eq!(store.lists(), 1);
}

#[tokio::test(start_paused = true)]
async fn missing_permission_is_reported_and_waited_for() {
    let cluster = cluster();
    create(&cluster, &["a"]);
    let message =
        "pods is forbidden: User \"x\" cannot list resource \"pods\" in API group \"\" at the cluster scope";
    let forbidden =
        cluster.faults().add(FaultRule::new(FaultAction::Status(Status::new(403, "Forbidden", message))));
    let (_, handle) = watch_pods(&cluster, true);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(!handle.is_synced());
    assert_eq!(handle.status().error.unwrap().to_string(), message);
    cluster.faults().remove(forbidden);
    let granted = Instant::now();
    handle.wait_synced().await;
    assert!(granted.elapsed() <= Duration::from_millis(7_500));
}

/// Lists three pages, of which the second page fails once.
async fn list_restarts_after(failure: Status) {
    let cluster = cluster();
    for n in 0..1_200 {
        cluster.create(pod(&format!("p{n}"))).unwrap();
    }
    cluster.faults().add(FaultRule::new(FaultAction::Status(failure)).verb("list").after(1).times(1));
    let (store, handle) = watch_pods(&cluster, false);
    handle.wait_synced().await;
    assert_eq!(store.0.lock().current.len(), 1_200);
    let queries: Vec<_> = cluster.requests().entries().iter().map(|r| r.query.contains("continue")).collect();
    assert_eq!(queries, [false, true, false, true, true, false], "{:?}", log(&cluster));
}

#[tokio::test(start_paused = true)]
async fn list_that_expires_between_pages_restarts() {
    list_restarts_after(Status::expired("the provided continue parameter is too old")).await;
}

#[tokio::test(start_paused = true)]
async fn refused_continue_token_restarts_the_list() {
    list_restarts_after(Status::bad_request("continue key is not valid")).await;
}

#[tokio::test(start_paused = true)]
async fn undecodable_object_is_skipped() {
    let cluster = cluster();
    for streaming in [true, false] {
        cluster.put_raw(hpa(&format!("good-{streaming}")));
        let mut bad = hpa(&format!("bad-{streaming}"));
        bad["spec"]["maxReplicas"] = json!("many");
        cluster.put_raw(bad);
        let store = Store::default();
        let options = WatchOptions { streaming_lists: streaming, ..WatchOptions::default() };
        let (handle, run) = watch::<Hpas, _>(clients(&cluster).watch, options, store.clone());
        tokio::spawn(run);
        handle.wait_synced().await;
        assert!(store.names().contains("good-true") && !store.names().contains("bad"));
        assert!(handle.status().skipped >= 1);
        cluster.put_raw(hpa(&format!("later-{streaming}")));
        settle().await;
        assert!(store.names().contains(&format!("later-{streaming}")));
    }
}

#[tokio::test(start_paused = true)]
async fn watches_that_expire_after_one_event_do_not_become_a_hot_loop() {
    let cluster = cluster();
    create(&cluster, &["a"]);
    let (store, handle) = watch_pods(&cluster, false);
    handle.wait_synced().await;
    let start = Instant::now();
    while start.elapsed() < Duration::from_mins(5) {
        cluster.put_raw(pod("a"));
        settle().await;
        if cluster.faults().active() == 0 {
            let expired = FaultAction::WatchError(Status::expired("too old resource version"));
            cluster.faults().add(FaultRule::new(expired).times(1));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!((10..30).contains(&store.lists()), "{} lists in 5 minutes", store.lists());
}

#[tokio::test(start_paused = true)]
async fn watch_is_replaced_after_ninety_seconds_of_silence() {
    let cluster = cluster();
    create(&cluster, &["a"]);
    let (store, handle) = watch_pods(&cluster, true);
    handle.wait_synced().await;
    // A bookmark arrives after 60 s.
    tokio::time::sleep(Duration::from_secs(70)).await;
    cluster.faults().add(FaultRule::new(FaultAction::WatchHang).times(1));
    create(&cluster, &["b"]);
    tokio::time::sleep(Duration::from_secs(79)).await;
    assert_eq!(store.names(), "a");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(store.names(), "a b");
    assert_eq!(handle.status().restarts, BTreeMap::from([(Restart::Silent, 1)]));
    assert_eq!(store.lists(), 1);
}

/// A server that ignores the request for bookmarks, as a server without a watch cache does.
#[derive(Debug)]
struct WithoutBookmarks;

impl Link for WithoutBookmarks {
    fn carry(self: Arc<Self>, mut exchange: Exchange, server: Server) -> BoxFuture<'static, Answer> {
        exchange.query = exchange.query.replace("allowWatchBookmarks=true", "");
        Box::pin(async move { server.answer(exchange).await })
    }
}

#[tokio::test(start_paused = true)]
async fn watches_of_a_server_without_bookmarks_last() {
    let cluster = cluster();
    create(&cluster, &["a"]);
    let dialed = cluster.clone();
    let connector = tower::service_fn(move |_: http::Uri| {
        let connection = dialed.dial_through(Arc::new(WithoutBookmarks));
        std::future::ready(Ok::<_, std::io::Error>(TokioIo::new(connection)))
    });
    let clients = Clients::over(connector, &ClientOptions::default()).unwrap();
    let store = Store::default();
    let (handle, run) = watch::<Pods, _>(clients.watch, WatchOptions::default(), store.clone());
    tokio::spawn(run);
    handle.wait_synced().await;
    tokio::time::sleep(Duration::from_mins(30)).await;
    let restarts = handle.status().restarts;
    assert_eq!(restarts.get(&Restart::Silent), Some(&1), "{restarts:?}");
    assert!(restarts.get(&Restart::Ended).is_some_and(|ended| (2..7).contains(ended)), "{restarts:?}");
    assert!(!handle.status().is_silent(Duration::from_mins(2)));
    // The loop lists at the start and after each watch, because no watch had events.
    assert_eq!(u64::from(store.lists()), 1 + restarts.values().sum::<u64>(), "{restarts:?}");
}

#[tokio::test(start_paused = true)]
async fn watch_without_bookmarks_that_the_server_does_not_end_is_replaced() {
    let cluster = cluster();
    create(&cluster, &["a"]);
    let dialed = cluster.clone();
    let connector = tower::service_fn(move |_: http::Uri| {
        let connection = dialed.dial_through(Arc::new(WithoutBookmarks));
        std::future::ready(Ok::<_, std::io::Error>(TokioIo::new(connection)))
    });
    let clients = Clients::over(connector, &ClientOptions::default()).unwrap();
    let store = Store::default();
    let (handle, run) = watch::<Pods, _>(clients.watch, WatchOptions::default(), store.clone());
    tokio::spawn(run);
    handle.wait_synced().await;
    // The first silence shows that the server sends no bookmarks.
    tokio::time::sleep(Duration::from_mins(2)).await;
    cluster.faults().add(FaultRule::new(FaultAction::WatchHang).times(1));
    create(&cluster, &["b"]);
    // The client ends the watch after 290 to 580 s, plus 15 s.
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(store.names(), "a b");
}

#[tokio::test(start_paused = true)]
async fn watch_from_a_version_that_the_server_has_lost_is_listed_again() {
    let cluster = cluster();
    create(&cluster, &["a", "b"]);
    let backup = cluster.resource_version();
    let (store, handle) = watch_pods(&cluster, true);
    handle.wait_synced().await;
    tokio::time::sleep(Duration::from_secs(70)).await;
    create(&cluster, &["c", "d"]);
    cluster.delete_now("pods", "default", "a").unwrap();
    settle().await;
    assert_eq!(store.names(), "b c d");
    cluster.restore(backup);
    create(&cluster, &["e"]);
    // The watch and its successor are silent for 90 s each.
    tokio::time::sleep(Duration::from_secs(181)).await;
    assert_eq!((store.names().as_str(), store.lists()), ("a b e", 2));
    create(&cluster, &["f"]);
    settle().await;
    assert_eq!(store.names(), "a b e f");
}
