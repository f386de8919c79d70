//! Situations for `concertina why`, each in its own namespace, with the expected sentence.
//!
//! The HPA and its Deployment are called `web`, unless the situation needs something else.

use serde_json::{Value, json};

use crate::metrics::{Fault, Load, RESOURCE};
use crate::outcome::Outcome;
use crate::world::{APP, Container, World, container_cpu, cpu_utilization, external, ingress, pods_average};

/// The objects of a situation and the expected explanation.
pub(crate) struct Situation {
    /// The name of the situation and of its namespace.
    pub(crate) name: &'static str,
    /// The replicas of the target.
    replicas: i64,
    /// minReplicas and maxReplicas.
    bounds: (i64, i64),
    /// CPU usage of all pods in milli-cores. Each pod requests 100.
    cpu: Option<i64>,
    /// The fields that differ from an HPA with a target of 50 % cpu and no behavior.
    spec: fn() -> Value,
    /// The expected sentence. `*` matches text that differs between runs.
    pub(crate) sentence: &'static str,
    /// The expected exit code: 0, or 3 with findings.
    pub(crate) exit: i32,
    /// The objects or faults that differ from those of a plain Deployment.
    more: Variation,
}

/// A difference from a plain Deployment with its HPA.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Variation {
    Nothing,
    /// A second HPA for the same Deployment.
    SecondHpa,
    /// The Deployment does not exist.
    NoTarget,
    /// The target is a Widget without a selector in its status.
    NoSelector,
    /// metrics.k8s.io is unavailable.
    MetricsUnavailable,
    /// The container has no cpu request.
    NoRequest,
    /// The external metric `jobs` has the given value.
    Jobs(&'static str),
    /// The pods have the metric `requests` with the given total.
    Requests(i64),
    /// The Ingress `main` has the metric `hits` with the given value.
    Hits(&'static str),
}

fn plain() -> Value {
    json!({})
}

fn behavior(up: &Value, down: &Value) -> Value {
    json!({"behavior": {"scaleUp": up, "scaleDown": down}})
}

fn metrics(metrics: &[Value]) -> Value {
    json!({ "metrics": metrics })
}

const BASE: Situation = Situation {
    name: "",
    replicas: 2,
    bounds: (1, 10),
    cpu: Some(100),
    spec: plain,
    sentence: "",
    exit: 0,
    more: Variation::Nothing,
};

/// All situations. None of the explanations needs history.
pub(crate) const SITUATIONS: &[Situation] = &[
    Situation { name: "at-target", sentence: "stays at 2: cpu is at its target of 50 %", ..BASE },
    Situation {
        name: "within-tolerance",
        cpu: Some(108),
        sentence: "stays at 2: cpu is at 54 %, within tolerance of its target of 50 %",
        ..BASE
    },
    Situation {
        name: "grows",
        cpu: Some(150),
        sentence: "goes from 2 to 3: cpu is at 75 %, above its target of 50 %",
        ..BASE
    },
    Situation {
        name: "doubles-at-most",
        cpu: Some(400),
        sentence: "goes from 2 to 4: cpu asks for 8, but without a behavior one sync at most doubles the count, to 4",
        ..BASE
    },
    Situation {
        name: "down-window",
        replicas: 4,
        sentence: "stays at 4: cpu asks for 2, but the 4 s scale-down window still holds 4, for another 4 s",
        ..BASE
    },
    Situation {
        name: "up-window",
        cpu: Some(300),
        spec: || behavior(&json!({"stabilizationWindowSeconds": 60}), &json!({})),
        sentence: "stays at 2: cpu asks for 6, but the 1 min scale-up window allows only 2, for another 1 min",
        ..BASE
    },
    Situation {
        name: "up-policy",
        cpu: Some(300),
        spec: || {
            behavior(&json!({"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}), &json!({}))
        },
        sentence: "goes from 2 to 3: cpu asks for 6, but the scale-up policies allow 3",
        ..BASE
    },
    Situation {
        name: "down-policy",
        replicas: 6,
        spec: || {
            let policies = json!([{"type": "Percent", "value": 20, "periodSeconds": 60}]);
            behavior(&json!({}), &json!({"stabilizationWindowSeconds": 0, "policies": policies}))
        },
        sentence: "goes from 6 to 4: cpu asks for 2, but the scale-down policies allow 4",
        ..BASE
    },
    Situation {
        name: "down-disabled",
        replicas: 4,
        spec: || behavior(&json!({}), &json!({"selectPolicy": "Disabled", "stabilizationWindowSeconds": 0})),
        sentence: "stays at 4: cpu asks for 2, but scaling down is disabled",
        ..BASE
    },
    Situation {
        name: "up-disabled",
        cpu: Some(300),
        spec: || behavior(&json!({"selectPolicy": "Disabled"}), &json!({})),
        sentence: "stays at 2: cpu asks for 6, but scaling up is disabled",
        ..BASE
    },
    Situation {
        name: "above-max",
        replicas: 6,
        bounds: (1, 4),
        sentence: "goes from 6 to 4: maxReplicas is 4",
        ..BASE
    },
    Situation { name: "below-min", bounds: (3, 10), sentence: "goes from 2 to 3: minReplicas is 3", ..BASE },
    Situation {
        name: "at-max",
        replicas: 3,
        bounds: (1, 3),
        cpu: Some(600),
        sentence: "stays at 3: cpu asks for 12, but maxReplicas is 3",
        exit: 3,
        ..BASE
    },
    Situation {
        name: "to-min",
        replicas: 4,
        bounds: (3, 10),
        spec: || behavior(&json!({}), &json!({"stabilizationWindowSeconds": 0})),
        sentence: "goes from 4 to 3: cpu asks for 2, but minReplicas is 3",
        ..BASE
    },
    Situation {
        name: "at-zero",
        replicas: 0,
        sentence: "stays at 0: the target has 0 replicas, which disables autoscaling",
        exit: 3,
        ..BASE
    },
    Situation {
        name: "two-on-one",
        sentence: "stays at 2: pods by selector app=web are controlled by more than one HPA (e.g. [*])",
        exit: 3,
        more: Variation::SecondHpa,
        ..BASE
    },
    Situation {
        name: "no-target",
        sentence: "does nothing: the target's scale cannot be read: deployments.apps \"web\" not found",
        exit: 3,
        more: Variation::NoTarget,
        ..BASE
    },
    Situation {
        name: "no-selector",
        sentence: "stays at 2: the target's scale has no selector",
        exit: 3,
        more: Variation::NoSelector,
        ..BASE
    },
    Situation {
        name: "metrics-away",
        sentence: "stays at 2: cpu cannot be read: the server is currently unable to handle the request (get \
                   pods.metrics.k8s.io)",
        exit: 3,
        more: Variation::MetricsUnavailable,
        ..BASE
    },
    Situation {
        name: "no-samples",
        cpu: None,
        sentence: "stays at 2: cpu cannot be read: no metrics returned from resource metrics API",
        exit: 3,
        ..BASE
    },
    Situation {
        name: "no-request",
        sentence: "stays at 2: cpu cannot be read: missing request for cpu in container app of Pod web-*",
        exit: 3,
        more: Variation::NoRequest,
        ..BASE
    },
    Situation {
        name: "one-container",
        cpu: Some(200),
        spec: || metrics(&[container_cpu("app", 50)]),
        sentence: "goes from 2 to 4: cpu of container app is at 100 %, above its target of 50 %",
        ..BASE
    },
    Situation {
        name: "external-per-pod",
        spec: || metrics(&[external("jobs", "AverageValue", "10")]),
        sentence: "goes from 2 to 3: jobs is at 15 per pod, above its target of 10 per pod",
        more: Variation::Jobs("30"),
        ..BASE
    },
    Situation {
        name: "external-missing",
        spec: || metrics(&[external("nowhere", "AverageValue", "10")]),
        sentence: "stays at 2: nowhere cannot be read: no metrics returned from external metrics API",
        exit: 3,
        ..BASE
    },
    Situation {
        name: "one-of-two-fails",
        cpu: Some(150),
        spec: || metrics(&[external("nowhere", "AverageValue", "10"), cpu_utilization(50)]),
        sentence: "goes from 2 to 3: cpu is at 75 %, above its target of 50 %",
        exit: 3,
        ..BASE
    },
    Situation {
        name: "no-way-down",
        replicas: 4,
        spec: || metrics(&[cpu_utilization(50), external("nowhere", "AverageValue", "10")]),
        sentence: "stays at 4: cpu asks for 2, but nothing is scaled down while nowhere cannot be read: no metrics returned from external metrics API",
        exit: 3,
        ..BASE
    },
    Situation {
        name: "pods-metric",
        spec: || metrics(&[pods_average("requests", "20")]),
        sentence: "goes from 2 to 3: requests is at 30 per pod, above its target of 20 per pod",
        more: Variation::Requests(60),
        ..BASE
    },
    Situation {
        name: "object-metric",
        spec: || metrics(&[ingress("hits", "Value", "100")]),
        sentence: "goes from 2 to 4: hits of Ingress/main is at 200, above its target of 100",
        more: Variation::Hits("200"),
        ..BASE
    },
];

impl Situation {
    /// Creates the objects of the situation.
    pub(crate) async fn make(&self, world: &World) -> Outcome {
        let mut target = ("apps/v1", "Deployment", "web");
        match self.more {
            Variation::NoTarget => {}
            Variation::NoSelector => {
                target = ("example.com/v1", "Widget", "web");
                let body = json!({
                    "apiVersion": "example.com/v1", "kind": "Widget",
                    "metadata": {"name": "web"}, "spec": {"replicas": self.replicas},
                });
                world.api.create(world.widgets("").trim_end_matches('/'), &body).await?;
            }
            Variation::NoRequest => {
                world.deployment("web", self.replicas, &[Container("app", "", "64Mi")]).await?;
            }
            _ => world.deployment("web", self.replicas, APP).await?,
        }
        if let Some(cpu) = self.cpu {
            world.cpu("web", cpu);
        }
        match self.more {
            Variation::MetricsUnavailable => world.fault(RESOURCE, Some(Fault::UNAVAILABLE)),
            Variation::Jobs(value) => world.external("jobs", &[value]),
            Variation::Requests(total) => world.per_pod("web", "requests", Load::Total(total, "")),
            Variation::Hits(value) => world.object("ingresses.networking.k8s.io", "main", "hits", value),
            _ => {}
        }
        let (min, max) = self.bounds;
        let mut spec = json!({"minReplicas": min, "maxReplicas": max, "metrics": [cpu_utilization(50)]});
        if let (Some(spec), Value::Object(other)) = (spec.as_object_mut(), (self.spec)()) {
            spec.extend(other);
        }
        if self.more == Variation::SecondHpa {
            world.hpa("other", target, spec.clone()).await?;
        }
        world.hpa("web", target, spec).await
    }

    /// Whether the first status already shows the situation. A second HPA needs another sync.
    pub(crate) fn shows_at_once(&self) -> bool {
        self.more != Variation::SecondHpa
    }
}
