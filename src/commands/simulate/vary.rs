//! Variants of a scenario: values of its document replaced, one variant for each choice.
//!
//! A path leads into the scenario file (`workloads.web.startup`, `flags.horizontal-pod-autoscaler-tolerance`) or into an
//! HPA (`spec.behavior…`, with several of them `web:spec.behavior…`). Items of lists are named by place (`[0]`) or by name.

use std::fmt;
use std::sync::Arc;

use super::scenario::document::{Content, Node, Place};
use super::scenario::{Problem, suggestion};

/// How many variants one command line may ask for.
pub(super) const MOST_VARIANTS: usize = 100;

/// A value for a path: `--set path=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The HPA that the path leads into, if it is named.
    pub hpa: Option<String>,
    /// The path.
    pub path: String,
    /// The value, in YAML.
    pub value: String,
}

/// Values for a path, one variant each: `--sweep path=a,b,c`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// One setting for each value.
    pub settings: Vec<Setting>,
}

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Name(String),
    Index(usize),
}

impl std::str::FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (path, value) = text
            .split_once('=')
            .filter(|(path, _)| !path.is_empty())
            .ok_or_else(|| "expected PATH=VALUE, such as spec.maxReplicas=20".to_owned())?;
        let (hpa, path) = match path.split_once(':') {
            Some((hpa, path)) => (Some(hpa.to_owned()), path),
            None => (None, path),
        };
        steps(path)?;
        Ok(Self { hpa, path: path.to_owned(), value: value.to_owned() })
    }
}

impl std::str::FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all: Setting = text.parse().map_err(|_| {
            "expected PATH=VALUE,VALUE, such as spec.behavior.scaleDown.stabilizationWindowSeconds=0,60,300".to_owned()
        })?;
        let settings =
            values(&all.value).into_iter().map(|value| Setting { value, ..all.clone() }).collect::<Vec<_>>();
        Ok(Self { settings })
    }
}

/// The values of a list with commas; those within brackets and quotes do not separate.
fn values(text: &str) -> Vec<String> {
    let mut values = vec![String::new()];
    let (mut depth, mut quote) = (0_u32, None);
    for character in text.chars() {
        match (character, quote) {
            (',', None) if depth == 0 => {
                values.push(String::new());
                continue;
            }
            ('[' | '{', None) => depth += 1,
            (']' | '}', None) => depth = depth.saturating_sub(1),
            ('"' | '\'', None) => quote = Some(character),
            (_, Some(open)) if open == character => quote = None,
            _ => {}
        }
        if let Some(value) = values.last_mut() {
            value.push(character);
        }
    }
    values.into_iter().map(|value| value.trim().to_owned()).collect()
}

/// As in a table's heading: without what every path into an HPA begins with.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(hpa) = &self.hpa {
            write!(f, "{hpa}:")?;
        }
        let path = self.path.strip_prefix("spec.").unwrap_or(&self.path);
        let path = path.strip_prefix("behavior.").unwrap_or(path);
        write!(f, "{}={}", path.strip_prefix("flags.").unwrap_or(path), self.value)
    }
}

/// All choices of one value from each sweep, the last sweep changing fastest; one empty choice without sweeps.
pub(super) fn choices(sweeps: &[Sweep]) -> Vec<Vec<Setting>> {
    sweeps.iter().fold(vec![Vec::new()], |choices, sweep| {
        let with_each = |choice: &Vec<Setting>| {
            let choice = choice.clone();
            sweep
                .settings
                .iter()
                .map(move |setting| [choice.as_slice(), std::slice::from_ref(setting)].concat())
        };
        choices.iter().flat_map(|choice| with_each(choice).collect::<Vec<_>>()).collect()
    })
}

