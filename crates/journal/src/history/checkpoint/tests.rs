//! Tests the checkpoint against the embedded cluster, and the restore by the next leader.

use std::sync::Arc;

use autoscaling::history::{History, Recommendation, ScaleEvent};
use autoscaling::settings::Settings;
use serde_json::{Value, json};

use super::*;
use crate::history::{RestoreCounts, restore};
use clock::VirtualClock;
use cluster::client::ClientOptions;
use cluster::events::{EventOptions, Recorder};
use cluster::mapper::Mapper;
use cluster::metrics::{ApiMetrics, MetricsOptions};
use cluster::scale::Scales;
use cluster::status::Statuses;
use engine::reconcile::queue::Queue;
use engine::reconcile::{ApiClients, Guests, Runtime, Stores, SyncSchedule, Workers};
use engine::store::{HpaRecord, Key};
use engine::tasks::Tasks;
use fake_cluster::Cluster;
use tokio_util::sync::CancellationToken;

struct World {
    cluster: Cluster,
    clients: Clients,
    clock: SharedClock,
}

impl World {
    fn new() -> Self {
        let clock: SharedClock = Arc::new(VirtualClock::starting_at("2030-01-01T00:00:00Z".parse().unwrap()));
        let cluster = Cluster::new(Arc::clone(&clock));
        cluster
            .put_raw(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}));
        let clients = Clients::over(cluster.connector(), &ClientOptions::default()).unwrap();
        Self { cluster, clients, clock }
    }

    /// Creates a controller with the given number of HPAs, with `behavior` and without histories.
    fn controller(&self, hpas: u32) -> Arc<Controller> {
        let clients = &self.clients;
        let mapper = Arc::new(Mapper::new(clients.discovery.clone()));
        let metrics = Arc::new(ApiMetrics::new(clients, Arc::clone(&mapper), MetricsOptions::default()));
        let (events, _) =
            Recorder::new(clients.core.clone(), Arc::clone(&self.clock), EventOptions::default());
        let (telemetry, period) = (Telemetry::new(), Duration::from_secs(15));
        let controller = Arc::new(Controller {
            stores: Stores {
                hpas: Arc::default(),
                pods: Arc::default(),
                overlap: Arc::default(),
                targets: None,
                histories: Histories::new(),
            },
            clients: ApiClients {
                mapper,
                scales: Scales::new(clients.scale.clone()),
                statuses: Statuses::new(clients.status.clone(), "concertina"),
                metrics,
                events,
            },
            guests: Guests::default(),
            runtime: Runtime {
                queue: Arc::new(Queue::new(telemetry.workqueue("horizontalpodautoscaler"))),
                phases: Arc::new(SyncSchedule::without_slots(period)),
                workers: Workers::new(1),
                tasks: Tasks::default(),
                decisions_end: CancellationToken::new(),
            },
            telemetry,
            clock: Arc::clone(&self.clock),
            settings: Settings::default(),
            stale_guard: true,
            period,
        });
        controller.stores.hpas.begin(None);
        for n in 0..hpas {
            controller.stores.hpas.apply(record(n));
        }
        controller.stores.hpas.finish(None);
        controller
    }

    /// Creates a leader with `hpas` HPAs and `entries` entries per history. Saves its histories: as at a clean shutdown
    /// if `ended`, otherwise as before a crash.
    async fn left(&self, hpas: u32, entries: u32, ended: bool) -> Arc<Controller> {
        let controller = self.controller(hpas);
        fill(&controller, hpas, entries);
        self.checkpoint().save(&controller.stores.histories, ended).await.unwrap();
        controller
    }

    fn checkpoint(&self) -> Checkpoint {
        let location = CheckpointPlace::default();
        Checkpoint::new(&self.clients, &location, Arc::clone(&self.clock), Telemetry::new())
    }

    async fn restored(&self, controller: &Controller) -> RestoreCounts {
        let mut checkpoint = self.checkpoint();
        restore(controller, &self.clients.watch, None, Some(&mut checkpoint)).await
    }

    /// Returns the approximate size of the data in each ConfigMap, in bytes.
    fn sizes(&self) -> Vec<usize> {
        let size = |name: String| {
            let map = self.cluster.get("configmaps", "kube-system", &name).unwrap_or_default();
            map["binaryData"][KEY].as_str().unwrap_or_default().len() / 4 * 3
        };
        CheckpointPlace::default().names().map(size).collect()
    }
}

