//! The page with all HPAs below `/console`, for authorized clients of the secure port.
//!
//! The page needs the permission to get `/console`. The rows of a namespace need the permission to list its HPAs, and
//! the explanation of an HPA needs the permission to get the HPA. The state of the controller needs the permissions to
//! get `/metrics` and to list all HPAs. The permissions of a stream of events are reviewed every half minute.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use ::console::pages::{Body, Pages, Route, refusal};
use ::console::{MAX_NAMESPACES, Review, Visible};
use futures::future::BoxFuture;
use http::header::{HOST, HeaderName, HeaderValue, LOCATION, ORIGIN, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;

use super::access::{Access, Denial};
use super::pages::of_hpas;
use super::{Guard, connections};
use cluster::permission::{Action, User};

/// The path of the page.
pub(super) const CONSOLE: &str = "/console";
/// The maximum number of streams of events. Each stream keeps a connection open.
const MAX_STREAMS: usize = connections::MAX_CONNECTIONS / 8;
/// The maximum number of streams per user.
const MAX_STREAMS_OF_USER: usize = 8;

/// The pages, and the number of open streams per user. Clones share one state.
#[derive(Debug, Clone)]
pub struct ConsolePages {
    pages: Pages,
    streams: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl ConsolePages {
    /// Creates the console that serves `pages`, without open streams.
    pub fn new(pages: Pages) -> Self {
        Self { pages, streams: Arc::default() }
    }

    /// Returns whether a path belongs to the console.
    pub(super) fn contains(path: &str) -> bool {
        path.strip_prefix(CONSOLE).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Responds to a request for a path of the console.
    pub(super) async fn answer(&self, guard: &Guard, request: &Request<Incoming>) -> Response<Body> {
        match self.authorized(guard, request).await {
            Ok(response) => response,
            Err(Denial { status, message }) => {
                let mut response = refusal(status, format!("{message}\n"));
                if status == StatusCode::TOO_MANY_REQUESTS {
                    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
                }
                response
            }
        }
    }

    async fn authorized(&self, guard: &Guard, request: &Request<Incoming>) -> Result<Response<Body>, Denial> {
        let viewer = Viewer {
            access: guard.access.clone(),
            certificates: guard.certificates.clone(),
            headers: request.headers().clone(),
            _stream: None,
        };
        let user = viewer.user().await?;
        guard.activity.mark_authorized();
        if request.method() != Method::GET {
            return Err(denied(StatusCode::METHOD_NOT_ALLOWED, "only GET is supported"));
        }
        let Some(path) = request.uri().path().strip_prefix("/console/") else {
            // The location is relative, because a proxy may serve the page at another path.
            let mut response = refusal(StatusCode::TEMPORARY_REDIRECT, "");
            response.headers_mut().insert(LOCATION, HeaderValue::from_static("console/"));
            return Ok(response);
        };
        let route = Route::parse(path);
        if route != Route::File && !is_own_page(request.headers()) {
            return Err(denied(StatusCode::FORBIDDEN, "the request comes from a page of another origin"));
        }
        let mut review = None;
        match &route {
            Route::File | Route::Invalid | Route::Nothing => {}
            Route::Stream => {
                let stream = Some(self.open(&user.name)?);
                review =
                    Some(Arc::new(StreamReview(Arc::new(Viewer { _stream: stream, ..viewer })))
                        as Arc<dyn Review>);
            }
            Route::Hpa { namespace, name } => {
                viewer.access.allow(&user, &of_hpas("get", namespace, name)).await?;
            }
            Route::Controller => {
                viewer.access.allow(&user, &path_action("/metrics")).await?;
                viewer.access.allow(&user, &of_hpas("list", "", "")).await?;
            }
        }
        Ok(self.pages.respond(path, review).await)
    }

    /// Adds a stream of a user. Refuses the stream if the user, or all users together, have the maximum number of
    /// streams.
    fn open(&self, user: &str) -> Result<OpenStream, Denial> {
        let mut streams = self.streams.lock();
        let of_user = streams.get(user).copied().unwrap_or_default();
        if of_user >= MAX_STREAMS_OF_USER || streams.values().sum::<usize>() >= MAX_STREAMS {
            let message = "too many pages are open: close one, or wait until another user does";
            return Err(denied(StatusCode::TOO_MANY_REQUESTS, message));
        }
        *streams.entry(user.to_owned()).or_default() += 1;
        Ok(OpenStream { user: user.to_owned(), streams: Arc::clone(&self.streams) })
    }
}

/// An open stream in [`ConsolePages::streams`]. A drop removes the stream.
struct OpenStream {
    user: String,
    streams: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut streams = self.streams.lock();
        if let Some(count) = streams.get_mut(&self.user) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                streams.remove(&self.user);
            }
        }
    }
}

/// The client of a request.
struct Viewer {
    access: Access,
    certificates: Vec<CertificateDer<'static>>,
    headers: HeaderMap,
    _stream: Option<OpenStream>,
}

impl fmt::Debug for Viewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The headers may contain a token, so they are not printed.
        f.debug_struct("Viewer").finish_non_exhaustive()
    }
}

impl Viewer {
    /// Identifies the user, and checks the permission to get the page.
    async fn user(&self) -> Result<User, Denial> {
        let user = self.access.user(&self.certificates, &self.headers, None).await?;
        self.access.allow(&user, &path_action(CONSOLE)).await?;
        Ok(user)
    }

    async fn visible(&self, namespaces: &BTreeSet<String>) -> Result<Visible, Denial> {
        let user = self.user().await?;
        if self.may_list(&user, "").await? {
            return Ok(Visible::All);
        }
        let mut names = BTreeSet::new();
        for namespace in namespaces.iter().take(MAX_NAMESPACES) {
            if self.may_list(&user, namespace).await? {
                names.insert(namespace.clone());
            }
        }
        Ok(Visible::Namespaces { names, unreviewed: namespaces.len().saturating_sub(MAX_NAMESPACES) })
    }

    /// Returns whether the user may list the HPAs of a namespace. An empty namespace means all namespaces.
    async fn may_list(&self, user: &User, namespace: &str) -> Result<bool, Denial> {
        match self.access.allow(user, &of_hpas("list", namespace, "")).await {
            Ok(()) => Ok(true),
            Err(denial) if denial.status == StatusCode::FORBIDDEN => Ok(false),
            Err(denial) => Err(denial),
        }
    }
}

/// Reviews the permissions of the client of a stream.
#[derive(Debug)]
struct StreamReview(Arc<Viewer>);

impl Review for StreamReview {
    fn review(&self, namespaces: BTreeSet<String>) -> BoxFuture<'static, Option<Visible>> {
        let viewer = Arc::clone(&self.0);
        Box::pin(async move { viewer.visible(&namespaces).await.ok() })
    }
}

/// Returns whether a request comes from the page or from a client other than a browser. Browsers mark a request of
/// another origin with the header `Sec-Fetch-Site` or `Origin`.
fn is_own_page(headers: &HeaderMap) -> bool {
    if let Some(site) = headers.get(HeaderName::from_static("sec-fetch-site")) {
        return site == "same-origin";
    }
    let Some(origin) = headers.get(ORIGIN) else { return true };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    origin.zip(host).is_some_and(|((_, origin), host)| origin.eq_ignore_ascii_case(host))
}

fn path_action(path: &str) -> Action {
    Action::NonResourceAttributes { path: path.to_owned(), verb: "get".to_owned() }
}

fn denied(status: StatusCode, message: &str) -> Denial {
    Denial { status, message: message.to_owned() }
}
