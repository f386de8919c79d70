//! Locates the programs of the control plane and generates their keys.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use super::outcome::{Context, Failure, Outcome};

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
