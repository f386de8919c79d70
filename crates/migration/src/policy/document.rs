//! One policy of a file, with the problems of its fields.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use policies::bounds::contradiction;
use policies::merge::{Policy, Source};
use policies::resolve::{Rules, resolve};
use policies::spec::{Level, MetricOrigin, Parsed, Problem, When, is_subdomain, parse, read};
use promql::Query;
use serde::Serialize;
use serde_json::Value;

use super::import::FileObject;
use cluster::watch::Watched;
use rulebook::{ANNOTATION, GROUP, Kind, VERSION, read_object};
use sources::{FileError, SourceFile};
use terminal::explain::Line;

/// A policy object as the controller decodes it.
pub(super) type PolicyObject = <Kind as Watched>::Object<'static>;

/// The allowed top-level fields of a manifest.
const FIELDS: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];

/// The top-level fields of a file of metric sources.
const SOURCES: [&str; 4] = ["prometheus", "pods", "kubelet", "adapters"];

/// Maximum bytes of the name of an object.
const MAX_NAME: usize = 253;

/// A policy of a file.
#[derive(Debug)]
pub(super) struct Document {
    /// The location of the object: `policies.yaml: document 2`.
    pub(super) location: Arc<str>,
    /// The policy: `ScalingPolicy shop/night`.
    pub(super) title: String,
    pub(super) problems: Vec<FieldProblem>,
    /// Notes about behavior that a user may not expect.
    pub(super) notes: Vec<String>,
    pub(super) parsed: Arc<Parsed>,
    /// The decoded object. `None` for the policy of an annotation, and if the object is invalid.
    pub(super) object: Option<PolicyObject>,
    /// The rules of this policy alone.
    pub(super) rules: Rules,
}

/// A file of metric sources.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct SourcesDocument {
    /// The location of the file: `sources.yaml: document 1`.
    #[cfg_attr(test, schemars(with = "String"))]
    location: Arc<str>,
    valid: bool,
    /// The first problem of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<String>,
}

impl SourcesDocument {
    /// Reads a file of metric sources. Returns `None` for another object. Fields of such a file are no fields of a
    /// policy.
    pub(super) fn new(read: &FileObject) -> Option<Self> {
        let location = Arc::clone(&read.object.location);
        is_sources(&read.object.value).then(|| match &read.text {
            Some(text) => Self::parse(location, text),
            None => Self {
                location,
                valid: false,
                problem: Some("must be the only document of its file".to_owned()),
            },
        })
    }

    /// Validates the text of a file with the parser of the controller.
    pub(super) fn parse(location: Arc<str>, text: &str) -> Self {
        let problem = SourceFile::parse(text, &PathBuf::new()).err().map(|error| match error {
            FileError::Field { field, reason, .. } => format!("{field} {reason}"),
            FileError::Syntax { reason, .. } | FileError::Unreadable { reason, .. } => reason,
        });
        Self { location, valid: problem.is_none(), problem }
    }

    pub(super) fn line(&self) -> Line {
        let head = Line::new("").plain(format!("{}: ", self.location)).strong("metric sources").plain(": ");
        match &self.problem {
            None => head.good("valid"),
            Some(problem) => head.bad(problem.as_str()),
        }
    }
}

/// A field that is missing, invalid or without effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct FieldProblem {
    /// The path. Empty for the policy as a whole.
    pub(super) field: String,
    /// The problem, such as `is missing`.
    pub(super) message: String,
}

impl From<&Problem> for FieldProblem {
    fn from(problem: &Problem) -> Self {
        Self { field: problem.path.clone(), message: problem.reason.to_string() }
    }
}

impl fmt::Display for FieldProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, message } = self;
        if field.is_empty() { write!(f, "the policy {message}") } else { write!(f, "{field}: {message}") }
    }
}

impl FieldProblem {
    fn new(field: &str, message: impl Into<String>) -> Self {
        Self { field: field.to_owned(), message: message.into() }
    }

    /// Prepends the path of the policy within its object to the path of the field.
    fn within(self, prefix: &str) -> Self {
        let field =
            if self.field.is_empty() { prefix.to_owned() } else { format!("{prefix}.{}", self.field) };
        Self { field, ..self }
    }
}

