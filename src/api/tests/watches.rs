//! The list and watch loop under everything that a server may do to it.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::api::decode::{HpaObject, WirePod};
use crate::api::watch::{Deleted, Handle, Hpas, Pods, Restart, Sink, WatchOptions, watch};
use crate::embedded::{FaultAction, FaultRule, Status};

/// A store as simple as it can be: names, swapped when a list is complete.
#[derive(Debug, Default)]
struct Names {
    shown: BTreeMap<String, bool>,
    coming: Option<BTreeMap<String, bool>>,
    lists: u32,
}

#[derive(Debug, Clone, Default)]
struct Store(Arc<Mutex<Names>>);

impl Store {
    fn names(&self) -> String {
        self.0.lock().unwrap().shown.keys().cloned().collect::<Vec<_>>().join(" ")
    }

    fn lists(&self) -> u32 {
        self.0.lock().unwrap().lists
    }

    fn with<R>(&self, change: impl FnOnce(&mut BTreeMap<String, bool>) -> R) -> R {
        let mut names = self.0.lock().unwrap();
        let Names { shown, coming, .. } = &mut *names;
        change(coming.as_mut().unwrap_or(shown))
    }

    fn begin(&self) {
        self.0.lock().unwrap().coming = Some(BTreeMap::new());
    }

    fn finish(&self) {
        let mut names = self.0.lock().unwrap();
        names.lists += 1;
        names.shown = names.coming.take().unwrap();
    }
}

impl<'a> Sink<WirePod<'a>> for Store {
    fn start(&mut self) {
        self.begin();
    }

    fn apply(&mut self, pod: WirePod<'a>) {
        self.with(|names| names.insert(pod.name.into_owned(), true));
    }

    fn delete(&mut self, object: Deleted) {
        self.with(|names| names.remove(&object.name));
    }

    fn done(&mut self) {
        self.finish();
    }
}

impl Sink<HpaObject> for Store {
    fn start(&mut self) {
        self.begin();
    }

    fn apply(&mut self, hpa: HpaObject) {
        self.with(|names| names.insert(hpa.name, true));
    }

    fn delete(&mut self, object: Deleted) {
        self.with(|names| names.remove(&object.name));
    }

    fn done(&mut self) {
        self.finish();
    }
}

fn watch_pods(cluster: &Cluster, streaming_lists: bool) -> (Store, Handle) {
    let store = Store::default();
    let options = WatchOptions { streaming_lists, ..WatchOptions::default() };
    let (handle, run) = watch::<Pods, _>(clients(cluster).watch, options, store.clone());
    tokio::spawn(run);
    (store, handle)
}

/// Until all that can happen now has happened.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

fn create(cluster: &Cluster, names: &[&str]) {
    for name in names {
        cluster.create(pod(name)).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_becomes_a_watch() {
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
async fn a_list_is_read_by_pages_and_then_watched() {
    let cluster = cluster();
    for n in 0..1_001 {
        cluster.create(pod(&format!("p{n}"))).unwrap();
    }
    let (store, handle) = watch_pods(&cluster, false);
    handle.wait_synced().await;
    assert_eq!(store.0.lock().unwrap().shown.len(), 1_001);
    create(&cluster, &["q"]);
    settle().await;
    assert!(store.names().ends_with(" q"));
    let verbs: Vec<_> = cluster.requests().entries().iter().map(|request| request.verb).collect();
    assert_eq!(verbs, ["list", "list", "list", "watch"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streaming_lists_is_listed() {
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
async fn a_streaming_list_that_never_completes_is_given_up_after_a_minute() {
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
async fn an_expired_version_leads_to_a_new_list_while_the_old_view_stays() {
    let cluster = cluster();
    create(&cluster, &["a", "b"]);
    let (store, handle) = watch_pods(&cluster, true);
    handle.wait_synced().await;
    // The watch breaks, the cluster goes on and forgets, and the new list is slow.
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
async fn a_watch_resumes_where_it_ended_without_listing() {
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
async fn an_api_server_away_for_minutes_is_seen_within_half_a_period_and_the_view_stays() {
    let cluster = cluster();
    create(&cluster, &["a"]);
    let (store, handle) = watch_pods(&cluster, true);
    handle.wait_synced().await;
    let away = cluster.faults().add(FaultRule::new(FaultAction::Text { code: 503, body: "away".to_owned() }));
    let closing = cluster.faults().add(FaultRule::new(FaultAction::WatchClose));
    tokio::time::sleep(Duration::from_mins(3)).await;
    assert_eq!(store.names(), "a");
    assert!(handle.is_synced() && handle.status().error.is_some());
    create(&cluster, &["b"]);
    cluster.faults().remove(away);
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
async fn a_missing_permission_is_named_and_waited_for() {
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

#[tokio::test(start_paused = true)]
async fn a_list_that_expires_in_the_middle_begins_anew() {
    let cluster = cluster();
    for n in 0..1_200 {
        cluster.create(pod(&format!("p{n}"))).unwrap();
    }
    cluster.faults().add(
        FaultRule::new(FaultAction::Status(Status::expired("the provided continue parameter is too old")))
            .verb("list")
            .after(1)
            .times(1),
    );
    let (store, handle) = watch_pods(&cluster, false);
    handle.wait_synced().await;
    assert_eq!(store.0.lock().unwrap().shown.len(), 1_200);
    let queries: Vec<_> = cluster.requests().entries().iter().map(|r| r.query.contains("continue")).collect();
    assert_eq!(queries, [false, true, false, true, true, false], "{:?}", log(&cluster));
}

#[tokio::test(start_paused = true)]
async fn one_object_that_cannot_be_decoded_is_skipped() {
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
async fn a_dead_connection_is_left_when_the_watch_should_have_ended() {
    let cluster = cluster();
    create(&cluster, &["a"]);
    let (store, handle) = watch_pods(&cluster, true);
    handle.wait_synced().await;
    cluster.faults().add(FaultRule::new(FaultAction::WatchSilence));
    create(&cluster, &["b"]);
    tokio::time::sleep(Duration::from_secs(620)).await;
    cluster.faults().clear();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(store.names(), "a b");
    assert_eq!(handle.status().restarts, BTreeMap::from([(Restart::Ended, 1)]));
}
