//! The rules of prometheus-adapter, and the queries of metrics that follow from them.

use std::collections::BTreeMap;

use regex::{Captures, Regex};
use serde_json::Value;

use super::manifest::Remark;
use super::{Field, Source};

/// The metrics API of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `rules`, for `custom.metrics.k8s.io`.
    Custom,
    /// `externalRules`, for `external.metrics.k8s.io`.
    External,
}

#[derive(Debug)]
pub(super) struct Rule {
    pub(super) kind: Kind,
    /// `metricsQuery`: the template of the query.
    query: String,
    /// `resources`.
    pub(super) resources: Resources,
    /// `seriesQuery` and `seriesFilters`.
    selection: Selection,
    /// `name.matches`.
    matches: Regex,
    /// `name.as`, with references to the groups of `matches`.
    renamed: String,
}

/// `resources`: the labels that name the objects of a series.
#[derive(Debug, Default)]
pub(super) struct Resources {
    /// `overrides`: labels, each with its resource.
    overrides: Vec<(String, String)>,
    /// `template`: the texts before and after the resource in a label.
    template: Option<(String, String)>,
    /// `namespaced`: whether external metrics are limited to the namespace of the HPA.
    pub(super) is_namespaced: bool,
}

impl Rule {
    /// Reads a rule. Notes the reason and returns `None` if the rule cannot be used.
    pub(super) fn read(source: &mut Source<'_>, rule: &Field<'_>, kind: Kind) -> Option<Self> {
        let series_query = source.required_text(&rule.at("seriesQuery"))?;
        let query = source.required_text(&rule.at("metricsQuery"))?.to_owned();
        let name = rule.at("name");
        let pattern = source.text(&name.at("matches")).filter(|pattern| !pattern.is_empty());
        let Ok(matches) = Regex::new(pattern.unwrap_or(".*")) else {
            source.invalid(&name.at("matches"), "a regular expression");
            return None;
        };
        let renamed = source.text(&name.at("as")).filter(|renamed| !renamed.is_empty());
        let renamed = match (renamed, matches.captures_len()) {
            (Some(renamed), _) => renamed,
            (None, 1) => "$0",
            (None, 2) => "$1",
            (None, _) => {
                source.note(&name.at("as"), Remark::Missing);
                return None;
            }
        };
        let selection = match Selection::read(series_query, &rule.at("seriesFilters")) {
            Ok(selection) => selection,
            Err(field) => {
                let field = field.unwrap_or_else(|| rule.at("seriesQuery"));
                source.invalid(&field, "a selector of series");
                return None;
            }
        };
        let resources = Resources::read(&rule.at("resources"));
        Some(Self { kind, query, resources, selection, matches, renamed: renamed.to_owned() })
    }

    /// The name of a series that the rule selects and renames to `metric`.
    pub(super) fn series(&self, metric: &str) -> Option<String> {
        let Selection { name, names } = &self.selection;
        let name = name.clone().or_else(|| invert(self.matches.as_str(), &self.renamed, metric))?;
        let is_selected = names.iter().all(|(pattern, is)| pattern.is_match(&name) == *is);
        let mut expanded = String::new();
        self.matches.captures(&name)?.expand(&self.renamed, &mut expanded);
        (is_selected && expanded == metric).then_some(name)
    }
}

impl Resources {
    fn read(resources: &Field<'_>) -> Self {
        let text = |field: &Field<'_>| field.value().and_then(Value::as_str).map(str::to_owned);
        let overrides = resources.at("overrides").fields().into_iter();
        let overrides =
            overrides.filter_map(|(label, object)| Some((label.to_owned(), text(&object.at("resource"))?)));
        let template = text(&resources.at("template")).and_then(|template| {
            let (before, after) = template.split_once("<<.Resource>>")?;
            (!before.contains("<<") && !after.contains("<<")).then(|| (before.to_owned(), after.to_owned()))
        });
        let namespaced = resources.at("namespaced").value().and_then(Value::as_bool);
        Self { overrides: overrides.collect(), template, is_namespaced: namespaced.unwrap_or(true) }
    }

    /// The label that names an object of a resource. `resource` may be singular or plural: `pod`, `pods`.
    pub(super) fn label(&self, resource: &str) -> Option<String> {
        let is_it =
            |name: &str| name.trim_end_matches('s').eq_ignore_ascii_case(resource.trim_end_matches('s'));
        let named = self.overrides.iter().find(|(_, of)| is_it(of)).map(|(label, _)| label.clone());
        named.or_else(|| self.template.as_ref().map(|(before, after)| format!("{before}{resource}{after}")))
    }
}

/// The series that a rule selects, by their names.
#[derive(Debug)]
struct Selection {
    /// The name of the only series. `None` if the query has only matchers.
    name: Option<String>,
    /// Patterns for the name, each with whether the name must match it.
    names: Vec<(Regex, bool)>,
}

