//! Findings about what is scaled, and who else has a hand in it.

use autoscaling::explanation::{Course, Span};

use super::super::situation::FieldManager;
use super::{Finding, Situation, target_name};

/// The Scale cannot be read, or says too little.
pub(super) fn scale(situation: &Situation) -> Option<Finding> {
    let explanation = &situation.explanation;
    let target = target_name(situation);
    let failure = explanation.failure.as_deref().unwrap_or_default();
    match explanation.course {
        Course::NoSelector => Some(Finding::error(
            "no-selector",
            format!("the scale of {target} has no selector, so its pods cannot be found"),
            "If the target is a custom resource, set labelSelectorPath in the scale subresource of its definition and let \
             its controller fill in that field.",
        )),
        // A refusal is told by itself.
        Course::NoScale if situation.blind().next().is_some() => None,
        Course::NoScale if failure.contains("no matches for kind") => Some(Finding::error(
            "unknown-target-kind",
            format!("the cluster does not know the kind of {target}: {failure}"),
            "Correct apiVersion and kind in spec.scaleTargetRef, or install the definition of that kind.",
        )),
        Course::NoScale if failure.contains("not found") => Some(Finding::error(
            "missing-target",
            format!("{target} does not exist, or has no scale: {failure}"),
            "Correct spec.scaleTargetRef (the target must be in the HPA's namespace), or delete the HPA if its target is \
             gone for good.",
        )),
        Course::NoScale => Some(Finding::error(
            "unreadable-scale",
            format!("the scale of {target} cannot be read: {failure}"),
            "Try to read it with kubectl get --subresource=scale; while it cannot be read, nothing is scaled.",
        )),
        _ => None,
    }
}

/// The target stands at zero, and nobody but a person lifts it.
pub(super) fn paused(situation: &Situation) -> Option<Finding> {
    (situation.explanation.course == Course::Disabled).then(|| {
        let target = target_name(situation);
        Finding::warning(
            "paused",
            format!("{target} is set to 0 replicas, which switches autoscaling off"),
            format!(
                "To switch it on again: kubectl -n {} scale {target} --replicas={}.",
                situation.key.namespace,
                situation.explanation.min.max(1)
            ),
        )
    })
}

/// Several HPAs on the same pods.
pub(super) fn shared(situation: &Situation) -> Option<Finding> {
    let stopped = situation.explanation.course == Course::Ambiguous;
    let names: Vec<&str> = situation.sharing.iter().map(|key| &*key.name).collect();
    if names.is_empty() && !stopped {
        return None;
    }
    let who = match (&names[..], situation.explanation.failure.as_deref()) {
        ([], Some(failure)) => failure.to_owned(),
        (names, _) => super::listed(names, 5),
    };
    let advice = "Keep one HPA for these pods: put all metrics into it (the highest proposal counts), or give the pods of \
                  each target labels of their own.";
    Some(if stopped {
        let message = format!("other HPAs select the same pods, so none of them scales ({who})");
        Finding::error("shared-pods", message, advice)
    } else {
        Finding::warning("shared-pods", format!("other HPAs select the same pods ({who})"), advice)
    })
}

/// Who beside the scale subresource has set `spec.replicas`. That somebody created the target with a count is nothing to
/// worry about; who applies it again and again, or set it after the HPA did, is.
pub(super) fn field_managers(situation: &Situation) -> Option<Finding> {
    let object = situation.target.as_ref()?.object.as_ref()?;
    let mut managers: Vec<&FieldManager> =
        object.replicas_owners.iter().filter(|owner| owner.subresource != "scale").collect();
    managers.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.manager.cmp(&b.manager)));
    let first = managers.first()?;
    let tool = tool_of(&first.manager);
    let named: Vec<String> = managers
        .iter()
        .map(|manager| {
            let since = manager.time.map(|time| format!(" {} ago", Span::between(time, situation.at)));
            format!("{}{}", manager.manager, since.unwrap_or_default())
        })
        .collect();
    let known = tool.map(|tool| format!(", that is {}", tool.name)).unwrap_or_default();
    let more = tool.map_or("", |tool| tool.advice);
    let scaled = situation.hpa.as_ref().and_then(|hpa| hpa.status.last_scale_time);
    let comes_again = managers.iter().any(|manager| {
        let after = scaled.zip(manager.time).is_some_and(|(scaled, set)| set > scaled);
        manager.operation == "Apply" || tool_of(&manager.manager).is_some() || after
    });
    let message = format!(
        "spec.replicas of {} is also set by {}{known}: the next time it does, the count jumps to its value",
        target_name(situation),
        named.join(", ")
    );
    let advice = format!("Remove replicas from the manifest of {}.{more}", target_name(situation));
    let finding = if comes_again { Finding::warning } else { Finding::info };
    Some(finding("replicas-also-set", message, advice))
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
            " If it must stay there: ignoreDifferences for /spec/replicas, with the sync option \
             RespectIgnoreDifferences=true.",
        ),
        "helm" | "Helm" => {
            tool("Helm", " In a chart: leave the field out of the template while autoscaling is on.")
        }
        "kustomize-controller" | "helm-controller" | "flux" => tool("Flux", ""),
        "kubectl" | "kubectl-client-side-apply" | "kubectl-last-applied" | "before-first-apply" => {
            tool("kubectl", "")
        }
        manager if manager.to_ascii_lowercase().contains("terraform") => {
            tool("Terraform", " If it must stay there: ignore_changes for that field in its lifecycle block.")
        }
        _ => None,
    }
}
