//! The dashboard's definition, and its expressions evaluated by Prometheus.

use std::collections::BTreeMap;

use base64::Engine as _;
use serde::Serialize;
use serde_json::Value;

use crate::feed::{Feed, SECONDS};
use crate::outcome::{Context, Outcome};

const DASHBOARD: &str = include_str!("../../deploy/helm/concertina/files/concertina.json");

pub(crate) struct Dashboard(Value);

/// A variable with values from Prometheus.
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) query: String,
}

/// A panel with its data.
#[derive(Serialize)]
pub(crate) struct Panel {
    pub(crate) title: String,
    kind: String,
    position: Value,
    pub(crate) defaults: Value,
    overrides: Value,
    options: Value,
    pub(crate) series: Vec<Series>,
}

/// A line of a panel, or the number of a stat.
#[derive(Serialize)]
pub(crate) struct Series {
    name: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// Time in seconds and value. `None`: not a number.
    points: Vec<(f64, Option<f64>)>,
}

impl Dashboard {
    pub(crate) fn read() -> Self {
        Self(serde_json::from_str(DASHBOARD).unwrap())
    }

    /// The variables with values from Prometheus. The variables in their queries are replaced.
    pub(crate) fn variables(&self) -> Vec<Variable> {
        let list = self.0["templating"]["list"].as_array().unwrap();
        let queries = list.iter().filter(|variable| variable["type"] == "query");
        queries
            .map(|variable| Variable {
                name: variable["name"].as_str().unwrap().to_owned(),
                query: self.replaced(variable["query"]["query"].as_str().unwrap()),
            })
            .collect()
    }

    /// An expression, in which the value for `All` replaces each variable, as in Grafana.
    fn replaced(&self, expression: &str) -> String {
        let mut text =
            expression.replace("$__rate_interval", "15s").replace("$__range", &format!("{SECONDS}s"));
        let list = self.0["templating"]["list"].as_array().unwrap();
        let mut values: Vec<_> =
            list.iter().filter_map(|it| Some((it["name"].as_str()?, it["allValue"].as_str()?))).collect();
        // If one name starts with another, the longer name must come first.
        values.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        for (name, value) in values {
            text = text.replace(&format!("${name}"), value);
        }
        text
    }

    pub(crate) async fn evaluate(&self, feed: &Feed, from: f64, to: f64) -> Outcome<Vec<Panel>> {
        let mut panels = Vec::new();
        let drawn = self.0["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row");
        for panel in drawn {
            let title = panel["title"].as_str().unwrap();
            let mut series = Vec::new();
            for target in panel["targets"].as_array().unwrap() {
                let expression = self.replaced(target["expr"].as_str().unwrap());
                let found = if target["instant"] == true {
                    feed.query(&expression).await
                } else {
                    feed.range(&expression, from, to, "1s").await
                };
                let legend = target["legendFormat"].as_str().unwrap_or_default();
                series.extend(found.context(title)?.iter().filter_map(|result| Series::read(result, legend)));
            }
            panels.push(Panel {
                title: title.to_owned(),
                kind: panel["type"].as_str().unwrap().to_owned(),
                position: panel["gridPos"].clone(),
                defaults: panel["fieldConfig"]["defaults"].clone(),
                overrides: panel["fieldConfig"]["overrides"].clone(),
                options: panel["options"].clone(),
                series,
            });
        }
        Ok(panels)
    }

    /// The times of annotations.
    pub(crate) async fn annotations(&self, feed: &Feed, from: f64, to: f64) -> Outcome<Vec<f64>> {
        let mut times = Vec::new();
        for annotation in self.0["annotations"]["list"].as_array().unwrap() {
            let expression = self.replaced(annotation["expr"].as_str().unwrap());
            let step = annotation["step"].as_str().unwrap();
            for series in &feed.range(&expression, from, to, step).await? {
                let values = series["values"].as_array().unwrap();
                times.extend(values.iter().filter_map(|value| value[0].as_f64()));
            }
        }
        Ok(times)
    }
}

impl Series {
    /// Reads a series of a response. `None` without a number.
    fn read(result: &Value, legend: &str) -> Option<Self> {
        let point = |point: &Value| {
            let value = point[1].as_str().and_then(|text| text.parse::<f64>().ok());
            Some((point[0].as_f64()?, value.filter(|value| value.is_finite())))
        };
        let points: Vec<_> = match &result["values"] {
            Value::Array(values) => values.iter().filter_map(point).collect(),
            _ => point(&result["value"]).into_iter().collect(),
        };
        let metric = result["metric"].as_object()?.iter();
        let labels: BTreeMap<String, String> = metric
            .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect();
        let mut name = legend.to_owned();
        for (label, value) in &labels {
            name = name.replace(&format!("{{{{{label}}}}}"), value);
        }
        points.iter().any(|(_, value)| value.is_some()).then_some(Self { name, labels, points })
    }
}

/// The bytes of a picture from the browser.
pub(crate) fn decoded(base64: &str) -> Vec<u8> {
    base64::engine::general_purpose::STANDARD.decode(base64).unwrap()
}
