//! The state of this replica.

use std::sync::Arc;

use ::console::controller::{ControllerState, Handover, Inspect, LeaseState, Missing, Numbers, Parity};
use futures::future::BoxFuture;
use http::StatusCode;
use tokio::sync::watch;

use super::Shown;
use controller::election::LeaderState;
use controller::page::JsonPage;
use controller::telemetry::metrics::Metrics;

pub(super) struct OwnState {
    telemetry: Metrics,
    handover: JsonPage,
    parity: JsonPage,
    identity: String,
    election: Option<(String, Arc<str>, watch::Receiver<LeaderState>)>,
}

impl std::fmt::Debug for OwnState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnState").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl OwnState {
    pub(super) fn new(shown: Shown<'_>) -> Self {
        let Shown { telemetry, handover, parity, identity, election, .. } = shown;
        Self { telemetry, handover, parity, identity, election }
    }

    fn read(&self) -> ControllerState {
        let mut state =
            ControllerState { from: Some(format!("replica {}", self.identity)), ..Default::default() };
        state.lease = self.election.as_ref().map(|(namespace, name, election)| {
            let (holder, transitions) = match &*election.borrow() {
                LeaderState::Leader { term, .. } => (self.identity.clone(), Some(*term)),
                LeaderState::Standby(Some(holder)) => (holder.identity.clone(), Some(holder.term)),
                LeaderState::Standby(None) => (String::new(), None),
            };
            LeaseState {
                namespace: namespace.clone(),
                name: name.to_string(),
                holder,
                acquired: None,
                renewed: None,
                transitions,
                seconds: 0,
            }
        });
        let mut unreadable = |part, error: String| {
            state.missing.push(Missing { part, reason: error, advice: String::new() });
        };
        match Numbers::parse(self.telemetry.render().as_bytes()) {
            Ok(numbers) => state.numbers = Some(numbers),
            Err(error) => unreadable("metrics", error.to_string()),
        }
        match Handover::parse(&(self.handover)(None).json) {
            Ok(handover) => state.handover = Some(handover),
            Err(error) => unreadable("handover", error.to_string()),
        }
        let parity = (self.parity)(None);
        if parity.status == StatusCode::OK {
            match Parity::parse(&parity.json) {
                Ok(parity) => state.parity = Some(parity),
                Err(error) => unreadable("parity", error.to_string()),
            }
        }
        state
    }
}

impl Inspect for OwnState {
    fn inspect(&self) -> BoxFuture<'static, ControllerState> {
        Box::pin(std::future::ready(self.read()))
    }
}
