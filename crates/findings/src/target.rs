//! Findings about the target and about other writers of its count.

use autoscaling::explanation::{DecisionPath, Span};
use autoscaling::failure::ScaleFailureClass;

use crate::facts::FieldManager;
use crate::{Facts, Finding, FindingId, target_name};

/// Finds a Scale that cannot be read or has no selector.
pub(crate) fn scale(facts: &Facts<'_>) -> Option<Finding> {
    let explanation = &facts.explanation;
    let target = target_name(facts);
    let failure = explanation.failure.as_deref().unwrap_or_default();
    match explanation.path {
        DecisionPath::NoSelector => Some(Finding::error(
            FindingId::NoSelector,
            format!("the scale of {target} has no selector, so its pods cannot be found"),
            "If the target is a custom resource, set labelSelectorPath in the scale subresource of its definition and make \
             its controller set that field.",
        )),
        // A refused read has a separate finding.
        DecisionPath::NoScale if facts.blind().next().is_some() => None,
        DecisionPath::NoScale => Some(match explanation.scale_failure() {
            ScaleFailureClass::NoMatchForKind => Finding::error(
                FindingId::UnknownTargetKind,
                format!("the cluster does not serve the kind of {target}: {failure}"),
                "Correct apiVersion and kind in spec.scaleTargetRef, or install the CustomResourceDefinition of that \
                 kind.",
            ),
            ScaleFailureClass::NotFound => Finding::error(
                FindingId::MissingTarget,
                format!("{target} does not exist, or has no scale: {failure}"),
                "Correct spec.scaleTargetRef (the target must be in the HPA's namespace), or delete the HPA if its \
                 target was removed permanently.",
            ),
            ScaleFailureClass::InvalidReference | ScaleFailureClass::Forbidden | ScaleFailureClass::Other => {
                Finding::error(
                    FindingId::UnreadableScale,
                    format!("the scale of {target} cannot be read: {failure}"),
                    "Try to read it with kubectl get --subresource=scale; while it cannot be read, nothing is scaled.",
                )
            }
        }),
        _ => None,
    }
}

/// Finds a target at zero replicas, which the HPA does not change.
pub(crate) fn paused(facts: &Facts<'_>) -> Option<Finding> {
    (facts.explanation.path == DecisionPath::Disabled).then(|| {
        let target = target_name(facts);
        Finding::warning(
            FindingId::Paused,
            format!("{target} is set to 0 replicas, which disables autoscaling"),
            format!(
                "To enable it again: kubectl -n {} scale {target} --replicas={}.",
                facts.namespace,
                facts.explanation.min.max(1)
            ),
        )
    })
}

/// Finds several HPAs on the same pods.
pub(crate) fn shared(facts: &Facts<'_>) -> Option<Finding> {
    let stopped = facts.explanation.path == DecisionPath::Ambiguous;
    let names = &facts.sharing;
    if names.is_empty() && !stopped {
        return None;
    }
    let others = match (names.as_slice(), facts.explanation.failure.as_deref()) {
        ([], Some(failure)) => failure.to_owned(),
        (names, _) => crate::listed(names, 5),
    };
    let advice = "Keep one HPA for these pods: put all metrics into it (the highest proposal counts), or give the pods of \
                  each target distinct labels.";
    Some(if stopped {
        let message = format!("other HPAs select the same pods, so none of them scales ({others})");
        Finding::error(FindingId::SharedPods, message, advice)
    } else {
        Finding::warning(FindingId::SharedPods, format!("other HPAs select the same pods ({others})"), advice)
    })
}

/// Finds field managers that set `spec.replicas` outside of the scale subresource. A count from the creation of the
/// target is harmless. A known tool, a manager that applies the field, and a manager that set it after the HPA's last
/// rescale are not.
pub(crate) fn field_managers(facts: &Facts<'_>) -> Option<Finding> {
    let object = facts.target?.object.as_ref()?;
    let mut managers: Vec<&FieldManager> =
        object.replicas_owners.iter().filter(|owner| owner.subresource != "scale").collect();
    managers.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.manager.cmp(&b.manager)));
    let first = managers.first()?;
    let tool = tool_of(&first.manager);
    let named: Vec<String> = managers
        .iter()
        .map(|manager| {
            let since = manager.time.map(|time| format!(" {} ago", Span::between(time, facts.at)));
            format!("{}{}", manager.manager, since.unwrap_or_default())
        })
        .collect();
    let tool_name = tool.map(|tool| format!(" ({})", tool.name)).unwrap_or_default();
    let more = tool.map_or("", |tool| tool.advice);
    let scaled = facts.hpa.and_then(|hpa| hpa.last_scale);
    let recurs = managers.iter().any(|manager| {
        let after = scaled.zip(manager.time).is_some_and(|(scaled, set)| set > scaled);
        manager.operation == "Apply" || tool_of(&manager.manager).is_some() || after
    });
    let message = format!(
        "spec.replicas of {} is also set by {}{tool_name}: the next such write resets the count",
        target_name(facts),
        named.join(", ")
    );
    let advice = format!("Remove replicas from the manifest of {}.{more}", target_name(facts));
    let finding = if recurs { Finding::warning } else { Finding::info };
    Some(finding(FindingId::ReplicasAlsoSet, message, advice))
}

/// A tool that applies manifests.
#[derive(Debug, Clone, Copy)]
struct Tool {
    name: &'static str,
    advice: &'static str,
}

fn tool_of(manager: &str) -> Option<Tool> {
    let tool = |name, advice| Some(Tool { name, advice });
    match manager {
        manager if manager.starts_with("argocd") => tool(
            "Argo CD",
            " If it must stay there, set ignoreDifferences for /spec/replicas and the sync option \
             RespectIgnoreDifferences=true.",
        ),
        "helm" | "Helm" => {
            tool("Helm", " In a chart, omit the field from the template while autoscaling is enabled.")
        }
        "kustomize-controller" | "helm-controller" | "flux" => tool("Flux", ""),
        "kubectl" | "kubectl-client-side-apply" | "kubectl-last-applied" | "before-first-apply" => {
            tool("kubectl", "")
        }
        manager if manager.to_ascii_lowercase().contains("terraform") => tool(
            "Terraform",
            " If it must stay there, set ignore_changes for that field in its lifecycle block.",
        ),
        _ => None,
    }
}
