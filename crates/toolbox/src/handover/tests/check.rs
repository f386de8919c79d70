//! `check`.

use super::*;

#[tokio::test(start_paused = true)]
async fn check_passes_if_writes_in_scope_are_refused_and_others_pass() {
    let rig = Rig::new();
    rig.set_label("shop", "web", "concertina");
    rig.deny("system:kube-controller-manager");
    rig.deny("system:vpa-recommender");
    rig.refuse(ACCOUNT, "/web/scale");
    rig.refuse(ACCOUNT, "/web/status");
    let (verdict, answer) = rig.document(&["check"]).await;
    assert_eq!(verdict, Verdict::Good, "{answer}");
    assert_eq!(answer["passed"], true);
    let may_write: Vec<_> =
        answer["users"].as_array().unwrap().iter().map(|user| &user["mayWrite"]).collect();
    assert_eq!(may_write, [true, false, false]);
    let attempts = answer["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 2, "{answer}");
    assert_eq!((&attempts[0]["name"], &attempts[0]["scale"]["result"]), (&json!("web"), &json!("refused")));
    assert_eq!(attempts[1]["status"]["result"], "passed");
    let writes = rig.cluster.requests().entries();
    let writes: Vec<_> = writes.iter().filter(|request| request.verb == "update").collect();
    assert!(writes.len() == 4 && writes.iter().all(|write| write.query == "dryRun=All"), "{writes:?}");
    let scale = &rig.cluster.get("autoscaling/horizontalpodautoscalers", "shop", "web").unwrap();
    assert_eq!(scale["metadata"].get("managedFields"), None, "a dry run is not stored");
}

#[tokio::test(start_paused = true)]
async fn check_shows_each_write_with_an_unintended_result() {
    let rig = Rig::new();
    rig.set_label("shop", "web", "concertina");
    rig.refuse(ACCOUNT, "/web/scale");
    rig.refuse(ACCOUNT, "/jobs/status");
    let (verdict, text) = rig.run(&["check", &format!("--built-in-users={ACCOUNT}")]).await;
    assert_eq!(verdict.unwrap(), Verdict::Attention, "{text}");
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.contains(ACCOUNT))
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows[1..],
        [
            ["shop", "web", "in", ACCOUNT, "refused", "passed"].to_vec(),
            ["back", "jobs", "out", ACCOUNT, "passed", "refused"].to_vec()
        ],
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn missing_right_to_impersonate_names_the_rule() {
    let rig = Rig::new();
    rig.deny("");
    let (error, _) = rig.run(&["check"]).await;
    let error = error.unwrap_err().to_string();
    assert_eq!(
        error,
        "you may not impersonate system:serviceaccount:kube-system:horizontal-pod-autoscaler: ask a cluster \
         administrator for the rule {apiGroups: [\"\"], resources: [serviceaccounts], resourceNames: \
         [horizontal-pod-autoscaler], verbs: [impersonate]} in a Role in namespace kube-system, or a ClusterRole"
    );
    let (error, _) = rig.run(&["check", "--built-in-users=system:vpa-recommender"]).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("resources: [users], resourceNames: [\"system:vpa-recommender\"]"), "{error}");
    assert!(error.ends_with("in a ClusterRole"), "{error}");
    assert!(rig.cluster.requests().entries().iter().all(|request| request.verb != "update"));
}

#[tokio::test(start_paused = true)]
async fn refusal_by_rbac_is_told_apart_from_a_guard() {
    let rig = Rig::new();
    rig.set_label("shop", "web", "concertina");
    rig.refuse(ACCOUNT, "/scale");
    rig.refuse(ACCOUNT, "/status");
    // The first review is for the status in all namespaces.
    let denied = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {}, "spec": {},
        "status": {"allowed": false},
    });
    let rule = FaultRule::new(FaultAction::Body(denied.to_string())).impersonated(ACCOUNT).after(1);
    rig.cluster.faults().add(rule.path_suffix("/selfsubjectaccessreviews"));
    let (verdict, answer) = rig.document(&["check", &format!("--built-in-users={ACCOUNT}")]).await;
    assert_eq!(verdict, Verdict::Attention, "the write out of scope must pass: {answer}");
    assert_eq!(answer["attempts"][0]["scale"]["result"], "unauthorized");
    assert_eq!((&answer["attempts"][0]["ok"], &answer["attempts"][1]["ok"]), (&json!(true), &json!(false)));
}

#[tokio::test(start_paused = true)]
async fn check_without_an_active_user_or_scope_says_so() {
    let rig = Rig::new();
    rig.deny(ACCOUNT);
    let (verdict, text) = rig.run(&["check", &format!("--built-in-users={ACCOUNT}")]).await;
    assert_eq!(verdict.unwrap(), Verdict::Attention, "{text}");
    assert!(text.contains("none of the users may write the status of HPAs"), "{text}");
    assert!(text.contains("no HPA is in scope"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn missing_target_is_not_a_failure_of_the_guard() {
    let rig = Rig::new();
    rig.set_label("shop", "web", "concertina");
    rig.cluster.remove_scale(&ScalePath {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        resource: "deployments".to_owned(),
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
    });
    rig.refuse(ACCOUNT, "/web/status");
    let (verdict, answer) = rig.document(&["check", &format!("--built-in-users={ACCOUNT}")]).await;
    assert_eq!(verdict, Verdict::Good, "{answer}");
    assert_eq!(answer["attempts"][0]["scale"]["result"], "noTarget");
}
