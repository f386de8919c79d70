//! The pages below the address of the console.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::watch::Informer;
use futures::StreamExt as _;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Either, Full, StreamBody};
use hyper::body::Frame;
use percent_encoding::percent_decode_str;
use tokio::time::timeout;

use crate::controller::Inspect;
use crate::store::Store;
use crate::{Explain, stream};

/// Time limit of an explanation, and of the state of the controller.
const READ_WITHIN: Duration = Duration::from_secs(30);
/// The content security policy: only scripts and styles of the server itself. `data:` permits the empty icon.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

const ASSETS: [Asset; 12] = [
    Asset { path: "", kind: HTML, body: include_str!("../assets/index.html") },
    Asset { path: "console.css", kind: CSS, body: include_str!("../assets/console.css") },
    Asset { path: "controller.css", kind: CSS, body: include_str!("../assets/controller.css") },
    Asset { path: "main.js", kind: SCRIPT, body: include_str!("../assets/main.js") },
    Asset { path: "view.js", kind: SCRIPT, body: include_str!("../assets/view.js") },
    Asset { path: "list.js", kind: SCRIPT, body: include_str!("../assets/list.js") },
    Asset { path: "one.js", kind: SCRIPT, body: include_str!("../assets/one.js") },
    Asset { path: "controller.js", kind: SCRIPT, body: include_str!("../assets/controller.js") },
    Asset { path: "events.js", kind: SCRIPT, body: include_str!("../assets/events.js") },
    Asset { path: "timeline.js", kind: SCRIPT, body: include_str!("../assets/timeline.js") },
    Asset { path: "whatif.js", kind: SCRIPT, body: include_str!("../assets/whatif.js") },
    Asset { path: "dom.js", kind: SCRIPT, body: include_str!("../assets/dom.js") },
];

/// The body of a response: a complete body, or the endless stream of events.
pub(crate) type Body = Either<Full<Bytes>, UnsyncBoxBody<Bytes, Infallible>>;

/// A file of the page, compiled into the program.
#[derive(Debug, Clone, Copy)]
struct Asset {
    /// The path after the token. Empty for the page itself.
    path: &'static str,
    /// The header `Content-Type`.
    kind: &'static str,
    body: &'static str,
}

/// The pages of one cluster. Clones share their state.
#[derive(Debug, Clone)]
pub(crate) struct Pages {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: Store,
    watches: Informer,
    explain: Arc<dyn Explain>,
    inspect: Arc<dyn Inspect>,
}

/// The resource at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// A file of the page.
    File,
    /// The server-sent events with the rows and their changes.
    Stream,
    /// The explanation of an HPA.
    Hpa {
        /// `metadata.namespace`, decoded.
        namespace: String,
        /// `metadata.name`, decoded.
        name: String,
    },
    /// The state of the controller.
    Controller,
    /// A name that is not UTF-8.
    Invalid,
    /// A path without a page.
    Nothing,
}

impl Route {
    /// Returns the resource at `path`, relative to the address of the console and without a leading slash.
    pub(crate) fn parse(path: &str) -> Self {
        if path == "figure.css" || asset(path).is_some() {
            return Self::File;
        }
        match path.split('/').collect::<Vec<_>>()[..] {
            ["stream"] => Self::Stream,
            ["controller"] => Self::Controller,
            ["hpas", namespace, name] => match (decoded(namespace), decoded(name)) {
                (Some(namespace), Some(name)) => Self::Hpa { namespace, name },
                _ => Self::Invalid,
            },
            _ => Self::Nothing,
        }
    }
}

impl Pages {
    /// Creates the pages for the HPAs of `store`, which `watches` fill.
    pub(crate) fn new(
        store: Store,
        watches: Informer,
        explain: Arc<dyn Explain>,
        inspect: Arc<dyn Inspect>,
    ) -> Self {
        Self { shared: Arc::new(Shared { store, watches, explain, inspect }) }
    }

    /// Returns the store with the rows.
    pub(crate) fn store(&self) -> &Store {
        &self.shared.store
    }

    /// Responds to a GET of `path`, which is as in [`Route::parse`]. The caller has authorized the client.
    pub(crate) async fn respond(&self, path: &str) -> Response<Body> {
        let mut response = match Route::parse(path) {
            Route::File => self.file(path),
            Route::Stream => self.stream(),
            Route::Hpa { namespace, name } => self.explanation(namespace, name).await,
            Route::Controller => self.controller().await,
            Route::Invalid => text(StatusCode::BAD_REQUEST, "the name is not UTF-8\n"),
            Route::Nothing => text(StatusCode::NOT_FOUND, "no such page\n"),
        };
        protect(response.headers_mut());
        response
    }