impl Document {
    /// Reads the policy of an object. Returns `None` for an object without a policy.
    pub(super) fn new(read: &FileObject, default_namespace: &str, now: Timestamp) -> Option<Self> {
        let value = &read.object.value;
        if is_of_group(value) {
            return Some(Self::object(read, default_namespace, now));
        }
        if let Some(annotation) = annotation(value) {
            return Some(Self::annotated(read, annotation, now));
        }
        is_bare(value).then(|| Self::bare(read, now))
    }

    /// Reads an object without `apiVersion` and `kind` as the value of the annotation.
    fn bare(read: &FileObject, now: Timestamp) -> Self {
        let parsed = match &read.text {
            Some(text) => parse(text, Level::Annotation),
            None => self::read(read.object.value.clone(), Level::Annotation),
        };
        let problems = problems_of(&parsed).collect();
        Self::with(read, "annotation".to_owned(), Level::Annotation, parsed, problems, None, now)
    }

    fn annotated(read: &FileObject, annotation: &Value, now: Timestamp) -> Self {
        let prefix = format!("metadata.annotations[{ANNOTATION}]");
        let (parsed, problems) = match annotation.as_str() {
            Some(text) => {
                let parsed = parse(text, Level::Annotation);
                let problems = problems_of(&parsed).map(|problem| problem.within(&prefix)).collect();
                (parsed, problems)
            }
            None => (Parsed::default(), vec![FieldProblem::new(&prefix, "must be a string")]),
        };
        let title = format!("annotation of {}", titled(&read.object.value));
        Self::with(read, title, Level::Annotation, parsed, problems, None, now)
    }

    fn object(read: &FileObject, default_namespace: &str, now: Timestamp) -> Self {
        let mut value = read.object.value.clone();
        let mut problems = manifest(&value);
        let kind =
            Kind::ALL.into_iter().find(|kind| value.get("kind").is_some_and(|text| text == kind.as_str()));
        if kind == Some(Kind::Namespaced)
            && let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.entry("namespace").or_insert_with(|| default_namespace.into());
        }
        let title = titled(&value);
        let level = if kind == Some(Kind::Cluster) { Level::Cluster } else { Level::Namespaced };
        let decoded = match kind.filter(|_| problems.is_empty()) {
            Some(kind) => match kind.decode(value.to_string().as_bytes()) {
                Ok(object) => Some(object),
                Err(error) => {
                    problems.push(FieldProblem::new("", format!("cannot be read: {error}")));
                    None
                }
            },
            None => None,
        };
        let parsed = match &decoded {
            Some(object) => read_object(object),
            // The fields are checked even if the object is invalid.
            None => self::read(value.get("spec").cloned().unwrap_or_default(), level),
        };
        problems.extend(problems_of(&parsed).map(|problem| problem.within("spec")));
        let mut document = Self::with(read, title, level, parsed, problems, decoded, now);
        if let Some(object) = &document.object
            && object.selector.as_ref().is_ok_and(autoscaling::selector::Selector::is_empty)
        {
            let scope = if level == Level::Cluster { "the selected namespaces" } else { "the namespace" };
            document
                .notes
                .push(format!("spec.selector is empty: the policy applies to every HPA of {scope}"));
        }
        document
    }

    fn with(
        read: &FileObject,
        title: String,
        level: Level,
        parsed: Parsed,
        problems: Vec<FieldProblem>,
        object: Option<PolicyObject>,
        now: Timestamp,
    ) -> Self {
        let parsed = Arc::new(parsed);
        let source =
            Source { level, name: title.as_str().into(), created: None, parsed: Arc::clone(&parsed) };
        let rules = resolve(&Arc::new(Policy::merge(vec![source])), now);
        let location = Arc::clone(&read.object.location);
        let notes = past(&parsed, now);
        Self { location, title, problems, notes, parsed, object, rules }
    }
}

/// Returns whether an object has a policy, whose HPAs are in the cluster. A file of metric sources has none.
pub(super) fn has_policy(value: &Value) -> bool {
    is_of_group(value) || annotation(value).is_some() || (is_bare(value) && !is_sources(value))
}

fn is_of_group(value: &Value) -> bool {
    let version = value.get("apiVersion").and_then(Value::as_str);
    version.and_then(|version| version.split_once('/')).is_some_and(|(group, _)| group == GROUP)
}

