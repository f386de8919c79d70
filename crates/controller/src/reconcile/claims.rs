//! Claims the selectors of HPAs, to find HPAs that control the same pods.

use std::sync::Arc;

use autoscaling::selector::Selector;
use autoscaling::spec::Spec;
use autoscaling::status::Status;
use autoscaling::{Hpa, Overlap, plan};

use super::Controller;
use super::scale::ResolvedScale;
use super::sync::{Next, view};
use super::worker_pool::WorkerPermit;
use crate::store::Key;

impl Controller {
    /// Reads the Scale of an HPA's target and claims its selector, as a sync of the HPA would. Decides
    /// nothing. This call lets a caller that decides for one HPA find the other HPAs that control the same
    /// pods.
    pub async fn claim(&self, key: &Key) {
        if let Some(record) = self.hpas.get(key) {
            let hpa = view(&record, None);
            let ResolvedScale { scale, .. } = self.fetch_scale(key, &hpa, None).await;
            plan(&hpa, scale, |selector| self.overlap(key, selector), &self.settings);
        }
    }

    /// Claims the selector of an HPA out of scope that may share pods with HPAs in scope. Drops the state of
    /// any other key without an HPA.
    pub(super) async fn claim_outside(&self, key: &Key, permit: &mut WorkerPermit) -> Next {
        let Some(target) = self.hpas.charges().and_then(|charges| charges.neighbour(key)) else {
            self.forget_key(key);
            return Next::Gone;
        };
        let spec =
            Spec { target, min_replicas: None, max_replicas: 1, metrics: Box::default(), behavior: None };
        let status = Status::default();
        let hpa = Hpa {
            namespace: &key.namespace,
            name: &key.name,
            generation: None,
            spec: &spec,
            status: &status,
        };
        let resolved = self.cached_scale(key, &hpa, permit).await;
        // A target without replicas has no pods to share. The built-in controller claims nothing for it either.
        if let Some(scale) = resolved.scale.ok().filter(|scale| scale.replicas > 0) {
            self.overlap(key, &scale.selector);
        }
        if self.hpas.charges().and_then(|charges| charges.neighbour(key)).is_none()
            && self.hpas.get(key).is_none()
        {
            self.forget_key(key);
            return Next::Gone;
        }
        Next::Period
    }

    pub(super) fn overlap(&self, key: &Key, selector: &Arc<Selector>) -> Overlap {
        let sharing = self.overlap.claim(key, selector, &self.pods);
        // Check after the claim: a deletion first removes the HPA and then releases its claim.
        let is_neighbour = || self.hpas.charges().is_some_and(|charges| charges.neighbour(key).is_some());
        if self.hpas.get(key).is_none() && !is_neighbour() {
            self.overlap.release(key, &self.pods);
            return Overlap::Deleted;
        }
        if sharing.len() > 1 {
            Overlap::Shared(sharing.iter().map(ToString::to_string).collect())
        } else {
            Overlap::None
        }
    }
}
