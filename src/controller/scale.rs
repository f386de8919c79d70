//! Where a sync gets the Scale of its target from: a watch if one shows it, otherwise the API server.

use autoscaling::{Hpa, Scale, ScaleFailure, WriteOutcome, target_group};

use super::Controller;
use super::rescale::{Target, rescale};
use crate::api::error::ApiError;
use crate::api::mapper::{MapError, Mapping};
use crate::store::Key;

/// The Scale of a target, and how it was learned.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) scale: Result<Scale, ScaleFailure>,
    /// What can be written over; none if the Scale was not read.
    pub(super) target: Option<Target>,
    /// Whether a watch showed it, so that it must be read before it is written.
    pub(super) seen: bool,
}

impl Reading {
    fn failed(message: String, is_spec: bool) -> Self {
        Self { scale: Err(ScaleFailure { message, is_spec }), target: None, seen: false }
    }
}

impl Controller {
    /// The Scale as a watch shows it, or as it is read.
    pub(super) async fn look_at_scale(&self, key: &Key, hpa: &Hpa<'_>) -> Reading {
        self.scale_of(key, hpa, true).await
    }

    /// The Scale as it is read now, from the first of the target's mappings that answers; the first error counts.
    pub(super) async fn read_scale(&self, key: &Key, hpa: &Hpa<'_>) -> Reading {
        self.scale_of(key, hpa, false).await
    }

    async fn scale_of(&self, key: &Key, hpa: &Hpa<'_>, may_be_seen: bool) -> Reading {
        let reference = &hpa.spec.target;
        let group = match target_group(reference) {
            Ok(group) => group,
            Err(error) => {
                self.unwatch(key);
                return Reading::failed(error.to_string(), true);
            }
        };
        let mappings = match self.mapper.mappings(group, &reference.kind).await {
            Ok(mappings) => mappings,
            Err(error) => {
                if matches!(error, MapError::NoMatch { .. }) {
                    self.unwatch(key);
                }
                return Reading::failed(error.to_string(), false);
            }
        };
        if may_be_seen
            && let (Some(targets), Some(mapping)) = (&self.targets, mappings.first())
            && let Some(target) = targets.look(key, mapping, &reference.name)
            && let Ok(scale) = Scale::new(target.replicas, target.status_replicas, &target.selector)
        {
            return Reading { scale: Ok(scale), target: None, seen: true };
        }
        let mut first_error = None;
        for (place, mapping) in mappings.iter().enumerate() {
            let error = match self.read_at(key, hpa, mapping, place == 0).await {
                Ok((target, scale)) => {
                    return Reading { scale: Ok(scale), target: Some(target), seen: false };
                }
                Err(error) => error,
            };
            first_error.get_or_insert(error);
        }
        Reading::failed(first_error.unwrap_or_else(|| "unrecognized resource".to_owned()), false)
    }

    /// `watched`: whether this is where a watch would look.
    async fn read_at(
        &self,
        key: &Key,
        hpa: &Hpa<'_>,
        mapping: &Mapping,
        watched: bool,
    ) -> Result<(Target, Scale), String> {
        let name = &hpa.spec.target.name;
        let read = self.scales.get(mapping, hpa.namespace, name).await;
        if let (Some(targets), true) = (&self.targets, watched) {
            match &read {
                Ok(object) => targets.saw(key, &object.resource_version),
                Err(error) if error.is_not_found() => targets.forget(key),
                Err(_) => {}
            }
        }
        let object = read.map_err(|error: ApiError| error.to_string())?;
        let scale = Scale::new(object.spec_replicas, object.status_replicas, &object.selector)?;
        let namespace = hpa.namespace.to_owned();
        Ok((Target { mapping: mapping.clone(), namespace, name: name.clone(), object }, scale))
    }

    /// Writes a count, and remembers how far the target is then.
    pub(super) async fn write_scale(&self, key: &Key, target: Target, to: i32) -> WriteOutcome {
        let (outcome, version) = rescale(&self.scales, key, target, to).await;
        if let Some(targets) = &self.targets {
            match (&outcome, version) {
                (WriteOutcome::Done, Some(version)) => targets.saw(key, &version),
                (WriteOutcome::Withheld | WriteOutcome::NotNeeded, _) => {}
                _ => targets.lost_sight(key),
            }
        }
        outcome
    }

    fn unwatch(&self, key: &Key) {
        if let Some(targets) = &self.targets {
            targets.release(key);
        }
    }
}
