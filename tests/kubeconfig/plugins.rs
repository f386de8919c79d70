//! Credential plugins, as shell scripts.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use concertina::api::connect::{PluginError, PluginLimits};
use concertina::embedded::{FaultAction, FaultRule};
use serde_json::{Value, json};

use super::servers::{Server, certificate};
use super::{Folder, ask, clients, clients_within};

/// A plugin that counts its runs in `runs`, notes what it is told in `info`, and goes on with this script.
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

/// A script that prints credentials.
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
async fn a_plugin_is_run_once_and_told_what_is_wanted() {
    let folder = Folder::new("once");
    let server = Server::start().await;
    let user = plugin(&folder, &print(r#"{"token": "$COLOR-$1-$runs"}"#));
    let clients = clients(&folder.way(&server.fields("127.0.0.1"), &user));
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
async fn what_has_expired_is_fetched_anew() {
    let folder = Folder::new("expired");
    let server = Server::start().await;
    let status = r#"{"token": "$runs", "expirationTimestamp": "$([ $runs = 1 ] && echo 2020 || echo 2999)-01-01T00:00:00Z"}"#;
    let user = plugin(&folder, &print(status));
    let clients = clients(&folder.way(&server.fields("127.0.0.1"), &user));
    for _ in 0..3 {
        ask(&clients).await.unwrap();
    }
    assert_eq!(tokens(&server), ["1", "2", "2"]);
}

#[tokio::test]
async fn what_the_server_refuses_is_fetched_anew_by_the_next_request() {
    let folder = Folder::new("unauthorized");
    let server = Server::start().await;
    let refusal = FaultAction::Text { code: 401, body: "Unauthorized".to_owned() };
    server.cluster.faults().add(FaultRule::new(refusal).times(1));
    let user = plugin(&folder, &print(r#"{"token": "$runs"}"#));
    let clients = clients(&folder.way(&server.fields("127.0.0.1"), &user));
    assert!(ask(&clients).await.is_err());
    ask(&clients).await.unwrap();
    ask(&clients).await.unwrap();
    assert_eq!(tokens(&server), ["1", "2", "2"]);
}

#[tokio::test]
async fn a_plugin_that_hangs_is_stopped_and_named() {
    let folder = Folder::new("hangs");
    let server = Server::start().await;
    let user = plugin(&folder, "echo $$ > pid\nexec sleep 600");
    let way = folder.way(&server.fields("127.0.0.1"), &user);
    let limit = Duration::from_millis(300);
    let clients = clients_within(&way, PluginLimits { alone: limit, interactive: limit });
    let begun = Instant::now();
    let error = clients.log_in().await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(
        matches!(&error, PluginError::TimedOut { command, .. } if command.ends_with("/plugin")),
        "{error}"
    );
    let error = ask(&clients).await.unwrap_err().to_string();
    assert!(error.contains("/plugin did not end within"), "{error}");
    assert_eq!(server.requests.all().len(), 0);

    let pid = folder.read("pid");
    let gone = || !std::path::Path::new(&format!("/proc/{}/cmdline", pid.trim())).exists();
    while cfg!(target_os = "linux") && !gone() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it still runs");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_plugin_that_is_not_there_or_fails_or_prints_nonsense_is_named() {
    let folder = Folder::new("wrong");
    let server = Server::start().await;
    let error = async |user: &str| {
        let way = folder.way(&server.fields("127.0.0.1"), user);
        let error = ask(&clients(&way)).await.unwrap_err().to_string();
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
        (print(r#"{"token": "s3cret", "expirationTimestamp": "soon"}"#), "expirationTimestamp is no time"),
        (print(r#"{"token": "s3cret"}"#).replace(".io/v1", ".io/v1beta1"), "the kubeconfig asks for"),
        ("cat /dev/zero".to_owned(), "printed more than"),
    ] {
        let error = error(&plugin(&folder, &script)).await;
        assert!(error.contains(problem) && !error.contains("s3cret"), "{error}");
    }
}

#[tokio::test]
async fn who_waits_for_a_plugin_shares_its_failure() {
    let folder = Folder::new("shared");
    let server = Server::start().await;
    let clients = clients(&folder.way(&server.fields("127.0.0.1"), &plugin(&folder, "exit 1")));
    let (one, two, three) = tokio::join!(ask(&clients), ask(&clients), ask(&clients));
    assert!(one.is_err() && two.is_err() && three.is_err());
    assert_eq!(runs(&folder), 1);
    assert!(ask(&clients).await.is_err());
    assert_eq!(runs(&folder), 2);
}

#[tokio::test]
async fn a_certificate_of_a_plugin_is_shown_and_a_new_one_on_a_new_connection() {
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
    let clients = clients(&folder.way(&server.fields("127.0.0.1"), &user));
    for _ in 0..3 {
        ask(&clients).await.unwrap();
    }
    let shown = server.certificates.all();
    let expected: Vec<_> = trusted.iter().map(|der| STANDARD.encode(der)).collect();
    assert_eq!(shown, expected);
}

#[tokio::test]
async fn a_plugin_is_not_run_for_who_has_a_token_already_nor_for_a_server_without_tls() {
    let folder = Folder::new("needless");
    let server = Server::start().await;
    let user = format!("token: own, {}", plugin(&folder, "exit 1"));
    ask(&clients(&folder.way(&server.fields("127.0.0.1"), &user))).await.unwrap();
    assert_eq!(tokens(&server), ["own"]);
    let plain = folder.way("server: 'http://127.0.0.1:1'", &plugin(&folder, "exit 1"));
    assert!(ask(&clients(&plain)).await.unwrap_err().to_string().contains("connection refused"));
    assert_eq!(runs(&folder), 0);
}

#[tokio::test]
async fn a_token_file_may_end_in_a_line_break_and_is_read_again_when_the_server_refuses_it() {
    let folder = Folder::new("token-file");
    let server = Server::start().await;
    folder.file("token", "first\n");
    let clients = clients(&folder.way(&server.fields("127.0.0.1"), "tokenFile: token"));
    ask(&clients).await.unwrap();
    folder.file("token", "second\n");
    let refusal = FaultAction::Text { code: 401, body: "Unauthorized".to_owned() };
    server.cluster.faults().add(FaultRule::new(refusal).times(1));
    assert!(ask(&clients).await.is_err());
    ask(&clients).await.unwrap();
    assert_eq!(tokens(&server), ["first", "first", "second"]);
}
