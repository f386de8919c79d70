//! Watched targets: the Scale that the controller decodes from a target equals the scale subresource of the target.
//! Steady syncs send no requests for Scales.

use std::time::Duration;

use autoscaling::status::Status;
use cluster::mapper::Mapping;
use cluster::scale::{Scalable, ScalePaths, Shape};
use cluster::watch::Watched;
use http::Method;
use serde_json::{Value, json};

use crate::audit::AUTOSCALER;
use crate::identity::{BUILT_IN, RBAC, Requests, end, grant, revoke, start};
use crate::outcome::{Context as _, Outcome, ensure, eventually};
use crate::rest::media;
use crate::world::{APP, Autoscaler, Fixture, SOON, World, external};

/// Group and version, kind, resource.
const KINDS: [(&str, &str, &str); 5] = [
    ("apps/v1", "Deployment", "deployments"),
    ("apps/v1", "ReplicaSet", "replicasets"),
    ("apps/v1", "StatefulSet", "statefulsets"),
    ("v1", "ReplicationController", "replicationcontrollers"),
    ("example.com/v1", "Widget", "widgets"),
];

pub(crate) async fn steady_syncs_use_watched_scales(stage: &Fixture) -> Outcome {
    let admin = &stage.plane.admin;
    let world = World::make(stage, "targets", Autoscaler::Concertina).await?;
    for kind in KINDS {
        for (name, object) in objects(kind.1) {
            admin.create(&collection(&world, kind), &object).await.context(kind.1)?;
            if kind.1 == "Widget" {
                let path = format!("{}/{name}/status", collection(&world, kind));
                let status = json!({"status": {"replicas": 2, "selector": "app=widget,tier in (a,b)"}});
                admin.merge(&path, &status).await?;
            }
            eventually(SOON, &format!("{} {name} matches its scale subresource", kind.1), async || {
                scale_matches_object(&world, kind, name).await
            })
            .await?;
        }
    }
    admin.delete(&format!("{RBAC}/clusterrolebindings/{BUILT_IN}")).await?;
    sync_steadily(stage, &world).await?;
    world.close().await
}

/// Syncs one object of each kind at its target value, under the roles that `concertina rbac` prints.
async fn sync_steadily(stage: &Fixture, world: &World) -> Outcome {
    let targets: Vec<_> = KINDS
        .iter()
        .map(|(version, _, resource)| match version.split_once('/') {
            Some((group, _)) => format!("{resource}.{group}"),
            None => (*resource).to_owned(),
        })
        .collect();
    let flags = [
        format!("--scale-targets={}", targets.join(",")),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
    ];
    let rules = grant(stage, &flags.each_ref().map(String::as_str)).await?;
    let kubeconfig = stage.plane.service_account("kube-system", "horizontal-pod-autoscaler").await?;
    for (version, kind, _) in KINDS {
        let metric = format!("queue-{}", kind.to_lowercase());
        world.external(&metric, &["20"]);
        let spec = json!({
            "minReplicas": 1, "maxReplicas": 5, "metrics": [external(&metric, "AverageValue", "10")],
        });
        world.hpa(&kind.to_lowercase(), (version, kind, "plain"), spec).await?;
    }
    let from = stage.plane.audit_log()?.len();
    let process = start(stage, "targets", &kubeconfig, &flags)?;
    for (_, kind, _) in KINDS {
        let valid = "ScalingActive=True ValidMetricFound";
        let name = kind.to_lowercase();
        world
            .any_condition(&name, valid, |condition| condition.starts_with(valid))
            .await
            .context(process.tail(30))?;
        status_is_echoed(world, &name).await?;
    }
    // The pause covers five syncs of each HPA. The check is repeated until all targets are watched.
    eventually(SOON, "steady syncs send no requests for Scales", async || {
        let start = stage.plane.audit_log()?.len();
        tokio::time::sleep(Duration::from_secs(5)).await;
        let log = stage.plane.audit_log()?;
        let lines: Vec<_> = log.get(start..).unwrap_or_default().lines().collect();
        let metrics = lines.iter().filter(|line| line.contains("/apis/external.metrics.k8s.io/")).count();
        let scales =
            lines.iter().filter(|line| line.contains(AUTOSCALER) && line.contains("/scale\"")).count();
        ensure(metrics >= 5 * KINDS.len() - KINDS.len(), || format!("{metrics} reads of metrics"))?;
        ensure(scales == 0, || format!("{scales} requests for Scales\n{}", process.tail(30)))
    })
    .await?;

    world.external("queue-deployment", &["40"]);
    let plain = world.deployments("plain");
    eventually(SOON, "a step is written", async || {
        let deployment = world.api.get(&plain).await?;
        ensure(deployment["spec"]["replicas"] == 4, || deployment["spec"]["replicas"].to_string())
    })
    .await?;
    end(process).await?;
    let requests = Requests::read(stage, from)?;
    requests.none_is_refused()?;
    // The audit log has a watch only after its end.
    for (version, _, resource) in KINDS {
        let group = version.split_once('/').map_or("", |(group, _)| group);
        ensure(requests.find(AUTOSCALER, "watch", group, resource, ""), || {
            format!("no watch of {resource}")
        })?;
    }
    revoke(stage, &rules).await
}

