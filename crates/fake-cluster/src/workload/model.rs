//! The behavior of a workload's pods as data, with durations that differ from pod to pod.

use std::f64::consts::TAU;
use std::time::Duration;

/// The startup, failures and shutdown of one workload's pods. Periods are relative to the start of the run.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadModel {
    /// The time from the start of a pod's container until it is ready.
    pub start_up: Distribution,
    /// The image pull before the container starts. The default takes no time.
    pub image_pull: ImagePull,
    /// The time from setting the pod's `deletionTimestamp` until its removal. The pod does no work in this time.
    pub grace: Duration,
    /// The failures of the pods.
    pub failures: Vec<Failure>,
}

impl Default for WorkloadModel {
    /// Returns a startup of 3 s, a grace period of 2 s, and no failures.
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
    /// The first pod on a node pulls the image. Other pods on the node wait for the same pull. Later pods find the
    /// image.
    FirstOnNode(Distribution),
    /// Every pod pulls its image, as with `imagePullPolicy: Always` and no cache.
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

    /// Returns whether the period contains an instant.
    pub fn contains(&self, time: Duration) -> bool {
        time >= self.from && self.until.is_none_or(|until| time < until)
    }
}

/// A failure of some of a workload's pods. `fraction`, from 0 to 1, is the share of pods that are selected at random.
#[derive(Debug, Clone, PartialEq)]
pub enum Failure {
    /// Containers exit repeatedly. The first restart is immediate. The next restarts follow after 10 s, 20 s, 40 s, up
    /// to 5 min. The first restart after the period succeeds.
    CrashLoop {
        /// The period of the crashes.
        during: Span,
        /// The fraction of the pods.
        fraction: f64,
        /// The run time of a container before it exits. If the run time exceeds the startup time, the pod is ready
        /// between crashes.
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
    /// Pods created in the period wait for a free node, like pods that need a GPU. They are `Pending` for the duration
    /// `wait`. Their condition `PodScheduled` is false with the reason `Unschedulable`.
    Unschedulable {
        /// The period in which affected pods are created.
        created: Span,
        /// The wait of each pod.
        wait: Distribution,
    },
}

/// A distribution of durations. Draws are rounded to the millisecond, not negative, and at most
/// [`LONGEST`](Self::LONGEST).
#[derive(Debug, Clone, PartialEq)]
pub enum Distribution {
    /// A constant duration.
    Fixed(Duration),
    /// The uniform distribution between two durations.
    Uniform {
        /// The minimum.
        from: Duration,
        /// The maximum.
        to: Duration,
    },
    /// The normal distribution, truncated at zero.
    Normal {
        /// The mean before truncation.
        mean: Duration,
        /// The standard deviation before truncation.
        deviation: Duration,
    },
    /// The lognormal distribution. Its long tail suits startup times.
    LogNormal {
        /// The median.
        median: Duration,
        /// The 95th percentile. A value below the median is raised to the median.
        p95: Duration,
    },
    /// Measured durations with equal probability. An empty list yields zero.
    Empirical(Vec<Duration>),
}

/// The quantile of the standard normal distribution for 95 %.
const NORMAL_P95: f64 = 1.644_853_626_951_472_2;

impl From<Duration> for Distribution {
    fn from(duration: Duration) -> Self {
        Self::Fixed(duration)
    }
}

impl Distribution {
    /// The maximum duration of a draw.
    pub const LONGEST: Duration = Duration::from_hours(24 * 365);

    /// Draws a duration. Equal seeds yield equal durations.
    pub(crate) fn draw(&self, seed: Seed) -> Duration {
        match self {
            Self::Fixed(duration) => (*duration).min(Self::LONGEST),
            Self::Uniform { from, to } => {
                let (from, to) = (from.as_secs_f64(), to.as_secs_f64());
                rounded(from + (to - from) * seed.share())
            }
            Self::Normal { mean, deviation } => {
                let (mean, deviation) = (mean.as_secs_f64(), deviation.as_secs_f64());
                // If the mean is not negative, at least half of the draws succeed, so 64 draws suffice.
                let tries = (0..64).map(|number| mean + deviation * normal(seed.nth(number)));
                rounded(tries.into_iter().find(|seconds| *seconds >= 0.0).unwrap_or(mean))
            }
            Self::LogNormal { median, p95 } => {
                let (median, p95) = (median.as_secs_f64(), p95.as_secs_f64());
                let sigma = if median > 0.0 { (p95 / median).max(1.0).ln() / NORMAL_P95 } else { 0.0 };
                rounded(median * (sigma * normal(seed)).exp())
            }
            Self::Empirical(durations) => pick(durations, seed).unwrap_or_default().min(Self::LONGEST),
        }
    }
}

/// Draws from the standard normal distribution with the Box-Muller transform.
fn normal(seed: Seed) -> f64 {
    let radius = (-2.0 * (1.0 - seed.for_name("radius").share()).ln()).sqrt();
    radius * (TAU * seed.for_name("angle").share()).cos()
}

fn pick(durations: &[Duration], seed: Seed) -> Option<Duration> {
    // The share is below 1, so the product is a valid index.
    let index = Duration::from_secs_f64(seed.share() * durations.len() as f64).as_secs();
    durations.get(usize::try_from(index).ok()?).copied()
}

/// Rounds to the millisecond. Negative values and NaN become zero.
fn rounded(seconds: f64) -> Duration {
    let longest = Distribution::LONGEST.as_secs_f64();
    Duration::from_secs_f64(((seconds * 1_000.0).round() / 1_000.0).max(0.0).min(longest))
}

/// A seed for draws. Seeds are derived step by step for the run, the workload, the pod and the purpose, so that the
/// order of draws has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seed(u64);

impl Seed {
    pub(crate) fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// Derives the seed for a name.
    pub(crate) fn for_name(self, name: &str) -> Self {
        // A terminator follows the name, so that "ab" followed by "c" differs from "a" followed by "bc".
        Self(mix(name.bytes().fold(self.0, |hash, byte| mix(hash ^ u64::from(byte))) ^ 0x100))
    }

