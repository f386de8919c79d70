//! The configuration and the Deployment of prometheus-adapter, and the HPAs that use its metrics.
//!
//! A rule alone does not determine the names of its metrics, because they depend on the existing series. The import
//! therefore converts the metrics of the HPAs. The query of a metric comes from the rule that renames a series to the
//! metric's name.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use super::manifest::{Metric, Remark, ScalingPolicy};
use super::rule::{Kind, Labels, Object as Described, Provision, Rule, TemplateError, query};
use super::{Context, Field, Import, Object, Source, TooManyNotes, hpas};

/// The name of the server in policies and in the source file.
const SERVER: &str = "main";

/// The configurations of prometheus-adapter in an input.
#[derive(Default)]
pub(super) struct Configurations {
    rules: Vec<Rule>,
    /// Whether the input contains a configuration.
    any: bool,
    /// Whether the input contains a rule that cannot be used.
    has_unusable: bool,
    server: Server,
}

/// Whether a value is a configuration of prometheus-adapter.
pub(super) fn is_configuration(value: &Value) -> bool {
    ["rules", "externalRules", "resourceRules"]
        .iter()
        .any(|field| value.get(field).is_some_and(|rules| rules.is_array() || rules.is_object()))
}

/// The values of the adapter's chart, which group the rules by the API: at the top, or below the name of a dependency.
/// `None` for other documents.
pub(super) fn chart_values(object: &Object) -> Option<Source<'_>> {
    let is_group = |rules: &Value| {
        ["custom", "external", "resource", "default", "existing"].iter().any(|name| rules.get(name).is_some())
    };
    let source = Source::file(object, "values of the chart of prometheus-adapter");
    if object.value.get("kind").is_some() {
        return None;
    }
    let below = source.root.fields().into_iter().map(|(_, field)| field);
    let root = std::iter::once(source.root.clone())
        .chain(below)
        .find(|field| field.at("rules").value().is_some_and(is_group))?;
    Some(Source { root, ..source })
}

/// The configuration in a ConfigMap, with its key.
pub(super) fn in_config_map(value: &Value) -> Option<(&str, Value)> {
    let data = value.get("data").and_then(Value::as_object)?;
    data.iter().find_map(|(key, text)| {
        let value = serde_saphyr::from_str::<Value>(text.as_str()?).ok()?;
        is_configuration(&value).then_some((key.as_str(), value))
    })
}

