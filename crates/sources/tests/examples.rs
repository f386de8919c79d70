//! The files of `examples/metric-sources`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use policies::spec::{Level, MetricOrigin, parse};
use sources::{SourceFile, name_of};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/metric-sources")
}

#[test]
fn examples_are_valid_and_name_sources_of_the_file() {
    let path = folder().join("sources.yaml");
    let file = SourceFile::read(&path).unwrap();
    assert!(file.pods.enabled && file.kubelet.enabled);
    let mut names: BTreeSet<String> = BTreeSet::from(["sources.yaml".to_owned()]);
    let all = [
        ("prometheus", "main"),
        ("pods", "pods"),
        ("kubelet", "kubelet"),
        ("api-group", "external.metrics.example.com"),
    ];
    for (name, source) in all {
        let file_name = format!("{name}.yaml");
        let text = std::fs::read_to_string(folder().join(&file_name)).unwrap();
        let parsed = parse(&text, Level::Annotation);
        assert_eq!(parsed.problems, [], "{name}");
        assert_eq!(parsed.spec.burst.is_some(), name == "pods");
        let metrics = parsed.spec.metrics.unwrap();
        assert_eq!(metrics.len(), 1, "{name}");
        let origin = &metrics.first().unwrap().origin;
        assert_eq!(name_of(origin), source);
        match origin {
            MetricOrigin::Prometheus { server, .. } => assert!(file.prometheus.contains_key(server)),
            MetricOrigin::ApiGroup(group) => assert!(file.adapters.contains_key(group)),
            MetricOrigin::Pods(_) | MetricOrigin::Kubelet => {}
        }
        let command = format!("concertina.dev/policy=\"$(cat examples/metric-sources/{file_name})\"");
        assert!(text.contains(&command), "{name} does not show how to set it");
        names.insert(file_name);
    }
    let found: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(found, names);
}
