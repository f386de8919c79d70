//! Serves the record over HTTP.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use percent_encoding::percent_decode_str;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Record;
use super::wire::{
    API_VERSION, Comparison, ControllerInfo, DECISION_LIST, DECISION_SUMMARY_LIST, DecisionEntry,
    DecisionList, DecisionSummary, DecisionSummaryList, Failure, HpaMetadata, PageMetadata,
};
use engine::reconcile::Controller;
use engine::store::{HpaRecord, Key};

/// Maximum number of HPAs on a page.
const PAGE: usize = 500;

/// The size of a record in bytes above which its response is large. A usual record takes a few kilobytes. Its response
/// takes about eight times as many bytes.
const LARGE_RECORD: usize = 64 << 10;

/// The record of one controller, with its flags, histories and HPAs.
#[derive(Debug, Clone)]
pub struct Decisions {
    record: Arc<Record>,
    controller: Arc<Controller>,
    comparisons: Option<Arc<dyn Comparisons>>,
    /// The permit for a large response, held until the response is sent.
    large: Arc<Semaphore>,
}

/// Compares this controller's decisions with another controller's changes.
pub trait Comparisons: fmt::Debug + Send + Sync {
    /// Returns the result of the comparison for one HPA.
    fn comparison(&self, key: &Key) -> Comparison;
}

/// A response: HTTP status and JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: StatusCode,
    /// The body.
    pub json: Bytes,
}

/// A JSON page, built for each request from its query.
pub type JsonPage = Arc<dyn Fn(Option<&str>) -> Answer + Send + Sync>;

/// A large response in memory.
struct LargeJson {
    json: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for LargeJson {
    fn as_ref(&self) -> &[u8] {
        &self.json
    }
}

impl Answer {
    /// Creates an error response, in the form of Kubernetes' Status.
    pub fn failure(status: StatusCode, message: String) -> Self {
        let failure = Failure {
            api_version: "v1".to_owned(),
            kind: "Status".to_owned(),
            status: "Failure".to_owned(),
            message,
            // The reason of `Not Found` is `NotFound`.
            reason: status.canonical_reason().unwrap_or_default().replace(' ', ""),
            code: status.as_u16(),
        };
        Self::json(status, &failure)
    }

    /// Creates a successful response.
    pub fn ok(body: &impl Serialize) -> Self {
        Self::json(StatusCode::OK, body)
    }

    fn json(status: StatusCode, body: &impl Serialize) -> Self {
        match serde_json::to_vec(body) {
            Ok(json) => Self { status, json: json.into() },
            // This case is unreachable, because every key is a string.
            Err(_) => Self { status: StatusCode::INTERNAL_SERVER_ERROR, json: Bytes::from_static(b"{}") },
        }
    }
}

impl Decisions {
    /// Creates the pages of `record`, which belongs to `controller`.
    pub fn new(record: Arc<Record>, controller: Arc<Controller>) -> Self {
        Self { record, controller, comparisons: None, large: Arc::new(Semaphore::new(1)) }
    }

    /// Adds the comparison with another controller to each HPA.
    #[must_use]
    pub fn comparing(self, comparisons: Option<Arc<dyn Comparisons>>) -> Self {
        Self { comparisons, ..self }
    }

    /// Returns the record of decisions that these pages serve.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Responds to a GET.
    pub fn answer(&self, asked: &DecisionsRequest) -> Answer {
        match asked {
            DecisionsRequest::Page(page) => self.page(page),
            DecisionsRequest::One(key) => self.one(key),
        }
    }

    /// Responds with the record of one HPA. At most one large response is in flight at a time.
    fn one(&self, key: &Key) -> Answer {
        let name = &key.name;
        let hpa = self.controller.stores.hpas.get(key);
        let is_large = hpa.is_some_and(|hpa| self.record.bytes(&hpa.uid) > LARGE_RECORD);
        let permit = is_large.then(|| Arc::clone(&self.large).try_acquire_owned());
        if let Some(Err(_)) = permit {
            let message = format!(
                "the record of horizontalpodautoscalers.autoscaling {name:?} is large, and another large \
                 response is in flight: retry after a second"
            );
            return Answer::failure(StatusCode::TOO_MANY_REQUESTS, message);
        }
        let Some(list) = self.list(key) else {
            let message = format!("horizontalpodautoscalers.autoscaling {name:?} not found");
            return Answer::failure(StatusCode::NOT_FOUND, message);
        };
        let Answer { status, json } = Answer::json(StatusCode::OK, &list);
        let json = match permit {
            Some(Ok(permit)) => Bytes::from_owner(LargeJson { json: json.into(), _permit: permit }),
            _ => json,
        };
        Answer { status, json }
    }

    /// Returns the record of one HPA. `None` if the HPA is not in the controller's store. An HPA without decisions has
    /// an empty list.
    pub fn list(&self, key: &Key) -> Option<DecisionList> {
        let hpa = self.controller.stores.hpas.get(key)?;
        let handover = self.controller.guests.scope.state(key);
        Some(DecisionList {
            api_version: API_VERSION.to_owned(),
            kind: DECISION_LIST.to_owned(),
            metadata: metadata(&hpa),
            controller: ControllerInfo::new(&self.controller),
            now: self.controller.clock.now(),
            history: self.controller.stores.histories.get(&hpa.uid).into(),
            decisions: self.record.decisions(&hpa.uid),
            comparison: self.comparisons.as_ref().map(|comparisons| comparisons.comparison(key)),
            handover: handover.map(str::to_owned),
        })
    }

