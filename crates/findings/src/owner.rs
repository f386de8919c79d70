//! The owners of pods.

use crate::Facts;
use crate::facts::{Owner, Target};

/// Whether a pod belongs to another owner than the target, or to none. False if its owners are unknown.
pub(crate) fn is_foreign(facts: &Facts<'_>, pod: &str) -> bool {
    let (Some(target), Some(chain)) = (facts.target, facts.owners.get(pod)) else { return false };
    !chain.iter().any(|owner| is_target(owner, target)) && !may_be_incomplete(facts, chain)
}

/// Whether a pod belongs to the target.
pub(crate) fn is_own(facts: &Facts<'_>, pod: &str) -> bool {
    let (Some(target), Some(chain)) = (facts.target, facts.owners.get(pod)) else { return false };
    chain.iter().any(|owner| is_target(owner, target))
}

/// Returns the owner of a pod: `of Job/report`, or `without a controller`. `None` if it is unknown.
pub(crate) fn text(facts: &Facts<'_>, pod: &str) -> Option<String> {
    Some(match facts.owners.get(pod)?.last() {
        Some(owner) => format!("of {}/{}", owner.kind, owner.name),
        None => "without a controller".to_owned(),
    })
}

fn is_target(owner: &Owner, target: &Target) -> bool {
    match &target.object {
        Some(object) if !object.uid.is_empty() => owner.uid == object.uid,
        _ => owner.kind == target.kind && owner.name == target.name,
    }
}

/// Returns whether the read of the last owner was refused, so that the chain may lack further owners.
fn may_be_incomplete(facts: &Facts<'_>, chain: &[Owner]) -> bool {
    let Some(last) = chain.last() else {
        return false;
    };
    let group = last.api_version.split_once('/').map_or("", |(group, _)| group);
    facts.refused.iter().any(|refused| {
        refused.group == group
            && refused.resource.to_ascii_lowercase().starts_with(&last.kind.to_ascii_lowercase())
    })
}
