//! HTTPS requests to a controller's own pod, by port-forward through the API server, as the user of the kubeconfig.
//!
//! The API server authenticates itself to us, opens the way to the pod, and is asked for the right to. On that way TLS is
//! spoken with the pod itself, whatever certificate it shows, and the user's bearer token or client certificate is shown
//! to it: a controller asks the API server who that is and what they may read. Nothing here is used for any other
//! connection.
//!
//! | request | RBAC: verb, resource |
//! |---|---|
//! | `GET …/leases/{name}` | get `leases.coordination.k8s.io` |
//! | `GET …/pods/{name}` | get `pods` |
//! | `GET …/pods?labelSelector=…`, for a pod on its node's network or one found by labels | list `pods` |
//! | `GET …/pods/{name}/portforward`, as a WebSocket | get and, from Kubernetes 1.35 on, create `pods/portforward` |

mod find;
mod socket;

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderValue, Request};
use http_body_util::Empty;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;

pub use self::find::{Peer, Which};
use self::socket::{Key, PortStream};
use super::body;
use super::call::Call;
use super::client::{Client, Clients, WebSocket};
use super::error::ApiError;
use super::user::{Trust, UserError};

/// How long an answer may take, from the first question to its last byte.
pub const WITHIN: Duration = Duration::from_secs(10);
/// The largest answer, in bytes: many decisions of an HPA with many metrics.
pub const LARGEST: usize = 32 << 20;
/// The largest error answer that is read, in bytes.
const LARGEST_ERROR: usize = 64 << 10;

/// Why a controller's pod cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// No controller ever led under this name.
    #[error("there is no Lease {lease}: no Concertina controller leads here under that name")]
    NoLease {
        /// Namespace and name.
        lease: String,
    },
    /// The Lease was given back.
    #[error("nobody holds the Lease {lease} now")]
    NotHeld {
        /// Namespace and name.
        lease: String,
    },
    /// The holder of the Lease is no pod that can be found.
    #[error("{lease} is held by {holder}, and namespace {namespace} has no running pod of the host {host}")]
    NoPod {
        /// Namespace and name of the Lease.
        lease: String,
        /// Its holder.
        holder: String,
        /// The hostname in it.
        host: String,
        /// Where it was looked for.
        namespace: String,
    },
    /// No running pod has the labels.
    #[error("namespace {namespace} has no running pod with {selector}")]
    NoneLabelled {
        /// The labels.
        selector: String,
        /// Where it was looked for.
        namespace: String,
    },
    /// Several pods fit, and only one may be asked.
    #[error("namespace {namespace} has several running {what}: which of them is meant cannot be told")]
    Ambiguous {
        /// Which pods.
        what: String,
        /// Where they are.
        namespace: String,
    },
    /// The pod does not run.
    #[error("pod {namespace}/{pod} does not run: it is {phase}")]
    NotRunning {
        /// The pod's namespace.
        namespace: String,
        /// The pod.
        pod: String,
        /// Its phase.
        phase: String,
    },
    /// The pod was told to serve nothing.
    #[error("pod {namespace}/{pod} serves nothing (--secure-port=0)")]
    ServesNothing {
        /// The pod's namespace.
        namespace: String,
        /// The pod.
        pod: String,
    },
    /// A right is missing.
    #[error("you may not {} {resource} in namespace {namespace}", .verbs.join(" and "))]
    Forbidden {
        /// All verbs that are needed.
        verbs: Vec<&'static str>,
        /// The resource.
        resource: &'static str,
        /// Where.
        namespace: String,
    },
    /// The API server gives something else than what was asked for.
    #[error("{doing}: {error}")]
    Api {
        /// What failed.
        doing: String,
        /// What the API server said.
        error: Box<ApiError>,
    },
    /// The API server or the kubelet does not forward the port.
    #[error("no port-forward to {peer}: {reason}")]
    Forward {
        /// The pod.
        peer: Peer,
        /// Why.
        reason: String,
    },
    /// There are no clients with a user, such as those within one process.
    #[error("there is nobody to ask as: these clients have no user")]
    NoUser,
    /// There is nothing to show to a controller.
    #[error(transparent)]
    User(#[from] UserError),
    /// The pod does not speak TLS on that port.
    #[error("the pod does not answer: {0}")]
    Tls(#[source] io::Error),
    /// The pod does not speak HTTP on that port.
    #[error("the pod does not answer: {0}")]
    Http(String),
    /// The controller does not know the user.
    #[error(
        "the controller does not know you: it answers 401 ({0}); it asks the API server who a token belongs to"
    )]
    Unknown(String),
    /// The controller answers with an error.
    #[error("the controller answers {code}: {message}")]
    Status {
        /// The HTTP code.
        code: u16,
        /// Its text.
        message: String,
    },
    /// The answer is unusable.
    #[error("the controller's answer cannot be read: {0}")]
    Answer(ApiError),
    /// It takes too long.
    #[error("the controller's pod did not answer within {0:?}")]
    TooLate(Duration),
}

