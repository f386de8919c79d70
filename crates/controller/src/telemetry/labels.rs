//! Label sets. The fields of each set are its labels, sorted by name as in Go's registry.
//!
//! Users of the cluster cannot choose any label value, except for the names of HPAs in `desired_replicas`.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::sync::Arc;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};

use cluster::call::Counted;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByResult {
    pub(super) action: &'static str,
    pub(super) error: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByComputation {
    pub(super) action: &'static str,
    pub(super) error: &'static str,
    pub(super) metric_type: Cow<'static, str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByHpa {
    pub(super) hpa_name: String,
    pub(super) namespace: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByGroupResource {
    pub(super) group: &'static str,
    pub(super) resource: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByName {
    pub(super) name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByAnswer {
    pub(super) code: Code,
    pub(super) host: Host,
    pub(super) method: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByHost {
    pub(super) host: Host,
    pub(super) verb: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByRequest {
    pub(super) code: Code,
    pub(super) resource: Resource,
    pub(super) verb: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByBuild {
    pub(super) platform: String,
    pub(super) version: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByApi {
    pub(super) api: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByReason {
    pub(super) reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByResource {
    pub(super) resource: Box<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByRestart {
    pub(super) reason: &'static str,
    pub(super) resource: Box<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct BySource {
    pub(super) source: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByState {
    pub(super) state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByOutcome {
    pub(super) result: &'static str,
}

impl ByHpa {
    pub(super) fn of(namespace: &str, name: &str) -> Self {
        Self { hpa_name: name.to_owned(), namespace: namespace.to_owned() }
    }
}

/// The HTTP status code of an answer, or `<error>` for a request without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Code(pub(super) Option<u16>);

impl EncodeLabelValue for Code {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        match self.0 {
            Some(code) => write!(encoder, "{code}"),
            None => encoder.write_str("<error>"),
        }
    }
}

/// The host and port of an API server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Host(pub(super) Arc<str>);

impl EncodeLabelValue for Host {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        encoder.write_str(&self.0)
    }
}

/// The resource of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Resource(pub(super) Counted);

impl EncodeLabelValue for Resource {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        write!(encoder, "{}", self.0)
    }
}
