//! Discovery, version, and requests for absent resources. Also the events that a controller writes, the Leases of a
//! leader, and namespaces.

use serde_json::{Value, json};

use crate::Section;
use crate::rest::media;
use crate::scales::pod;
use crate::step::{delete, get, patch, post, put};

const EVENTS: &str = "/api/v1/namespaces/{ns}/events";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases";

pub(crate) fn sections() -> Vec<Section> {
    vec![discovery(), resources(), absent(), events(), leases(), namespaces()]
}

fn discovery() -> Section {
    Section {
        name: "discovery",
        steps: vec![
            get("/version").is("/major", "1").is("/minor", "37").contains("/gitVersion", "v1.37."),
            get("/api").is("/kind", "APIVersions").is("/versions", json!(["v1"])),
            get("/apis")
                .is("/kind", "APIGroupList")
                .is("/apiVersion", "v1")
                .is("/groups/[name=apps]/versions/[version=v1]/groupVersion", "apps/v1")
                .is("/groups/[name=apps]/preferredVersion/version", "v1")
                .is("/groups/[name=autoscaling]/preferredVersion/groupVersion", "autoscaling/v2")
                .is("/groups/[name=coordination.k8s.io]/preferredVersion/version", "v1")
                .is("/groups/[name=example.com]/preferredVersion/version", "v1"),
            get("/apis/apps")
                .is("/kind", "APIGroup")
                .is("/name", "apps")
                .is("/versions", json!([{"groupVersion": "apps/v1", "version": "v1"}]))
                .is("/preferredVersion/version", "v1"),
            get("/apis/autoscaling").is("/name", "autoscaling").is("/preferredVersion/version", "v2"),
            // `kubectl apply` reads these schemas.
            get("/openapi/v3").present("/paths/apis~1autoscaling~1v2/serverRelativeURL"),
            get("/readyz"),
            get("/livez"),
        ],
    }
}

fn resources() -> Section {
    let mut workloads = get("/apis/apps/v1")
        .is("/kind", "APIResourceList")
        .is("/groupVersion", "apps/v1")
        .is("/resources/[name=deployments]/kind", "Deployment")
        .is("/resources/[name=deployments]/singularName", "deployment")
        .is("/resources/[name=deployments]/namespaced", true)
        .is("/resources/[name=deployments]/shortNames", json!(["deploy"]))
        .is("/resources/[name=replicasets]/kind", "ReplicaSet")
        .is("/resources/[name=statefulsets]/kind", "StatefulSet");
    for name in ["deployments", "replicasets", "statefulsets"] {
        let scale = format!("/resources/[name={name}/scale]");
        workloads = workloads
            .is(&format!("{scale}/kind"), "Scale")
            .is(&format!("{scale}/group"), "autoscaling")
            .is(&format!("{scale}/version"), "v1")
            .is(&format!("{scale}/verbs"), json!(["get", "patch", "update"]));
    }
    Section {
        name: "resources",
        steps: vec![
            workloads,
            get("/api/v1")
                .is("/kind", "APIResourceList")
                .is("/groupVersion", "v1")
                .is("/resources/[name=pods]/kind", "Pod")
                .is("/resources/[name=events]/kind", "Event")
                .is("/resources/[name=services]/kind", "Service")
                .is("/resources/[name=namespaces]/namespaced", false)
                .is("/resources/[name=replicationcontrollers]/kind", "ReplicationController")
                .is("/resources/[name=replicationcontrollers/scale]/group", "autoscaling"),
            get("/apis/autoscaling/v2")
                .is("/resources/[name=horizontalpodautoscalers]/kind", "HorizontalPodAutoscaler")
                .is("/resources/[name=horizontalpodautoscalers]/shortNames", json!(["hpa"]))
                .is(
                    "/resources/[name=horizontalpodautoscalers/status]/verbs",
                    json!(["get", "patch", "update"]),
                ),
            get("/apis/example.com/v1")
                .is("/resources/[name=widgets]/kind", "Widget")
                .is("/resources/[name=widgets/scale]/kind", "Scale")
                .is("/resources/[name=widgets/scale]/group", "autoscaling"),
            get("/apis/coordination.k8s.io/v1").is("/resources/[name=leases]/kind", "Lease"),
        ],
    }
}

fn absent() -> Section {
    Section {
        name: "absent",
        steps: vec![
            // A path outside of every API group returns plain text.
            get("/apis/nowhere.example.com/v1").code(404).is("", "404 page not found\n"),
            // An existing group returns a Status for an unknown version.
            get("/apis/apps/v9").fails(404, "NotFound", "the server could not find the requested resource"),
            get("/apis/apps/v1/namespaces/{ns}/deployments/web").fails(
                404,
                "NotFound",
                "deployments.apps \"web\" not found",
            ),
            get("/api/v1/namespaces/{ns}/pods/web-0")
                .fails(404, "NotFound", "pods \"web-0\" not found")
                .is("/metadata", json!({}))
                .is("/details", json!({"name": "web-0", "kind": "pods"})),
            get("/apis/apps/v1/namespaces/{ns}/deployments/web/scale").fails(
                404,
                "NotFound",
                "deployments.apps \"web\" not found",
            ),
            get("/apis/example.com/v1/namespaces/{ns}/widgets/w/scale").fails(
                404,
                "NotFound",
                "widgets.example.com \"w\" not found",
            ),
            get("/apis/apps/v1/namespaces/{ns}/sprockets/x").fails(
                404,
                "NotFound",
                "the server could not find the requested resource",
            ),
            // The resource has no scale subresource.
            get("/apis/coordination.k8s.io/v1/namespaces/{ns}/leases/x/scale").fails(
                404,
                "NotFound",
                "the server could not find the requested resource",
            ),
            get("/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers/web")
                .fails(404, "NotFound", "horizontalpodautoscalers.autoscaling \"web\" not found")
                .is(
                    "/details",
                    json!({"name": "web", "group": "autoscaling", "kind": "horizontalpodautoscalers"}),
                ),
        ],
    }
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
            // The recorder patches a repeated event.
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
            // `kubectl describe hpa` lists events with these fields.
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
            post("/api/v1/namespaces/nowhere/pods", pod("p", &json!({}))).fails(
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
