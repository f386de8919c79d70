//! A YAML document as a tree in which every value has its location, so that errors contain the file and the line.
//! Values can be replaced before the document is deserialized.

use std::fmt::{self, Write as _};
use std::iter;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::{Number, Value};
use serde_saphyr::Spanned;

use super::{Location, Problem};
pub(crate) use crate::setting::Step;
use terminal::values::{self, YamlError};

/// A value with its location.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) location: Location,
    pub(crate) content: Content,
}

/// The content of a value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Content {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    /// The entries in file order.
    Map(Vec<(Key, Node)>),
}

/// A key of a map, with its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) location: Location,
}

impl Node {
    /// Reads a text with one document. An empty text is an empty map.
    pub(crate) fn read(source: &str, text: &str) -> Result<Self, Problem> {
        let source: Arc<str> = source.into();
        let mut documents = Self::read_all(&source, text)?.into_iter();
        let first = documents.next();
        match documents.next() {
            Some(second) => Err(Problem::new(
                second.location,
                "",
                "found a second document; a scenario is a single document",
            )),
            None => Ok(first.unwrap_or_else(|| Self {
                location: Location { source, line: 1 },
                content: Content::Map(Vec::new()),
            })),
        }
    }

    /// Reads all documents of a text.
    pub(crate) fn read_all(source: &Arc<str>, text: &str) -> Result<Vec<Self>, Problem> {
        let mut documents: Vec<Self> = values::documents(text).map_err(|YamlError { line, message }| {
            Problem::new(Location { source: Arc::clone(source), line }, "", message)
        })?;
        for document in &mut documents {
            document.change_locations(&|location| location.source = Arc::clone(source));
        }
        Ok(documents)
    }

    /// Converts a value from a source without lines.
    pub(crate) fn from_json(source: &Arc<str>, value: &Value) -> Self {
        let location = Location { source: Arc::clone(source), line: 0 };
        let field = |(name, value): (&String, &Value)| {
            (Key { name: name.clone(), location: location.clone() }, Self::from_json(source, value))
        };
        let content = match value {
            Value::Null => Content::Null,
            Value::Bool(value) => Content::Bool(*value),
            Value::Number(number) => Content::Number(number.clone()),
            Value::String(text) => Content::Text(text.clone()),
            Value::Array(items) => {
                Content::List(items.iter().map(|item| Self::from_json(source, item)).collect())
            }
            Value::Object(fields) => Content::Map(fields.iter().map(field).collect()),
        };
        Self { location, content }
    }

    /// Builds a list from a source without lines. Its items keep their locations.
    pub(crate) fn list(source: &Arc<str>, items: Vec<Self>) -> Self {
        Self { location: Location { source: Arc::clone(source), line: 0 }, content: Content::List(items) }
    }

