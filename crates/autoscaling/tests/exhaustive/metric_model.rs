//! A second, naive implementation of one metric's proposal. It uses integers and fractions, and follows the
//! description of upstream.

use std::cmp::Ordering;

/// The state of one pod for a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodState {
    /// Ready, with a sample in milli-units.
    Ready(i64),
    /// Running without a sample.
    Missing,
    /// Not running yet.
    Unready,
}

/// A ratio as a fraction with a positive divisor.
#[derive(Debug, Clone, Copy)]
struct Ratio(i128, i128);

impl Ratio {
    fn side_of_one(self) -> Ordering {
        self.0.cmp(&self.1)
    }

    /// The position of the ratio relative to `tolerance`, which is in percent.
    fn band(self, tolerance: i128) -> Band {
        if self.0 * 100 < self.1 * (100 - tolerance) {
            Band::Below
        } else if self.0 * 100 > self.1 * (100 + tolerance) {
            Band::Above
        } else {
            Band::Within
        }
    }

    /// The smallest integer not below ratio × `count`, and whether the product is an integer.
    fn times(self, count: i128) -> (i128, bool) {
        let product = self.0 * count;
        let whole = product.rem_euclid(self.1) == 0;
        (product.div_euclid(self.1) + i128::from(!whole), whole)
    }
}

/// The position of a ratio: below, within or above the tolerance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Band {
    Below,
    Within,
    Above,
}

/// The proposal of a metric.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ModelProposal {
    /// The exact count.
    pub(crate) count: i128,
    /// Whether float64 may yield one more replica, because the exact result is an integer.
    pub(crate) or_one_more: bool,
    /// The position of the first ratio, before pods are filled in.
    pub(crate) band: Band,
    /// Whether a rule keeps the current count.
    pub(crate) stays: bool,
}

/// The requests of the pods, by index.
pub(crate) type Requests = [i64; 12];

/// The target of a metric.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    /// An average per pod in milli-units.
    Average(i64),
    /// Percent of the pods' requests; pod `n` requests the `n`-th amount.
    Percent(i64, Requests),
}

/// The inputs of a per-pod metric.
#[derive(Debug)]
pub(crate) struct PerPod<'a> {
    pub(crate) pods: &'a [PodState],
    /// The sample of a pod that the selector does not match.
    pub(crate) unmatched: Option<i64>,
    pub(crate) target: Target,
    pub(crate) current: i32,
    /// Tolerance in percent, in both directions.
    pub(crate) tolerance: i128,
}

impl PerPod<'_> {
    /// The proposal; `None` if no pod has a usable sample.
    pub(crate) fn ask(&self) -> Option<ModelProposal> {
        let ready = self.count(|pod| matches!(pod, PodState::Ready(_)));
        let missing = self.count(|pod| *pod == PodState::Missing);
        let unready = self.count(|pod| *pod == PodState::Unready);
        let first = self.ratio(|pod, _| match pod {
            PodState::Ready(sample) => Some(sample.into()),
            PodState::Missing | PodState::Unready => None,
        })?;
        let current = i128::from(self.current);
        let band = first.band(self.tolerance);
        let stay = ModelProposal { count: current, or_one_more: false, band, stays: true };
        let side = first.side_of_one();
        let fills_unready = unready > 0 && side == Ordering::Greater;
        if missing == 0 && !fills_unready {
            if band == Band::Within {
                return Some(stay);
            }
            let (count, or_one_more) = first.times(ready);
            return Some(ModelProposal { count, or_one_more, band, stays: false });
        }
        let fills_missing = missing > 0 && side != Ordering::Equal;
        let again = self.ratio(|pod, target| match pod {
            PodState::Ready(sample) => Some(sample.into()),
            PodState::Missing if !fills_missing => None,
            PodState::Missing if side == Ordering::Less => Some(target),
            PodState::Unready if !fills_unready => None,
            PodState::Missing | PodState::Unready => Some(0),
        })?;
        let values = ready
            + i128::from(self.unmatched.is_some())
            + if fills_missing { missing } else { 0 }
            + if fills_unready { unready } else { 0 };
        let side_again = again.side_of_one();
        if again.band(self.tolerance) == Band::Within || side == side_again.reverse() {
            return Some(stay);
        }
        let (count, or_one_more) = again.times(values);
        let against = match side_again {
            Ordering::Less => count > current,
            Ordering::Greater => count < current,
            Ordering::Equal => false,
        };
        Some(if against { stay } else { ModelProposal { count, or_one_more, band, stays: false } })
    }

    fn count(&self, which: impl Fn(&PodState) -> bool) -> i128 {
        i128::try_from(self.pods.iter().filter(|pod| which(pod)).count()).unwrap()
    }

    /// The ratio of usage to target, over the pods for which `usage` returns a value. The second argument of
    /// `usage` is the assumed usage of a pod at the target. `None` if no pod has a value.
    fn ratio(&self, usage: impl Fn(PodState, i128) -> Option<i128>) -> Option<Ratio> {
        let (mut used, mut values, mut requested) = (0, 0, 0);
        for (index, &pod) in self.pods.iter().enumerate() {
            let (at_target, request) = match self.target {
                Target::Average(target) => (i128::from(target), 0),
                Target::Percent(target, requests) => {
                    let request = i128::from(requests[index]);
                    (request * i128::from(target.max(100)) / 100, request)
                }
            };
            if let Some(value) = usage(pod, at_target) {
                used += value;
                values += 1;
                requested += request;
            }
        }
        match self.target {
            Target::Average(target) => {
                used += i128::from(self.unmatched.unwrap_or(0));
                values += i128::from(self.unmatched.is_some());
                (values > 0).then(|| Ratio(used / values, target.into()))
            }
            // The request of an unmatched pod is unknown, so the pod does not count.
            Target::Percent(target, _) => {
                (requested > 0).then(|| Ratio(used * 100 / requested, target.into()))
            }
        }
    }
}

/// The proposal for a single value with one target for all pods. `ready` is the number of ready pods.
pub(crate) fn of_all(value: i64, target: i64, current: i32, ready: i128, tolerance: i128) -> ModelProposal {
    let ratio = Ratio(value.into(), target.into());
    let band = ratio.band(tolerance);
    if current == 0 {
        let (count, or_one_more) = ratio.times(1);
        return ModelProposal { count, or_one_more, band, stays: false };
    }
    if band == Band::Within {
        return ModelProposal { count: current.into(), or_one_more: false, band, stays: true };
    }
    let (count, or_one_more) = ratio.times(ready);
    ModelProposal { count, or_one_more, band, stays: false }
}

/// The proposal for a total with a target per replica.
pub(crate) fn of_each(total: i64, target: i64, status_replicas: i32, tolerance: i128) -> ModelProposal {
    let of_one = Ratio(total.into(), target.into());
    let (count, or_one_more) = of_one.times(1);
    if status_replicas == 0 {
        return ModelProposal { count, or_one_more, band: Band::Above, stays: false };
    }
    let band = Ratio(total.into(), i128::from(target) * i128::from(status_replicas)).band(tolerance);
    if band == Band::Within {
        return ModelProposal { count: status_replicas.into(), or_one_more: false, band, stays: true };
    }
    ModelProposal { count, or_one_more, band, stays: false }
}
