//! The API clients. All clients share one write gate. Clients with the same credentials share one connection pool,
//! except for the client of the Lease. As in the built-in controller, each client with a rate limit has a separate
//! token bucket.

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use http::header::HeaderValue;
use hyper::rt::{Read, Write};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Layer, Service};

use super::api_client::HttpService;
use super::connect::{self, Account, PluginError, PluginLimits, Source};
use super::gate::{Gate, GateLayer, Writes};
use super::limit::TokenBucket;
use super::user::User;
use clock::Jitter;

pub use super::api_client::{Attempt, Client, RatePermit, RequestObserver};
pub use super::connect::ClientError;

/// The minimum burst of discovery, whose requests are rare and come in bursts. The value is kube-controller-manager's.
const DISCOVERY_BURST: u32 = 200;

/// Options of the clients.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// `--kube-api-qps`: the maximum rate of each client, in requests per second. 0 or less disables the limit.
    pub qps: f32,
    /// `--kube-api-burst`: the maximum number of requests that a client sends at once without waiting.
    pub burst: u32,
    /// The `User-Agent` header.
    pub user_agent: String,
    /// The default time limit of a request.
    pub request_timeout: Duration,
    /// The gate that all writes pass.
    pub gate: Arc<Gate>,
    /// Receives the attempts and results of all requests.
    pub observer: Option<Arc<dyn RequestObserver>>,
    /// The time limits of a credential plugin.
    pub plugin_limits: PluginLimits,
    /// The ServiceAccount that the controller acts as. If set, only the requests for the Lease, for reviews, and for
    /// the creation and the tokens of this ServiceAccount use the configured credentials.
    pub service_account: Option<ServiceAccount>,
}

/// A ServiceAccount that the controller acts as.
#[derive(Debug, Clone)]
pub struct ServiceAccount {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// Spreads the token refreshes of replicas over time.
    pub jitter: Jitter,
}

impl Default for ClientOptions {
    /// Returns options with kube-controller-manager's limits and an open gate.
    fn default() -> Self {
        Self {
            qps: 20.0,
            burst: 30,
            user_agent: concat!("concertina/", env!("CARGO_PKG_VERSION")).to_owned(),
            request_timeout: Duration::from_secs(30),
            gate: Gate::open(),
            observer: None,
            plugin_limits: PluginLimits::default(),
            service_account: None,
        }
    }
}

/// All clients. Clones share their connections and limits.
#[derive(Debug, Clone)]
pub struct Clients {
    /// The client for scale subresources.
    pub scale: Client,
    /// The client for metrics.k8s.io.
    pub resource_metrics: Client,
    /// The client for custom.metrics.k8s.io.
    pub custom_metrics: Client,
    /// The client for external.metrics.k8s.io.
    pub external_metrics: Client,
    /// The client for events and for single objects.
    pub core: Client,
    /// The client for status writes. By default, its rate follows the number of HPAs.
    pub status: Client,
    /// The client for the discovery of groups, versions and resources.
    pub discovery: Client,
    /// The client for lists and watches. It has no token bucket.
    pub watch: Client,
    /// The client for the Lease. It has no token bucket and has separate connections, so that no other request can
    /// delay a renewal.
    pub lease: Client,
    /// The client for token and access reviews. It has a separate token bucket, because unauthenticated clients can
    /// cause reviews.
    pub reviews: Client,
    /// The client for events about a replica that withholds writes because of another controller. It has no token
    /// bucket.
    pub notices: Client,
    /// The client for the certificates, webhook and policies of the guard against the built-in controller.
    pub guard: Client,
    /// The client for the checkpoint of histories. It has a separate token bucket, so that large writes delay no other
    /// request.
    pub checkpoint: Client,
    /// The gate that all writes pass.
    pub gate: Arc<Gate>,
    source: Option<Arc<Source>>,
    /// The identity for requests to Concertina controllers. `None` if such requests carry no identity.
    pub user: Option<Arc<User>>,
}

