//! The policies that are not known yet, after a start. Until the policies that may match an HPA are known, nothing is
//! written about it, because one of them may pause the HPA or limit its count.
//!
//! If the API server refuses to list policies, it would stop all HPAs of a cluster to wait for them. After a failure,
//! only HPAs that had a policy wait: those with the annotation, or with the condition of a policy in their status.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::objects::{GROUP, Kind};
use cluster::error::ApiError;

/// The time that all HPAs wait for a list that fails. A refused list holds only HPAs that had a policy at once. Other
/// failures, such as 503, usually end with the restart of an API server.
const PATIENCE: Duration = Duration::from_mins(1);

/// A list that the policies of HPAs depend on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum List {
    /// The policy objects of a kind, in one namespace or in all.
    Objects(Kind, Option<Arc<str>>),
    /// The labels of namespaces, for the selectors of cluster-wide policies.
    Namespaces,
}

impl List {
    fn concerns(&self, namespace: &str) -> bool {
        match self {
            Self::Objects(_, Some(only)) => **only == *namespace,
            Self::Objects(_, None) | Self::Namespaces => true,
        }
    }
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Objects(kind, None) => write!(f, "{}.{GROUP}", kind.resource()),
            Self::Objects(kind, Some(namespace)) => {
                write!(f, "{}.{GROUP} in namespace {namespace}", kind.resource())
            }
            Self::Namespaces => f.write_str("namespaces"),
        }
    }
}

#[derive(Debug, Clone)]
struct Failure {
    error: ApiError,
    /// The time of the first failure in a row.
    since: Instant,
}

/// The lists that are not complete yet, with the last failure of each.
#[derive(Debug, Default)]
pub(crate) struct AwaitedLists {
    lists: watch::Sender<BTreeMap<List, Option<Failure>>>,
}

impl AwaitedLists {
    /// Adds a list, before the first sync.
    pub(crate) fn add(&self, list: List) {
        self.lists.send_modify(|lists| drop(lists.insert(list, None)));
    }

    /// Removes a complete list. Returns whether it was missing after a failure, so that HPAs may have waited for it.
    pub(crate) fn complete(&self, list: &List) -> bool {
        let mut failed = None;
        self.lists.send_if_modified(|lists| {
            failed = lists.remove(list);
            failed.is_some()
        });
        let failed = failed.flatten().is_some();
        if failed {
            tracing::info!(%list, "scaling policies are known");
        }
        failed
    }

    /// Records why a list is missing. Logs the first failure, and each failure with another cause.
    pub(crate) fn failed(&self, list: &List, error: &ApiError) {
        self.lists.send_if_modified(|lists| {
            let Some(known) = lists.get_mut(list) else { return false };
            if !known.as_ref().is_some_and(|known| known.error.has_same_cause(error)) {
                tracing::warn!(
                    %list, %error,
                    "scaling policies are unknown: HPAs that had one are not scaled until they can be listed"
                );
            }
            let since = known.as_ref().map_or_else(Instant::now, |known| known.since);
            *known = Some(Failure { error: error.clone(), since });
            true
        });
    }

    /// Waits until each list is complete or has failed.
    pub(crate) async fn answered(&self) {
        // The wait cannot fail, because `self` owns the sender.
        let _ = self.lists.subscribe().wait_for(|lists| lists.values().all(Option::is_some)).await;
    }

    /// Returns whether nothing may be written about an HPA of `namespace` yet. `had_policy`: whether a policy applied to
    /// the HPA before, as far as the HPA shows it.
    pub(crate) fn hold(&self, namespace: &str, had_policy: impl FnOnce() -> bool) -> bool {
        let lists = self.lists.borrow();
        let mut missing = lists.iter().filter(|(list, _)| list.concerns(namespace)).peekable();
        if missing.peek().is_none() {
            return false;
        }
        let waits = |failure: &Option<Failure>| {
            failure
                .as_ref()
                .is_none_or(|failure| !failure.error.is_forbidden() && failure.since.elapsed() < PATIENCE)
        };
        missing.any(|(_, failure)| waits(failure)) || had_policy()
    }

    /// Describes the missing lists. Empty if all are complete.
    pub(crate) fn missing(&self) -> Vec<String> {
        let lists = self.lists.borrow();
        let describe = |(list, failure): (&List, &Option<Failure>)| match failure {
            None => format!("{list} not listed yet"),
            Some(Failure { error, .. }) => format!("failed to list {list}: {error}"),
        };
        lists.iter().map(describe).collect()
    }
}

#[cfg(test)]
mod tests {
    use cluster::call::Call;
    use http::StatusCode;

    use super::*;

    fn error(code: u16) -> ApiError {
        ApiError::from_answer(&Call::get([]), StatusCode::from_u16(code).unwrap(), "", None, b"")
    }

    #[tokio::test(start_paused = true)]
    async fn hpas_wait_for_an_answer_and_after_a_failure_only_those_that_had_a_policy() {
        let lists = AwaitedLists::default();
        let (of_shop, all) = (List::Objects(Kind::Namespaced, Some("shop".into())), List::Namespaces);
        assert!(!lists.hold("shop", || true), "nothing is awaited");
        lists.add(of_shop.clone());
        assert!(lists.hold("shop", || false) && !lists.hold("ops", || true));
        lists.failed(&of_shop, &error(403));
        assert!(lists.hold("shop", || true) && !lists.hold("shop", || false));
        lists.answered().await;
        lists.add(all.clone());
        lists.failed(&all, &error(503));
        assert!(lists.hold("ops", || false), "the failure is new");
        tokio::time::advance(PATIENCE).await;
        lists.failed(&all, &error(503));
        assert!(lists.hold("ops", || true) && !lists.hold("ops", || false));
        assert_eq!(lists.missing().len(), 2);
        assert!(lists.complete(&all) && !lists.complete(&all) && lists.complete(&of_shop));
        assert!(!lists.hold("shop", || true));
    }
}
