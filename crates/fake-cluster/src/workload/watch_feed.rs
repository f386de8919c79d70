//! A feed of the changes of one resource. Unchanged objects cost nothing.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::Cluster;
use crate::registry::ResourceType;
use crate::store::{Change, ChangeKind, StoredObject};

/// A change of an object.
#[derive(Debug)]
pub(crate) enum FeedEvent {
    /// The object exists: it is new or changed.
    Present(Arc<StoredObject>),
    /// The object was deleted. The value is its last version.
    Deleted(Arc<StoredObject>),
}

/// A feed of the existing objects, followed by every change.
#[derive(Debug)]
pub(crate) struct Feed {
    existing: Vec<Arc<StoredObject>>,
    live: Option<mpsc::UnboundedReceiver<Arc<Change>>>,
}

impl Feed {
    /// Opens a feed that starts now. The feed of an unregistered resource stays empty.
    pub(crate) fn open(cluster: &Cluster, resource: &str) -> Self {
        let Some(ty) = ResourceType::named(resource) else {
            return Self { existing: Vec::new(), live: None };
        };
        let mut state = cluster.lock();
        let existing = state.list(ty, None, None).cloned().collect();
        let newest = state.newest();
        let live = state.subscribe(ty, None, newest).ok().map(|subscription| subscription.live);
        Self { existing, live }
    }

    /// Whether the cluster has ended the feed, as a restore does.
    pub(crate) fn is_closed(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.is_closed() && live.is_empty())
    }

    /// Returns the events since the previous call, in order.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = FeedEvent> {
        let live = self.live.as_mut().into_iter();
        let changes = live.flat_map(|live| std::iter::from_fn(|| live.try_recv().ok()));
        std::mem::take(&mut self.existing).into_iter().map(FeedEvent::Present).chain(changes.map(|change| {
            let now = Arc::clone(&change.now);
            if change.kind == ChangeKind::Deleted { FeedEvent::Deleted(now) } else { FeedEvent::Present(now) }
        }))
    }
}
