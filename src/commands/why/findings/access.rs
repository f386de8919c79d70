//! Findings about what could not be read, and about clocks.

use autoscaling::explanation::Span;
use autoscaling::query::Api;

use super::super::situation::{Refused, SKEW};
use super::{Finding, Situation};

/// Metrics APIs that nobody serves.
pub(super) fn missing_apis(situation: &Situation) -> Vec<Finding> {
    let mut apis = situation.missing_apis.clone();
    apis.sort_unstable();
    apis.dedup();
    apis.into_iter()
        .map(|api| {
            let (group, advice) = match api {
                Api::Resource => (
                    "metrics.k8s.io",
                    "It is usually served by metrics-server: install it, or see why it is not registered with \
                     kubectl get apiservice v1beta1.metrics.k8s.io.",
                ),
                Api::Custom => (
                    "custom.metrics.k8s.io",
                    "It is served by an adapter for your monitoring, such as prometheus-adapter: install one, or see why it \
                     is not registered with kubectl get apiservice.",
                ),
                Api::External => (
                    "external.metrics.k8s.io",
                    "It is served by an adapter for your monitoring, such as KEDA or prometheus-adapter: install one, or \
                     see why it is not registered with kubectl get apiservice v1beta1.external.metrics.k8s.io.",
                ),
            };
            let message = format!("the cluster does not serve {group}, which a metric of this HPA needs");
            Finding::error("missing-metrics-api", message, advice)
        })
        .collect()
}

/// What the user of this command may not read.
pub(super) fn refused(situation: &Situation) -> Vec<Finding> {
    situation
        .refused
        .iter()
        .map(|refused| {
            let what = what(refused);
            let advice = format!(
                "Ask for a role that allows \"{}\" on {}; the controller itself may well be allowed to.",
                refused.verb,
                resource(refused)
            );
            if refused.decides {
                let message =
                    format!("you may not {what}, so what is told here is not what the controller decides");
                Finding::error("forbidden", message, advice)
            } else {
                Finding::info(
                    "forbidden",
                    format!("you may not {what}, so not everything could be checked"),
                    advice,
                )
            }
        })
        .collect()
}

fn resource(refused: &Refused) -> String {
    if refused.group.is_empty() {
        refused.resource.clone()
    } else {
        format!("{}.{}", refused.resource, refused.group)
    }
}

fn what(refused: &Refused) -> String {
    let name = refused.name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
    let place = match &refused.namespace {
        Some(namespace) => format!("in namespace {namespace}"),
        None => "in the whole cluster".to_owned(),
    };
    format!("{} {}{name} {place}", refused.verb, resource(refused))
}

/// The clock of this machine and that of the server differ.
pub(super) fn skew(situation: &Situation) -> Option<Finding> {
    let skew = situation.skew.filter(|skew| skew.abs() > SKEW)?;
    let by = Span::seconds(skew.abs().as_secs());
    let which = if skew.is_positive() { "behind" } else { "ahead of" };
    Some(Finding::warning(
        "clock-skew",
        format!("the clock of this machine is {by} {which} that of the API server"),
        "Times and waits here are told by the server's clock. Set the clock of this machine right; if it is the server's \
         that is wrong, windows and ages of samples suffer too.",
    ))
}
