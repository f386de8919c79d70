//! Which authorities of client certificates are believed, and which front proxies. From files, or as the cluster says in
//! ConfigMap kube-system/extension-apiserver-authentication; both are read again every minute.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::HeaderMap;
use percent_encoding::percent_decode_str;
use rustls::crypto::CryptoProvider;
use serde::Deserialize;

use super::certificate::{Authorities, Subject};
use crate::api::call::Call;
use crate::api::client::Client;
use crate::api::reviews::User;
use crate::cli::config::{Authentication, FrontProxyHeaders};
use crate::serve::error::ServeError;

/// How long what was read is believed without a look.
const REREAD: Duration = Duration::from_mins(1);
/// The same as long as nothing could be read.
const RETRY: Duration = Duration::from_secs(5);
/// Where a cluster publishes its authorities.
const NAMESPACE: &str = "kube-system";
const CONFIG_MAP: &str = "extension-apiserver-authentication";

/// What is believed now.
#[derive(Debug, Clone, Default)]
pub(super) struct Trusted {
    /// Who signs certificates of clients.
    pub(super) clients: Option<Authorities>,
    /// Proxies that say who asks.
    pub(super) proxies: Option<Proxies>,
}

/// Front proxies: who signs their certificates, and how they tell who asks.
#[derive(Debug, Clone)]
pub(super) struct Proxies {
    pub(super) authorities: Authorities,
    pub(super) headers: FrontProxyHeaders,
}

/// Keeps [`Trusted`] up to date.
#[derive(Debug)]
pub(super) struct Trust {
    options: Authentication,
    client: Client,
    provider: Arc<CryptoProvider>,
    now: RwLock<Trusted>,
}

/// The texts of which [`Trusted`] is made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Sources {
    clients: Option<Vec<u8>>,
    proxies: Option<(Vec<u8>, FrontProxyHeaders)>,
}

#[derive(Deserialize)]
struct ConfigMap {
    #[serde(default)]
    data: BTreeMap<String, String>,
}

impl Trust {
    pub(super) fn new(options: Authentication, client: Client, provider: Arc<CryptoProvider>) -> Self {
        Self { options, client, provider, now: RwLock::default() }
    }

