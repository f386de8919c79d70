//! The query of a metric from the template of a rule.

use std::collections::BTreeMap;

use serde_json::Value;

use super::rule::{Kind, Rule};
use crate::import::Field;

/// The texts that a policy replaces in a query.
const PLACEHOLDERS: [&str; 3] = ["$pods", "$namespace", "$name"];

/// The object of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Object<'a> {
    /// The pods of the HPA's target.
    Pods,
    /// One object in the namespace of the HPA.
    Named {
        /// Its kind.
        kind: &'a str,
        /// Its name.
        name: &'a str,
    },
    /// No object.
    External,
}

impl Object<'_> {
    pub(super) fn kind(&self) -> Kind {
        if *self == Object::External { Kind::External } else { Kind::Custom }
    }
}

/// The reason why a template cannot be filled to a query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TemplateError {
    /// The rule has no label for the resource.
    #[error("the rule has no label for {0}: write the query yourself")]
    NoLabel(String),
    /// The template contains an unsupported part.
    #[error("the metricsQuery of the rule uses {0}: write the query yourself")]
    Part(String),
    /// The query contains a placeholder of policies.
    #[error("the query contains {0}, which is a placeholder in policies: write the query yourself")]
    Placeholder(&'static str),
}

/// Matchers of labels, as in a query.
#[derive(Debug, Default)]
pub(super) struct Labels(Vec<String>);

impl Labels {
    /// The matchers of a label selector. The error is the first requirement without a matcher.
    pub(super) fn of_selector<'a>(selector: &Field<'a>) -> Result<Self, Field<'a>> {
        let text = |field: Field<'a>| field.value().and_then(Value::as_str).map(str::to_owned).ok_or(field);
        let mut labels = Self::default();
        for (name, value) in selector.at("matchLabels").fields() {
            let value = text(value)?;
            labels.add(name, "=", &value);
        }
        for requirement in selector.at("matchExpressions").items() {
            let (key, operator) = (text(requirement.at("key"))?, text(requirement.at("operator"))?);
            let values =
                requirement.at("values").items().into_iter().map(text).collect::<Result<Vec<_>, _>>()?;
            let any = values.iter().map(|value| regex::escape(value)).collect::<Vec<_>>().join("|");
            match &*operator {
                "In" => labels.add(&key, "=~", &any),
                "NotIn" => labels.add(&key, "!~", &any),
                "Exists" => labels.add(&key, "!=", ""),
                "DoesNotExist" => labels.add(&key, "=", ""),
                _ => return Err(requirement),
            }
        }
        Ok(labels)
    }

    fn add(&mut self, name: &str, operator: &str, value: &str) {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        self.0.push(format!("{name}{operator}\"{value}\""));
    }
}

/// The query of a metric. `labels` contains the matchers of the metric's selector.
pub(super) fn query(
    rule: &Rule,
    series: &str,
    object: &Object<'_>,
    labels: &Labels,
) -> Result<String, TemplateError> {
    let texts = || labels.0.iter().chain([&rule.query]);
    if let Some(placeholder) = PLACEHOLDERS.into_iter().find(|name| texts().any(|text| text.contains(name))) {
        return Err(TemplateError::Placeholder(placeholder));
    }
    let label = |resource: &str| {
        rule.resources.label(resource).ok_or_else(|| TemplateError::NoLabel(resource.to_owned()))
    };
    let mut matchers = Vec::new();
    let is_namespaced = *object != Object::External || rule.resources.is_namespaced;
    match label("namespace") {
        Ok(namespace) if is_namespaced => matchers.push(format!(r#"{namespace}="$namespace""#)),
        Err(error) if *object != Object::External => return Err(error),
        _ => {}
    }
    let group = match object {
        Object::Pods => {
            let pod = label("pod")?;
            matchers.push(format!(r#"{pod}=~"$pods""#));
            pod
        }
        Object::Named { kind, name } => {
            let object = label(&kind.to_lowercase())?;
            matchers.push(format!(r#"{object}="{name}""#));
            object
        }
        Object::External => String::new(),
    };
    matchers.extend(labels.0.iter().cloned());
    let matchers = matchers.join(",");
    let parts: BTreeMap<&str, &str> =
        [("Series", series), ("LabelMatchers", &matchers), ("GroupBy", &group)].into();
    let filled = fill(&rule.query, &parts)?;
    Ok(match object {
        // The answer must have the label that names a pod in policies.
        Object::Pods if group != "pod" => {
            format!(r#"label_replace({filled}, "pod", "$1", "{group}", "(.*)")"#)
        }
        // The HPA controller sums the values of an external metric.
        Object::External => format!("sum({filled})"),
        _ => filled,
    })
}

/// Replaces the parts `<<.Name>>` of a template.
fn fill(template: &str, parts: &BTreeMap<&str, &str>) -> Result<String, TemplateError> {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("<<") {
        let (part, after) = after.split_once(">>").ok_or_else(|| TemplateError::Part("<<".to_owned()))?;
        let value = part.trim().strip_prefix('.').and_then(|name| parts.get(name));
        let value = value.ok_or_else(|| TemplateError::Part(format!("<<{part}>>")))?;
        text.push_str(before);
        text.push_str(value);
        // Drops the comma after empty matchers.
        let is_first = value.is_empty() && before.trim_end().ends_with('{');
        rest = after.trim_start().strip_prefix(',').filter(|_| is_first).unwrap_or(after);
    }
    Ok(text + rest)
}
