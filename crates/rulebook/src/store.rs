//! The policies of all HPAs: annotations, policy objects, and their matches with HPAs.
//!
//! The watches write and the syncs read. A change of a `ScalingPolicy` makes the cached matches of its namespace stale.
//! A change of a `ClusterScalingPolicy` makes all matches stale. An HPA is matched again at its next sync, so the
//! duration of a change does not depend on the number of HPAs. Without policies, a sync reads only one flag.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use policies::spec::{Level, Parsed, parse};

use crate::awaited::AwaitedLists;
use crate::objects::{Kind, PolicyName, PolicyObject, annotation_of, labels_of};
use crate::{Merged, read_object};
use engine::reconcile::RuleDue;
use engine::store::{HpaRecord, Key};

/// Maximum number of HPAs that sync immediately after a change of a policy object. If the change concerns more HPAs,
/// their periodic syncs apply it within a period.
pub(super) const AT_ONCE: usize = 100;
/// Maximum number of namespaces with a separate revision.
const MAX_NAMESPACES: usize = 10_000;
/// The number of merged policies, in addition to two per HPA, above which unused merged policies are dropped.
const FEW_MERGED: usize = 64;

/// The policies of all HPAs.
#[derive(Debug, Default)]
pub struct Policies {
    /// Whether the watches have delivered a policy, or an HPA with the condition of a policy.
    any: AtomicBool,
    /// The policies that are not known yet.
    pub(super) awaited: AwaitedLists,
    inner: RwLock<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The number of changes of policy objects, and of namespace labels on which selectors depend.
    revision: u64,
    /// The revision of the last change for all namespaces. Earlier matches are stale.
    cluster_revision: u64,
    /// The revision of the last change of policies or of labels, by namespace.
    namespace_revisions: BTreeMap<Arc<str>, u64>,
    objects: BTreeMap<PolicyName, Arc<StoredPolicy>>,
    /// The labels of namespaces, for the selectors of cluster-wide policies.
    namespaces: BTreeMap<Arc<str>, BTreeMap<String, String>>,
    hpas: BTreeMap<Key, HpaPolicies>,
    /// The merged policies of HPAs without an annotation, by the names of the objects. HPAs with the same policy
    /// objects share a merged policy. A change of an object removes the entries that contain it.
    merged: BTreeMap<Vec<PolicyName>, Weak<Merged>>,
}

#[derive(Debug)]
pub(super) struct StoredPolicy {
    pub(super) object: PolicyObject,
    pub(super) parsed: Arc<Parsed>,
}

/// The policies of one HPA.
#[derive(Debug, Default)]
struct HpaPolicies {
    /// The policy of the annotation, and the hash of its text.
    annotation: Option<(u64, Arc<Parsed>)>,
    /// The revision of the match. `None` before the first match.
    revision: Option<u64>,
    /// The hash of the HPA's labels at the match.
    labels: u64,
    /// The merged policy that applies, if any.
    merged: Option<Arc<Merged>>,
    /// Whether the status may still contain the condition of a policy that has ended.
    has_ended: bool,
    due: RuleDue,
    /// The hash of the problems in the last event.
    reported: u64,
}

/// The policies that a sync must apply.
#[derive(Debug, Clone)]
pub(crate) enum Applicable {
    /// A policy applies.
    Merged(Arc<Merged>),
    /// The last policy of the HPA has ended, so its condition is removed.
    Ended,
}