/// Checks that the server returns a status byte for byte as it was sent. The controller relies on this to recognize its
/// own writes in the watch.
async fn status_is_echoed(world: &World, name: &str) -> Outcome {
    let answer = world.api.send(Method::GET, &world.hpas(name), &[("Accept", media::JSON)], None).await?;
    let status =
        answer.text.trim_end().split_once(r#","status":"#).and_then(|(_, rest)| rest.strip_suffix('}'));
    let status = status.ok_or("the HPA does not end with its status")?;
    let sent = serde_json::to_string(&serde_json::from_str::<Status>(status)?)?;
    ensure(sent == status, || format!("sent:\n{sent}\nreturned:\n{status}"))
}

/// Compares the Scale that is decoded from an object with its scale subresource of the same resourceVersion.
async fn scale_matches_object(world: &World, kind: (&str, &str, &str), name: &str) -> Outcome {
    let path = format!("{}/{name}", collection(world, kind));
    let object = world.api.get(&path).await?;
    let scale = world.api.get(&format!("{path}/scale")).await?;
    ensure(object["metadata"]["resourceVersion"] == scale["metadata"]["resourceVersion"], || {
        "the object changed between the two reads".to_owned()
    })?;
    let text = object.to_string();
    let decoded = scalable(kind).decode(text.as_bytes())?;
    let decoded = decoded.scale.ok_or("the object has no Scale")?;
    let scale_replicas = |part: &str| scale[part]["replicas"].as_i64().unwrap_or(0);
    let selector = scale["status"]["selector"].as_str().unwrap_or_default();
    ensure(
        (i64::from(decoded.replicas), i64::from(decoded.status_replicas), &*decoded.selector)
            == (scale_replicas("spec"), scale_replicas("status"), selector),
        || format!("decoded {decoded:?}, but the subresource is {scale}"),
    )?;
    // Wait for the pods, so that not all values are zero.
    ensure(scale_replicas("status") == 2, || format!("status.replicas is {}", scale_replicas("status")))
}

fn scalable((version, kind, resource): (&str, &str, &str)) -> Scalable {
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let field = |path: &[&str]| path.iter().map(ToString::to_string).collect();
    let shape = Shape::built_in(group, resource).unwrap_or_else(|| {
        Shape::Custom(ScalePaths {
            replicas: field(&["spec", "replicas"]),
            status_replicas: field(&["status", "replicas"]),
            selector: Some(field(&["status", "selector"])),
        })
    });
    let [group, version, resource, kind] = [group, version, resource, kind].map(str::to_owned);
    let scale_version = Some("autoscaling/v1".to_owned());
    Scalable { mapping: Mapping { group, version, resource, kind, namespaced: true, scale_version }, shape }
}

fn collection(world: &World, (version, _, resource): (&str, &str, &str)) -> String {
    let root = if version.contains('/') { "apis" } else { "api" };
    format!("/{root}/{version}/namespaces/{}/{resource}", world.namespace)
}

/// The objects of a kind. `plain` has a simple selector, and `everything` has every feature of the selectors of its
/// kind. `none`, a ReplicationController, has no selector.
fn objects(kind: &str) -> Vec<(&'static str, Value)> {
    if kind == "Widget" {
        let widget = json!({"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "plain"},
            "spec": {"replicas": 2}});
        return vec![("plain", widget)];
    }
    let containers: Vec<_> =
        APP.iter().map(|container| json!({"name": container.0, "image": "example.com/app"})).collect();
    let object = |name: &'static str, selector: Value| {
        let mut object = json!({
            "kind": kind, "metadata": {"name": name},
            "spec": {"replicas": 2, "template": {
                "metadata": {"labels": {"app": format!("{kind}-{name}"), "tier": "a", "a.b/c": "", "z": "1"}},
                "spec": {"nodeName": crate::metrics::NODE, "containers": containers,
                    "terminationGracePeriodSeconds": 1},
            }},
        });
        if kind == "StatefulSet" {
            object["spec"]["serviceName"] = json!(name);
        }
        if !selector.is_null() {
            object["spec"]["selector"] = selector;
        }
        (name, object)
    };
    let app = |name: &str| json!({"app": format!("{kind}-{name}")});
    if kind == "ReplicationController" {
        let mut everything = app("everything");
        (everything["z"], everything["a.b/c"], everything["tier"]) = (json!("1"), json!(""), json!("a"));
        // Without a selector, a ReplicationController uses the labels of its template.
        return vec![
            object("plain", app("plain")),
            object("everything", everything),
            object("none", Value::Null),
        ];
    }
    let mut labels = app("everything");
    labels["a.b/c"] = json!("");
    let expressions = json!([
        {"key": "tier", "operator": "In", "values": ["b", "a"]},
        {"key": "gone", "operator": "DoesNotExist"},
        {"key": "z", "operator": "Exists"},
        {"key": "app", "operator": "NotIn", "values": ["y", "x"]},
    ]);
    vec![
        object("plain", json!({"matchLabels": app("plain")})),
        object("everything", json!({"matchLabels": labels, "matchExpressions": expressions})),
    ]
}
