//! The fields of the types of the Kubernetes API, and a strict check of manifests.
//!
//! The deserializer of each type states the names of its fields. A [`Probe`] follows a path through the deserializers
//! and keeps the names at the end of the path, so that no list of fields is written twice.

use std::collections::VecDeque;

use serde::de::value::{Error, StrDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::document::{Content, Key, Node, Step, printed};
use super::{Location, Problem};
use terminal::words;

/// The maximum number of names below a map in which a similar field is searched.
const DEPTH: usize = 3;

/// An error about a field of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum FieldError {
    /// Another field has a similar name.
    #[error("{object}: unknown field {path}; did you mean {}?", .similar.join(" or "))]
    Similar {
        /// The kind and the name of the object.
        object: String,
        /// The path of the unknown field.
        path: String,
        /// The paths of the fields with similar names.
        similar: Vec<String>,
    },
    /// No field has a similar name.
    #[error("{object}: unknown field {path}; valid names are {}", .valid.join(", "))]
    Unknown {
        /// The kind and the name of the object.
        object: String,
        /// The path of the unknown field.
        path: String,
        /// The fields of the map that contains the unknown field.
        valid: &'static [&'static str],
    },
}

/// Checks that a manifest has only fields of `T`, as in a strict decoding of the API server. `object` is the kind and
/// the name of the object. Fields that `is_trusted` accepts by their location are not checked.
pub(super) fn check<T: DeserializeOwned>(
    object: &str,
    manifest: &Node,
    is_trusted: &impl Fn(&Location) -> bool,
) -> Result<(), Problem> {
    let Some((key, path, valid)) = unknown::<T>(manifest, &mut Vec::new(), is_trusted) else { return Ok(()) };
    let parent = path.get(..path.len().saturating_sub(1)).unwrap_or_default();
    let similar = (0..=parent.len()).rev().map(|length| parent.get(..length).unwrap_or_default());
    let similar = similar.map(|root| similar_below::<T>(root, &key.name)).find(|found| !found.is_empty());
    let (object, path) = (object.to_owned(), printed(&path));
    let error = match similar {
        Some(similar) => FieldError::Similar { object, path, similar },
        None => FieldError::Unknown { object, path, valid },
    };
    Err(Problem::new(key.location.clone(), "", error.to_string()))
}

/// An unknown key with its path, and the valid names of its map.
type Found<'a> = (&'a Key, Vec<Step>, &'static [&'static str]);

/// Returns the first unknown key. `path` is the path of `node`, and is unchanged afterwards.
fn unknown<'a, T: DeserializeOwned>(
    node: &'a Node,
    path: &mut Vec<Step>,
    is_trusted: &impl Fn(&Location) -> bool,
) -> Option<Found<'a>> {
    let children: Vec<(Step, &Node)> = match &node.content {
        Content::Map(entries) => {
            let valid = fields::<T>(path);
            let is_unknown = |key: &Key| valid.is_some_and(|valid| !valid.contains(&key.name.as_str()));
            if let Some(((key, _), valid)) =
                entries.iter().find(|(key, _)| is_unknown(key) && !is_trusted(&key.location)).zip(valid)
            {
                let path = path.iter().cloned().chain([Step::Key(key.name.clone())]).collect();
                return Some((key, path, valid));
            }
            entries.iter().map(|(key, value)| (Step::Key(key.name.clone()), value)).collect()
        }
        Content::List(items) => {
            items.iter().enumerate().map(|(index, item)| (Step::Index(index), item)).collect()
        }
        Content::Null | Content::Bool(_) | Content::Number(_) | Content::Text(_) => return None,
    };
    for (step, child) in children {
        path.push(step);
        let found = unknown::<T>(child, path, is_trusted);
        path.pop();
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Returns the paths of the fields below `root` with the names that are most similar to `wrong`: alone, or with the
/// names above them, as in the field `targetAverageUtilization` of older versions for `target.averageUtilization`.
fn similar_below<T: DeserializeOwned>(root: &[Step], wrong: &str) -> Vec<String> {
    let mut open = VecDeque::from([root.to_vec()]);
    let mut best: Option<(usize, usize)> = None;
    let mut found = Vec::new();
    while let Some(path) = open.pop_front() {
        for name in fields::<T>(&path).unwrap_or_default() {
            let candidate: Vec<Step> = path.iter().cloned().chain([Step::Key((*name).to_owned())]).collect();
            let depth = candidate.len() - root.len();
            let mut joined = String::new();
            let distances = candidate.iter().skip(root.len()).rev().filter_map(|step| match step {
                Step::Key(name) => {
                    joined.insert_str(0, name);
                    words::distance(wrong, &joined)
                }
                Step::Index(_) => None,
            });
            if let Some(distance) = distances.min() {
                let rank = (distance, depth);
                if best.is_none_or(|best| rank < best) {
                    best = Some(rank);
                    found.clear();
                }
                if best == Some(rank) {
                    found.push(printed(&candidate));
                }
            }
            if depth < DEPTH {
                open.push_back(candidate);
            }
        }
    }
    found
}

/// Returns the names of the fields of `T` at a path. `None` if the type at the path has no fixed fields, such as a map
/// of labels.
fn fields<T: DeserializeOwned>(path: &[Step]) -> Option<&'static [&'static str]> {
    let mut names = None;
    // The result is always an error, because the probe has no values.
    let _ = T::deserialize(Probe { path, names: &mut names });
    names
}

/// A deserializer that follows a path through the types of its values.
struct Probe<'p> {
    path: &'p [Step],
    /// The names of the fields at the end of the path.
    names: &'p mut Option<&'static [&'static str]>,
}

