//! The use of each policy object by the merged policies of HPAs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use policies::merge::Source;
use policies::spec::{Level, ProblemReason};

use super::{Policies, StoredPolicy};
use crate::policy::objects::PolicyName;

/// Maximum number of texts of one kind per policy.
const MAX_TEXTS: usize = 20;

/// A policy object with its use.
#[derive(Debug)]
pub(in crate::policy) struct PolicyUse {
    pub(in crate::policy) policy: Arc<StoredPolicy>,
    /// The number of HPAs that the policy applies to.
    pub(in crate::policy) matched: usize,
    /// Fields that another policy of the same kind also sets for the same HPA, each as a sentence.
    pub(in crate::policy) overlaps: BTreeSet<String>,
    /// Fields beyond a limit of a ClusterScalingPolicy, each as a sentence.
    pub(in crate::policy) limited: BTreeSet<String>,
}

impl Policies {
    /// The policy objects with their use.
    pub(in crate::policy) fn uses(&self) -> Vec<PolicyUse> {
        let inner = self.inner.read();
        let uses = inner.objects.iter().map(|(name, policy)| {
            let policy = Arc::clone(policy);
            (
                name.clone(),
                PolicyUse { policy, matched: 0, overlaps: BTreeSet::new(), limited: BTreeSet::new() },
            )
        });
        let mut uses: BTreeMap<PolicyName, PolicyUse> = uses.collect();
        let mut seen = BTreeSet::new();
        for merged in inner.hpas.values().filter_map(|entry| entry.merged.as_ref()) {
            for name in merged.objects() {
                if let Some(policy) = uses.get_mut(name) {
                    policy.matched += 1;
                }
            }
            // HPAs with the same policies share the result of the merge.
            if !seen.insert(Arc::as_ptr(merged)) {
                continue;
            }
            let policy = merged.policy();
            let mut add = |source: &Source, text: String, is_limit: bool| {
                let Some(policy) = uses.get_mut(&name_of(source)) else { return };
                let texts = if is_limit { &mut policy.limited } else { &mut policy.overlaps };
                if texts.len() < MAX_TEXTS {
                    texts.insert(text);
                }
            };
            for overridden in &policy.overridden {
                let sources = policy.sources.get(overridden.source).zip(policy.sources.get(overridden.by));
                let Some((younger, older)) = sources else { continue };
                let field = overridden.field;
                add(younger, format!("{field}: {older} is older and comes first"), false);
                add(older, format!("{field}: comes before {younger}, which is younger"), false);
            }
            for (source, problem) in &policy.problems {
                if matches!(problem.reason, ProblemReason::Limited { .. })
                    && let Some(source) = policy.sources.get(*source)
                {
                    add(source, problem.to_string(), true);
                }
            }
        }
        uses.into_values().collect()
    }
}

/// The name of the object of a source. The name of an annotation is empty and matches no object.
fn name_of(source: &Source) -> PolicyName {
    match source.name.split_once('/') {
        Some((namespace, name)) if source.level == Level::Namespaced => {
            PolicyName { namespace: Some(namespace.into()), name: name.into() }
        }
        _ => PolicyName { namespace: None, name: Arc::clone(&source.name) },
    }
}