/// Asks one question: finds the pod, goes there, sends a GET of this path (with its query, encoded).
///
/// # Errors
/// What [`ForwardError`] lists; within [`WITHIN`].
pub async fn fetch(clients: &Clients, which: &Which, path: &str) -> Result<Bytes, ForwardError> {
    let deadline = Instant::now() + WITHIN;
    let mut connection = Connection::open(clients, which, deadline).await?;
    connection.get(path, deadline).await
}

/// A connection to a controller's pod.
#[derive(Debug)]
pub struct Connection {
    /// Where it leads.
    pub peer: Peer,
    sender: SendRequest<Empty<Bytes>>,
    authorization: Option<HeaderValue>,
    _driver: AbortOnDropHandle<()>,
}

impl Connection {
    /// Finds the pod and goes there.
    pub async fn open(clients: &Clients, which: &Which, deadline: Instant) -> Result<Self, ForwardError> {
        let opening = async {
            // What may not be read here says nothing about the HPAs, about which an observer collects what is refused.
            let client = clients.core.unobserved();
            let user = clients.user.as_ref().ok_or(ForwardError::NoUser)?;
            let peer = find::find(&client, which).await?;
            let mut credentials = user.credentials().await?;
            let port = forward(&client, &peer).await?;
            let tls = credentials.connect(port, Trust::Any).await.map_err(ForwardError::Tls)?;
            let (sender, connection) =
                handshake(TokioIo::new(tls)).await.map_err(|error| ForwardError::Http(error.to_string()))?;
            let driver = AbortOnDropHandle::new(tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "the connection to the controller's pod ended");
                }
            }));
            let authorization = credentials.authorization.take();
            Ok(Self { peer, sender, authorization, _driver: driver })
        };
        timeout_at(deadline, opening).await.unwrap_or(Err(ForwardError::TooLate(WITHIN)))
    }

    /// Whether these clients have a user as whom a controller could be asked.
    pub fn is_possible(clients: &Clients) -> bool {
        clients.user.is_some()
    }

    /// Whether another question can be asked here.
    pub fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Asks one question: a GET of this path (with its query, encoded).
    pub async fn get(&mut self, path: &str, deadline: Instant) -> Result<Bytes, ForwardError> {
        let asking = async {
            let broken = |error: hyper::Error| match error {
                error if error.is_canceled() || error.is_closed() || error.is_incomplete_message() => {
                    ForwardError::Http("it hung up".to_owned())
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
            let request =
                request.body(Empty::new()).map_err(|error| ForwardError::Http(error.to_string()))?;
            self.sender.ready().await.map_err(broken)?;
            let answer = self.sender.send_request(request).await.map_err(broken)?;
            if answer.status().is_success() {
                return body::collect(answer.into_body(), LARGEST).await.map_err(ForwardError::Answer);
            }
            let (head, rest) = answer.into_parts();
            let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let text = body::beginning(rest, LARGEST_ERROR).await;
            let call = Call::get([]);
            let error =
                ApiError::from_answer(&call, head.status, content_type.unwrap_or_default(), None, &text);
            let message = body::said(&text).unwrap_or_else(|| error.to_string());
            Err(match head.status.as_u16() {
                401 => ForwardError::Unknown(message),
                code => ForwardError::Status { code, message },
            })
        };
        timeout_at(deadline, asking).await.unwrap_or(Err(ForwardError::TooLate(WITHIN)))
    }
}

/// Opens the way to the port.
async fn forward(
    client: &Client,
    peer: &Peer,
) -> Result<PortStream<TokioIo<hyper::upgrade::Upgraded>>, ForwardError> {
    let failed = |reason: String| ForwardError::Forward { peer: peer.clone(), reason };
    let key = Key::random().map_err(|error| failed(error.to_string()))?;
    let call = Call::get(["api", "v1", "namespaces", &peer.namespace, "pods", &peer.pod, "portforward"])
        .query("ports", &peer.port.to_string())
        .about("pods/portforward", &peer.pod);
    let answer = match client.upgrade(&call, &WebSocket { key: &key.0, protocol: socket::PROTOCOL }).await {
        Ok(answer) => answer,
        Err(error) if error.is_forbidden() => {
            return Err(ForwardError::Forbidden {
                verbs: vec!["get", "create"],
                resource: "pods/portforward",
                namespace: peer.namespace.clone(),
            });
        }
        Err(error) => return Err(failed(error.to_string())),
    };
    key.check(&answer).map_err(failed)?;
    let upgraded = hyper::upgrade::on(answer).await.map_err(|error| failed(deepest(&error)))?;
    Ok(PortStream::over(upgraded, peer.port).await)
}

fn deepest(error: &(dyn std::error::Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| (*error).source())
        .last()
        .map_or_else(String::new, ToString::to_string)
}
