//! The periods in which a scaling policy has an effect, collected from the syncs of one HPA.

use std::time::Duration;

use policies::steps::{PolicyEffect, Step};

use super::run::PolicySpan;

/// The periods of one HPA. Each lasts from the first sync with an effect to the first sync without it.
#[derive(Debug, Clone, Default)]
pub(super) struct PolicySpans {
    open: Vec<PolicySpan>,
    done: Vec<PolicySpan>,
}

impl PolicySpans {
    /// Adds the effect at a sync.
    pub(super) fn note(&mut self, at: Duration, effect: Option<&PolicyEffect>) {
        let steps = effect.map_or(&[][..], |effect| &effect.steps);
        let now: Vec<PolicySpan> = steps.iter().map(|step| span(at, step)).collect();
        let continues =
            |open: &PolicySpan, now: &PolicySpan| open.reason == now.reason && open.bound == now.bound;
        let (open, ended) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|open| now.iter().any(|now| continues(open, now)));
        self.open = open;
        self.close(ended, at);
        for span in now {
            if !self.open.iter().any(|open| continues(open, &span)) {
                self.open.push(span);
            }
        }
    }

    /// Returns the periods, by start. Open periods end at `end`.
    pub(super) fn finish(mut self, end: Duration) -> Vec<PolicySpan> {
        let open = std::mem::take(&mut self.open);
        self.close(open, end);
        self.done.sort_by_key(|span| (span.from, span.reason));
        self.done
    }

    fn close(&mut self, ended: Vec<PolicySpan>, at: Duration) {
        self.done.extend(ended.into_iter().map(|span| PolicySpan { to: at, ..span }));
    }
}

fn span(at: Duration, step: &Step) -> PolicySpan {
    let bound = match step {
        Step::Schedule(schedule) => Some((schedule.from, schedule.to)),
        _ => None,
    };
    PolicySpan { from: at, to: at, reason: step.reason(), what: step.to_string(), bound }
}
