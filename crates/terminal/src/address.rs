//! Connections to a controller at the URL of `--from`.

use std::error::Error;
use std::path::Path;

use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::Deserialize as _;
use serde_json::json;

use crate::options::cluster::{RecordSource, reads_only};
use cluster::client::Clients;

/// The reason why an address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// `--from` is not a URL.
    #[error("--from: {0:?} is not a URL: pass one such as http://127.0.0.1:10257")]
    Address(String),
    /// The token would be sent unencrypted.
    #[error("--token-file: a token is only sent over https://, but --from is {0}")]
    Clear(String),
    /// The file of a flag cannot be read.
    #[error("cannot read {path} ({flag}): {error}")]
    File {
        /// The flag of the file, such as `--token-file`.
        flag: &'static str,
        /// The path of the file.
        path: String,
        /// The error of the operating system.
        error: String,
    },
    /// The client for the controller cannot be created.
    #[error("--from: {0}")]
    Connection(String),
}

/// Creates clients for the controller at an address. They send no credentials except the given token. Also returns the
/// URL of the controller without a trailing slash.
///
/// # Errors
/// Returns [`AddressError`] for an invalid address, or a file that cannot be used.
pub async fn connect(address: &RecordSource) -> Result<(Clients, String), AddressError> {
    let url = address.url.trim_end_matches('/').to_owned();
    if !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
        return Err(AddressError::Address(address.url.clone()));
    }
    if address.token_file.is_some() && !url.starts_with("https://") {
        return Err(AddressError::Clear(url));
    }
    let text = |flag, path: Option<&Path>| match path {
        None => Ok(None),
        Some(path) => match std::fs::File::open(path) {
            Ok(_) => Ok(Some(path.display().to_string())),
            Err(error) => {
                let (path, error) = (path.display().to_string(), error.to_string());
                Err(AddressError::File { flag, path, error })
            }
        },
    };
    let kubeconfig = json!({
        "clusters": [{ "name": "from", "cluster": {
            "server": url,
            "certificate-authority": text("--certificate-authority", address.certificate_authority.as_deref())?,
            "insecure-skip-tls-verify": address.insecure_skip_tls_verify,
        } }],
        "users": [{ "name": "from", "user": {
            "tokenFile": text("--token-file", address.token_file.as_deref())?,
        } }],
        "contexts": [{ "name": "from", "context": { "cluster": "from", "user": "from" } }],
        "current-context": "from",
    });
    let connection = |error: &dyn Error| AddressError::Connection(error.to_string());
    let kubeconfig = Kubeconfig::deserialize(kubeconfig).map_err(|error| connection(&error))?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let config = config.map_err(|error| connection(&error))?;
    let clients = Clients::new(&config, &reads_only()).map_err(|error| connection(&error))?;
    Ok((clients, url))
}
