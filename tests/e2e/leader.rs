//! Commands that show the state of the leader to an ordinary user. `concertina why` reads the leader's record through
//! the real API server and the kubelet's own streaming code. `concertina console` shows each change of the leader.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::controlplane::free_port;
use crate::election::{self, CRASH, LEASE, Replicas};
use crate::node;
use crate::outcome::{Context as _, Failure, Outcome, Process, ensure, eventually};
use crate::rest::Rest;
use crate::why::bind;
use crate::world::{APP, Autoscaler, Fixture, SOON, World, binary, cpu_utilization};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings";
const POD: &str = "concertina-test";

/// Flags of the controller. `why` can read the stabilization and the tolerance only from the record.
const FLAGS: &[&str] = &[
    "--leader-elect=true",
    "--takeover=off",
    "--horizontal-pod-autoscaler-downscale-stabilization=120s",
    "--horizontal-pod-autoscaler-tolerance=0.05",
];

pub(crate) async fn reads_the_leaders_record(stage: &Fixture) -> Outcome {
    let port = free_port()?;
    let secure = format!("--secure-port={port}");
    replica_rights(stage).await?;
    let flags: Vec<&str> =
        FLAGS.iter().copied().chain([secure.as_str(), "--bind-address=127.0.0.1"]).collect();
    let mut autoscaler = stage.autoscaler_with(Autoscaler::Concertina, &flags).await?;
    let _kubelet = pod(stage, port, &mut autoscaler).await?;

    let world = World::make(stage, "forward", Autoscaler::Concertina).await?;
    world.deployment("web", 2, APP).await?;
    world.cpu("web", 200);
    let spec = json!({"minReplicas": 1, "maxReplicas": 10, "metrics": [cpu_utilization(50)]});
    world.hpa("web", ("apps/v1", "Deployment", "web"), spec).await?;
    world.replicas_become(&world.deployments("web"), 4).await?;
    world.cpu("web", 60);
    let stabilized = "AbleToScale=True ScaleDownStabilized: recent recommendations were higher than current one, \
                      applying the highest recent recommendation";
    world.condition("web", stabilized).await?;

    let user = user(stage).await?;
    let query = async |arguments: &[&str]| {
        let answer = why(&user, arguments)?;
        let (record, reason) = (&answer["source"]["record"], &answer["source"]["noRecord"]);
        ensure(record.is_object(), || format!("why has no record: {reason}"))?;
        Ok(answer)
    };
    let answer = eventually(SOON, "why reads the record", async || query(&[]).await).await;
    let answer = answer.context(autoscaler.tail(10)).context(stage.plane.tails())?;
    let from = &answer["source"]["record"]["from"];
    ensure(*from == format!("pod kube-system/{POD}"), || format!("the record is from {from}"))?;
    ensure(answer["unknowns"] == json!([]), || format!("unknowns: {}", answer["unknowns"]))?;
    let sentence = answer["sentence"].as_str().unwrap_or_default();
    let expected = "cpu asks for 2, but the 2 min scale-down window still holds 4, for another ";
    ensure(sentence.contains(expected), || format!("why prints {sentence:?}"))?;
    let history = answer["history"].as_array().ok_or("no history")?;
    let from_record = history.iter().all(|entry| entry["origin"] == "record");
    ensure(from_record && history.len() > 1, || format!("unexpected history {history:?}"))?;
    let flags = answer["flags"].to_string();
    ensure(flags.contains(r#""origin":"record","value":"0.05""#), || format!("unexpected flags {flags}"))?;

    // The answer names each missing right, and is complete otherwise.
    for (number, missing) in [
        "get leases.coordination.k8s.io",
        "get pods",
        "list pods",
        "get and create pods/portforward",
        "get and create pods/portforward",
    ]
    .into_iter()
    .enumerate()
    {
        let all = user_rights();
        let mut fewer = all.clone();
        match number {
            3 => fewer[2]["verbs"] = json!(["create"]),
            4 => fewer[2]["verbs"] = json!(["get"]),
            1 => fewer[1]["verbs"] = json!(["list"]),
            2 => fewer[1]["verbs"] = json!(["get"]),
            _ => fewer[0]["verbs"] = json!(["list"]),
        }
        let role = format!("{ROLES}/tenant");
        stage.plane.admin.merge(&role, &json!({"rules": fewer})).await?;
        let expected = format!("you may not {missing} in namespace kube-system");
        eventually(SOON, &format!("why reports {expected:?}"), async || {
            // Without the flag, `why` also reads the Lease of the default installation, which is missing.
            let answer = why(&user, &["--leader=kube-system/concertina"])?;
            ensure(answer["current"] == 4, || answer.to_string())?;
            let reason = &answer["source"]["noRecord"];
            ensure(*reason == expected, || format!("why reports {reason}"))
        })
        .await?;
        stage.plane.admin.merge(&role, &json!({"rules": all})).await?;
    }
    autoscaler.still_runs()?;
    world.close().await
}

/// The rights of a replica: the Lease, the client authorities, token reviews and access reviews.
async fn replica_rights(stage: &Fixture) -> Outcome {
    const ACCOUNT: &str = "horizontal-pod-autoscaler";
    let lease = json!([
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": ["concertina"],
         "verbs": ["get", "list", "watch", "update"]},
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["extension-apiserver-authentication"],
         "verbs": ["get", "list", "watch"]},
    ]);
    grant(stage, "autoscaler", ACCOUNT, "kube-system", &lease).await?;
    let binding = json!({
        "metadata": {"name": "autoscaler-reviews"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "kube-system", "name": ACCOUNT}],
    });
    stage.plane.admin.create(&format!("{RBAC}/clusterrolebindings"), &binding).await.map(drop)
}