    /// Converts the tree to JSON, without locations.
    pub(crate) fn json(&self) -> Value {
        // A tree always serializes.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Returns the value of a key. `None` if the node has no such key.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        match &self.content {
            Content::Map(fields) => fields.iter().find(|(key, _)| key.name == name).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Returns the value of a key, for modification. `None` if the node has no such key.
    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut Self> {
        match &mut self.content {
            Content::Map(fields) => {
                fields.iter_mut().find(|(key, _)| key.name == name).map(|(_, value)| value)
            }
            _ => None,
        }
    }

    /// Returns the items of a list; empty for any other value.
    pub(crate) fn items(&self) -> &[Self] {
        match &self.content {
            Content::List(items) => items,
            _ => &[],
        }
    }

    /// Returns the text at a path of keys, or of the node itself for an empty path. `None` for any other value.
    pub(crate) fn text(&self, keys: &[&str]) -> Option<&str> {
        let node = keys.iter().try_fold(self, |node, key| node.get(key))?;
        match &node.content {
            Content::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Sets the value of a key. A node that is not a map becomes a map.
    pub(crate) fn put(&mut self, name: &str, value: Self) {
        if !matches!(self.content, Content::Map(_)) {
            self.content = Content::Map(Vec::new());
        }
        let key = Key { name: name.to_owned(), location: value.location.clone() };
        if let Content::Map(fields) = &mut self.content {
            match fields.iter_mut().find(|(key, _)| key.name == name) {
                Some(field) => *field = (key, value),
                None => fields.push((key, value)),
            }
        }
    }

    /// Sets the location of the value and of everything in it.
    pub(crate) fn set_location(&mut self, location: &Location) {
        self.change_locations(&|old| *old = location.clone());
    }

    fn change_locations(&mut self, change: &impl Fn(&mut Location)) {
        change(&mut self.location);
        match &mut self.content {
            Content::List(items) => items.iter_mut().for_each(|item| item.change_locations(change)),
            Content::Map(fields) => {
                for (key, value) in fields {
                    change(&mut key.location);
                    value.change_locations(change);
                }
            }
            Content::Null | Content::Bool(_) | Content::Number(_) | Content::Text(_) => {}
        }
    }

    /// Returns the location of the value at a path, or at the longest prefix of the path that exists. The location of a
    /// map's value is that of its key.
    pub(crate) fn locate(&self, steps: &[Step]) -> Location {
        let mut location = &self.location;
        let mut node = self;
        for step in steps {
            let next = match (&node.content, step) {
                (Content::Map(fields), Step::Key(name)) => fields
                    .iter()
                    .find(|(key, _)| key.name == *name)
                    .map(|(key, value)| (&key.location, value)),
                (Content::List(items), Step::Index(index)) => {
                    items.get(*index).map(|item| (&item.location, item))
                }
                _ => None,
            };
            let Some((at, value)) = next else { break };
            (location, node) = (at, value);
        }
        location.clone()
    }
}

/// Serializes maps in file order.
impl Serialize for Node {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match &self.content {
            Content::Null => to.serialize_unit(),
            Content::Bool(value) => to.serialize_bool(*value),
            Content::Number(number) => number.serialize(to),
            Content::Text(text) => to.serialize_str(text),
            Content::List(items) => to.collect_seq(items),
            Content::Map(fields) => to.collect_map(fields.iter().map(|(key, value)| (&key.name, value))),
        }
    }
}

/// Formats steps as a path: `workloads[0].startup`.
pub(crate) fn printed(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        // Writing to a string cannot fail.
        let _ = match step {
            Step::Index(index) => write!(text, "[{index}]"),
            Step::Key(name) if text.is_empty() => write!(text, "{name}"),
            Step::Key(name) => write!(text, ".{name}"),
        };
    }
    text
}

/// Parses a path such as `spec.metrics[0].resource`. A dot always separates two names.
pub(crate) fn steps(path: &str) -> Vec<Step> {
    let part = |part: &str| {
        let part = part.trim_end_matches(']');
        part.parse().map_or_else(|_| Step::Key(part.to_owned()), Step::Index)
    };
    path.split(['.', '[']).map(part).collect()
}

/// Returns the line of the field at a JSON pointer, counted from 1. `None` if the document has no such field.
pub fn line(document: &Document, pointer: &str) -> Option<u64> {
    document.value.pointer(pointer)?;
    let steps: Vec<_> = pointer
        .split('/')
        .skip(1)
        .map(|part| {
            let part = part.replace("~1", "/").replace("~0", "~");
            part.parse().map_or(Step::Key(part), Step::Index)
        })
        .collect();
    Some(document.node.locate(&steps).line).filter(|line| *line > 0)
}

/// A parsed YAML document in which each field has a line.
#[derive(Debug)]
pub struct Document {
    node: Node,
    value: Value,
}

impl Document {
    /// Parses a text. `None` if the text is not a single YAML document.
    pub fn read(text: &str) -> Option<Self> {
        let node = Node::read("", text).ok()?;
        let value = node.json();
        Some(Self { node, value })
    }
}

/// Reads a value with its line. The source stays empty, because the parser receives only the text.
impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Spanned { value: content, referenced, .. } = Spanned::deserialize(from)?;
        Ok(Self { location: Location { source: Arc::default(), line: referenced.line() }, content })
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Spanned { value: name, referenced, .. } = Spanned::deserialize(from)?;
        Ok(Self { location: Location { source: Arc::default(), line: referenced.line() }, name })
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct AnyValue;

