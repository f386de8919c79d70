//! Findings about missing APIs, refused reads and clocks.

use autoscaling::explanation::Span;
use autoscaling::query::Api;

use crate::facts::{Refused, SKEW};
use crate::{Facts, Finding, FindingId};

/// Finds metrics APIs that the cluster does not serve.
pub(crate) fn missing_apis(facts: &Facts<'_>) -> Vec<Finding> {
    let mut apis = facts.missing_apis.to_vec();
    apis.sort_unstable();
    apis.dedup();
    apis.into_iter()
        .map(|api| {
            let advice = match api {
                Api::Resource => {
                    "metrics-server usually serves it: install it, or check its registration with \
                     kubectl get apiservice v1beta1.metrics.k8s.io."
                }
                Api::Custom => {
                    "An adapter for your monitoring system serves it, such as prometheus-adapter: install one, or check its \
                     registration with kubectl get apiservice."
                }
                Api::External => {
                    "An adapter for your monitoring system serves it, such as KEDA or prometheus-adapter: install one, or \
                     check its registration with kubectl get apiservice v1beta1.external.metrics.k8s.io."
                }
            };
            let message =
                format!("the cluster does not serve {}, which a metric of this HPA needs", api.group());
            Finding::error(FindingId::MissingMetricsApi, message, advice)
        })
        .collect()
}

/// Finds reads that the server has refused to the current user.
pub(crate) fn refused(facts: &Facts<'_>) -> Vec<Finding> {
    facts
        .refused
        .iter()
        .map(|refused| {
            let what = what(refused);
            let advice = format!(
                "Request a role that allows \"{}\" on {}; the controller itself may have this permission.",
                refused.verb,
                resource(refused)
            );
            if refused.decides {
                let message = format!("you may not {what}, so this decision is not the controller's");
                Finding::error(FindingId::Forbidden, message, advice)
            } else {
                Finding::info(
                    FindingId::Forbidden,
                    format!("you may not {what}, so some checks were skipped"),
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
    let scope = match &refused.namespace {
        Some(namespace) => format!("in namespace {namespace}"),
        None => "in the whole cluster".to_owned(),
    };
    format!("{} {}{name} {scope}", refused.verb, resource(refused))
}

/// Finds a difference between the clocks of this machine and of the API server.
pub(crate) fn skew(facts: &Facts<'_>) -> Option<Finding> {
    let skew = facts.skew.filter(|skew| skew.abs() > SKEW)?;
    let by = Span::seconds(skew.abs().as_secs());
    let which = if skew.is_positive() { "behind" } else { "ahead of" };
    Some(Finding::warning(
        FindingId::ClockSkew,
        format!("the clock of this machine is {by} {which} the API server's"),
        "Times and waits here follow the server's clock. Correct the clock of this machine; if the server's clock is \
         wrong, windows and sample ages are affected too.",
    ))
}
