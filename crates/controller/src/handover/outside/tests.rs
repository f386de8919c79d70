use super::*;

fn target(kind: &str, name: &str) -> CrossVersionObjectReference {
    CrossVersionObjectReference {
        kind: kind.to_owned(),
        name: name.to_owned(),
        api_version: "apps/v1".to_owned(),
    }
}

#[test]
fn kinds_are_shared_and_dropped_with_their_last_user() {
    let mut outside = Outside::default();
    let (a, b) = (Key::new("shop", "a"), Key::new("shop", "b"));
    outside.put(&a, Some(1), &target("Deployment", "a"));
    outside.put(&b, Some(1), &target("Deployment", "b"));
    assert!(Arc::ptr_eq(&outside.get(&a).unwrap().kind, &outside.get(&b).unwrap().kind));
    assert_eq!((outside.len(), outside.kinds.len()), (2, 1));
    outside.put(&a, Some(2), &target("StatefulSet", "a"));
    assert_eq!(outside.kinds.len(), 2);
    assert_eq!(outside.get(&a).unwrap().target(), target("StatefulSet", "a"));
    // A new version of the only HPA of a kind.
    outside.put(&a, Some(3), &target("ReplicaSet", "a"));
    assert_eq!(outside.kinds.len(), 2);
    outside.remove(&b);
    assert_eq!((outside.len(), outside.kinds.len()), (1, 1));
    outside.remove(&b);
    outside.remove(&a);
    assert_eq!((outside.len(), outside.kinds.len()), (0, 0));
}

#[test]
fn hpas_of_a_namespace_share_its_name_and_are_found_by_it() {
    let mut outside = Outside::default();
    let keys = [("bank", "z"), ("shop", "a"), ("shop", "b"), ("shop-2", "c")].map(|(n, h)| Key::new(n, h));
    for key in &keys {
        outside.put(key, None, &target("Deployment", "web"));
    }
    let stored: Vec<_> = outside.hpas.keys().filter(|key| &*key.namespace == "shop").collect();
    assert!(Arc::ptr_eq(&stored[0].namespace, &stored[1].namespace));
    assert_eq!(outside.keys_in(&"shop".into()).collect::<Vec<_>>(), keys[1..3]);
    assert_eq!(outside.keys_in(&"other".into()).count(), 0);
}

#[test]
fn hpas_that_a_list_lacks_are_dropped_with_their_kinds() {
    let mut outside = Outside::default();
    let keys = [("shop", "a"), ("shop", "b"), ("bank", "c")].map(|(n, h)| Key::new(n, h));
    for (key, kind) in keys.iter().zip(["Deployment", "StatefulSet", "ReplicaSet"]) {
        outside.put(key, None, &target(kind, "web"));
    }
    outside.retain(Some("shop"), &[keys[0].clone()].into());
    assert_eq!(outside.hpas.keys().cloned().collect::<Vec<_>>(), [keys[2].clone(), keys[0].clone()]);
    assert_eq!(outside.kinds.len(), 2);
    outside.retain(None, &[keys[0].clone()].into());
    assert_eq!((outside.len(), outside.kinds.len()), (1, 1));
}