    fn file(&self, path: &str) -> Response<Body> {
        match asset(path) {
            Some(asset) => answer(StatusCode::OK, asset.kind, asset.body),
            None => answer(StatusCode::OK, "text/css; charset=utf-8", self.shared.explain.style()),
        }
    }

    fn stream(&self) -> Response<Body> {
        let events = stream::events(&self.shared.store, &self.shared.watches);
        let body = StreamBody::new(events.map(|event| Ok(Frame::data(event)))).boxed_unsync();
        let mut response = typed(StatusCode::OK, "text/event-stream", Either::Right(body));
        // Without this header, NGINX buffers events.
        response
            .headers_mut()
            .insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
        response
    }

    async fn explanation(&self, namespace: String, name: String) -> Response<Body> {
        let subject = self.shared.store.subject(namespace, name);
        match timeout(READ_WITHIN, self.shared.explain.explain(subject)).await {
            Ok(Ok(document)) => answer(StatusCode::OK, "application/json", document),
            Ok(Err(error)) => text(StatusCode::BAD_GATEWAY, error.to_string()),
            Err(_) => text(StatusCode::GATEWAY_TIMEOUT, "the cluster did not respond within 30 s\n"),
        }
    }

    async fn controller(&self) -> Response<Body> {
        let Ok(state) = timeout(READ_WITHIN, self.shared.inspect.inspect()).await else {
            return text(StatusCode::GATEWAY_TIMEOUT, "the cluster did not respond within 30 s\n");
        };
        match serde_json::to_vec(&state) {
            Ok(document) => answer(StatusCode::OK, "application/json", document),
            Err(error) => {
                let message = format!("failed to encode the state of the controller: {error}\n");
                text(StatusCode::INTERNAL_SERVER_ERROR, message)
            }
        }
    }
}

/// Returns the response to a refused request. `message` is its body.
pub(crate) fn refusal(status: StatusCode, message: impl Into<Bytes>) -> Response<Body> {
    let mut response = text(status, message);
    protect(response.headers_mut());
    response
}

/// Adds the headers that prevent other origins from using the page, and keep its token out of caches and referrers.
pub(crate) fn protect(headers: &mut HeaderMap) {
    let fixed: [(HeaderName, &'static str); 6] = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

fn asset(path: &str) -> Option<Asset> {
    ASSETS.into_iter().find(|asset| asset.path == path)
}

pub(crate) fn decoded(segment: &str) -> Option<String> {
    percent_decode_str(segment).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    answer(status, "text/plain; charset=utf-8", text)
}

pub(crate) fn answer(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    typed(status, kind, Either::Left(Full::new(body.into())))
}

fn typed(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::{ASSETS, Route};

    #[test]
    fn paths_have_routes() {
        let hpa = |namespace: &str, name: &str| Route::Hpa { namespace: namespace.into(), name: name.into() };
        for (path, route) in [
            ("", Route::File),
            ("main.js", Route::File),
            ("figure.css", Route::File),
            ("stream", Route::Stream),
            ("controller", Route::Controller),
            ("hpas/shop/a%2Fb", hpa("shop", "a/b")),
            ("hpas/shop/%ff", Route::Invalid),
            ("hpas/shop", Route::Nothing),
            ("hpas/shop/a/b", Route::Nothing),
            ("../main.js", Route::Nothing),
            ("stream/", Route::Nothing),
        ] {
            assert_eq!(Route::parse(path), route, "{path}");
        }
    }

    #[test]
    fn page_is_small_and_has_no_inline_code() {
        let size: usize = ASSETS.iter().map(|asset| asset.body.len()).sum();
        assert!(size <= 300 << 10, "{size} bytes");
        for asset in ASSETS {
            for forbidden in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "style=",
                "http://",
                "https://",
            ] {
                let is_namespace = |at: usize| asset.body[at..].starts_with("http://www.w3.org/2000/svg");
                let found = asset.body.match_indices(forbidden).any(|(at, _)| !is_namespace(at));
                assert!(!found, "{}: {forbidden}", asset.path);
            }
        }
    }
}
