//! A rule of prometheus-adapter, as its configuration defines it.

use regex::Regex;
use serde_json::Value;

use super::series;
use crate::import::note::Remark;
use crate::import::{Field, Source};

/// The API of a rule's metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `rules`: custom.metrics.k8s.io.
    Custom,
    /// `externalRules`: external.metrics.k8s.io.
    External,
}

#[derive(Debug)]
pub(super) struct Rule {
    pub(super) kind: Kind,
    /// `metricsQuery`: a template.
    pub(super) query: String,
    /// `resources`
    pub(super) resources: Resources,
    /// The series of `seriesQuery`.
    pub(super) selection: series::Selection,
    /// `name.matches`
    pub(super) matches: Regex,
    /// `name.as`: an expansion of the groups of `matches`.
    pub(super) renamed: String,
}

/// The labels of objects.
#[derive(Debug, Default)]
pub(super) struct Resources {
    /// Labels, each with its resource.
    overrides: Vec<(String, String)>,
    /// The text before and after the resource in a label.
    template: Option<(String, String)>,
    /// `namespaced`: external metrics are restricted to the namespace of the HPA.
    pub(super) is_namespaced: bool,
}

impl Rule {
    /// Reads a rule, or notes why it cannot be used.
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
        let selection = match series::Selection::read(series_query, &rule.at("seriesFilters")) {
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

    /// The series that the rule renames to `metric`.
    pub(super) fn series(&self, metric: &str) -> Option<String> {
        self.selection.series(&self.matches, &self.renamed, metric)
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

    /// The label that names an object of a resource such as `pod`.
    pub(super) fn label(&self, resource: &str) -> Option<String> {
        let is_it =
            |name: &str| name.trim_end_matches('s').eq_ignore_ascii_case(resource.trim_end_matches('s'));
        let named = self.overrides.iter().find(|(_, of)| is_it(of)).map(|(label, _)| label.clone());
        named.or_else(|| self.template.as_ref().map(|(before, after)| format!("{before}{resource}{after}")))
    }
}
