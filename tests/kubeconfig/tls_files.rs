//! Certificates and keys in files that are replaced while the controller runs.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertifiedKey, KeyPair};

use super::servers::{Server, certificate};
use super::{Folder, ask, clients, logs};

/// The interval between two reads of the files.
const REREAD: Duration = Duration::from_secs(50);

/// Lets the time to the next read of the files pass.
async fn until_next_read() {
    tokio::time::pause();
    tokio::time::advance(REREAD).await;
    tokio::time::resume();
}

/// The kubeconfig of a server with its authority and a client certificate in files.
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
