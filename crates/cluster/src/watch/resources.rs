//! The resources that can be watched, with the decoders of their objects.

use std::fmt::Debug;
use std::sync::Arc;

use crate::decode::{self, CachedHpa, DecodeError, HpaObject, WirePod};

/// A resource that can be watched, in one namespace or in all.
pub trait Watched: Send + Sync + 'static {
    /// The decoded object. May borrow from the wire bytes.
    type Object<'a>;

    /// Path segments of the collection in all namespaces.
    fn path(&self) -> Vec<&str>;
    /// The resource with its group, as in RBAC rules and error texts: `pods`,
    /// `horizontalpodautoscalers.autoscaling`.
    fn name(&self) -> Arc<str>;
    /// A label selector. Empty selects everything. An object that no longer matches counts as deleted.
    fn labels(&self) -> &'static str {
        ""
    }
    /// Decodes one object.
    fn decode<'a>(&self, object: &'a [u8]) -> Result<Self::Object<'a>, DecodeError>;
    /// `metadata.resourceVersion`.
    fn resource_version<'a>(object: &'a Self::Object<'_>) -> &'a str;
}

/// `pods`
#[derive(Debug, Default)]
pub struct Pods;

impl Watched for Pods {
    type Object<'a> = WirePod<'a>;

    fn path(&self) -> Vec<&str> {
        vec!["api", "v1", "pods"]
    }

    fn name(&self) -> Arc<str> {
        "pods".into()
    }

    fn decode<'a>(&self, object: &'a [u8]) -> Result<WirePod<'a>, DecodeError> {
        decode::pod(object)
    }

    fn resource_version<'a>(object: &'a WirePod<'_>) -> &'a str {
        &object.resource_version
    }
}

/// `horizontalpodautoscalers` of autoscaling/v2
#[derive(Debug, Default)]
pub struct Hpas {
    /// Cached parts of HPAs, which save decoding an unchanged spec again.
    pub known: Option<Arc<dyn HpaCache>>,
}

/// The cache of decoded HPAs.
pub trait HpaCache: Debug + Send + Sync {
    /// The cached parts of one HPA.
    fn known(&self, namespace: &str, name: &str) -> Option<CachedHpa>;
}

impl Watched for Hpas {
    type Object<'a> = HpaObject;

    fn path(&self) -> Vec<&str> {
        vec!["apis", "autoscaling", "v2", "horizontalpodautoscalers"]
    }

    fn name(&self) -> Arc<str> {
        "horizontalpodautoscalers.autoscaling".into()
    }

    fn decode(&self, object: &[u8]) -> Result<HpaObject, DecodeError> {
        decode::decode_cached_hpa(object, |namespace, name| self.known.as_ref()?.known(namespace, name))
    }

    fn resource_version(object: &HpaObject) -> &str {
        &object.resource_version
    }
}
