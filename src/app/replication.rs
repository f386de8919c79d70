//! Histories of this process for the replicas that stand by, and theirs of whoever led before.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::leading::Leading;
use crate::controller::Controller;
use crate::history::replica::link::Link;
use crate::history::replica::{Follower, Inheritance, Parts, Source};
use crate::telemetry::metrics::Metrics as Telemetry;

/// How long a leader that ends waits for those who copy its histories. A hand-over takes two seconds at most.
const HAND_OVER: Duration = Duration::from_millis(1500);

/// The histories of replicas among which one leads.
#[derive(Debug)]
pub(super) struct Replication {
    source: Arc<Source>,
    follower: Option<Follower>,
}

impl Replication {
    /// Of this controller. Without a link it copies from nobody.
    pub(super) fn new(
        source: Arc<Source>,
        link: Option<Arc<dyn Link>>,
        leading: &Leading,
        controller: &Arc<Controller>,
        telemetry: &Telemetry,
    ) -> Self {
        let follower = link.map(|link| {
            Follower::new(Parts {
                link,
                identity: leading.identity().to_owned(),
                standing: leading.standing(),
                controller: Arc::clone(controller),
                telemetry: telemetry.clone(),
                lease: leading.lease(),
            })
        });
        Self { source, follower }
    }

    /// Copies the histories of whoever leads, until this ends.
    pub(super) async fn follow_until<T>(&mut self, end: impl Future<Output = T>) -> T {
        let following = async {
            if let Some(follower) = &mut self.follower {
                follower.run().await;
            }
            pending::<Infallible>().await
        };
        tokio::select! {
            biased;
            ended = end => ended,
            never = following => match never {},
        }
    }

    /// Makes what was copied this process's own, which leads in this term now.
    pub(super) fn adopt(&mut self, term: i32) -> Inheritance {
        self.follower.take().map_or(Inheritance::Nothing, |follower| follower.adopt(term))
    }

    /// From now on others may copy.
    pub(super) fn leads(&self) {
        self.source.leads();
    }

    /// This process does not lead any more: whoever still asks is not kept waiting.
    pub(super) fn lost(&self) {
        self.source.lost();
    }

    /// All syncs have ended. Waits until others have copied the last of them, for a moment.
    pub(super) async fn conclude(&self) {
        if timeout(HAND_OVER, self.source.conclude()).await.is_err() {
            tracing::info!(
                "not every replica has copied the last histories: the next leader may miss a second"
            );
        }
    }
}
