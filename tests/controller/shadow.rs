//! A dry run alongside an active controller: its comparisons, and the objects that it must not change.
//!
//! The active controller is a second Concertina in place of the built-in one. With equal flags, the two
//! controllers must make equal decisions.

use std::time::Duration;

use autoscaling::settings::Settings;
use cluster::client::Clients;
use coexist::shadow::wire::{Counts, InconclusiveReason, ShadowReport, Verdict};
use concertina::app::client_options;
use controller::assembly::{Assembly, Parts, Phase};
use controller::options::Options;
use engine::store::Key;
use engine::telemetry::metrics::Metrics;
use flags::Config;
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::support::objects::{external, hpa};
use crate::support::{Fixture, HPAS, Harness, logs};

/// A dry run alongside the active controller of a test.
struct Shadow {
    assembly: Assembly,
    telemetry: Metrics,
    _stop: DropGuard,
}

impl Shadow {
    fn start(stage: &Fixture, settings: Settings) -> Self {
        let config = Config::from(Options { dry_run: true, settings, ..Options::default() });
        let telemetry = Metrics::new();
        let options = client_options(&config, &telemetry);
        let clients = Clients::over(stage.cluster.connector(), &options).unwrap();
        let stop = CancellationToken::new();
        let parts = Parts {
            clients: &clients,
            options: &config.controller,
            clock: stage.clock.clone(),
            telemetry: telemetry.clone(),
            observers: Vec::new(),
            seed: 7,
            phase: Phase::FirstSync,
        };
        let assembly = Assembly::start(parts, &stop);
        let (hpas, pods) = (assembly.hpas.clone(), assembly.pods.clone());
        let (controller, stopped) = (assembly.controller.clone(), stop.clone());
        tokio::spawn(async move {
            hpas.wait_synced().await;
            pods.wait_synced().await;
            controller.run(stopped).await;
        });
        Self { assembly, telemetry, _stop: stop.drop_guard() }
    }

    fn report(&self) -> ShadowReport {
        self.assembly.parity.as_ref().unwrap().report()
    }

    fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for hour in self.report().hours {
            sum += hour.counts;
        }
        sum
    }
}

fn quick() -> Settings {
    Settings { downscale_stabilization: Duration::from_mins(1), ..Settings::default() }
}

/// A queue of 40 for 4 workers with a target of 10 each.
fn stage() -> Fixture {
    let stage = Fixture::new();
    stage.target("web", 4);
    stage.external("queue", "40");
    stage.create(hpa("web", &[external("queue", "10")]));
    stage
}

fn active(stage: Fixture) -> Harness {
    Harness::with(stage, &Config::from(Options { settings: quick(), ..Options::default() }))
}

