//! Generated names that resemble Kubernetes' names but are equal in every run.

use crate::store::letters;

/// Returns the hash of a pod template, such as `5d9c7b8f6d`. The hash distinguishes the ReplicaSets of one
/// Deployment.
pub(super) fn template_hash(template: &serde_json::Value) -> String {
    letters(fnv(template.to_string().as_bytes()), 10)
}

/// Returns the name suffix of the `count`-th pod of a workload, such as `abcde`.
pub(super) fn pod_suffix(workload: &str, count: u64) -> String {
    letters(fnv(format!("{workload}/{count}").as_bytes()), 5)
}

/// Computes FNV-1a with a final mix, so that a difference in the last character affects all digits.
fn fnv(bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mixed = (hash ^ (hash >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::{pod_suffix, template_hash};

    #[test]
    fn pod_suffixes_are_unique_and_have_five_letters() {
        let names: BTreeSet<_> = (0..1_000).map(|count| pod_suffix("web-5d9c7b8f6d", count)).collect();
        assert_eq!(names.len(), 1_000);
        assert!(names.iter().all(|name| name.len() == 5));
    }

    #[test]
    fn template_hashes_are_equal_only_for_equal_templates() {
        let one = json!({"spec": {"containers": [{"image": "web:1"}]}});
        let two = json!({"spec": {"containers": [{"image": "web:2"}]}});
        assert_eq!(template_hash(&one), template_hash(&one.clone()));
        assert_ne!(template_hash(&one), template_hash(&two));
    }
}
