//! A real control plane on loopback: etcd, kube-apiserver and the workload
//! controllers of kube-controller-manager, in a folder of its own.
//!
//! What is left out on purpose: the ServiceAccount admission (no controller
//! makes default accounts here) and every controller that a workload with
//! pods, or an autoscaler, does not need.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use super::assets::{self, Keys};
use super::outcome::{Context, Failure, Outcome, eventually};
use super::process::Process;
use super::rest::Rest;

/// In `system:masters`: RBAC lets it do everything.
pub(crate) const ADMIN_TOKEN: &str = "admin-of-the-test";
pub(crate) const MANAGER_TOKEN: &str = "manager-of-the-test";

/// How long a program may take to get ready on a machine that does other things too.
const START: Duration = Duration::from_secs(90);

pub(crate) struct ControlPlane {
    /// Everything of this run: keys, data, logs.
    folder: Folder,
    assets: PathBuf,
    etcd: String,
    port: u16,
    pub(crate) url: String,
    pub(crate) admin: Rest,
    /// Last started first, so that clients end before what they talk to.
    processes: Vec<Process>,
}

impl ControlPlane {
    /// etcd and an API server that is ready, nothing else. It logs the requests of those that tests ask about.
    pub(crate) async fn start() -> Outcome<Self> {
        Self::logging(Some(&audit_policy())).await
    }

    /// The same with another audit policy; without one nothing is logged.
    pub(crate) async fn logging(audit_policy: Option<&str>) -> Outcome<Self> {
        let assets = assets::folder()?;
        let folder = Folder::create()?;
        let port = free_port()?;
        let url = format!("https://127.0.0.1:{port}");
        let admin = Rest::new(&url, ADMIN_TOKEN)?;
        let mut plane = Self { folder, assets, etcd: String::new(), port, url, admin, processes: Vec::new() };
        plane.etcd = plane.start_etcd()?;
        plane.start_apiserver(audit_policy)?;
        plane.wait_ready().await?;
        Ok(plane)
    }

    fn start_etcd(&mut self) -> Outcome<String> {
        let client = format!("http://127.0.0.1:{}", free_port()?);
        let peer = format!("http://127.0.0.1:{}", free_port()?);
        let mut etcd = Command::new(self.assets.join("etcd"));
        etcd.arg("--data-dir").arg(self.path("etcd"));
        etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        etcd.args(["--initial-cluster", &format!("default={peer}")]);
        // The data does not outlive the test, so no write needs to reach the disk.
        etcd.args(["--unsafe-no-fsync", "--log-level", "warn"]);
        self.spawn("etcd", etcd)?;
        Ok(client)
    }

    /// Kills the API server. Its data stays.
    pub(crate) fn stop_apiserver(&mut self) {
        self.processes.retain(|process| process.name() != "kube-apiserver");
    }

    /// Starts it again at the same address, with the same keys.
    pub(crate) async fn start_apiserver_again(&mut self) -> Outcome {
        self.run_apiserver()?;
        self.wait_ready().await
    }

    fn start_apiserver(&mut self, audit_policy: Option<&str>) -> Outcome {
        let keys = Keys::generate()?;
        fs::write(self.authority(), &keys.authority_pem)?;
        fs::write(self.path("server.crt"), &keys.certificate_pem)?;
        fs::write(self.path("server.key"), &keys.key_pem)?;
        assets::write_service_account_keys(&self.path("accounts.key"), &self.path("accounts.pub"))?;
        fs::write(
            self.path("tokens.csv"),
            format!(
                "{ADMIN_TOKEN},admin,admin,system:masters\n\
                 {MANAGER_TOKEN},system:kube-controller-manager,manager\n"
            ),
        )?;
        if let Some(policy) = audit_policy {
            fs::write(self.path("audit-policy.json"), policy)?;
        }
        self.run_apiserver()
    }

    fn run_apiserver(&mut self) -> Outcome {
        let mut server = Command::new(self.assets.join("kube-apiserver"));
        server.args(["--etcd-servers", &self.etcd, "--bind-address", "127.0.0.1"]);
        server.arg(format!("--secure-port={}", self.port));
        for (flag, file) in [
            ("cert-dir", "certificates"),
            ("tls-cert-file", "server.crt"),
            ("tls-private-key-file", "server.key"),
            ("token-auth-file", "tokens.csv"),
            ("service-account-signing-key-file", "accounts.key"),
            ("service-account-key-file", "accounts.pub"),
            ("audit-policy-file", "audit-policy.json"),
            ("audit-log-path", "audit.log"),
        ] {
            if flag.starts_with("audit-") && !self.path("audit-policy.json").exists() {
                continue;
            }
            server.arg(format!("--{flag}={}", self.path(file).display()));
        }
        server.args([
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount",
            // Nobody asks for the address of the server itself, and a loopback one would be refused.
            "--endpoint-reconciler-type=none",
            // Pods run nowhere; nothing here makes priority or flow objects worth their start-up time.
            "--allow-privileged=false",
        ]);
        self.spawn("kube-apiserver", server)
    }

