//! Discovery, version, and requests for absent resources.

use serde_json::json;

use crate::Section;
use crate::step::get;

pub(crate) fn sections() -> Vec<Section> {
    vec![discovery(), resources(), absent()]
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
            // The schemas that `kubectl apply` reads.
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
