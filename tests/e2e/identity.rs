//! The identities and roles of Concertina: a kubeadm command line with its controller-manager.conf, and exactly the
//! roles that `concertina rbac` prints.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flags::kcm;
use http::Method;
use serde_json::{Value, json};

use crate::audit::{AUTOSCALER, entries};
use crate::controlplane::{MANAGER_TOKEN, free_port};
use crate::metrics::Load;
use crate::outcome::{Context as _, Outcome, Process, ensure, eventually};
use crate::rest::{Rest, collection};
use crate::world::{
    self, APP, Autoscaler, DECISION_FLAGS, Fixture, SOON, World, cpu_utilization, external, pods_average,
};

pub(crate) const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
pub(crate) const BUILT_IN: &str = "system:controller:horizontal-pod-autoscaler";
/// The namespace of the account that requests tokens. The audit log has the requests of all accounts in this namespace.
const BASE_NAMESPACE: &str = "replicas";
const BASE: &str = "system:serviceaccount:replicas:base";
/// The account of the processes of these tests.
const ACCOUNT: &str = "--service-account=kube-system/horizontal-pod-autoscaler";
/// The flags as kubeadm writes them.
const KUBEADM: &[&str] = &[
    "--allocate-node-cidrs=true",
    "--bind-address=127.0.0.1",
    "--cluster-cidr=10.244.0.0/16",
    "--cluster-name=kubernetes",
    "--controllers=*,bootstrapsigner,tokencleaner",
    "--leader-elect=true",
    "--service-cluster-ip-range=10.96.0.0/12",
    "--use-service-account-credentials=true",
];

/// The parts run in this order, because each part removes rights that the previous part needs.
pub(crate) async fn roles(stage: &Fixture) -> Outcome {
    kubeadm(stage).await.context("kubeadm's command line")?;
    let bindings = format!("{RBAC}/clusterrolebindings/{BUILT_IN}");
    stage.plane.admin.delete(&bindings).await?;
    tokens(stage).await.context("with tokens of the account")?;
    namespaces(stage).await.context("with selected namespaces")
}

/// The rights of controller-manager.conf and of the built-in account suffice for a kubeadm command line.
async fn kubeadm(stage: &Fixture) -> Outcome {
    let world = World::make(stage, "kubeadm", Autoscaler::Concertina).await?;
    one_on_cpu(&world, "web").await?;
    let kubeconfig = stage.plane.manager_kubeconfig()?;
    let mut flags = Vec::new();
    // Pass all flags of kube-controller-manager with their defaults, and then the flags of a kubeadm manifest.
    for flag in kcm::flags().iter().filter(|flag| !matches!(flag.name, "help" | "secure-port")) {
        let default = flag.default.trim_matches(['[', ']']);
        if !default.is_empty() {
            flags.push(format!("--{}={default}", flag.name));
        }
    }
    flags.extend(KUBEADM.iter().map(ToString::to_string));
    for flag in ["authentication-kubeconfig", "authorization-kubeconfig"] {
        flags.push(format!("--{flag}={}", kubeconfig.display()));
    }
    flags.push(format!("--secure-port={}", free_port()?));
    // The built-in role allows no ConfigMaps.
    flags.push("--history-checkpoint=false".to_owned());
    let mut process = start(stage, "kubeadm", &kubeconfig, &flags)?;
    world.replicas_become(&world.deployments("web"), 4).await.context(process.tail(30))?;
    process.still_runs()?;
    let log = process.tail(100);
    // The built-in role allows neither lists of events, which only a restart needs, nor watches of targets.
    let expected = ["not allowed to list events", "not allowed to list, watch deployments.apps"];
    let mut missing = log.lines().filter(|line| line.contains("not allowed to"));
    ensure(missing.all(|line| expected.iter().any(|expected| line.contains(expected))), || log.clone())?;
    let requests = Requests::read(stage, 0)?;
    requests.none_is_refused()?;
    ensure(requests.find(AUTOSCALER, "update", "apps", "deployments", "scale"), || {
        "the ServiceAccount did not write the scale".to_owned()
    })?;
    drop(process);
    world.close().await
}

