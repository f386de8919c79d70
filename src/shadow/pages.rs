//! What was compared, over HTTP.

use std::sync::Arc;

use super::Shadow;
use super::wire::{SHADOW_REPORT, ShadowReport};
use crate::controller::Controller;
use crate::record::Answer;
use crate::record::wire::{API_VERSION, ControllerInfo};

/// What the shadow of one controller tells. Clones are the same.
#[derive(Debug, Clone)]
pub struct Parity {
    shadow: Arc<Shadow>,
    controller: Arc<Controller>,
}

impl Parity {
    /// What this shadow of this controller tells.
    pub fn new(shadow: Arc<Shadow>, controller: Arc<Controller>) -> Self {
        Self { shadow, controller }
    }

    /// Answers a GET of `/parity`.
    pub fn answer(&self) -> Answer {
        Answer::ok(&self.report())
    }

    /// All that was compared.
    pub fn report(&self) -> ShadowReport {
        let Shadow { parts, since, .. } = &*self.shadow;
        let state = self.shadow.lock();
        ShadowReport {
            api_version: API_VERSION.to_owned(),
            kind: SHADOW_REPORT.to_owned(),
            controller: ControllerInfo::of(&self.controller),
            since: *since,
            now: parts.clock.now(),
            hpas: self.controller.hpas.len(),
            last_sign: state.last_sign,
            hours: state.ledger.hours().collect(),
            changes: state.ledger.changes().cloned().collect(),
        }
    }
}
