//! Checks that each folder of kustomize builds from a copy of itself, and that components combine. Also generates the
//! tables of the chart's values in the documents from the comments of `values.yaml`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::rendered::{HOME, Objects, helm, named, objects, only, path, run};

/// Copies one folder of deploy/kustomize, without its neighbours, to a folder of this test. Returns the copy.
fn vendored(test: &str, folder: &str) -> PathBuf {
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test).join(folder);
    let _ = fs::remove_dir_all(&copy);
    copy_folder(Path::new(&path("kustomize")).join(folder).as_path(), &copy);
    copy
}

pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn build(folder: &Path) -> Objects {
    let mut kubectl = Command::new("kubectl");
    kubectl.arg("kustomize").arg(folder);
    objects(&run(kubectl).unwrap_or_else(|error| panic!("{}: {error}", folder.display())))
}

fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(path(&format!("kustomize/{folder}"))).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
#[ignore = "needs kubectl"]
fn each_folder_builds_when_only_it_is_vendored() {
    let test = "vendored-folders";
    let components = names("components");
    assert!(components.len() >= 10, "{components:?}");
    for name in components {
        build(&vendored(test, &format!("components/{name}")));
    }
    for folder in ["base", "prometheus", "service-account", "namespace-role"] {
        assert!(!build(&vendored(test, folder)).is_empty(), "{folder}");
    }
    // The overlays use the other folders of deploy/kustomize, but nothing outside of that folder.
    let all = vendored("vendored-kustomize", "");
    for name in names("overlays") {
        assert!(!build(&all.join("overlays").join(&name)).is_empty(), "{name}");
    }
    fs::remove_dir_all(all).unwrap();
    fs::remove_dir_all(Path::new(env!("CARGO_TARGET_TMPDIR")).join(test)).unwrap();
}

/// Returns the objects with the arguments of the Deployment in alphabetical order.
fn with_sorted_flags(mut objects: Objects) -> Objects {
    for (_, deployment) in objects.iter_mut().filter(|(key, _)| key.kind == "Deployment") {
        let arguments = &mut deployment["spec"]["template"]["spec"]["containers"][0]["args"];
        arguments.as_array_mut().unwrap().sort_by_key(Value::to_string);
    }
    objects
}

/// Returns the objects with the rules of the ClusterRole in alphabetical order.
fn with_sorted_rules(mut objects: Objects) -> Objects {
    for (_, role) in objects.iter_mut().filter(|(key, _)| key.kind == "ClusterRole") {
        role["rules"].as_array_mut().unwrap().sort_by_key(Value::to_string);
    }
    objects
}

#[test]
#[ignore = "needs kubectl and HELM: run tests/helm/build.sh"]
fn components_combine_in_a_folder_of_the_users_own() {
    let all = vendored("combined-components", "");
    let own = all.join("own");
    fs::create_dir(&own).unwrap();
    let combination = |components: &[&str]| {
        let list: Vec<_> = components.iter().map(|name| format!("  - ../components/{name}\n")).collect();
        let text = format!(
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n  - ../base\n\
             components:\n{}",
            list.concat()
        );
        fs::write(own.join("kustomization.yaml"), text).unwrap();
        with_sorted_rules(with_sorted_flags(build(&own)))
    };
    for (components, values) in [
        (
            &["control-plane", "scaling-policies"][..],
            &["controlPlane=true", "scalingPolicies.enabled=true"][..],
        ),
        (&["scope-labelled", "guard-webhook"], &["mode=labelled"]),
    ] {
        let chart = with_sorted_rules(with_sorted_flags(helm("concertina", HOME, values)));
        let built = combination(components);
        assert_eq!(only(&built, "Deployment"), only(&chart, "Deployment"), "{components:?}");
        assert_eq!(built, chart, "{components:?}");
    }
    fs::remove_dir_all(all).unwrap();
}

