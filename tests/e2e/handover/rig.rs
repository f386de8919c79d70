//! The shared parts of the handover tests: the built-in controller, replicas behind a Service, and HPAs whose metrics
//! change constantly.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::log::first_write;
use crate::controlplane::{self, ADMIN_TOKEN, free_port};
use crate::election::now;
use crate::outcome::{Context as _, Failure, Outcome, Process, ensure, eventually};
use crate::world::{APP, Autoscaler, DECISION_FLAGS, Fixture, SOON, World, binary, cpu_utilization};

pub(crate) const PERIOD: Duration = Duration::from_secs(2);
const PERIOD_FLAG: &str = "--horizontal-pod-autoscaler-sync-period=2s";
/// The duration of the Lease.
pub(crate) const LEASE: Duration = Duration::from_secs(6);
const LEASE_FLAGS: [&str; 3] = [
    "--leader-elect-lease-duration=6s",
    "--leader-elect-renew-deadline=4s",
    "--leader-elect-retry-period=1s",
];
/// The namespace of Concertina. The audit log covers its accounts.
pub(crate) const HOME: &str = "replicas";
pub(crate) const LABEL: &str = "concertina.dev/controller";
/// The additional time that a busy machine may take.
pub(crate) const SLACK: Duration = Duration::from_millis(1500);
pub(crate) const CONFIGURATION: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/concertina-handover";

/// A replica with the ports of its webhook and of its pages.
pub(crate) struct Replica {
    pub(crate) process: Process,
    pub(crate) webhook: u16,
    pub(crate) pages: u16,
}

/// Creates the namespace, the Secret and the webhook configuration, and starts the Service.
pub(crate) async fn webhook(stage: &Fixture) -> Outcome<Service> {
    let service = Service::start().await?;
    let admin = &stage.plane.admin;
    create_namespace(stage, HOME).await?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "concertina-handover"}});
    admin.create(&format!("/api/v1/namespaces/{HOME}/secrets"), &secret).await?;
    let mut configuration = shipped("webhook/webhook.yaml")?.remove(0);
    // The API server runs outside of the cluster network.
    let url = format!("https://127.0.0.1:{}/handover", service.port);
    for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
        webhook["clientConfig"] = json!({"url": url});
    }
    admin.create(&path_of(&configuration), &configuration).await?;
    Ok(service)
}

/// Creates the policies and their bindings.
pub(crate) async fn policies(stage: &Fixture) -> Outcome {
    create_namespace(stage, HOME).await?;
    for object in shipped("policy/policies.yaml")? {
        stage.plane.admin.create(&path_of(&object), &object).await?;
    }
    // The API server compiles policies in the background.
    sleep(Duration::from_secs(2)).await;
    Ok(())
}

/// Starts a replica as the account `name`, with exactly the permissions that `concertina rbac` prints.
pub(crate) async fn replica(stage: &Fixture, name: &str, more: &[&str]) -> Outcome<Replica> {
    let (webhook, pages) = (free_port()?, free_port()?);
    let ports = [format!("--handover-webhook-port={webhook}"), format!("--health-address=127.0.0.1:{pages}")];
    let mut flags = vec![PERIOD_FLAG, "--scope=labelled", "--secure-port=0", "--bind-address=127.0.0.1"];
    flags.extend(["--leader-elect-resource-namespace=replicas", "--handover-namespace=replicas"]);
    flags.extend(["--kube-api-qps=500", "--kube-api-burst=1000"]);
    flags.extend(LEASE_FLAGS);
    flags.extend(DECISION_FLAGS.iter().chain(more));
    flags.extend(ports.iter().map(String::as_str));
    let account = format!("/api/v1/namespaces/{HOME}/serviceaccounts/{name}");
    let is_new = stage.plane.admin.get(&account).await.is_err();
    let kubeconfig = stage.plane.service_account(HOME, name).await?;
    if is_new {
        let mut rbac = Command::new(binary());
        rbac.arg("rbac").arg(format!("--service-account={HOME}/{name}")).arg(format!("--name={name}"));
        let printed = rbac.args(&flags).output()?;
        ensure(printed.status.success(), || String::from_utf8_lossy(&printed.stderr).into_owned())?;
        let printed = String::from_utf8(printed.stdout)?;
        // All replicas have the same ConfigMaps of histories.
        let histories = "/api/v1/namespaces/replicas/configmaps/concertina-history-0";
        let are_there = stage.plane.admin.get(histories).await.is_ok();
        let documents =
            printed.split("\n---\n").filter(|it| !(are_there && it.contains("kind: ConfigMap\n")));
        stage.plane.admin.create_all(&documents.collect::<Vec<_>>().join("\n---\n")).await?;
    }
    let mut command = Command::new(binary());
    command.arg("--kubeconfig").arg(kubeconfig).args(&flags);
    let process = Process::start(&format!("concertina-{name}"), command, stage.plane.folder())?;
    Ok(Replica { process, webhook, pages })
}

