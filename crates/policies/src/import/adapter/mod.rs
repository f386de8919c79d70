//! Rules of prometheus-adapter, with the HPAs that use their metrics.
//!
//! A rule alone does not determine the names of its metrics, because they depend on the existing series. Therefore, the
//! metrics of the HPAs are converted instead of the rules. The rule that renames a series to the metric's name provides
//! the query.

mod rule;
mod series;
mod server;
mod template;

use std::collections::BTreeSet;

use serde_json::Value;

use self::rule::{Kind, Rule};
pub use self::server::MetricSources;
use self::server::Server;
use self::template::{Labels, Object as Described};
use super::manifest::{Metric, ScalingPolicy};
use super::note::Remark;
use super::{Field, Import, Object, Source, TooManyNotes, hpas};

/// The name of the server in policies. The operator configures the server in the source file.
const SERVER: &str = "main";

/// The configurations of an input.
#[derive(Default)]
pub(super) struct Configurations {
    rules: Vec<Rule>,
    /// Whether there is any configuration.
    any: bool,
    server: Server,
}

/// Whether a value is a configuration.
pub(super) fn is_configuration(value: &Value) -> bool {
    ["rules", "externalRules", "resourceRules"]
        .iter()
        .any(|field| value.get(field).is_some_and(|rules| rules.is_array() || rules.is_object()))
}

/// The configuration in a ConfigMap, with the name of its key.
pub(super) fn in_config_map(value: &Value) -> Option<(&str, Value)> {
    let data = value.get("data").and_then(Value::as_object)?;
    data.iter().find_map(|(key, text)| {
        let value = serde_saphyr::from_str::<Value>(text.as_str()?).ok()?;
        is_configuration(&value).then_some((key.as_str(), value))
    })
}

impl Configurations {
    /// Reads a configuration, and notes the rules that cannot be used.
    pub(super) fn add(&mut self, source: &mut Source<'_>, configuration: &Field<'_>) {
        self.any = true;
        let before = self.rules.len();
        for (field, kind) in [("rules", Kind::Custom), ("externalRules", Kind::External)] {
            for rule in configuration.at(field).items() {
                self.rules.extend(Rule::read(source, &rule, kind));
            }
        }
        let resources = configuration.at("resourceRules");
        if resources.is_set() {
            let reason =
                "metrics.k8s.io still serves cpu and memory: keep these rules, or use metrics-server";
            source.note(&resources, Remark::Kept(reason));
        }
        if self.rules.len() > before {
            let step = format!(
                "name the Prometheus of --prometheus-url as {SERVER:?} in the file of --metric-sources, which \
                 concertina sources import prints"
            );
            source.note(configuration, Remark::Next(step));
        }
    }

    /// Reads the Deployment of an adapter. Returns whether the object is an adapter's Deployment.
    pub(super) fn add_deployment(&mut self, source: &mut Source<'_>) -> bool {
        source.group == "apps" && source.kind == "Deployment" && self.server.add_deployment(source)
    }

    /// Converts the HPAs of the input that use metrics of the rules.
    pub(super) fn convert(&self, objects: &[Object], result: &mut Import) -> Result<(), TooManyNotes> {
        if !self.any {
            return Ok(());
        }
        let mut labels = BTreeSet::new();
        for mut hpa in hpas(objects) {
            let metrics = hpa.root.at("spec").at("metrics").items();
            let used: Vec<Used<'_>> = metrics.iter().filter_map(Used::new).collect();
            if used.is_empty() {
                continue;
            }
            result.objects += 1;
            let (mut policy, label) = ScalingPolicy::labelled(&hpa, "adapter");
            for metric in &used {
                self.metric(&mut hpa, metric, &mut policy, &mut labels);
            }
            if let Some(policy) = policy.if_useful() {
                hpa.ask_for_label(&label);
                result.policies.push(policy);
            }
            result.add(hpa)?;
        }
        result.sources = Some(self.server.file(&labels));
        Ok(())
    }

    /// Adds the query of a metric to `policy`, and the namespace label of the query to `namespaces`. If several rules
    /// may provide the metric, the query tries the series of all these rules, the last rule first, because the last
    /// rule wins in the adapter.
    fn metric(
        &self,
        hpa: &mut Source<'_>,
        metric: &Used<'_>,
        policy: &mut ScalingPolicy,
        namespaces: &mut BTreeSet<Option<String>>,
    ) {
        let labels = match Labels::of_selector(&metric.field.at("metric").at("selector")) {
            Ok(labels) => labels,
            Err(path) => {
                hpa.note(&path, Remark::NoCounterpart("no selector of Prometheus has this meaning"));
                return;
            }
        };
        let kind = metric.described.kind();
        let rules = self.rules.iter().rev().filter(|rule| rule.kind == kind);
        let (mut queries, mut names, mut error) = (Vec::new(), Vec::new(), None);
        for (rule, series) in rules.filter_map(|rule| Some((rule, rule.series(metric.name)?))) {
            match template::query(rule, &series, &metric.described, &labels) {
                Ok(query) if queries.contains(&query) => {}
                Ok(query) => {
                    let is_namespaced = kind == Kind::Custom || rule.resources.is_namespaced;
                    let label = rule.resources.label("namespace").filter(|_| is_namespaced);
                    namespaces.insert(label);
                    queries.push(query);
                    names.push(series);
                }
                Err(reason) => error = error.or(Some(reason)),
            }
        }
        if queries.is_empty() {
            let reason = error.map_or_else(
                || format!("no rule of the input provides {}", metric.name),
                |error| error.to_string(),
            );
            hpa.note(&metric.field, Remark::Refused(reason));
            return;
        }
        if queries.len() > 1 {
            let difference =
                format!("the query tries the series {}: remove those that do not exist", names.join(", "));
            hpa.note(&metric.field, Remark::Differs(difference.into()));
        }
        policy.add_metric(hpa, &metric.field, Metric::prometheus(metric.name, SERVER, queries.join(" or ")));
    }
}

/// A metric of an HPA that an adapter provides.
struct Used<'a> {
    field: Field<'a>,
    name: &'a str,
    described: Described<'a>,
}

impl<'a> Used<'a> {
    /// Returns `None` for metrics of other types, and for ScalingSchedules of kube-metrics-adapter.
    fn new(metric: &Field<'a>) -> Option<Self> {
        let kind = metric.at("type").value()?.as_str()?;
        let field = metric.at(match kind {
            "Pods" => "pods",
            "Object" => "object",
            "External" => "external",
            _ => return None,
        });
        let name = field.at("metric").at("name").value()?.as_str()?;
        let text = |name: &str| field.at("describedObject").at(name).value().and_then(Value::as_str);
        let described = match kind {
            "Pods" => Described::Pods,
            "External" => Described::External,
            _ => Described::Named { kind: text("kind")?, name: text("name")? },
        };
        let is_schedule = text("apiVersion").is_some_and(|version| version.starts_with("zalando.org/"));
        (!is_schedule).then_some(Self { field, name, described })
    }
}
