//! The metrics of takeover safety, handover, shadow mode and histories.

use std::time::Duration;

use jiff::Timestamp;

use super::metrics::{Metrics, NO_LABELS};
use crate::handover::charges::Counts;
use crate::handover::machine::State;
use crate::takeover::machine::State as TakeoverState;

/// The result of a standby's request for the leader's histories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pull {
    /// The histories arrived.
    Ok,
    /// The connection failed, or another process responded.
    Unreachable,
    /// The leader refused the request, or the standby had no credentials for it.
    Refused,
    /// The response was invalid.
    Invalid,
}

impl Pull {
    /// Returns the value of the label `result`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unreachable => "unreachable",
            Self::Refused => "refused",
            Self::Invalid => "invalid",
        }
    }
}

impl Metrics {
    /// Sets the state of takeover safety: 1 for the state `now`, 0 for all other states.
    pub fn takeover(&self, now: TakeoverState) {
        for (state, label) in [
            (TakeoverState::Observing, "observing"),
            (TakeoverState::Acting, "acting"),
            (TakeoverState::Holding, "holding"),
        ] {
            self.families().takeover.with_label_values(&[label]).set((state == now).into());
        }
    }

    /// Sets the number of HPAs by state, and the time of the last proof that the guard works.
    pub fn handover(&self, counts: Counts, proven: Option<Timestamp>) {
        let Counts { outside, claiming, in_charge, contested } = counts;
        let states = [
            ("outside", outside),
            (State::Claiming.as_str(), claiming),
            (State::InCharge.as_str(), in_charge),
            (State::Contested.as_str(), contested),
        ];
        for (state, count) in states {
            self.families().handover.with_label_values(&[state]).set(count as f64);
        }
        if let Some(proven) = proven {
            let proof = self.families().handover_proof.with_label_values(&NO_LABELS);
            proof.set(proven.as_second() as f64);
        }
    }

    /// Sets the kind of the guard, from a fixed set.
    pub fn handover_guard(&self, guard: &'static str) {
        self.families().handover_guard.with_label_values(&[guard]).set(1.0);
    }

    /// Counts a write of another controller to the status of an HPA or to the scale of a target.
    pub fn foreign_write(&self) {
        self.families().foreign_writes.with_label_values(&NO_LABELS).inc();
    }

    /// Counts a write of the built-in controller that the webhook refused. `resource` is from a fixed set.
    pub fn handover_refused(&self, resource: &'static str) {
        self.families().handover_refused.with_label_values(&[resource]).inc();
    }

    /// Counts a request to the webhook without a response in time. `reason` is from a fixed set.
    pub fn handover_unanswered(&self, reason: &'static str) {
        self.families().handover_unanswered.with_label_values(&[reason]).inc();
    }

    /// Counts a comparison of another controller's change with a decision of this process. `result` is from a fixed
    /// set.
    pub fn shadow_decision(&self, result: &'static str) {
        self.families().shadow.with_label_values(&[result]).inc();
    }

    /// Sets the number of HPAs with a history restored from `source`, a value of a fixed set.
    pub fn restored(&self, source: &'static str, hpas: usize) {
        self.families().restored.with_label_values(&[source]).set(hpas as f64);
    }

    /// Counts a write of a ConfigMap of the checkpoint. `result` is from a fixed set.
    pub fn checkpoint_write(&self, result: &'static str) {
        self.families().checkpoint_writes.with_label_values(&[result]).inc();
    }

    /// Sets the size of the checkpoint and the number of HPAs that did not fit into it.
    pub fn checkpoint(&self, bytes: usize, left_out: usize) {
        self.families().checkpoint_bytes.with_label_values(&NO_LABELS).set(bytes as f64);
        self.families().checkpoint_left_out.with_label_values(&NO_LABELS).set(left_out as f64);
    }

    /// Counts a standby's request for the leader's histories.
    pub fn history_pulled(&self, result: Pull) {
        self.families().history_pulls.with_label_values(&[result.as_str()]).inc();
    }

    /// Registers `age`, which returns the age of the histories that were copied from the holder of `lease`. Without a
    /// copy, no series is exposed.
    pub fn history_age(&self, lease: &str, age: impl Fn() -> Option<Duration> + Send + 'static) {
        let (ages, lease) = (self.families().history_age.clone(), lease.to_owned());
        self.before_render(move || match age() {
            Some(age) => ages.with_label_values(&[&lease]).set(age.as_secs_f64()),
            // The removal fails if the series does not exist.
            None => drop(ages.remove_label_values(&[&lease])),
        });
    }
}