    /// Whether the files that flags name can be used: a mistake is told at the start.
    pub(super) fn check_files(&self) -> Result<(), ServeError> {
        let named = [
            ("--client-ca-file", self.options.client_ca.as_ref()),
            ("--requestheader-client-ca-file", self.options.front_proxy.as_ref().map(|proxy| &proxy.ca)),
        ];
        for (flag, path) in named {
            let Some(path) = path.cloned() else { continue };
            match std::fs::read(&path) {
                Err(source) => return Err(ServeError::Read { flag, path, source }),
                Ok(pem) => {
                    Authorities::of_pem(&pem, &self.provider).map_err(|reason| ServeError::Unusable {
                        flag,
                        path,
                        reason,
                    })?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn now(&self) -> Trusted {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads everything at once, and again every minute. A failure keeps what was read before, and is told once.
    pub(super) async fn keep_current(&self) {
        let (mut known, mut told) = (None, None);
        loop {
            match self.read().await.and_then(|sources| {
                if known.as_ref() != Some(&sources) {
                    let trusted = self.make(&sources)?;
                    *self.now.write().unwrap_or_else(PoisonError::into_inner) = trusted;
                    known = Some(sources);
                }
                Ok(())
            }) {
                Ok(()) => told = None,
                Err(reason) if told.as_ref() == Some(&reason) => {}
                Err(reason) => {
                    if self.options.tolerate_lookup_failure {
                        tracing::debug!(%reason, "client certificates are not believed");
                    } else {
                        tracing::warn!(%reason, "client certificates are believed as far as known before");
                    }
                    told = Some(reason);
                }
            }
            tokio::time::sleep(if known.is_some() { REREAD } else { RETRY }).await;
        }
    }

    async fn read(&self) -> Result<Sources, String> {
        let options = &self.options;
        let file = |flag: &str, path: &Path| {
            std::fs::read(path).map_err(|error| format!("cannot read {} ({flag}): {error}", path.display()))
        };
        let mut sources = Sources::default();
        if let Some(path) = &options.client_ca {
            sources.clients = Some(file("--client-ca-file", path)?);
        }
        if let Some(proxy) = &options.front_proxy {
            sources.proxies =
                Some((file("--requestheader-client-ca-file", &proxy.ca)?, proxy.headers.clone()));
        }
        if options.skip_lookup || sources.clients.is_some() && sources.proxies.is_some() {
            return Ok(sources);
        }
        let mut data = self.look_up().await?;
        if sources.clients.is_none() {
            sources.clients = data.remove("client-ca-file").map(String::into_bytes);
        }
        if sources.proxies.is_none()
            && let Some(ca) = data.remove("requestheader-client-ca-file")
        {
            sources.proxies = Some((ca.into_bytes(), headers(&data)?));
        }
        Ok(sources)
    }

    /// The cluster's own words; none if it has none.
    async fn look_up(&self) -> Result<BTreeMap<String, String>, String> {
        let call = Call::get(["api", "v1", "namespaces", NAMESPACE, "configmaps", CONFIG_MAP])
            .about("configmaps", CONFIG_MAP);
        match self.client.json::<ConfigMap>(&call).await {
            Ok(map) => Ok(map.data),
            Err(error) if error.is_not_found() => Ok(BTreeMap::new()),
            Err(error) => Err(format!(
                "ConfigMap {NAMESPACE}/{CONFIG_MAP} cannot be read: {error}; RoleBinding to the Role \
                 extension-apiserver-authentication-reader lets it be read"
            )),
        }
    }

    fn make(&self, sources: &Sources) -> Result<Trusted, String> {
        let authorities = |what: &str, pem: &[u8]| {
            Authorities::of_pem(pem, &self.provider).map_err(|reason| format!("{what}: {reason}"))
        };
        let clients = sources.clients.as_ref().map(|pem| authorities("client-ca-file", pem)).transpose()?;
        let proxies = match &sources.proxies {
            None => None,
            Some((pem, headers)) => Some(Proxies {
                authorities: authorities("requestheader-client-ca-file", pem)?,
                headers: headers.clone(),
            }),
        };
        Ok(Trusted { clients, proxies })
    }
}

/// Names of proxies and headers as the API server publishes them: lists in JSON.
fn headers(data: &BTreeMap<String, String>) -> Result<FrontProxyHeaders, String> {
    let list = |key: &str| match data.get(key).map(String::as_str) {
        None | Some("") => Ok(Vec::new()),
        Some(json) => serde_json::from_str::<Vec<String>>(json)
            .map_err(|error| format!("{key} of ConfigMap {NAMESPACE}/{CONFIG_MAP}: {error}")),
    };
    let lower = |key: &str| {
        let names = list(key)?.into_iter().map(|name| name.trim().to_ascii_lowercase());
        Ok::<_, String>(names.filter(|name| !name.is_empty()).collect())
    };
    Ok(FrontProxyHeaders {
        allowed_names: list("requestheader-allowed-names")?,
        user: lower("requestheader-username-headers")?,
        uid: lower("requestheader-uid-headers")?,
        group: lower("requestheader-group-headers")?,
        extra_prefix: lower("requestheader-extra-headers-prefix")?,
    })
}

impl Proxies {
    /// Whom a proxy speaks for: `None` if this is none of them, or if it names nobody.
    pub(super) fn user(&self, subject: &Subject, headers: &HeaderMap) -> Option<User> {
        let names = &self.headers;
        let allowed = names.allowed_names.is_empty()
            || subject.common_name.as_ref().is_some_and(|name| names.allowed_names.contains(name));
        if !allowed {
            return None;
        }
        let all = |header: &str| -> Vec<String> {
            let values = headers.get_all(header).into_iter().filter_map(|value| value.to_str().ok());
            values.filter(|value| !value.is_empty()).map(str::to_owned).collect()
        };
        let first = |headers: &[String]| headers.iter().find_map(|header| all(header).into_iter().next());
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for prefix in &names.extra_prefix {
            for (name, value) in headers {
                if let (Some(key), Ok(value)) = (name.as_str().strip_prefix(prefix.as_str()), value.to_str())
                {
                    let key = percent_decode_str(key).decode_utf8_lossy().into_owned();
                    extra.entry(key).or_default().push(value.to_owned());
                }
            }
        }
        Some(User {
            name: first(&names.user)?,
            uid: first(&names.uid).unwrap_or_default(),
            groups: names.group.iter().flat_map(|header| all(header)).collect(),
            extra,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Subject {
        Subject { common_name: Some(name.to_owned()), organizations: Vec::new() }
    }

    #[test]
    fn a_front_proxy_is_believed_if_its_name_is_allowed() {
        let data = BTreeMap::from([
            ("requestheader-allowed-names".to_owned(), r#"["front-proxy-client"]"#.to_owned()),
            ("requestheader-username-headers".to_owned(), r#"["X-Remote-User"]"#.to_owned()),
            ("requestheader-group-headers".to_owned(), r#"["X-Remote-Group"]"#.to_owned()),
            ("requestheader-extra-headers-prefix".to_owned(), r#"["X-Remote-Extra-"]"#.to_owned()),
        ]);
        let found = headers(&data).unwrap();
        let ca = rcgen::CertificateParams::new(Vec::new())
            .unwrap()
            .self_signed(&rcgen::KeyPair::generate().unwrap())
            .unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(ca.der().clone()).unwrap();
        let pem = {
            use base64::Engine;
            let text = base64::engine::general_purpose::STANDARD.encode(ca.der());
            format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let proxies =
            Proxies { authorities: Authorities::of_pem(pem.as_bytes(), &provider).unwrap(), headers: found };
        let mut sent = HeaderMap::new();
        sent.insert("x-remote-user", "jane".parse().unwrap());
        sent.append("x-remote-group", "dev".parse().unwrap());
        sent.append("x-remote-group", "ops".parse().unwrap());
        sent.append("x-remote-extra-scopes", "openid".parse().unwrap());
        let user = proxies.user(&named("front-proxy-client"), &sent).unwrap();
        assert_eq!((user.name.as_str(), user.groups), ("jane", vec!["dev".to_owned(), "ops".to_owned()]));
        assert_eq!(user.extra, BTreeMap::from([("scopes".to_owned(), vec!["openid".to_owned()])]));
        assert_eq!(proxies.user(&named("somebody"), &sent), None);
        assert_eq!(proxies.user(&named("front-proxy-client"), &HeaderMap::new()), None);
    }
}
