//! The objects of one resource as they change, without looking at those that do not.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::embedded::Cluster;
use crate::embedded::registry::ResourceType;
use crate::embedded::store::{Change, ChangeKind, Stored};

/// What has become of an object.
#[derive(Debug)]
pub(in crate::embedded) enum Seen {
    /// It is there, new or changed.
    Here(Arc<Stored>),
    /// It is gone; this is its last state.
    Gone(Arc<Stored>),
}

/// First the objects that are there, then every change of one.
#[derive(Debug)]
pub(in crate::embedded) struct Feed {
    here: Vec<Arc<Stored>>,
    live: Option<mpsc::UnboundedReceiver<Arc<Change>>>,
}

impl Feed {
    /// Follows a resource from now on; one that the cluster does not know stays empty.
    pub(in crate::embedded) fn open(cluster: &Cluster, resource: &str) -> Self {
        let Some(ty) = ResourceType::named(resource) else {
            return Self { here: Vec::new(), live: None };
        };
        let mut state = cluster.lock();
        let here = state.list(ty, None, None).cloned().collect();
        let newest = state.newest();
        let live = state.subscribe(ty, None, newest).ok().map(|subscription| subscription.live);
        Self { here, live }
    }

    /// What has happened since the last call, in order.
    pub(in crate::embedded) fn drain(&mut self) -> impl Iterator<Item = Seen> {
        let live = self.live.as_mut().into_iter();
        let changes = live.flat_map(|live| std::iter::from_fn(|| live.try_recv().ok()));
        std::mem::take(&mut self.here).into_iter().map(Seen::Here).chain(changes.map(|change| {
            let now = Arc::clone(&change.now);
            if change.kind == ChangeKind::Deleted { Seen::Gone(now) } else { Seen::Here(now) }
        }))
    }
}
