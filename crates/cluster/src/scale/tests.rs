//! Projected Scales, compared with the embedded cluster's scale subresource.

use std::sync::Arc;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Scalable, ScalePaths, Scales, Shape, WireScale};
use crate::client::{ClientOptions, Clients};
use crate::mapper::Mapping;
use crate::watch::Watched;
use clock::{SharedClock, VirtualClock};
use fake_cluster::Cluster;

/// Group, version, resource and kind of each scalable resource.
const KINDS: [[&str; 4]; 5] = [
    ["apps", "v1", "deployments", "Deployment"],
    ["apps", "v1", "replicasets", "ReplicaSet"],
    ["apps", "v1", "statefulsets", "StatefulSet"],
    ["", "v1", "replicationcontrollers", "ReplicationController"],
    ["example.com", "v1", "widgets", "Widget"],
];

fn paths() -> ScalePaths {
    let path = |fields: &[&str]| fields.iter().map(ToString::to_string).collect();
    ScalePaths {
        replicas: path(&["spec", "replicas"]),
        status_replicas: path(&["status", "replicas"]),
        selector: Some(path(&["status", "selector"])),
    }
}

fn scalable([group, version, resource, kind]: [&str; 4]) -> Scalable {
    let shape = Shape::built_in(group, resource).unwrap_or_else(|| Shape::Custom(paths()));
    let [group, version, resource, kind] = [group, version, resource, kind].map(str::to_owned);
    let scale_version = Some("autoscaling/v1".to_owned());
    Scalable { mapping: Mapping { group, version, resource, kind, namespaced: true, scale_version }, shape }
}

/// The projected Scale of an object and the Scale of its scale subresource: version, counts and selector.
fn both(kind: [&str; 4], object: &Value) -> [(String, WireScale); 2] {
    let clock: SharedClock = Arc::new(VirtualClock::starting_at(Timestamp::UNIX_EPOCH));
    let cluster = Cluster::new(clock);
    cluster.put_raw(object.clone());
    let scalable = scalable(kind);
    let [group, _, resource, _] = kind;
    let path = if group.is_empty() { resource.to_owned() } else { format!("{group}/{resource}") };
    let stored = cluster.get(&path, "shop", "web").unwrap().to_string();
    let projected = scalable.decode(stored.as_bytes()).unwrap();
    let clients = Clients::over(cluster.connector(), &ClientOptions::default()).unwrap();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let read = runtime.block_on(async {
        let scales = Scales::new(clients.scale.clone(), "m");
        scales.get(scales.turn("shop").await, &scalable.mapping, "shop", "web").await.unwrap()
    });
    let expected = WireScale {
        replicas: read.spec_replicas,
        status_replicas: read.status_replicas,
        selector: read.selector,
    };
    [(projected.resource_version.into_owned(), projected.scale.unwrap()), (read.resource_version, expected)]
}

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9]([-_.a-zA-Z0-9]{0,6}[a-zA-Z0-9])?"
}

fn labels() -> impl Strategy<Value = Value> {
    prop::collection::btree_map(name(), prop_oneof![Just(String::new()), name()], 0..4)
        .prop_map(|labels| json!(labels))
}

fn selector() -> impl Strategy<Value = Value> {
    let expression =
        (name(), 0..4_usize, prop::collection::vec(name(), 1..4)).prop_map(|(key, at, values)| {
            let operator = ["In", "NotIn", "Exists", "DoesNotExist"][at];
            if at < 2 {
                json!({"key": key, "operator": operator, "values": values})
            } else {
                json!({"key": key, "operator": operator})
            }
        });
    (labels(), prop::collection::vec(expression, 0..3))
        .prop_map(|(labels, expressions)| json!({"matchLabels": labels, "matchExpressions": expressions}))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn projection_equals_the_scale_subresource(
        kind in 0..KINDS.len(),
        replicas in 0..=i32::MAX,
        status in prop::option::of(0..=i32::MAX),
        labels in labels(),
        structured in prop::option::of(selector()),
        text in prop::option::of("[a-z=,() ]{0,12}"),
    ) {
        let kind = KINDS[kind];
        let version = if kind[0].is_empty() { "v1".to_owned() } else { format!("{}/v1", kind[0]) };
        let mut object = json!({
            "apiVersion": version, "kind": kind[3],
            "metadata": {"namespace": "shop", "name": "web", "labels": labels},
            "spec": {"replicas": replicas, "paused": true},
        });
        match kind[3] {
            "ReplicationController" => object["spec"]["selector"] = labels,
            "Widget" => {
                if let Some(text) = text {
                    object["status"]["selector"] = json!(text);
                }
            }
            _ => {
                if let Some(structured) = structured {
                    object["spec"]["selector"] = structured;
                }
            }
        }
        if let Some(status) = status {
            object["status"]["replicas"] = json!(status);
        }
        let [projected, expected] = both(kind, &object);
        prop_assert_eq!(projected, expected);
    }
}

#[test]
fn unusual_objects_are_left_to_the_server() {
    let meta = r#""metadata":{"namespace":"shop","name":"web","resourceVersion":"7"}"#;
    let [deployments, _, _, controllers, widgets] = KINDS;
    for (kind, rest) in [
        (deployments, ""),
        (deployments, r#","spec":null"#),
        (deployments, r#","spec":{}"#),
        (deployments, r#","spec":{"replicas":"3"}"#),
        (deployments, r#","spec":{"replicas":2147483648}"#),
        (deployments, r#","spec":{"replicas":3,"selector":"app=web"}"#),
        (deployments, r#","spec":{"replicas":3,"selector":{"matchLabels":{"app":"no value!"}}}"#),
        (deployments, r#","spec":{"replicas":3},"status":{"replicas":[]}"#),
        (controllers, r#","spec":{"replicas":3,"selector":{"app":1}}"#),
        (widgets, r#","spec":{}"#),
        (widgets, r#","spec":{"replicas":null}"#),
        (widgets, r#","spec":{"replicas":3.5}"#),
        (widgets, r#","spec":{"replicas":3},"status":[]"#),
        (widgets, r#","spec":{"replicas":3},"status":{"selector":{}}"#),
        (widgets, r#","spec":{"replicas":3},"status":{"replicas":4294967296}"#),
    ] {
        let text = format!("{{{meta}{rest}}}");
        let target = scalable(kind).decode(text.as_bytes()).unwrap();
        assert_eq!((&*target.name, &*target.resource_version, &target.scale), ("web", "7", &None), "{text}");
    }
    for text in ["[]", "{}", r#"{"metadata":{"namespace":"shop"}}"#, r#"{"metadata":{"name":3}}"#, "{"] {
        assert!(scalable(deployments).decode(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn missing_parent_of_a_field_counts_as_a_missing_field() {
    let decode = |text: &str| scalable(KINDS[4]).decode(text.as_bytes()).unwrap().scale.unwrap();
    let expected = WireScale { replicas: 3, ..WireScale::default() };
    for rest in ["", r#","status":null"#, r#","status":{}"#, r#","status":{"selector":""}"#] {
        let text = format!(r#"{{"metadata":{{"name":"web"}},"spec":{{"replicas":3}}{rest}}}"#);
        assert_eq!(decode(&text), expected, "{text}");
    }
}