impl Clients {
    /// Creates clients for the server of `config`, with the TLS settings and credentials of `config`.
    pub fn new(config: &kube::Config, options: &ClientOptions) -> Result<Self, ClientError> {
        let files = connect::tls_files(config)?;
        let (http, source) = connect::over_network(config, &files, options.plugin_limits)?;
        let (lease, _) = connect::over_network(config, &files, options.plugin_limits)?;
        let acting = |tokens: Client| match &options.service_account {
            None => Ok(None),
            Some(ServiceAccount { namespace, name, jitter }) => {
                connect::as_account(config, &files, || Account::new(tokens, namespace, name, jitter.clone()))
            }
        };
        let clients = Self::on(http, lease, acting, config.cluster_url.clone(), options)?;
        Ok(Self {
            user: Some(Arc::new(User::new(config.auth_info.clone(), Arc::clone(&source)))),
            source: Some(source),
            ..clients
        })
    }

    /// Replaces the identity for requests to Concertina controllers with the user of `config`.
    pub fn with_user(self, config: &kube::Config) -> Result<Self, ClientError> {
        let source = Arc::new(Source::new(config, PluginLimits::default())?);
        Ok(Self { user: Some(Arc::new(User::new(config.auth_info.clone(), source))), ..self })
    }

    /// Runs the credential plugin, if a plugin is configured. The first request would also run the plugin, but within
    /// the time limit of the request, which may be too short for a login.
    pub async fn log_in(&self) -> Result<(), PluginError> {
        match &self.source {
            Some(source) => source.log_in().await,
            None => Ok(()),
        }
    }

    /// Creates clients over a connector of byte streams. The server's URL is `http://embedded/`.
    pub fn over<C>(connector: C, options: &ClientOptions) -> Result<Self, ClientError>
    where
        C: Service<Uri> + Clone + Send + Sync + 'static,
        C::Response: Read + Write + Unpin + Send + 'static,
        C::Error: Into<BoxError>,
        C::Future: Send + 'static,
    {
        let base = Uri::from_static("http://embedded/");
        let lease = connect::over(connector.clone(), base.clone());
        Self::on(connect::over(connector, base.clone()), lease, |_| Ok(None), base, options)
    }

    /// Creates the clients over the services `http` and `lease`. `acting` receives a client that can request tokens. It
    /// returns the service that authenticates as the ServiceAccount, or `None` if all requests use the configured
    /// credentials.
    fn on(
        http: HttpService,
        lease: HttpService,
        acting: impl FnOnce(Client) -> Result<Option<HttpService>, ClientError>,
        base: Uri,
        options: &ClientOptions,
    ) -> Result<Self, ClientError> {
        let user_agent = HeaderValue::from_str(&options.user_agent)
            .map_err(|_| ClientError::UserAgent(options.user_agent.clone()))?;
        let gated =
            |http, writes| BoxCloneSyncService::new(GateLayer(Arc::clone(&options.gate), writes).layer(http));
        let account_client = Client {
            http: gated(http.clone(), Writes::Account),
            host: base.authority().map_or("", |authority| authority.as_str()).into(),
            base,
            bucket: None,
            user_agent,
            impersonated: None,
            timeout: options.request_timeout,
            reconnects: false,
            observer: options.observer.clone(),
        };
        let http = acting(account_client.clone())?.unwrap_or(http);
        let unlimited = Client { http: gated(http.clone(), Writes::Autoscaling), ..account_client.clone() };
        let limited = |qps, burst| Client {
            bucket: TokenBucket::new(qps, burst),
            reconnects: true,
            ..unlimited.clone()
        };
        let client = || limited(options.qps, options.burst);
        Ok(Self {
            scale: client(),
            resource_metrics: client(),
            custom_metrics: client(),
            external_metrics: client(),
            core: client(),
            status: client(),
            discovery: limited(options.qps, options.burst.max(DISCOVERY_BURST)),
            watch: unlimited.clone(),
            lease: Client { http: gated(lease, Writes::Lease), ..unlimited.clone() },
            reviews: Client { bucket: TokenBucket::new(options.qps, options.burst), ..account_client },
            guard: Client { http: gated(http.clone(), Writes::Guard), ..client() },
            checkpoint: Client { http: gated(http.clone(), Writes::Checkpoint), ..client() },
            notices: Client { http: gated(http, Writes::Notices), ..unlimited },
            gate: Arc::clone(&options.gate),
            source: None,
            user: None,
        })
    }
}
