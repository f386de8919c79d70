//! The plan of a world: requests, metrics and faults, step by step. A plan is a pure value.

use std::collections::BTreeMap;

use http::Method;
use serde_json::Value;

/// A namespace with HPAs and everything they read.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) theme: &'static str,
    pub(crate) namespace: String,
    /// The HPAs, each with the path of its target's Scale.
    pub(crate) hpas: Vec<PlannedHpa>,
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub(crate) struct PlannedHpa {
    pub(crate) name: String,
    /// Path of the Scale that each sync reads first. `None`: the reference of the target is invalid, and a
    /// sync sends no such request.
    pub(crate) scale: Option<String>,
    /// Properties that an intended difference depends on.
    pub(crate) traits: Vec<Trait>,
}

/// A property of an HPA that an intended difference depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trait {
    /// A pod of the target is in the phase Succeeded.
    SucceededPods,
    /// A value, a sum or a target exceeds 2^63 milli-units.
    Overflow,
    /// The HPA is deleted and created again under its name, and its rules depend on the history.
    Recreated,
    /// A write is processed, and its response is lost.
    LostResponse,
}

/// The inputs of the next syncs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Step {
    /// Changes of HPAs, sent while the HPA is between two syncs.
    pub(crate) hpa_changes: Vec<Call>,
    /// Changes of pods and targets.
    pub(crate) changes: Vec<Call>,
    pub(crate) readings: Readings,
    pub(crate) faults: Vec<Fault>,
    /// Number of syncs of each HPA that exists after the changes.
    pub(crate) syncs: u32,
    /// Indices of HPAs that do not exist during the step.
    pub(crate) absent: Vec<usize>,
}

/// A request to the API server. Texts of the form `@-60` stand for the time 60 s before the request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Value,
}

/// The responses of the metrics APIs in one namespace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readings {
    pub(crate) usage: Vec<PodUsage>,
    /// Metrics of pods by name of the metric: pod, application, value.
    pub(crate) pods: BTreeMap<String, Vec<(String, String, String)>>,
    /// Metrics of objects by path below the namespace.
    pub(crate) objects: BTreeMap<String, String>,
    /// Values of external metrics by name.
    pub(crate) external: BTreeMap<String, Vec<String>>,
    /// Answers that replace those of an API group.
    pub(crate) failures: BTreeMap<&'static str, Answer>,
}

#[derive(Clone, Debug)]
pub(crate) struct PodUsage {
    pub(crate) pod: String,
    pub(crate) app: String,
    /// Age of the measurement in seconds.
    pub(crate) age: i64,
    /// Name of the container, resource, quantity.
    pub(crate) containers: Vec<(String, Vec<(&'static str, String)>)>,
}

/// A fault between the controller and the API server. It hits the next `times` requests of its class.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) class: Class,
    pub(crate) times: u32,
    pub(crate) action: Action,
}

/// Classes of requests within a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    ScaleGet,
    ScalePut,
    StatusPut,
    /// POST and PATCH.
    Event,
    Metrics,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Answers without the API server.
    Answer(Answer),
    /// Closes the connection before the API server receives the request.
    CutBefore,
    /// Closes the connection after the API server has processed the request.
    CutAfter,
    /// Closes the connection within the body of the response.
    CutWithin,
    /// Changes the object before the request arrives.
    Interfere,
}

#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) retry_after: Option<u32>,
    pub(crate) media: &'static str,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn text(code: u16, body: &str) -> Self {
        Self { code, retry_after: None, media: "text/plain; charset=utf-8", body: body.to_owned() }
    }

    /// A `metav1.Status`.
    pub(crate) fn status(code: u16, reason: &str, message: &str) -> Self {
        let body = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code,
        });
        Self { code, retry_after: None, media: "application/json", body: body.to_string() }
    }

    pub(crate) fn after(self, seconds: u32) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }
}
