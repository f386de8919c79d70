//! Tests of credential plugins, which are shell scripts here, and of token, certificate and key files that are replaced
//! while the controller runs.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cluster::connect::{PluginError, PluginLimits};
use fake_cluster::{FaultAction, FaultRule};
use rcgen::{CertifiedKey, KeyPair};
use serde_json::{Value, json};

use super::servers::{Server, certificate};
use super::{Folder, ask, clients, clients_within, logs};

/// Writes a plugin that appends a line to `runs`, saves its input in `info`, and then executes `script`. Returns the
/// field `exec` for the plugin.
fn plugin(folder: &Folder, script: &str) -> String {
    let text = format!(
        "#!/bin/sh\ncd '{}'\necho run >> runs\nruns=$(wc -l < runs)\necho \"$KUBERNETES_EXEC_INFO\" > info\n{script}\n",
        folder.0.display()
    );
    let path = folder.file("plugin", &text);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    exec("./plugin")
}

fn exec(command: &str) -> String {
    format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, interactiveMode: IfAvailable, provideClusterInfo: true, \
         command: {command}, args: [get], env: [{{name: COLOR, value: blue}}], installHint: \"get it\\n  there\"}}"
    )
}

/// A script that prints an ExecCredential with `status`.
fn print(status: &str) -> String {
    format!(
        "cat <<END\n{{\"kind\": \"ExecCredential\", \"apiVersion\": \"client.authentication.k8s.io/v1\", \"status\": {status}}}\nEND"
    )
}

fn runs(folder: &Folder) -> usize {
    folder.read("runs").lines().count()
}

fn tokens(server: &Server) -> Vec<String> {
    let requests = server.requests.all().concat();
    let lines = requests.lines().filter_map(|line| line.strip_prefix("authorization: Bearer "));
    lines.map(str::to_owned).collect()
}

