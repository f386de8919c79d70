//! Waits for the first sync of the caches.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::AppError;
use cluster::error::ApiError;
use controller::assembly::Assembly;

/// The interval between checks of the watches for a rejected certificate.
const CERTIFICATE_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The interval between logs about an unreachable API server.
const REMINDER: Duration = Duration::from_mins(1);

/// Waits for the first sync of the caches, and logs once a minute why the sync is not complete. A rejected
/// certificate is an error, because retries would be rejected as well.
pub(super) async fn synced(assembly: &Assembly, server: &str) -> Result<(), AppError> {
    let mut checks = interval_at(Instant::now() + CERTIFICATE_CHECK_INTERVAL, CERTIFICATE_CHECK_INTERVAL);
    let mut reminder = interval_at(Instant::now() + REMINDER / 6, REMINDER);
    reminder.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let synced = assembly.synced();
    tokio::pin!(synced);
    loop {
        tokio::select! {
            biased;
            () = &mut synced => return Ok(()),
            _ = checks.tick() => {
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
