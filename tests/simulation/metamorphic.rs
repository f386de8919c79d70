//! Metric responses with larger values, to repeat a decision under more load.

use std::sync::Arc;

use autoscaling::pod::ResourceList;
use autoscaling::quantity::Quantity;
use autoscaling::query::{Answer, ContainerUsage, CustomValue, ExternalValue, PodUsage};
use autoscaling::{Answers, Decision, Verdict};

/// Factor by which values grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadFactor {
    Tenfold,
    /// A factor with results larger than any number type holds.
    Boundless,
}

impl LoadFactor {
    pub(crate) const ALL: [Self; 2] = [Self::Tenfold, Self::Boundless];

    fn grow(self, quantity: Quantity) -> Quantity {
        let nanos = match self {
            Self::Tenfold => quantity.nanos().saturating_mul(10).max(quantity.nanos()),
            Self::Boundless => i128::MAX,
        };
        Quantity::from_nanos(nanos, quantity.format())
    }

    /// The responses with every value grown.
    pub(crate) fn grow_answers<'a>(self, answers: &Answers<'a>) -> Answers<'a> {
        let metrics = answers.metrics.iter().map(|answer| {
            answer
                .as_ref()
                .map(|answer| answer.as_ref().map(|answer| self.grow_answer(answer)).map_err(Clone::clone))
        });
        Answers { metrics: metrics.collect(), pods: answers.pods }
    }

    fn grow_answer(self, answer: &Answer) -> Answer {
        match answer {
            Answer::Resource(pods) => Answer::Resource(pods.iter().map(|pod| self.grow_pod(pod)).collect()),
            Answer::Custom(values) => {
                let grown =
                    |value: &CustomValue| CustomValue { value: self.grow(value.value), ..value.clone() };
                Answer::Custom(values.iter().map(grown).collect())
            }
            Answer::External(values) => {
                let grown =
                    |value: &ExternalValue| ExternalValue { value: self.grow(value.value), ..value.clone() };
                Answer::External(values.iter().map(grown).collect())
            }
        }
    }

    fn grow_pod(self, pod: &PodUsage) -> PodUsage {
        let grown = |container: &ContainerUsage| {
            let usage = container.usage.iter().map(|(name, quantity)| (Arc::from(name), self.grow(quantity)));
            ContainerUsage { name: Arc::clone(&container.name), usage: ResourceList::new(usage) }
        };
        PodUsage { containers: pod.containers.iter().map(grown).collect(), ..pod.clone() }
    }
}

/// The replica count of a decision, or `None` if the decision has no count.
pub(crate) fn count(decision: &Decision) -> Option<i32> {
    match decision.verdict() {
        Verdict::Keep => Some(decision.current()),
        Verdict::Rescale { to, .. } => Some(*to),
        Verdict::NoScale | Verdict::NoCount(_) | Verdict::Disabled => None,
    }
}