/// The printed roles suffice for the account and for the credentials that request its tokens.
async fn tokens(stage: &Fixture) -> Outcome {
    let admin = &stage.plane.admin;
    let from = stage.plane.audit_log()?.len();
    let world = World::make(stage, "tokens", Autoscaler::Concertina).await?;
    admin.create("/api/v1/namespaces", &json!({"metadata": {"name": BASE_NAMESPACE}})).await?;
    let kubeconfig = stage.plane.service_account(BASE_NAMESPACE, "base").await?;
    // The controller creates the account and the Lease again.
    admin.delete_now("/api/v1/namespaces/kube-system/serviceaccounts/horizontal-pod-autoscaler").await?;
    admin.delete("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/concertina").await?;
    let flags = ["--use-service-account-credentials", &format!("--user={BASE}")];
    let rules = grant(stage, &flags).await?;
    every_kind(&world).await?;
    // Every kind that an HPA refers to is watched, even if the target does not exist.
    for (version, kind) in
        [("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet"), ("v1", "ReplicationController")]
    {
        let spec = json!({"minReplicas": 1, "maxReplicas": 5});
        world.hpa(&kind.to_lowercase(), (version, kind, "nowhere"), spec).await?;
    }
    let port = free_port()?;
    let process =
        start(stage, "tokens", &kubeconfig, &[flags[0].to_owned(), format!("--secure-port={port}")])?;
    every_kind_acts(&world).await.context(process.tail(30))?;
    // A request of `/metrics` with a token causes a token review and an access review. An admin needs no access review,
    // so the request has the token of the manager.
    let manager = Rest::new(&format!("https://127.0.0.1:{port}"), MANAGER_TOKEN)?;
    let answer = manager.send(Method::GET, "/metrics", &[], None).await?;
    ensure(answer.code == 403, || format!("/metrics answers {} {}", answer.code, answer.text))?;
    end(process).await?;
    Requests::read(stage, from)?.none_is_refused()?;
    eventually(SOON, "every rule is used", async || Requests::read(stage, from)?.every_rule_is_used(&rules))
        .await?;
    revoke(stage, &rules).await?;
    world.close().await
}

/// The printed roles suffice for two selected namespaces. The HPAs of a third namespace stay untouched.
async fn namespaces(stage: &Fixture) -> Outcome {
    let from = stage.plane.audit_log()?.len();
    let mut worlds = Vec::new();
    for name in ["one", "two", "three"] {
        let world = World::make(stage, name, Autoscaler::Concertina).await?;
        every_kind(&world).await?;
        worlds.push(world);
    }
    let kubeconfig = stage.plane.service_account("kube-system", "horizontal-pod-autoscaler").await?;
    let flags = [
        "--watch-namespaces=one,two",
        "--leader-elect=false",
        "--scale-targets=deployments.apps",
        "--secure-port=0",
    ];
    let rules = grant(stage, &flags).await?;
    let kinds: BTreeSet<_> = rules.iter().map(|object| object["kind"].to_string()).collect();
    let expected = ["\"ConfigMap\"", "\"Role\"", "\"RoleBinding\""].map(str::to_owned);
    ensure(kinds == BTreeSet::from(expected), || format!("expected no cluster-wide kinds: {kinds:?}"))?;
    let process = start(stage, "namespaces", &kubeconfig, &flags.map(str::to_owned))?;
    for world in worlds.iter().take(2) {
        every_kind_acts(world).await.context(process.tail(30))?;
    }
    end(process).await?;
    Requests::read(stage, from)?.none_is_refused()?;
    eventually(SOON, "every rule is used", async || Requests::read(stage, from)?.every_rule_is_used(&rules))
        .await?;
    if let Some(third) = worlds.get(2) {
        let untouched = third.api.get(&third.hpas("cpu")).await?;
        ensure(untouched["status"]["conditions"].is_null(), || {
            format!("an HPA outside of the watched namespaces was changed: {untouched}")
        })?;
    }
    revoke(stage, &rules).await?;
    for world in &worlds {
        world.close().await?;
    }
    Ok(())
}

pub(crate) fn start(stage: &Fixture, name: &str, kubeconfig: &Path, flags: &[String]) -> Outcome<Process> {
    let mut command = Command::new(world::binary());
    command.args(flags).arg("--kubeconfig").arg(kubeconfig).args(DECISION_FLAGS);
    command.args(["--horizontal-pod-autoscaler-sync-period=1s", "--takeover=off"]);
    command.args(["--kube-api-qps=500", "--kube-api-burst=1000"]);
    Process::start(name, command, stage.plane.folder())
}

/// Stops the process with SIGTERM, which releases the Lease and ends the watches. The audit log has a watch only after
/// its end.
pub(crate) async fn end(mut process: Process) -> Outcome {
    process.signal("TERM")?;
    let code = process.wait_for_exit(SOON).await?;
    ensure(code == Some(0), || format!("exited with {code:?}\n{}", process.tail(20)))
}

async fn one_on_cpu(world: &World, name: &str) -> Outcome {
    world.deployment(name, 2, APP).await?;
    world.cpu(name, 200);
    let spec = json!({"minReplicas": 1, "maxReplicas": 5, "metrics": [cpu_utilization(50)]});
    world.hpa(name, ("apps/v1", "Deployment", name), spec).await
}

/// Creates HPAs that need every metrics API, and an HPA that fails at every sync.
async fn every_kind(world: &World) -> Outcome {
    one_on_cpu(world, "cpu").await?;
    for (name, metric) in
        [("pods", pods_average("requests", "10")), ("external", external("queue", "AverageValue", "10"))]
    {
        world.deployment(name, 2, APP).await?;
        let spec = json!({"minReplicas": 1, "maxReplicas": 5, "metrics": [metric]});
        world.hpa(name, ("apps/v1", "Deployment", name), spec).await?;
    }
    world.per_pod("pods", "requests", Load::Total(40, ""));
    world.external("queue", &["40"]);
    world.hpa("lost", ("apps/v1", "Deployment", "nowhere"), json!({"minReplicas": 1, "maxReplicas": 5})).await
}

