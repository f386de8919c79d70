//! The pods of one namespace, by name and by label set.
//!
//! Selectors are matched against label sets instead of pods, because the pods of one ReplicaSet share one set. For a
//! *watched* selector, the store keeps the matching sets up to date. Each pair of a set and a watched selector is
//! evaluated at most once, when the later of the two is added. A new set is evaluated only against the selectors that
//! are indexed by one of its labels, and against those that require no particular label. In a namespace with many sets,
//! a new selector is evaluated only against the sets that have the rarest of the labels that it requires.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use autoscaling::pod::{LabelSet, Pod, PodRequests};
use autoscaling::selector::Selector;

use super::intern::{self, Id, Labels, PodInput, Requests, Strings, Table};

/// The number of label sets from which on they are indexed by label. Fewer sets are evaluated quickly without an index,
/// which takes memory. Tests have few sets.
const INDEXED: usize = if cfg!(test) { 4 } else { 256 };

/// Identifies a watched selector within its namespace.
pub(super) type SelectorId = u64;

#[derive(Debug, Default)]
pub(super) struct Namespace {
    pods: BTreeSet<Entry>,
    label_sets: Table<LabelSet>,
    /// The label sets by the digest of each of their labels. `None` until there are [`INDEXED`] sets.
    sets_by_label: Option<BTreeSet<(u64, Id)>>,
    requests: Table<PodRequests>,
    groups: BTreeMap<Id, Group>,
    watched: BTreeMap<SelectorId, Watched>,
    watched_ids: BTreeMap<Arc<Selector>, SelectorId>,
    /// The watched selectors by the digest of a label that they require, the rarest in this index so far: many selectors
    /// of a namespace may have a label in common. `None` if a selector requires no particular label.
    by_label: BTreeSet<(Option<u64>, SelectorId)>,
    last_watched: SelectorId,
}

/// A pod and its references into the tables. Ordered by name.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pod: Arc<Pod>,
    labels: Id,
    requests: Id,
}

/// The pods and watched selectors of one label set. The group may have no pods while a list is collected.
#[derive(Debug, Default)]
struct Group {
    /// The pods, by name.
    pods: Vec<Arc<Pod>>,
    matched_by: Vec<SelectorId>,
}

#[derive(Debug)]
struct Watched {
    selector: Arc<Selector>,
    /// The label under which the selector is indexed.
    label: Option<u64>,
    /// A vector, because most selectors match one set. A `BTreeSet` of one set takes ten times the memory.
    groups: Vec<Id>,
    users: usize,
}

impl Namespace {
    /// Creates the entry of a pod and acquires its references. An unchanged pod keeps its record.
    pub(super) fn entry(&mut self, input: &PodInput<'_>, strings: &mut Strings) -> Entry {
        let labels = self.acquire_labels(&Labels::new(input), strings);
        let requests = self.acquire_requests(&Requests::new(input), strings);
        let current = self.pods.get(input.name);
        let unchanged = current.filter(|current| {
            current.labels == labels
                && current.requests == requests
                && intern::same_state(input, &current.pod)
        });
        if let Some(current) = unchanged {
            return current.clone();
        }
        let name = current.map_or_else(|| input.name.into(), |current| Arc::clone(&current.pod.name));
        let label_set = self.label_sets.get(labels).cloned().unwrap_or_default();
        let request_set = self.requests.get(requests).cloned().unwrap_or_default();
        Entry { pod: Arc::new(intern::record(input, name, label_set, request_set)), labels, requests }
    }

    /// Publishes an entry to readers. Replaces the entry of the same name.
    pub(super) fn put(&mut self, entry: Entry, strings: &mut Strings) {
        let old = self.pods.replace(entry.clone());
        if let Some(old) = &old
            && old.labels != entry.labels
        {
            self.remove_from_group(old);
        }
        let group = self.groups.entry(entry.labels).or_default();
        match group.pods.binary_search_by(|pod| pod.name.cmp(&entry.pod.name)) {
            Ok(at) => {
                if let Some(slot) = group.pods.get_mut(at) {
                    *slot = entry.pod;
                }
            }
            Err(at) => group.pods.insert(at, entry.pod),
        }
        if let Some(old) = old {
            self.release(&old, strings);
        }
    }

