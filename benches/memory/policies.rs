//! Policies and the HPAs that they match, stored and matched as the watches and the syncs do.

use std::error::Error;

use cluster::decode;
use cluster::watch::Watched as _;
use controller::policy::{GROUP, Kind, Policies, VERSION};
use controller::store::HpaRecord;
use serde_json::json;

use super::objects::{PER_NAMESPACE, app, hpa, namespace, status, uid};
use super::resident_bytes;

const HPAS: usize = 10_000;
/// Number of HPAs that each ScalingPolicy matches.
const PER_POLICY: usize = 10;
/// Maximum memory of the match of an HPA, in bytes.
const BYTES_PER_MATCH: usize = 300;

/// Matches HPAs with ScalingPolicies, each for ten HPAs, and with one ClusterScalingPolicy for all HPAs.
pub(super) fn measure() -> Result<(), Box<dyn Error>> {
    let policies = Policies::default();
    let mut hpas = Vec::with_capacity(HPAS);
    for number in 0..HPAS {
        let object = hpa(number, 4_000_000 + number, &status(1));
        hpas.push(HpaRecord::from(decode::hpa(object.as_bytes())?));
    }
    let before = resident_bytes()?;
    policies.apply_object(Kind::Cluster.decode(cluster_policy().as_bytes())?);
    let count = HPAS / PER_POLICY;
    for number in 0..count {
        policies.apply_object(Kind::Namespaced.decode(policy(number).as_bytes())?);
    }
    let stored = resident_bytes()?;
    // Ten HPAs share a merged policy. The first of them to match creates the merged policy.
    let matched = |offset: usize| {
        hpas.iter().skip(offset).step_by(PER_POLICY).filter(|hpa| policies.applies_to(hpa)).count()
    };
    let first = matched(0);
    let merged = resident_bytes()?;
    let all = first + (1..PER_POLICY).map(matched).sum::<usize>();
    if all != HPAS {
        return Err(format!("{all} of {HPAS} HPAs match").into());
    }
    let bytes = resident_bytes()?.saturating_sub(merged) / (HPAS - first);
    println!(
        "{count} policies for {HPAS} HPAs: {} B per policy, {} B per merged policy with its first HPA, {bytes} B per \
         other HPA",
        stored.saturating_sub(before) / count,
        merged.saturating_sub(stored) / count,
    );
    if bytes > BYTES_PER_MATCH {
        return Err(format!("{bytes} B per matched HPA is more than {BYTES_PER_MATCH}").into());
    }
    Ok(())
}

fn policy(number: usize) -> String {
    let first = number * PER_POLICY;
    debug_assert_eq!(PER_NAMESPACE % PER_POLICY, 0, "the HPAs of a policy are in one namespace");
    let names: Vec<_> = (first..first + PER_POLICY).map(app).collect();
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": Kind::Namespaced.as_str(),
        "metadata": {
            "name": format!("team-{number}"), "namespace": namespace(first), "uid": uid(3, number),
            "resourceVersion": "7", "generation": 1, "creationTimestamp": "2026-03-01T09:58:12Z",
        },
        "spec": {
            "selector": {"matchExpressions": [
                {"key": "app.kubernetes.io/name", "operator": "In", "values": names},
            ]},
            "tolerance": 0.2,
            "schedules": [{
                "name": "business-hours", "timeZone": "Europe/Berlin", "start": "0 8 * * 1-5", "end": "0 19 * * 1-5",
                "minReplicas": 4,
            }],
        },
    })
    .to_string()
}

fn cluster_policy() -> String {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": Kind::Cluster.as_str(),
        "metadata": {
            "name": "platform", "uid": uid(3, HPAS), "resourceVersion": "7", "generation": 1,
            "creationTimestamp": "2026-03-01T09:58:12Z",
        },
        "spec": {"guards": {"maxStep": {"up": "100%"}}, "limits": {"highestFloor": 50}},
    })
    .to_string()
}
