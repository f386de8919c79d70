//! The behavior of a workload's pods, as data.

use std::time::Duration;

use super::distribution::Distribution;

/// The startup, failures and shutdown of one workload's pods. Times count from the start of the run.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadModel {
    /// The time from the start of a pod's container until it is ready.
    pub start_up: Distribution,
    /// The image pull before the container starts. The default takes no time.
    pub image_pull: ImagePull,
    /// The time from setting the pod's `deletionTimestamp` until its removal. The pod does no work in this
    /// time.
    pub grace: Duration,
    /// The failures of the pods.
    pub failures: Vec<Failure>,
}

impl Default for WorkloadModel {
    /// 3 s to start, 2 s to stop, no failures.
    fn default() -> Self {
        Self {
            start_up: Duration::from_secs(3).into(),
            image_pull: ImagePull::None,
            grace: Duration::from_secs(2),
            failures: Vec::new(),
        }
    }
}

/// The image pull and its duration. Until the end of the pull, the pod is `Pending` and its container is
/// `ContainerCreating`.
#[derive(Debug, Clone, PartialEq)]
pub enum ImagePull {
    /// The images are present.
    None,
    /// The first pod on a node pulls the image. Other pods on the node wait for the same pull. Later pods
    /// find the image.
    FirstOnNode(Distribution),
    /// Every pod pulls (`imagePullPolicy: Always` without a cache).
    EveryPod(Distribution),
}

/// A period of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The start, inclusive.
    pub from: Duration,
    /// The end, exclusive. `None` for a period without an end.
    pub until: Option<Duration>,
}

impl Span {
    /// Creates a period with a start and a length.
    pub const fn new(from: Duration, length: Duration) -> Self {
        Self { from, until: Some(from.saturating_add(length)) }
    }

    /// Creates a period without an end.
    pub const fn since(from: Duration) -> Self {
        Self { from, until: None }
    }

    /// Whether the period contains an instant.
    pub fn contains(&self, time: Duration) -> bool {
        time >= self.from && self.until.is_none_or(|until| time < until)
    }
}

/// A failure of some of a workload's pods. `fraction`, from 0 to 1, is the share of pods that are selected at
/// random.
#[derive(Debug, Clone, PartialEq)]
pub enum Failure {
    /// Containers exit repeatedly. The first restart is immediate. The next restarts follow after 10 s, 20 s,
    /// 40 s, up to 5 min. The first restart after the period succeeds.
    CrashLoop {
        /// The period of the crashes.
        during: Span,
        /// The fraction of the pods.
        fraction: f64,
        /// The run time of a container before it exits. If the run time exceeds the startup time, the pod is
        /// ready between crashes.
        runs_for: Duration,
    },
    /// Pods created in the period never become ready, as with a bad template.
    NeverReady {
        /// The period in which affected pods are created.
        created: Span,
        /// The fraction of the pods created in the period.
        fraction: f64,
    },
    /// The readiness probes of running pods fail.
    Unready {
        /// The period of the failures.
        during: Span,
        /// The fraction of the pods.
        fraction: f64,
    },
    /// Pods created in the period wait for their image for the duration `pull`, regardless of
    /// [`WorkloadModel::image_pull`].
    SlowPull {
        /// The period in which affected pods are created.
        created: Span,
        /// The wait of each pod.
        pull: Distribution,
    },
    /// The scheduler cannot place pods created in the period until a node is free, as with GPUs. They are
    /// `Pending` for the duration `wait`, with the condition `PodScheduled` and the reason `Unschedulable`.
    Unschedulable {
        /// The period in which affected pods are created.
        created: Span,
        /// The wait of each pod.
        wait: Distribution,
    },
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Span;

    #[test]
    fn span_excludes_its_end() {
        let span = Span::new(Duration::from_secs(10), Duration::from_secs(5));
        let within = [9, 10, 14, 15].map(|time| span.contains(Duration::from_secs(time)));
        assert_eq!(within, [false, true, true, false]);
        assert!(Span::since(Duration::ZERO).contains(Duration::MAX));
    }
}