async fn every_kind_acts(world: &World) -> Outcome {
    for name in ["cpu", "pods", "external"] {
        world.replicas_become(&world.deployments(name), 4).await?;
    }
    // A repeated event is patched.
    let path = format!("/api/v1/namespaces/{}/events", world.namespace);
    eventually(SOON, "an event is counted twice", async || {
        let events = world.api.list(&path).await?;
        let counted = events.iter().any(|event| event["count"].as_i64().unwrap_or_default() > 1);
        ensure(counted, || format!("{} events", events.len()))
    })
    .await
}

/// Creates the objects that `concertina rbac` prints for `flags`, as the admin.
pub(crate) async fn grant(stage: &Fixture, flags: &[&str]) -> Outcome<Vec<Value>> {
    let output = Command::new(world::binary()).args(["rbac", ACCOUNT]).args(flags).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure(output.status.success(), || String::from_utf8_lossy(&output.stderr).into_owned())?;
    stage.plane.admin.create_all(&text).await
}

pub(crate) async fn revoke(stage: &Fixture, objects: &[Value]) -> Outcome {
    for object in objects {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        stage.plane.admin.delete(&format!("{}/{name}", collection(object))).await?;
    }
    // A deleted binding stays effective until the authorizer has observed the deletion.
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(())
}

/// The requests of the account and of the credentials in the audit log.
pub(crate) struct Requests(Vec<Value>);

impl Requests {
    pub(crate) fn read(stage: &Fixture, from: usize) -> Outcome<Self> {
        let log = stage.plane.audit_log()?;
        let ours =
            |entry: &Value| entry["user"]["username"] == AUTOSCALER || entry["user"]["username"] == BASE;
        Ok(Self(entries(log.get(from..).unwrap_or_default()).filter(ours).collect()))
    }

    pub(crate) fn none_is_refused(&self) -> Outcome {
        let refused: BTreeSet<_> = self
            .0
            .iter()
            .filter(|entry| matches!(entry["responseStatus"]["code"].as_u64(), Some(401 | 403)))
            .map(|entry| format!("{} {}", entry["verb"], entry["requestURI"]))
            .collect();
        ensure(!self.0.is_empty() && refused.is_empty(), || format!("refused: {refused:#?}"))
    }

    pub(crate) fn find(
        &self,
        user: &str,
        verb: &str,
        group: &str,
        resource: &str,
        subresource: &str,
    ) -> bool {
        self.0.iter().any(|entry| {
            let object = &entry["objectRef"];
            let text = |field: &str| object[field].as_str().unwrap_or_default();
            entry["user"]["username"] == user
                && entry["verb"] == verb
                && (text("apiGroup"), text("resource"), text("subresource")) == (group, resource, subresource)
        })
    }

    /// Checks that each verb of each rule allowed at least one request of its subject.
    pub(crate) fn every_rule_is_used(&self, objects: &[Value]) -> Outcome {
        let mut unused = Vec::new();
        for role in objects.iter().filter(|object| object["rules"].is_array()) {
            let is_base =
                role["metadata"]["name"].as_str().is_some_and(|name| name.ends_with("-credentials"));
            let user = if is_base { BASE } else { AUTOSCALER };
            for rule in role["rules"].as_array().into_iter().flatten() {
                let resource = rule["resources"][0].as_str().unwrap_or_default();
                let is_watched = verbs(rule) == ["list", "watch"];
                for verb in rule["verbs"].as_array().into_iter().flatten() {
                    // A streaming watch replaces the list here, but older servers and some proxies need the list.
                    // Events are listed only after a restart, which another test covers.
                    if resource == "events" && *verb == "list" {
                        continue;
                    }
                    if is_watched && *verb == "list" && rule["apiGroups"][0] != "metrics.k8s.io" {
                        continue;
                    }
                    let is_used = |entry: &&Value| {
                        entry["user"]["username"] == user
                            && entry["verb"] == *verb
                            && allows(role, rule, &entry["objectRef"])
                    };
                    if !self.0.iter().any(|entry| is_used(&entry)) {
                        unused.push(format!("{} {verb} {resource}", role["metadata"]));
                    }
                }
            }
        }
        ensure(unused.is_empty(), || format!("rules that no request needed: {unused:#?}"))
    }
}

fn verbs(rule: &Value) -> Vec<&str> {
    rule["verbs"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn allows(granted: &Value, rule: &Value, object: &Value) -> bool {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (resource, subresource) = (text("resource"), text("subresource"));
    let full = if subresource.is_empty() { resource.to_owned() } else { format!("{resource}/{subresource}") };
    let first = |field: &str| rule[field][0].as_str().unwrap_or_default();
    let resource_rule = first("resources");
    let namespace = &granted["metadata"]["namespace"];
    (first("apiGroups") == "*" || first("apiGroups") == text("apiGroup"))
        && (resource_rule == "*" || resource_rule == full || resource_rule == format!("*/{subresource}"))
        && (rule["resourceNames"].is_null() || rule["resourceNames"][0] == object["name"])
        && (namespace.is_null() || *namespace == object["namespace"])
}