    pub(super) fn remove(&mut self, name: &str, strings: &mut Strings) {
        if let Some(old) = self.pods.take(name) {
            self.remove_from_group(&old);
            self.release(&old, strings);
        }
    }

    pub(super) fn replace(&mut self, entries: BTreeSet<Entry>, strings: &mut Strings) {
        let removed: Vec<_> = self.pods.difference(&entries).map(|entry| Arc::clone(&entry.pod)).collect();
        for pod in removed {
            self.remove(&pod.name, strings);
        }
        for entry in entries {
            self.put(entry, strings);
        }
    }

    /// Releases the references of an entry that no reader can reach.
    pub(super) fn release(&mut self, entry: &Entry, strings: &mut Strings) {
        if let Some(requests) = self.requests.release(entry.requests) {
            Requests::release(&requests, strings);
        }
        if let Some(labels) = self.label_sets.release(entry.labels) {
            if let Some(index) = &mut self.sets_by_label {
                for label in labels.iter() {
                    index.remove(&(digest(label), entry.labels));
                }
            }
            Labels::release(&labels, strings);
            let group = self.groups.remove(&entry.labels).unwrap_or_default();
            for id in group.matched_by {
                if let Some(watched) = self.watched.get_mut(&id) {
                    watched.groups.retain(|set| *set != entry.labels);
                }
            }
        }
    }

    /// Returns the pods that a selector matches, by name.
    pub(super) fn select(&self, selector: &Selector) -> Vec<Arc<Pod>> {
        let mut pods = Vec::new();
        match self.watched_ids.get(selector).and_then(|id| self.watched.get(id)) {
            Some(watched) => {
                for group in watched.groups.iter().filter_map(|id| self.groups.get(id)) {
                    pods.extend(group.pods.iter().cloned());
                }
            }
            None => {
                for (id, labels) in self.label_sets.iter() {
                    if selector.matches(&**labels)
                        && let Some(group) = self.groups.get(&id)
                    {
                        pods.extend(group.pods.iter().cloned());
                    }
                }
            }
        }
        // Each group is already sorted, so this sort only merges runs.
        pods.sort_by(|one, other| one.name.cmp(&other.name));
        pods
    }

    /// Keeps the matches of a selector up to date until a matching call of [`Self::unwatch`].
    pub(super) fn watch(&mut self, selector: &Arc<Selector>) -> SelectorId {
        if let Some(id) = self.watched_ids.get(selector)
            && let Some(watched) = self.watched.get_mut(id)
        {
            watched.users += 1;
            return *id;
        }
        self.last_watched += 1;
        let id = self.last_watched;
        let mut groups = self.candidate_sets(selector);
        groups.retain(|set| self.label_sets.get(*set).is_some_and(|labels| selector.matches(&**labels)));
        for set in &groups {
            self.groups.entry(*set).or_default().matched_by.push(id);
        }
        let label = rarest(selector, |digest| self.selectors_by(Some(digest)));
        self.by_label.insert((label, id));
        self.watched.insert(id, Watched { selector: Arc::clone(selector), label, groups, users: 1 });
        self.watched_ids.insert(Arc::clone(selector), id);
        id
    }

    /// Removes one user of a watched selector.
    pub(super) fn unwatch(&mut self, id: SelectorId) {
        let Some(watched) = self.watched.get_mut(&id) else {
            return;
        };
        watched.users -= 1;
        if watched.users > 0 {
            return;
        }
        let Some(watched) = self.watched.remove(&id) else {
            return;
        };
        self.watched_ids.remove(&watched.selector);
        self.by_label.remove(&(watched.label, id));
        for set in &watched.groups {
            if let Some(group) = self.groups.get_mut(set) {
                group.matched_by.retain(|other| *other != id);
            }
        }
    }

