//! Projected Scales, compared with the scale subresource of the embedded cluster, and the versions of Scales in reads
//! and writes.

use std::sync::Arc;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Scalable, ScalePaths, Scales, Shape, WireScale, decode, encode};
use crate::client::{ClientOptions, Clients};
use crate::mapper::{Mapper, Mapping};
use crate::watch::Watched;
use clock::{SharedClock, VirtualClock};
use fake_cluster::{Cluster, FaultAction, FaultRule};

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

/// Returns the resourceVersion and the Scale of an object, first projected, then read from its scale subresource.
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
        let scales = Scales::new(clients.scale.clone());
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

fn selectors() -> impl Strategy<Value = Value> {
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
        structured in prop::option::of(selectors()),
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

const LEGACY: [&str; 3] = ["extensions/v1beta1", "apps/v1beta1", "apps/v1beta2"];

fn cluster() -> (Cluster, Clients) {
    let clock: SharedClock = Arc::new(VirtualClock::starting_at(Timestamp::UNIX_EPOCH));
    let cluster = Cluster::new(clock);
    let clients = Clients::over(cluster.connector(), &ClientOptions::default()).unwrap();
    (cluster, clients)
}

fn mapping(scale_version: Option<&str>) -> Mapping {
    Mapping {
        group: "apps.openshift.io".to_owned(),
        version: "v1".to_owned(),
        resource: "deploymentconfigs".to_owned(),
        kind: "DeploymentConfig".to_owned(),
        namespaced: true,
        scale_version: scale_version.map(str::to_owned),
    }
}

fn response(kind: &str, version: &str, status: &Value) -> Vec<u8> {
    let metadata = json!({"name": "web", "resourceVersion": "7", "uid": "u"});
    let spec = json!({"replicas": 3});
    json!({"kind": kind, "apiVersion": version, "metadata": metadata, "spec": spec, "status": status})
        .to_string()
        .into_bytes()
}

/// Returns the selector of a response, or the error.
fn selector(version: &str, status: &Value) -> Result<String, String> {
    let read = decode(&response("Scale", version, status));
    read.map(|scale| scale.selector).map_err(|error| error.to_string())
}

fn read_error(kind: &str, version: &str) -> String {
    decode(&response(kind, version, &json!({}))).unwrap_err().to_string()
}

#[test]
fn legacy_selector_is_the_text_or_the_map() {
    for version in LEGACY {
        for (status, expected) in [
            (json!({"selector": {"b": "x", "a": "y"}}), "a=y,b=x"),
            (json!({"selector": {"a": "y"}, "targetSelector": "b in (c,x),d"}), "b in (c,x),d"),
            (json!({"selector": {"a": "y"}, "targetSelector": ""}), "a=y"),
            (json!({"selector": {"a": null}, "targetSelector": null}), "a="),
            (json!({"selector": {}}), ""),
            (json!({"selector": null}), ""),
            (Value::Null, ""),
        ] {
            assert_eq!(selector(version, &status).as_deref(), Ok(expected), "{version} {status}");
        }
        let error = selector(version, &json!({"selector": {"a b": "y"}})).unwrap_err();
        let start = "received an object from a /scale endpoint which was not convertible to autoscaling Scale: \
                     invalid label selector: key: Invalid value: \"a b\": name part must consist of";
        assert!(error.starts_with(start), "{error}");
    }
    assert_eq!(selector("autoscaling/v1", &json!({"selector": "a=y"})).as_deref(), Ok("a=y"));
    assert!(selector("autoscaling/v1", &json!({"selector": {"a": "y"}})).is_err());
    assert!(selector("extensions/v1beta1", &json!({"selector": "a=y"})).is_err());
}

#[test]
fn object_of_another_kind_is_reported_in_gos_words() {
    let unknown = |kind: &str, version: &str| {
        format!(
            "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:111\""
        )
    };
    for version in ["apps/v1", "autoscaling/v2", "scaling.example.com/v1", "v1"] {
        assert_eq!(read_error("Scale", version), unknown("Scale", version));
    }
    assert_eq!(read_error("Deployment", "autoscaling/v1"), unknown("Deployment", "autoscaling/v1"));
    assert_eq!(decode(b"{}").unwrap_err().to_string(), "Object 'Kind' is missing in '{}'");
    let error = decode(br#"{"kind":"Scale"}"#).unwrap_err().to_string();
    assert_eq!(error, "Object 'apiVersion' is missing in '{\"kind\":\"Scale\"}'");
}

#[test]
fn scale_is_written_in_the_version_of_discovery() {
    let status = |version: &str, selector: &str| {
        let read = response("Scale", "autoscaling/v1", &json!({"replicas": 2, "selector": selector}));
        let body = encode(&mapping(Some(version)), &decode(&read).unwrap()).unwrap();
        let mut body: Value = serde_json::from_slice(&body).unwrap();
        let status = body["status"].take();
        let metadata = json!({"name": "web", "resourceVersion": "7", "uid": "u"});
        let rest = json!({
            "kind": "Scale", "apiVersion": version, "metadata": metadata, "spec": {"replicas": 3}, "status": null,
        });
        assert_eq!(body, rest);
        status
    };
    assert_eq!(status("autoscaling/v1", "a=y"), json!({"replicas": 2, "selector": "a=y"}));
    for version in LEGACY {
        assert_eq!(status(version, ""), json!({"replicas": 2}));
        let both = json!({"replicas": 2, "selector": {"a": "y", "b": "x"}, "targetSelector": "a=y,b=x"});
        assert_eq!(status(version, "b=x,a=y"), both);
        let text = json!({"replicas": 2, "targetSelector": "a=y,b in (c,x)"});
        assert_eq!(status(version, "b in (x,c),a=y"), text);
    }
}

#[test]
fn scale_without_a_form_in_the_version_of_discovery_is_not_sent() {
    let scale = decode(&response("Scale", "autoscaling/v1", &json!({}))).unwrap();
    let error = |version| {
        let error = encode(&mapping(version), &scale).unwrap_err();
        assert!(!error.outcome_unknown(), "{error:?}");
        error.to_string()
    };
    let convert = "could not convert scale update to external Scale:";
    let scheme = "in scheme \"pkg/runtime/scheme.go:111\"";
    for version in ["apps/v1", "autoscaling/v2", "extensions/v1"] {
        let expected =
            format!("{convert} no kind \"Scale\" is registered for version \"{version}\" {scheme}");
        assert_eq!(error(Some(version)), expected);
    }
    for version in ["odd.example.com/v1", "v1"] {
        let expected =
            format!("{convert} scheme.Scale is not suitable for converting to \"{version}\" {scheme}");
        assert_eq!(error(Some(version)), expected);
    }
    assert_eq!(
        error(None),
        "could not find proper group-version for scale subresource of apps.openshift.io/v1, \
         Resource=deploymentconfigs: could not find scale subresource for apps.openshift.io/v1, \
         Resource=deploymentconfigs in discovery information"
    );
}

#[tokio::test(start_paused = true)]
async fn scale_of_an_aggregated_server_is_read_and_written() {
    let (cluster, clients) = cluster();
    cluster.put_raw(json!({
        "apiVersion": "apps.openshift.io/v1", "kind": "DeploymentConfig",
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"replicas": 3, "selector": {"b": "x", "a": "y"}}, "status": {"replicas": 2},
    }));
    let mapper = Mapper::new(clients.discovery.clone());
    let found = mapper.mappings("apps.openshift.io", "DeploymentConfig").await.unwrap();
    assert_eq!(*found, [mapping(Some("extensions/v1beta1"))]);
    let scales = Scales::new(clients.scale);
    let mut scale = scales.get(scales.turn("shop").await, &found[0], "shop", "web").await.unwrap();
    let counts = (scale.spec_replicas, scale.status_replicas);
    assert_eq!((counts, scale.selector.as_str()), ((3, 2), "a=y,b=x"));
    scale.spec_replicas = 5;
    let written = scales.put(scales.turn("shop").await, &found[0], "shop", "web", &scale).await.unwrap();
    assert_eq!(written.spec_replicas, 5);
    let error = scales
        .put(scales.turn("shop").await, &mapping(Some("autoscaling/v1")), "shop", "web", &written)
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the API version in the data (autoscaling/v1) does not match the expected API version (extensions/v1beta1)"
    );
}

#[tokio::test(start_paused = true)]
async fn scale_version_is_that_of_the_resource_if_discovery_names_none() {
    let (cluster, clients) = cluster();
    let mapper = Mapper::new(clients.discovery.clone());
    let resource =
        |name: &str, kind: &str| json!({"name": name, "kind": kind, "namespaced": true, "verbs": []});
    let list = json!({"kind": "APIResourceList", "groupVersion": "apps/v1", "resources": [
        resource("ones", "One"), resource("ones/scale", "Scale"), resource("ones/status", "One"),
        resource("twos", "Two"),
    ]});
    let body = FaultAction::Body(list.to_string());
    cluster.faults().add(FaultRule::new(body).path_suffix("/apis/apps/v1"));
    let version =
        async |kind| mapper.mappings("apps", kind).await.unwrap().first().unwrap().scale_version.clone();
    assert_eq!(version("One").await.as_deref(), Some("apps/v1"));
    assert_eq!(version("Two").await, None);
}
