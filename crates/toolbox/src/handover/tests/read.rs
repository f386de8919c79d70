//! `status` and `plan`.

use super::*;

#[tokio::test(start_paused = true)]
async fn status_has_the_leaders_state_of_each_hpa_in_scope() {
    let rig = Rig::new();
    rig.set_label("shop", "web", "concertina");
    rig.set_label("shop", "api", "concertina");
    rig.page(&json!([
        {"namespace": "shop", "name": "api", "by": "hpa", "state": "in_charge", "since": "2030-01-01T00:00:00Z",
         "lastRefusedWrite": "2030-01-01T00:00:05Z"},
        {"namespace": "shop", "name": "web", "by": "hpa", "state": "contested", "since": "2030-01-01T00:00:00Z",
         "lastForeignWrite": {"manager": "kube-controller-manager", "at": "2030-01-01T00:00:03Z"}},
    ]));
    let (verdict, text) = rig.run(&["status"]).await;
    assert_eq!(verdict.unwrap(), Verdict::Attention);
    assert_eq!(
        text,
        "guard      proven since 00:00:00Z\n\
         STATE     NAMESPACE NAME LABEL ON SINCE     LAST FOREIGN WRITE                LAST REFUSED WRITE\n\
         contested shop      web  hpa      00:00:00Z kube-controller-manager 00:00:03Z -\n\
         in_charge shop      api  hpa      00:00:00Z -                                 00:00:05Z\n"
    );
    rig.set_label("shop", "web", "built-in");
    let (verdict, answer) = rig.document(&["status"]).await;
    assert_eq!(verdict, Verdict::Good, "{answer}");
    assert_eq!((&answer["kind"], &answer["guard"]["state"]), (&json!("HandoverStatus"), &json!("proven")));
    assert_eq!(answer["hpas"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn status_without_the_page_is_from_the_api_and_says_so() {
    let rig = Rig::new();
    rig.set_label("shop", "web", "concertina");
    rig.write_status("kube-controller-manager", "shop", "web", 3).await;
    let (verdict, text) = rig.run(&["status", "-n", "shop"]).await;
    assert_eq!(verdict.unwrap(), Verdict::Attention);
    assert!(text.starts_with("note       the leader's state is unavailable: failed to read"), "{text}");
    assert!(text.contains("unknown shop      web  hpa"), "{text}");
    assert!(text.contains("kube-controller-manager 00:00:00Z"), "{text}");
    rig.serve(&json!({"scope": "labelled", "leads": false}));
    let (_, text) = rig.run(&["status"]).await;
    assert!(text.contains("http://embedded is not the leader"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn forbidden_namespaces_leave_the_labels_of_hpas() {
    let rig = Rig::new();
    rig.set_label("shop", "web", "concertina");
    rig.page(&json!([]));
    let forbidden = FaultAction::Status(Status::new(403, "Forbidden", "namespaces is forbidden"));
    rig.cluster.faults().add(FaultRule::new(forbidden).path_suffix("/namespaces"));
    let (_, answer) = rig.document(&["status"]).await;
    assert_eq!(answer["hpas"][0]["name"], "web");
    let note = answer["notes"][0].as_str().unwrap();
    assert_eq!(note, "the labels of namespaces cannot be read: namespaces is forbidden");
}

#[tokio::test(start_paused = true)]
async fn plan_names_the_writer_and_prints_an_applicable_guard() {
    let rig = Rig::new();
    rig.write_status("kube-controller-manager", "shop", "web", 3).await;
    rig.deny("system:vpa-recommender");
    rig.cluster.requests().clear();
    let (verdict, text) = rig.run(&["plan"]).await;
    assert_eq!(verdict.unwrap(), Verdict::Good);
    assert!(text.contains("# server: v1.37.1\n"), "{text}");
    assert!(
        text.contains("# status of HPAs: written by kube-controller-manager (1 HPA, last at 00:00:00Z)\n"),
        "{text}"
    );
    assert!(text.contains("# user: system:vpa-recommender, may not write the status of HPAs\n"), "{text}");
    assert!(text.contains("# guard: webhook\n"), "{text}");
    let manifests: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    assert!(manifests.iter().any(|object| object["kind"] == "ValidatingWebhookConfiguration"), "{text}");
    let writes = rig.cluster.requests().count(|request| !matches!(request.verb, "get" | "list"));
    assert_eq!(writes, 6, "only access reviews");

    let (_, answer) = rig.document(&["plan", "--guard=policy"]).await;
    assert_eq!(answer["guard"], "policy");
    let manifests: Vec<Value> = serde_saphyr::from_multiple(answer["manifests"].as_str().unwrap()).unwrap();
    assert!(manifests.iter().any(|object| object["kind"] == "ValidatingAdmissionPolicyBinding"));
    for guard in ["rbac", "flag"] {
        let (_, text) = rig.run(&["plan", &format!("--guard={guard}")]).await;
        assert!(text.contains("only with --scope=all"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn plan_on_an_old_server_and_without_impersonation_gives_reasons() {
    let rig = Rig::new();
    let version = json!({"gitVersion": "v1.29.3-gke.1", "minor": "29"});
    rig.cluster.faults().add(FaultRule::new(FaultAction::Body(version.to_string())).path_suffix("/version"));
    rig.deny("");
    let (_, answer) = rig.document(&["plan"]).await;
    assert_eq!(answer["guard"], "rbac", "{answer}");
    assert_eq!(answer["users"][0].get("mayWrite"), None);
    let notes = answer["notes"].to_string();
    assert!(notes.contains("you may not impersonate") && notes.contains("this looks like GKE"), "{notes}");
    let (_, answer) = rig.document(&["plan", "--guard=webhook"]).await;
    assert!(answer["reasons"].to_string().contains("older than 1.30"), "{answer}");
}
