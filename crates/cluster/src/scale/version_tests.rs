//! The versions of Scales, in reads and writes.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Scales;
use super::wire::{decode, encode};
use crate::client::{ClientOptions, Clients};
use crate::mapper::{Mapper, Mapping};
use clock::{SharedClock, VirtualClock};
use fake_cluster::{Cluster, FaultAction, FaultRule};

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

/// The selector of a response, or the error.
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
    let scales = Scales::new(clients.scale, "m");
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
