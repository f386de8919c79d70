//! Label selectors, in text form and in structured form.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Something that has labels.
pub trait Labels {
    /// The value of one label.
    fn value(&self, key: &str) -> Option<&str>;
}

/// A parsed selector. Its `Display` is the canonical text that Kubernetes prints.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Selector {}

/// Why a text is not a selector, in the words of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SelectorError {
    /// The text.
    pub message: String,
}

impl Selector {
    /// Parses the text form (`a=b,c in (d,e),!f`), as `labels.Parse` does.
    pub fn parse(_text: &str) -> Result<Self, SelectorError> {
        todo!()
    }

    /// Parses `Scale.status.selector` the way the reference's scale client takes: text, structured selector, text.
    /// The error text is whole, beginning with `"!=" is not a valid ...` or `couldn't parse the selector string`.
    pub fn parse_scale(_text: &str) -> Result<Self, SelectorError> {
        todo!()
    }

    /// From the structured form; absent selects nothing, empty selects everything.
    pub fn from_label_selector(_selector: Option<&LabelSelector>) -> Result<Self, SelectorError> {
        todo!()
    }

    /// Whether it matches these labels.
    pub fn matches(&self, _labels: &impl Labels) -> bool {
        todo!()
    }

    /// Whether it has no requirement and so matches everything.
    pub fn is_empty(&self) -> bool {
        todo!()
    }

    /// Whether it matches nothing at all (made from an absent structured selector).
    pub fn selects_nothing(&self) -> bool {
        todo!()
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        todo!()
    }
}

/// `metav1.LabelSelector`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Equal to these values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_labels: Option<std::collections::BTreeMap<String, String>>,
    /// And these requirements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_expressions: Option<Vec<LabelSelectorRequirement>>,
}

/// `metav1.LabelSelectorRequirement`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelectorRequirement {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`.
    pub operator: String,
    /// For `In` and `NotIn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<String>>,
}

/// Prints a `*LabelSelector` as Go's `%+v` does: `nil`, or `&LabelSelector{MatchLabels:...}`.
pub fn go_print(_selector: Option<&LabelSelector>) -> String {
    todo!()
}
