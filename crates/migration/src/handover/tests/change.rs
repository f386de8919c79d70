//! Tests of `enable` and `disable`.

use super::*;

fn row(name: &str, state: &str) -> Value {
    json!({"namespace": "shop", "name": name, "by": "hpa", "state": state, "since": "2030-01-01T00:00:00Z"})
}

#[tokio::test(start_paused = true)]
async fn enable_labels_one_hpa_and_waits_until_in_charge() {
    let rig = Rig::new();
    let early = rig.page(&json!([row("web", "claiming")]));
    let cluster = rig.cluster.clone();
    tokio::spawn(async move {
        pass(20).await;
        cluster.faults().remove(early);
        let page = json!({
            "scope": "labelled", "controller": "concertina", "leads": true, "guard": {},
            "hpas": [row("web", "in_charge")],
        });
        cluster.faults().add(FaultRule::new(FaultAction::Body(page.to_string())).path_suffix("/handover"));
    });
    let started = tokio::time::Instant::now();
    let (verdict, text) = rig.run(&["enable", "shop/web"]).await;
    assert_eq!(verdict.unwrap(), Verdict::Good, "{text}");
    assert!((20..23).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
    assert_eq!(rig.label("shop", "web").as_deref(), Some("concertina"));
    assert_eq!((rig.label("shop", "api"), rig.namespace_label("shop")), (None, None));
    assert!(text.contains("HPA shop/web: label concertina.dev/controller=concertina set\n"), "{text}");
    assert!(text.contains("in_charge shop      web"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn enable_reports_the_contest_and_its_reason_at_the_timeout() {
    let rig = Rig::new();
    let mut contested = row("web", "contested");
    contested["lastForeignWrite"] = json!({"manager": "evil\u{1b}[2J", "at": "2030-01-01T00:00:01Z"});
    rig.serve(&json!({
        "scope": "labelled", "controller": "concertina", "leads": true,
        "guard": {"state": "broken", "reason": "the CA differs"}, "hpas": [contested],
    }));
    let started = tokio::time::Instant::now();
    let (verdict, text) = rig.run(&["enable", "shop/web", "--timeout=10s"]).await;
    assert_eq!(verdict.unwrap(), Verdict::Attention, "{text}");
    assert!(started.elapsed() <= Duration::from_secs(10), "{:?}", started.elapsed());
    assert!(text.contains("evil\\u{1b}[2J still writes it: the guard is broken (the CA differs)"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[tokio::test(start_paused = true)]
async fn enable_of_a_namespace_excludes_hpas_left_to_the_built_in_loop() {
    let rig = Rig::new();
    rig.set_label("shop", "api", "built-in");
    rig.page(&json!([row("web", "in_charge")]));
    let (verdict, answer) = rig.document(&["enable", "shop"]).await;
    assert_eq!(verdict, Verdict::Good, "{answer}");
    assert_eq!(rig.namespace_label("shop").as_deref(), Some("concertina"));
    assert_eq!(rig.label("shop", "api").as_deref(), Some("built-in"));
    assert_eq!(answer["labels"], json!([{"object": "namespace shop", "from": null, "to": "concertina"}]));
    let names: Vec<_> = answer["hpas"].as_array().unwrap().iter().map(|hpa| &hpa["name"]).collect();
    assert_eq!(names, ["web"], "{answer}");
}

#[tokio::test(start_paused = true)]
async fn dry_run_stores_nothing() {
    let rig = Rig::new();
    rig.page(&json!([]));
    for words in [["enable", "shop", "--dry-run"], ["enable", "shop/web", "--dry-run"]] {
        let (verdict, text) = rig.run(&words).await;
        assert_eq!(verdict.unwrap(), Verdict::Good, "{text}");
        assert!(text.contains("set (dry run)\n"), "{text}");
    }
    assert_eq!((rig.label("shop", "web"), rig.namespace_label("shop")), (None, None));
    let patches: Vec<_> =
        rig.cluster.requests().entries().into_iter().filter(|request| request.verb == "patch").collect();
    assert!(
        patches.len() == 2 && patches.iter().all(|patch| patch.query.contains("dryRun=All")),
        "{patches:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn label_of_another_instance_is_not_overwritten() {
    let rig = Rig::new();
    rig.set_label("shop", "web", "blue");
    let (error, _) = rig.run(&["enable", "shop/web"]).await;
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("HPA shop/web has the label concertina.dev/controller=blue of another instance"),
        "{error}"
    );
    assert_eq!(rig.label("shop", "web").as_deref(), Some("blue"));
    let (verdict, text) = rig.run(&["disable", "shop/web", "--timeout=0s"]).await;
    assert_eq!(verdict.unwrap(), Verdict::Good);
    assert!(text.contains("no label to change"), "{text}");
    assert_eq!(rig.label("shop", "web").as_deref(), Some("blue"));
}

#[tokio::test(start_paused = true)]
async fn leader_with_another_scope_or_name_stops_the_change() {
    let rig = Rig::new();
    let id = rig.serve(&json!({"scope": "all", "controller": "concertina", "leads": true}));
    assert!(matches!(rig.run(&["enable", "shop"]).await.0, Err(HandoverError::ScopeIsAll)));
    rig.cluster.faults().remove(id);
    rig.serve(&json!({"scope": "labelled", "controller": "blue", "leads": true}));
    let (error, _) = rig.run(&["enable", "shop", "--controller-name=green"]).await;
    assert!(matches!(&error, Err(HandoverError::OtherName { actual, .. }) if actual == "blue"), "{error:?}");
    let (verdict, text) = rig.run(&["enable", "shop", "--timeout=0"]).await;
    assert_eq!(verdict.unwrap(), Verdict::Good, "{text}");
    assert_eq!(rig.namespace_label("shop").as_deref(), Some("blue"), "the name of the leader's page");
}

#[tokio::test(start_paused = true)]
async fn concurrent_status_writes_do_not_fail_the_change() {
    let rig = Rig::new();
    rig.page(&json!([]));
    let conflict = || FaultAction::Status(Status::new(409, "Conflict", "the object has been modified"));
    rig.cluster.faults().add(FaultRule::new(conflict()).verb("patch").times(3));
    let (verdict, text) = rig.run(&["enable", "shop/web", "--timeout=0"]).await;
    assert_eq!(verdict.unwrap(), Verdict::Good, "{text}");
    assert_eq!(rig.label("shop", "web").as_deref(), Some("concertina"));
    rig.cluster.faults().add(FaultRule::new(conflict()).verb("patch"));
    let (error, _) = rig.run(&["disable", "shop/web"]).await;
    let error = error.unwrap_err().to_string();
    assert!(
        error.starts_with("failed to change the label of HPA shop/web: the object has been modified"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn disable_waits_until_the_built_in_loop_has_written() {
    let rig = Rig::new();
    rig.set_label("shop", "web", "concertina");
    rig.write_status("kube-controller-manager", "shop", "web", 3).await;
    pass(60).await;
    rig.write_status("concertina", "shop", "web", 4).await;
    rig.page(&json!([]));
    let cluster = rig.cluster.clone();
    tokio::spawn(async move {
        pass(12).await;
        write_status(&cluster, "kube-controller-manager", "shop", "web", 5).await;
    });
    let started = tokio::time::Instant::now();
    let (verdict, text) = rig.run(&["disable", "shop"]).await;
    assert_eq!(verdict.unwrap(), Verdict::Good, "{text}");
    assert_eq!(rig.label("shop", "web"), None);
    assert!(text.contains("built_in shop      web"), "{text}");
    assert!(text.contains("built_in shop      api"), "it was not in scope: {text}");
    assert!((12..15).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn disable_of_an_idle_hpa_is_complete_without_a_write() {
    let rig = Rig::new();
    rig.set_label("shop", "web", "concertina");
    rig.page(&json!([]));
    let started = tokio::time::Instant::now();
    let (verdict, text) = rig.run(&["disable", "shop/web"]).await;
    assert_eq!(verdict.unwrap(), Verdict::Good, "{text}");
    assert!((35..38).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
    assert!(
        text.contains("released shop      web  the built-in controller found nothing to change"),
        "{text}"
    );
    // With a shorter timeout, the handover is not complete.
    rig.set_label("shop", "web", "concertina");
    let (verdict, text) = rig.run(&["disable", "shop/web", "--timeout=10s"]).await;
    assert_eq!(verdict.unwrap(), Verdict::Attention, "{text}");
    assert!(text.contains("no status write of the built-in controller yet"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn enable_shows_what_shadow_mode_knows() {
    let rig = Rig::new();
    rig.page(&json!([row("web", "in_charge"), row("api", "in_charge")]));
    let (_, answer) = rig.document(&["enable", "shop"]).await;
    assert!(
        answer["notes"][0].as_str().unwrap().starts_with("no comparison with the built-in controller"),
        "{answer}"
    );
    assert_eq!(answer["shadow"], Value::Null);
    let hour = |name: &str, counts: &Value| json!({"hour": "2030-01-01T00:00:00Z", "namespace": "shop", "name": name, "counts": counts});
    let report = json!({
        "apiVersion": "concertina/v1", "kind": "ShadowReport", "since": "2030-01-01T00:00:00Z",
        "now": "2030-01-01T00:00:00Z", "hpas": 2, "changes": [],
        "controller": {
            "version": "0.1.0", "syncPeriod": "15s",
            "settings": {
                "emulatedVersion": "1.37", "tolerance": 0.1, "downscaleStabilization": "5m0s",
                "cpuInitializationPeriod": "5m0s", "initialReadinessDelay": "30s",
                "featureGates": {
                    "HPAScaleToZero": true, "HPAGeneration": true, "HPAConfigurableTolerance": true,
                },
            },
        },
        "hours": [
            hour("web", &json!({"same": 4})), hour("web", &json!({"same": 2, "onlyConcertina": 1})),
            hour("", &json!({"different": 9})),
        ],
    });
    rig.cluster.faults().add(FaultRule::new(FaultAction::Body(report.to_string())).path_suffix("/parity"));
    let (verdict, text) = rig.run(&["enable", "shop"]).await;
    assert_eq!(verdict.unwrap(), Verdict::Good, "{text}");
    assert!(text.contains("IN SHADOW MODE") && text.contains("6 same, 1 different"), "{text}");
    assert!(
        text.contains("in shadow mode 1 HPA of the cluster differed from the built-in controller"),
        "{text}"
    );
    let (_, answer) = rig.document(&["enable", "shop"]).await;
    let rows = json!([
        {"namespace": "shop", "name": "api", "same": 0, "different": 0, "unknown": 0},
        {"namespace": "shop", "name": "web", "same": 6, "different": 1, "unknown": 0},
    ]);
    assert_eq!(answer["shadow"], rows);
}

#[tokio::test(start_paused = true)]
async fn disable_of_an_hpa_excludes_it_from_its_namespace() {
    let rig = Rig::new();
    rig.page(&json!([]));
    rig.run(&["enable", "shop", "--timeout=0"]).await.0.unwrap();
    rig.run(&["disable", "shop/api", "--timeout=0"]).await.0.unwrap();
    assert_eq!(rig.label("shop", "api").as_deref(), Some("built-in"));
    assert_eq!(rig.namespace_label("shop").as_deref(), Some("concertina"));
    rig.run(&["enable", "shop/api", "--timeout=0"]).await.0.unwrap();
    assert_eq!(rig.label("shop", "api").as_deref(), Some("concertina"));
    rig.run(&["disable", "shop", "--timeout=0"]).await.0.unwrap();
    assert_eq!((rig.label("shop", "api"), rig.namespace_label("shop")), (None, None));
}

#[tokio::test(start_paused = true)]
async fn without_the_page_own_status_writes_prove_the_charge() {
    let rig = Rig::new();
    rig.write_status("kube-controller-manager", "shop", "web", 3).await;
    let (verdict, text) = rig.run(&["enable", "shop/web", "--timeout=5s"]).await;
    assert_eq!(verdict.unwrap(), Verdict::Attention, "{text}");
    assert!(text.contains("note       the leader's state is unavailable: "), "{text}");
    assert!(text.contains("unknown shop      web  no status write of Concertina yet"), "{text}");
    let cluster = rig.cluster.clone();
    tokio::spawn(async move {
        pass(3).await;
        write_status(&cluster, "concertina", "shop", "web", 5).await;
    });
    let (verdict, text) = rig.run(&["enable", "shop/web"]).await;
    assert_eq!(verdict.unwrap(), Verdict::Good, "{text}");
    let (missing, _) = rig.run(&["enable", "shop/absent"]).await;
    let missing = missing.unwrap_err().to_string();
    assert_eq!(missing, "HPA absent not found in namespace shop: pass one of its HPAs (api, web)");
}