    async fn wait_ready(&mut self) -> Outcome {
        let Self { admin, processes, .. } = self;
        let ready = eventually(START, "the API server gets ready", async || {
            for process in processes.iter_mut() {
                process.still_runs()?;
            }
            admin.get("/readyz").await.map(drop)?;
            // The controllers' roles are made by a start-up hook that /readyz waits for; look all the same.
            admin.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/system:controller:horizontal-pod-autoscaler").await
        })
        .await;
        match ready {
            Ok(_) => Ok(()),
            Err(Failure(reason)) => Err(Failure(format!("{reason}\n{}", self.tails()))),
        }
    }

    /// kube-controller-manager with nothing but the named controllers.
    ///
    /// It works under the built-in identities: the user of the manager for its
    /// watches, one ServiceAccount per controller for everything else.
    pub(crate) fn start_controllers(&mut self, name: &str, controllers: &str, more: &[String]) -> Outcome {
        let process = self.controllers(name, controllers, more)?;
        self.processes.insert(0, process);
        Ok(())
    }

    /// The same, in the hands of the caller.
    pub(crate) fn controllers(&self, name: &str, controllers: &str, more: &[String]) -> Outcome<Process> {
        let mut manager = Command::new(self.assets.join("kube-controller-manager"));
        manager.arg("--kubeconfig").arg(self.manager_kubeconfig()?);
        manager.arg(format!("--controllers={controllers}"));
        manager.args([
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--secure-port=0",
            // Many scenarios share one client here; the limits are not what they are about.
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        ]);
        manager.args(more);
        Process::start(name, manager, &self.folder.0)
    }

    /// What kubeadm calls controller-manager.conf: a kubeconfig for user system:kube-controller-manager.
    pub(crate) fn manager_kubeconfig(&self) -> Outcome<PathBuf> {
        let path = self.path("manager.kubeconfig");
        assets::write_kubeconfig(&path, &self.url, &self.authority(), MANAGER_TOKEN)?;
        Ok(path)
    }

    /// A kubeconfig for a ServiceAccount, which is made if it is not there.
    pub(crate) async fn service_account(&self, namespace: &str, name: &str) -> Outcome<PathBuf> {
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        if self.admin.get(&format!("{accounts}/{name}")).await.is_err() {
            self.admin.create(&accounts, &json!({"metadata": {"name": name}})).await?;
        }
        let request = json!({"spec": {"expirationSeconds": 7200}});
        let answer = self.admin.create(&format!("{accounts}/{name}/token"), &request).await?;
        let token = answer.pointer("/status/token").and_then(|token| token.as_str());
        let token = token.ok_or_else(|| Failure(format!("no token in {answer}")))?;
        let path = self.path(&format!("{name}.kubeconfig"));
        assets::write_kubeconfig(&path, &self.url, &self.authority(), token)?;
        Ok(path)
    }

    fn spawn(&mut self, name: &str, command: Command) -> Outcome {
        let process = Process::start(name, command, &self.folder.0)?;
        self.processes.insert(0, process);
        Ok(())
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder.0
    }

    /// The process id of a program that was started here.
    pub(crate) fn id_of(&self, name: &str) -> Outcome<u32> {
        let process = self.processes.iter().find(|process| process.name() == name);
        process.map(Process::id).ok_or_else(|| Failure(format!("{name} does not run")))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.0.join(name)
    }

    fn authority(&self) -> PathBuf {
        self.path("authority.crt")
    }

    /// What the server wrote about requests; see [`super::audit`].
    pub(crate) fn audit_log(&self) -> Outcome<String> {
        fs::read_to_string(self.path("audit.log")).context("audit log")
    }

    /// The ends of all logs, for a report.
    pub(crate) fn tails(&self) -> String {
        self.processes.iter().map(|process| process.tail(15)).collect()
    }
}

/// All requests of the autoscaler's ServiceAccount, who- and whatever sends
/// them; nothing else, which keeps the file small.
fn audit_policy() -> String {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": [
            {"level": "Metadata", "users": [
                super::audit::AUTOSCALER,
                "system:serviceaccount:default:onlooker",
                "system:serviceaccount:kube-system:concertina-shadow",
            ]},
            // One account for each replica, where it matters which one wrote.
            {"level": "Metadata", "userGroups": ["system:serviceaccounts:replicas"]},
            {"level": "None"},
        ],
    })
    .to_string()
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> Outcome<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// A folder that goes with its owner, unless `CONCERTINA_E2E_KEEP` is set.
struct Folder(PathBuf);

impl Folder {
    fn create() -> Outcome<Self> {
        // The port makes the name unique among tests that run now, the process among those that ran.
        let name = format!("concertina-e2e-{}-{}", std::process::id(), free_port()?);
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).context(path.display())?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::env::var_os("CONCERTINA_E2E_KEEP").is_none() {
            let _ = fs::remove_dir_all(&self.0);
        } else {
            eprintln!("kept: {}", self.0.display());
        }
    }
}