/// The rights for reading the record, as documented in `docs/reference/why.md`.
fn user_rights() -> Value {
    json!([
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": ["concertina"],
         "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["get", "create"]},
    ])
}

/// Creates a user with read access to one namespace and its metrics, and to the record of the controller.
async fn user(stage: &Fixture) -> Outcome<PathBuf> {
    let admin = &stage.plane.admin;
    let kubeconfig = stage.plane.service_account("default", "tenant").await?;
    let subjects = json!([{"kind": "ServiceAccount", "namespace": "default", "name": "tenant"}]);
    let metrics = json!({
        "metadata": {"name": "metrics"},
        "rules": [{"apiGroups": ["metrics.k8s.io"], "resources": ["pods"], "verbs": ["list"]}],
    });
    admin.create(&format!("{RBAC}/clusterroles"), &metrics).await?;
    for role in ["system:aggregate-to-view", "metrics"] {
        let binding = json!({
            "metadata": {"name": format!("tenant-{}", role.replace(':', "-"))}, "subjects": subjects,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        });
        admin.create(&format!("{RBAC}/namespaces/forward/rolebindings"), &binding).await?;
    }
    // `why` asks whether the account of the pod may write the statuses of HPAs.
    let reviews = json!({
        "metadata": {"name": "reviews"},
        "rules": [{"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]}],
    });
    admin.create(&format!("{RBAC}/clusterroles"), &reviews).await?;
    let binding = json!({
        "metadata": {"name": "tenant-reviews"}, "subjects": subjects,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reviews"},
    });
    admin.create(&format!("{RBAC}/clusterrolebindings"), &binding).await?;
    grant(stage, "tenant", "tenant", "default", &user_rights()).await?;
    Ok(kubeconfig)
}

pub(crate) async fn grant(
    stage: &Fixture,
    role: &str,
    account: &str,
    namespace: &str,
    rules: &Value,
) -> Outcome {
    let admin = &stage.plane.admin;
    admin.create(ROLES, &json!({"metadata": {"name": role}, "rules": rules})).await?;
    let binding = json!({
        "metadata": {"name": role},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": account}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
    });
    admin.create(BINDINGS, &binding).await.map(drop)
}

/// Creates a pod of the controller, on the host network of the node in the holder identity of the Lease. Also starts
/// the kubelet of that node.
async fn pod(stage: &Fixture, port: u16, autoscaler: &mut Process) -> Outcome<Process> {
    let admin = &stage.plane.admin;
    let holder = eventually(SOON, "the controller holds the Lease", async || {
        autoscaler.still_runs()?;
        let lease = admin.get(LEASE).await?;
        let holder = lease["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty());
        holder.map(str::to_owned).ok_or_else(|| Failure(format!("{lease}")))
    });
    let holder = holder.await.context(autoscaler.tail(20))?;
    let node = holder.split('_').next().unwrap_or_default();

    let kubelet = node::start(&stage.plane, node).await?;
    let pods = "/api/v1/namespaces/kube-system/pods";
    let pod = json!({
        "metadata": {"name": POD, "labels": {"app.kubernetes.io/name": "concertina"}},
        "spec": {
            "nodeName": node, "hostNetwork": true, "serviceAccountName": "horizontal-pod-autoscaler",
            "containers": [{"name": "concertina", "image": "example.com/concertina",
                "ports": [{"name": "https", "containerPort": port, "hostPort": port}]}],
        },
    });
    admin.create(pods, &pod).await?;
    let running = json!({"status": {"phase": "Running"}});
    admin.merge(&format!("{pods}/{POD}/status"), &running).await?;
    Ok(kubelet)
}

fn why(kubeconfig: &Path, arguments: &[&str]) -> Outcome<Value> {
    let mut command = Command::new(binary());
    command.args(["why", "-n", "forward", "web", "--output=json"]).args(arguments);
    command.env("KUBECONFIG", kubeconfig).env_remove("HTTPS_PROXY");
    let output = command.output().context("failed to run concertina why")?;
    let (text, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&text).map_err(|error| Failure(format!("{error}\n{text}\n{stderr}")))
}

const NAMESPACE: &str = "console";
/// The account that runs `concertina console`.
const OPERATOR: &str = "operator";

pub(crate) async fn shows_changes_of_the_leader(stage: &Fixture) -> Outcome {
    let world = World::make(stage, NAMESPACE, Autoscaler::Concertina).await?;
    world.deployment("web", 1, APP).await?;
    world.cpu("web", 100);
    let spec = json!({"minReplicas": 1, "maxReplicas": 8, "metrics": [cpu_utilization(50)]});
    world.hpa("web", ("apps/v1", "Deployment", "web"), spec).await?;
    election::grant(stage).await?;
    let mut replicas = Replicas::default();
    replicas.start_with(stage, "a", &[]).await?;
    let first = holder_other_than(stage, "").await.context(replicas.tails())?;

    let (process, page) = start_console(stage).await?;
    // Without the right to read the Lease, the page names that right and shows everything else.
    let shown = page.get("/controller").await?;
    let names_right = shown["missing"].to_string().contains("leases.coordination.k8s.io");
    let is_partial = names_right && shown["lease"].is_null();
    ensure(is_partial, || format!("without the right to read the Lease: {shown}"))?;
    let marks = marks(&page).await?;
    ensure(marks.is_empty(), || format!("without the right to read the Lease: {marks:?}"))?;

    let rules = json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
        "resourceNames": ["concertina"], "verbs": ["get"]}]);
    grant(stage, "lease-reader", OPERATOR, "default", &rules).await?;
    shows(&page, &[&first]).await.context(process.tail(20))?;

    replicas.start_with(stage, "b", &[]).await?;
    replicas.get("a")?.signal("TERM")?;
    let second = holder_other_than(stage, &first).await.context(replicas.tails())?;
    shows(&page, &[&first, &second]).await.context(process.tail(20))?;

    replicas.start_with(stage, "a", &[]).await?;
    replicas.get("b")?.signal("KILL")?;
    let third = holder_other_than(stage, &second).await.context(replicas.tails())?;
    shows(&page, &[&first, &second, &third]).await.context(process.tail(20))?;
    world.close().await
}

