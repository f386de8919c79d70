use autoscaling::spec::Spec;
use clock::SystemClock;
use serde_json::json;
use serde_json::value::RawValue;

use super::*;

fn registry() -> Arc<Charges> {
    Charges::new(ControllerName::default(), Duration::from_secs(15), Arc::new(SystemClock))
}

fn hpa(name: &str, uid: &str, target: &str) -> HpaRecord {
    let spec: Spec = serde_json::from_value(json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}, "maxReplicas": 3,
    }))
    .unwrap();
    HpaRecord {
        key: Key::new("shop", name),
        uid: uid.into(),
        generation: None,
        resource_version: "1".to_owned(),
        metadata: RawValue::from_string("{}".to_owned()).unwrap(),
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
    charges.enter(&hpa("a", "1", "web"), By::Hpa);
    charges.enter(&hpa("b", "2", "web"), By::Namespace);
    charges.enter(&hpa("c", "3", "web-2"), By::Hpa);
    assert_eq!(targets(&charges, "web"), ["apps Deployment a", "apps Deployment b"]);
    charges.enter(&hpa("a", "1", "web-2"), By::Hpa);
    assert_eq!(targets(&charges, "web"), ["apps Deployment b"]);
    assert_eq!(targets(&charges, "web-2"), ["apps Deployment a", "apps Deployment c"]);
    assert!(charges.leave(&Key::new("shop", "b")) && !charges.leave(&Key::new("shop", "b")));
    assert!(targets(&charges, "web").is_empty() && charges.targets("other", "web-2").is_empty());
    assert!(charges.is_in_scope("shop", "a") && !charges.is_in_scope("shop", "b"));
}

#[tokio::test(start_paused = true)]
async fn each_time_in_charge_is_another_term() {
    let (charges, key) = (registry(), Key::new("shop", "a"));
    charges.guard(GuardProof::Proven { since: Timestamp::UNIX_EPOCH });
    charges.lead(false);
    charges.enter(&hpa("a", "1", "web"), By::Hpa);
    assert_eq!((charges.term(&key), charges.counts()), (None, Counts { claiming: 1, ..Counts::default() }));
    let settled = async |charges: &Charges| {
        tokio::time::sleep_until(charges.next().unwrap()).await;
        charges.tick();
        charges.term(&key)
    };
    let first = settled(&charges).await;
    assert!(first.is_some());
    assert_eq!(charges.counts(), Counts { in_charge: 1, ..Counts::default() });
    assert!(matches!(charges.output(), Some((_, Output::InCharge { .. }))));
    // The label goes and returns at once.
    charges.leave(&key);
    assert_eq!(charges.term(&key), None);
    charges.enter(&hpa("a", "1", "web"), By::Hpa);
    let second = settled(&charges).await;
    assert!(second.is_some() && second != first);
    // Another HPA of the same name.
    charges.enter(&hpa("a", "2", "web"), By::Hpa);
    assert_eq!(charges.term(&key), None);
    assert!(settled(&charges).await > second);
    let writer = StatusWriter { manager: "kube-controller-manager".into(), at: Timestamp::UNIX_EPOCH };
    assert!(charges.foreign_write(&key, &writer) && !charges.foreign_write(&key, &writer));
    assert_eq!(charges.term(&key), None);
    let row = charges.row(&key).unwrap();
    assert_eq!((row.state, row.last_foreign_write), (State::Contested, Some(writer)));
    charges.write_refused("shop", "a", Instant::now());
    assert!(charges.row(&key).unwrap().last_refused_write.is_some());
    charges.write_refused("shop", "unknown", Instant::now());
}