    /// Derives the seed for the n-th item.
    pub(crate) fn nth(self, number: u64) -> Self {
        Self(mix(self.0 ^ mix(number)))
    }

    /// Returns a reproducible number in [0, 1).
    pub(crate) fn share(self) -> f64 {
        // A float64 represents 53 bits exactly.
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Applies the last step of splitmix64: each input bit changes about half of the output bits.
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Maps a uniform `share` to a number of events with the inverse distribution function of the Poisson distribution with
/// mean 1.
pub(crate) fn poisson(share: f64) -> u64 {
    let (mut count, mut probability, mut rest) = (0_u64, (-1.0_f64).exp(), share);
    while rest >= probability && count < 20 {
        rest -= probability;
        count += 1;
        probability /= count as f64;
    }
    count
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Distribution, Seed, Span};

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Returns 10,000 draws in ascending order.
    fn draws(distribution: &Distribution) -> Vec<f64> {
        let seed = Seed::new(1);
        let mut draws: Vec<_> =
            (0..10_000).map(|number| distribution.draw(seed.nth(number)).as_secs_f64()).collect();
        draws.sort_by(f64::total_cmp);
        draws
    }

    fn mean(draws: &[f64]) -> f64 {
        draws.iter().sum::<f64>() / draws.len() as f64
    }

    fn close(value: f64, expected: f64, tolerance: f64) {
        assert!((value - expected).abs() <= tolerance, "{value} is not close to {expected}");
    }

    #[test]
    fn fixed_distribution_is_constant() {
        assert!(draws(&secs(3).into()).iter().all(|draw| *draw == 3.0));
    }

    #[test]
    fn uniform_distribution_stays_within_its_bounds() {
        let draws = draws(&Distribution::Uniform { from: secs(10), to: secs(20) });
        assert!(draws[0] >= 10.0 && draws[9_999] <= 20.0);
        close(mean(&draws), 15.0, 0.1);
    }

    #[test]
    fn normal_distribution_has_its_moments_and_is_never_negative() {
        let wide = draws(&Distribution::Normal { mean: secs(20), deviation: secs(4) });
        close(mean(&wide), 20.0, 0.2);
        close(wide[8_413], 24.0, 0.3);
        let cut = draws(&Distribution::Normal { mean: secs(1), deviation: secs(5) });
        assert!(cut[0] >= 0.0);
        assert!(
            cut.iter().filter(|draw| **draw == 0.0).count() < 10,
            "the distribution is truncated, not clamped to zero"
        );
    }

    #[test]
    fn lognormal_distribution_has_its_median_and_95th_percentile() {
        let draws = draws(&Distribution::LogNormal { median: secs(10), p95: secs(40) });
        close(draws[5_000], 10.0, 0.5);
        close(draws[9_500], 40.0, 3.0);
    }

    #[test]
    fn empirical_distribution_draws_the_measured_values() {
        let draws = draws(&Distribution::Empirical(vec![secs(1), secs(2), secs(7)]));
        for (measured, from) in [(1.0, 0), (2.0, 3_450), (7.0, 6_800)] {
            assert!(draws[from..from + 3_100].iter().all(|draw| *draw == measured), "{measured}");
        }
        assert_eq!(Distribution::Empirical(Vec::new()).draw(Seed::new(1)), Duration::ZERO);
    }

    #[test]
    fn distribution_accepts_unusual_parameters() {
        for odd in [
            Distribution::LogNormal { median: Duration::ZERO, p95: secs(5) },
            Distribution::LogNormal { median: secs(5), p95: secs(1) },
            Distribution::LogNormal { median: Duration::MAX, p95: Duration::MAX },
            Distribution::Uniform { from: secs(20), to: secs(10) },
            Distribution::Normal { mean: Duration::MAX, deviation: Duration::MAX },
        ] {
            assert!(draws(&odd)[9_999] <= Distribution::LONGEST.as_secs_f64());
        }
    }

    #[test]
    fn draws_are_uniformly_distributed() {
        let draws: Vec<_> = (0..10_000).map(|number| Seed::new(1).nth(number).share()).collect();
        assert!(draws.iter().all(|draw| (0.0..1.0).contains(draw)));
        for tenth in 0..10_u32 {
            let (from, to) = (f64::from(tenth) / 10.0, f64::from(tenth + 1) / 10.0);
            let count = draws.iter().filter(|draw| (from..to).contains(*draw)).count();
            assert!((900..1_100).contains(&count), "{count} in tenth {tenth}");
        }
    }

    #[test]
    fn draw_depends_on_its_whole_derivation_only() {
        let seed = Seed::new(7);
        assert_eq!(seed.for_name("web").nth(3).share(), Seed::new(7).for_name("web").nth(3).share());
        assert_ne!(seed.for_name("web").nth(3).share(), seed.for_name("web").nth(4).share());
        assert_ne!(seed.for_name("web").share(), Seed::new(8).for_name("web").share());
        assert_ne!(seed.for_name("ab").for_name("c").share(), seed.for_name("a").for_name("bc").share());
    }

    #[test]
    fn span_excludes_its_end() {
        let span = Span::new(Duration::from_secs(10), Duration::from_secs(5));
        let within = [9, 10, 14, 15].map(|time| span.contains(Duration::from_secs(time)));
        assert_eq!(within, [false, true, true, false]);
        assert!(Span::since(Duration::ZERO).contains(Duration::MAX));
    }
}
