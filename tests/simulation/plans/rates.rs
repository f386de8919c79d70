//! Rules for the written counts under every fault: no policy is exceeded over any of its periods, and no
//! count is written twice. Separate code checks them on the API server's side, independent of the
//! controller's history.

use std::time::Duration;

use serde_json::Value;

use super::fault_injector::Write;

/// Returns the violations of the rules.
pub(crate) fn broken(writes: &[Write]) -> Vec<String> {
    let mut found = Vec::new();
    for (number, write) in writes.iter().enumerate() {
        let Write { at, path, from, to, hpa } = write;
        let (min, max) = (
            hpa["spec"]["minReplicas"].as_i64().unwrap_or(1),
            hpa["spec"]["maxReplicas"].as_i64().unwrap_or(0),
        );
        if from == to {
            found.push(format!("{path} was set to {to} at {at:?}, which is the current count"));
        } else if hpa.is_object() && !(min..=max).contains(to) {
            found.push(format!("{path} was set to {to} at {at:?}, which is not in {min}..={max}"));
        } else if let Some(limit) = limit(write, &writes[..number], min, max) {
            let exceeds = if to > from { *to > limit } else { *to < limit };
            if exceeds {
                found.push(format!(
                    "{path} was set from {from} to {to} at {at:?}; its policies allow {limit}"
                ));
            }
        }
    }
    found
}

/// The maximum or minimum count that the policies of a direction allow, or `None` without policies. A count
/// out of bounds may return to them at once.
fn limit(write: &Write, before: &[Write], min: i64, max: i64) -> Option<i64> {
    let Write { at, path, from, to, hpa } = write;
    let up = to > from;
    let rules = &hpa["spec"]["behavior"][if up { "scaleUp" } else { "scaleDown" }];
    let policies = rules["policies"].as_array()?;
    if (*from < min && *to == min) || (*from > max && *to == max) {
        return None;
    }
    let limits = policies.iter().map(|policy| {
        let period = Duration::from_secs(policy["periodSeconds"].as_u64().unwrap_or(0));
        let recent = before.iter().filter(|other| {
            other.path == *path
                && other.hpa["metadata"]["uid"] == hpa["metadata"]["uid"]
                && other.at + period > *at
        });
        let changed: i64 = recent.map(|other| other.to - other.from).sum();
        after(from - changed, policy, up)
    });
    let (least, most) = (limits.clone().min(), limits.max());
    match (rules["selectPolicy"].as_str(), up) {
        (Some("Disabled"), _) => Some(*from),
        (Some("Min"), true) | (Some("Max") | None, false) => least,
        _ => most,
    }
}

/// The limit of one policy for the count at the start of its period.
fn after(start: i64, policy: &Value, up: bool) -> i64 {
    let value = policy["value"].as_i64().unwrap_or(0);
    match (policy["type"].as_str(), up) {
        (Some("Pods"), true) => start + value,
        (Some("Pods"), false) => start - value,
        (_, true) => (start * (100 + value) + 99).div_euclid(100),
        (_, false) => start * (100 - value) / 100,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn write(at: u64, from: i64, to: i64) -> Write {
        let policies = json!([{"type": "Pods", "value": 2, "periodSeconds": 60}]);
        let rules = json!({ "policies": policies });
        let hpa = json!({"spec": {
            "minReplicas": 1, "maxReplicas": 10, "behavior": {"scaleUp": rules, "scaleDown": rules},
        }});
        Write { at: Duration::from_secs(at), path: "web".to_owned(), from, to, hpa }
    }

    #[test]
    fn policy_of_two_pods_a_minute_holds_in_any_minute() {
        assert_eq!(broken(&[write(0, 2, 4), write(60, 4, 6), write(200, 6, 4)]), [""; 0]);
        let found = broken(&[write(0, 2, 4), write(59, 4, 5)]);
        assert_eq!(found, ["web was set from 4 to 5 at 59s; its policies allow 4"]);
        let found = broken(&[write(0, 6, 4), write(30, 4, 3)]);
        assert_eq!(found, ["web was set from 4 to 3 at 30s; its policies allow 4"]);
    }

    #[test]
    fn count_is_not_written_twice_and_stays_within_its_bounds() {
        assert_eq!(broken(&[write(0, 4, 4)]).len(), 1);
        assert_eq!(broken(&[write(0, 10, 12)]).len(), 1);
        // A return to the bounds is not limited by policies.
        assert_eq!(broken(&[write(0, 15, 10)]), [""; 0]);
    }
}
