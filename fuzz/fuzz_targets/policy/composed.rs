//! Composes policies from known names and values. In contrast, the mutations of a text rarely have two valid fields.

use arbitrary::{Result, Unstructured};
use serde_json::{Map, Value};

/// The maximum depth of objects and lists.
const DEPTH: u8 = 4;
/// The names of fields at all levels.
const NAMES: &[&str] = &[
    "action",
    "activationReplicas",
    "allowedModes",
    "apiGroup",
    "authorization",
    "burst",
    "combine",
    "corrections",
    "cpuInitializationPeriodSeconds",
    "down",
    "downscaleStabilizationSeconds",
    "end",
    "failureDurationSeconds",
    "fallback",
    "from",
    "guards",
    "highestCeiling",
    "highestFloor",
    "ignoreContainersWithoutRequest",
    "initialReadinessDelaySeconds",
    "intervalSeconds",
    "kubelet",
    "labels",
    "limits",
    "maxAgeSeconds",
    "maxReplicas",
    "maxStep",
    "maximum",
    "metric",
    "metrics",
    "minReplicas",
    "mode",
    "name",
    "ownedPodsOnly",
    "path",
    "pendingPods",
    "pods",
    "port",
    "prometheus",
    "query",
    "rateSeconds",
    "reduce",
    "replicas",
    "rollout",
    "schedules",
    "selector",
    "series",
    "server",
    "shortestSyncPeriodSeconds",
    "source",
    "stableWindowSeconds",
    "start",
    "statusPrecision",
    "strategy",
    "syncPeriodSeconds",
    "thresholdPercent",
    "timeZone",
    "to",
    "tolerance",
    "unschedulableOnly",
    "until",
    "up",
    "when",
    "windowSeconds",
    "zeroMetrics",
];
/// Values of text fields, both valid and invalid.
const TEXTS: &[&str] = &[
    "",
    "*",
    "/m",
    "0 18 * * *",
    "0 8 * * 1-5",
    "10%",
    "2030-01-01T00:00:00Z",
    "2030-01-02T00:00:00+01:00",
    "AtLeast",
    "Auto",
    "DryRun",
    "Empty",
    "Error",
    "Europe/Berlin",
    "Hold",
    "Ignore",
    "LastValue",
    "Max",
    "Min",
    "Paused",
    "Pinned",
    "Replicas",
    "ScaleDownOnly",
    "ScaleUpOnly",
    "Sum",
    "a",
    "cpu",
    "http",
    "main",
    "up",
];

/// Composes a policy as JSON.
pub fn policy(input: &[u8]) -> Result<String> {
    Ok(object(&mut Unstructured::new(input), DEPTH)?.to_string())
}

fn object(u: &mut Unstructured, depth: u8) -> Result<Value> {
    let mut fields = Map::new();
    while fields.len() < NAMES.len() && u.arbitrary::<u8>()? % 4 != 0 {
        fields.insert((*u.choose(NAMES)?).to_owned(), value(u, depth - 1)?);
    }
    Ok(Value::Object(fields))
}

fn value(u: &mut Unstructured, depth: u8) -> Result<Value> {
    Ok(match u.arbitrary::<u8>()? % 6 {
        0 if depth > 0 => object(u, depth)?,
        1 if depth > 0 => {
            let mut items = Vec::new();
            while items.len() < 8 && u.arbitrary::<u8>()? % 4 != 0 {
                items.push(value(u, depth - 1)?);
            }
            Value::Array(items)
        }
        2 => u.arbitrary::<bool>()?.into(),
        3 => u.arbitrary::<u8>()?.into(),
        4 => (f64::from(u.arbitrary::<i16>()?) / 8.0).into(),
        _ => (*u.choose(TEXTS)?).into(),
    })
}
