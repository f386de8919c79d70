//! The state of the HPAs in scope, by key, by target and by due time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use autoscaling::status::CrossVersionObjectReference;
use jiff::Timestamp;
use tokio::time::Instant;

use super::membership::Outside;
use super::{ChargeRow, GuardProof};
use crate::handover::machine::{Charge, Input, Output, State};
use crate::handover::scope::By;
use engine::store::{HpaRecord, Key, StatusWriter};

#[derive(Debug, Default)]
pub(super) struct Inner {
    pub(super) is_synced: bool,
    pub(super) leads: bool,
    pub(super) guard: GuardProof,
    /// The value of the label, by namespace. A namespace without the label has no entry.
    pub(super) namespaces: BTreeMap<Arc<str>, Arc<str>>,
    /// Namespaces that are new in scope, with HPAs that are not in the store.
    pub(super) adopting: BTreeSet<Arc<str>>,
    pub(super) outside: Outside,
    pub(super) hpas: BTreeMap<Key, Entry>,
    /// For each HPA: its namespace, the name of its target, and its name.
    pub(super) by_target: BTreeSet<(Arc<str>, Arc<str>, Arc<str>)>,
    /// The due times of the machines.
    pub(super) timers: BTreeSet<(Instant, Key)>,
    /// The tasks of the driver.
    pub(super) outputs: VecDeque<(Key, Output)>,
    /// The number of the last term.
    pub(super) terms: u64,
    pub(super) last_proof: Option<Timestamp>,
}

/// An HPA in scope.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) uid: Arc<str>,
    pub(super) version: Option<u64>,
    pub(super) by: By,
    pub(super) target: CrossVersionObjectReference,
    pub(super) charge: Charge,
    pub(super) since: Timestamp,
    /// The number of the current term. `None` while this instance is not in charge of the HPA.
    pub(super) term: Option<u64>,
    pub(super) timer: Option<Instant>,
    pub(super) last_foreign_write: Option<StatusWriter>,
    pub(super) last_refused_write: Option<Timestamp>,
}

impl Inner {
    /// Puts an HPA in scope, or updates it. Returns whether the HPA is new in scope.
    pub(super) fn enter(
        &mut self,
        hpa: &HpaRecord,
        version: Option<u64>,
        by: By,
        period: Duration,
        at: Timestamp,
    ) -> bool {
        if self.hpas.get(&hpa.key).is_some_and(|entry| entry.uid != hpa.uid) {
            self.remove(&hpa.key);
        }
        let target = &hpa.spec.target;
        if let Some(entry) = self.hpas.get_mut(&hpa.key) {
            (entry.by, entry.version) = (by, version);
            if entry.target != *target {
                let old = std::mem::replace(&mut entry.target, target.clone());
                self.by_target.remove(&index(&hpa.key, &old));
                self.by_target.insert(index(&hpa.key, target));
            }
            return false;
        }
        let entry = Entry {
            uid: Arc::clone(&hpa.uid),
            version,
            by,
            target: target.clone(),
            charge: Charge::new(hpa.key.clone(), period, self.guard.state()),
            since: at,
            term: None,
            timer: None,
            last_foreign_write: None,
            last_refused_write: None,
        };
        self.by_target.insert(index(&hpa.key, target));
        self.hpas.insert(hpa.key.clone(), entry);
        true
    }

    pub(super) fn has_hpas_in(&self, namespace: &Arc<str>) -> bool {
        let from = Key { namespace: Arc::clone(namespace), name: Arc::default() };
        self.hpas.range(from..).next().is_some_and(|(key, _)| key.namespace == *namespace)
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        self.hpas.keys().cloned().collect()
    }

    pub(super) fn step(&mut self, key: &Key, input: Input, now: Instant, at: Timestamp) {
        let Some(entry) = self.hpas.get_mut(key) else { return };
        let before = entry.charge.state();
        let output = entry.charge.step(input, now);
        let state = entry.charge.state();
        if state != before {
            entry.since = at;
            entry.term = (state == State::InCharge).then(|| {
                self.terms += 1;
                self.terms
            });
        }
        let next = entry.charge.next();
        if entry.timer != next {
            if let Some(timer) = entry.timer.take() {
                self.timers.remove(&(timer, key.clone()));
            }
            entry.timer = next;
            self.timers.extend(next.map(|next| (next, key.clone())));
        }
        self.outputs.extend(output.map(|output| (key.clone(), output)));
    }

