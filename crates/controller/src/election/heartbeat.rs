//! Heartbeats of the work that a Lease protects, for an election on another thread.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The time of the last heartbeat. Clones share it.
#[derive(Debug, Clone)]
pub struct Heartbeat(Arc<Mutex<Instant>>);

impl Heartbeat {
    /// Creates a heartbeat that has just beaten.
    #[expect(clippy::new_without_default, reason = "the value depends on the time")]
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    /// Records a heartbeat.
    pub fn beat(&self) {
        *self.0.lock() = Instant::now();
    }

    /// The time since the last heartbeat.
    pub(super) fn age(&self) -> Duration {
        self.0.lock().elapsed()
    }
}
