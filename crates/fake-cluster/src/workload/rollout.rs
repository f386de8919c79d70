//! The sizes of a Deployment's ReplicaSets by the rules of the deployment controller, as plain numbers.
//!
//! Each result is one step. The next step follows when the pods match the previous step. Counts are signed,
//! because the rules subtract.

/// The replicas and strategy of a Deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DesiredRollout {
    pub(super) replicas: i64,
    pub(super) strategy: Strategy,
    /// `spec.paused`: the Deployment scales but does not roll out.
    pub(super) is_paused: bool,
}

/// The replacement strategy of old pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    /// Remove all old pods before creating new ones.
    Recreate,
    /// Replace pods step by step.
    RollingUpdate {
        /// Maximum number of pods above the replicas.
        surge: i64,
        /// Maximum number of unavailable pods below the replicas.
        unavailable: i64,
    },
}

impl DesiredRollout {
    fn surge(&self) -> i64 {
        match self.strategy {
            Strategy::RollingUpdate { surge, .. } if self.replicas > 0 => surge,
            _ => 0,
        }
    }

    /// Returns the maximum number of pods.
    pub(super) fn max_pods(&self) -> i64 {
        self.replicas + self.surge()
    }

    /// Returns the minimum number of available pods.
    pub(super) fn min_available(&self) -> i64 {
        match self.strategy {
            Strategy::RollingUpdate { unavailable, .. } => (self.replicas - unavailable).max(0),
            Strategy::Recreate => self.replicas,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Set {
    /// `spec.replicas`.
    pub(super) size: i64,
    /// Number of available pods.
    pub(super) available: i64,
    /// Number of pods, including terminating ones.
    pub(super) pods: i64,
    /// The Deployment's replicas and maximum pods at its last resize. `None` if another client created it.
    pub(super) sized_for: Option<(i64, i64)>,
}

/// The sizes after one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    /// The size of the current template's ReplicaSet. `None` if the ReplicaSet must not be created yet.
    pub(super) new: Option<i64>,
    /// The sizes of the other ReplicaSets, in the order of the input.
    pub(super) old: Vec<i64>,
}

/// Computes the next step. `new` is the ReplicaSet of the current template. `old` contains the other
/// ReplicaSets, the oldest first.
pub(super) fn step(desired: &DesiredRollout, new: Option<Set>, old: &[Set]) -> Step {
    let unchanged = Step { new: new.map(|new| new.size), old: old.iter().map(|set| set.size).collect() };
    let is_scaled =
        |set: &Set| set.size > 0 && set.sized_for.is_some_and(|(replicas, _)| replicas != desired.replicas);
    if desired.is_paused || new.iter().chain(old).any(is_scaled) {
        return scaled(desired, new, old, unchanged);
    }
    match desired.strategy {
        Strategy::Recreate => recreated(desired, old, unchanged),
        Strategy::RollingUpdate { .. } => rolled(desired, new, old, unchanged),
    }
}

/// Scales to the Deployment's new replicas. During a rollout, the ReplicaSets share the difference.
fn scaled(desired: &DesiredRollout, new: Option<Set>, old: &[Set], mut step: Step) -> Step {
    let active = new.iter().chain(old).filter(|set| set.size > 0).count();
    let old_active = old.iter().position(|set| set.size > 0);
    let is_saturated = new.is_some_and(|new| {
        let is_sized = new.sized_for.is_some_and(|(replicas, _)| replicas == desired.replicas);
        is_sized && new.size == desired.replicas && new.available == desired.replicas
    });
    if active <= 1 {
        // The only active ReplicaSet gets the replicas. If no ReplicaSet is active, the newest one gets them.
        match (old_active.or_else(|| old.len().checked_sub(1)), new) {
            (_, Some(_)) if old_active.is_none() => step.new = Some(desired.replicas),
            (Some(index), _) => step.old = replaced(step.old, index, desired.replicas),
            (None, _) => {}
        }
    } else if is_saturated {
        step.old.fill(0);
    } else if matches!(desired.strategy, Strategy::RollingUpdate { .. }) {
        return shared(desired, new, old);
    }
    step
}

fn replaced(mut sizes: Vec<i64>, index: usize, size: i64) -> Vec<i64> {
    if let Some(slot) = sizes.get_mut(index) {
        *slot = size;
    }
    sizes
}

/// Distributes the difference over the active ReplicaSets in proportion to their sizes. The largest gets the
/// rounding remainder.
fn shared(desired: &DesiredRollout, new: Option<Set>, old: &[Set]) -> Step {
    let total: i64 = new.iter().chain(old).map(|set| set.size).sum();
    let to_add = desired.max_pods() - total;
    // Sorts by size. Among equal sizes, the newer ReplicaSet grows first and the older one shrinks first.
    let mut order: Vec<(usize, Set)> = old.iter().copied().chain(new).enumerate().collect();
    order.retain(|(_, set)| set.size > 0);
    order.sort_by_key(|(age, set)| {
        let age = i64::try_from(*age).unwrap_or(i64::MAX);
        (-set.size, if to_add > 0 { -age } else { age })
    });
    let mut sizes: Vec<i64> = old.iter().chain(new.iter()).map(|set| set.size).collect();
    let mut added = 0;
    for (index, set) in &order {
        let share = if to_add == 0 { 0 } else { share_of(desired, set, total) };
        let rest = to_add - added;
        let share = if to_add > 0 { share.clamp(0, rest) } else { share.clamp(rest, 0) };
        added += share;
        if let Some(size) = sizes.get_mut(*index) {
            *size += share;
        }
    }
    if let Some(size) = order.first().and_then(|(index, _)| sizes.get_mut(*index)) {
        *size = (*size + to_add - added).max(0);
    }
    let new = new.and_then(|_| sizes.pop());
    Step { new, old: sizes }
}

/// Returns the change with which a ReplicaSet keeps its share of the maximum pods.
fn share_of(desired: &DesiredRollout, set: &Set, total: i64) -> i64 {
    if desired.replicas == 0 {
        return -set.size;
    }
    let max_before = set.sized_for.map_or(total, |(_, max_pods)| max_pods).max(1);
    // Rounds half up. No operand is negative.
    (2 * set.size * desired.max_pods() + max_before) / (2 * max_before) - set.size
}

fn recreated(desired: &DesiredRollout, old: &[Set], mut step: Step) -> Step {
    if old.iter().any(|set| set.size > 0) {
        step.old.fill(0);
    } else if old.iter().all(|set| set.pods == 0) {
        step.new = Some(desired.replicas);
    }
    step
}

fn rolled(desired: &DesiredRollout, new: Option<Set>, old: &[Set], mut step: Step) -> Step {
    let old_total: i64 = old.iter().map(|set| set.size).sum();
    let new_set = new.unwrap_or_default();
    let total = old_total + new_set.size;
    let new_size = if new_set.size > desired.replicas {
        desired.replicas
    } else {
        new_set.size + (desired.max_pods() - total).clamp(0, desired.replicas - new_set.size)
    };
    step.new = Some(new_size);
    if new.map(|new| new.size) != step.new {
        return step;
    }
    // New pods that are not available count as missing.
    let unavailable = new_set.size - new_set.available;
    let mut removable = total - desired.min_available() - unavailable;
    if old_total == 0 || removable <= 0 {
        return step;
    }
    // First remove unavailable pods, then available ones above the minimum.
    for (size, set) in step.old.iter_mut().zip(old) {
        let removed = removable.min(set.size - set.available).max(0);
        *size -= removed;
        removable -= removed;
    }
    let available: i64 = new.iter().chain(old).map(|set| set.available).sum();
    let mut removable = available - desired.min_available();
    for size in &mut step.old {
        let removed = removable.min(*size).max(0);
        *size -= removed;
        removable -= removed;
    }
    step
}

#[cfg(test)]
mod tests;
