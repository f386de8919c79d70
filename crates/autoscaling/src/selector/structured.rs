//! The structured form, `metav1.LabelSelector`: its types, its conversions from text and to requirements, and
//! its Go syntax.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::{Operator, Requirement, SelectorError, parse, validate};
use crate::go;

/// `metav1.LabelSelector`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Required values by label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_labels: Option<BTreeMap<String, String>>,
    /// Further requirements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_expressions: Option<Vec<LabelSelectorRequirement>>,
}

/// `metav1.LabelSelectorRequirement`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelectorRequirement {
    /// The label key.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`.
    pub operator: String,
    /// The values for `In` and `NotIn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<String>>,
}

impl LabelSelector {
    /// Parses the text form, as `metav1.ParseToLabelSelector` does.
    ///
    /// # Errors
    /// Fails for a text that is no selector, and for `!=`, `<` and `>`, which the structured form lacks.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut requirements = parse::requirements(text).map_err(|error| SelectorError {
            message: format!("couldn't parse the selector string \"{text}\": {error}"),
        })?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));

        let mut labels = BTreeMap::new();
        let mut expressions = Vec::new();
        for Requirement { key, operator, values } in requirements {
            let structured = match operator {
                Operator::Equals | Operator::DoubleEquals => {
                    // `matchLabels` is a map, so the last of several values for one label wins.
                    labels.extend(values.into_iter().map(|value| (String::from(key.clone()), value.into())));
                    continue;
                }
                Operator::In => "In",
                Operator::NotIn => "NotIn",
                Operator::Exists => "Exists",
                Operator::DoesNotExist => "DoesNotExist",
                Operator::GreaterThan | Operator::LessThan => {
                    let message =
                        format!("{} isn't supported in label selectors", go::quote(operator.as_str()));
                    return Err(SelectorError { message });
                }
                Operator::NotEquals => return Err(not_an_operator(operator.as_str())),
            };
            expressions.push(LabelSelectorRequirement {
                key: key.into(),
                operator: structured.to_owned(),
                values: (!values.is_empty()).then(|| values.into_iter().map(String::from).collect()),
            });
        }
        Ok(Self {
            match_labels: (!labels.is_empty()).then_some(labels),
            match_expressions: (!expressions.is_empty()).then_some(expressions),
        })
    }

    /// Returns the requirements, labels before expressions. Fails at the first invalid requirement.
    pub(super) fn requirements(&self) -> Result<Vec<Requirement>, SelectorError> {
        let mut requirements = Vec::new();
        for (key, value) in self.match_labels.iter().flatten() {
            requirements.push(validate::requirement(key, Operator::Equals, vec![value])?);
        }
        for expression in self.match_expressions.iter().flatten() {
            let operator = match expression.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                unknown => return Err(not_an_operator(unknown)),
            };
            let values = expression.values.iter().flatten().map(String::as_str).collect();
            requirements.push(validate::requirement(&expression.key, operator, values)?);
        }
        Ok(requirements)
    }
}

fn not_an_operator(operator: &str) -> SelectorError {
    SelectorError { message: format!("{} is not a valid label selector operator", go::quote(operator)) }
}

/// Formats a `*LabelSelector` like Go's `%+v`: `nil`, or `&LabelSelector{MatchLabels:...}`.
pub fn go_print(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else {
        return "nil".to_owned();
    };
    let mut printed = String::from("&LabelSelector{MatchLabels:map[string]string{");
    for (key, value) in selector.match_labels.iter().flatten() {
        // Writing to a String cannot fail.
        let _ = write!(printed, "{key}: {value},");
    }
    printed.push_str("},MatchExpressions:[]LabelSelectorRequirement{");
    for LabelSelectorRequirement { key, operator, values } in selector.match_expressions.iter().flatten() {
        let values = values.as_deref().unwrap_or_default().join(" ");
        let _ =
            write!(printed, "LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},");
    }
    printed.push_str("},}");
    printed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_and_absent_fields_are_equal() {
        let read = |json| serde_json::from_str::<LabelSelector>(json).unwrap();
        assert_eq!(read(r#"{"matchLabels":null,"matchExpressions":null}"#), LabelSelector::default());
        let one = read(r#"{"matchExpressions":[{"key":"a","operator":"Exists"}]}"#);
        assert_eq!(
            serde_json::to_string(&one).unwrap(),
            r#"{"matchExpressions":[{"key":"a","operator":"Exists"}]}"#
        );
    }
}
