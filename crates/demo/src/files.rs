//! The files of the demo: a kubeconfig, an HPA to apply with kubectl, and two files of the controller, its metric
//! sources and the authority of its clients.
//!
//! The cluster does not authenticate, but the controller does, so the user of the kubeconfig has a client certificate.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, io};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};

use super::{DemoError, NAMESPACE};
use cluster::platform;

/// The text of the file with the controller's metric sources.
const SOURCE_FILE: &str = "pods: {enabled: true}\n";

/// The first line of a kubeconfig that the demo may overwrite.
const MARK: &str = "# Written by concertina demo.";

/// The manifest of an HPA for the only deployment without an HPA.
const MANIFEST: &str = include_str!("cache-hpa.yaml");

/// The paths of the files. Dropping this value removes the temporary directory.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) kubeconfig: PathBuf,
    pub(super) manifest: PathBuf,
    /// The file with the controller's metric sources.
    pub(super) sources: PathBuf,
    /// The certificate of the user, in PEM. It is self-signed, and therefore its own authority.
    pub(super) client_ca: PathBuf,
    /// The temporary directory of the files.
    directory: PathBuf,
}

impl Files {
    /// Writes the files into a new temporary directory. If `kubeconfig` is set, the kubeconfig is written to that path
    /// instead.
    pub(super) fn write(kubeconfig: Option<&Path>, server: &str) -> Result<Self, DemoError> {
        if let Some(path) = kubeconfig {
            may_overwrite(path)?;
        }
        let directory = new_directory()?;
        let files = Self {
            kubeconfig: kubeconfig.map_or_else(|| directory.join("kubeconfig"), Path::to_owned),
            manifest: directory.join("cache-hpa.yaml"),
            sources: directory.join("sources.yaml"),
            client_ca: directory.join("client-ca.crt"),
            directory,
        };
        let user = User::new()?;
        write(&files.kubeconfig, &kubeconfig_text(server, &user))?;
        write(&files.client_ca, &user.certificate)?;
        write(&files.manifest, MANIFEST)?;
        write(&files.sources, SOURCE_FILE)?;
        Ok(files)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // An error is ignored, because the operating system cleans up temporary directories.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The certificate of the kubeconfig's user and its key, in PEM.
struct User {
    certificate: String,
    key: String,
}

impl User {
    /// Creates a user with unrestricted access, like the first user of a cluster of kubeadm.
    fn new() -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "concertina-demo");
        params.distinguished_name.push(DnType::OrganizationName, "system:masters");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        Ok(Self { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
    }
}

fn kubeconfig_text(server: &str, User { certificate, key }: &User) -> String {
    let (certificate, key) = (BASE64.encode(certificate), BASE64.encode(key));
    format!(
        "\
{MARK}
apiVersion: v1
kind: Config
current-context: concertina-demo
clusters:
- name: concertina-demo
  cluster:
    server: {server}
contexts:
- name: concertina-demo
  context:
    cluster: concertina-demo
    user: concertina-demo
    namespace: {NAMESPACE}
users:
- name: concertina-demo
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
"
    )
}

fn write(path: &Path, text: &str) -> Result<(), DemoError> {
    fs::write(path, text).map_err(|source| DemoError::Write { path: path.to_owned(), source })
}

/// Checks that a file is absent or was written by a demo. Any other file may contain the user's only credentials for a
/// cluster.
fn may_overwrite(path: &Path) -> Result<(), DemoError> {
    match fs::read_to_string(path) {
        Ok(text) if text.starts_with(MARK) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        _ => Err(DemoError::NotOurs { path: path.to_owned() }),
    }
}

/// The number of directories that this process has tried to create. The number is part of the names, because concurrent
/// tests share a process.
static ATTEMPTS: AtomicU32 = AtomicU32::new(0);

/// Creates a new directory that only the current user can read.
fn new_directory() -> Result<PathBuf, DemoError> {
    let base = std::env::temp_dir();
    let process = std::process::id();
    loop {
        let attempt = ATTEMPTS.fetch_add(1, Ordering::Relaxed);
        let path = base.join(match attempt {
            0 => format!("concertina-demo-{process}"),
            _ => format!("concertina-demo-{process}-{attempt}"),
        });
        match platform::create_private_directory(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < 100 => {}
            Err(source) => return Err(DemoError::Write { path, source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{DemoError, Files, MANIFEST};

    #[test]
    fn files_are_removed_when_the_demo_ends() {
        let files = Files::write(None, "http://127.0.0.1:1234").expect("files");
        let text = fs::read_to_string(&files.kubeconfig).expect("kubeconfig");
        assert!(
            text.contains("server: http://127.0.0.1:1234\n") && text.contains("namespace: shop\n"),
            "{text}"
        );
        assert_eq!(fs::read_to_string(&files.manifest).expect("manifest"), MANIFEST);
        let directory = files.directory.clone();
        drop(files);
        assert!(!directory.exists());
    }

    #[test]
    fn files_overwrite_a_kubeconfig_only_when_a_demo_wrote_it() {
        let demo = Files::write(None, "http://127.0.0.1:1").expect("files");
        let chosen = demo.directory.join("chosen");
        drop(Files::write(Some(&chosen), "http://127.0.0.1:2").expect("a new file"));
        drop(Files::write(Some(&chosen), "http://127.0.0.1:3").expect("our own file"));
        assert!(fs::read_to_string(&chosen).expect("kubeconfig").contains("127.0.0.1:3"));

        fs::write(&chosen, "apiVersion: v1\nkind: Config\n").expect("write");
        let refused = Files::write(Some(&chosen), "http://127.0.0.1:4");
        assert!(matches!(refused, Err(DemoError::NotOurs { path }) if path == chosen));
        assert_eq!(fs::read_to_string(&chosen).expect("kubeconfig"), "apiVersion: v1\nkind: Config\n");
    }
}