/// Replaces a value of a document. `flag` is how the user asked for it, such as `--set`.
pub(super) fn set(document: &mut Node, setting: &Setting, flag: &str) -> Result<(), Problem> {
    let hpa = setting.hpa.as_ref().map(|hpa| format!("{hpa}:")).unwrap_or_default();
    let source: Arc<str> = format!("{flag} {hpa}{}={}", setting.path, setting.value).into();
    let place = Place { source: Arc::clone(&source), line: 0 };
    let wrong = |message: String| Problem::new(place.clone(), "", message);
    let value = Node::read(&source, &format!("value: {}", setting.value))
        .map_err(|_| wrong("the value is not YAML".to_owned()))?;
    let mut value = value.get("value").cloned().ok_or_else(|| wrong("there is no value".to_owned()))?;
    value.take_place(&place);
    let mut steps = steps(&setting.path).map_err(&wrong)?;
    let into_hpa = setting.hpa.is_some() || is_into_hpa(&steps);
    if into_hpa {
        let index = hpa_place(document, setting.hpa.as_deref()).map_err(&wrong)?;
        steps.splice(0..0, [Step::Name("hpas".to_owned()), Step::Index(index)]);
    }
    name_workload(document, &steps, &place).map_err(&wrong)?;
    put(document, &steps, value, &place).map_err(wrong)
}

fn is_into_hpa(steps: &[Step]) -> bool {
    matches!(steps.first(), Some(Step::Name(name)) if name == "spec" || name == "metadata")
}

/// `a.b[0].c`; a dot within a name is written `\.`.
fn steps(path: &str) -> Result<Vec<Step>, String> {
    let wrong =
        || format!("{path:?} is not a path; give one such as spec.maxReplicas or workloads.web.startup");
    let mut steps = Vec::new();
    for part in path.replace("\\.", "\u{0}").split('.') {
        let (name, indexes) = part.split_once('[').map_or((part, None), |(name, rest)| (name, Some(rest)));
        if !name.is_empty() {
            steps.push(Step::Name(name.replace('\u{0}', ".")));
        } else if indexes.is_none() {
            return Err(wrong());
        }
        for index in indexes.iter().flat_map(|rest| rest.split('[')) {
            let index = index.strip_suffix(']').and_then(|index| index.parse().ok()).ok_or_else(wrong)?;
            steps.push(Step::Index(index));
        }
    }
    Ok(steps)
}

/// The place of an HPA by its name, or of the only one.
fn hpa_place(document: &Node, name: Option<&str>) -> Result<usize, String> {
    let hpas = document.get("hpas").map(Node::items).unwrap_or_default();
    let names: Vec<_> = hpas.iter().map(|hpa| hpa.text(&["metadata", "name"]).unwrap_or_default()).collect();
    let Some(name) = name else {
        return match hpas {
            [_] => Ok(0),
            [] => Err("there is no HPA".to_owned()),
            _ => Err(format!(
                "there are several HPAs; name one, as in {}:spec.maxReplicas=20",
                names.join(" or ")
            )),
        };
    };
    let is_named = |hpa: &&Node| {
        let namespace = hpa.text(&["metadata", "namespace"]).unwrap_or("default");
        let own = hpa.text(&["metadata", "name"]).unwrap_or_default();
        own == name || format!("{namespace}/{own}") == name
    };
    let found: Vec<_> =
        hpas.iter().enumerate().filter(|(_, hpa)| is_named(hpa)).map(|(place, _)| place).collect();
    match found.as_slice() {
        [place] => Ok(*place),
        [] => Err(format!("there is no HPA {name:?}{}", suggestion(name, &names))),
        _ => Err(format!("several HPAs are called {name:?}; give NAMESPACE/NAME")),
    }
}

/// Describes a workload that so far only its HPA names, so that a path can lead into it.
fn name_workload(document: &mut Node, steps: &[Step], place: &Place) -> Result<(), String> {
    let [Step::Name(list), Step::Name(name), ..] = steps else { return Ok(()) };
    if list != "workloads" {
        return Ok(());
    }
    let described = document.get("workloads").map(Node::items).unwrap_or_default();
    if described.iter().any(|workload| workload.text(&["name"]) == Some(name)) {
        return Ok(());
    }
    let hpas = document.get("hpas").map(Node::items).unwrap_or_default();
    let mut known: Vec<_> =
        hpas.iter().filter_map(|hpa| hpa.text(&["spec", "scaleTargetRef", "name"])).collect();
    if !known.contains(&name.as_str()) {
        known.extend(described.iter().filter_map(|workload| workload.text(&["name"])));
        return Err(format!("there is no workload {name:?}{}", suggestion(name, &known)));
    }
    let mut workload = Node { place: place.clone(), content: Content::Map(Vec::new()) };
    workload.put("name", Node { place: place.clone(), content: Content::Text(name.clone()) });
    let mut all = described.to_vec();
    all.push(workload);
    document.put("workloads", Node { place: place.clone(), content: Content::List(all) });
    Ok(())
}