impl Policies {
    /// Returns true if the watches have delivered no policy, and no HPA with the condition of a policy.
    pub fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Relaxed)
    }

    /// Returns whether nothing may be written about an HPA, because policies that may match it are not known yet.
    pub(crate) fn hold(&self, key: &Key) -> bool {
        self.awaited.hold(&key.namespace, || self.inner.read().hpas.contains_key(key))
    }

    /// Describes why policies are not known yet, for the readiness of the process. Empty if all are known.
    pub fn missing(&self) -> Vec<String> {
        self.awaited.missing()
    }

    /// Waits until each list that the watches await is complete or has failed.
    pub async fn answered(&self) {
        self.awaited.answered().await;
    }

    /// Applies the annotation of an HPA from the watch. `shows_condition` means that the status of the HPA contains the
    /// condition of a policy. Returns whether the annotation has changed.
    pub(crate) fn apply_hpa(&self, hpa: &HpaRecord, shows_condition: bool) -> bool {
        let text = annotation_of(&hpa.metadata);
        if text.is_none() && !shows_condition && self.is_empty() {
            return false;
        }
        self.any.store(true, Ordering::Relaxed);
        let hash = text.as_deref().map(hash_of);
        let (is_same, is_known) = {
            let inner = self.inner.read();
            let known = inner.hpas.get(&hpa.key);
            let annotation = known.and_then(|known| known.annotation.as_ref());
            (annotation.map(|(hash, _)| *hash) == hash, known.is_some())
        };
        if !shows_condition && (is_same || (text.is_none() && !is_known)) {
            return false;
        }
        // To parse a text may take milliseconds, in which syncs must not wait for the lock. Only the watch of HPAs changes
        // annotations, so none changes in between.
        let annotation =
            if is_same { None } else { hash.zip(text.map(|text| Arc::new(parse(&text, Level::Annotation)))) };
        let mut inner = self.inner.write();
        let entry = inner.hpas.entry(hpa.key.clone()).or_default();
        // The watch event of a status write may arrive before the end of the sync, and must not change the due times.
        if !is_same {
            entry.annotation = annotation;
            entry.revision = None;
            entry.due = RuleDue::default();
        }
        entry.has_ended |= entry.annotation.is_none();
        !is_same
    }

    /// Drops the state of an HPA that was deleted.
    pub(crate) fn forget_hpa(&self, key: &Key) {
        if !self.is_empty() {
            self.inner.write().hpas.remove(key);
        }
    }

    /// Returns the policies that a sync of an HPA must apply.
    pub(crate) fn applicable(&self, hpa: &HpaRecord) -> Option<Applicable> {
        if self.is_empty() {
            return None;
        }
        {
            let inner = self.inner.read();
            let entry = inner.hpas.get(&hpa.key);
            let has_candidates = inner.candidates(&hpa.key.namespace).next().is_some();
            if entry.is_none() && !has_candidates {
                return None;
            }
            if let Some(entry) = entry.filter(|entry| inner.is_current(entry, &hpa.key.namespace))
                && (!has_candidates || entry.labels == hash_of(&labels_of(&hpa.metadata)))
            {
                return entry.applicable();
            }
        }
        self.inner.write().rematch(hpa)
    }

    /// Returns whether a policy applies to an HPA. Matches the HPA first if its match is stale.
    pub fn applies_to(&self, hpa: &HpaRecord) -> bool {
        matches!(self.applicable(hpa), Some(Applicable::Merged(_)))
    }

    /// Marks the condition of an ended policy as removed.
    pub(crate) fn condition_removed(&self, key: &Key) {
        if let Some(entry) = self.inner.write().hpas.get_mut(key) {
            entry.has_ended = false;
        }
    }

    /// Stores the due times that the policy of an HPA requires.
    pub(crate) fn set_due(&self, key: &Key, due: RuleDue) {
        if let Some(entry) = self.inner.write().hpas.get_mut(key) {
            entry.due = due;
        }
    }

    /// Returns the due times that the policy of an HPA requires.
    pub(crate) fn due(&self, key: &Key) -> RuleDue {
        if self.is_empty() {
            return RuleDue::default();
        }
        self.inner.read().hpas.get(key).map_or_else(RuleDue::default, |entry| entry.due)
    }

    /// Stores the problems of an HPA's policies as reported. Returns whether they differ from the last reported
    /// problems.
    pub(crate) fn reports(&self, key: &Key, problems: &str) -> bool {
        let hash = if problems.is_empty() { 0 } else { hash_of(problems) };
        let mut inner = self.inner.write();
        inner.hpas.get_mut(key).is_some_and(|entry| std::mem::replace(&mut entry.reported, hash) != hash)
    }

    /// Applies a policy object from the watch. Returns whether its effect may have changed.
    pub fn apply_object(&self, object: PolicyObject) -> bool {
        self.any.store(true, Ordering::Relaxed);
        let old = self.inner.read().objects.get(&object.name).cloned();
        let old = old.filter(|old| {
            old.object.uid == object.uid
                && old.object.spec == object.spec
                && old.object.selector == object.selector
                && old.object.namespace_selector == object.namespace_selector
        });
        let is_same = old.is_some();
        let name = object.name.clone();
        // Without the lock, as above.
        let parsed = old.map_or_else(|| Arc::new(read_object(&object)), |old| Arc::clone(&old.parsed));
        let mut inner = self.inner.write();
        inner.objects.insert(name.clone(), Arc::new(StoredPolicy { object, parsed }));
        if !is_same {
            inner.object_changed(&name);
        }
        !is_same
    }

    /// Drops a policy object. Returns whether it was stored.
    pub(super) fn delete_object(&self, name: &PolicyName) -> bool {
        let mut inner = self.inner.write();
        let removed = inner.objects.remove(name).is_some();
        if removed {
            inner.object_changed(name);
        }
        removed
    }

    /// Drops the policy objects of one kind that a list did not contain. Returns whether any object was dropped.
    pub(super) fn retain_objects(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        listed: &BTreeSet<PolicyName>,
    ) -> bool {
        let mut inner = self.inner.write();
        let is_gone = |name: &PolicyName| {
            let is_of_list = match kind {
                Kind::Cluster => name.namespace.is_none(),
                Kind::Namespaced => name
                    .namespace
                    .as_deref()
                    .is_some_and(|of| namespace.is_none_or(|namespace| of == namespace)),
            };
            is_of_list && !listed.contains(name)
        };
        let gone: Vec<PolicyName> = inner.objects.keys().filter(|name| is_gone(name)).cloned().collect();
        for name in &gone {
            inner.objects.remove(name);
            inner.object_changed(name);
        }
        !gone.is_empty()
    }

    /// Applies the labels of a namespace, or its deletion. Returns whether the labels have changed and a selector may
    /// depend on them.
    pub(super) fn label_namespace(&self, namespace: &str, labels: Option<BTreeMap<String, String>>) -> bool {
        let mut inner = self.inner.write();
        let namespace: Arc<str> = namespace.into();
        match labels {
            Some(labels) if inner.namespaces.get(&namespace) == Some(&labels) => return false,
            Some(labels) => drop(inner.namespaces.insert(Arc::clone(&namespace), labels)),
            None => drop(inner.namespaces.remove(&namespace)),
        }
        let selects = |policy: &StoredPolicy| {
            policy.object.namespace_selector.as_ref().is_ok_and(|selector| !selector.is_empty())
        };
        let depends = inner.objects.values().any(|policy| selects(policy));
        if depends {
            inner.namespace_changed(namespace);
        }
        depends
    }

    /// Returns the namespaces with known labels.
    pub(super) fn namespaces(&self) -> Vec<Arc<str>> {
        self.inner.read().namespaces.keys().cloned().collect()
    }

    /// Returns all policy objects, and the merged policy of each HPA that has policies.
    pub(super) fn in_use(&self) -> (Vec<Arc<StoredPolicy>>, Vec<Arc<Merged>>) {
        let inner = self.inner.read();
        let merged = inner.hpas.values().filter_map(|entry| entry.merged.clone());
        (inner.objects.values().cloned().collect(), merged.collect())
    }
}