impl Configurations {
    /// Reads a configuration. Notes the rules that cannot be used, and the next steps.
    pub(super) fn add(&mut self, source: &mut Source<'_>, configuration: &Field<'_>, context: &Context<'_>) {
        self.any = true;
        let before = self.rules.len();
        for (field, kind) in [("rules", Kind::Custom), ("externalRules", Kind::External)] {
            for rule in configuration.at(field).items() {
                let rule = Rule::read(source, &rule, kind, context);
                self.has_unusable |= rule.is_none();
                self.rules.extend(rule);
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

    /// Notes that the values of a chart are no configuration.
    pub(super) fn add_chart_values(&mut self, source: &mut Source<'_>) {
        (self.any, self.has_unusable) = (true, true);
        let reason = "these are values of a chart: pass the ConfigMap that the chart renders, from helm template or \
                      kubectl get configmap";
        let rules = source.root.at("rules");
        source.note(&rules, Remark::NoCounterpart(reason));
    }

    /// Reads the Deployment of an adapter. Returns whether the object is such a Deployment.
    pub(super) fn add_deployment(&mut self, source: &mut Source<'_>) -> bool {
        source.group == "apps" && source.kind == "Deployment" && self.server.add_deployment(source)
    }

    /// Converts the HPAs that use metrics of an adapter.
    pub(super) fn convert(
        &self,
        objects: &[Object],
        context: &Context<'_>,
        result: &mut Import,
    ) -> Result<(), TooManyNotes> {
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
            if !hpa.is_named() {
                result.add(hpa)?;
                continue;
            }
            let (mut policy, label) = ScalingPolicy::labelled(&hpa, "adapter");
            for metric in &used {
                self.metric(&mut hpa, metric, context, &mut policy, &mut labels);
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
    /// may provide the metric, the query tries their series, from the last rule to the first. In the adapter, the last
    /// rule takes precedence.
    fn metric(
        &self,
        hpa: &mut Source<'_>,
        metric: &Used<'_>,
        context: &Context<'_>,
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
        for rule in rules {
            let series = match rule.series(metric.name) {
                Provision::Series(series) => series,
                Provision::None => continue,
                Provision::Unclear(reason) => {
                    error = error.or(Some(reason));
                    continue;
                }
            };
            let text = query(rule, &series, &metric.described, &labels).and_then(|text| {
                let invalid = (context.invalid_query)(&text);
                invalid.map_or(Ok(text), |reason| Err(TemplateError::Query(rule.path.clone(), reason)))
            });
            match text {
                Ok(text) if queries.contains(&text) => {}
                Ok(text) => {
                    let is_namespaced = kind == Kind::Custom || rule.resources.is_namespaced;
                    let label = rule.resources.label("namespace").ok().flatten().filter(|_| is_namespaced);
                    namespaces.insert(label);
                    queries.push(text);
                    names.push(series);
                }
                Err(reason) => error = error.or(Some(reason)),
            }
        }
        if queries.is_empty() {
            let reason = error.map_or_else(
                || {
                    let usable = if self.has_unusable { "usable " } else { "" };
                    format!("no {usable}rule of the input provides {}", metric.name)
                },
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
        // The branches have different labels. The first branch with a value for a pod, or with any value, applies.
        let operator = if metric.described == Described::Pods { " or on (pod) " } else { " or on () " };
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let branch = |query: String| {
            let has_or = query.split(|letter| !is_part(letter)).any(|word| word.eq_ignore_ascii_case("or"));
            if has_or { format!("({query})") } else { query }
        };
        let query = match <[String; 1]>::try_from(queries) {
            Ok([query]) => query,
            Err(queries) => queries.into_iter().map(branch).collect::<Vec<_>>().join(operator),
        };
        policy.add_metric(hpa, &metric.field, Metric::prometheus(metric.name, SERVER, query));
    }
}

/// A metric of an HPA that an adapter may provide.
struct Used<'a> {
    field: Field<'a>,
    name: &'a str,
    described: Described<'a>,
}

impl<'a> Used<'a> {
    /// Returns `None` for metrics of other types, and for those of ScalingSchedules.
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

/// The path of the service account's token in a pod.
const OWN_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// The source file, for `--metric-sources`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MetricSources {
    prometheus: [Server; 1],
    /// Texts about the fields that the import could not fill, each with the name of the field.
    #[serde(skip)]
    pub open: Vec<&'static str>,
}

/// A Prometheus server in the source file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Server {
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ca_file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bearer_token_file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    enforce_namespace_label: Option<String>,
}

impl Server {
    /// Reads the arguments of an adapter. Returns whether the object is the Deployment of an adapter.
    fn add_deployment(&mut self, source: &mut Source<'_>) -> bool {
        let mut any = false;
        for container in source.root.at("spec").at("template").at("spec").at("containers").items() {
            for list in ["command", "args"] {
                let words = container.at(list).items();
                let is_of_adapter =
                    words.iter().any(|word| flag(word).is_some_and(|(name, _)| name == "prometheus-url"));
                if !is_of_adapter {
                    continue;
                }
                any = true;
                for (index, word) in words.iter().enumerate() {
                    let Some((name, value)) = flag(word) else { continue };
                    let next = || words.get(index + 1).and_then(Field::value).and_then(Value::as_str);
                    self.set(source, word, name, value.or_else(next));
                }
            }
        }
        any
    }

    fn set(&mut self, source: &mut Source<'_>, field: &Field<'_>, name: &str, value: Option<&str>) {
        let owned = || value.map(str::to_owned);
        match name {
            "prometheus-url" => self.url = owned(),
            "prometheus-ca-file" => self.ca_file = owned(),
            "prometheus-token-file" => self.bearer_token_file = owned(),
            "prometheus-auth-incluster" if value != Some("false") => {
                self.bearer_token_file = Some(OWN_TOKEN.to_owned());
            }
            "prometheus-auth-config"
            | "prometheus-header"
            | "prometheus-client-tls-cert-file"
            | "prometheus-client-tls-key-file" => {
                let reason = "a server has an authority and a token, and no other credentials";
                source.note(field, Remark::NoCounterpart(reason));
            }
            _ => {}
        }
        if ["prometheus-ca-file", "prometheus-token-file"].contains(&name) {
            source.note(field, Remark::Next("mount the file into the pods of Concertina".to_owned()));
        }
    }

    /// The source file with this server. `labels` contains the namespace label of each query, or `None` for a query of
    /// all namespaces.
    fn file(&self, labels: &BTreeSet<Option<String>>) -> MetricSources {
        let mut open = Vec::new();
        if self.url.is_none() {
            open.push("url: the value of the adapter's --prometheus-url");
        }
        let only = labels.iter().next().filter(|_| labels.len() == 1).cloned().flatten();
        if only.is_none() {
            open.push(
                "enforceNamespaceLabel: the queries have no label of namespaces in common; without it, users with write access \
                 to HPAs read all series",
            );
        }
        let server = Self { name: SERVER, enforce_namespace_label: only, ..self.clone() };
        MetricSources { prometheus: [server], open }
    }
}

/// The name of a flag, and its value if the argument contains `=`.
fn flag<'a>(word: &Field<'a>) -> Option<(&'a str, Option<&'a str>)> {
    let flag = word.value()?.as_str()?.strip_prefix("--")?;
    Some(flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value))))
}
