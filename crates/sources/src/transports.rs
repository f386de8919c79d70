//! Settings of connections for pages over TLS. A sync prepares the settings of its metric, and scrapes between syncs
//! use them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::client::Client;
use http::header::HeaderValue;
use parking_lot::Mutex;
use policies::spec::{Authorities, PodTransport};
use tokio::time::Instant;

use crate::error::SourceError;
use crate::http::{Dial, TlsDial, bearer_of};
use crate::secrets::{SecretProblem, Secrets};

/// The time for which a client is kept after the last sync that prepared it. Equal to the time for which pages are
/// scraped.
const KEPT: Duration = Duration::from_mins(3);
/// Maximum clients of a namespace.
const MAX_CLIENTS: usize = 16;

/// A client with its token.
#[derive(Debug)]
struct Prepared {
    authorities: Option<Vec<u8>>,
    /// Replaced after a change of the authorities, so no earlier connection is reused.
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

    /// The authorities in PEM and the token.
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

    /// The client of a transport that a sync has prepared, with its token.
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
