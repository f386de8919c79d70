//! HTTPS requests to the pod of a controller, through the API server's port-forward, as the kubeconfig user.
//!
//! The API server authorizes the port-forward, and the kubelet connects to the pod. TLS runs end to end between this
//! process and the pod, which may present any certificate. The pod receives the user's bearer token or client
//! certificate, so it must be a pod that the user named, or the holder of a Lease whose ServiceAccount may write the
//! status of every HPA. The controller authenticates and authorizes the user through the API server.
//!
//! | request | RBAC: verb, resource |
//! |---|---|
//! | `GET …/leases/{name}` | get `leases.coordination.k8s.io` |
//! | `GET …/pods/{name}` | get `pods` |
//! | `GET …/pods?labelSelector=…`, for a pod with `hostNetwork` or a selection by labels | list `pods` |
//! | `POST …/subjectaccessreviews`, for a pod that the user did not name | create `subjectaccessreviews.authorization.k8s.io` |
//! | `GET …/pods/{name}/portforward`, as a WebSocket | get and, from Kubernetes 1.35 on, create `pods/portforward` |

mod find;

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderValue, Request, Response};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use tokio::io::DuplexStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::client::TlsStream;
use tokio_util::task::AbortOnDropHandle;

pub use self::find::{Peer, Which, hostname, may_hold};
use cluster::body;
use cluster::call::Call;
use cluster::client::{Client, Clients};
use cluster::error::ApiError;
use cluster::user::{Credentials, UserError};

/// Time limit of a request, from the search for the pod to the last byte.
pub const WITHIN: Duration = Duration::from_secs(10);
/// Maximum size of a response, in bytes.
pub const LARGEST: usize = 32 << 20;
/// Maximum number of bytes to read from an error response.
const LARGEST_ERROR: usize = 64 << 10;

/// The reason why a request to a controller's pod failed.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The Lease does not exist.
    #[error("Lease {lease} does not exist: no Concertina controller has been the leader under that name")]
    NoLease {
        /// The namespace and name of the Lease.
        lease: String,
    },
    /// The Lease has no holder.
    #[error("Lease {lease} has no holder: no replica is the leader now")]
    NotHeld {
        /// The namespace and name of the Lease.
        lease: String,
    },
    /// The holder of the Lease matches no running pod.
    #[error(
        "Lease {lease} is held by {holder}, but namespace {namespace} has no running pod with hostname {host}: \
         its replica may have stopped; wait until another replica holds the Lease"
    )]
    NoPod {
        /// The namespace and name of the Lease.
        lease: String,
        /// The holder of the Lease.
        holder: String,
        /// The hostname in the holder's identity.
        host: String,
        /// The namespace in which the pod was searched.
        namespace: String,
    },
    /// No running pod has the labels.
    #[error("namespace {namespace} has no running pod with {selector}: check the namespace and the labels")]
    NoneLabelled {
        /// The label selector.
        selector: String,
        /// The namespace in which the pod was searched.
        namespace: String,
    },
    /// Several running pods match the labels or the hostname of the Lease's holder.
    #[error("namespace {namespace} has several running {what}: specify one")]
    Ambiguous {
        /// The pods, such as `pods with app=web`.
        what: String,
        /// The namespace of the pods.
        namespace: String,
    },
    /// The pod is not running.
    #[error(
        "pod {namespace}/{pod} is not running: its phase is {phase}; see kubectl describe pod -n {namespace} {pod}"
    )]
    NotRunning {
        /// The pod's namespace.
        namespace: String,
        /// The name of the pod.
        pod: String,
        /// The pod's phase, such as `Pending`.
        phase: String,
    },
    /// The holder of a Lease that the user did not name may be any pod.
    #[error(
        "pod {namespace}/{pod} did not get your credentials, because it is not proven to be a controller: {reason}; \
         if you trust it, use --leader={namespace}/{lease}"
    )]
    NotProven {
        /// The pod's namespace.
        namespace: String,
        /// The name of the pod.
        pod: String,
        /// The missing proof.
        reason: Unproven,
        /// The name of the Lease.
        lease: String,
    },
    /// The pod does not serve HTTPS.
    #[error("pod {namespace}/{pod} does not serve HTTPS (--secure-port=0)")]
    ServesNothing {
        /// The pod's namespace.
        namespace: String,
        /// The name of the pod.
        pod: String,
    },
    /// A permission is missing.
    #[error("you may not {} {resource} in namespace {namespace}", .verbs.join(" and "))]
    Forbidden {
        /// All necessary verbs.
        verbs: Vec<&'static str>,
        /// The resource, such as `pods/portforward`.
        resource: &'static str,
        /// The namespace of the resource.
        namespace: String,
    },
    /// The API server returned an error.
    #[error("{doing}: {error}")]
    Api {
        /// The failed operation, such as `failed to list pods in namespace shop`.
        doing: String,
        /// The API server's error.
        error: Box<ApiError>,
    },
    /// The API server or the kubelet refused the port-forward.
    #[error("port-forward to {peer} failed: {reason}")]
    Forward {
        /// The pod and its port.
        peer: Peer,
        /// The reason of the API server or the kubelet.
        reason: String,
    },
    /// The user did not name the namespace of a dry run.
    #[error(
        "a dry run gets your credentials only with --leader=NAMESPACE/NAME, because nothing proves that a pod is one"
    )]
    Unnamed,
    /// The clients have no user credentials. In-process clients, for example, have none.
    #[error("the user has no credentials: set a token or a client certificate in the kubeconfig")]
    NoUser,
    /// The user's credentials cannot be used for a controller.
    #[error(transparent)]
    User(#[from] UserError),
    /// The TLS handshake failed.
    #[error("TLS handshake with the pod failed: {0}")]
    Tls(#[source] io::Error),
    /// The HTTP connection failed.
    #[error("HTTP request to the pod failed: {0}")]
    Http(String),
    /// The controller could not authenticate the user.
    #[error(
        "the controller rejected your credentials with 401 ({0}): check that the API server accepts them"
    )]
    Unknown(String),
    /// The controller returned an error.
    #[error("the controller responded with {code}: {message}")]
    Status {
        /// The HTTP status code.
        code: u16,
        /// The error text of the controller.
        message: String,
    },
    /// The body of the response cannot be read.
    #[error("the controller's response could not be read: {0}")]
    Answer(ApiError),
    /// The request exceeded the time limit.
    #[error("the controller's pod did not respond within {0:?}")]
    TooLate(Duration),
}

