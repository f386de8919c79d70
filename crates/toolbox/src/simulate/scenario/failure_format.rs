//! The format of failures in a scenario file.

use schemars::JsonSchema;
use serde::Deserialize;

use super::format::DistributionFile;
use super::values::{Length, Share};

/// A failure of some of a workload's pods.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Failure")]
pub(crate) enum FailureFile {
    /// Containers exit repeatedly and restart with increasing back-off.
    CrashLoop {
        /// The start time, since the start of the scenario.
        #[serde(default)]
        from: Length,
        /// The length; to the end of the scenario by default.
        r#for: Option<Length>,
        /// The fraction of the pods.
        fraction: Share,
        /// The time a container runs before it exits. If it is longer than the startup, the pod is ready for
        /// a while.
        #[serde(default)]
        runs_for: Length,
    },
    /// Pods created in the given period never become ready.
    NeverReady {
        /// The start time, since the start of the scenario.
        #[serde(default)]
        from: Length,
        /// The length; to the end of the scenario by default.
        r#for: Option<Length>,
        /// The fraction of the pods created in the period.
        fraction: Share,
    },
    /// The readiness probes of running pods fail.
    Unready {
        /// The start time, since the start of the scenario.
        #[serde(default)]
        from: Length,
        /// The length; to the end of the scenario by default.
        r#for: Option<Length>,
        /// The fraction of the pods.
        fraction: Share,
    },
    /// Pods created in the given period wait for their image.
    SlowPull {
        /// The start time, since the start of the scenario.
        #[serde(default)]
        from: Length,
        /// The length; to the end of the scenario by default.
        r#for: Option<Length>,
        /// The wait of each pod.
        pull: DistributionFile,
    },
    /// The scheduler cannot place pods created in the given period until a node is free.
    Unschedulable {
        /// The start time, since the start of the scenario.
        #[serde(default)]
        from: Length,
        /// The length; to the end of the scenario by default.
        r#for: Option<Length>,
        /// The wait of each pod.
        wait: DistributionFile,
    },
}
