//! Moves HPAs in and out of scope. The store contains the HPAs in scope. For HPAs out of scope, the registry keeps the
//! data that HPAs in scope need.
//!
//! The store drops an HPA that leaves the scope like a deleted one, except that its selector still counts
//! for the detection of shared pods if other HPAs of its namespace are in scope. A worker then reads the selector
//! once a period, from the watch of targets if it can.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::charges::{Charges, Placement};
use super::scope::LABEL;
use crate::reconcile::Controller;
use crate::store::{Change, HpaRecord, Key, Update};
use cluster::client::Client;
use cluster::decode::hpa;
use cluster::error::ApiError;
use cluster::list::{Collection, each};

impl Controller {
    /// Puts an HPA in or out of scope, by a new version of it. The caller holds [`Charges::moving`], applies the
    /// version to the store if the result is [`Placement::Store`], and makes a new HPA due.
    pub(crate) fn sort(&self, charges: &Charges, hpa: &HpaRecord, is_listed: bool) -> Placement {
        let placement = charges.sort(hpa, is_listed);
        match placement {
            Placement::Store { is_new: true } if !is_listed => {
                self.claim_neighbours(charges, Some(&hpa.key.namespace));
            }
            Placement::Outside => self.take_out(charges, &hpa.key, is_listed),
            Placement::Unchanged if !charges.is_outside(&hpa.key) => {
                return Placement::Store { is_new: false };
            }
            Placement::Store { .. } | Placement::Unchanged => {}
        }
        placement
    }

    /// Removes an HPA that is out of scope from the store.
    fn take_out(&self, charges: &Charges, key: &Key, is_listed: bool) {
        let stored = self.hpas.get(key);
        // If a list is in progress, the end of the list removes the HPA.
        let removed = stored.and_then(|stored| self.hpas.delete(key, &stored.uid));
        let had_selector = removed.is_some_and(|removed| {
            let change = Change::Deleted { uid: Arc::clone(&removed.uid) };
            let update = Update { change, old: Some(removed), new: None, lost_write: false };
            self.left_scope(charges, key, &update)
        });
        if charges.neighbour(key).is_some() && (!is_listed || had_selector) {
            self.queue.add(key);
        }
    }

    /// Drops the state of an HPA that is out of scope now, except for a selector that still counts. Until a worker has
    /// read the selector again, the old one counts. Otherwise an HPA on the same pods could sync first, and would
    /// scale. Returns whether there is such a selector.
    pub(crate) fn left_scope(&self, charges: &Charges, key: &Key, update: &Update) -> bool {
        let selector = self.overlap.selector(key).filter(|_| charges.neighbour(key).is_some());
        self.changed(update);
        if let Some(selector) = &selector {
            self.overlap.claim(key, selector, &self.pods);
        }
        selector.is_some()
    }

    /// Makes HPAs out of scope due if their selectors count. `namespace`: only those of this namespace.
    pub(crate) fn claim_neighbours(&self, charges: &Charges, namespace: Option<&Arc<str>>) {
        for key in charges.neighbours(namespace) {
            if !self.queue.has_time(&key) {
                self.queue.add(&key);
            }
        }
    }

    /// Applies the label of a namespace, or its removal. HPAs that are not in the store are read later, by
    /// [`Self::adopt`].
    pub(super) fn label_namespace(&self, charges: &Charges, namespace: &str, label: Option<&str>) {
        let _moving = charges.moving();
        if !charges.label_namespace(namespace, label) {
            return;
        }
        for hpa in self.hpas.in_namespace(namespace) {
            if self.sort(charges, &hpa, true) == (Placement::Store { is_new: true }) {
                self.queue.add(&hpa.key);
            }
        }
        self.claim_neighbours(charges, Some(&namespace.into()));
    }

    /// Reads the HPAs of a namespace that is new in scope into the store.
    ///
    /// # Errors
    /// Returns [`ApiError`] if the namespace cannot be listed. HPAs that were read before the failure are in the
    /// store.
    pub(super) async fn adopt(
        &self,
        charges: &Charges,
        client: &Client,
        namespace: &str,
    ) -> Result<(), ApiError> {
        let collection = Collection {
            group: "autoscaling",
            version: "v2",
            namespace: Some(namespace),
            resource: "horizontalpodautoscalers",
            fields: "",
        };
        let mut adopted = BTreeSet::new();
        each(client, collection, |item| {
            match hpa(item) {
                Ok(object) => {
                    let record = HpaRecord::from(object);
                    let key = record.key.clone();
                    if self.adopt_one(charges, record) {
                        adopted.insert(key);
                    }
                }
                // The watch reports such an object.
                Err(error) => tracing::debug!(namespace, %error, "failed to decode an HPA"),
            }
            Ok(())
        })
        .await?;
        tracing::info!(namespace, hpas = adopted.len(), "namespace has the label {LABEL}");
        self.claim_neighbours(charges, Some(&namespace.into()));
        Ok(())
    }

    /// Stores an HPA from a read, if the watch has already delivered the HPA. Otherwise a stale read could restore a
    /// deleted HPA.
    fn adopt_one(&self, charges: &Charges, hpa: HpaRecord) -> bool {
        let _moving = charges.moving();
        let is_new = charges.is_outside(&hpa.key)
            && matches!(charges.sort(&hpa, false), Placement::Store { is_new: true });
        if is_new && let Some(update) = self.hpas.apply(hpa) {
            self.changed(&update);
        }
        is_new
    }
}