/// The reason why a pod is not proven to be a controller.
#[derive(Debug, thiserror::Error)]
pub enum Unproven {
    /// The ServiceAccount of the pod lacks a permission that a controller has.
    #[error("its ServiceAccount {account} may not update the status of HPAs in all namespaces")]
    NotAllowed {
        /// The ServiceAccount.
        account: String,
    },
    /// The user may not review permissions.
    #[error("you may not create subjectaccessreviews, which show the permissions of its ServiceAccount")]
    NoReview,
    /// The review failed.
    #[error("the permissions of its ServiceAccount are unknown: {0}")]
    Failed(#[source] Box<ApiError>),
}

/// Sends one request: finds the pod, connects to it, and sends a GET of `path`. `path` includes the query and
/// is encoded.
///
/// # Errors
/// Returns a [`ForwardError`] after at most [`WITHIN`].
pub async fn fetch(clients: &Clients, which: &Which, path: &str) -> Result<Bytes, ForwardError> {
    let deadline = Instant::now() + WITHIN;
    let mut connection = Connection::open(clients, which, deadline).await?;
    connection.get(path, deadline).await
}

/// A connection to a controller's pod.
#[derive(Debug)]
pub struct Connection {
    /// The pod and its port.
    pub peer: Peer,
    sender: SendRequest<Empty<Bytes>>,
    authorization: Option<HeaderValue>,
    _driver: AbortOnDropHandle<()>,
}

impl Connection {
    /// Finds the pod and connects to it.
    pub async fn open(clients: &Clients, which: &Which, deadline: Instant) -> Result<Self, ForwardError> {
        let opening = async {
            // The observer collects refused reads that affect explanations. A refused connection to a controller does
            // not affect explanations, so this client has no observer.
            let client = clients.core.unobserved();
            let user = clients.user.as_ref().ok_or(ForwardError::NoUser)?;
            let peer = find::find(&client, which).await?;
            let mut credentials = user.credentials().await?;
            let tls = forward(&client, &peer, &mut credentials).await?;
            let (sender, connection) =
                handshake(TokioIo::new(tls)).await.map_err(|error| ForwardError::Http(error.to_string()))?;
            let driver = AbortOnDropHandle::new(tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "connection to the controller's pod closed");
                }
            }));
            let authorization = credentials.authorization.take();
            Ok(Self { peer, sender, authorization, _driver: driver })
        };
        timeout_at(deadline, opening).await.unwrap_or(Err(ForwardError::TooLate(WITHIN)))
    }

    /// Connects to the pod of the first candidate that is not skipped. A candidate is skipped if its Lease does not
    /// exist, no running pod has its labels, its pod is not proven to be a controller, or a permission is missing. If
    /// all candidates are skipped, returns the first error about a proof, about a permission, or else the first error.
    /// Without candidates, returns [`ForwardError::Unnamed`].
    pub async fn open_first(
        clients: &Clients,
        candidates: &[Which],
        deadline: Instant,
    ) -> Result<Self, ForwardError> {
        let mut failure = None;
        for which in candidates {
            let error = match Self::open(clients, which, deadline).await {
                Err(
                    error @ (ForwardError::NoLease { .. }
                    | ForwardError::NoneLabelled { .. }
                    | ForwardError::NotProven { .. }
                    | ForwardError::Forbidden { .. }),
                ) => error,
                opened => return opened,
            };
            // Only an existing pod can be unproven, so its error comes first.
            let rank = |error: &ForwardError| match error {
                ForwardError::NotProven { .. } => 2,
                ForwardError::Forbidden { .. } => 1,
                _ => 0,
            };
            if failure.as_ref().is_none_or(|first| rank(&error) > rank(first)) {
                failure = Some(error);
            }
        }
        Err(failure.unwrap_or(ForwardError::Unnamed))
    }

    /// Returns whether the clients have user credentials for a controller.
    pub fn is_possible(clients: &Clients) -> bool {
        clients.user.is_some()
    }

    /// Returns whether the connection can send another request.
    pub fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Sends a GET of `path`, which includes the query and is encoded.
    pub async fn get(&mut self, path: &str, deadline: Instant) -> Result<Bytes, ForwardError> {
        let asking = async {
            let answer = self.send(path).await?;
            if answer.status().is_success() {
                return body::collect(answer.into_body(), LARGEST).await.map_err(ForwardError::Answer);
            }
            let (head, rest) = answer.into_parts();
            let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let text = body::prefix(rest, LARGEST_ERROR).await;
            let call = Call::get([]);
            let error =
                ApiError::from_answer(&call, head.status, content_type.unwrap_or_default(), None, &text);
            let message = body::error_text(&text).unwrap_or_else(|| error.to_string());
            Err(match head.status.as_u16() {
                401 => ForwardError::Unknown(message),
                code => ForwardError::Status { code, message },
            })
        };
        timeout_at(deadline, asking).await.unwrap_or(Err(ForwardError::TooLate(WITHIN)))
    }

    /// Sends a GET of the health checks at `path`, and returns their page, also if a check fails.
    pub async fn health(&mut self, path: &str, deadline: Instant) -> Result<Bytes, ForwardError> {
        let asking = async {
            let answer = self.send(path).await?;
            body::collect(answer.into_body(), LARGEST_ERROR).await.map_err(ForwardError::Answer)
        };
        timeout_at(deadline, asking).await.unwrap_or(Err(ForwardError::TooLate(WITHIN)))
    }

    async fn send(&mut self, path: &str) -> Result<Response<Incoming>, ForwardError> {
        let broken = |error: hyper::Error| match error {
            error if error.is_canceled() || error.is_closed() || error.is_incomplete_message() => {
                ForwardError::Http("the connection was closed".to_owned())
            }
            error => ForwardError::Http(deepest(&error)),
        };
        let mut request = Request::get(path)
            .header(HOST, "localhost")
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("concertina/", env!("CARGO_PKG_VERSION")));
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request.body(Empty::new()).map_err(|error| ForwardError::Http(error.to_string()))?;
        self.sender.ready().await.map_err(broken)?;
        self.sender.send_request(request).await.map_err(broken)
    }
}

