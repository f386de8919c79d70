//! Checks that alerts, dashboard and runbook refer to existing metrics and entries.

use std::collections::BTreeSet;
use std::fs;

use engine::telemetry::declarations::GROUPS;
use serde_json::Value;

use crate::rendered::path;

fn project_file(name: &str) -> String {
    fs::read_to_string(format!("{}/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

pub(crate) fn groups() -> Vec<Value> {
    let rules = fs::read_to_string(path("helm/concertina/files/prometheus-rule.yaml")).unwrap();
    let rules: Value = serde_saphyr::from_str(&rules).unwrap();
    let mut groups = rules["spec"]["groups"].as_array().unwrap().clone();
    let opt_in = fs::read_to_string(path("helm/concertina/files/hpa-rules.yaml")).unwrap();
    groups.push(serde_saphyr::from_str(&opt_in).unwrap());
    groups
}

fn rules() -> Vec<Value> {
    groups().iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

fn dashboard() -> Value {
    let text = fs::read_to_string(path("helm/concertina/files/concertina.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Collects every string under `key`, at any depth.
fn texts<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    Value::String(text) if name == key => found.push(text),
                    other => texts(other, key, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| texts(item, key, found)),
        _ => {}
    }
}

/// Returns the names of metrics in an expression: the words with a known prefix and an underscore outside of the braces
/// of label selectors.
fn metrics(expression: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut rest = expression;
    let mut depth = 0_u32;
    while let Some(first) = rest.chars().next() {
        let end =
            rest.find(|character: char| !(character.is_ascii_alphanumeric() || "_:".contains(character)));
        let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
        if word.is_empty() {
            depth = match first {
                '{' => depth + 1,
                '}' => depth - 1,
                _ => depth,
            };
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let prefixed = [
            "concertina",
            "horizontal_pod_autoscaler_",
            "leader_election_",
            "workqueue_",
            "rest_client_",
            "process_",
        ]
        .iter()
        .any(|prefix| word.starts_with(prefix));
        if depth == 0 && prefixed && word.contains('_') {
            names.insert(word.to_owned());
        }
        rest = after;
    }
    names
}

fn expressions() -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = rules()
        .iter()
        .map(|rule| {
            let name = rule["alert"].as_str().or_else(|| rule["record"].as_str()).unwrap();
            (name.to_owned(), rule["expr"].as_str().unwrap().to_owned())
        })
        .collect();
    let dashboard = dashboard();
    for panel in dashboard["panels"].as_array().unwrap() {
        let mut found = Vec::new();
        texts(panel, "expr", &mut found);
        let title = panel["title"].as_str().unwrap();
        all.extend(found.into_iter().map(|expression| (title.to_owned(), expression.to_owned())));
    }
    let mut found = Vec::new();
    texts(&dashboard["templating"], "definition", &mut found);
    all.extend(found.into_iter().map(|query| ("a variable".to_owned(), query.to_owned())));
    all
}

#[test]
fn every_metric_in_alerts_and_dashboard_is_declared() {
    let declared: BTreeSet<_> =
        GROUPS.iter().flat_map(|group| group.metrics).map(|metric| metric.name).collect();
    let recorded: BTreeSet<_> =
        rules().iter().filter_map(|rule| rule["record"].as_str().map(str::to_owned)).collect();
    let mut uses = 0;
    for (source, expression) in expressions() {
        for metric in metrics(&expression) {
            let family = ["_bucket", "_count", "_sum"].iter().find_map(|part| metric.strip_suffix(part));
            let is_known = |name: &str| declared.contains(name);
            assert!(
                recorded.contains(&metric) || is_known(&metric) || family.is_some_and(is_known),
                "{source}: {metric} is not declared"
            );
            uses += 1;
        }
    }
    assert!(uses > 50, "found only {uses} uses of metrics");
}

#[test]
fn every_selector_has_the_job_label() {
    for (source, expression) in expressions() {
        // Series of kube-state-metrics and of the API server have the jobs of those programs.
        let foreign = expression.split(|c: char| !(c.is_ascii_alphanumeric() || "_{".contains(c)));
        let is_foreign = |word: &&str| word.starts_with("kube_") || word.starts_with("apiserver_");
        let foreign = foreign.filter(|word| is_foreign(word) && word.contains('{')).count();
        let selectors = expression.matches('{').count() - foreign;
        let jobs = expression.matches("{job=\"concertina\"").count();
        assert_eq!(selectors, jobs, "{source}: {expression}");
        let open = expression.matches('(').count();
        assert_eq!(open, expression.matches(')').count(), "{source}: {expression}");
    }
}

#[test]
fn alerts_and_runbook_entries_match() {
    let runbook = project_file("docs/runbook.md");
    let entries: BTreeSet<_> =
        runbook.lines().filter_map(|line| line.strip_prefix("## Concertina")).collect();
    let mut alerts = BTreeSet::new();
    for rule in rules().iter().filter(|rule| rule["alert"].is_string()) {
        let name = rule["alert"].as_str().unwrap();
        let annotations = &rule["annotations"];
        let url = format!(
            "https://github.com/concertina/concertina/blob/main/docs/runbook.md#{}",
            name.to_lowercase()
        );
        assert_eq!(annotations["runbook_url"], url, "{name}");
        for text in ["summary", "description"] {
            assert!(annotations[text].as_str().is_some_and(|text| text.ends_with('.')), "{name}: {text}");
        }
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(["info", "warning", "critical"].contains(&severity), "{name}: {severity}");
        alerts.insert(name.strip_prefix("Concertina").unwrap().to_owned());
    }
    let alerts: BTreeSet<_> = alerts.iter().map(String::as_str).collect();
    assert_eq!(alerts, entries);
}

#[test]
fn every_panel_uses_the_selected_data_source() {
    let dashboard = dashboard();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: duplicate panel id");
        if panel["type"] != "row" {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
            assert!(!panel["targets"].as_array().unwrap().is_empty(), "{title} has no targets");
        }
        let source = &panel["gridPos"];
        assert!(
            source["x"].as_u64().unwrap() + source["w"].as_u64().unwrap() <= 24,
            "{title} exceeds the width of the grid"
        );
    }
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    assert_eq!(variables[0]["type"], "datasource");
    for (source, expression) in expressions() {
        for word in expression.split('$').skip(1) {
            let end = word.find(|character: char| !(character.is_alphanumeric() || character == '_'));
            let name = &word[..end.unwrap_or(word.len())];
            let is_known =
                // `$1` is a group of `label_replace`.
                name.starts_with("__") || name == "1" || variables.iter().any(|variable| variable["name"] == name);
            assert!(is_known, "{source}: ${name} is not a variable");
        }
    }
}
