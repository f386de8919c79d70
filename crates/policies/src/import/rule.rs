//! The rules of prometheus-adapter, and the queries of metrics that follow from them.

use std::collections::BTreeMap;

use regex::{Captures, Regex};
use serde_json::Value;

use super::manifest::Remark;
use super::selector::{self, Operator};
use super::{Context, Field, Source};

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
    /// The path in the configuration: `rules[0]`.
    pub(super) path: String,
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
    /// `template`: the texts before and after the resource in a label, or the unsupported template.
    template: Option<Result<(String, String), String>>,
    /// `namespaced`: whether external metrics are limited to the namespace of the HPA.
    pub(super) is_namespaced: bool,
}

impl Rule {
    /// Reads a rule. Notes the reason and returns `None` if the rule cannot be used.
    pub(super) fn read(
        source: &mut Source<'_>,
        rule: &Field<'_>,
        kind: Kind,
        context: &Context<'_>,
    ) -> Option<Self> {
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
        let selector = (context.invalid_query)(series_query).is_none().then(|| selector::read(series_query));
        let Some(selector) = selector.flatten() else {
            source.invalid(
                &rule.at("seriesQuery"),
                "one selector of series, such as requests_total{pod!=\"\"}",
            );
            return None;
        };
        let selection = match Selection::read(&selector, &rule.at("seriesFilters")) {
            Ok(selection) => selection,
            Err(field) => {
                let field = field.unwrap_or_else(|| rule.at("seriesQuery"));
                source.invalid(&field, "a regular expression");
                return None;
            }
        };
        let resources = Resources::read(&rule.at("resources"));
        let path = rule.path().to_owned();
        Some(Self { kind, path, query, resources, selection, matches, renamed: renamed.to_owned() })
    }

    /// Whether the rule renames a series to `metric`, and which one.
    pub(super) fn series(&self, metric: &str) -> Provision {
        let path = || self.path.clone();
        let Selection { name, names, filters } = &self.selection;
        let known = name.clone().or_else(|| invert(self.matches.as_str(), &self.renamed, metric));
        let Some(name) = known.filter(|name| self.rename(name).as_deref() == Some(metric)) else {
            let may_provide = name.is_none() && could_be(&self.renamed, metric);
            let is_known = invert(self.matches.as_str(), &self.renamed, metric).is_some();
            return if may_provide && !is_known {
                Provision::Unclear(TemplateError::Series(path()))
            } else {
                Provision::None
            };
        };
        let matches =
            |patterns: &[(Regex, bool)]| patterns.iter().all(|(pattern, is)| pattern.is_match(&name) == *is);
        if !matches(names) {
            Provision::None
        } else if !matches(filters) {
            Provision::Unclear(TemplateError::Filtered(path(), name))
        } else {
            Provision::Series(name)
        }
    }

    /// The name of the metric of a series. `None` for a series without a metric.
    fn rename(&self, series: &str) -> Option<String> {
        let mut expanded = String::new();
        self.matches.captures(series)?.expand(&self.renamed, &mut expanded);
        Some(expanded)
    }
}

/// Whether a rule provides a metric.
pub(super) enum Provision {
    /// It renames the series with this name to the metric.
    Series(String),
    /// It does not.
    None,
    /// It may provide the metric, but its series cannot be used.
    Unclear(TemplateError),
}

impl Resources {
    fn read(resources: &Field<'_>) -> Self {
        let text = |field: &Field<'_>| field.value().and_then(Value::as_str).map(str::to_owned);
        let overrides = resources.at("overrides").fields().into_iter();
        let overrides =
            overrides.filter_map(|(label, object)| Some((label.to_owned(), text(&object.at("resource"))?)));
        let template = text(&resources.at("template")).map(|template| {
            let parts = template.split_once("<<.Resource>>");
            let parts = parts.filter(|(before, after)| !before.contains("<<") && !after.contains("<<"));
            parts.map(|(before, after)| (before.to_owned(), after.to_owned())).ok_or(template)
        });
        let namespaced = resources.at("namespaced").value().and_then(Value::as_bool);
        Self { overrides: overrides.collect(), template, is_namespaced: namespaced.unwrap_or(true) }
    }