    pub(super) fn remove(&mut self, key: &Key) -> bool {
        let Some(entry) = self.hpas.remove(key) else { return false };
        self.by_target.remove(&index(key, &entry.target));
        if let Some(timer) = entry.timer {
            self.timers.remove(&(timer, key.clone()));
        }
        true
    }
}

impl Entry {
    pub(super) fn row(&self, key: &Key) -> ChargeRow {
        ChargeRow {
            key: key.clone(),
            by: self.by,
            state: self.charge.state(),
            since: self.since,
            last_foreign_write: self.last_foreign_write.clone(),
            last_refused_write: self.last_refused_write,
        }
    }
}

fn index(key: &Key, target: &CrossVersionObjectReference) -> (Arc<str>, Arc<str>, Arc<str>) {
    (Arc::clone(&key.namespace), target.name.as_str().into(), Arc::clone(&key.name))
}

#[cfg(test)]
mod tests {
    use autoscaling::spec::Spec;
    use clock::SystemClock;
    use serde_json::json;
    use serde_json::value::RawValue;

    use super::*;
    use crate::handover::charges::{Charges, Counts, Placement, TargetKind};
    use crate::handover::scope::ControllerName;

    fn registry() -> Arc<Charges> {
        Charges::new(ControllerName::default(), Duration::from_secs(15), false, Arc::new(SystemClock))
    }

    fn hpa(name: &str, uid: &str, target: &str) -> HpaRecord {
        labelled(name, uid, target, &json!({"concertina.dev/controller": "concertina"}))
    }