/// Opens a port-forward to the pod, and a TLS connection through it.
async fn forward(
    client: &Client,
    peer: &Peer,
    credentials: &mut Credentials,
) -> Result<TlsStream<DuplexStream>, ForwardError> {
    let failed = |reason: String| ForwardError::Forward { peer: peer.clone(), reason };
    let pods = client.namespaced::<Pod>(&peer.namespace);
    let mut forwarder = match pods.portforward(&peer.pod, &[peer.port]).await.map_err(ApiError::from) {
        Ok(forwarder) => forwarder,
        Err(error) if error.is_forbidden() => {
            return Err(ForwardError::Forbidden {
                verbs: vec!["get", "create"],
                resource: "pods/portforward",
                namespace: peer.namespace.clone(),
            });
        }
        Err(error) => return Err(failed(error.to_string())),
    };
    let parts = forwarder.take_stream(peer.port).zip(forwarder.take_error(peer.port));
    let (stream, refused) = parts.ok_or_else(|| failed("the port is missing".to_owned()))?;
    tokio::select! {
        // If the kubelet closes the stream with a reason, the reason takes precedence over the error of the handshake.
        biased;
        Some(reason) = refused => Err(failed(reason)),
        tls = credentials.connect(stream) => tls.map_err(ForwardError::Tls),
    }
}

fn deepest(error: &(dyn std::error::Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| (*error).source())
        .last()
        .map_or_else(String::new, ToString::to_string)
}