fn uid(n: u32) -> String {
    format!("{n:08x}-0000-4000-8000-{:012x}", n.wrapping_mul(0x9e37_79b9))
}

fn record(n: u32) -> HpaRecord {
    let raw = |json: Value| serde_json::value::to_raw_value(&json).unwrap();
    let spec = json!({
        "scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 9,
        "behavior": {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 600}]}},
    });
    HpaRecord {
        key: Key::new("shop", format!("hpa-{n}")),
        uid: uid(n).into(),
        generation: Some(1),
        resource_version: "1".to_owned(),
        metadata: raw(json!({})),
        spec: Arc::new(serde_json::from_value(spec.clone()).unwrap()),
        spec_raw: raw(spec).into(),
        status: Arc::default(),
        status_writers: Vec::new(),
    }
}

/// Creates a history with `entries` recommendations and scale events until `now`. Each `n` has a different history.
fn history(n: u32, entries: u32, now: Timestamp) -> History {
    let at = |back: u32| {
        // Each sync is late by some milliseconds.
        let late = (n.wrapping_mul(7919).wrapping_add(back.wrapping_mul(104_729))) % 9973 * 997;
        now.checked_sub(SignedDuration::new(i64::from(back) * 15, i32::try_from(late).unwrap())).unwrap()
    };
    let replicas = |back: u32| i32::try_from(n % 50 + back % 3).unwrap();
    let mut history = History::default();
    for back in (0..entries).rev() {
        history.recommendations.push(Recommendation { at: at(back), replicas: replicas(back) });
        if back % 4 == 0 {
            history.scale_ups.push(ScaleEvent::new(at(back), 1 + replicas(back)));
        }
    }
    history
}

fn fill(controller: &Controller, hpas: u32, entries: u32) {
    for n in 0..hpas {
        controller.stores.histories.seed(&uid(n).into(), history(n, entries, controller.clock.now()));
    }
}

#[tokio::test(start_paused = true)]
async fn clean_shutdown_restores_every_history_exactly() {
    let world = World::new();
    let before = world.controller(100);
    fill(&before, 100, 20);
    let mut doubtful = history(7, 20, world.clock.now());
    doubtful.unknown_down = Some(world.clock.now());
    before.stores.histories.seed(&uid(7).into(), doubtful);
    world.checkpoint().save(&before.stores.histories, true).await.unwrap();
    let after = world.controller(100);
    assert_eq!(world.restored(&after).await, RestoreCounts { exact: 100, ..RestoreCounts::default() });
    for n in 0..100 {
        let kept = before.stores.histories.get(&uid(n)).condensed();
        assert_eq!(after.stores.histories.get(&uid(n)), kept, "{n}");
    }
}

#[tokio::test(start_paused = true)]
async fn crash_restores_histories_without_stale_recommendations() {
    let world = World::new();
    let before = world.left(2, 20, false).await;
    let after = world.controller(2);
    assert_eq!(world.restored(&after).await, RestoreCounts { inherited: 2, ..RestoreCounts::default() });
    assert_eq!(
        after.stores.histories.get(&uid(1)),
        before.stores.histories.get(&uid(1)).condensed().inherit(world.clock.now())
    );

    sleep(Duration::from_secs(301)).await;
    let later = world.controller(2);
    world.restored(&later).await;
    let saved = before.stores.histories.get(&uid(1));
    assert_eq!(
        later.stores.histories.get(&uid(1)),
        History { recommendations: Vec::new(), ..saved.inherit(world.clock.now()) }
    );
}

