//! The sizes of a Deployment's ReplicaSets, by the rules of the deployment controller: plain numbers in and out.
//!
//! Each answer is one step; the next follows when the pods have followed. Counts are signed, since the rules subtract.

/// How a Deployment wants its pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) replicas: i64,
    pub(super) strategy: Strategy,
    /// `spec.paused`: scaled, but not rolled out.
    pub(super) is_paused: bool,
}

/// How old pods are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    /// Old pods go first, then new ones come.
    Recreate,
    /// Bit by bit.
    RollingUpdate {
        /// How many pods there may be beyond the wanted ones.
        surge: i64,
        /// How many of the wanted ones may be missing.
        unavailable: i64,
    },
}

impl Wish {
    fn surge(&self) -> i64 {
        match self.strategy {
            Strategy::RollingUpdate { surge, .. } if self.replicas > 0 => surge,
            _ => 0,
        }
    }

    /// At most so many pods at a time.
    pub(super) fn most(&self) -> i64 {
        self.replicas + self.surge()
    }

    /// At least so many available pods at a time, as far as it is up to the Deployment.
    pub(super) fn fewest_available(&self) -> i64 {
        match self.strategy {
            Strategy::RollingUpdate { unavailable, .. } => (self.replicas - unavailable).max(0),
            Strategy::Recreate => self.replicas,
        }
    }
}

/// One ReplicaSet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Set {
    /// `spec.replicas`.
    pub(super) size: i64,
    /// Its available pods.
    pub(super) available: i64,
    /// All its pods, those on their way out included.
    pub(super) pods: i64,
    /// For which replicas, and at most how many pods, it got its size; none if somebody else made it.
    pub(super) sized_for: Option<(i64, i64)>,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    /// The size of the ReplicaSet of the present template; none if it is not to be made yet.
    pub(super) new: Option<i64>,
    /// The sizes of the others, in the order in which they were given.
    pub(super) old: Vec<i64>,
}

/// The next step, from the ReplicaSet of the present template and the others, the oldest first.
pub(super) fn step(wish: &Wish, new: Option<Set>, old: &[Set]) -> Step {
    let unchanged = Step { new: new.map(|new| new.size), old: old.iter().map(|set| set.size).collect() };
    let is_scaled =
        |set: &Set| set.size > 0 && set.sized_for.is_some_and(|(replicas, _)| replicas != wish.replicas);
    if wish.is_paused || new.iter().chain(old).any(is_scaled) {
        return scaled(wish, new, old, unchanged);
    }
    match wish.strategy {
        Strategy::Recreate => recreated(wish, old, unchanged),
        Strategy::RollingUpdate { .. } => rolled(wish, new, old, unchanged),
    }
}

/// The Deployment's count has changed: in the middle of a rollout the sets share the difference.
fn scaled(wish: &Wish, new: Option<Set>, old: &[Set], mut step: Step) -> Step {
    let active = new.iter().chain(old).filter(|set| set.size > 0).count();
    let old_active = old.iter().position(|set| set.size > 0);
    let is_saturated = new.is_some_and(|new| {
        let is_sized = new.sized_for.is_some_and(|(replicas, _)| replicas == wish.replicas);
        is_sized && new.size == wish.replicas && new.available == wish.replicas
    });
    if active <= 1 {
        // The only active set takes it all; without one, the newest.
        match (old_active.or_else(|| old.len().checked_sub(1)), new) {
            (_, Some(_)) if old_active.is_none() => step.new = Some(wish.replicas),
            (Some(place), _) => step.old = replaced(step.old, place, wish.replicas),
            (None, _) => {}
        }
    } else if is_saturated {
        step.old.fill(0);
    } else if matches!(wish.strategy, Strategy::RollingUpdate { .. }) {
        return shared(wish, new, old);
    }
    step
}

fn replaced(mut sizes: Vec<i64>, place: usize, size: i64) -> Vec<i64> {
    if let Some(slot) = sizes.get_mut(place) {
        *slot = size;
    }
    sizes
}

/// Every active set gets its share of the difference, by its size; what rounding leaves goes to the largest.
fn shared(wish: &Wish, new: Option<Set>, old: &[Set]) -> Step {
    let total: i64 = new.iter().chain(old).map(|set| set.size).sum();
    let to_add = wish.most() - total;
    // By size; of equal ones the newer first when pods are added, the older first when they are taken away.
    let mut order: Vec<(usize, Set)> = old.iter().copied().chain(new).enumerate().collect();
    order.retain(|(_, set)| set.size > 0);
    order.sort_by_key(|(age, set)| {
        let age = i64::try_from(*age).unwrap_or(i64::MAX);
        (-set.size, if to_add > 0 { -age } else { age })
    });
    let mut sizes: Vec<i64> = old.iter().chain(new.iter()).map(|set| set.size).collect();
    let mut added = 0;
    for (place, set) in &order {
        let share = if to_add == 0 { 0 } else { share_of(wish, set, total) };
        let rest = to_add - added;
        let share = if to_add > 0 { share.clamp(0, rest) } else { share.clamp(rest, 0) };
        added += share;
        if let Some(size) = sizes.get_mut(*place) {
            *size += share;
        }
    }
    if let Some(size) = order.first().and_then(|(place, _)| sizes.get_mut(*place)) {
        *size = (*size + to_add - added).max(0);
    }
    let new = new.and_then(|_| sizes.pop());
    Step { new, old: sizes }
}

/// By how much a set changes if it keeps its part of the most pods that there may be.
fn share_of(wish: &Wish, set: &Set, total: i64) -> i64 {
    if wish.replicas == 0 {
        return -set.size;
    }
    let most_before = set.sized_for.map_or(total, |(_, most)| most).max(1);
    // Rounded half up; nothing here is negative.
    (2 * set.size * wish.most() + most_before) / (2 * most_before) - set.size
}

fn recreated(wish: &Wish, old: &[Set], mut step: Step) -> Step {
    if old.iter().any(|set| set.size > 0) {
        step.old.fill(0);
    } else if old.iter().all(|set| set.pods == 0) {
        step.new = Some(wish.replicas);
    }
    step
}

fn rolled(wish: &Wish, new: Option<Set>, old: &[Set], mut step: Step) -> Step {
    let old_total: i64 = old.iter().map(|set| set.size).sum();
    let new_set = new.unwrap_or_default();
    let total = old_total + new_set.size;
    let new_size = if new_set.size > wish.replicas {
        wish.replicas
    } else {
        new_set.size + (wish.most() - total).clamp(0, wish.replicas - new_set.size)
    };
    step.new = Some(new_size);
    if new.map(|new| new.size) != step.new {
        return step;
    }
    // New pods that are not available count as if they were missing.
    let unavailable = new_set.size - new_set.available;
    let mut may_go = total - wish.fewest_available() - unavailable;
    if old_total == 0 || may_go <= 0 {
        return step;
    }
    // First those that do not work anyway, then as many as leave enough available ones.
    for (size, set) in step.old.iter_mut().zip(old) {
        let gone = may_go.min(set.size - set.available).max(0);
        *size -= gone;
        may_go -= gone;
    }
    let available: i64 = new.iter().chain(old).map(|set| set.available).sum();
    let mut may_go = available - wish.fewest_available();
    for size in &mut step.old {
        let gone = may_go.min(*size).max(0);
        *size -= gone;
        may_go -= gone;
    }
    step
}

#[cfg(test)]
mod tests;
