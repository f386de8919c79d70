//! A real control plane on loopback: etcd, kube-apiserver and the workload controllers of
//! kube-controller-manager, with their data in a temporary folder.
//!
//! The ServiceAccount admission plugin is off, because no controller creates default accounts here. Only the
//! controllers that workloads and autoscalers need are on.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::json;

use super::outcome::{Context, Failure, Outcome, Process, eventually};
use super::rest::Rest;

/// The token of a user in `system:masters`, which RBAC allows everything.
pub(crate) const ADMIN_TOKEN: &str = "test-admin";
pub(crate) const MANAGER_TOKEN: &str = "test-manager";

/// The maximum time until the API server is ready on a busy machine.
const START: Duration = Duration::from_secs(90);

pub(crate) struct ControlPlane {
    /// Folder with the keys, data and logs of the run.
    folder: Folder,
    assets: PathBuf,
    etcd: String,
    port: u16,
    pub(crate) url: String,
    pub(crate) admin: Rest,
    /// Processes in reverse order of start, so that clients stop before their servers.
    processes: Vec<Process>,
}

impl ControlPlane {
    /// Starts etcd and an API server, and waits until the API server is ready. The audit log has the requests of the
    /// accounts that the tests check.
    pub(crate) async fn start() -> Outcome<Self> {
        Self::start_with_audit_policy(Some(&audit_policy())).await
    }

    /// Like [`Self::start`], but with another audit policy. `None` turns audit logging off.
    pub(crate) async fn start_with_audit_policy(audit_policy: Option<&str>) -> Outcome<Self> {
        let assets = folder()?;
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

    /// Restarts the API server at the same address, with the same keys.
    pub(crate) async fn restart_apiserver(&mut self) -> Outcome {
        self.run_apiserver()?;
        self.wait_ready().await
    }

    fn start_apiserver(&mut self, audit_policy: Option<&str>) -> Outcome {
        let keys = Keys::generate()?;
        fs::write(self.authority(), &keys.authority_pem)?;
        fs::write(self.path("server.crt"), &keys.certificate_pem)?;
        fs::write(self.path("server.key"), &keys.key_pem)?;
        write_service_account_keys(&self.path("accounts.key"), &self.path("accounts.pub"))?;
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
            // The API server writes both authorities to a ConfigMap. Servers behind the aggregation layer read it.
            ("client-ca-file", "authority.crt"),
            ("requestheader-client-ca-file", "authority.crt"),
            ("proxy-client-cert-file", "server.crt"),
            ("proxy-client-key-file", "server.key"),
            ("audit-policy-file", "audit-policy.json"),
            ("audit-log-path", "audit.log"),
        ] {
            if flag.starts_with("audit-") && !self.path("audit-policy.json").exists() {
                continue;
            }
            server.arg(format!("--{flag}={}", self.path(file).display()));
        }
        // The unit is a megabyte. The tests read one file, so the log must not be rotated.
        server.arg("--audit-log-maxsize=10000");
        server.args([
            // The name in the proxy's client certificate, which is signed by the authority of ordinary clients.
            "--requestheader-allowed-names=localhost",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount",
            // No test uses the endpoint of the server itself, and the server refuses a loopback address.
            "--endpoint-reconciler-type=none",
            // Pods run nowhere, so privileged containers are not needed.
            "--allow-privileged=false",
        ]);
        self.spawn("kube-apiserver", server)
    }

    async fn wait_ready(&mut self) -> Outcome {
        let Self { admin, processes, .. } = self;
        let ready = eventually(START, "the API server is ready", async || {
            for process in processes.iter_mut() {
                process.still_runs()?;
            }
            admin.get("/readyz").await.map(drop)?;
            // A startup hook creates the roles of controllers. /readyz waits for the hook, and this request for the
            // role.
            admin.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/system:controller:horizontal-pod-autoscaler").await
        })
        .await;
        match ready {
            Ok(_) => Ok(()),
            Err(Failure(reason)) => Err(Failure(format!("{reason}\n{}", self.tails()))),
        }
    }

    /// Starts kube-controller-manager with only the named controllers.
    ///
    /// As in a cluster, the manager watches as its own user, and sends all other requests as one ServiceAccount per
    /// controller.
    pub(crate) fn start_controllers(&mut self, name: &str, controllers: &str, more: &[String]) -> Outcome {
        let process = self.controllers(name, controllers, more)?;
        self.processes.insert(0, process);
        Ok(())
    }

    /// Like [`Self::start_controllers`], but the caller owns the process.
    pub(crate) fn controllers(&self, name: &str, controllers: &str, more: &[String]) -> Outcome<Process> {
        let mut manager = Command::new(self.assets.join("kube-controller-manager"));
        manager.arg("--kubeconfig").arg(self.manager_kubeconfig()?);
        manager.arg(format!("--controllers={controllers}"));
        manager.args([
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--secure-port=0",
            // Many scenarios share one client, and none of them tests its rate limits.
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        ]);
        manager.args(more);
        Process::start(name, manager, &self.folder.0)
    }

    /// A kubeconfig for the user system:kube-controller-manager, as in kubeadm's
    /// controller-manager.conf.
    pub(crate) fn manager_kubeconfig(&self) -> Outcome<PathBuf> {
        let path = self.path("manager.kubeconfig");
        write_kubeconfig(&path, &self.url, &self.authority(), MANAGER_TOKEN)?;
        Ok(path)
    }

