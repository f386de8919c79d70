//! The user as which this process sends its requests. The guards `webhook` and `policy` refuse the writes of
//! `--built-in-users`, so they would refuse those of a process that runs as one of them.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::Api;
use kube::api::PostParams;
use tokio::time::sleep;

use super::AppError;
use crate::cli::Config;
use clock::Backoff;
use cluster::client::Client;
use cluster::error::ApiError;

/// First wait before another attempt.
const PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Asks the API server for the user of `client`, and repeats a failed request. An API server without this review
/// (before 1.28) leaves the user unknown, which is logged.
///
/// # Errors
/// Returns [`AppError::BuiltInUser`] if the guard refuses the writes of this user.
pub(super) async fn check(config: &Config, client: &Client) -> Result<(), AppError> {
    if config.controller.dry_run || !config.handover.guard.checks_users() {
        return Ok(());
    }
    let api: Api<SelfSubjectReview> = client.cluster_scoped();
    let mut backoff = Backoff::new(PAUSE, LONGEST_PAUSE);
    let user = loop {
        match api.create(&PostParams::default(), &SelfSubjectReview::default()).await.map_err(ApiError::from)
        {
            Ok(review) => break review.status.and_then(|status| status.user_info?.username),
            Err(error) if error.is_not_found() || error.is_forbidden() => {
                tracing::warn!(
                    %error,
                    "cannot read the user of this process; it must be none of --built-in-users, whose writes the guard \
                     refuses"
                );
                return Ok(());
            }
            Err(error) => {
                tracing::debug!(%error, "failed to read the user of this process; retrying");
                sleep(backoff.fail()).await;
            }
        }
    };
    match user {
        Some(user) if config.handover.built_in_users.contains(&user) => {
            Err(AppError::BuiltInUser { user, guard: config.handover.guard.as_str() })
        }
        user => {
            tracing::debug!(user, "the guard does not refuse the user of this process");
            Ok(())
        }
    }
}