fn is_bare(value: &Value) -> bool {
    value.get("apiVersion").is_none() && value.get("kind").is_none()
}

fn is_sources(value: &Value) -> bool {
    value.as_object().is_some_and(|fields| {
        fields.keys().any(|name| SOURCES.contains(&name.as_str())) && !fields.contains_key("kind")
    })
}

/// Returns the problems of the fields of a policy, and of the queries in them.
fn problems_of(parsed: &Parsed) -> impl Iterator<Item = FieldProblem> {
    let rules = parsed.spec.metrics.as_deref().unwrap_or_default();
    let rules = rules.iter().map(|rule| (format!("metrics.{}.prometheus.query", rule.metric), &rule.origin));
    let history = parsed.spec.forecast.as_ref().and_then(|forecast| forecast.history.as_ref());
    let history = history.map(|origin| ("forecast.history.query".to_owned(), origin));
    let queries = rules.chain(history).filter_map(|(field, origin)| match origin {
        MetricOrigin::Prometheus { query, .. } => {
            Some(FieldProblem { field, message: invalid_query(query.as_ref())? })
        }
        MetricOrigin::Pods(_) | MetricOrigin::Kubelet | MetricOrigin::ApiGroup(_) => None,
    });
    parsed.problems.iter().map(FieldProblem::from).chain(queries)
}

/// Returns the reason why the controller would refuse a query.
pub(super) fn invalid_query(query: &str) -> Option<String> {
    Query::parse(query, None).err().map(|error| error.to_string())
}

/// Returns the value of the annotation `concertina.dev/policy` of an object.
pub(super) fn annotation(value: &Value) -> Option<&Value> {
    value.get("metadata")?.get("annotations")?.get(ANNOTATION)
}

/// Formats the kind and the name of an object: `ScalingPolicy shop/night`.
fn titled(value: &Value) -> String {
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
    let (kind, name) =
        (text("/kind").unwrap_or("object"), text("/metadata/name").unwrap_or("without a name"));
    match text("/metadata/namespace") {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

/// Returns the problems of a manifest outside of its spec.
fn manifest(value: &Value) -> Vec<FieldProblem> {
    let mut problems = Vec::new();
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
    let version = format!("{GROUP}/{VERSION}");
    if text("/apiVersion") != Some(version.as_str()) {
        problems.push(FieldProblem::new("apiVersion", format!("must be {version}")));
    }
    let kinds = Kind::ALL.map(Kind::as_str);
    if !text("/kind").is_some_and(|kind| kinds.contains(&kind)) {
        problems.push(FieldProblem::new("kind", format!("must be {}", kinds.join(" or "))));
    }
    match text("/metadata/name").filter(|name| !name.is_empty()) {
        None => problems.push(FieldProblem::new("metadata.name", "is missing")),
        Some(name) if name.len() > MAX_NAME || !is_subdomain(name) => {
            let message = format!("must be a DNS name of at most {MAX_NAME} characters");
            problems.push(FieldProblem::new("metadata.name", message));
        }
        Some(_) => {}
    }
    match value.get("spec") {
        Some(Value::Object(_)) => {}
        Some(_) => problems.push(FieldProblem::new("spec", "must be a mapping")),
        None => problems.push(FieldProblem::new("spec", "is missing")),
    }
    for name in value.as_object().into_iter().flatten().map(|(name, _)| name) {
        if !FIELDS.contains(&name.as_str()) {
            let suggestion = terminal::words::suggestion(name, &FIELDS);
            problems.push(FieldProblem::new(name, format!("is unknown and has no effect{suggestion}")));
        }
    }
    problems
}

/// Returns notes about valid rules that have expired or contradict each other.
fn past(parsed: &Parsed, now: Timestamp) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(until) = parsed.spec.mode.and_then(|mode| mode.until).filter(|until| *until <= now) {
        notes.push(format!("until {until} is in the past: the mode is Auto"));
    }
    for schedule in parsed.spec.schedules.iter().flat_map(|schedules| schedules.iter()) {
        if let When::Interval { to, .. } = &schedule.when
            && *to <= now
        {
            notes.push(format!("schedule {} ended at {to}", schedule.name));
        }
    }
    let schedules = parsed.spec.schedules.as_deref().unwrap_or_default();
    notes.extend(contradiction(schedules, now).map(|found| found.to_string()));
    notes
}
