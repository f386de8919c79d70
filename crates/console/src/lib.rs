//! `concertina console`: a page with all HPAs of a cluster, served on a loopback address.
//!
//! One watch of HPAs fills a [`store::Store`] with [`row::Row`]s. They are computed from the objects alone, so the page
//! works with any HPA controller. If a [`server::Record`] can be read, a row also has the controller's last decision.
//! The [`server`] sends the rows and their changes as server-sent events. The caller implements further traits. An
//! [`Explain`] explains a single HPA. A [`controller::Inspect`] reads the state of the controller. A [`whatif::WhatIf`]
//! simulates an HPA with other fields.
//!
//! The page is plain HTML, CSS and JavaScript in `assets/`, compiled into the program.

pub mod access;
pub mod advice;
pub mod command;
pub mod controller;
mod pages;
pub mod row;
pub mod server;
pub mod store;
mod stream;
pub mod whatif;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};

use self::advice::Advice;
use self::row::Count;

/// Maximum number of metrics of an HPA whose values are kept.
pub const METRICS: usize = 4;
/// The length of the history.
const HISTORY: SignedDuration = SignedDuration::from_hours(1);
/// Maximum number of observations of one HPA.
const MAX_OF_ONE: usize = 120;
/// Minimum number of observations to keep for each HPA, regardless of the number of HPAs.
const MIN_OF_ONE: usize = 8;
/// Maximum number of observations of all HPAs together, as long as each HPA can keep [`MIN_OF_ONE`].
const MAX_OF_ALL: usize = 250_000;

/// The namespace and name of an HPA.
pub type Key = (String, String);

/// The HPA to explain.
#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// The counts that the console has observed in the last hour, oldest first.
    pub history: Vec<Count>,
    /// The counts and metric values that the console has observed in the last hour, oldest first.
    pub observations: Vec<Observation>,
    /// The advice of the file of `--advice`. `None` if it has none for this HPA.
    pub advice: Option<Arc<Advice>>,
}

/// The reason why an explanation or a record is unavailable.
pub type Unavailable = Box<dyn Error + Send + Sync>;

/// Explains a single HPA.
pub trait Explain: Debug + Send + Sync + 'static {
    /// Returns the explanation as a JSON document, or the reason why no explanation is available.
    fn explain(&self, subject: Subject) -> BoxFuture<'static, Result<Vec<u8>, Unavailable>>;

    /// Returns the style sheet of the drawings in explanations.
    fn style(&self) -> String;
}

/// The status of an HPA at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// The time at which the watch delivered the status.
    pub at: Timestamp,
    /// `status.currentReplicas`.
    pub current: i32,
    /// `status.desiredReplicas`.
    pub desired: i32,
    /// The values of the first metrics of the spec, in percent for utilizations. `None` if the status has no value.
    pub values: [Option<f64>; METRICS],
}

/// The counts and metric values of HPAs that the watch has delivered in the last hour. They replace the controller's
/// record as input of simulations if the record cannot be read.
#[derive(Debug, Default)]
pub(crate) struct Observations {
    by_key: BTreeMap<Key, Vec<Observation>>,
}

impl Observations {
    /// Adds an observation. The observation replaces the last observation if the last two counts equal the new count,
    /// and the last two observations are close in time. This rule bounds the number of observations.
    pub(crate) fn note(&mut self, key: &Key, observation: Observation) {
        let most = (MAX_OF_ALL / self.by_key.len().max(1)).clamp(MIN_OF_ONE, MAX_OF_ONE);
        let points = match self.by_key.get_mut(key) {
            Some(points) => points,
            None => self.by_key.entry(key.clone()).or_default(),
        };
        let start = observation.at.checked_sub(HISTORY).unwrap_or(Timestamp::MIN);
        // The last observation before the hour is kept, because it is the state at the start of the hour.
        let old = points.iter().take_while(|other| other.at < start).count().saturating_sub(1);
        points.drain(..old);
        let spacing = HISTORY.as_secs() / i64::try_from(most).unwrap_or(i64::MAX) + 1;
        // An observation between two others with the same count can be dropped.
        let replaces = match points.as_slice() {
            [.., before, last] => {
                let is_same = before.desired == last.desired && last.desired == observation.desired;
                is_same && last.at.duration_since(before.at).as_secs() < spacing
            }
            _ => false,
        };
        if replaces {
            points.pop();
        }
        points.push(observation);
        let surplus = points.len().saturating_sub(most);
        points.drain(..surplus);
    }

    pub(crate) fn remove(&mut self, key: &Key) {
        self.by_key.remove(key);
    }

    /// Returns the observations of an HPA, oldest first.
    pub(crate) fn of(&self, key: &Key) -> Vec<Observation> {
        self.by_key.get(key).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn key() -> Key {
        ("shop".to_owned(), "web".to_owned())
    }

    fn noted(points: impl Iterator<Item = (i64, i32)>) -> Vec<(i64, i32)> {
        let mut observations = Observations::default();
        for (second, desired) in points {
            let at = Timestamp::from_second(second).unwrap();
            let values = [None; METRICS];
            observations.note(&key(), Observation { at, current: desired, desired, values });
        }
        observations.of(&key()).iter().map(|one| (one.at.as_second(), one.desired)).collect()
    }

    #[test]
    fn observations_are_thinned_but_changes_of_the_count_stay() {
        assert_eq!(
            noted([(0, 1), (15, 1), (16, 2), (17, 2), (18, 3)].into_iter()),
            [(0, 1), (15, 1), (16, 2), (17, 2), (18, 3)]
        );
        let steady = noted((0..240).map(|sync| (sync * 15, 4)));
        assert!(steady.len() <= MAX_OF_ONE + 1, "{}", steady.len());
        assert_eq!((steady.first(), steady.last()), (Some(&(0, 4)), Some(&(3585, 4))));
    }

    #[test]
    fn hour_starts_with_the_observation_before_it() {
        assert_eq!(noted([(0, 1), (60, 2), (4_000, 3)].into_iter()), [(60, 2), (4_000, 3)]);
        let many = noted((0..500).map(|second| (second, i32::try_from(second).unwrap())));
        assert_eq!(many.len(), MAX_OF_ONE);
        assert_eq!(many.last(), Some(&(499, 499)));
    }

    #[test]
    fn removed_hpa_has_no_observations() {
        let mut observations = Observations::default();
        let at = Timestamp::UNIX_EPOCH;
        observations.note(&key(), Observation { at, current: 1, desired: 1, values: [None; METRICS] });
        observations.remove(&key());
        assert_eq!(observations.of(&key()), []);
    }
}
