//! The reasons why a source has no number.

use std::net::IpAddr;
use std::sync::Arc;

use exposition::kubelet::KubeletError;
use exposition::{InvalidValue, PageError};
use promql::{AnswerError, QueryError};

use crate::dial::TlsProblem;
use crate::http::RequestError;
use crate::transports::SecretProblem;

/// The reason why a source has no number for a metric of an HPA.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SourceError {
    /// The source file has no server with this name.
    #[error("the source file has no such server")]
    UnknownServer,
    /// The source file has no such API group.
    #[error("the source file does not list this API group under adapters")]
    UnknownGroup,
    /// The source is an API group, which is read through the API server.
    #[error("this source is an API group, which the API server serves")]
    OfApiServer,
    /// The HPA's namespace may not use the source.
    #[error("the source file does not allow this namespace to use it")]
    Namespace,
    /// The source file does not enable the scraper of pods.
    #[error("the source file does not enable scraping of pods: set pods.enabled")]
    Disabled,
    /// The source file does not enable the scraper of kubelets.
    #[error("the source file does not enable scraping of kubelets: set kubelet.enabled")]
    KubeletDisabled,
    /// The metric is not of type Resource or ContainerResource.
    #[error("kubelets are read for metrics of type Resource and ContainerResource only")]
    NotResource,
    /// The source file does not allow TLS for pods.
    #[error("the source file does not allow TLS for pods: set pods.tls")]
    TlsDisabled,
    /// The source file does not allow Secrets of the namespace.
    #[error("the source file does not allow Secrets of this namespace: add it to pods.secretNamespaces")]
    SecretsDisabled,
    /// A Secret has no usable value. Holds its name and the cause.
    #[error("Secret {0} {1}")]
    Secret(Arc<str>, SecretProblem),
    /// The certificate authorities cannot be used.
    #[error("tlsConfig.ca cannot be used: {0}")]
    Authorities(TlsProblem),
    /// The namespace names too many Secrets. Holds the limit.
    #[error("the namespace names more than {0} Secrets for pages of pods")]
    TooManySecrets(usize),
    /// The namespace uses too many combinations of TLS settings and authorization. Holds the limit.
    #[error("the namespace has more than {0} different tlsConfig and authorization")]
    TooManyTransports(usize),
    /// No sync has recently prepared the TLS settings of the page.
    #[error("certificate authorities and token of the page are not ready: retrying with the next sync")]
    NotPrepared,
    /// The metric is not of type Pods.
    #[error("pods are scraped for metrics of type Pods only")]
    NotPods,
    /// The query is refused.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The request has no usable response.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The response contains no usable number.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// The page is refused.
    #[error("the page is invalid: {0}")]
    Page(#[from] PageError),
    /// The page of a kubelet is refused.
    #[error("the page is invalid: {0}")]
    Kubelet(#[from] KubeletError),
    /// The content type of the page is not a text format of metrics. Holds `Content-Type`.
    #[error("the page has the type {0:?}: it must be text/plain or application/openmetrics-text")]
    ContentType(String),
    /// A value is NaN or infinite.
    #[error(transparent)]
    Value(#[from] InvalidValue),
    /// The pod has no address.
    #[error("the pod has no address yet")]
    NoAddress,
    /// The pod's address is the address of its node, or outside of pod networks.
    #[error("the pod uses the address of its node, or an address outside of pod networks")]
    Address,
    /// The pod declares no such port.
    #[error("the pod declares no such port")]
    NoPort,
    /// The namespace has too many pages. Holds the limit.
    #[error("the namespace has more than {0} pages of pods that are scraped")]
    TooManyPages(usize),
    /// The page has too many metrics. Holds the limit.
    #[error("more than {0} metrics are read from one page")]
    TooManyMetrics(usize),
    /// Too many counters are kept. Holds the scope of the limit.
    #[error("too many counters are kept for {0}: select fewer series, or scrape less often")]
    TooManyCounters(&'static str),
    /// The pod is not bound to a node yet, or its node has an address that is not scraped.
    #[error("the node of the pod has no address, or an address outside of node networks")]
    NodeAddress,
    /// The node has no usable page. Holds its address and the cause.
    #[error("node {0}: {1}")]
    Node(IpAddr, Arc<Self>),
    /// Too many nodes are scraped. Holds the limit.
    #[error("more than {0} nodes are scraped")]
    TooManyNodes(usize),
    /// No pod has a number. Holds the number of pods, and the name and the error of one pod.
    #[error("none of {0} pods has a number; {1}: {2}")]
    AllPods(usize, Arc<str>, Arc<Self>),
    /// The number is too old. Holds its age and the limit, in seconds.
    #[error("the number is {0} s old, at most {1} s are allowed")]
    TooOld(u64, u32),
    /// A range query returns no value.
    #[error("the query returns no series of the target in this time")]
    NoPast,
    /// The request panicked.
    #[error("the request panicked: see the log")]
    Panicked,
}

impl SourceError {
    /// Returns the value of the label `reason` in Concertina's metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::UnknownServer
            | Self::UnknownGroup
            | Self::OfApiServer
            | Self::Namespace
            | Self::Disabled
            | Self::KubeletDisabled
            | Self::TlsDisabled
            | Self::SecretsDisabled
            | Self::NotPods
            | Self::NotResource => "NotAllowed",
            Self::Query(_) => "InvalidQuery",
            Self::Request(RequestError::Timeout(_)) => "Timeout",
            Self::Request(_) => "Request",
            Self::Answer(AnswerError::Partial(_)) => "Partial",
            Self::Answer(_) | Self::Value(_) => "InvalidAnswer",
            Self::Page(_) | Self::Kubelet(_) | Self::ContentType(_) => "InvalidPage",
            Self::NoAddress | Self::Address | Self::NoPort | Self::NodeAddress => "NoAddress",
            Self::Secret(..) | Self::Authorities(_) | Self::NotPrepared => "Credentials",
            Self::TooManyPages(_)
            | Self::TooManyMetrics(_)
            | Self::TooManyCounters(_)
            | Self::TooManySecrets(_)
            | Self::TooManyTransports(_)
            | Self::TooManyNodes(_) => "TooMany",
            Self::AllPods(_, _, error) | Self::Node(_, error) => error.reason(),
            Self::TooOld(..) => "TooOld",
            Self::NoPast => "NoPast",
            Self::Panicked => "Panicked",
        }
    }
}
