//! The Prometheus of an adapter, as an entry of the source file.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use super::SERVER;
use crate::import::note::Remark;
use crate::import::{Field, Source};

/// The token of the service account of a pod.
const OWN_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// The file of `--metric-sources`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MetricSources {
    prometheus: [Server; 1],
    /// Notes about the fields that the import could not fill: the name of the field, and its source or the effect of
    /// its absence.
    #[serde(skip)]
    pub open: Vec<&'static str>,
}

/// A server, as in the source file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Server {
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
    /// Reads the arguments of an adapter. Returns whether the object is an adapter's Deployment.
    pub(super) fn add_deployment(&mut self, source: &mut Source<'_>) -> bool {
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

    /// The source file that contains this server. `labels` contains the namespace label of each query, or `None` for a
    /// query of all namespaces.
    pub(super) fn file(&self, labels: &BTreeSet<Option<String>>) -> MetricSources {
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

/// The name of a flag and its value after `=`.
fn flag<'a>(word: &Field<'a>) -> Option<(&'a str, Option<&'a str>)> {
    let flag = word.value()?.as_str()?.strip_prefix("--")?;
    Some(flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value))))
}