    fn page(&self, page: &Page) -> Answer {
        let Page { limit, after, namespace } = page;
        let mut keys = self.controller.stores.hpas.keys();
        if let Some(namespace) = namespace {
            keys.retain(|key| *key.namespace == **namespace);
        }
        let start = after.as_ref().map_or(0, |after| keys.partition_point(|key| key <= after));
        let rest = keys.get(start..).unwrap_or_default();
        let (page, remaining) = rest.split_at((*limit).min(rest.len()));
        let more = page.last().filter(|_| !remaining.is_empty());
        let list = DecisionSummaryList {
            api_version: API_VERSION.to_owned(),
            kind: DECISION_SUMMARY_LIST.to_owned(),
            metadata: PageMetadata {
                next: more.map(ToString::to_string),
                remaining_item_count: more.map(|_| remaining.len()),
            },
            controller: ControllerInfo::new(&self.controller),
            now: self.controller.clock.now(),
            items: page.iter().filter_map(|key| self.summary(key)).collect(),
        };
        Answer::json(StatusCode::OK, &list)
    }

    /// Returns the last decision of an HPA. `None` if it has no decisions.
    fn summary(&self, key: &Key) -> Option<DecisionSummary> {
        let hpa = self.controller.stores.hpas.get(key)?;
        let last = self.record.last(&hpa.uid)?;
        let HpaMetadata { namespace, name, uid, .. } = metadata(&hpa);
        let DecisionEntry { first_at, last_at, syncs, result, .. } = last;
        let sync_period = self.controller.guests.rules.due(key).period.map(|own| own.period);
        Some(DecisionSummary { namespace, name, uid, first_at, last_at, syncs, sync_period, result })
    }
}

impl ControllerInfo {
    /// Creates the description of a controller.
    pub fn new(controller: &Controller) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            sync_period: controller.period,
            settings: (&controller.settings).into(),
        }
    }
}

fn metadata(hpa: &HpaRecord) -> HpaMetadata {
    HpaMetadata {
        namespace: hpa.key.namespace.to_string(),
        name: hpa.key.name.to_string(),
        uid: hpa.uid.to_string(),
        generation: hpa.generation,
    }
}

/// The reason why a request is invalid.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error("{0} is not valid UTF-8")]
    Encoding(String),
    #[error("limit {0:?} is not a count")]
    Limit(String),
    #[error("continue {0:?} is not a token of this server: start without it")]
    Continue(String),
    #[error(
        "invalid {what} {encoded:?}: it must have 1 to {longest} lower case letters, digits, dots and hyphens"
    )]
    Name { what: &'static str, encoded: String, longest: usize },
}

/// A parsed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecisionsRequest {
    /// One page: the last decision of each of its HPAs.
    Page(Page),
    /// The record of one HPA.
    One(Key),
}

impl DecisionsRequest {
    /// Parses the path after `/decisions`. An error is the response to send.
    pub fn parse(path: &str, query: Option<&str>) -> Result<Self, Answer> {
        let bad = |error: RequestError| Answer::failure(StatusCode::BAD_REQUEST, error.to_string());
        if path.is_empty() {
            return Page::parse(query.unwrap_or_default()).map(Self::Page).map_err(bad);
        }
        let mut segments = path.strip_prefix('/').unwrap_or(path).split('/');
        let (Some(namespace), Some(name), None) = (segments.next(), segments.next(), segments.next()) else {
            let message = "the pages are /decisions and /decisions/{namespace}/{name}".to_owned();
            return Err(Answer::failure(StatusCode::NOT_FOUND, message));
        };
        let namespace = segment("namespace", namespace, 63).map_err(bad)?;
        let name = segment("name", name, 253).map_err(bad)?;
        Ok(Self::One(Key::new(namespace, name.as_str())))
    }

    /// Returns the namespace of the request. `None` means all namespaces.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Page(page) => page.namespace.as_deref(),
            Self::One(key) => Some(&key.namespace),
        }
    }

    /// Returns the name of the requested HPA. `None` means all HPAs of the namespace.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Page(_) => None,
            Self::One(key) => Some(&key.name),
        }
    }
}

/// The requested page of HPAs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    limit: usize,
    after: Option<Key>,
    /// The namespace of the HPAs. `None` means all namespaces.
    namespace: Option<String>,
}

impl Page {
    /// Parses `limit` and `continue`, as in Kubernetes' lists, and `namespace`. An empty or zero value counts as
    /// absent.
    fn parse(query: &str) -> Result<Self, RequestError> {
        let mut page = Self { limit: PAGE, after: None, namespace: None };
        for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let value = decode(value).ok_or_else(|| RequestError::Encoding(key.to_owned()))?;
            match key {
                "limit" if !value.is_empty() => {
                    let limit: usize = value.parse().map_err(|_| RequestError::Limit(value))?;
                    page.limit = if limit == 0 { PAGE } else { limit.min(PAGE) };
                }
                "continue" if !value.is_empty() => {
                    let (namespace, name) =
                        value.split_once('/').ok_or_else(|| RequestError::Continue(value.clone()))?;
                    page.after = Some(Key::new(namespace, name));
                }
                "namespace" if !value.is_empty() => page.namespace = Some(segment("namespace", &value, 63)?),
                _ => {}
            }
        }
        Ok(page)
    }
}

/// Parses one segment of a path: the name of an object, by Kubernetes' rules.
fn segment(what: &'static str, encoded: &str, longest: usize) -> Result<String, RequestError> {
    let allowed = |text: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        !text.is_empty() && text.len() <= longest && text.bytes().all(inner)
    };
    decode(encoded).filter(|text| allowed(text)).ok_or_else(|| RequestError::Name {
        what,
        encoded: encoded.to_owned(),
        longest,
    })
}

fn decode(encoded: &str) -> Option<String> {
    percent_decode_str(encoded).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}
