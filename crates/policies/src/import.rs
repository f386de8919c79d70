//! Converts objects of other autoscalers to ScalingPolicies.
//!
//! [`import`] reads ScaledObjects of KEDA, and rules of prometheus-adapter with the HPAs that use their metrics. A
//! [`Note`] names each field that loses its effect, changes its effect, or requires a step of the operator. The
//! policies are valid: fields that [`crate::spec::read`] would report are omitted, with a note.

mod adapter;
mod keda;
mod manifest;
mod rule;
mod selector;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

pub use self::adapter::MetricSources;
use self::manifest::shown;
pub use self::manifest::{Note, Remark, ScalingPolicy};

/// An object of the input.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// The location of the object: `web.yaml: document 2`.
    pub location: Arc<str>,
    /// The content of the manifest.
    pub value: Value,
}

/// The result of an import.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Import {
    /// The policies, in the order of the objects.
    pub policies: Vec<ScalingPolicy>,
    /// The notes about fields, in the order of the objects.
    pub notes: Vec<Note>,
    /// The source file for the metrics of the policies. `None` without a configuration of prometheus-adapter.
    pub sources: Option<MetricSources>,
    /// The number of objects of a supported kind, without HPAs that need no conversion.
    pub objects: usize,
}

/// Maximum number of notes about one input.
pub const MAX_NOTES: usize = 10_000;

/// The error of an input that causes more than [`MAX_NOTES`] notes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the objects need more than {MAX_NOTES} notes; import fewer objects at once")]
pub struct TooManyNotes;

/// What an import needs in addition to the objects.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The time from which schedules are compared with those of KEDA.
    pub now: Timestamp,
    /// Returns the reason why a text is not a PromQL query. The parser is no dependency of this crate, because it
    /// takes long to build.
    pub invalid_query: &'a dyn Fn(&str) -> Option<String>,
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("now", &self.now).finish_non_exhaustive()
    }
}

/// Converts objects. Objects that belong to none of these autoscalers are ignored.
///
/// # Errors
/// Returns [`TooManyNotes`] for more than [`MAX_NOTES`] notes.
pub fn import(objects: &[Object], context: &Context<'_>) -> Result<Import, TooManyNotes> {
    let mut result = Import::default();
    let mut adapter = adapter::Configurations::default();
    for object in objects {
        if let Some(mut source) = adapter::chart_values(object) {
            adapter.add_chart_values(&mut source);
            result.add(source)?;
            continue;
        }
        if let Some((mut source, configuration)) = Source::with_configuration(object) {
            result.objects += 1;
            adapter.add(&mut source, &Field::root(&configuration), context);
            result.add(source)?;
            continue;
        }
        let Some(mut source) = Source::new(object) else { continue };
        if adapter.add_deployment(&mut source) {
            result.objects += 1;
            result.add(source)?;
            continue;
        }
        match (source.group, source.kind) {
            ("keda.sh", "ScaledObject") => {
                result.objects += 1;
                result.policies.extend(keda::convert(&mut source, context.now));
            }
            ("keda.sh", _) => {
                let root = source.root.clone();
                source.note(
                    &root,
                    Remark::NoCounterpart("objects of this kind create no HPA and have no policy"),
                );
            }
            _ => {}
        }
        result.add(source)?;
    }
    // HPAs are converted after all rules are known.
    adapter.convert(objects, context, &mut result)?;
    Ok(result)
}

impl Import {
    /// Adds the notes about an object.
    fn add(&mut self, source: Source<'_>) -> Result<(), TooManyNotes> {
        self.notes.extend(source.notes);
        if self.notes.len() > MAX_NOTES { Err(TooManyNotes) } else { Ok(()) }
    }
}

fn hpas(objects: &[Object]) -> impl Iterator<Item = Source<'_>> {
    let is_hpa =
        |source: &Source<'_>| source.group == "autoscaling" && source.kind == "HorizontalPodAutoscaler";
    objects.iter().filter_map(Source::new).filter(is_hpa)
}

/// An object to convert, and the notes about it.
struct Source<'a> {
    kind: &'a str,
    group: &'a str,
    namespace: Option<&'a str>,
    name: &'a str,
    root: Field<'a>,
    location: Arc<str>,
    /// The kind and the name: `ScaledObject shop/web`.
    title: Arc<str>,
    notes: Vec<Note>,
}

impl<'a> Source<'a> {
    /// Returns `None` if the value is not a Kubernetes object.
    fn new(object: &'a Object) -> Option<Self> {
        let text = |pointer: &str| object.value.pointer(pointer).and_then(Value::as_str);
        let (kind, version) = (text("/kind")?, text("/apiVersion")?);
        let namespace = text("/metadata/namespace");
        let name = text("/metadata/name").unwrap_or_default();
        let title = match namespace {
            Some(namespace) => format!("{kind} {namespace}/{name}"),
            None => format!("{kind} {name}"),
        };
        Some(Self {
            kind,
            group: version.split_once('/').map_or("", |(group, _)| group),
            namespace,
            name,
            root: Field::root(&object.value),
            location: Arc::clone(&object.location),
            title: title.into(),
            notes: Vec::new(),
        })
    }