impl Selection {
    /// Reads `seriesQuery` and `seriesFilters`. The error is the invalid filter, or `None` for an invalid query.
    fn read<'a>(query: &str, filters: &Field<'a>) -> Result<Self, Option<Field<'a>>> {
        let is_name = |byte: char| byte.is_ascii_alphanumeric() || byte == '_' || byte == ':';
        let name: String = query.trim().chars().take_while(|byte| is_name(*byte)).collect();
        let mut names = Vec::new();
        let matcher = Regex::new(r#"__name__\s*(=~|!~|!=|=)\s*"([^"]*)""#).map_err(|_| None)?;
        for matched in matcher.captures_iter(query) {
            let part = |index: usize| matched.get(index).map_or("", |part| part.as_str());
            let pattern = match part(1) {
                "=~" | "!~" => part(2).to_owned(),
                _ => regex::escape(part(2)),
            };
            // Patterns of Prometheus must match the whole value.
            let pattern = Regex::new(&format!("^(?:{pattern})$")).map_err(|_| None)?;
            names.push((pattern, part(1).starts_with('=')));
        }
        for filter in filters.items() {
            for (field, is) in [("is", true), ("isNot", false)] {
                let field = filter.at(field);
                let Some(pattern) =
                    field.value().and_then(|value| value.as_str()).filter(|text| !text.is_empty())
                else {
                    continue;
                };
                names.push((Regex::new(pattern).map_err(|_| Some(field.clone()))?, is));
            }
        }
        Ok(Self { name: (!name.is_empty()).then_some(name), names })
    }
}

/// A candidate for the name of a series that a rule renames to `metric`. `pattern` may consist of literals and groups,
/// and the caller must check that the candidate matches it.
fn invert(pattern: &str, renamed: &str, metric: &str) -> Option<String> {
    let reference = Regex::new(r"\$(?:\{([0-9]+)\}|([0-9A-Za-z_]+))").ok()?;
    let number = |reference: &Captures<'_>| {
        let digits = reference.get(1).or_else(|| reference.get(2))?;
        digits.as_str().parse::<usize>().ok()
    };
    let (mut expression, mut groups, mut end) = ("^".to_owned(), Vec::new(), 0);
    for captures in reference.captures_iter(renamed) {
        let whole = captures.get(0)?;
        expression.push_str(&regex::escape(renamed.get(end..whole.start())?));
        end = whole.end();
        // A reference that is not a number is assumed to expand to an empty text.
        if let Some(group) = number(&captures) {
            expression.push_str("(.*)");
            groups.push(group);
        }
    }
    expression.push_str(&regex::escape(renamed.get(end..)?));
    expression.push('$');
    let found = Regex::new(&expression).ok()?.captures(metric)?;
    let value = |group: usize| {
        let at = groups.iter().position(|it| *it == group)?;
        found.get(at + 1).map(|value| value.as_str())
    };
    if let Some(whole) = value(0) {
        return Some(whole.to_owned());
    }
    let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
    let mut rest = pattern.strip_suffix('$').unwrap_or(pattern);
    let (mut name, mut group) = (String::new(), 0);
    while let Some(next) = rest.chars().next() {
        if next == '(' {
            let close = rest.find(')')?;
            let inner = rest.get(1..close)?;
            if inner.contains('(') {
                return None;
            }
            group += 1;
            name.push_str(value(group)?);
            rest = rest.get(close + 1..)?;
        } else if next.is_ascii_alphanumeric() || next == '_' || next == ':' {
            name.push(next);
            rest = rest.get(1..)?;
        } else {
            return None;
        }
    }
    Some(name)
}

/// The variables in the queries of policies.
const PLACEHOLDERS: [&str; 3] = ["$pods", "$namespace", "$name"];

/// The object that a metric describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Object<'a> {
    /// The pods of the HPA's target.
    Pods,
    /// One object in the namespace of the HPA.
    Named { kind: &'a str, name: &'a str },
    /// No object.
    External,
}

impl Object<'_> {
    pub(super) fn kind(&self) -> Kind {
        if *self == Object::External { Kind::External } else { Kind::Custom }
    }
}

/// The reason why a query cannot be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum TemplateError {
    /// The rule has no label for the resource.
    #[error("the rule has no label for {0}: write the query yourself")]
    NoLabel(String),
    /// The template contains an unsupported part `<<...>>`.
    #[error("the metricsQuery of the rule uses {0}: write the query yourself")]
    Part(String),
    /// The template or a matcher contains a variable of policies.
    #[error("the query contains {0}, which is a placeholder in policies: write the query yourself")]
    Placeholder(&'static str),
}

/// Matchers of labels in PromQL.
#[derive(Debug, Default)]
pub(super) struct Labels(Vec<String>);

impl Labels {
    /// Converts a label selector. The error is the first part that cannot be converted.
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

/// Creates the query of a metric from the template of its rule. `labels` contains the matchers of the metric's
/// selector.
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
        // Policies require the label `pod` in the result of a query for pods.
        Object::Pods if group != "pod" => {
            format!(r#"label_replace({filled}, "pod", "$1", "{group}", "(.*)")"#)
        }
        // The HPA controller sums the values of an external metric.
        Object::External => format!("sum({filled})"),
        _ => filled,
    })
}

/// Replaces each `<<.Name>>` in a template by the part with this name.
fn fill(template: &str, parts: &BTreeMap<&str, &str>) -> Result<String, TemplateError> {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("<<") {
        let (part, after) = after.split_once(">>").ok_or_else(|| TemplateError::Part("<<".to_owned()))?;
        let value = part.trim().strip_prefix('.').and_then(|name| parts.get(name));
        let value = value.ok_or_else(|| TemplateError::Part(format!("<<{part}>>")))?;
        text.push_str(before);
        text.push_str(value);
        // Omits the comma after empty matchers.
        let is_first = value.is_empty() && before.trim_end().ends_with('{');
        rest = after.trim_start().strip_prefix(',').filter(|_| is_first).unwrap_or(after);
    }
    Ok(text + rest)
}