        impl<'de> Visitor<'de> for AnyValue {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<Content, E> {
                Ok(Content::Null)
            }

            fn visit_none<E>(self) -> Result<Content, E> {
                Ok(Content::Null)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Content, E> {
                Ok(Content::Bool(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Content, E> {
                Ok(Content::Number(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Content, E> {
                Ok(Content::Number(value.into()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Content, E> {
                Ok(Number::from_f64(value).map_or_else(|| Content::Text(value.to_string()), Content::Number))
            }

            fn visit_str<E>(self, text: &str) -> Result<Content, E> {
                Ok(Content::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Content, A::Error> {
                iter::from_fn(|| items.next_element().transpose())
                    .collect::<Result<_, _>>()
                    .map(Content::List)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Content, A::Error> {
                iter::from_fn(|| fields.next_entry().transpose()).collect::<Result<_, _>>().map(Content::Map)
            }
        }

        from.deserialize_any(AnyValue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "title: x\nhpas:\n  - spec:\n      minReplicas: 2\n  - file: web.yaml\n";

    fn key(name: &str) -> Step {
        Step::Key(name.to_owned())
    }

    #[test]
    fn node_locates_the_line_of_each_value() {
        let node = Node::read("a.yaml", TEXT).unwrap();
        let line = |steps: &[Step]| node.locate(steps).line;
        assert_eq!(line(&[key("title")]), 1);
        assert_eq!(line(&[key("hpas"), Step::Index(0), key("spec"), key("minReplicas")]), 4);
        assert_eq!(line(&[key("hpas"), Step::Index(1)]), 5);
        assert_eq!(line(&[key("hpas"), Step::Index(1), key("none"), key("of this")]), 5);
        assert_eq!(node.locate(&[key("title")]).to_string(), "a.yaml:1");
    }

    #[test]
    fn node_keeps_the_types_of_values() {
        let node =
            Node::read("a.yaml", "a: 1\nb: 0.5\nc: '1'\nd: true\ne: 08:00\nf:\ng: 25%\nh: 1e3\n").unwrap();
        assert_eq!(
            node.json().to_string(),
            r#"{"a":1,"b":0.5,"c":"1","d":true,"e":"08:00","f":null,"g":"25%","h":1000.0}"#
        );
    }

    #[test]
    fn node_reports_the_line_of_invalid_yaml() {
        for (text, expected) in
            [("a: 1\nb: [", "a.yaml:"), ("a: 1\na: 2\n", "a.yaml:2: "), ("a: 1\n---\nb: 2", "a.yaml:3: ")]
        {
            let error = Node::read("a.yaml", text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn node_is_an_empty_map_when_the_text_is_empty() {
        assert_eq!(Node::read("a.yaml", "# nothing\n").unwrap().json().to_string(), "{}");
    }

    #[test]
    fn steps_print_as_a_path() {
        assert_eq!(printed(&[key("workloads"), Step::Index(0), key("startup")]), "workloads[0].startup");
    }

    #[test]
    fn line_is_that_of_the_key() {
        let text = "metadata:\n  annotations:\n    a.b/policy: |\n      maxReplicas: 5\n      x: 1\nspec:\n  metrics:\n  \
                    - type: Resource\n    resource:\n      name: cpu\n      target:\n        averageUtilization: 60\n  \
                    maxReplicas: 9\n";
        let document = Document::read(text).unwrap();
        let line = |pointer| line(&document, pointer);
        assert_eq!(line("/spec/maxReplicas"), Some(13));
        assert_eq!(line("/metadata/annotations/a.b~1policy"), Some(3));
        assert_eq!(line("/spec/metrics/0/resource/target/averageUtilization"), Some(12));
        assert_eq!(line("/spec/minReplicas"), None);
        assert_eq!(line("/spec/metrics/1"), None);
        assert!(Document::read("a: [").is_none());
    }
}
