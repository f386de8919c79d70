//! The pages below the address of the console, for a server that has authorized the client.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::watch::Informer;
use futures::StreamExt as _;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Either, Full, StreamBody};
use hyper::body::Frame;
use percent_encoding::percent_decode_str;
use tokio::time::timeout;

use crate::controller::Inspect;
use crate::store::Store;
use crate::visibility::Review;
use crate::{Explain, assets, headers, stream};

/// Time limit of an explanation, and of the state of the controller.
const READ_WITHIN: Duration = Duration::from_secs(30);

/// The body of a response: a complete body, or the endless stream of events.
pub type Body = Either<Full<Bytes>, UnsyncBoxBody<Bytes, Infallible>>;

/// The pages of one cluster. Clones share their state.
#[derive(Debug, Clone)]
pub struct Pages {
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
pub enum Route {
    /// A file of the program, which is the same for all clusters.
    File,
    /// The events with rows and changes.
    Stream,
    /// The explanation of an HPA.
    Hpa {
        /// The namespace.
        namespace: String,
        /// The name.
        name: String,
    },
    /// The state of the controller.
    Controller,
    /// A name that is not UTF-8.
    Invalid,
    /// The path names no page.
    Nothing,
}

impl Route {
    /// Reads a path after the address of the console, without its leading slash.
    pub fn parse(path: &str) -> Self {
        if path == "figure.css" || assets::find(path).is_some() {
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
    /// Creates the pages for the HPAs of a store. `watches` fill the store.
    pub fn new(
        store: Store,
        watches: Informer,
        explain: Arc<dyn Explain>,
        inspect: Arc<dyn Inspect>,
    ) -> Self {
        Self { shared: Arc::new(Shared { store, watches, explain, inspect }) }
    }

    /// Returns the store with the rows.
    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    /// Responds to a GET of a path. `review` limits the rows of a stream. The caller has authorized the client
    /// for the [`Route`].
    pub async fn respond(&self, path: &str, review: Option<Arc<dyn Review>>) -> Response<Body> {
        let mut response = match Route::parse(path) {
            Route::File => self.file(path),
            Route::Stream => self.stream(review),
            Route::Hpa { namespace, name } => self.explanation(namespace, name).await,
            Route::Controller => self.controller().await,
            Route::Invalid => text(StatusCode::BAD_REQUEST, "the name is not UTF-8\n"),
            Route::Nothing => text(StatusCode::NOT_FOUND, "no such page\n"),
        };
        headers::protect(response.headers_mut());
        response
    }

    fn file(&self, path: &str) -> Response<Body> {
        match assets::find(path) {
            Some(asset) => answer(StatusCode::OK, asset.kind, asset.body),
            None => answer(StatusCode::OK, "text/css; charset=utf-8", self.shared.explain.style()),
        }
    }

    fn stream(&self, review: Option<Arc<dyn Review>>) -> Response<Body> {
        let events = stream::events(&self.shared.store, &self.shared.watches, review);
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
            Ok(Err(error)) => text(StatusCode::BAD_GATEWAY, error),
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

/// A refusal as text, with the headers of every response.
pub fn refusal(status: StatusCode, message: impl Into<Bytes>) -> Response<Body> {
    let mut response = text(status, message);
    headers::protect(response.headers_mut());
    response
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
    use super::Route;

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
}
