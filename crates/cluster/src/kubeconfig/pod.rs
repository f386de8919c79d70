//! The cluster configuration inside a pod.

use std::path::{Path, PathBuf};

/// The mount point of the pod's ServiceAccount token.
const FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The cluster of the pod that runs this process.
#[derive(Debug, Clone)]
pub(super) struct Pod {
    pub(super) server: String,
    pub(super) folder: PathBuf,
    namespace: Option<String>,
}

impl Pod {
    /// The configuration, if this process runs in a pod with a token for the API server.
    pub(super) fn here(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        Self::with(Path::new(FOLDER), variable)
    }

    pub(super) fn with(folder: &Path, variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let variable = |name| variable(name).filter(|value| !value.is_empty());
        let (host, port) = (variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?);
        if !folder.join("token").is_file() {
            return None;
        }
        let server = if host.contains(':') {
            format!("https://[{host}]:{port}")
        } else {
            format!("https://{host}:{port}")
        };
        Some(Self { server, folder: folder.to_owned(), namespace: variable("POD_NAMESPACE") })
    }

    /// The path of a file of the ServiceAccount.
    pub(super) fn file(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }

    /// The namespace of the pod.
    pub(super) fn namespace(&self) -> Option<String> {
        self.namespace.clone().or_else(|| {
            let text = std::fs::read_to_string(self.folder.join("namespace")).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        })
    }
}
