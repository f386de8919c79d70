//! Label selectors in text form and in structured form, with the rules of `k8s.io/apimachinery/pkg/labels`.

use std::collections::BTreeMap;
use std::fmt;

use crate::settings::Version;

mod parse;
mod validate;

pub use parse::{LabelSelector, LabelSelectorRequirement, go_print};
pub use validate::{faults_of_key, faults_of_value};

/// An object with labels.
pub trait Labels {
    /// The value of the label `key`.
    fn value(&self, key: &str) -> Option<&str>;
}

impl Labels for BTreeMap<String, String> {
    fn value(&self, key: &str) -> Option<&str> {
        self.get(key).map(String::as_str)
    }
}

/// A list of requirements on labels. `Display` prints the canonical text of Kubernetes.
///
/// Selectors are equal if their canonical texts are equal. `a=b` and `a==b` match the same labels, but are not equal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Selector {
    /// Whether the structured selector was absent. The selector then matches nothing, and `requirements` is empty.
    nothing: bool,
    /// The requirements, sorted by key with a stable sort.
    requirements: Box<[Requirement]>,
}

/// A condition on one label.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Requirement {
    key: Box<str>,
    operator: Operator,
    /// The values, sorted. A comparison has one value. `Exists` and `DoesNotExist` have none.
    values: Box<[Box<str>]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Operator {
    In,
    NotIn,
    Equals,
    DoubleEquals,
    NotEquals,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// The reason why a text or a structured selector is invalid, in Kubernetes' words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SelectorError {
    /// The text of the error.
    pub message: String,
}

impl Selector {
    /// Parses the text form (`a=b,c in (d,e),!f`), like `labels.Parse`.
    ///
    /// # Errors
    /// Fails for a text that does not follow the grammar, and for an invalid key or value.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        parse::requirements(text).map(Self::all_of)
    }

    /// Parses `status.selector` of a Scale like upstream's scale client of a version: as a [`LabelSelector`], which is
    /// then converted.
    ///
    /// # Errors
    /// Fails like [`LabelSelector::parse`] and [`Self::from_label_selector`].
    pub fn parse_scale(text: &str, version: Version) -> Result<Self, SelectorError> {
        Self::from_label_selector(Some(&LabelSelector::parse(text, version)?))
    }

    /// Converts the structured form, like `metav1.LabelSelectorAsSelector`. An absent selector matches nothing, and an
    /// empty selector matches everything.
    ///
    /// # Errors
    /// Fails for an unknown operator, an invalid key or value, and a list of values that the operator does not allow.
    pub fn from_label_selector(selector: Option<&LabelSelector>) -> Result<Self, SelectorError> {
        match selector {
            None => Ok(Self { nothing: true, requirements: Box::default() }),
            Some(selector) => selector.requirements().map(Self::all_of),
        }
    }

    /// Whether the selector matches `labels`.
    pub fn matches(&self, labels: &impl Labels) -> bool {
        !self.nothing && self.requirements.iter().all(|requirement| requirement.matches(labels))
    }

    /// Whether the selector matches everything: it is present and has no requirement.
    pub fn is_empty(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// Whether the selector was converted from an absent structured selector, and therefore matches nothing.
    pub fn selects_nothing(&self) -> bool {
        self.nothing
    }

    /// The labels that matched objects must have, and their required values, for an index of objects by label. Skips
    /// requirements that allow no value or several values.
    pub fn required_labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.requirements.iter().filter_map(|requirement| {
            match (requirement.operator, &*requirement.values) {
                (Operator::In | Operator::Equals | Operator::DoubleEquals, [value]) => {
                    Some((&*requirement.key, &**value))
                }
                _ => None,
            }
        })
    }

    fn all_of(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self { nothing: false, requirements: requirements.into() }
    }
}

impl Requirement {
    fn matches(&self, labels: &impl Labels) -> bool {
        let value = labels.value(&self.key);
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => {
                value.is_some_and(|value| self.has(value))
            }
            Operator::NotIn | Operator::NotEquals => value.is_none_or(|value| !self.has(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => self.compare(value).is_some_and(|(value, bound)| value > bound),
            Operator::LessThan => self.compare(value).is_some_and(|(value, bound)| value < bound),
        }
    }

    fn has(&self, value: &str) -> bool {
        self.values.iter().any(|allowed| **allowed == *value)
    }

    /// Parses the value of the label and the bound. `None` if the value or the bound is not an integer.
    fn compare(&self, value: Option<&str>) -> Option<(i64, i64)> {
        Some((value?.parse().ok()?, self.values.first()?.parse().ok()?))
    }
}

impl Operator {
    /// The operator in texts and errors.
    fn as_str(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::NotIn => "notin",
            Self::Equals => "=",
            Self::DoubleEquals => "==",
            Self::NotEquals => "!=",
            Self::Exists => "exists",
            Self::DoesNotExist => "!",
            Self::GreaterThan => "gt",
            Self::LessThan => "lt",
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.requirements.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.operator == Operator::DoesNotExist {
            f.write_str("!")?;
        }
        f.write_str(&self.key)?;
        let (before, after) = match self.operator {
            Operator::In => (" in (", ")"),
            Operator::NotIn => (" notin (", ")"),
            Operator::Equals => ("=", ""),
            Operator::DoubleEquals => ("==", ""),
            Operator::NotEquals => ("!=", ""),
            Operator::GreaterThan => (">", ""),
            Operator::LessThan => ("<", ""),
            Operator::Exists | Operator::DoesNotExist => return Ok(()),
        };
        f.write_str(before)?;
        for (at, value) in self.values.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            f.write_str(value)?;
        }
        f.write_str(after)
    }
}

