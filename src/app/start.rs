//! Until the first view of the cluster is there.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::{AppError, Assembly};
use crate::api::error::ApiError;

/// How often it is looked for a certificate that is refused.
const LOOK: Duration = Duration::from_millis(500);
/// How often it is told that there is no API server.
const REMINDER: Duration = Duration::from_mins(1);

/// Waits for the first view of the cluster. Without an API server: one line a minute. A certificate that is refused
/// will be refused again, so that ends it.
pub(super) async fn synced(assembly: &Assembly, server: &str) -> Result<(), AppError> {
    let mut looks = interval_at(Instant::now() + LOOK, LOOK);
    let mut reminder = interval_at(Instant::now() + REMINDER / 6, REMINDER);
    reminder.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let synced = assembly.synced();
    tokio::pin!(synced);
    loop {
        tokio::select! {
            biased;
            () = &mut synced => return Ok(()),
            _ = looks.tick() => {
                if let Some(ApiError::Certificate { message, .. }) = assembly.hpas.status().error {
                    return Err(AppError::Certificate { server: server.to_owned(), message });
                }
            }
            _ = reminder.tick() => {
                let waiting = [assembly.hpas.status(), assembly.pods.status()];
                let waiting: Vec<_> = waiting.into_iter().filter(|status| !status.synced).collect();
                if let Some(error) = waiting.iter().find_map(|status| status.error.as_ref()) {
                    let resources: Vec<_> = waiting.iter().map(|status| &*status.resource).collect();
                    tracing::warn!(resources = resources.join(","), %server, %error, "waiting for the API server");
                }
            }
        }
    }
}