/// Puts a value behind some steps; maps on the way that are missing are made.
fn put(node: &mut Node, steps: &[Step], value: Node, place: &Place) -> Result<(), String> {
    let Some((step, rest)) = steps.split_first() else {
        *node = value;
        return Ok(());
    };
    if let Content::List(items) = &mut node.content {
        let length = items.len();
        let (item, what) = match step {
            Step::Index(index) => (items.get_mut(*index), format!("item {index}")),
            Step::Name(name) => {
                (items.iter_mut().find(|item| is_called(item, name)), format!("item called {name:?}"))
            }
        };
        let item = item.ok_or_else(|| format!("the list has {length} items, and no {what}"))?;
        return put(item, rest, value, place);
    }
    let Step::Name(name) = step else {
        return Err("an index is given for what is not a list".to_owned());
    };
    if !matches!(node.content, Content::Map(_) | Content::Null) {
        return Err(format!("{name:?} cannot be within a plain value"));
    }
    if node.get(name).is_none() {
        node.put(name, Node { place: place.clone(), content: Content::Null });
    }
    match node.get_mut(name) {
        Some(child) if rest.is_empty() => {
            *child = value;
            // An error about the key names the flag too.
            let moved = child.clone();
            node.put(name, moved);
            Ok(())
        }
        Some(child) => put(child, rest, value, place),
        None => Ok(()),
    }
}

fn is_called(item: &Node, name: &str) -> bool {
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
            set(&mut document, &setting.parse()?, "--set").map_err(|problem| problem.to_string())?;
        }
        Ok(document.json().to_string())
    }

    #[test]
    fn a_path_leads_into_the_only_hpa_or_into_the_scenario() {
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
    fn a_path_that_leads_nowhere_is_told() {
        for (setting, expected) in [
            ("x", "expected PATH=VALUE, such as spec.maxReplicas=20"),
            ("a..b=1", "\"a..b\" is not a path; give one such as spec.maxReplicas or workloads.web.startup"),
            ("wbe:spec.x=1", "--set wbe:spec.x=1: there is no HPA \"wbe\"; did you mean \"web\"?"),
            (
                "workloads.wb.startup=1s",
                "--set workloads.wb.startup=1s: there is no workload \"wb\"; did you mean \"web\"?",
            ),
            ("load[7].cpu=1", "--set load[7].cpu=1: the list has 2 items, and no item 7"),
            (
                "load[0].cpu.constant=1",
                "--set load[0].cpu.constant=1: \"constant\" cannot be within a plain value",
            ),
            ("spec.x=[", "--set spec.x=[: the value is not YAML"),
        ] {
            assert_eq!(varied(&[setting]).unwrap_err(), expected);
        }
    }

    #[test]
    fn sweeps_are_combined() {
        let sweeps: Vec<Sweep> =
            ["spec.a=1,2", "spec.b=[x, y],'p,q'"].map(|text| text.parse().unwrap()).into();
        let names: Vec<_> = choices(&sweeps)
            .iter()
            .map(|choice| choice.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(names, ["a=1 b=[x, y]", "a=1 b='p,q'", "a=2 b=[x, y]", "a=2 b='p,q'"]);
        assert_eq!(choices(&[]), [Vec::new()]);
    }

    #[test]
    fn a_variant_is_called_by_the_end_of_its_path() {
        for (setting, name) in [
            (
                "spec.behavior.scaleDown.stabilizationWindowSeconds=60",
                "scaleDown.stabilizationWindowSeconds=60",
            ),
            ("web:spec.maxReplicas=20", "web:maxReplicas=20"),
            ("flags.horizontal-pod-autoscaler-tolerance=0.2", "horizontal-pod-autoscaler-tolerance=0.2"),
            ("workloads.web.startup=30s", "workloads.web.startup=30s"),
        ] {
            assert_eq!(setting.parse::<Setting>().unwrap().to_string(), name);
        }
    }
}