    /// Returns the watched selectors that match a pod of the given selector. The selector itself is included if it
    /// matches any pod.
    pub(super) fn sharing(&self, id: SelectorId) -> BTreeSet<SelectorId> {
        let groups = self.watched.get(&id).into_iter().flat_map(|watched| &watched.groups);
        groups
            .filter_map(|set| self.groups.get(set))
            .filter(|group| !group.pods.is_empty())
            .flat_map(|group| group.matched_by.iter().copied())
            .collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.label_sets.len() == 0 && self.watched.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.pods.len()
    }

    pub(super) fn label_sets(&self) -> usize {
        self.label_sets.len()
    }

    pub(super) fn request_sets(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn watched(&self) -> usize {
        self.watched.len()
    }

    fn acquire_labels(&mut self, labels: &Labels<'_>, strings: &mut Strings) -> Id {
        let digest = labels.digest();
        if let Some(id) = self.label_sets.acquire(digest, |set| labels.same(set)) {
            return id;
        }
        let set = labels.intern(strings);
        let mut matched_by: Vec<_> = self
            .candidates(&set)
            .filter(|id| self.watched.get(id).is_some_and(|watched| watched.selector.matches(&set)))
            .collect();
        matched_by.sort_unstable();
        let set = self.label_sets.insert(digest, set);
        for id in &matched_by {
            if let Some(watched) = self.watched.get_mut(id) {
                watched.groups.push(set);
            }
        }
        self.groups.insert(set, Group { pods: Vec::new(), matched_by });
        self.index(set);
        set
    }

    /// Adds a new label set to the index. Creates the index if the set is the last of [`INDEXED`].
    fn index(&mut self, set: Id) {
        let sets = &self.label_sets;
        let entries = |set: Id| {
            let labels = sets.get(set).into_iter().flat_map(|labels| labels.iter());
            labels.map(move |label| (digest(label), set))
        };
        match &mut self.sets_by_label {
            Some(index) => index.extend(entries(set)),
            None if sets.len() >= INDEXED => {
                self.sets_by_label = Some(sets.iter().flat_map(|(set, _)| entries(set)).collect());
            }
            None => {}
        }
    }

    /// Returns the label sets that a selector may match: all sets that it matches, and in a namespace with many sets
    /// few that it does not match.
    fn candidate_sets(&self, selector: &Selector) -> Vec<Id> {
        if let Some(index) = &self.sets_by_label {
            let sets = |digest| index.range((digest, Id::MIN)..=(digest, Id::MAX)).map(|(_, set)| *set);
            if let Some(digest) = rarest(selector, sets) {
                return sets(digest).collect();
            }
        }
        self.label_sets.iter().map(|(set, _)| set).collect()
    }

    /// Returns the watched selectors that may match a label set: all selectors that match it, and few that do not.
    fn candidates(&self, labels: &LabelSet) -> impl Iterator<Item = SelectorId> {
        let digests = labels.iter().map(|label| Some(digest(label))).chain([None]);
        digests.flat_map(|digest| self.selectors_by(digest))
    }

    fn selectors_by(&self, label: Option<u64>) -> impl Iterator<Item = SelectorId> {
        self.by_label.range((label, SelectorId::MIN)..=(label, SelectorId::MAX)).map(|(_, id)| *id)
    }

    fn acquire_requests(&mut self, requests: &Requests<'_>, strings: &mut Strings) -> Id {
        let digest = requests.digest();
        if let Some(id) = self.requests.acquire(digest, |current| requests.same(current)) {
            return id;
        }
        self.requests.insert(digest, requests.intern(strings))
    }

    fn remove_from_group(&mut self, entry: &Entry) {
        if let Some(group) = self.groups.get_mut(&entry.labels)
            && let Ok(at) = group.pods.binary_search_by(|pod| pod.name.cmp(&entry.pod.name))
        {
            group.pods.remove(at);
            if group.pods.len() * 4 < group.pods.capacity() {
                group.pods.shrink_to(group.pods.len() * 2);
            }
        }
    }
}

/// Returns the digest of the required label with the fewest entries, in time proportional to their number. `None` if the
/// selector requires no particular label.
fn rarest<I: Iterator>(selector: &Selector, entries: impl Fn(u64) -> I) -> Option<u64> {
    let digests = selector.required_labels().map(digest);
    let mut walks: Vec<_> = digests.map(|digest| (digest, entries(digest))).collect();
    while !walks.is_empty() {
        let ended = walks.iter_mut().find_map(|(digest, walk)| walk.next().is_none().then_some(*digest));
        if ended.is_some() {
            return ended;
        }
    }
    None
}

/// Returns the digest of a label. A collision only adds a candidate.
fn digest(label: (&str, &str)) -> u64 {
    let mut hasher = DefaultHasher::new();
    label.hash(&mut hasher);
    hasher.finish()
}

impl Borrow<str> for Entry {
    fn borrow(&self) -> &str {
        &self.pod.name
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.pod.name == other.pod.name
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.pod.name.cmp(&other.pod.name)
    }
}

#[cfg(test)]
mod tests {
    use autoscaling::pod::Phase;