/// Waits while the status of the targets follows their counts.
async fn pass(rig: &Harness, seconds: f64) {
    let end = rig.now() + Duration::from_secs_f64(seconds);
    while rig.now() < end {
        rig.pass(end.saturating_sub(rig.now()).as_secs_f64().min(0.9)).await;
        for hpa in rig.cluster.list(HPAS, None) {
            let name = hpa["metadata"]["name"].as_str().unwrap();
            rig.target(name, rig.replicas(name));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn equal_decisions_are_counted_as_same_up_and_down() {
    let rig = active(stage());
    pass(&rig, 4.0).await;
    let shadow = Shadow::start(&rig, quick());
    for items in ["80", "40", "100", "30", "10", "55"] {
        pass(&rig, 100.0).await;
        rig.external("queue", items);
    }
    pass(&rig, 100.0).await;
    let report = shadow.report();
    assert_eq!(shadow.counts(), Counts { same: 8, ..Counts::default() }, "{:#?}", report.changes);
    let last = &report.changes[0];
    let (builtin, ours) = (last.builtin.unwrap(), last.ours.clone().unwrap());
    assert_eq!((builtin.from, builtin.to), (4, 6));
    assert_eq!((ours.from, ours.to), (4, Some(6)));
    assert!(ours.sentence.starts_with("goes from 4 to 6: "), "{}", ours.sentence);
    assert_eq!(last.said.metrics, ["queue 13750m"]);
    let text = shadow.telemetry.render();
    assert!(text.contains("concertina_shadow_decisions_total{result=\"same\"} 8\n"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn dry_run_that_compares_writes_nothing() {
    let rig = Harness::with(stage(), &Config::from(Options { dry_run: true, ..Options::default() }));
    rig.external("queue", "80");
    pass(&rig, 100.0).await;
    let writes = rig.times(|request| {
        let reads = ["get", "list", "watch"].contains(&request.verb);
        !reads && !request.path.ends_with("/selfsubjectaccessreviews")
    });
    assert!(writes.is_empty(), "{writes:?}");
}

/// Compares two controllers under a noisy load, on HPAs with several kinds of `behavior`, at three offsets between
/// their periods.
#[tokio::test(start_paused = true)]
async fn controllers_with_equal_flags_never_differ() {
    for (phase, precision) in [(0.3, "0"), (7.5, "0"), (14.8, "0"), (7.5, "10%")] {
        let settings = Settings { status_precision: precision.parse().unwrap(), ..quick() };
        let stage = stage();
        let behaviors = [
            json!({"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 30}]},
                "scaleDown": {"stabilizationWindowSeconds": 45,
                    "policies": [{"type": "Percent", "value": 20, "periodSeconds": 60}]}}),
            json!({"scaleUp": {"stabilizationWindowSeconds": 60}, "scaleDown": {"stabilizationWindowSeconds": 0}}),
            json!({"scaleDown": {"selectPolicy": "Disabled"}}),
        ];
        for (at, behavior) in behaviors.iter().enumerate() {
            let name = format!("behavior-{at}");
            stage.target(&name, 4);
            let mut hpa = hpa(&name, &[external("queue", "10")]);
            hpa["spec"]["behavior"] = behavior.clone();
            stage.create(hpa);
        }
        let rig = active(stage);
        pass(&rig, phase).await;
        let shadow = Shadow::start(&rig, settings);
        pass(&rig, 90.0).await;
        let mut random: u64 = 7;
        for step in 0..800_u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let noise = f64::from(u8::try_from(random >> 60).unwrap());
            let wave = (f64::from(step) / 60.0).sin().mul_add(35.0, 45.0);
            rig.external("queue", &format!("{:.0}", wave + noise));
            pass(&rig, 1.7).await;
        }
        let (counts, report) = (shadow.counts(), shadow.report());
        assert!(counts.same > 20, "{counts:?}");
        let others: Vec<_> = report.changes.iter().filter(|change| change.result != Verdict::Same).collect();
        assert!(others.is_empty(), "phase {phase}: {counts:?} {others:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn withheld_statuses_of_the_active_controller_are_no_difference() {
    let settings = Settings { status_precision: "10%".parse().unwrap(), ..quick() };
    let rig = Harness::with(stage(), &Config::from(Options { settings, ..Options::default() }));
    pass(&rig, 4.0).await;
    let shadow = Shadow::start(&rig, quick());
    for items in ["80", "40", "100", "30", "10", "55"] {
        for step in 0..10 {
            rig.external("queue", &format!("{items}{}", if step % 2 == 0 { "" } else { ".5" }));
            pass(&rig, 10.0).await;
        }
    }
    let (counts, report) = (shadow.counts(), shadow.report());
    assert_eq!(counts, Counts { same: counts.same, ..Counts::default() }, "{:#?}", report.changes);
    assert!(counts.same >= 6, "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn rescale_of_the_built_in_controller_alone_is_reported() {
    let rig = active(stage());
    let shadow = Shadow::start(&rig, Settings { tolerance: 0.5, ..quick() });
    pass(&rig, 100.0).await;
    rig.external("queue", "55");
    pass(&rig, 60.0).await;
    let report = shadow.report();
    let [change] = &report.changes[..] else { panic!("{:#?}", report.changes) };
    assert_eq!(change.result, Verdict::OnlyBuiltin);
    let [line] = logs::with("result=\"only_builtin\"").try_into().unwrap();
    assert!(line.contains("WARN") && line.contains("builtin=\"4 to 6\""), "{line}");
    assert!(line.contains("ours=\"4 to 4\"") && line.contains("stays at 4"), "{line}");
    // The record of the HPA contains the difference for `why` as well.
    let record = shadow.assembly.decisions.as_ref().unwrap().list(&Key::new("shop", "web")).unwrap();
    let comparison = record.comparison.unwrap();
    assert_eq!(comparison.different, 1);
    let last = comparison.last_difference.unwrap().sentence;
    assert!(last.starts_with("the built-in controller: 4 to 6; the dry run: 4 to 4, because "), "{last}");
}

#[tokio::test(start_paused = true)]
async fn different_count_is_reported_as_different() {
    let rig = active(stage());
    let shadow = Shadow::start(&rig, quick());
    pass(&rig, 20.0).await;
    // The status shows 7, as if the active controller had other inputs than the dry run.
    rig.external("queue", "80");
    let mut hpa = rig.hpa("web");
    hpa["status"] = json!({
        "currentReplicas": 4, "desiredReplicas": 7, "lastScaleTime": rig.clock.now().to_string()[..19].to_owned() + "Z",
        "currentMetrics": [{"type": "External", "external":
            {"metric": {"name": "queue"}, "current": {"averageValue": "20"}}}],
        "conditions": hpa["status"]["conditions"],
    });
    rig.cluster.update_status(hpa).unwrap();
    pass(&rig, 2.0).await;
    let report = shadow.report();
    let change = &report.changes[report.changes.len() - 1];
    assert_eq!((change.result, change.builtin.unwrap().to), (Verdict::Different, 7), "{change:#?}");
    assert_eq!(change.ours.as_ref().unwrap().to, Some(8));
}

#[tokio::test(start_paused = true)]
async fn rescale_of_the_dry_run_alone_is_reported_once() {
    let stage = stage();
    let other = Settings { tolerance: 0.5, ..quick() };
    let rig = Harness::with(stage, &Config::from(Options { settings: other, ..Options::default() }));
    let shadow = Shadow::start(&rig, quick());
    pass(&rig, 100.0).await;
    rig.external("queue", "55");
    pass(&rig, 200.0).await;
    let report = shadow.report();
    let [change] = &report.changes[..] else { panic!("{:#?}", report.changes) };
    assert_eq!((change.result, change.builtin), (Verdict::OnlyConcertina, None));
    assert_eq!(change.ours.as_ref().unwrap().to, Some(6));
    rig.external("queue", "40");
    pass(&rig, 100.0).await;
    rig.external("queue", "55");
    pass(&rig, 100.0).await;
    assert_eq!(shadow.counts(), Counts { only_concertina: 2, ..Counts::default() });
}

#[tokio::test(start_paused = true)]
async fn comparison_is_unknown_without_another_controller() {
    let rig = Harness::with(stage(), &Config::from(Options { dry_run: true, ..Options::default() }));
    rig.external("queue", "80");
    pass(&rig, 100.0).await;
    let report = rig.assembly.parity.as_ref().unwrap().report();
    let [change] = &report.changes[..] else { panic!("{:#?}", report.changes) };
    assert_eq!((change.result, change.doubt), (Verdict::Unknown, Some(InconclusiveReason::NoSign)));
    assert_eq!(report.last_sign, None);
}

#[tokio::test(start_paused = true)]
async fn history_from_before_the_start_causes_no_difference() {
    let rig = active(stage());
    pass(&rig, 20.0).await;
    rig.external("queue", "90");
    pass(&rig, 20.0).await;
    rig.external("queue", "40");
    pass(&rig, 10.0).await;
    // The window of the active controller drops 9 after a minute. The window of the dry run starts with 9.
    let shadow = Shadow::start(&rig, quick());
    pass(&rig, 120.0).await;
    let report = shadow.report();
    assert!(report.changes.iter().all(|change| change.result != Verdict::Different), "{:#?}", report.changes);
    assert_eq!(shadow.counts().differences(), 0);
    assert_eq!(rig.replicas("web"), 4);
}

#[tokio::test(start_paused = true)]
async fn manual_rescale_is_not_a_difference() {
    let rig = active(stage());
    let shadow = Shadow::start(&rig, quick());
    pass(&rig, 100.0).await;
    rig.target("web", 7);
    pass(&rig, 200.0).await;
    // The two controllers correct the count, and nothing else is compared.
    assert_eq!(rig.replicas("web"), 4);
    assert_eq!(shadow.counts().differences(), 0, "{:#?}", shadow.report().changes);
}

#[tokio::test(start_paused = true)]
async fn deleted_hpa_is_dropped_and_its_changes_stay_in_the_report() {
    let rig = active(stage());
    let shadow = Shadow::start(&rig, quick());
    pass(&rig, 100.0).await;
    rig.external("queue", "80");
    pass(&rig, 30.0).await;
    rig.cluster.delete_now(HPAS, "shop", "web").unwrap();
    pass(&rig, 30.0).await;
    let report = shadow.report();
    assert_eq!((report.hpas, shadow.counts().same), (0, 1));
    let text: Value = serde_json::to_value(&report).unwrap();
    assert_eq!(serde_json::from_value::<ShadowReport>(text).unwrap(), report);
}
