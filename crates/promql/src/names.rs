//! The names of the pods that a workload has had: the value of `$pods` for times before the current pods existed.

/// The pattern by which pod names derive from the name of the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodNames {
    /// `web-7d9f8c6b5-x2k4q`: a Deployment, or another kind that creates ReplicaSets.
    OfReplicaSets,
    /// `web-0`: a StatefulSet.
    Numbered,
    /// `web-x2k4q`: a ReplicaSet or a ReplicationController.
    Random,
}

/// The length of the random part of a pod's name.
const RANDOM: usize = 5;

impl PodNames {
    /// The pattern for workloads of `kind`.
    pub fn from_kind(kind: &str) -> Self {
        match kind {
            "StatefulSet" => Self::Numbered,
            "ReplicaSet" | "ReplicationController" => Self::Random,
            _ => Self::OfReplicaSets,
        }
    }

    /// The regular expression after the name of the workload. It needs no escape within a string.
    pub(crate) const fn expression(self) -> &'static str {
        match self {
            Self::OfReplicaSets => "-[a-z0-9]+-[a-z0-9]{5}",
            Self::Numbered => "-[0-9]+",
            Self::Random => "-[a-z0-9]{5}",
        }
    }

    /// Whether a pod of `workload` can have the name `pod`.
    pub fn is_pod(self, workload: &str, pod: &str) -> bool {
        let Some(rest) = pod.strip_prefix(workload).and_then(|rest| rest.strip_prefix('-')) else {
            return false;
        };
        let is_word = |text: &str| {
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        let is_random = |text: &str| is_word(text) && text.len() == RANDOM;
        match self {
            Self::OfReplicaSets => {
                rest.split_once('-').is_some_and(|(hash, random)| is_word(hash) && is_random(random))
            }
            Self::Numbered => !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()),
            Self::Random => is_random(rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_pod_follows_from_its_workload() {
        for (kind, pod, expected) in [
            ("Deployment", "web-7d9f8c6b5-x2k4q", true),
            ("Rollout", "web-7d9f8c6b5-x2k4q", true),
            ("Deployment", "web-admin-7d9f8c6b5-x2k4q", false),
            ("Deployment", "web-admin-0", false),
            ("Deployment", "web-x2k4q", false),
            ("Deployment", "website-7d9f8c6b5-x2k4q", false),
            ("StatefulSet", "web-10", true),
            ("StatefulSet", "web-", false),
            ("StatefulSet", "web-0a", false),
            ("ReplicaSet", "web-x2k4q", true),
            ("ReplicaSet", "web-x2k4q7", false),
            ("ReplicaSet", "web", false),
        ] {
            assert_eq!(PodNames::from_kind(kind).is_pod("web", pod), expected, "{kind} {pod}");
        }
    }
}