#[tokio::test(start_paused = true)]
async fn rescale_after_the_last_write_counts_as_a_recommendation() {
    let world = World::new();
    world.left(1, 5, false).await;
    sleep(Duration::from_secs(10)).await;
    // The clock of the writer may be ahead of this clock. The recommendation then has the current time.
    for ahead in [0, 3600] {
        let after = world.controller(0);
        let mut scaled = record(0);
        let status = Arc::make_mut(&mut scaled.status);
        status.last_scale_time = Some(world.clock.now() + SignedDuration::from_secs(ahead));
        status.desired_replicas = 40;
        after.stores.hpas.apply(scaled);
        world.restored(&after).await;
        let last = Recommendation { at: world.clock.now(), replicas: 40 };
        assert_eq!(
            after.stores.histories.get(&uid(0)).recommendations.last(),
            Some(&last),
            "{ahead} s ahead"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn histories_spread_over_two_config_maps_and_shrink_to_one() {
    let world = World::new();
    let before = world.controller(1500);
    fill(&before, 1500, 150);
    let limit = 200_000;
    let mut checkpoint = Checkpoint { limit, ..world.checkpoint() };
    checkpoint.save(&before.stores.histories, false).await.unwrap();
    let sizes = world.sizes();
    assert!(sizes[..2].iter().all(|size| (100_000..=limit + 2).contains(size)), "{sizes:?}");
    assert!(sizes[2..].iter().all(|size| *size == 0), "{sizes:?}");
    let after = world.controller(1500);
    assert_eq!(world.restored(&after).await.inherited, 1500);

    // With fewer HPAs this leader keeps both shards. The next leader needs one shard and clears the second shard.
    for n in 100..1500 {
        before.stores.histories.forget(&uid(n));
    }
    checkpoint.save(&before.stores.histories, true).await.unwrap();
    assert!(world.sizes()[1] > 1000);
    let after = world.controller(100);
    let mut checkpoint = world.checkpoint();
    let restored = restore(&after, &world.clients.watch, None, Some(&mut checkpoint)).await;
    assert_eq!(restored.exact, 100);
    checkpoint.save(&after.stores.histories, false).await.unwrap();
    let sizes = world.sizes();
    assert!(sizes[0] > 10_000 && sizes[1] < 50, "{sizes:?}");
    assert_eq!(world.restored(&world.controller(100)).await.inherited, 100);
}

#[tokio::test(start_paused = true)]
async fn histories_beyond_the_limit_are_left_out() {
    let world = World::new();
    let before = world.controller(300);
    fill(&before, 300, 20);
    let mut checkpoint = Checkpoint { limit: 2000, ..world.checkpoint() };
    checkpoint.save(&before.stores.histories, true).await.unwrap();
    let left_out = checkpoint.left_out;
    assert!(left_out > 20, "{left_out}");
    let after = world.controller(300);
    assert_eq!(world.restored(&after).await.exact, 300 - left_out);
}

#[tokio::test(start_paused = true)]
async fn sixty_thousand_histories_fit() {
    let world = World::new();
    let controller = world.controller(0);
    fill(&controller, 60_000, 20);
    let Arrangement { shards, left_out } = arrange(candidates(&controller.stores.histories).await, 1, LIMIT);
    assert_eq!((shards.len(), left_out), (MOST_SHARDS, 0));
}

#[tokio::test(start_paused = true)]
async fn invalid_history_affects_only_its_hpa() {
    let world = World::new();
    let now = world.clock.now();
    let entry = |n: u32, history: Vec<u8>| Entry { uid: uid(n), history };
    let later = now.checked_add(TOLERANCE + SignedDuration::from_secs(1)).unwrap();
    let entries = vec![
        entry(0, codec::encode(&history(0, 5, now).into())),
        entry(1, vec![9, 9, 9]),
        entry(2, codec::encode(&history(2, 5, later).into())),
        entry(3, codec::encode(&history(3, 5, now).into())),
    ];
    let mut checkpoint = world.checkpoint();
    checkpoint.write(0, &Shard { written: now, ended: true, entries }.encode()).await.unwrap();
    let after = world.controller(4);
    assert_eq!(world.restored(&after).await.exact, 2);
    assert!(after.stores.histories.get(&uid(1)).recommendations.is_empty());
    assert!(after.stores.histories.get(&uid(2)).recommendations.is_empty());
    assert_eq!(after.stores.histories.get(&uid(3)), history(3, 5, now));
}

#[tokio::test(start_paused = true)]
async fn shard_of_the_first_version_is_ignored_and_replaced() {
    // One history, as version 1 of the format encoded it.
    let old = b"CHPA\x01\x00\x00\x00\x00\x00p\xdb\xd8\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00@\
        \x00\x80\x00\x00\x00\x00\x00\x00\x00\x0f\x01\x00\x01\x80\x80\xa8\xdd\xe6\x8c\xf4\xc64\
        \x0a\x00\x00\x8b\x5c\xa5\x9a\x0e&\x07M";
    assert_eq!(Shard::decode(old), Err(ShardError::Version(1)));
    let world = World::new();
    world.checkpoint().write(0, old).await.unwrap();
    assert_eq!(world.restored(&world.controller(1)).await.exact, 0);

    world.left(1, 5, true).await;
    assert_eq!(world.restored(&world.controller(1)).await.exact, 1);
}

#[tokio::test(start_paused = true)]
async fn clock_jump_before_the_first_sync_keeps_the_restored_ages() {
    let world = World::new();
    world.left(1, 5, true).await;
    let after = world.controller(1);
    assert_eq!(world.restored(&after).await.exact, 1);
    let an_hour = SignedDuration::from_hours(1);
    after.stores.histories.correct_clock(world.clock.now() - an_hour);
    let kept = history(0, 5, world.clock.now() - an_hour).condensed();
    assert_eq!(after.stores.histories.get(&uid(0)), kept);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_without_changes() {
    let world = World::new();
    let controller = world.controller(3);
    fill(&controller, 3, 5);
    let mut checkpoint = world.checkpoint();
    let writes = || world.cluster.requests().count(|request| matches!(request.verb, "create" | "update"));
    checkpoint.save(&controller.stores.histories, false).await.unwrap();
    let first = writes();
    checkpoint.save(&controller.stores.histories, false).await.unwrap();
    // The histories are replaced by equal histories.
    fill(&controller, 3, 5);
    checkpoint.save(&controller.stores.histories, false).await.unwrap();
    assert_eq!(writes(), first);
    fill(&controller, 3, 9);
    checkpoint.save(&controller.stores.histories, false).await.unwrap();
    assert_eq!(writes(), first + 1);
}

#[tokio::test(start_paused = true)]
async fn existing_history_is_not_restored() {
    let world = World::new();
    world.left(2, 20, true).await;
    let after = world.controller(2);
    let own = history(0, 3, world.clock.now());
    after.stores.histories.seed(&uid(0).into(), own.clone());
    assert_eq!(world.restored(&after).await.exact, 1);
    assert_eq!(after.stores.histories.get(&uid(0)), own);
}

#[tokio::test(start_paused = true)]
async fn thousand_hpas_take_one_request_per_interval() {
    let world = World::new();
    let controller = world.controller(1000);
    fill(&controller, 1000, 20);
    let running = world.checkpoint().start(Arc::clone(&controller));
    for _ in 0..40 {
        sleep(EVERY).await;
        // Every HPA has another recommendation.
        fill(&controller, 1000, 20);
    }
    running.finish(true).await;
    let requests = world.cluster.requests().count(|request| request.path.contains("/configmaps"));
    let size = world.sizes()[0];
    eprintln!("{requests} requests in ten minutes with {size} bytes each");
    assert!((40..=42).contains(&requests), "{requests}");
    assert!((50_000..150_000).contains(&size) && world.sizes()[1] == 0, "{:?}", world.sizes());
}
