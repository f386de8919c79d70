//! Where the programs come from, and the keys they need.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use super::outcome::{Context, Failure, Outcome};

/// The Kubernetes convention for a folder with etcd, kube-apiserver and, here,
/// kube-controller-manager.
const VARIABLE: &str = "KUBEBUILDER_ASSETS";

/// The folder with the programs.
pub(crate) fn folder() -> Outcome<PathBuf> {
    let how = "export KUBEBUILDER_ASSETS=\"$(tests/controlplane/build.sh)\"";
    let folder = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    let folder =
        folder.ok_or_else(|| Failure(format!("{VARIABLE} is not set; build what it names: {how}")))?;
    let folder = PathBuf::from(folder);
    for program in ["etcd", "kube-apiserver", "kube-controller-manager"] {
        if !folder.join(program).is_file() {
            let folder = folder.display();
            return Err(Failure(format!(
                "{VARIABLE}={folder} has no {program}; build a complete one: {how}"
            )));
        }
    }
    Ok(folder)
}

/// A certificate authority and a certificate for loopback names signed by it.
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
        authority.distinguished_name.push(DnType::CommonName, "control plane of a test");
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

/// The key pair that signs and checks ServiceAccount tokens.
pub(crate) fn write_service_account_keys(private: &Path, public: &Path) -> Outcome {
    let key = KeyPair::generate()?;
    fs::write(private, key.serialize_pem()).context("service account key")?;
    fs::write(public, key.public_key_pem()).context("service account key")
}

/// A kubeconfig for one user with a token.
pub(crate) fn write_kubeconfig(path: &Path, server: &str, authority: &Path, token: &str) -> Outcome {
    // JSON is YAML; nothing needs a YAML writer.
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