#[tokio::test]
async fn plugin_runs_once_with_the_cluster_info() {
    let folder = Folder::new("once");
    let server = Server::start().await;
    let user = plugin(&folder, &print(r#"{"token": "$COLOR-$1-$runs"}"#));
    let clients = clients(&folder.user_config(&server.fields("127.0.0.1"), &user));
    let (one, two) = tokio::join!(ask(&clients), ask(&clients));
    one.unwrap();
    two.unwrap();
    ask(&clients).await.unwrap();
    clients.log_in().await.unwrap();
    assert_eq!(runs(&folder), 1);
    assert_eq!(tokens(&server), ["blue-get-1"; 3]);

    let info: Value = serde_json::from_str(&folder.read("info")).unwrap();
    assert_eq!(info["apiVersion"], "client.authentication.k8s.io/v1");
    assert_eq!(info["kind"], "ExecCredential");
    assert_eq!(info["spec"]["cluster"]["server"], json!(format!("https://{}/", server.address)));
    assert_eq!(info["spec"]["cluster"]["proxy-url"], Value::Null);
    assert!(info["spec"]["cluster"]["certificate-authority-data"].is_string());
    assert!(info["spec"]["interactive"].is_boolean());
}

#[tokio::test]
async fn expired_credentials_are_fetched_again() {
    let folder = Folder::new("expired");
    let server = Server::start().await;
    let status = r#"{"token": "$runs", "expirationTimestamp": "$([ $runs = 1 ] && echo 2020 || echo 2999)-01-01T00:00:00Z"}"#;
    let user = plugin(&folder, &print(status));
    let clients = clients(&folder.user_config(&server.fields("127.0.0.1"), &user));
    for _ in 0..3 {
        ask(&clients).await.unwrap();
    }
    assert_eq!(tokens(&server), ["1", "2", "2"]);
}

#[tokio::test]
async fn refused_credentials_are_fetched_again_by_the_next_request() {
    let folder = Folder::new("unauthorized");
    let server = Server::start().await;
    let refusal = FaultAction::Text { code: 401, body: "Unauthorized".to_owned() };
    server.cluster.faults().add(FaultRule::new(refusal).times(1));
    let user = plugin(&folder, &print(r#"{"token": "$runs"}"#));
    let clients = clients(&folder.user_config(&server.fields("127.0.0.1"), &user));
    assert!(ask(&clients).await.is_err());
    ask(&clients).await.unwrap();
    ask(&clients).await.unwrap();
    assert_eq!(tokens(&server), ["1", "2", "2"]);
}

#[tokio::test]
async fn hanging_plugin_is_killed_and_named() {
    let folder = Folder::new("hangs");
    let server = Server::start().await;
    let user = plugin(&folder, "echo $$ > pid\nexec sleep 600");
    let user_config = folder.user_config(&server.fields("127.0.0.1"), &user);
    let limit = Duration::from_millis(300);
    let clients = clients_within(&user_config, PluginLimits { alone: limit, interactive: limit });
    let started = Instant::now();
    let error = clients.log_in().await.unwrap_err();
    // The default limit is a minute.
    assert!(started.elapsed() < Duration::from_secs(30));
    assert!(
        matches!(&error, PluginError::TimedOut { command, .. } if command.ends_with("/plugin")),
        "{error}"
    );
    let error = ask(&clients).await.unwrap_err().to_string();
    assert!(error.contains("/plugin did not exit within"), "{error}");
    assert_eq!(server.requests.all().len(), 0);

    let pid = folder.read("pid");
    let has_exited = || !std::path::Path::new(&format!("/proc/{}/cmdline", pid.trim())).exists();
    while cfg!(target_os = "linux") && !has_exited() {
        assert!(started.elapsed() < Duration::from_secs(30), "the plugin is still running");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn missing_or_failing_plugin_is_named_in_the_error() {
    let folder = Folder::new("wrong");
    let server = Server::start().await;
    let error = async |user: &str| {
        let user_config = folder.user_config(&server.fields("127.0.0.1"), user);
        let error = ask(&clients(&user_config)).await.unwrap_err().to_string();
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(
            error.starts_with(&format!("Get \"https://{}/apis\": the credential plugin ", server.address)),
            "{error}"
        );
        error
    };
    let missing = error(&exec("concertina-no-such-plugin")).await;
    assert!(missing.ends_with("plugin is not installed or not on the PATH: get it there"), "{missing}");
    let failed = error(&plugin(&folder, "exit 7")).await;
    assert!(failed.contains("/plugin failed (exit status: 7): "), "{failed}");
    for (script, problem) in [
        ("echo s3cret".to_owned(), "must print an ExecCredential"),
        (print("{}"), "neither a token nor a certificate"),
        (print(r#"{"clientKeyData": "s3cret"}"#), "only one of certificate and key"),
        (
            print(r#"{"token": "s3cret", "expirationTimestamp": "soon"}"#),
            "expirationTimestamp is not a valid time",
        ),
        (print(r#"{"token": "s3cret"}"#).replace(".io/v1", ".io/v1beta1"), "the kubeconfig requires"),
        ("cat /dev/zero".to_owned(), "the output exceeds"),
    ] {
        let error = error(&plugin(&folder, &script)).await;
        assert!(error.contains(problem) && !error.contains("s3cret"), "{error}");
    }
}

#[tokio::test]
async fn waiting_requests_share_a_plugin_failure() {
    let folder = Folder::new("shared");
    let server = Server::start().await;
    let clients = clients(&folder.user_config(&server.fields("127.0.0.1"), &plugin(&folder, "exit 1")));
    let (one, two, three) = tokio::join!(ask(&clients), ask(&clients), ask(&clients));
    assert!(one.is_err() && two.is_err() && three.is_err());
    assert_eq!(runs(&folder), 1);
    assert!(ask(&clients).await.is_err());
    assert_eq!(runs(&folder), 2);
}

#[tokio::test]
async fn new_plugin_certificate_opens_a_new_connection() {
    let folder = Folder::new("certificate");
    let identities = [certificate(&["one"]), certificate(&["two"])];
    let trusted: Vec<_> = identities.iter().map(|identity| identity.cert.der().clone()).collect();
    let server = Server::trusting(&trusted).await;
    for (index, identity) in identities.iter().enumerate() {
        let status = json!({"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": {
            "clientCertificateData": identity.cert.pem(), "clientKeyData": identity.signing_key.serialize_pem(),
            "expirationTimestamp": if index == 0 { "2020-01-01T00:00:00Z" } else { "2999-01-01T00:00:00Z" }}});
        folder.file(&format!("identity-{}", index + 1), &status.to_string());
    }
    let user = plugin(&folder, "cat identity-$runs");
    let clients = clients(&folder.user_config(&server.fields("127.0.0.1"), &user));
    for _ in 0..3 {
        ask(&clients).await.unwrap();
    }
    let shown = server.certificates.all();
    let expected: Vec<_> = trusted.iter().map(|der| STANDARD.encode(der)).collect();
    assert_eq!(shown, expected);
}

#[tokio::test]
async fn plugin_does_not_run_with_a_token_or_without_tls() {
    let folder = Folder::new("needless");
    let server = Server::start().await;
    let user = format!("token: own, {}", plugin(&folder, "exit 1"));
    ask(&clients(&folder.user_config(&server.fields("127.0.0.1"), &user))).await.unwrap();
    assert_eq!(tokens(&server), ["own"]);
    let plain = folder.user_config("server: 'http://127.0.0.1:1'", &plugin(&folder, "exit 1"));
    assert!(ask(&clients(&plain)).await.unwrap_err().to_string().contains("connection refused"));
    assert_eq!(runs(&folder), 0);
}

#[tokio::test]
async fn token_file_is_trimmed_and_read_again_after_a_refusal() {
    let folder = Folder::new("token-file");
    let server = Server::start().await;
    folder.file("token", "first\n");
    let clients = clients(&folder.user_config(&server.fields("127.0.0.1"), "tokenFile: token"));
    ask(&clients).await.unwrap();
    folder.file("token", "second\n");
    let refusal = FaultAction::Text { code: 401, body: "Unauthorized".to_owned() };
    server.cluster.faults().add(FaultRule::new(refusal).times(1));
    assert!(ask(&clients).await.is_err());
    ask(&clients).await.unwrap();
    assert_eq!(tokens(&server), ["first", "first", "second"]);
}

/// An interval after which the client reads its TLS files again.
const REREAD: Duration = Duration::from_secs(50);

/// Advances the time to the next read of the TLS files.
async fn until_next_read() {
    tokio::time::pause();
    tokio::time::advance(REREAD).await;
    tokio::time::resume();
}

/// The fields of a kubeconfig's cluster, with the certificate authority of the server in `ca.crt`.
fn fields(server: &Server) -> String {
    format!("server: 'https://{}', certificate-authority: ca.crt", server.address)
}

const USER: &str = "client-certificate: tls.crt, client-key: tls.key";

fn write(folder: &Folder, authority: &str, identity: &CertifiedKey<KeyPair>) {
    folder.file("ca.crt", authority);
    folder.file("tls.crt", &identity.cert.pem());
    folder.file("tls.key", &identity.signing_key.serialize_pem());
}

#[tokio::test]
async fn replaced_authority_and_client_certificate_are_used_without_a_restart() {
    let folder = Folder::new("rotated");
    let (first, second) = (certificate(&["first"]), certificate(&["second"]));
    let mut server = Server::trusting(&[first.cert.der().clone()]).await;
    write(&folder, &server.authority(), &first);
    let clients = clients(&folder.user_config(&fields(&server), USER));
    ask(&clients).await.unwrap();

    server.restart(&[second.cert.der().clone()]);
    write(&folder, &server.authority(), &second);
    assert!(ask(&clients).await.is_err(), "the previous files are in use");
    until_next_read().await;
    ask(&clients).await.unwrap();
    clients.lease.bytes(&cluster::call::Call::get(["apis"])).await.unwrap();
    let shown = [&first, &second, &second].map(|key| STANDARD.encode(key.cert.der()));
    assert_eq!(server.certificates.all(), shown);
}

#[tokio::test]
async fn unusable_files_keep_the_previous_ones_and_are_logged_once() {
    logs::start();
    let folder = Folder::new("broken");
    let (first, second) = (certificate(&["first"]), certificate(&["second"]));
    let server = Server::trusting(&[first.cert.der().clone(), second.cert.der().clone()]).await;
    write(&folder, &server.authority(), &first);
    let clients = clients(&folder.user_config(&fields(&server), USER));
    ask(&clients).await.unwrap();

    // The certificate is replaced before its key.
    folder.file("tls.crt", &second.cert.pem());
    for content in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        folder.file("ca.crt", content);
        for _ in 0..3 {
            until_next_read().await;
            ask(&clients).await.unwrap();
            clients.lease.bytes(&cluster::call::Call::get(["apis"])).await.unwrap();
        }
    }
    folder.file("ca.crt", &server.authority());
    until_next_read().await;
    ask(&clients).await.unwrap();
    std::fs::remove_file(folder.0.join("tls.key")).unwrap();
    until_next_read().await;
    ask(&clients).await.unwrap();

    let lines = logs::with("reload of TLS files failed, using their previous contents");
    let path = |name: &str| folder.0.join(name).display().to_string();
    let reasons = ["ca.crt", "tls.key"].map(path);
    assert_eq!(lines.len(), 4, "{lines:#?}");
    assert!(
        lines.iter().zip([&reasons[0]; 3]).all(|(line, path)| line.contains(path.as_str())),
        "{lines:#?}"
    );
    assert!(lines[3].contains(&reasons[1]), "{lines:#?}");
    let first = STANDARD.encode(first.cert.der());
    assert!(server.certificates.all().iter().all(|shown| *shown == first));

    write(&folder, &server.authority(), &second);
    until_next_read().await;
    ask(&clients).await.unwrap();
    assert_eq!(server.certificates.all().last(), Some(&STANDARD.encode(second.cert.der())));
    assert_eq!(logs::with("reloaded TLS files").len(), 1);
}
