//! Settings of connections for pages over TLS, and the Secrets with their authorities and tokens. A sync prepares the
//! settings of its metric, and scrapes between syncs use them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cluster::call::Call;
use cluster::client::Client;
use cluster::error::ApiError;
use cluster::metrics::flight::Flights;
use futures::FutureExt;
use http::header::HeaderValue;
use k8s_openapi::api::core::v1 as wire;
use parking_lot::Mutex;
use policies::spec::{Authorities, PodTransport, SecretKey};
use tokio::time::Instant;

use crate::dial::{Dial, TlsDial};
use crate::http::{SourceError, bearer_of};
use crate::secrets::{SECRET_LABEL, SecretProblem};

/// Lifetime of a cached Secret, and of the cached error of a failed read.
const LIFE: Duration = Duration::from_secs(30);
/// Maximum number of cached Secrets of a namespace.
const MAX_SECRETS: usize = 16;
/// Maximum size of a Secret as JSON, in bytes.
const MAX_BYTES: usize = 256 << 10;
/// Time limit for the read of a Secret.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The time for which a client is kept after the last sync that prepared it. This time equals the time for which pages
/// are scraped.
const KEPT: Duration = Duration::from_mins(3);
/// Maximum number of clients of a namespace.
const MAX_CLIENTS: usize = 16;

/// A client with its token.
#[derive(Debug)]
struct Prepared {
    authorities: Option<Vec<u8>>,
    /// The [`Dial`] is replaced when the authorities change, so that no earlier connection is reused.
    dial: Arc<dyn Dial>,
    token: Option<HeaderValue>,
    at: Instant,
}

/// The clients of a namespace.
type Clients = BTreeMap<Arc<PodTransport>, Prepared>;

/// The clients of all namespaces, each kept for [`KEPT`] after the last sync that prepared it.
#[derive(Debug)]
pub(crate) struct Transports {
    dial: Arc<dyn Dial>,
    secrets: Secrets,
    clients: Mutex<BTreeMap<Arc<str>, Clients>>,
}

impl Transports {
    pub(crate) fn new(dial: Arc<dyn Dial>) -> Self {
        Self { dial, secrets: Secrets::new(), clients: Mutex::default() }
    }

    /// Prepares the client of a transport: reads its Secrets, and creates a new client if the authorities have changed.
    /// If the Secrets are unusable, the earlier client of the transport is dropped.
    pub(crate) async fn prepare(
        &self,
        namespace: &Arc<str>,
        transport: &Arc<PodTransport>,
        client: Option<&Client>,
    ) -> Result<(), SourceError> {
        let contents = self.contents(namespace, transport, client).await;
        let now = Instant::now();
        let mut all = self.clients.lock();
        let clients = all.entry(Arc::clone(namespace)).or_default();
        let (authorities, token) = contents.inspect_err(|_| drop(clients.remove(transport)))?;
        if let Some(known) = clients.get_mut(transport).filter(|known| known.authorities == authorities) {
            (known.token, known.at) = (token, now);
            return Ok(());
        }
        clients.remove(transport);
        if clients.len() >= MAX_CLIENTS {
            return Err(SourceError::TooManyTransports(MAX_CLIENTS));
        }
        let name = transport.server_name.as_deref();
        let dial = TlsDial::new(Arc::clone(&self.dial), authorities.as_deref(), name);
        let dial = dial.map_err(SourceError::Authorities)?;
        let dial = Arc::new(dial);
        clients.insert(Arc::clone(transport), Prepared { authorities, dial, token, at: now });
        Ok(())
    }

    /// Returns the authorities in PEM and the header with the token.
    async fn contents(
        &self,
        namespace: &Arc<str>,
        transport: &PodTransport,
        client: Option<&Client>,
    ) -> Result<(Option<Vec<u8>>, Option<HeaderValue>), SourceError> {
        let client = || client.ok_or(SourceError::SecretsDisabled);
        let authorities = match &transport.authorities {
            None => None,
            Some(Authorities::Pem(pem)) => Some(pem.as_bytes().to_vec()),
            Some(Authorities::Secret(key)) => Some(self.secrets.value(client()?, namespace, key).await?),
        };
        let token = match &transport.token {
            None => None,
            Some(key) => {
                let value = self.secrets.value(client()?, namespace, key).await?;
                let token = std::str::from_utf8(&value).ok().and_then(bearer_of);
                let no_token = || {
                    let problem = SecretProblem::NoToken(Arc::clone(&key.key));
                    SourceError::Secret(Arc::clone(&key.name), problem)
                };
                Some(token.ok_or_else(no_token)?)
            }
        };
        Ok((authorities, token))
    }

