//! Serves comparisons over HTTP.

use std::sync::Arc;

use http::StatusCode;

use super::Shadow;
use super::wire::{SHADOW_REPORT, ShadowReport};
use crate::handover::charges::Counts;
use crate::page::JsonPage;
use crate::reconcile::Controller;
use crate::record::wire::{API_VERSION, Comparison, ControllerInfo, Difference};
use crate::record::{Answer, Comparisons};
use crate::store::Key;

/// The `/parity` report of one controller. Clones share the same shadow.
#[derive(Debug, Clone)]
pub struct Parity {
    shadow: Arc<Shadow>,
    controller: Arc<Controller>,
}

impl Parity {
    /// Creates the report of `shadow`, which compares `controller`.
    pub fn new(shadow: Arc<Shadow>, controller: Arc<Controller>) -> Self {
        Self { shadow, controller }
    }

    /// Responds to a GET of `/parity`.
    pub fn answer(&self) -> Answer {
        Answer::ok(&self.report())
    }

    /// Creates the page of a process. Without a comparison, the page responds with 404.
    pub fn page(parity: Option<Self>) -> JsonPage {
        Arc::new(move |_| {
            parity.as_ref().map_or_else(
                || {
                    let message = "no comparisons: this controller was started without --dry-run and without --shadow-others";
                    Answer::failure(StatusCode::NOT_FOUND, message.to_owned())
                },
                Self::answer,
            )
        })
    }

    /// Builds the full report.
    pub fn report(&self) -> ShadowReport {
        let Shadow { parts, since, .. } = &*self.shadow;
        let state = self.shadow.state.lock();
        let in_scope = parts.others_of.as_ref().map_or(0, |charges| {
            let Counts { claiming, in_charge, contested, .. } = charges.counts();
            claiming + in_charge + contested
        });
        ShadowReport {
            api_version: API_VERSION.to_owned(),
            kind: SHADOW_REPORT.to_owned(),
            controller: ControllerInfo::new(&self.controller),
            since: *since,
            now: parts.clock.now(),
            hpas: self.controller.hpas.len().saturating_sub(in_scope),
            last_sign: state.last_sign,
            hours: state.log.hours().collect(),
            changes: state.log.changes().cloned().collect(),
        }
    }
}

impl Comparisons for Parity {
    fn comparison(&self, key: &Key) -> Comparison {
        let state = self.shadow.state.lock();
        let counts = state.log.counts_of(&key.namespace, &key.name);
        let difference = state.log.last_difference(&key.namespace, &key.name);
        Comparison {
            since: self.shadow.since,
            same: counts.same,
            different: counts.differences(),
            unknown: counts.unknown,
            last_difference: difference.map(|change| {
                let sentence =
                    change.ours.as_ref().map_or("no decision was made", |ours| ours.sentence.as_str());
                let (builtin, ours) = (change.builtin_counts(), change.our_counts());
                Difference {
                    at: change.at,
                    sentence: format!(
                        "the built-in controller: {builtin}; the dry run: {ours}, because {sentence}"
                    ),
                }
            }),
        }
    }
}
