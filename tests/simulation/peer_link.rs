//! The connection between replicas, with its faults.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use controller::election::Peer;
use controller::history::replica::transport::{PeerTransport, ServedPages, TransportError};
use futures::future::BoxFuture;

use crate::plan::{Class, FaultKind};
use crate::request_log::Subject;
use crate::run::Run;
use crate::seeded_bugs::SeededBug;

/// The connection of one process to the other replicas.
#[derive(Debug)]
pub(crate) struct PeerLink {
    pub(crate) run: Arc<Run>,
    pub(crate) process: usize,
    pub(crate) link: Arc<dyn PeerTransport>,
}

impl PeerTransport for PeerLink {
    fn register(&self, served: ServedPages) {
        self.link.register(served);
    }

    fn advertised(&self) -> Option<Peer> {
        self.link.advertised()
    }

    fn get<'a>(&'a self, peer: &'a Peer, path: &'a str) -> BoxFuture<'a, Result<Bytes, TransportError>> {
        let unreachable =
            || TransportError::Unreachable { peer: peer.address, reason: "injected fault".to_owned() };
        let subject = Subject { class: Class::Peer, hpa: None, is_tenant: false };
        let kinds = [FaultKind::PeerDown, FaultKind::PeerSlow];
        Box::pin(async move {
            if self.run.plant == Some(SeededBug::HistoryLost) {
                return Err(unreachable());
            }
            let strike = self.run.faults.lock().hit(&kinds, self.process, subject);
            match strike {
                Some(strike) if strike.kind == FaultKind::PeerDown => return Err(unreachable()),
                Some(strike) => tokio::time::sleep(Duration::from_millis(strike.amount)).await,
                None => {}
            }
            let answer = self.link.get(peer, path).await?;
            Ok(if self.run.plant == Some(SeededBug::ClockMisread) {
                with_shifted_clock(&answer)
            } else {
                answer
            })
        })
    }
}

/// The response of a leader with a clock that is an hour ahead of its histories.
fn with_shifted_clock(answer: &Bytes) -> Bytes {
    let mut bytes = answer.to_vec();
    // The time follows the name of the format and the flags.
    if let Some(now) = bytes.get_mut(9..17) {
        let hour = Duration::from_hours(1).as_nanos() as i64;
        let ahead = i64::from_be_bytes(now.try_into().unwrap()) + hour;
        now.copy_from_slice(&ahead.to_be_bytes());
    }
    bytes.into()
}