impl Replica {
    /// Waits until this replica finds its guard in place.
    pub(crate) async fn ready(&self) -> Outcome {
        self.process.wait_for_log("the guard is in place", SOON).await.context(self.process.tail(20))
    }

    /// The flag that names this replica as the leader.
    pub(crate) fn address_flag(&self) -> String {
        format!("--from=http://127.0.0.1:{}", self.pages)
    }

    /// The output of `concertina handover status` for a namespace, read from this replica.
    pub(crate) async fn status(&self, stage: &Fixture, namespace: &str) -> Outcome<Value> {
        let mut command = Command::new(binary());
        let flags = ["--namespace", namespace, "--output=json", &self.address_flag()];
        command.env("KUBECONFIG", kubeconfig(stage)?).args(["handover", "status"]).args(flags);
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        serde_json::from_str(&text).context(format!("{text}{}", String::from_utf8_lossy(&output.stderr)))
    }

    /// Waits until `count` HPAs of a namespace are in scope, and all are in the state `expected`.
    pub(crate) async fn all_are(
        &self,
        stage: &Fixture,
        namespace: &str,
        expected: &str,
        count: usize,
    ) -> Outcome<Value> {
        eventually(SOON, &format!("{count} HPAs are {expected}"), async || {
            let status = self.status(stage, namespace).await?;
            let hpas = status["hpas"].as_array().map(Vec::as_slice).unwrap_or_default();
            let same = hpas.iter().filter(|hpa| hpa["state"] == expected).count();
            ensure(same == count && hpas.len() == count, || {
                format!("{same} of {}: {}", hpas.len(), status["guard"])
            })?;
            Ok(status)
        })
        .await
        .context(self.process.tail(20))
    }
}

/// A kubeconfig of an administrator.
pub(crate) fn kubeconfig(stage: &Fixture) -> Outcome<std::path::PathBuf> {
    let path = stage.plane.folder().join("admin.kubeconfig");
    controlplane::write_kubeconfig(
        &path,
        &stage.plane.url,
        &stage.plane.folder().join("authority.crt"),
        ADMIN_TOKEN,
    )?;
    Ok(path)
}

/// Starts the built-in controller with the period of these tests.
pub(crate) async fn built_in(stage: &Fixture) -> Outcome<Process> {
    stage.autoscaler_with(Autoscaler::BuiltIn, &[PERIOD_FLAG]).await
}

/// Creates Deployments of two pods, each with an HPA.
pub(crate) async fn hpas(world: &World, names: &[&str]) -> Outcome {
    for name in names {
        world.cpu(name, 100);
        world.deployment(name, 2, APP).await?;
        let spec = json!({"minReplicas": 1, "maxReplicas": 8, "metrics": [cpu_utilization(50)]});
        world.hpa(name, ("apps/v1", "Deployment", name), spec).await?;
    }
    Ok(())
}

