//! The built program: command lines, exit codes, startup and shutdown.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "the tests wait for another process, which has no virtual time"
)]

#[path = "cli/tls.rs"]
mod tls;

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use flags::kcm;

/// Timeout of every step. A passing test takes much less.
const DEADLINE: Duration = Duration::from_secs(20);
/// An address without a listener.
const CLOSED: &str = "http://127.0.0.1:1";

fn concertina(flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    command.args(flags);
    // The environment of the tests, such as that of a pod, must not affect the program.
    for variable in ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "KUBECONFIG", "RUST_LOG"] {
        command.env_remove(variable);
    }
    command
}

/// Runs the program until it exits. Returns the exit code, the standard output and the standard error.
fn ended(flags: &[&str]) -> (i32, String, String) {
    let mut child = concertina(flags).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > DEADLINE {
            child.kill().unwrap();
            panic!("{flags:?}: still running: {:?}", child.wait_with_output().unwrap());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

#[test]
fn reader_that_stops_early_is_no_failure() {
    for flags in [&["--help"][..], &["--version"], &["rbac"]] {
        let mut child = concertina(flags).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let Output { status, stderr, .. } = child.wait_with_output().unwrap();
        assert_eq!((status.code(), String::from_utf8(stderr).unwrap().as_str()), (Some(0), ""), "{flags:?}");
    }
}

/// Runs the program, which must exit with `code` and an empty standard output. Returns the standard error.
fn refused(code: i32, flags: &[&str]) -> String {
    let (got, stdout, stderr) = ended(flags);
    assert_eq!((got, stdout.as_str()), (code, ""), "{flags:?}: {stderr}");
    stderr
}

/// The temporary folder of a test. Dropping it removes the folder.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cli-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns a kubeconfig with one context, `here`, and with `current` as the current context.
fn kubeconfig(server: &str, current: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: {current}\n\
         clusters: [{{name: c, cluster: {{server: \"{server}\"}}}}]\n\
         users: [{{name: u, user: {{token: secret-token}}}}]\n\
         contexts: [{{name: here, context: {{cluster: c, user: u}}}}]\n"
    )
}

/// Returns a loopback address with a port that was free at the time of the check.
fn free_port() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

/// The running program. Dropping it kills the program.
struct Running {
    child: Child,
    health: SocketAddr,
    log: PathBuf,
}

impl Running {
    /// Starts the program with a free health port and waits until it responds there.
    fn start(folder: &Folder, flags: &[&str]) -> Self {
        let log = folder.0.join("stderr");
        let health = free_port();
        let address = format!("--health-address={health}");
        // Parallel tests must not share the secure port. A test that needs the port overrides the flag.
        let with_port = [&["--secure-port=0"], flags].concat();
        let child = concertina(&with_port)
            .arg(address)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut running = Self { child, health, log };
        running.until("health is served", |running| running.get("/livez").is_some());
        running
    }

    fn until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !condition(self) {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "exited with {ended:?} before: {what}\n{}", self.logged());
            assert!(start.elapsed() < DEADLINE, "timed out before: {what}\n{}", self.logged());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Requests a path of the health address. Returns the status code and the body.
    fn get(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect_timeout(&self.health, Duration::from_secs(1)).ok()?;
        stream.set_read_timeout(Some(DEADLINE)).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: health\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let code = head.split(' ').nth(1)?.parse().ok()?;
        Some((code, body.to_owned()))
    }

    fn logged(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends a signal and waits for the exit. Returns the exit code and the elapsed time.
    fn signal(&mut self, signal: &str) -> (Option<i32>, Duration) {
        let start = Instant::now();
        let sent =
            Command::new("sh").args(["-c", &format!("kill {signal} {}", self.child.id())]).status().unwrap();
        assert!(sent.success());
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status.code(), start.elapsed());
            }
            assert!(start.elapsed() < DEADLINE, "still running after the signal\n{}", self.logged());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn help_and_version_are_printed_to_stdout_with_exit_code_0() {
    let (code, help, errors) = ended(&["--help"]);
    assert_eq!((code, errors.as_str()), (0, ""));
    for expected in
        ["Usage:", "--dry-run", "--horizontal-pod-autoscaler-sync-period <duration>", "[default: 15s]"]
    {
        assert!(help.contains(expected), "{help}");
    }
    let (code, version, errors) = ended(&["--version"]);
    assert_eq!((code, errors.as_str()), (0, ""));
    assert_eq!(version, format!("Concertina v{}\n", env!("CARGO_PKG_VERSION")));
    let (code, version, _) = ended(&["--version=raw"]);
    assert!(code == 0 && version.starts_with("version.Info{"), "{version}");
}

#[test]
fn unknown_flag_exits_with_2_and_is_named() {
    assert_eq!(refused(2, &["--frobnicate"]), "Error: unknown flag: --frobnicate\n");
    assert_eq!(refused(2, &["--dry-run", "--frobnicate=3"]), "Error: unknown flag: --frobnicate\n");
    assert!(refused(2, &["-x"]).contains("-x"));
    assert!(refused(2, &["start"]).contains("start"));
}

#[test]
fn invalid_value_exits_with_2_and_names_flag_and_value() {
    for (flag, value) in [
        ("concurrent-horizontal-pod-autoscaler-syncs", "0"),
        ("concurrent-horizontal-pod-autoscaler-syncs", "many"),
        ("horizontal-pod-autoscaler-sync-period", "15"),
        ("horizontal-pod-autoscaler-sync-period", "0s"),
        ("horizontal-pod-autoscaler-tolerance", "a tenth"),
        ("horizontal-pod-autoscaler-downscale-stabilization", "5"),
        ("emulated-version", "2.0"),
        ("kube-api-qps", "fast"),
        ("dry-run", "perhaps"),
        ("metrics-timeout", "0s"),
        ("max-metrics-response", "0"),
        ("health-address", "localhost"),
        ("health-address", "0.0.0.0:80"),
        ("secure-port", "70000"),
        ("tls-cipher-suites", "TLS_RSA_WITH_RC4_128_SHA"),
        ("logging-format", "xml"),
        ("v", "loud"),
    ] {
        let error = refused(2, &[&format!("--{flag}={value}")]);
        assert!(error.starts_with("Error: ") && error.contains(flag) && error.contains(value), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    assert!(refused(2, &["--kube-api-burst"]).contains("kube-api-burst"));
}

#[test]
fn missing_cluster_exits_with_1_and_names_the_flags() {
    let error = refused(1, &["controller"]);
    assert!(error.contains("--kubeconfig") && error.contains("not a pod"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn bare_call_outside_of_a_pod_prints_help() {
    let (code, help, errors) = ended(&[]);
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(help.contains("Usage: concertina COMMAND"), "{help}");
    assert!(refused(2, &["--dry-run"]).contains("\"concertina help\" lists the commands"));
}

#[test]
fn unusable_kubeconfig_exits_with_1_and_one_line_that_names_it() {
    let folder = Folder::new("kubeconfig");
    let missing = folder.0.join("missing").to_str().unwrap().to_owned();
    let cases = [
        (missing, &["No such file"][..]),
        (folder.0.to_str().unwrap().to_owned(), &["cannot read"][..]),
        (folder.file("garbage", "clusters: [{name: secret-token"), &["not valid"][..]),
        (folder.file("empty", ""), &["context"][..]),
        (folder.file("wrong", &kubeconfig("https://127.0.0.1:1", "there")), &["\"there\"", "here"][..]),
        (folder.file("address", &kubeconfig("not an address", "here")), &["not an address"][..]),
    ];
    for (path, parts) in &cases {
        let error = refused(1, &[&format!("--kubeconfig={path}")]);
        assert!(error.starts_with("Error: ") && error.contains(path.as_str()), "{error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(!error.contains("secret-token"), "{error}");
    }
}

#[cfg(unix)]
#[test]
fn unreadable_kubeconfig_exits_with_1_and_names_the_cause() {
    use std::os::unix::fs::PermissionsExt;

    let folder = Folder::new("unreadable");
    let path = folder.file("kubeconfig", &kubeconfig("https://127.0.0.1:1", "here"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read(&path).is_ok() {
        // The current user, such as root, can read every file.
        return;
    }
    let error = refused(1, &[&format!("--kubeconfig={path}")]);
    assert!(error.contains(&path) && error.contains("ermission"), "{error}");
}

#[test]
fn occupied_health_address_exits_with_1_and_names_the_flag() {
    let folder = Folder::new("in-use");
    let path = folder.file("kubeconfig", &kubeconfig(CLOSED, "here"));
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = refused(
        1,
        &[&format!("--kubeconfig={path}"), "--secure-port=0", &format!("--health-address={address}")],
    );
    let last = error.lines().last().unwrap_or_default();
    assert!(last.contains("--health-address") && last.contains(&address), "{error}");
}

/// The flags that kubeadm writes for a cluster with a cloud provider and certificates.
const KUBEADM: &[&str] = &[
    "--allocate-node-cidrs=true",
    "--authentication-kubeconfig=/etc/kubernetes/controller-manager.conf",
    "--authorization-kubeconfig=/etc/kubernetes/controller-manager.conf",
    "--bind-address=127.0.0.1",
    "--client-ca-file=/etc/kubernetes/pki/ca.crt",
    "--cluster-cidr=10.244.0.0/16",
    "--cluster-name=kubernetes",
    "--cluster-signing-cert-file=/etc/kubernetes/pki/ca.crt",
    "--cluster-signing-key-file=/etc/kubernetes/pki/ca.key",
    "--controllers=*,bootstrapsigner,tokencleaner,-horizontal-pod-autoscaler-controller",
    "--leader-elect=true",
    "--requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt",
    "--root-ca-file=/etc/kubernetes/pki/ca.crt",
    "--service-account-private-key-file=/etc/kubernetes/pki/sa.key",
    "--service-cluster-ip-range=10.96.0.0/12",
    "--use-service-account-credentials=true",
    "--horizontal_pod_autoscaler_sync_period=10s",
    "--horizontal-pod-autoscaler-upscale-delay=3m",
    "--feature-gates=HPAScaleToZero=true,SomeOtherGate=true",
    "-v=4",
];

#[test]
fn kubeadm_command_line_waits_for_the_server_and_stops_on_sigterm() {
    let folder = Folder::new("kubeadm");
    folder.file("controller-manager.conf", &kubeconfig(CLOSED, "here"));
    fs::create_dir(folder.0.join("pki")).unwrap();
    let authority = rcgen::generate_simple_self_signed(Vec::new()).unwrap().cert.pem();
    for name in ["ca.crt", "front-proxy-ca.crt"] {
        folder.file(&format!("pki/{name}"), &authority);
    }
    let folder_path = folder.0.to_str().unwrap();
    let mut flags: Vec<_> = KUBEADM.iter().map(|flag| flag.replace("/etc/kubernetes", folder_path)).collect();
    let secure = free_port();
    flags.push(format!("--secure-port={}", secure.port()));
    flags.push(format!("--kubeconfig={folder_path}/controller-manager.conf"));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut running = Running::start(&folder, &flags);
    assert!(TcpStream::connect_timeout(&secure, DEADLINE).is_ok(), "{}", running.logged());
    // Each watch retries in less than a second.
    running.until("several attempts have failed", |running| {
        running.logged().matches("outcome=Failed").count() >= 5
    });
    assert_eq!(running.get("/livez"), Some((200, "ok".to_owned())));
    assert_eq!(running.get("/healthz"), Some((200, "ok".to_owned())));
    let (code, body) = running.get("/readyz").unwrap();
    assert!(code == 500 && body.contains("informer"), "{code} {body}");
    let (code, body) = running.get("/metrics").unwrap();
    assert!(code == 200 && body.contains("workqueue_depth{name=\"horizontalpodautoscaler\"} 0\n"), "{body}");

    let (code, took) = running.signal("-TERM");
    assert_eq!(code, Some(0), "{}", running.logged());
    assert!(took < Duration::from_secs(5), "{took:?}");
    let log = running.logged();
    assert_eq!(log.matches("--service-cluster-ip-range").count(), 1, "{log}");
    assert_eq!(log.matches("failed to list and watch").count(), 2, "once for each resource: {log}");
    for text in ["SomeOtherGate", "--controllers", "--horizontal-pod-autoscaler-upscale-delay", CLOSED] {
        assert!(log.contains(text), "{text} in {log}");
    }
    assert!(!log.contains("secret-token") && !log.contains("panicked"), "{log}");
}

#[test]
fn interrupt_stops_the_program() {
    let folder = Folder::new("interrupt");
    let path = folder.file("kubeconfig", &kubeconfig(CLOSED, "here"));
    let mut running = Running::start(&folder, &["--dry-run", "--logging-format=json", "--kubeconfig", &path]);
    assert_eq!(running.signal("-INT").0, Some(0));
    let log = running.logged();
    for line in log.lines() {
        let line: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(line.is_object());
    }
    assert!(log.contains("concertina stopped"), "{log}");
}

#[cfg(target_os = "linux")]
#[test]
fn interruption_ends_the_wait_for_standard_input() {
    for words in [&["policy", "check", "--offline", "-"][..], &["parity", "--from", "-"]] {
        let mut child = concertina(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        let status = format!("/proc/{}/status", child.id());
        let catches_interruptions = || {
            let status = fs::read_to_string(&status).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
            u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << 1) != 0
        };
        while !catches_interruptions() {
            assert!(start.elapsed() < DEADLINE, "{words:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        let code = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status.code();
            }
            if start.elapsed() > DEADLINE {
                child.kill().unwrap();
                panic!("{words:?}: still running after the signal");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(code, Some(130), "{words:?}");
    }
}

#[test]
fn kube_controller_manager_defaults_start_without_warnings() {
    let folder = Folder::new("defaults");
    let path = folder.file("kubeconfig", &kubeconfig(CLOSED, "here"));
    let chosen = ["kubeconfig", "help", "version"];
    let flags: Vec<String> = kcm::flags()
        .iter()
        .map(|flag| (flag.name, flag.default.trim_matches(['[', ']'])))
        .filter(|(name, default)| !chosen.contains(name) && !default.is_empty())
        .map(|(name, default)| format!("--{name}={default}"))
        // The default port may be in use by a parallel test.
        .chain([format!("--kubeconfig={path}"), format!("--secure-port={}", free_port().port())])
        .collect();
    assert!(flags.len() > 80, "{}", flags.len());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut running = Running::start(&folder, &flags);
    assert_eq!(running.signal("-TERM").0, Some(0), "{}", running.logged());
    let log = running.logged();
    let warned: Vec<&str> = log.lines().filter(|line| line.contains("no effect")).collect();
    assert!(warned.iter().all(|line| line.contains("--leader-elect")), "{warned:#?}");
}

/// Writes a kubeconfig for a TLS server, and the certificate of its authority. Returns the path of the kubeconfig.
fn tls_kubeconfig(folder: &Folder, server: SocketAddr, authority: &str) -> String {
    let authority = folder.file("ca.crt", authority);
    let config = kubeconfig(&format!("https://{server}"), "here");
    folder
        .file("config", &config.replace("\"}}]", &format!("\", certificate-authority: \"{authority}\"}}}}]")))
}

#[test]
fn untrusted_server_certificate_exits_with_1_and_names_host_and_check() {
    let folder = Folder::new("untrusted");
    let (server, other) = (tls::Server::start(false), tls::Server::start(false));
    let config = tls_kubeconfig(&folder, server.address, &other.certificate);
    let error = refused(1, &["--kubeconfig", &config, "--secure-port=0"]);
    let last = error.lines().last().unwrap();
    assert!(last.starts_with(&format!("Error: failed to connect to https://{}/", server.address)), "{error}");
    assert!(last.contains("x509: ") && last.contains("check certificate-authority"), "{error}");
}

#[test]
fn refused_client_certificate_exits_with_1() {
    let folder = Folder::new("unknown-client");
    let server = tls::Server::start(true);
    let config = tls_kubeconfig(&folder, server.address, &server.certificate);
    let error = refused(1, &["--kubeconfig", &config, "--secure-port=0"]);
    let last = error.lines().last().unwrap();
    assert!(last.contains("client-certificate"), "{error}");
}