/// Waits until the Lease has a holder other than `former`. Returns the holder.
async fn holder_other_than(stage: &Fixture, former: &str) -> Outcome<String> {
    eventually(CRASH, "the Lease has another holder", async || {
        let lease = stage.plane.admin.get(LEASE).await?;
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        ensure(!holder.is_empty() && holder != former, || lease["spec"].to_string())?;
        Ok(holder.to_owned())
    })
    .await
}

/// Waits until the page shows `leaders`, oldest first. The state of the controller names the last leader, and the
/// timeline of the HPA has a mark for each leader.
async fn shows(page: &Rest, leaders: &[&str]) -> Outcome {
    eventually(SOON, &format!("the page shows the leaders {leaders:?}"), async || {
        let state = page.get("/controller").await?;
        let holder = &state["lease"]["holder"];
        ensure(leaders.last().is_some_and(|last| *holder == *last), || format!("{holder} leads"))?;
        let marks = marks(page).await?;
        let expected: Vec<_> =
            leaders.iter().map(|leader| format!("leader change: {leader} leads")).collect();
        ensure(marks == expected, || format!("the timeline shows {marks:?}"))
    })
    .await
}

/// The changes of the leader on the timeline of the HPA.
async fn marks(page: &Rest) -> Outcome<Vec<String>> {
    let document = page.get(&format!("/hpas/{NAMESPACE}/web")).await?;
    let data = document.pointer("/timeline/data").ok_or("the page of the HPA has no timeline")?;
    let mut texts = Vec::new();
    collect(data, &mut texts);
    texts.retain(|text| text.starts_with("leader change"));
    Ok(texts)
}

/// Collects all strings of a document.
fn collect(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| collect(value, texts)),
        Value::Object(fields) => fields.values().for_each(|value| collect(value, texts)),
        _ => {}
    }
}

/// Starts `concertina console` as a user with read access to HPAs. Returns a client of its page.
async fn start_console(stage: &Fixture) -> Outcome<(Process, Rest)> {
    let kubeconfig = stage.plane.service_account("default", OPERATOR).await?;
    bind(stage, OPERATOR, "system:aggregate-to-view").await?;
    let mut command = Command::new(binary());
    command.args(["console", "--browser=off", "--kubeconfig"]).arg(kubeconfig).env_remove("HTTP_PROXY");
    let process = Process::start("console", command, stage.plane.folder())?;
    process.wait_for_log("http://127.0.0.1:", SOON).await?;
    let output = process.tail(20);
    let url = output.lines().map(str::trim).find(|line| line.starts_with("http://127.0.0.1:"));
    let url = url.ok_or_else(|| Failure(output.clone()))?;
    let page = Rest::new(url.trim_end_matches('/'), "")?;
    eventually(SOON, "the page has the HPA", async || page.get(&format!("/hpas/{NAMESPACE}/web")).await)
        .await?;
    Ok((process, page))
}