#[cfg(test)]
mod tests {
    use limits::selector::BYTES;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn matches(selector: &str, pairs: &[(&str, &str)]) -> bool {
        Selector::parse(selector).unwrap().matches(&labels(pairs))
    }

    #[test]
    fn numbers_are_compared_numerically() {
        assert!(matches("n>9", &[("n", "10")]));
        assert!(!matches("n>9", &[("n", "9")]));
        assert!(matches("n<10", &[("n", "-3")]));
        assert!(!matches("n<10", &[("n", "few")]));
        assert!(!matches("n<10", &[]));
    }

    #[test]
    fn absent_labels_satisfy_only_negative_requirements() {
        assert!(matches("a!=b,c notin (d),!e", &[]));
        assert!(!matches("a", &[]));
        assert!(!matches("a=", &[]));
        assert!(matches("a=", &[("a", "")]));
    }

    #[test]
    fn absent_selects_nothing_and_empty_selects_everything() {
        let nothing = Selector::from_label_selector(None).unwrap();
        assert!(nothing.selects_nothing() && !nothing.is_empty() && !nothing.matches(&labels(&[])));
        let all = Selector::from_label_selector(Some(&LabelSelector::default())).unwrap();
        assert!(all.is_empty() && !all.selects_nothing() && all.matches(&labels(&[("a", "b")])));
        assert_eq!(Selector::parse(" ").unwrap(), all);
    }

    #[test]
    fn required_labels_are_those_with_a_single_value() {
        let required = |text: &str| {
            let selector = Selector::parse(text).unwrap();
            let pairs = selector.required_labels().map(|(key, value)| format!("{key}={value}"));
            pairs.collect::<Vec<_>>()
        };
        for text in ["tier=db", "tier==db", "tier in (db)", "app in (a,b),app2!=a,not,tier=db"] {
            assert_eq!(required(text), ["tier=db"], "{text}");
        }
        assert_eq!(required("tier=db,zone in (c),app"), ["tier=db", "zone=c"]);
        for text in ["", "tier", "!tier", "tier!=db", "tier notin (db)", "tier in (db,web)", "tier>1"] {
            assert!(required(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn length_is_bounded() {
        let text = |bytes: usize| "a,".repeat(bytes / 2 - 1) + "ab";
        assert!(Selector::parse(&text(BYTES)).is_ok());
        let message = "the selector has 65538 bytes, at most 65536 are allowed";
        let long = text(BYTES + 2);
        assert_eq!(Selector::parse(&long).unwrap_err().message, message);
        assert_eq!(Selector::parse_scale(&long, Version::V1_38).unwrap_err().message, message);
    }

    #[test]
    fn parenthesis_is_not_a_value() {
        let refused = Selector::parse("a=)").unwrap_err().message;
        assert!(refused.ends_with("found ')', expected: identifier"), "{refused}");
    }

    #[test]
    fn scale_with_not_equals_reads_as_notin_from_1_38_on() {
        let scale = |text: &str| Selector::parse_scale(text, Version::V1_38).map_err(|error| error.message);
        assert_eq!(scale("b!=c,a!=,b!=d").unwrap().to_string(), "a notin (),b notin (c),b notin (d)");
        assert!(scale("a!=b").unwrap().matches(&labels(&[])));
        assert!(!scale("a!=b").unwrap().matches(&labels(&[("a", "b")])));
        assert_eq!(scale("a!=b,c>1").unwrap_err(), r#""gt" isn't supported in label selectors"#);
        assert_eq!(scale("a!=b,c<1").unwrap_err(), r#""lt" isn't supported in label selectors"#);
        let refused = Selector::parse_scale("a!=b,c>1", Version::V1_37).unwrap_err().message;
        assert_eq!(refused, r#""!=" is not a valid label selector operator"#);
    }

    #[test]
    fn scale_accepts_what_a_structured_selector_can_express() {
        let scale =
            |text: &str| Selector::parse_scale(text, Version::V1_37).map(|selector| selector.to_string());
        assert_eq!(scale("b==c,a,!d,e in (g,f)").unwrap(), "a,b=c,!d,e in (f,g)");
        assert_eq!(scale("").unwrap(), "");
        assert_eq!(scale("a=1,a=2").unwrap(), "a=2");
        assert_eq!(scale("a!=b").unwrap_err().message, r#""!=" is not a valid label selector operator"#);
        assert_eq!(scale("a>1").unwrap_err().message, r#""gt" isn't supported in label selectors"#);
        assert_eq!(scale("a<1").unwrap_err().message, r#""lt" isn't supported in label selectors"#);
        assert_eq!(
            scale("a in b").unwrap_err().message,
            r#"couldn't parse the selector string "a in b": unable to parse requirement: found 'b' expected: '('"#
        );
    }
}
