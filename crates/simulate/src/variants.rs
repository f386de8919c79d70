//! Variants of a scenario. A variant replaces values of the scenario's document.
//!
//! The path of a value starts at the scenario file (`workloads.web.startup`,
//! `flags.horizontal-pod-autoscaler-tolerance`) or at an HPA (`spec.behavior…`, or `web:spec.behavior…` if there are
//! several HPAs). A step into a list is an index (`[0]`) or the name of an item.

use std::sync::Arc;

use super::scenario::document::{Content, Node};
use super::scenario::{Location, Problem};
use crate::setting::{Setting, SettingError, Step, Sweep, steps};
use terminal::words::suggestion;

/// The maximum number of variants of one command.
pub(super) const MOST_VARIANTS: usize = 100;

/// The reason why a setting cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum ApplyError {
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error("the value is not valid YAML")]
    Yaml,
    #[error("the value is missing")]
    NoValue,
    #[error("the scenario has no HPA")]
    NoHpa,
    #[error("the scenario has several HPAs; name one, as in {}:spec.maxReplicas=20", .0.join(" or "))]
    SeveralHpas(Vec<String>),
    #[error("unknown HPA {name:?}{suggestion}")]
    UnknownHpa { name: String, suggestion: String },
    #[error("several HPAs are named {0:?}; use NAMESPACE/NAME")]
    AmbiguousHpa(String),
    #[error("unknown workload {name:?}{suggestion}")]
    UnknownWorkload { name: String, suggestion: String },
    #[error("the list has {length} items, but no item {index}")]
    NoItem { length: usize, index: usize },
    #[error("the list has {length} items, but no item named {name:?}")]
    NoNamedItem { length: usize, name: String },
    #[error("an index is only valid for a list")]
    NoList,
    #[error("a scalar value has no field {0:?}")]
    Scalar(String),
}

/// Returns all combinations of one setting from each sweep. The last sweep varies fastest. Without sweeps, the result
/// is one empty combination.
pub(super) fn choices(sweeps: &[Sweep]) -> Vec<Vec<Setting>> {
    sweeps.iter().fold(vec![Vec::new()], |choices, sweep| {
        let with = |choice: &[Setting], setting: &Setting| [choice, std::slice::from_ref(setting)].concat();
        let with_each = |choice: &Vec<Setting>| {
            sweep.settings.iter().map(|setting| with(choice, setting)).collect::<Vec<_>>()
        };
        choices.iter().flat_map(with_each).collect()
    })
}

/// Sets a value in a document. `flag` is the flag that error messages name, such as `--set`.
pub(super) fn set(document: &mut Node, setting: &Setting, flag: &str) -> Result<(), Problem> {
    let hpa = setting.hpa.as_ref().map(|hpa| format!("{hpa}:")).unwrap_or_default();
    let source: Arc<str> = format!("{flag} {hpa}{}={}", setting.path, setting.value).into();
    let location = Location { source: Arc::clone(&source), line: 0 };
    let wrong = |error: ApplyError| Problem::new(location.clone(), "", error.to_string());
    let value =
        Node::read(&source, &format!("value: {}", setting.value)).map_err(|_| wrong(ApplyError::Yaml))?;
    let mut value = value.get("value").cloned().ok_or_else(|| wrong(ApplyError::NoValue))?;
    value.set_location(&location);
    let mut steps = steps(&setting.path).map_err(|error| wrong(error.into()))?;
    let into_hpa = setting.hpa.is_some() || is_into_hpa(&steps);
    if into_hpa {
        let index = hpa_index(document, setting.hpa.as_deref()).map_err(&wrong)?;
        steps.splice(0..0, [Step::Key("hpas".to_owned()), Step::Index(index)]);
    }
    name_workload(document, &steps, &location).map_err(&wrong)?;
    put(document, &steps, value, &location).map_err(wrong)
}

fn is_into_hpa(steps: &[Step]) -> bool {
    matches!(steps.first(), Some(Step::Key(name)) if name == "spec" || name == "metadata")
}

/// Returns the index of the HPA named `name`, or of the only HPA.
fn hpa_index(document: &Node, name: Option<&str>) -> Result<usize, ApplyError> {
    let hpas = document.get("hpas").map(Node::items).unwrap_or_default();
    let names: Vec<_> = hpas.iter().map(|hpa| hpa.text(&["metadata", "name"]).unwrap_or_default()).collect();
    let Some(name) = name else {
        return match hpas {
            [_] => Ok(0),
            [] => Err(ApplyError::NoHpa),
            _ => Err(ApplyError::SeveralHpas(names.into_iter().map(str::to_owned).collect())),
        };
    };
    let has_name = |hpa: &&Node| {
        let namespace = hpa.text(&["metadata", "namespace"]).unwrap_or("default");
        let hpa_name = hpa.text(&["metadata", "name"]).unwrap_or_default();
        hpa_name == name || format!("{namespace}/{hpa_name}") == name
    };
    let found: Vec<_> =
        hpas.iter().enumerate().filter(|(_, hpa)| has_name(hpa)).map(|(index, _)| index).collect();
    match found.as_slice() {
        [index] => Ok(*index),
        [] => Err(ApplyError::UnknownHpa { name: name.to_owned(), suggestion: suggestion(name, &names) }),
        _ => Err(ApplyError::AmbiguousHpa(name.to_owned())),
    }
}

