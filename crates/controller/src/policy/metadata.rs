//! The parts of an HPA's metadata that policies use. An HPA without the annotation costs one search in its bytes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use autoscaling::selector::Labels;
use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The annotation of an HPA with its policy, in YAML or JSON.
pub const ANNOTATION: &str = "concertina.dev/policy";

/// The labels of an object.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ObjectLabels<'a>(BTreeMap<Cow<'a, str>, Cow<'a, str>>);

impl Labels for ObjectLabels<'_> {
    fn value(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(|value| &**value)
    }
}

/// The text of [`ANNOTATION`] in `metadata`.
pub(super) fn annotation_of(metadata: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Metadata<'a> {
        #[serde(borrow, default)]
        annotations: Option<BTreeMap<Cow<'a, str>, &'a RawValue>>,
    }
    static FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(ANNOTATION));
    // The API server never escapes the slash.
    FINDER.find(metadata.get().as_bytes())?;
    let metadata: Metadata<'_> = serde_json::from_str(metadata.get()).ok()?;
    let text = metadata.annotations?.remove(ANNOTATION)?;
    serde_json::from_str(text.get()).ok()
}

/// The labels in `metadata`. Labels that cannot be read count as absent.
pub(super) fn labels_of(metadata: &RawValue) -> ObjectLabels<'_> {
    #[derive(Deserialize)]
    struct Metadata<'a> {
        #[serde(borrow, default)]
        labels: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
    }
    let metadata: Option<Metadata<'_>> = serde_json::from_str(metadata.get()).ok();
    ObjectLabels(metadata.and_then(|metadata| metadata.labels).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn annotation_is_found_by_its_key_only() {
        let text = |json: &str| annotation_of(&raw(json));
        let annotated = r#"{"name":"web","annotations":{"a":"b","concertina.dev/policy":"mode: Paused\n"}}"#;
        assert_eq!(text(annotated).as_deref(), Some("mode: Paused\n"));
        for none in [
            r#"{"annotations":{"a":"concertina.dev/policy"}}"#,
            r#"{"labels":{"concertina.dev/policy":"x"}}"#,
            r#"{"annotations":null,"name":"concertina.dev/policy"}"#,
            r#"{"annotations":{"concertina.dev/policy":7}}"#,
            "{}",
        ] {
            assert_eq!(text(none), None, "{none}");
        }
    }

    #[test]
    fn labels_are_read_from_metadata() {
        let metadata = raw(r#"{"name":"web","labels":{"team":"shop","a\"b":"c"}}"#);
        let labels = labels_of(&metadata);
        assert_eq!(
            (labels.value("team"), labels.value("a\"b"), labels.value("x")),
            (Some("shop"), Some("c"), None)
        );
        assert_eq!(labels_of(&raw(r#"{"labels":7}"#)), ObjectLabels::default());
    }
}