    /// A kubeconfig for a ServiceAccount, which is created if it does not exist.
    pub(crate) async fn service_account(&self, namespace: &str, name: &str) -> Outcome<PathBuf> {
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        if self.admin.get(&format!("{accounts}/{name}")).await.is_err() {
            self.admin.create(&accounts, &json!({"metadata": {"name": name}})).await?;
        }
        let request = json!({"spec": {"expirationSeconds": 7200}});
        let answer = self.admin.create(&format!("{accounts}/{name}/token"), &request).await?;
        let token = answer.pointer("/status/token").and_then(|token| token.as_str());
        let token = token.ok_or_else(|| Failure(format!("the token response has no token: {answer}")))?;
        let path = self.path(&format!("{name}.kubeconfig"));
        write_kubeconfig(&path, &self.url, &self.authority(), token)?;
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

    /// The process id of a program of the control plane.
    pub(crate) fn process_id(&self, name: &str) -> Outcome<u32> {
        let process = self.processes.iter().find(|process| process.name() == name);
        process.map(Process::id).ok_or_else(|| Failure(format!("{name} is not running")))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.0.join(name)
    }

    fn authority(&self) -> PathBuf {
        self.path("authority.crt")
    }

    /// The audit log of the API server, with one JSON object per line.
    pub(crate) fn audit_log(&self) -> Outcome<String> {
        fs::read_to_string(self.path("audit.log")).context("audit log")
    }

    /// The last lines of all logs, for a failure report.
    pub(crate) fn tails(&self) -> String {
        self.processes.iter().map(|process| process.tail(15)).collect()
    }
}

/// Logs all requests of the accounts that the tests check, and no other requests, which keeps the file small.
fn audit_policy() -> String {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": [
            {"level": "Metadata", "users": [
                super::audit::AUTOSCALER,
                "system:serviceaccount:default:viewer",
                "system:serviceaccount:kube-system:concertina-shadow",
            ]},
            // Each replica has its own account, so the log shows which replica sent a request.
            {"level": "Metadata", "userGroups": ["system:serviceaccounts:replicas"]},
            {"level": "None"},
        ],
    })
    .to_string()
}

/// A port that was free when this function returned. Each call returns another port. Ports of outgoing connections
/// start at 32768, so no connection of another test takes this port before its server listens.
pub(crate) fn free_port() -> Outcome<u16> {
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 22_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..COUNT {
        // Each process starts at another port.
        let number = std::process::id().wrapping_mul(64).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + number % COUNT)?;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Failure(format!("no free port of the {COUNT} from {FIRST}")))
}

/// A folder that is removed on drop, unless `CONCERTINA_E2E_KEEP` is set.
struct Folder(PathBuf);

impl Folder {
    fn create() -> Outcome<Self> {
        // The port makes the name unique among running tests, and the process id among earlier tests.
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

/// Kubernetes' conventional variable for a folder with etcd and kube-apiserver. These tests also need
/// kube-controller-manager in it.
const VARIABLE: &str = "KUBEBUILDER_ASSETS";

pub(crate) fn folder() -> Outcome<PathBuf> {
    let how = "export KUBEBUILDER_ASSETS=\"$(tests/controlplane/build.sh)\"";
    let folder = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    let folder =
        folder.ok_or_else(|| Failure(format!("{VARIABLE} is not set; build the programs with: {how}")))?;
    let folder = PathBuf::from(folder);
    for program in ["etcd", "kube-apiserver", "kube-controller-manager"] {
        if !folder.join(program).is_file() {
            let folder = folder.display();
            return Err(Failure(format!(
                "{VARIABLE}={folder} has no {program}; build a complete folder with: {how}"
            )));
        }
    }
    Ok(folder)
}

/// A certificate authority, and a certificate of this authority for local names.
pub(crate) struct Keys {
    pub(crate) authority_pem: String,
    pub(crate) certificate_pem: String,
    pub(crate) certificate_der: Vec<u8>,
    pub(crate) key_pem: String,
    pub(crate) key_der: Vec<u8>,
}

impl Keys {
    pub(crate) fn generate() -> Outcome<Self> {
        let authority_key = KeyPair::generate()?;
        let mut authority = CertificateParams::new(Vec::<String>::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, "test control plane");
        let authority_certificate = authority.self_signed(&authority_key)?;
        let issuer = Issuer::new(authority, authority_key);

        let key = KeyPair::generate()?;
        let names = ["localhost", "127.0.0.1", "kubernetes.default.svc"].map(str::to_owned).to_vec();
        let mut leaf = CertificateParams::new(names)?;
        leaf.distinguished_name.push(DnType::CommonName, "localhost");
        let certificate = leaf.signed_by(&key, &issuer)?;
        Ok(Self {
            authority_pem: authority_certificate.pem(),
            certificate_pem: certificate.pem(),
            certificate_der: certificate.der().to_vec(),
            key_pem: key.serialize_pem(),
            key_der: key.serialize_der(),
        })
    }
}

/// Writes the key pair that signs and verifies ServiceAccount tokens.
pub(crate) fn write_service_account_keys(private: &Path, public: &Path) -> Outcome {
    let key = KeyPair::generate()?;
    fs::write(private, key.serialize_pem()).context("service account key")?;
    fs::write(public, key.public_key_pem()).context("service account key")
}

/// Writes a kubeconfig for one user with a token.
pub(crate) fn write_kubeconfig(path: &Path, server: &str, authority: &Path, token: &str) -> Outcome {
    // JSON is valid YAML, so no YAML writer is needed.
    let config = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority": authority}}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    });
    fs::write(path, config.to_string()).context(path.display())
}
