//! The scope of an instance, by the labels of HPAs and of their namespaces.
//!
//! | label of the HPA | label of its namespace | membership |
//! |---|---|---|
//! | this instance | any | in scope by the HPA |
//! | `built-in` | any | out of scope |
//! | any other value | any | out of scope: another instance |
//! | none | this instance | in scope by the namespace |
//! | none | none, or `built-in` | out of scope |
//! | none | any other value | out of scope: another instance |

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

/// The label of HPAs and namespaces. Its value is the name of the instance in charge.
pub const LABEL: &str = "concertina.dev/controller";
/// The value of [`LABEL`] that excludes an HPA from the scope, although its namespace is in scope.
pub const BUILT_IN: &str = "built-in";
/// The default of `--controller-name`.
pub const DEFAULT_NAME: &str = "concertina";
/// Maximum length of the value of a label in Kubernetes.
const MAX_LABEL_VALUE: usize = 63;

/// `--scope`: the HPAs in scope of an instance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scope {
    /// All HPAs of the watched namespaces.
    #[default]
    All,
    /// HPAs with the [`LABEL`] of this instance, and HPAs without [`LABEL`] in a namespace with the [`LABEL`] of this
    /// instance.
    Labelled,
}

impl Scope {
    /// Returns the value of the flag.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Labelled => "labelled",
        }
    }
}

/// `--controller-name`: the value of [`LABEL`] that puts an HPA in scope of this instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerName(Arc<str>);

/// The reason why a text is not a valid name of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text is not a valid label value.
    #[error(
        "must be 1 to 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends, because it is the \
         value of a label"
    )]
    NotALabelValue,
    /// The text is [`BUILT_IN`].
    #[error(
        "must not be \"built-in\", because this value of the label leaves an HPA to the built-in controller"
    )]
    BuiltIn,
}

impl ControllerName {
    /// Creates the name of an instance.
    ///
    /// # Errors
    /// Returns [`NameError`] if the name is not a valid label value, or is [`BUILT_IN`].
    pub fn new(name: &str) -> Result<Self, NameError> {
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let bytes = name.as_bytes();
        let ends = bytes.first().zip(bytes.last());
        let has_valid_ends =
            ends.is_some_and(|(first, last)| first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric());
        if bytes.len() > MAX_LABEL_VALUE || !has_valid_ends || !bytes.iter().copied().all(is_inner) {
            return Err(NameError::NotALabelValue);
        }
        if name == BUILT_IN { Err(NameError::BuiltIn) } else { Ok(Self(name.into())) }
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for ControllerName {
    fn default() -> Self {
        Self(DEFAULT_NAME.into())
    }
}

impl fmt::Display for ControllerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether an HPA is in scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Membership {
    /// In scope.
    In(By),
    /// Out of scope.
    Out(Why),
}

/// The object with the label that puts an HPA in scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// The HPA itself.
    Hpa,
    /// Its namespace.
    Namespace,
}

impl By {
    /// Returns the name in `/handover`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hpa => "hpa",
            Self::Namespace => "namespace",
        }
    }
}

/// The reason why an HPA is out of scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The HPA has no [`LABEL`]. Its namespace has no [`LABEL`], or the value [`BUILT_IN`].
    NoLabel,
    /// The label of the HPA is [`BUILT_IN`].
    Excluded,
    /// The label has the name of another instance.
    OtherInstance,
}

impl Membership {
    /// Returns whether the HPA is in scope.
    pub fn is_in(self) -> bool {
        matches!(self, Self::In(_))
    }
}

/// Returns the membership of an HPA, by the values of [`LABEL`] of the HPA and of its namespace.
pub fn membership(
    hpa_label: Option<&str>,
    namespace_label: Option<&str>,
    name: &ControllerName,
) -> Membership {
    match (hpa_label, namespace_label) {
        (Some(label), _) if label == name.as_str() => Membership::In(By::Hpa),
        (Some(BUILT_IN), _) => Membership::Out(Why::Excluded),
        (None, Some(label)) if label == name.as_str() => Membership::In(By::Namespace),
        (None, None | Some(BUILT_IN)) => Membership::Out(Why::NoLabel),
        (Some(_), _) | (None, Some(_)) => Membership::Out(Why::OtherInstance),
    }
}

/// Returns the value of [`LABEL`] in `metadata`. `None` if it is absent or not a string.
pub fn label_of(metadata: &RawValue) -> Option<Box<str>> {
    #[derive(Deserialize)]
    struct Metadata<'a> {
        #[serde(borrow, default)]
        labels: Option<BTreeMap<Cow<'a, str>, &'a RawValue>>,
    }
    let metadata: Metadata<'_> = serde_json::from_str(metadata.get()).ok()?;
    let label = metadata.labels?.remove(LABEL)?;
    serde_json::from_str(label.get()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_of_the_hpa_comes_before_that_of_its_namespace() {
        let name = ControllerName::default();
        let cases = [
            (Some("concertina"), None, Membership::In(By::Hpa)),
            (Some("concertina"), Some("another"), Membership::In(By::Hpa)),
            (Some("built-in"), Some("concertina"), Membership::Out(Why::Excluded)),
            (Some("another"), Some("concertina"), Membership::Out(Why::OtherInstance)),
            (Some(""), Some("concertina"), Membership::Out(Why::OtherInstance)),
            (Some("Concertina"), None, Membership::Out(Why::OtherInstance)),
            (None, Some("concertina"), Membership::In(By::Namespace)),
            (None, Some("another"), Membership::Out(Why::OtherInstance)),
            (None, Some("built-in"), Membership::Out(Why::NoLabel)),
            (None, None, Membership::Out(Why::NoLabel)),
        ];
        for (hpa, namespace, expected) in cases {
            let found = membership(hpa, namespace, &name);
            assert_eq!(found, expected, "{hpa:?} in {namespace:?}");
            assert_eq!(found.is_in(), matches!(expected, Membership::In(_)));
        }
    }

    #[test]
    fn scope_and_membership_have_the_names_of_the_pages() {
        assert_eq!([Scope::All, Scope::Labelled].map(Scope::as_str), ["all", "labelled"]);
        assert_eq!([By::Hpa, By::Namespace].map(By::as_str), ["hpa", "namespace"]);
    }

    #[test]
    fn label_is_read_from_metadata() {
        let label = |json: &str| label_of(&RawValue::from_string(json.to_owned()).unwrap());
        let labels = r#"{"name":"web","labels":{"a":"b","concertina.dev/controller":"blue"}}"#;
        assert_eq!(label(labels).as_deref(), Some("blue"));
        assert_eq!(label(r#"{"labels":{"concertina.dev\/controller":"blue"}}"#).as_deref(), Some("blue"));
        for none in [r#"{"labels":{"a":"b"}}"#, r#"{"labels":null}"#, "{}", "null", r#"{"labels":[]}"#] {
            assert_eq!(label(none), None, "{none}");
        }
        assert_eq!(label(r#"{"labels":{"concertina.dev/controller":1}}"#), None);
    }

    #[test]
    fn name_must_be_a_value_of_a_label() {
        for name in ["concertina", "a", "Blue.2_b-c", &"x".repeat(63)] {
            assert_eq!(ControllerName::new(name).unwrap().as_str(), name);
        }
        for name in ["", "-a", "a-", "a/b", "a b", "ä", &"x".repeat(64)] {
            assert_eq!(ControllerName::new(name), Err(NameError::NotALabelValue), "{name}");
        }
        assert_eq!(ControllerName::new("built-in"), Err(NameError::BuiltIn));
    }
}
