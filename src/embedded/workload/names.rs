//! Names that look like the ones Kubernetes generates, but are the same in every run.

/// No vowels and no look-alikes: the letters of Kubernetes' generated names.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The hash of a pod template that tells replica sets of one Deployment apart: `5d9c7b8f6d`.
pub(super) fn template_hash(template: &serde_json::Value) -> String {
    spell(fnv(template.to_string().as_bytes()), 10)
}

/// The end of the name of the `count`-th pod of a workload: `abcde`.
pub(super) fn pod_suffix(workload: &str, count: u64) -> String {
    spell(fnv(format!("{workload}/{count}").as_bytes()), 5)
}

fn spell(mut number: u64, length: usize) -> String {
    let mut text = String::with_capacity(length);
    for _ in 0..length {
        let letter =
            usize::try_from(number % 27).ok().and_then(|at| LETTERS.get(at)).copied().unwrap_or(b'x');
        text.push(char::from(letter));
        number /= 27;
    }
    text
}

/// FNV-1a with a final mix, so that texts which differ in their last character only differ everywhere.
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
    fn the_pods_of_a_workload_have_different_names_of_five_letters() {
        let names: BTreeSet<_> = (0..1_000).map(|count| pod_suffix("web-5d9c7b8f6d", count)).collect();
        assert_eq!(names.len(), 1_000);
        assert!(names.iter().all(|name| name.len() == 5));
    }

    #[test]
    fn equal_templates_have_equal_hashes_and_different_ones_do_not() {
        let one = json!({"spec": {"containers": [{"image": "web:1"}]}});
        let two = json!({"spec": {"containers": [{"image": "web:2"}]}});
        assert_eq!(template_hash(&one), template_hash(&one.clone()));
        assert_ne!(template_hash(&one), template_hash(&two));
    }
}