    /// Returns the client of a transport, with its token. Fails if no recent sync has prepared them.
    pub(crate) fn client(
        &self,
        namespace: &str,
        transport: &Arc<PodTransport>,
    ) -> Result<(Arc<dyn Dial>, Option<HeaderValue>), SourceError> {
        let clients = self.clients.lock();
        let prepared = clients.get(namespace).and_then(|clients| clients.get(transport));
        let prepared = prepared.ok_or(SourceError::NotPrepared)?;
        Ok((Arc::clone(&prepared.dial), prepared.token.clone()))
    }

    /// Drops Secrets and clients that no sync has used recently.
    pub(crate) fn sweep(&self, now: Instant) {
        self.secrets.sweep(now);
        self.clients.lock().retain(|_, clients| {
            clients.retain(|_, client| now.saturating_duration_since(client.at) < KEPT);
            !clients.is_empty()
        });
    }
}

/// The data of a Secret. The `Debug` output contains only the keys.
struct Data(BTreeMap<String, Vec<u8>>);

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

type ReadSecret = Arc<Result<Data, SecretProblem>>;

/// The last use of each Secret of a namespace, by name.
type LastUses = BTreeMap<Arc<str>, Instant>;

/// The cached Secrets with authorities and tokens for pages of pods.
///
/// A Secret must be in the namespace of the HPA, and its owner must have labelled it for this use. Otherwise, a user
/// with permission to write HPAs but not to read Secrets could have any Secret sent to a pod. Values never appear in
/// errors.
#[derive(Debug)]
pub(crate) struct Secrets {
    flights: Flights<(Arc<str>, Arc<str>), ReadSecret, SourceError>,
    /// The last use of each Secret, by namespace.
    used: Mutex<BTreeMap<Arc<str>, LastUses>>,
}

impl Secrets {
    pub(crate) fn new() -> Self {
        Self { flights: Flights::new(Some(LIFE), || SourceError::Panicked), used: Mutex::default() }
    }

    /// Returns the value of a key, at most [`LIFE`] old.
    pub(crate) async fn value(
        &self,
        client: &Client,
        namespace: &Arc<str>,
        key: &SecretKey,
    ) -> Result<Vec<u8>, SourceError> {
        self.admit(namespace, &key.name)?;
        let (client, names) = (client.clone(), (Arc::clone(namespace), Arc::clone(&key.name)));
        let (in_namespace, name) = names.clone();
        let read = self.flights.join(names, move |sent| {
            async move {
                sent.now();
                Ok(Arc::new(read(&client, &in_namespace, &name).await))
            }
            .boxed()
        });
        let failed = |problem| SourceError::Secret(Arc::clone(&key.name), problem);
        match &*read.await? {
            Ok(Data(data)) => {
                data.get(&*key.key).cloned().ok_or_else(|| failed(SecretProblem::NoKey(Arc::clone(&key.key))))
            }
            Err(problem) => Err(failed(problem.clone())),
        }
    }

    /// Records the use of a Secret. Fails if the namespace uses too many Secrets.
    fn admit(&self, namespace: &Arc<str>, name: &Arc<str>) -> Result<(), SourceError> {
        let now = Instant::now();
        let mut used = self.used.lock();
        let names = used.entry(Arc::clone(namespace)).or_default();
        names.retain(|_, at| now.saturating_duration_since(*at) <= LIFE);
        if names.len() >= MAX_SECRETS && !names.contains_key(name) {
            return Err(SourceError::TooManySecrets(MAX_SECRETS));
        }
        names.insert(Arc::clone(name), now);
        Ok(())
    }

    /// Drops entries that are older than [`LIFE`].
    pub(crate) fn sweep(&self, now: Instant) {
        self.flights.sweep(now);
        self.used.lock().retain(|_, names| {
            names.retain(|_, at| now.saturating_duration_since(*at) <= LIFE);
            !names.is_empty()
        });
    }
}

async fn read(client: &Client, namespace: &str, name: &str) -> Result<Data, SecretProblem> {
    let call = Call::get(["api", "v1", "namespaces", namespace, "secrets", name])
        .about("secrets", name)
        .within(TIMEOUT)
        .at_most(MAX_BYTES);
    let secret: wire::Secret = client.json(&call).await.map_err(|error| match error {
        ApiError::TooLarge { limit } => SecretProblem::TooLarge(limit),
        // The text of a decode error may contain the value.
        ApiError::Decode(_) => SecretProblem::Malformed,
        error if error.is_not_found() => SecretProblem::Missing,
        error if error.code() == Some(403) => SecretProblem::Forbidden,
        error => SecretProblem::Failed(error.to_string().chars().take(200).collect()),
    })?;
    let label = secret.metadata.labels.as_ref().and_then(|labels| labels.get(SECRET_LABEL));
    if label.is_none_or(|value| value != "true") {
        return Err(SecretProblem::Unlabelled);
    }
    let data = secret.data.unwrap_or_default().into_iter();
    Ok(Data(data.map(|(key, value)| (key, value.0)).collect()))
}
