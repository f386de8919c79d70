//! The record over HTTP: which page a path names, and what it says.

use std::fmt;
use std::sync::Arc;

use http::StatusCode;
use percent_encoding::percent_decode_str;
use serde::Serialize;

use super::Record;
use super::wire::{
    API_VERSION, Comparison, ControllerInfo, DECISION_LIST, DECISION_SUMMARY_LIST, DecisionEntry,
    DecisionList, DecisionSummary, DecisionSummaryList, Failure, HpaMetadata, PageMetadata,
};
use crate::controller::Controller;
use crate::store::{HpaRecord, Key};

/// How many HPAs a page has at most.
const PAGE: usize = 500;

/// The record of one controller, with what the controller adds to it: flags, histories, which HPAs there are.
#[derive(Debug, Clone)]
pub struct Decisions {
    record: Arc<Record>,
    controller: Arc<Controller>,
    comparisons: Option<Arc<dyn Comparisons>>,
}

/// Who compares the decisions of a dry run with another controller's changes.
pub trait Comparisons: fmt::Debug + Send + Sync {
    /// What came of it for an HPA.
    fn comparison(&self, key: &Key) -> Comparison;
}

/// An answer: HTTP status and JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: StatusCode,
    /// The body.
    pub json: Vec<u8>,
}

impl Answer {
    /// A refusal, in the form of Kubernetes' Status.
    pub fn failure(status: StatusCode, message: String) -> Self {
        let failure = Failure {
            api_version: "v1".to_owned(),
            kind: "Status".to_owned(),
            status: "Failure".to_owned(),
            message,
            // `Not Found` is `NotFound`.
            reason: status.canonical_reason().unwrap_or_default().replace(' ', ""),
            code: status.as_u16(),
        };
        Self::json(status, &failure)
    }

    /// What was asked for.
    pub fn ok(body: &impl Serialize) -> Self {
        Self::json(StatusCode::OK, body)
    }

    fn json(status: StatusCode, body: &impl Serialize) -> Self {
        match serde_json::to_vec(body) {
            Ok(json) => Self { status, json },
            // Cannot happen: every key is a text.
            Err(_) => Self { status: StatusCode::INTERNAL_SERVER_ERROR, json: b"{}".to_vec() },
        }
    }
}

impl Decisions {
    /// What this controller tells of what this record keeps.
    pub fn new(record: Arc<Record>, controller: Arc<Controller>) -> Self {
        Self { record, controller, comparisons: None }
    }

    /// Tells of an HPA what came of comparing, too.
    #[must_use]
    pub fn comparing(self, comparisons: Option<Arc<dyn Comparisons>>) -> Self {
        Self { comparisons, ..self }
    }

    /// The record.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Answers a GET.
    pub fn answer(&self, asked: &Asked) -> Answer {
        match asked {
            Asked::Page(page) => self.page(page),
            Asked::One(key) => match self.of(key) {
                Some(list) => Answer::json(StatusCode::OK, &list),
                None => Answer::failure(
                    StatusCode::NOT_FOUND,
                    format!("horizontalpodautoscalers.autoscaling {:?} not found", key.name),
                ),
            },
        }
    }

    /// The record of one HPA; `None` if the controller knows no such HPA. One that was not decided yet has no decisions.
    pub fn of(&self, key: &Key) -> Option<DecisionList> {
        let hpa = self.controller.hpas.get(key)?;
        Some(DecisionList {
            api_version: API_VERSION.to_owned(),
            kind: DECISION_LIST.to_owned(),
            metadata: metadata(&hpa),
            controller: ControllerInfo::of(&self.controller),
            now: self.controller.clock.now(),
            history: self.controller.histories.get(&hpa.uid).into(),
            decisions: self.record.decisions(&hpa.uid),
            comparison: self.comparisons.as_ref().map(|comparisons| comparisons.comparison(key)),
        })
    }

    fn page(&self, page: &Page) -> Answer {
        let Page { limit, after, namespace } = page;
        let mut keys = self.controller.hpas.keys();
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
            controller: ControllerInfo::of(&self.controller),
            now: self.controller.clock.now(),
            items: page.iter().filter_map(|key| self.summary(key)).collect(),
        };
        Answer::json(StatusCode::OK, &list)
    }

    /// The last decision of an HPA; `None` if it was not decided yet.
    fn summary(&self, key: &Key) -> Option<DecisionSummary> {
        let hpa = self.controller.hpas.get(key)?;
        let last = self.record.last(&hpa.uid)?;
        let HpaMetadata { namespace, name, uid, .. } = metadata(&hpa);
        let DecisionEntry {
            first_at,
            last_at,
            syncs,
            sentence,
            action,
            limiting_step,
            winner,
            from,
            to,
            outcome,
            ..
        } = last;
        Some(DecisionSummary {
            namespace,
            name,
            uid,
            first_at,
            last_at,
            syncs,
            sentence,
            action,
            limiting_step,
            winner,
            from,
            to,
            outcome,
        })
    }
}

impl ControllerInfo {
    /// What a controller is and was told.
    pub fn of(controller: &Controller) -> Self {
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

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// The last decision of several HPAs.
    Page(Page),
    /// The record of one HPA.
    One(Key),
}

impl Asked {
    /// Reads what follows `/decisions` in a path. The error is the answer.
    pub fn parse(path: &str, query: Option<&str>) -> Result<Self, Answer> {
        let bad = |message| Answer::failure(StatusCode::BAD_REQUEST, message);
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

    /// The namespace it is about; none: all.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Page(page) => page.namespace.as_deref(),
            Self::One(key) => Some(&key.namespace),
        }
    }

    /// The HPA it is about; none: all of the namespace.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Page(_) => None,
            Self::One(key) => Some(&key.name),
        }
    }
}

/// Which page of HPAs is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    limit: usize,
    after: Option<Key>,
    /// Only its HPAs.
    namespace: Option<String>,
}

impl Page {
    /// Reads `limit` and `continue` as Kubernetes' lists take them, and `namespace`; an empty or zero one is as if it
    /// were not given.
    fn parse(query: &str) -> Result<Self, String> {
        let mut page = Self { limit: PAGE, after: None, namespace: None };
        for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let value = decode(value).ok_or_else(|| format!("{key} is not UTF-8"))?;
            match key {
                "limit" if !value.is_empty() => {
                    let limit: usize =
                        value.parse().map_err(|_| format!("limit {value:?} is not a count"))?;
                    page.limit = if limit == 0 { PAGE } else { limit.min(PAGE) };
                }
                "continue" if !value.is_empty() => {
                    let (namespace, name) = value.split_once('/').ok_or_else(|| {
                        format!("continue {value:?} was not given by this server: begin without it")
                    })?;
                    page.after = Some(Key::new(namespace, name));
                }
                "namespace" if !value.is_empty() => page.namespace = Some(segment("namespace", &value, 63)?),
                _ => {}
            }
        }
        Ok(page)
    }
}

/// One segment of a path: the name of an object, as Kubernetes allows it.
fn segment(what: &str, encoded: &str, longest: usize) -> Result<String, String> {
    let allowed = |text: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        !text.is_empty() && text.len() <= longest && text.bytes().all(inner)
    };
    decode(encoded).filter(|text| allowed(text)).ok_or_else(|| {
        format!(
            "{what} {encoded:?} cannot be: it has 1 to {longest} lower case letters, digits, dots and hyphens"
        )
    })
}

fn decode(encoded: &str) -> Option<String> {
    percent_decode_str(encoded).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}
