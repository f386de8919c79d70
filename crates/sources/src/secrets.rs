//! Secrets that hold authorities and tokens for pages of pods.
//!
//! A Secret is used only if it is in the namespace of the HPA, and its owner has labelled it for this use. Otherwise, a
//! user with permission to write HPAs, but not to read Secrets, could send any Secret to a pod. Values are cached for a
//! short time and never appear in errors.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cluster::call::Call;
use cluster::client::Client;
use cluster::error::ApiError;
use cluster::metrics::flight::Flights;
use futures::FutureExt;
use k8s_openapi::api::core::v1 as wire;
use parking_lot::Mutex;
use policies::spec::SecretKey;
use tokio::time::Instant;

use crate::error::SourceError;

/// The label of a Secret that policies may name. Its value is `true`.
pub const SECRET_LABEL: &str = "concertina.dev/metric-sources";
/// Lifetime of a cached Secret, or of the error of its read.
const LIFE: Duration = Duration::from_secs(30);
/// Maximum cached Secrets of a namespace.
const MAX_SECRETS: usize = 16;
/// Maximum bytes of a Secret in JSON.
const MAX_BYTES: usize = 256 << 10;
/// Time limit of a read.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The reason why a Secret has no usable value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretProblem {
    /// The namespace has no such Secret.
    #[error("does not exist")]
    Missing,
    /// A permission is missing.
    #[error("cannot be read: grant get on it, as concertina rbac prints")]
    Forbidden,
    /// The Secret is too large. Holds the limit in bytes.
    #[error("has more than {0} bytes")]
    TooLarge(usize),
    /// The Secret does not have the label.
    #[error("does not have the label {SECRET_LABEL}: \"true\"")]
    Unlabelled,
    /// The Secret does not have the key.
    #[error("has no key {0:?}")]
    NoKey(Arc<str>),
    /// The value is not a token.
    #[error("has no valid token under key {0:?}: it must be one line of visible characters")]
    NoToken(Arc<str>),
    /// The answer is not a Secret.
    #[error("cannot be decoded")]
    Malformed,
    /// Any other failure.
    #[error("cannot be read: {0}")]
    Failed(String),
}

/// The data of a Secret.
struct Data(BTreeMap<String, Vec<u8>>);

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

type ReadSecret = Arc<Result<Data, SecretProblem>>;

/// The last use of each Secret of a namespace.
type LastUses = BTreeMap<Arc<str>, Instant>;

/// The cached Secrets.
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

    /// The value of a key, at most [`LIFE`] old.
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

    /// Notes the use of a Secret. Fails if the namespace uses too many Secrets.
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