    use super::*;

    fn selector(text: &str) -> Arc<Selector> {
        Arc::new(Selector::parse(text).unwrap())
    }

    #[test]
    fn label_set_is_compared_with_few_of_many_selectors() {
        let mut namespace = Namespace::default();
        let ids: Vec<_> = (0..10_000).map(|n| namespace.watch(&selector(&format!("app=web-{n}")))).collect();
        let negative = namespace.watch(&selector("!canary"));
        let mut strings = Strings::default();
        let mut text = |text| strings.acquire(text);
        let labels = LabelSet::new([(text("app"), text("web-77")), (text("tier"), text("web-78"))]);
        assert_eq!(namespace.candidates(&labels).collect::<Vec<_>>(), [ids[77], negative]);
        for id in ids.into_iter().chain([negative]) {
            namespace.unwatch(id);
        }
        assert!(namespace.by_label.is_empty() && namespace.is_empty());
    }

    #[test]
    fn label_in_common_does_not_slow_down_selectors() {
        let mut namespace = Namespace::default();
        let watch = |n: u32| selector(&format!("all=of-them,app=web-{n}"));
        let ids: Vec<_> = (0..100).map(|n| namespace.watch(&watch(n))).collect();
        let mut strings = Strings::default();
        let mut text = |text| strings.acquire(text);
        let labels = LabelSet::new([(text("all"), text("of-them")), (text("app"), text("web-77"))]);
        assert_eq!(namespace.candidates(&labels).collect::<Vec<_>>(), [ids[0], ids[77]]);
        for id in ids {
            namespace.unwatch(id);
        }
        assert!(namespace.by_label.is_empty() && namespace.is_empty());
    }

    #[test]
    fn selector_is_compared_with_few_of_many_label_sets() {
        let (mut namespace, mut strings) = (Namespace::default(), Strings::default());
        let names: Vec<_> = (0..500).map(|n| format!("app-{n}")).collect();
        let mut sets = Vec::new();
        for name in &names {
            let input = PodInput {
                namespace: "shop",
                name,
                labels: &[("app".into(), name.as_str().into()), ("all".into(), "of-them".into())],
                terminating: false,
                phase: Phase::Running,
                start_time: None,
                ready: None,
                containers: &[],
                init_containers: &[],
                pod_level: &[],
            };
            let entry = namespace.entry(&input, &mut strings);
            sets.push(entry.labels);
            namespace.put(entry, &mut strings);
        }
        assert_eq!(namespace.candidate_sets(&selector("app=app-77")), [sets[77]]);
        assert!(namespace.candidate_sets(&selector("all=of-them,z=absent")).is_empty());
        assert_eq!(namespace.candidate_sets(&selector("all=of-them,app=app-77")), [sets[77]]);
        assert_eq!(namespace.candidate_sets(&selector("all=of-them,app!=app-77")), sets);
        assert_eq!(namespace.candidate_sets(&selector("app!=app-77")), sets);
        for n in [3, 400] {
            namespace.watch(&selector(&format!("app=app-{n}")));
            assert_eq!(namespace.select(&selector(&format!("app=app-{n}"))).len(), 1);
        }
        for name in &names {
            namespace.remove(name, &mut strings);
        }
        assert_eq!(namespace.sets_by_label.as_ref().map(BTreeSet::len), Some(0));
    }
}