#[test]
#[ignore = "needs kubectl and HELM: run tests/helm/build.sh"]
fn account_for_kubelets_may_only_read_metrics_of_nodes() {
    let all = vendored("kubelet-metrics", "");
    let own = all.join("own");
    fs::create_dir(&own).unwrap();
    let text = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [../base]\n\
                components: [../components/kubelet-metrics]\n";
    fs::write(own.join("kustomization.yaml"), text).unwrap();
    let built = build(&own);
    let values = ["metricSources.kubelet.enabled=true", "metricSources.kubelet.insecureSkipVerify=true"];
    let chart = helm("concertina", HOME, &values);
    for kind in ["ServiceAccount", "Secret", "ClusterRole", "ClusterRoleBinding"] {
        let account = named(&built, kind, "concertina-kubelet");
        assert_eq!(account, named(&chart, kind, "concertina-kubelet"), "{kind}");
    }
    let reader = named(&built, "ClusterRole", "concertina-kubelet");
    let rule = json!({"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]});
    assert_eq!(reader["rules"], json!([rule]));
    let mount = json!({
        "name": "kubelet-token", "mountPath": "/var/run/secrets/concertina/kubelet", "readOnly": true,
    });
    for objects in [&built, &chart] {
        let pod = &only(objects, "Deployment")["spec"]["template"]["spec"];
        assert!(pod["containers"][0]["volumeMounts"].as_array().unwrap().contains(&mount));
        let volumes = pod["volumes"].as_array().unwrap().iter();
        let secrets: Vec<_> = volumes.filter_map(|volume| volume["secret"]["secretName"].as_str()).collect();
        assert_eq!(secrets, ["concertina-kubelet"]);
    }
    fs::remove_dir_all(all).unwrap();
}

/// Files that exist twice, because neither the chart nor a folder of kustomize can read outside of its folder. The
/// first path is below the files of the chart, the second path below deploy/kustomize.
const SHARED: [(&str, &str); 3] = [
    ("prometheus-rule.yaml", "prometheus/prometheus-rule.yaml"),
    ("concertina.json", "prometheus/concertina.json"),
    ("scaling-policies/definitions.yaml", "components/scaling-policies/definitions.yaml"),
];

#[test]
fn files_of_the_chart_and_of_kustomize_are_equal() {
    for (chart, kustomize) in SHARED {
        let source = path(&format!("helm/concertina/files/{chart}"));
        let copy = path(&format!("kustomize/{kustomize}"));
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::copy(&source, &copy).unwrap();
        }
        assert!(
            fs::read(&source).unwrap() == fs::read(&copy).unwrap(),
            "{copy} differs from {source}; run UPDATE_DOCS=1 cargo test --test deploy files_of_the_chart"
        );
    }
}

/// A value of the chart: its path, its default and the comment before it.
struct Row {
    path: String,
    default: String,
    comment: String,
}

/// Reads the rows of `values.yaml`, one for each leaf of a mapping. A comment belongs to the next key, and the comment
/// of a mapping belongs to the first leaf of the mapping.
fn rows(text: &str) -> Vec<Row> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut rows: Vec<Row> = Vec::new();
    let mut parents: Vec<(usize, &str)> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    let mut inherited = String::new();
    for (number, line) in lines.iter().enumerate() {
        let content = line.trim();
        if content.is_empty() {
            comment.clear();
            inherited.clear();
        } else if let Some(words) = content.strip_prefix('#') {
            comment.push(words.trim());
        } else if let Some(item) = content.strip_prefix("- ") {
            let row = rows.last_mut().unwrap();
            row.default = match row.default.strip_suffix(']') {
                Some(items) => format!("{items}, {item}]"),
                None => format!("[{item}]"),
            };
        } else {
            let (key, default) = content.split_once(':').unwrap_or_else(|| panic!("no key in {line}"));
            parents.retain(|(depth, _)| *depth < indent(line));
            let path: Vec<_> = parents.iter().map(|(_, key)| *key).chain([key]).collect();
            let own = std::mem::take(&mut comment).join(" ");
            let next = lines.get(number + 1).map_or(0, |next| indent(next));
            if default.trim().is_empty() && next > indent(line) {
                parents.push((indent(line), key));
                let is_list = lines[number + 1].trim().starts_with("- ");
                if !is_list {
                    inherited = [std::mem::take(&mut inherited), own].concat();
                    continue;
                }
            }
            let comment = [std::mem::take(&mut inherited), own];
            let comment: Vec<_> = comment.into_iter().filter(|part| !part.is_empty()).collect();
            rows.push(Row {
                path: path.join("."),
                default: default.trim().to_owned(),
                comment: comment.join(" "),
            });
        }
    }
    rows
}

fn table(rows: &[Row]) -> String {
    let mut text = "| value | default | description |\n|---|---|---|\n".to_owned();
    for Row { path, default, comment } in rows {
        let comment = comment.replace('|', "\\|").replace('<', "&lt;");
        let _ = writeln!(text, "| `{path}` | `{default}` | {comment} |");
    }
    text
}

/// Collects the paths of all leaves. A list or an empty mapping is a leaf.
fn leaves(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, field) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                leaves(field, &path, found);
            }
        }
        _ => {
            found.insert(path.to_owned());
        }
    }
}

#[test]
fn value_tables_equal_the_comments_of_values_yaml() {
    let text = fs::read_to_string(path("helm/concertina/values.yaml")).unwrap();
    let rows = rows(&text);
    let mut expected = BTreeSet::new();
    leaves(&serde_saphyr::from_str(&text).unwrap(), "", &mut expected);
    let listed: BTreeSet<_> = rows.iter().map(|row| row.path.clone()).collect();
    assert_eq!(listed, expected, "the generator reads values.yaml differently from a YAML parser");

    let (start, end) = ("<!-- values: generated -->\n", "<!-- end of values -->\n");
    let page = path("helm/concertina/README.md");
    let current = fs::read_to_string(&page).unwrap();
    let (before, rest) = current.split_once(start).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    let generated = format!("{before}{start}\n{}\n{end}{after}", table(&rows));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&page, &generated).unwrap();
    } else {
        assert!(
            current == generated,
            "{page} is stale; run UPDATE_DOCS=1 cargo test --test deploy value_tables"
        );
    }
}