impl HpaPolicies {
    fn applicable(&self) -> Option<Applicable> {
        match &self.merged {
            Some(merged) => Some(Applicable::Merged(Arc::clone(merged))),
            None => self.has_ended.then_some(Applicable::Ended),
        }
    }
}

impl Inner {
    /// Makes all matches stale that a change of a policy object can affect.
    fn object_changed(&mut self, name: &PolicyName) {
        if let Some(namespace) = &name.namespace {
            self.namespace_changed(Arc::clone(namespace));
        } else {
            self.revision += 1;
            self.cluster_revision = self.revision;
        }
        self.merged.retain(|names, _| !names.contains(name));
    }

    /// Drops merged policies that no HPA uses, if there are many. An HPA can match many sets of policies over time.
    fn drop_unused(&mut self) {
        if self.merged.len() > FEW_MERGED + 2 * self.hpas.len() {
            self.merged.retain(|_, merged| merged.strong_count() > 0);
        }
    }

    /// Makes the matches of the HPAs of a namespace stale.
    fn namespace_changed(&mut self, namespace: Arc<str>) {
        self.revision += 1;
        if self.namespace_revisions.len() >= MAX_NAMESPACES {
            // The map must not grow with the number of deleted namespaces.
            self.namespace_revisions.clear();
            self.cluster_revision = self.revision;
        }
        self.namespace_revisions.insert(namespace, self.revision);
    }