/// Adds the workload of a path to the document, if only an HPA names the workload.
fn name_workload(document: &mut Node, steps: &[Step], location: &Location) -> Result<(), ApplyError> {
    let [Step::Key(list), Step::Key(name), ..] = steps else { return Ok(()) };
    if list != "workloads" {
        return Ok(());
    }
    let described = document.get("workloads").map(Node::items).unwrap_or_default();
    if described.iter().any(|workload| workload.text(&["name"]) == Some(name)) {
        return Ok(());
    }
    let hpas = document.get("hpas").map(Node::items).unwrap_or_default();
    let mut valid: Vec<_> =
        hpas.iter().filter_map(|hpa| hpa.text(&["spec", "scaleTargetRef", "name"])).collect();
    if !valid.contains(&name.as_str()) {
        valid.extend(described.iter().filter_map(|workload| workload.text(&["name"])));
        let suggestion = suggestion(name, &valid);
        return Err(ApplyError::UnknownWorkload { name: name.clone(), suggestion });
    }
    let mut workload = Node { location: location.clone(), content: Content::Map(Vec::new()) };
    workload.put("name", Node { location: location.clone(), content: Content::Text(name.clone()) });
    let mut all = described.to_vec();
    all.push(workload);
    document.put("workloads", Node { location: location.clone(), content: Content::List(all) });
    Ok(())
}

/// Sets the value at a path. Missing maps of the path are created.
fn put(node: &mut Node, steps: &[Step], value: Node, location: &Location) -> Result<(), ApplyError> {
    let Some((step, rest)) = steps.split_first() else {
        *node = value;
        return Ok(());
    };
    if let Content::List(items) = &mut node.content {
        let length = items.len();
        let item = match step {
            Step::Index(index) => {
                items.get_mut(*index).ok_or(ApplyError::NoItem { length, index: *index })?
            }
            Step::Key(name) => items
                .iter_mut()
                .find(|item| is_named(item, name))
                .ok_or_else(|| ApplyError::NoNamedItem { length, name: name.clone() })?,
        };
        return put(item, rest, value, location);
    }
    let Step::Key(name) = step else {
        return Err(ApplyError::NoList);
    };
    if !matches!(node.content, Content::Map(_) | Content::Null) {
        return Err(ApplyError::Scalar(name.clone()));
    }
    if rest.is_empty() {
        // The key also gets the location of the flag, so that an error about the key names the flag.
        node.put(name, value);
        return Ok(());
    }
    if node.get(name).is_none() {
        node.put(name, Node { location: location.clone(), content: Content::Null });
    }
    node.get_mut(name).map_or(Ok(()), |child| put(child, rest, value, location))
}

fn is_named(item: &Node, name: &str) -> bool {
    [&["name"][..], &["metadata", "name"], &["workload"]].iter().any(|keys| item.text(keys) == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "hpas:\n- metadata: {name: web}\n  spec: {maxReplicas: 10, scaleTargetRef: {name: web}}\n\
                        load:\n- cpu: 1\n- {workload: other, cpu: 2}\n";

    fn varied(settings: &[&str]) -> Result<String, String> {
        let mut document = Node::read("a.yaml", TEXT).unwrap();
        for setting in settings {
            let setting = setting.parse().map_err(|error: SettingError| error.to_string())?;
            set(&mut document, &setting, "--set").map_err(|problem| problem.to_string())?;
        }
        Ok(document.json().to_string())
    }

    #[test]
    fn path_leads_into_the_only_hpa_or_the_scenario() {
        let text = varied(&[
            "spec.maxReplicas=20",
            "web:spec.behavior.scaleDown.stabilizationWindowSeconds=60",
            "default/web:metadata.labels.a\\.b=c",
            "flags.horizontal-pod-autoscaler-tolerance=0.2",
            "workloads.web.startup=30s",
            "load[0].cpu={constant: 3}",
            "load.other.cpu=4",
        ])
        .unwrap();
        assert_eq!(
            text,
            r#"{"flags":{"horizontal-pod-autoscaler-tolerance":0.2},"hpas":[{"metadata":{"labels":{"a.b":"c"},"name":"web"},"spec":{"behavior":{"scaleDown":{"stabilizationWindowSeconds":60}},"maxReplicas":20,"scaleTargetRef":{"name":"web"}}}],"load":[{"cpu":{"constant":3}},{"cpu":4,"workload":"other"}],"workloads":[{"name":"web","startup":"30s"}]}"#
        );
    }

    #[test]
    fn path_is_refused_when_it_leads_nowhere() {
        for (setting, expected) in [
            ("x", "expected PATH=VALUE, such as spec.maxReplicas=20"),
            (
                "a..b=1",
                "\"a..b\" is not a valid path; use one such as spec.maxReplicas or workloads.web.startup",
            ),
            ("wbe:spec.x=1", "--set wbe:spec.x=1: unknown HPA \"wbe\"; did you mean \"web\"?"),
            (
                "workloads.wb.startup=1s",
                "--set workloads.wb.startup=1s: unknown workload \"wb\"; did you mean \"web\"?",
            ),
            ("load[7].cpu=1", "--set load[7].cpu=1: the list has 2 items, but no item 7"),
            (
                "load[0].cpu.constant=1",
                "--set load[0].cpu.constant=1: a scalar value has no field \"constant\"",
            ),
            ("spec.x=[", "--set spec.x=[: the value is not valid YAML"),
        ] {
            assert_eq!(varied(&[setting]).unwrap_err(), expected);
        }
    }

    #[test]
    fn sweeps_combine_to_all_choices() {
        let sweeps: Vec<Sweep> =
            ["spec.a=1,2", "spec.b=[x, y],'p,q'"].map(|text| text.parse().unwrap()).into();
        let names: Vec<_> = choices(&sweeps)
            .iter()
            .map(|choice| choice.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(names, ["a=1 b=[x, y]", "a=1 b='p,q'", "a=2 b=[x, y]", "a=2 b='p,q'"]);
        assert_eq!(choices(&[]), [Vec::new()]);
    }
}
