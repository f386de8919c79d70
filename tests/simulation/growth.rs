//! The same answers with more in them, to ask for the same decision under more load.

use std::sync::Arc;

use autoscaling::pod::ResourceList;
use autoscaling::quantity::Quantity;
use autoscaling::query::{Answer, ContainerUsage, CustomValue, ExternalValue, PodUsage};
use autoscaling::{Answers, Decision, Verdict};

/// How much more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Growth {
    Tenfold,
    /// More than any number holds.
    Boundless,
}

impl Growth {
    pub(crate) const ALL: [Self; 2] = [Self::Tenfold, Self::Boundless];

    fn of(self, quantity: Quantity) -> Quantity {
        let nanos = match self {
            Self::Tenfold => quantity.nanos().saturating_mul(10).max(quantity.nanos()),
            Self::Boundless => i128::MAX,
        };
        Quantity::from_nanos(nanos, quantity.format())
    }

    /// The answers with every value grown.
    pub(crate) fn of_all<'a>(self, answers: &Answers<'a>) -> Answers<'a> {
        let metrics = answers.metrics.iter().map(|answer| {
            answer
                .as_ref()
                .map(|answer| answer.as_ref().map(|answer| self.of_one(answer)).map_err(Clone::clone))
        });
        Answers { metrics: metrics.collect(), pods: answers.pods }
    }

    fn of_one(self, answer: &Answer) -> Answer {
        match answer {
            Answer::Resource(pods) => Answer::Resource(pods.iter().map(|pod| self.of_pod(pod)).collect()),
            Answer::Custom(values) => {
                let grown =
                    |value: &CustomValue| CustomValue { value: self.of(value.value), ..value.clone() };
                Answer::Custom(values.iter().map(grown).collect())
            }
            Answer::External(values) => {
                let grown =
                    |value: &ExternalValue| ExternalValue { value: self.of(value.value), ..value.clone() };
                Answer::External(values.iter().map(grown).collect())
            }
        }
    }

    fn of_pod(self, pod: &PodUsage) -> PodUsage {
        let grown = |container: &ContainerUsage| {
            let usage = container.usage.iter().map(|(name, quantity)| (Arc::from(name), self.of(quantity)));
            ContainerUsage { name: Arc::clone(&container.name), usage: ResourceList::new(usage) }
        };
        PodUsage { containers: pod.containers.iter().map(grown).collect(), ..pod.clone() }
    }
}

/// The count that a decision comes to; none if it comes to none.
pub(crate) fn count(decision: &Decision) -> Option<i32> {
    match decision.verdict() {
        Verdict::Keep => Some(decision.current()),
        Verdict::Rescale { to, .. } => Some(*to),
        Verdict::NoScale | Verdict::NoCount(_) | Verdict::Disabled => None,
    }
}