fn no_value() -> Error {
    serde::de::Error::custom("a probe has no values")
}

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.path.split_first() {
            None => {
                *self.names = Some(names);
                Err(no_value())
            }
            Some((Step::Key(name), rest)) => {
                visitor.visit_map(OneValue { name: Some(name), probe: Some(Probe { path: rest, ..self }) })
            }
            Some((Step::Index(_), _)) => Err(no_value()),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let Some((Step::Key(name), rest)) = self.path.split_first() else { return Err(no_value()) };
        visitor.visit_map(OneValue { name: Some(name), probe: Some(Probe { path: rest, ..self }) })
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let Some((Step::Index(_), rest)) = self.path.split_first() else { return Err(no_value()) };
        visitor.visit_seq(OneValue { name: None, probe: Some(Probe { path: rest, ..self }) })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(no_value())
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct tuple
        tuple_struct enum identifier ignored_any
    }
}

/// A map or a list with one value.
struct OneValue<'p> {
    /// The key. `None` once it is read, and for a list.
    name: Option<&'p str>,
    probe: Option<Probe<'p>>,
}

impl<'de> MapAccess<'de> for OneValue<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let name: Option<StrDeserializer<'_, Error>> =
            self.name.take().map(IntoDeserializer::into_deserializer);
        name.map(|name| seed.deserialize(name)).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(self.probe.take().ok_or_else(no_value)?)
    }
}

impl<'de> SeqAccess<'de> for OneValue<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.probe.take().map(|probe| seed.deserialize(probe)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;

    use super::*;

    /// Returns the error about an HPA of the YAML text `text`.
    fn error(text: &str) -> Option<String> {
        let manifest = Node::read("a.yaml", text).unwrap();
        let checked = check::<HorizontalPodAutoscaler>("the HPA", &manifest, &|_| false);
        checked.err().map(|problem| problem.to_string())
    }

    #[test]
    fn names_of_fields_come_from_the_types() {
        let names = |path: &str| fields::<HorizontalPodAutoscaler>(&super::super::document::steps(path));
        assert_eq!(names("spec.metrics[0].resource"), Some(&["name", "target"][..]));
        assert!(names("spec.behavior.scaleDown.policies[3]").unwrap().contains(&"periodSeconds"));
        assert!(names("status.conditions[0]").unwrap().contains(&"lastTransitionTime"));
        assert!(
            names("spec.metrics[0].pods.metric.selector.matchExpressions[0]").unwrap().contains(&"operator")
        );
        for free in
            ["metadata.labels", "spec.maxReplicas", "spec.metrics", "spec.nothing", "spec.metrics.resource"]
        {
            assert_eq!(names(free), None, "{free}");
        }
    }

    #[test]
    fn complete_manifest_has_no_unknown_field() {
        let text = "
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop, creationTimestamp: null, labels: {any: x, 'a.b/c': y}, annotations: {a: b}}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 1
  maxReplicas: '3'
  behavior:
    scaleUp: {selectPolicy: Max, tolerance: 0.2, policies: [{type: Pods, value: 4, periodSeconds: 15}]}
  metrics:
    - {type: Pods, pods: {metric: {name: x, selector: {matchLabels: {free: z}}}, target: {type: AverageValue, averageValue: 1}}}
    - {type: ContainerResource, containerResource: {name: cpu, container: app, target: {type: Utilization, averageUtilization: 60}}}
status: {currentReplicas: 1, desiredReplicas: 1, conditions: [{type: AbleToScale, status: 'True'}], currentMetrics: null}
";
        assert_eq!(error(text), None);
    }

    #[test]
    fn unknown_field_is_named_with_the_field_that_was_meant() {
        for (text, expected) in [
            ("spec: {behaviour: {}}", "spec.behaviour; did you mean spec.behavior?"),
            ("spec: {maxreplicas: 3}", "spec.maxreplicas; did you mean spec.maxReplicas?"),
            (
                "spec: {behavior: {scaleDown: {stabilizationWindow: 20}}}",
                "spec.behavior.scaleDown.stabilizationWindow; did you mean \
                 spec.behavior.scaleDown.stabilizationWindowSeconds?",
            ),
            (
                "spec: {metrics: [{type: Resource}, {resource: {name: cpu, targetAverageUtilization: 75}}]}",
                "spec.metrics[1].resource.targetAverageUtilization; did you mean \
                 spec.metrics[1].resource.target.averageUtilization?",
            ),
            ("maxReplicas: 3", "maxReplicas; did you mean spec.maxReplicas?"),
            (
                "spec: {scaleTargetRef: {minReplicas: 3}}",
                "spec.scaleTargetRef.minReplicas; did you mean spec.minReplicas?",
            ),
            (
                "spec: {behavior: {stabilizationWindowSeconds: 0}}",
                "spec.behavior.stabilizationWindowSeconds; did you mean \
                 spec.behavior.scaleDown.stabilizationWindowSeconds or spec.behavior.scaleUp.stabilizationWindowSeconds?",
            ),
            ("metadata: {lables: {a: b}}", "metadata.lables; did you mean metadata.labels?"),
            (
                "spec: {zzzzz: 1}",
                "spec.zzzzz; valid names are behavior, maxReplicas, metrics, minReplicas, scaleTargetRef",
            ),
        ] {
            assert_eq!(error(text), Some(format!("a.yaml:1: the HPA: unknown field {expected}")));
        }
    }

    #[test]
    fn trusted_fields_are_not_checked() {
        let manifest = Node::read("a.yaml", "spec: {newer: 1}").unwrap();
        check::<HorizontalPodAutoscaler>("the HPA", &manifest, &|location| &*location.source == "a.yaml")
            .unwrap();
    }
}