/// Changes the metrics constantly, so that every sync has a status to write. They stay within the tolerance of two
/// replicas.
pub(crate) async fn change_loads(world: &World, names: &[&str]) -> Failure {
    for step in 0_i64.. {
        for name in names {
            world.cpu(name, 93 + (step * 5) % 14);
        }
        sleep(Duration::from_millis(300)).await;
    }
    Failure("the load ended".to_owned())
}

/// Runs `scenario` while the metrics of `names` change.
pub(crate) async fn with_load<T>(
    world: &World,
    names: &[&str],
    scenario: impl Future<Output = Outcome<T>>,
) -> Outcome<T> {
    tokio::select! {
        biased;
        outcome = scenario => outcome,
        failure = change_loads(world, names) => Err(failure),
    }
}

/// Sets or removes the label of an HPA. Returns the time before the request.
pub(crate) async fn label(world: &World, name: &str, value: Option<&str>) -> Outcome<Timestamp> {
    let at = now();
    world.api.merge(&world.hpas(name), &json!({"metadata": {"labels": {LABEL: value}}})).await?;
    Ok(at)
}

/// Labels an HPA, and waits for the first write of Concertina. Returns the time of that write.
pub(crate) async fn take(stage: &Fixture, world: &World, name: &str) -> Outcome<Timestamp> {
    let labelled = label(world, name, Some("concertina")).await?;
    let first = first_write(stage, true, (&world.namespace, name), labelled).await?;
    let took = first.duration_since(labelled).unsigned_abs();
    eprintln!("    label of {name}: first own write after {:.1} s", took.as_secs_f32());
    ensure(took <= PERIOD + Duration::from_secs(1) + SLACK, || {
        format!("first own write of {name} after {took:?}")
    })?;
    Ok(first)
}

pub(crate) async fn create_namespace(stage: &Fixture, name: &str) -> Outcome {
    let body = json!({"metadata": {"name": name}});
    stage.plane.admin.create("/api/v1/namespaces", &body).await.map(drop)
}

/// Reads the objects of a guard from a file of `deploy/kustomize/components`.
pub(crate) fn shipped(file: &str) -> Outcome<Vec<Value>> {
    let path = format!("{}/deploy/kustomize/components/guard-{file}", env!("CARGO_MANIFEST_DIR"));
    Ok(serde_saphyr::from_multiple(&std::fs::read_to_string(path)?)?)
}

pub(crate) fn path_of(object: &Value) -> String {
    let resource = match object["kind"].as_str().unwrap_or_default() {
        "ValidatingAdmissionPolicy" => "validatingadmissionpolicies",
        "ValidatingAdmissionPolicyBinding" => "validatingadmissionpolicybindings",
        _ => "validatingwebhookconfigurations",
    };
    format!("/apis/admissionregistration.k8s.io/v1/{resource}")
}

/// Forwards each connection of the API server to the webhook of one of the replicas.
pub(crate) struct Service {
    pub(crate) port: u16,
    endpoints: Arc<Mutex<Vec<u16>>>,
    task: JoinHandle<()>,
}

impl Service {
    pub(crate) async fn start() -> Outcome<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let endpoints = Arc::<Mutex<Vec<u16>>>::default();
        let ports = Arc::clone(&endpoints);
        let task = tokio::spawn(async move {
            let mut turn = 0_usize;
            while let Ok((mut client, _)) = listener.accept().await {
                turn += 1;
                let mut ports = ports.lock().clone();
                let first = turn.checked_rem(ports.len()).unwrap_or(0);
                ports.rotate_left(first);
                tokio::spawn(async move {
                    for port in ports {
                        if let Ok(mut replica) = TcpStream::connect(("127.0.0.1", port)).await {
                            // A closed connection is not an error.
                            let _ = copy_bidirectional(&mut client, &mut replica).await;
                            return;
                        }
                    }
                });
            }
        });
        Ok(Self { port, endpoints, task })
    }

    /// Sets the ports of the ready replicas. Open connections stay.
    pub(crate) fn set(&self, ports: &[u16]) {
        *self.endpoints.lock() = ports.to_vec();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}
