//! Every request and response of a run: the evidence for the checks of the invariants.

use std::fmt;
use std::time::Duration;

use fake_cluster::Exchange;
use serde_json::Value;

use crate::metrics_backend::hpa_of_selector;
use crate::plan::{Class, InitialState};
use crate::tenants;

/// A request as its process sent it, with its response.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) sent: Duration,
    pub(crate) process: usize,
    /// Number of the process's lifetime.
    pub(crate) life: u32,
    pub(crate) class: Class,
    pub(crate) hpa: Option<usize>,
    /// Whether the request concerns the namespace of hostile tenants.
    pub(crate) is_tenant: bool,
    pub(crate) verb: &'static str,
    /// Path, for the log of the run.
    pub(crate) path: String,
    /// `metadata.resourceVersion` of the written object.
    pub(crate) version: String,
    /// `spec.replicas` of the written object.
    pub(crate) replicas: Option<i64>,
    /// `spec.replicas` before the write.
    pub(crate) before: Option<i64>,
    /// Time at which the cluster applied the request.
    pub(crate) applied: Option<Duration>,
    /// Status code from the cluster, or from an injected fault.
    pub(crate) code: Option<u16>,
    /// Whether the response appears intact to its process.
    pub(crate) intact: bool,
    /// `metadata.resourceVersion` of the returned object.
    pub(crate) shown: String,
    /// Time at which the process received the response.
    pub(crate) answered: Option<Duration>,
}

/// The class of a request and its HPA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) class: Class,
    /// The HPA. `None` for requests of a hostile tenant, and for requests that concern no single HPA.
    pub(crate) hpa: Option<usize>,
    pub(crate) is_tenant: bool,
}

impl Subject {
    pub(crate) fn from_exchange(exchange: &Exchange) -> Self {
        let path = exchange.path.as_str();
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (class, hpa) = match (exchange.verb, parts.as_slice()) {
            ("get", [.., name, "scale"]) => (Class::ScaleGet, InitialState::number(name)),
            (_, [.., name, "scale"]) => (Class::ScalePut, InitialState::number(name)),
            (_, [.., "horizontalpodautoscalers", name, "status"]) => {
                (Class::StatusPut, InitialState::number(name))
            }
            ("get", [.., "horizontalpodautoscalers", name]) => (Class::HpaGet, InitialState::number(name)),
            ("create" | "update" | "patch", [.., "leases"] | [.., "leases", _]) => (Class::LeaseWrite, None),
            (_, [.., "leases"] | [.., "leases", _]) => (Class::LeaseGet, None),
            ("create" | "patch" | "update", [.., "events"] | [.., "events", _]) => (Class::Event, None),
            ("watch", [.., "pods"]) => (Class::WatchPods, None),
            ("watch", [.., "deployments"]) => (Class::WatchTargets, None),
            ("watch", [.., "horizontalpodautoscalers"]) => (Class::WatchHpas, None),
            ("list", ["api", .., "pods"]) => (Class::ListPods, None),
            ("list", [.., "horizontalpodautoscalers"]) => (Class::ListHpas, None),
            (_, ["apis", "metrics.k8s.io", _, _, ..]) => {
                let selector = exchange.query.split('&').find_map(|part| part.strip_prefix("labelSelector="));
                let selector = selector.map(|text| text.replace("%3D", "="));
                (Class::Metrics, selector.as_deref().and_then(hpa_of_selector))
            }
            (_, ["apis", "custom.metrics.k8s.io" | "external.metrics.k8s.io", _, _, .., metric]) => {
                let number = metric.strip_prefix('m').and_then(|rest| rest.split_once('-'));
                (Class::Metrics, number.and_then(|(hpa, _)| hpa.parse().ok()))
            }
            ("get", ["api" | "apis", ..]) => (Class::Discovery, None),
            _ => (Class::Other, None),
        };
        let is_tenant = tenants::owns(path);
        Self { class, hpa: hpa.filter(|_| !is_tenant), is_tenant }
    }
}

impl Entry {
    pub(crate) fn new(
        exchange: &Exchange,
        subject: Subject,
        process: usize,
        life: u32,
        sent: Duration,
    ) -> Self {
        let mut entry = Self {
            sent,
            process,
            life,
            class: subject.class,
            hpa: subject.hpa,
            is_tenant: subject.is_tenant,
            verb: exchange.verb,
            path: exchange.path.clone(),
            version: String::new(),
            replicas: None,
            before: None,
            applied: None,
            code: None,
            intact: false,
            shown: String::new(),
            answered: None,
        };
        if matches!(subject.class, Class::ScalePut | Class::StatusPut)
            && let Ok(body) = serde_json::from_slice::<Value>(&exchange.body)
        {
            body["metadata"]["resourceVersion"].as_str().unwrap_or_default().clone_into(&mut entry.version);
            entry.replicas = body["spec"]["replicas"].as_i64();
            if subject.class == Class::ScalePut {
                // JSON omits a count of zero.
                entry.replicas = Some(entry.replicas.unwrap_or(0));
            }
        }
        entry
    }

    /// Whether the request writes a Scale, a status or an event.
    pub(crate) fn writes(&self) -> bool {
        matches!(self.class, Class::ScalePut | Class::StatusPut | Class::Event)
    }

    /// Whether the cluster applied the request successfully.
    pub(crate) fn is_done(&self) -> bool {
        self.applied.is_some() && self.code.is_some_and(|code| code < 300)
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (process, life) = (self.process, self.life);
        write!(f, "p{process}.{life} {} {}", self.verb, self.path)?;
        if let Some(replicas) = self.replicas {
            match self.before {
                Some(before) => write!(f, " {before} → {replicas}")?,
                None => write!(f, " → {replicas}")?,
            }
        }
        match (self.applied, self.code) {
            (_, Some(code)) => write!(f, " = {code}")?,
            (_, None) => f.write_str(" = no response")?,
        }
        if self.applied.is_some() && self.answered.is_none() {
            f.write_str(" (the response was lost)")?;
        }
        Ok(())
    }
}