    /// The label that names an object of a resource. `resource` may be singular or plural: `pod`, `pods`. `None`
    /// without such a label.
    ///
    /// # Errors
    /// Returns the template of labels if it is unsupported and required.
    pub(super) fn label(&self, resource: &str) -> Result<Option<String>, TemplateError> {
        let is_it =
            |name: &str| name.trim_end_matches('s').eq_ignore_ascii_case(resource.trim_end_matches('s'));
        if let Some((label, _)) = self.overrides.iter().find(|(_, of)| is_it(of)) {
            return Ok(Some(label.clone()));
        }
        match &self.template {
            Some(Ok((before, after))) => Ok(Some(format!("{before}{resource}{after}"))),
            Some(Err(template)) => Err(TemplateError::Labels(template.clone())),
            None => Ok(None),
        }
    }
}

/// The series that a rule selects, by their names.
#[derive(Debug)]
struct Selection {
    /// The name of the only series. `None` if the query has only matchers.
    name: Option<String>,
    /// Patterns for the name in the query, each with whether the name must match it.
    names: Vec<(Regex, bool)>,
    /// The same for `seriesFilters`.
    filters: Vec<(Regex, bool)>,
}

impl Selection {
    /// Reads `seriesFilters`, and the names in a selector. The error is the filter with an invalid expression, or `None`
    /// for an invalid expression of the selector.
    fn read<'a>(selector: &selector::Selector, filters: &Field<'a>) -> Result<Self, Option<Field<'a>>> {
        let (mut name, mut names) = (selector.name.clone(), Vec::new());
        for (label, operator, value) in &selector.matchers {
            if label != "__name__" {
                continue;
            }
            let (pattern, is) = match operator {
                Operator::Equal => {
                    name.get_or_insert_with(|| value.clone());
                    (regex::escape(value), true)
                }
                Operator::NotEqual => (regex::escape(value), false),
                Operator::Matches => (value.clone(), true),
                Operator::MatchesNot => (value.clone(), false),
            };
            // Patterns of Prometheus must match the whole value.
            names.push((Regex::new(&format!("^(?:{pattern})$")).map_err(|_| None)?, is));
        }
        let mut patterns = Vec::new();
        for filter in filters.items() {
            for (field, is) in [("is", true), ("isNot", false)] {
                let field = filter.at(field);
                let Some(pattern) =
                    field.value().and_then(|value| value.as_str()).filter(|text| !text.is_empty())
                else {
                    continue;
                };
                patterns.push((Regex::new(pattern).map_err(|_| Some(field.clone()))?, is));
            }
        }
        Ok(Self { name, names, filters: patterns })
    }
}

/// Whether `renamed`, with any texts in place of its references, can be `metric`.
fn could_be(renamed: &str, metric: &str) -> bool {
    let Ok(reference) = Regex::new(r"\$(?:\{[^}]*\}|[0-9A-Za-z_]+)") else { return false };
    let literals: Vec<String> = reference.split(renamed).map(regex::escape).collect();
    Regex::new(&format!("^{}$", literals.join(".*"))).is_ok_and(|pattern| pattern.is_match(metric))
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
    /// The template of labels contains an unsupported part. Contains the template.
    #[error(
        "resources.template of the rule is {0:?}, and only <<.Resource>> is known: write the query yourself"
    )]
    Labels(String),
    /// The name of the series does not follow from the name of the metric. Contains the path of the rule.
    #[error("{0} may provide the metric, but from a series with any name: write the query yourself")]
    Series(String),
    /// A filter excludes the series. Contains the path of the rule and the name of the series.
    #[error("{0}.seriesFilters excludes the series {1} of the metric")]
    Filtered(String, String),
    /// The query is not PromQL. Contains the path of the rule and the reason.
    #[error("metricsQuery of {0} gives no valid query: {1}: write the query yourself")]
    Query(String, String),
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
        rule.resources.label(resource)?.ok_or_else(|| TemplateError::NoLabel(resource.to_owned()))
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
