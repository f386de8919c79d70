//! How the pods of a workload live, as data.

use std::time::Duration;

use super::distribution::Distribution;

/// How the pods of one workload start, fail and end. Times are counted from the beginning of the run.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadModel {
    /// From the start of a pod's container until it is ready.
    pub start_up: Distribution,
    /// What comes before: the container's image is pulled. At once, unless told otherwise.
    pub image_pull: ImagePull,
    /// From the pod's `deletionTimestamp` being set until the pod is gone. It does no work any more.
    pub grace: Duration,
    /// What goes wrong.
    pub failures: Vec<Failure>,
}

impl Default for WorkloadModel {
    /// 3 s to start, 2 s to end, and nothing goes wrong.
    fn default() -> Self {
        Self {
            start_up: Duration::from_secs(3).into(),
            image_pull: ImagePull::None,
            grace: Duration::from_secs(2),
            failures: Vec::new(),
        }
    }
}

/// When an image is pulled, and how long it takes. Until then the pod is `Pending`, its container `ContainerCreating`.
#[derive(Debug, Clone, PartialEq)]
pub enum ImagePull {
    /// The images are there.
    None,
    /// The first pod on a node pulls the image; others on it wait for the same pull, later ones find the image.
    FirstOnNode(Distribution),
    /// Every pod pulls (`imagePullPolicy: Always` without a cache).
    EveryPod(Distribution),
}

/// A time within the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Its first instant.
    pub from: Duration,
    /// The first instant behind it; none if it does not end.
    pub until: Option<Duration>,
}

impl Span {
    /// From an instant on, for so long.
    pub const fn new(from: Duration, length: Duration) -> Self {
        Self { from, until: Some(from.saturating_add(length)) }
    }

    /// From an instant on, without end.
    pub const fn since(from: Duration) -> Self {
        Self { from, until: None }
    }

    /// Whether an instant lies within.
    pub fn contains(&self, time: Duration) -> bool {
        time >= self.from && self.until.is_none_or(|until| time < until)
    }
}

/// Something that goes wrong with some of a workload's pods. Which ones is drawn by pod: `fraction` of them, from 0 to 1.
#[derive(Debug, Clone, PartialEq)]
pub enum Failure {
    /// Containers exit again and again. The first restart comes at once, then after 10 s, 20 s, 40 s, up to 5 min; the
    /// first one behind the span's end lasts.
    CrashLoop {
        /// When containers crash.
        during: Span,
        /// How many of the pods.
        fraction: f64,
        /// How long a container runs before it exits; with more than its start-up, it is ready for a while.
        runs_for: Duration,
    },
    /// Pods created within this time never become ready, as from a bad template.
    NeverReady {
        /// When they are created.
        created: Span,
        /// How many of them.
        fraction: f64,
    },
    /// The readiness probes of running pods fail.
    Unready {
        /// When they fail.
        during: Span,
        /// How many of the pods.
        fraction: f64,
    },
    /// Pods created within this time wait so long for their image, whatever [`WorkloadModel::image_pull`] says.
    SlowPull {
        /// When they are created.
        created: Span,
        /// How long each waits.
        pull: Distribution,
    },
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Span;

    #[test]
    fn a_span_ends_before_its_end() {
        let span = Span::new(Duration::from_secs(10), Duration::from_secs(5));
        let within = [9, 10, 14, 15].map(|time| span.contains(Duration::from_secs(time)));
        assert_eq!(within, [false, true, true, false]);
        assert!(Span::since(Duration::ZERO).contains(Duration::MAX));
    }
}
