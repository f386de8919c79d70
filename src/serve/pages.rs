//! The served pages: their paths, the required permissions, and the responses.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;

use super::health::{Component, Health, Scope, all_checks, one_check};
use cluster::permission::{Action, ResourceAction};
use controller::page::{HANDOVER, JSON, PARITY};
use engine::telemetry::metrics::{self, Metrics};
use journal::record::{Answer, Decisions, DecisionsRequest, JsonPage};

/// The contents of the served pages. Clones share one state.
#[derive(Clone)]
pub struct Endpoints {
    /// The checks of the health paths.
    pub health: Health,
    /// The metrics of `/metrics`.
    pub metrics: Metrics,
    /// The record of `/decisions`. `None` if no decisions are recorded.
    pub decisions: Option<Decisions>,
    /// The content of `/version`, `/statusz` and `/flagz`. `None` if the pages are not served.
    component: Option<Arc<Component>>,
    /// Further pages by path.
    json: BTreeMap<&'static str, JsonPage>,
}

impl Endpoints {
    /// Creates the pages for health, metrics and decisions. `decisions` is `None` if no decisions are recorded.
    pub fn new(health: Health, metrics: Metrics, decisions: Option<Decisions>) -> Self {
        Self { health, metrics, decisions, component: None, json: BTreeMap::new() }
    }

    /// Adds `/version`, `/statusz` and `/flagz`.
    #[must_use]
    pub fn with_component(mut self, component: Component) -> Self {
        self.component = Some(Arc::new(component));
        self
    }

    /// Adds a page at a path of one segment. [`PARITY`] and [`HANDOVER`] need the permission to list all HPAs. Any
    /// other page needs the permission to get its path.
    #[must_use]
    pub fn with_json(mut self, path: &'static str, page: JsonPage) -> Self {
        self.json.insert(path, page);
        self
    }
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoints")
            .field("health", &self.health)
            .field("decisions", &self.decisions.is_some())
            .field("json", &self.json.keys())
            .finish_non_exhaustive()
    }
}

/// The page that a path names.
#[derive(Debug, Clone, Copy)]
enum Page<'a> {
    /// All health checks of a group, or a single check. `check` is empty for all checks.
    Health {
        scope: Scope,
        group: &'a str,
        check: &'a str,
    },
    Metrics,
    /// The rest of a path after `/decisions`.
    Decisions(&'a str),
    Version,
    Statusz,
    Flagz,
    /// One of the further pages, by its path.
    Json(&'a str),
}

impl<'a> Page<'a> {
    fn from_path(path: &'a str) -> Option<Self> {
        let page = path.strip_prefix('/')?;
        let (group, check) = page.split_once('/').unwrap_or((page, ""));
        match group {
            "healthz" | "livez" => Some(Self::Health { scope: Scope::Live, group, check }),
            "readyz" => Some(Self::Health { scope: Scope::Ready, group, check }),
            "decisions" => page.strip_prefix(group).map(Self::Decisions),
            _ if page != group => None,
            "metrics" => Some(Self::Metrics),
            "version" => Some(Self::Version),
            "statusz" => Some(Self::Statusz),
            "flagz" => Some(Self::Flagz),
            _ => Some(Self::Json(path)),
        }
    }
}

/// Returns the action that a client must be allowed to perform to get a response. For a page with data of HPAs, the
/// action reads these HPAs. For any other page, the action gets the path. Returns `None` for an invalid request below
/// `/decisions`, because every authenticated client may get the error.
pub(super) fn action(method: &Method, uri: &http::Uri) -> Option<Action> {
    let path = uri.path();
    let asked = match Page::from_path(path) {
        Some(Page::Decisions(rest)) => DecisionsRequest::parse(rest, uri.query()).ok()?,
        // These pages show every HPA.
        Some(Page::Json(PARITY | HANDOVER)) => DecisionsRequest::parse("", None).ok()?,
        _ => {
            let verb = method.as_str().to_ascii_lowercase();
            return Some(Action::NonResourceAttributes { path: path.to_owned(), verb });
        }
    };
    let verb = if asked.name().is_some() { "get" } else { "list" };
    Some(of_hpas(verb, asked.namespace().unwrap_or_default(), asked.name().unwrap_or_default()))
}

/// Creates an action on HPAs. An empty namespace or name means all.
fn of_hpas(verb: &'static str, namespace: &str, name: &str) -> Action {
    Action::ResourceAttributes(ResourceAction {
        verb,
        group: "autoscaling",
        version: "v2",
        resource: "horizontalpodautoscalers",
        subresource: "",
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

/// Creates the response for an authorized client.
pub(super) fn answer<B>(endpoints: &Endpoints, request: &Request<B>) -> Response<Full<Bytes>> {
    let (method, uri) = (request.method(), request.uri());
    let not_found = || plain(StatusCode::NOT_FOUND, "404 page not found\n");
    let component = endpoints.component.as_ref();
    let Some(page) = Page::from_path(uri.path()).filter(|page| match page {
        Page::Json(path) => endpoints.json.contains_key(path),
        Page::Version | Page::Statusz | Page::Flagz => component.is_some(),
        _ => true,
    }) else {
        return not_found();
    };
    if !matches!(*method, Method::GET | Method::HEAD) {
        let (status, message) = (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are supported");
        let mut response = match page {
            Page::Decisions(_) | Page::Json(_) => json(Answer::failure(status, message.to_owned())),
            _ => plain(status, format!("405 {message}\n")),
        };
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let of_component = |page: &dyn Fn(&Component) -> Response<Full<Bytes>>| {
        component.map_or_else(not_found, |component| page(component))
    };
    match page {
        Page::Metrics => typed(StatusCode::OK, metrics::CONTENT_TYPE, endpoints.metrics.render()),
        Page::Health { scope, group, check: "" } => {
            all_checks(group, &endpoints.health.states(scope), uri.query())
        }
        Page::Health { scope, check, .. } => one_check(check, endpoints.health.states(scope)),
        Page::Decisions(rest) => json(endpoints.decisions.as_ref().map_or_else(
            || {
                let message = "no decisions are recorded: --decisions-per-hpa is 0";
                Answer::failure(StatusCode::NOT_FOUND, message.to_owned())
            },
            |decisions| match DecisionsRequest::parse(rest, uri.query()) {
                Ok(asked) => decisions.answer(&asked),
                Err(answer) => answer,
            },
        )),
        Page::Version => of_component(&|component| typed(StatusCode::OK, JSON, component.version())),
        Page::Statusz => of_component(&|component| plain(StatusCode::OK, component.statusz())),
        Page::Flagz => of_component(&|component| plain(StatusCode::OK, component.flagz())),
        Page::Json(path) => match endpoints.json.get(path) {
            Some(page) => json(page(uri.query())),
            None => not_found(),
        },
    }
}

pub(super) fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    typed(status, "text/plain; charset=utf-8", text)
}

pub(super) fn json(answer: Answer) -> Response<Full<Bytes>> {
    let mut response = typed(answer.status, JSON, answer.json);
    if answer.status == StatusCode::TOO_MANY_REQUESTS {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

fn typed(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}