    fn labelled(name: &str, uid: &str, target: &str, labels: &serde_json::Value) -> HpaRecord {
        let spec: Spec = serde_json::from_value(json!({
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}, "maxReplicas": 3,
        }))
        .unwrap();
        HpaRecord {
            key: Key::new("shop", name),
            uid: uid.into(),
            generation: None,
            resource_version: "1".to_owned(),
            metadata: RawValue::from_string(json!({ "labels": labels }).to_string()).unwrap(),
            spec_raw: RawValue::from_string("{}".to_owned()).unwrap().into(),
            spec: Arc::new(spec),
            status: Arc::default(),
            status_writers: Vec::new(),
        }
    }

    fn targets(charges: &Charges, name: &str) -> Vec<String> {
        let kinds = charges.targets("shop", name).into_iter();
        kinds.map(|TargetKind { group, kind, hpa }| format!("{group} {kind} {hpa}")).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn targets_follow_the_hpas_in_scope() {
        let charges = registry();
        charges.sort(&hpa("a", "1", "web"), false);
        charges.sort(&hpa("b", "2", "web"), false);
        charges.sort(&hpa("c", "3", "web-2"), false);
        assert_eq!(targets(&charges, "web"), ["apps Deployment a", "apps Deployment b"]);
        charges.sort(&hpa("a", "1", "web-2"), false);
        assert_eq!(targets(&charges, "web"), ["apps Deployment b"]);
        assert_eq!(targets(&charges, "web-2"), ["apps Deployment a", "apps Deployment c"]);
        charges.delete(&Key::new("shop", "b"), "another");
        assert_eq!(targets(&charges, "web"), ["apps Deployment b"]);
        assert_eq!(charges.sort(&labelled("b", "2", "web", &json!({})), false), Placement::Outside);
        assert!(targets(&charges, "web").is_empty() && charges.targets("other", "web-2").is_empty());
        assert!(charges.is_in_scope("shop", "a") && !charges.is_in_scope("shop", "b"));
    }

    #[tokio::test(start_paused = true)]
    async fn each_time_in_charge_is_another_term() {
        let (charges, key) = (registry(), Key::new("shop", "a"));
        charges.guard(GuardProof::Proven { since: Timestamp::UNIX_EPOCH });
        charges.lead(false);
        charges.sort(&hpa("a", "1", "web"), false);
        assert_eq!(
            (charges.term(&key), charges.counts()),
            (None, Counts { claiming: 1, ..Counts::default() })
        );
        let settled = async |charges: &Charges| {
            tokio::time::sleep_until(charges.next().unwrap()).await;
            charges.tick();
            charges.term(&key)
        };
        let first = settled(&charges).await;
        assert!(first.is_some());
        assert_eq!(charges.counts(), Counts { in_charge: 1, ..Counts::default() });
        assert!(matches!(charges.output(), Some((_, Output::InCharge { .. }))));
        // The label is removed, and immediately added again.
        charges.sort(&labelled("a", "1", "web", &json!(null)), false);
        assert_eq!(charges.term(&key), None);
        charges.sort(&hpa("a", "1", "web"), false);
        let second = settled(&charges).await;
        assert!(second.is_some() && second != first);
        // An HPA with the same name and another UID.
        charges.sort(&hpa("a", "2", "web"), false);
        assert_eq!(charges.term(&key), None);
        assert!(settled(&charges).await > second);
        let writer = StatusWriter { manager: "kube-controller-manager".into(), at: Timestamp::UNIX_EPOCH };
        assert!(charges.foreign_write(&key, &writer) && !charges.foreign_write(&key, &writer));
        assert_eq!(charges.term(&key), None);
        let row = charges.row(&key).unwrap();
        assert_eq!((row.state, row.last_foreign_write), (State::Contested, Some(writer)));
        charges.write_refused("shop", "a");
        assert!(charges.row(&key).unwrap().last_refused_write.is_some());
        charges.write_refused("shop", "unknown");
    }

    #[test]
    fn older_version_of_an_event_changes_no_membership() {
        let charges = registry();
        let at = |version: &str, labels| HpaRecord {
            resource_version: version.to_owned(),
            ..labelled("a", "1", "web", &labels)
        };
        let ours = json!({"concertina.dev/controller": "concertina"});
        assert_eq!(charges.sort(&at("10", json!({})), false), Placement::Outside);
        assert_eq!(charges.sort(&at("9", ours.clone()), false), Placement::Unchanged);
        assert!(charges.is_outside(&Key::new("shop", "a")));
        assert_eq!(charges.sort(&at("11", ours), false), Placement::Store { is_new: true });
        assert_eq!(charges.sort(&at("10", json!({})), false), Placement::Unchanged);
        assert!(charges.is_in_scope("shop", "a") && !charges.is_outside(&Key::new("shop", "a")));
        // A list after a restore of etcd can contain an older version.
        assert_eq!(charges.sort(&at("5", json!({})), true), Placement::Outside);
    }

    #[test]
    fn neighbours_are_the_hpas_out_of_scope_beside_hpas_in_scope() {
        let charges = registry();
        let (a, b) = (Key::new("shop", "a"), Key::new("shop", "b"));
        charges.sort(&labelled("b", "2", "web", &json!({})), true);
        assert_eq!((charges.neighbour(&b), charges.neighbours(None)), (None, vec![]));
        charges.sort(&hpa("a", "1", "web"), true);
        assert_eq!(charges.neighbour(&b).unwrap().name, "web");
        assert_eq!(charges.neighbours(Some(&"other".into())), []);
        assert_eq!((charges.neighbours(None), charges.neighbour(&a)), (vec![b], None));
        charges.retain_outside(Some("other"), &BTreeSet::new());
        assert_eq!(charges.counts().outside, 1);
        charges.retain_outside(None, &BTreeSet::new());
        assert_eq!(charges.neighbours(None), []);
    }

    #[test]
    fn namespace_new_in_scope_is_read_if_it_has_hpas_outside() {
        let charges = registry();
        assert!(charges.label_namespace("shop", Some("concertina")) && charges.label_namespace("shop", None));
        assert_eq!(charges.adopting(), None);
        charges.sort(&labelled("b", "2", "web", &json!({})), true);
        assert!(charges.label_namespace("shop", Some("another")));
        assert_eq!(charges.adopting(), None);
        assert!(charges.label_namespace("shop", Some("concertina")));
        assert!(!charges.label_namespace("shop", Some("concertina")));
        assert_eq!((charges.adopting().as_deref(), charges.adopting()), (Some("shop"), None));
        // The namespace now has the label of another instance.
        charges.label_namespace("shop", Some("another"));
        charges.adopt_again("shop".into());
        assert_eq!(charges.adopting(), None);
    }
}