    /// The configuration of prometheus-adapter in a plain file or in a ConfigMap. `None` for other objects.
    fn with_configuration(object: &'a Object) -> Option<(Self, Value)> {
        if let Some(mut source) = Self::new(object) {
            if source.kind != "ConfigMap" {
                return None;
            }
            let (key, configuration) = adapter::in_config_map(&object.value)?;
            source.title = format!("{}: {key}", source.title).into();
            return Some((source, configuration));
        }
        let source = Self::file(object, "configuration of prometheus-adapter");
        adapter::is_configuration(&object.value).then(|| (source, object.value.clone()))
    }

    /// A document that is no Kubernetes object.
    fn file(object: &'a Object, title: &str) -> Self {
        Self {
            kind: "",
            group: "",
            namespace: None,
            name: "",
            root: Field::root(&object.value),
            location: Arc::clone(&object.location),
            title: title.into(),
            notes: Vec::new(),
        }
    }

    fn note(&mut self, field: &Field<'_>, remark: Remark) {
        self.notes.push(Note {
            location: Arc::clone(&self.location),
            object: Arc::clone(&self.title),
            field: field.path().to_owned(),
            remark,
        });
    }

    /// Whether the object has a name, and its namespace is a text. Notes the invalid field.
    fn is_named(&mut self) -> bool {
        let metadata = self.root.at("metadata");
        let name = self.required_text(&metadata.at("name"));
        if name == Some("") {
            self.note(&metadata.at("name"), Remark::Missing);
        }
        let namespace = metadata.at("namespace");
        name.is_some_and(|name| !name.is_empty()) && (!namespace.is_set() || self.text(&namespace).is_some())
    }

    /// Notes the label that the operator must add to an HPA.
    fn ask_for_label(&mut self, label: &str) {
        let labels = self.root.at("metadata").at("labels");
        self.note(&labels, Remark::Next(format!("add the label {label}")));
    }

    /// Returns the text of a required field. Notes an absent field and a value of another type.
    fn required_text<'b>(&mut self, field: &Field<'b>) -> Option<&'b str> {
        if !field.is_set() {
            self.note(field, Remark::Missing);
            return None;
        }
        self.text(field)
    }

    fn text<'b>(&mut self, field: &Field<'b>) -> Option<&'b str> {
        let value = field.value()?;
        let text = value.as_str();
        if text.is_none() {
            self.invalid(field, "a text");
        }
        text
    }

    /// Returns an integer of at least `lowest`, which may be written as text. Notes any other value as invalid.
    fn count(&mut self, field: &Field<'_>, lowest: i64, expected: &'static str) -> Option<i64> {
        let value = field.value()?;
        let number = value.as_i64().or_else(|| value.as_str().and_then(|text| text.trim().parse().ok()));
        let number = number.filter(|number| (lowest..=i32::MAX.into()).contains(number));
        if number.is_none() {
            self.invalid(field, expected);
        }
        number
    }

    /// Notes the fields of a mapping that its type does not have.
    fn unknown(&mut self, mapping: &Field<'_>, known: &[&'static str]) {
        for (name, field) in mapping.fields().into_iter().filter(|(name, _)| !known.contains(name)) {
            let suggestion = crate::spec::similar(name, known);
            self.note(&field, Remark::Unknown { suggestion });
        }
    }

    fn invalid(&mut self, field: &Field<'_>, expected: &'static str) {
        let value = field.value().map(shown).unwrap_or_default();
        self.note(field, Remark::Invalid { expected, value });
    }
}

/// A field of an object, which may be absent.
#[derive(Debug, Clone)]
struct Field<'a> {
    value: Option<&'a Value>,
    path: String,
}

impl<'a> Field<'a> {
    /// The object as a whole, with an empty path.
    fn root(value: &'a Value) -> Self {
        Self { value: Some(value), path: String::new() }
    }

    /// The path in the object: `spec.triggers[0].metadata.start`.
    fn path(&self) -> &str {
        &self.path
    }

    /// The value. `None` if the field is absent or null.
    fn value(&self) -> Option<&'a Value> {
        self.value
    }

    fn is_set(&self) -> bool {
        self.value.is_some()
    }

    /// A field of a mapping. In its path, a name with a dot or a slash is in brackets, such as the name of an
    /// annotation.
    fn at(&self, name: &str) -> Self {
        let value = self.value.and_then(|value| value.get(name)).filter(|value| !value.is_null());
        let path = match name.contains(['.', '/']) {
            true => format!("{}[{name}]", self.path),
            false if self.path.is_empty() => name.to_owned(),
            false => format!("{}.{name}", self.path),
        };
        Self { value, path }
    }

    /// The entries of a list.
    fn items(&self) -> Vec<Self> {
        let entries = self.value.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let entry = |(index, value)| Self { value: Some(value), path: format!("{}[{index}]", self.path) };
        entries.iter().enumerate().map(entry).collect()
    }

    /// The fields of a mapping that are set, each with its name.
    fn fields(&self) -> Vec<(&'a str, Self)> {
        let names = self.value.and_then(Value::as_object).into_iter().flatten();
        names.map(|(name, _)| (name.as_str(), self.at(name))).filter(|(_, field)| field.is_set()).collect()
    }
}