    /// Returns whether the match of an HPA of the namespace is up to date.
    fn is_current(&self, entry: &HpaPolicies, namespace: &Arc<str>) -> bool {
        let changed = self.namespace_revisions.get(namespace).copied().unwrap_or(0);
        entry.revision.is_some_and(|matched| matched >= changed.max(self.cluster_revision))
    }

    /// Returns the policy objects whose selectors may match HPAs of a namespace.
    fn candidates(&self, namespace: &Arc<str>) -> impl Iterator<Item = &Arc<StoredPolicy>> {
        let cluster = self.objects.iter().take_while(|(name, _)| name.namespace.is_none());
        let start = PolicyName { namespace: Some(Arc::clone(namespace)), name: "".into() };
        let is_own = |name: &PolicyName| name.namespace.as_ref() == Some(namespace);
        let own = self.objects.range(start..).take_while(move |(name, _)| is_own(name));
        cluster.chain(own).map(|(_, policy)| policy)
    }

    /// Matches an HPA with the annotation and all policy objects.
    fn rematch(&mut self, hpa: &HpaRecord) -> Option<Applicable> {
        let labels = labels_of(&hpa.metadata);
        let namespace_labels = self.namespaces.get(&hpa.key.namespace);
        let no_labels = BTreeMap::new();
        let namespace_labels = namespace_labels.unwrap_or(&no_labels);
        let selects = |policy: &&Arc<StoredPolicy>| policy.object.selects(&labels, namespace_labels);
        let candidates: Vec<Arc<StoredPolicy>> =
            self.candidates(&hpa.key.namespace).filter(selects).map(Arc::clone).collect();
        let matching: Vec<&Arc<StoredPolicy>> = candidates.iter().collect();
        let entry = self.hpas.entry(hpa.key.clone()).or_default();
        let had = entry.merged.is_some();
        let annotation = entry.annotation.as_ref().map(|(_, parsed)| parsed);
        entry.merged = match (annotation, matching.as_slice()) {
            (None, []) => None,
            (Some(parsed), objects) => Some(Arc::new(Merged::new(Some(parsed), objects))),
            (None, objects) => {
                let names: Vec<PolicyName> =
                    objects.iter().map(|policy| policy.object.name.clone()).collect();
                Some(self.merged.get(&names).and_then(Weak::upgrade).unwrap_or_else(|| {
                    let merged = Arc::new(Merged::new(None, objects));
                    self.merged.insert(names, Arc::downgrade(&merged));
                    merged
                }))
            }
        };
        entry.has_ended = entry.merged.is_none() && (entry.has_ended || had);
        entry.labels = hash_of(&labels);
        entry.revision = Some(self.revision);
        let applicable = entry.applicable();
        self.drop_unused();
        applicable
    }
}

/// Returns a hash that is used only within the process.
fn hash_of(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
