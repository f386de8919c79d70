//! Events as a controller writes them, and Leases as a leader holds them.

use serde_json::{Value, json};

use crate::Section;
use crate::rest::media;
use crate::step::{delete, get, patch, post, put};

const EVENTS: &str = "/api/v1/namespaces/{ns}/events";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases";

pub(crate) fn sections() -> Vec<Section> {
    vec![events(), leases(), namespaces()]
}

fn event(name: &str, object: &str, reason: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "{ns}"},
        "involvedObject": {
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "namespace": "{ns}", "name": object, "uid": format!("uid-of-{object}"), "resourceVersion": "7",
        },
        "reason": reason,
        "message": "New size: 2; reason: cpu resource above target",
        "source": {"component": "horizontal-pod-autoscaler"},
        "type": "Normal",
        "count": 1,
        "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T03:04:05Z",
    })
}

fn events() -> Section {
    let by = |selector: &str| format!("{EVENTS}?fieldSelector={selector}");
    let mut elsewhere = event("web.3", "web", "SuccessfulRescale");
    elsewhere["involvedObject"]["namespace"] = json!("default");
    Section {
        name: "events",
        steps: vec![
            post(EVENTS, event("web.1", "web", "SuccessfulRescale"))
                .is("/kind", "Event")
                .is("/count", 1)
                .is("/source/component", "horizontal-pod-autoscaler")
                .present("/metadata/uid"),
            post(EVENTS, event("api.2", "api", "FailedGetScale")),
            post(EVENTS, event("web.1", "web", "SuccessfulRescale")).fails(
                409,
                "AlreadyExists",
                "events \"web.1\" already exists",
            ),
            // A repeated event, as the recorder patches it.
            patch(
                media::STRATEGIC,
                &format!("{EVENTS}/web.1"),
                json!({"count": 2, "lastTimestamp": "2026-01-02T03:05:05Z"}),
            )
            .is("/count", 2)
            .is("/firstTimestamp", "2026-01-02T03:04:05Z")
            .is("/lastTimestamp", "2026-01-02T03:05:05Z")
            .is("/involvedObject/name", "web"),
            patch(media::STRATEGIC, &format!("{EVENTS}/none"), json!({"count": 2})).fails(
                404,
                "NotFound",
                "events \"none\" not found",
            ),
            // The request of `kubectl describe hpa`.
            get(&by("involvedObject.kind%3DHorizontalPodAutoscaler,involvedObject.name%3Dweb,involvedObject.namespace%3D{ns},involvedObject.uid%3Duid-of-web"))
                .is("/kind", "EventList")
                .size("/items", 1)
                .is("/items/0/count", 2),
            get(&by("reason%3DFailedGetScale")).size("/items", 1).is("/items/0/metadata/name", "api.2"),
            get(&by("type%21%3DNormal")).size("/items", 0),
            get(&by("involvedObject.name%3Dweb,reason%3DOther")).size("/items", 0),
            get(&by("source%3Dhorizontal-pod-autoscaler")).size("/items", 2),
            get(&by("involvedObject.colour%3Dred")).code(400),
            // An event must be in the namespace of its object.
            post(EVENTS, elsewhere).code(422).is("/reason", "Invalid").contains("/message", "involvedObject.namespace"),
            delete(&format!("{EVENTS}/web.1")).is("/status", "Success"),
        ],
    }
}

fn leases() -> Section {
    let lease = |holder: &str, transitions: u32, version: Option<&str>| {
        let mut lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "leader"},
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": 15,
                "acquireTime": "2026-01-02T03:04:05.000000Z",
                "renewTime": "2026-01-02T03:04:05.123456Z",
                "leaseTransitions": transitions,
            },
        });
        if let Some(version) = version {
            lease["metadata"]["resourceVersion"] = json!(version);
        }
        lease
    };
    let one = format!("{LEASES}/leader");
    Section {
        name: "leases",
        steps: vec![
            get(&one).fails(404, "NotFound", "leases.coordination.k8s.io \"leader\" not found"),
            post(LEASES, lease("a", 0, None))
                .is("/spec/holderIdentity", "a")
                .is("/spec/renewTime", "2026-01-02T03:04:05.123456Z")
                .save("first", "/metadata/resourceVersion"),
            post(LEASES, lease("b", 0, None)).code(409).is("/reason", "AlreadyExists"),
            put(&one, lease("b", 1, Some("{first}")))
                .is("/spec/holderIdentity", "b")
                .is("/spec/leaseTransitions", 1)
                .save("second", "/metadata/resourceVersion"),
            put(&one, lease("c", 2, Some("{first}"))).fails(
                409,
                "Conflict",
                "Operation cannot be fulfilled on leases.coordination.k8s.io \"leader\": the object has been modified; \
                 please apply your changes to the latest version and try again",
            ),
            // A Lease update without a resourceVersion is refused.
            put(&one, lease("c", 2, None)).fails(
                422,
                "Invalid",
                "leases.coordination.k8s.io \"leader\" is invalid: metadata.resourceVersion: Invalid value: 0: must be \
                 specified for an update",
            ),
            put(&one, {
                let mut released = lease("", 1, Some("{second}"));
                released["spec"]["leaseDurationSeconds"] = json!(1);
                released
            })
            .is("/spec/leaseDurationSeconds", 1)
            .is("/spec/holderIdentity", ""),
        ],
    }
}

fn namespaces() -> Section {
    Section {
        name: "namespaces",
        steps: vec![
            get("/api/v1/namespaces/{ns}").is("/kind", "Namespace").is("/status/phase", "Active"),
            get("/api/v1/namespaces/nowhere").fails(404, "NotFound", "namespaces \"nowhere\" not found"),
            post("/api/v1/namespaces/nowhere/pods", crate::lists::pod("p", &json!({}))).fails(
                404,
                "NotFound",
                "namespaces \"nowhere\" not found",
            ),
            post("/api/v1/namespaces/{ns}/events", {
                let mut event = event("x", "web", "Y");
                event["metadata"]["namespace"] = json!("default");
                event
            })
            .code(400)
            .is("/reason", "BadRequest"),
        ],
    }
}
