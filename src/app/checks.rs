//! Health checks, and checks at the start of the process: the first sync of the caches, and the user of the requests.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::AppError;
use super::guard::HandoverSetup;
use super::guard::TakeoverSetup;
use super::leader::LeaderElection;
use crate::permissions::Findings;
use crate::serve::{Health, NotReady, Scope};
use clock::Backoff;
use cluster::client::Client;
use cluster::error::ApiError;
use cluster::watch::{Handle, Informer, WatchStatus};
use controller::assembly::Assembly;
use flags::Config;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::Api;
use kube::api::PostParams;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

/// A cache is stale after this time without an event or a bookmark. A silent watch is replaced after 90 s, so a longer
/// silence means that the new watch is silent, too.
const MAX_CACHE_AGE: Duration = Duration::from_mins(2);

/// Adds the health checks, except the state of the handover. A standby replica is ready, because it has the same caches
/// as the leader.
pub(super) fn add(
    health: &Health,
    assembly: &Assembly,
    leading: Option<&LeaderElection>,
    guard: Option<&TakeoverSetup>,
    permissions: Findings,
    stop: &CancellationToken,
) {
    if let Some(leading) = leading {
        let renewal = leading.renewal();
        health.add("leader-election", Scope::Live, move || renewal.check());
    }
    health.add("hpa-informer", Scope::Ready, informer(&assembly.hpas));
    health.add("pod-informer", Scope::Ready, informer(&assembly.pods));
    let policies = Arc::clone(&assembly.policies);
    health.add("scaling-policies", Scope::Ready, move || {
        let missing = policies.missing();
        if missing.is_empty() { Ok(()) } else { Err(NotReady(missing.join("; "))) }
    });
    let informers = [assembly.hpas.clone(), assembly.pods.clone()];
    health.add("api-server", Scope::Ready, move || {
        let mut errors = informers.iter().flat_map(Informer::watches).map(|watch| watch.status().error);
        let first = errors.next().flatten();
        match first {
            Some(error) if errors.all(|error| error.is_some()) => {
                Err(NotReady(format!("all watches failed: {error}")))
            }
            _ => Ok(()),
        }
    });
    // A replica that withholds writes is ready, because its caches are current and it computes every decision.
    if let Some(guard) = guard {
        let takeover = guard.takeover();
        health.note("takeover", Scope::Ready, move || Ok(takeover.detail()));
    }
    health.add("permissions", Scope::Ready, move || {
        permissions.ready().map_err(|reason| NotReady(reason.to_string()))
    });
    let stop = stop.clone();
    health.add("shutdown", Scope::Ready, move || {
        if stop.is_cancelled() { Err(NotReady("shutting down".to_owned())) } else { Ok(()) }
    });
}

/// Adds the state of the handover as a detail of a check that never fails.
pub(super) fn add_handover(health: &Health, handover: Option<&HandoverSetup>) {
    if let Some(handover) = handover {
        let handover = handover.handover();
        health.note("handover", Scope::Ready, move || Ok(handover.detail()));
    }
}

/// Creates a check that fails if a watch has not received its first list or is silent.
fn informer(informer: &Informer) -> impl Fn() -> Result<(), NotReady> + Send + use<> {
    let informer = informer.clone();
    move || {
        let failing: Vec<_> =
            informer.watches().map(Handle::status).filter_map(|status| problem(&status)).collect();
        if failing.is_empty() { Ok(()) } else { Err(NotReady(failing.join("; "))) }
    }
}

fn problem(status: &WatchStatus) -> Option<String> {
    match &status.error {
        _ if status.synced && status.is_silent(MAX_CACHE_AGE) => {
            Some(format!("watch of {} is silent for {} s", status.place(), status.age.as_secs()))
        }
        _ if status.synced => None,
        Some(error) => Some(format!("failed to list {}: {error}", status.place())),
        None => Some(format!("{} not listed yet", status.place())),
    }
}

/// The first and the maximum pause before a retry.
const PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Checks that the guard does not refuse the writes of this process. With the guard `webhook` or `policy`, the API
/// server refuses writes by the users in `--built-in-users`.
///
/// Reads the user of `client` from the API server, and retries failed requests. If the API server does not serve this
/// review (before 1.28) or forbids it, the user remains unknown, and a warning is logged.
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
                    "failed to read the user of this process; it must not be one of --built-in-users, whose writes the \
                     guard refuses"
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

/// The interval between checks whether the API server or the client rejects a certificate.
const CERTIFICATE_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The interval between warnings that the caches are not synced.
const REMINDER: Duration = Duration::from_mins(1);

/// Waits for the first sync of the caches. Once a minute, logs the error that delays the sync.
///
/// # Errors
/// Returns [`AppError::Certificate`] if a certificate is rejected, because each retry would fail, too.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use cluster::client::{ClientOptions, Clients};
    use cluster::decode::WirePod;
    use cluster::watch::{DeletedObject, Pods, Sink, WatchOptions, watch};
    use fake_cluster::{Cluster, FaultAction, FaultRule};

    struct Ignore;

    impl<'a> Sink<WirePod<'a>> for Ignore {
        fn start(&mut self) {}
        fn apply(&mut self, _: WirePod<'a>) {}
        fn delete(&mut self, _: DeletedObject) {}
        fn done(&mut self) {}
    }

    #[tokio::test(start_paused = true)]
    async fn informer_is_not_ready_when_silent_for_two_minutes() {
        let cluster = Cluster::new(Arc::new(clock::VirtualClock::starting_at(jiff::Timestamp::UNIX_EPOCH)));
        let clients = Clients::over(cluster.connector(), &ClientOptions::default()).unwrap();
        let (handle, run) = watch::<Pods, _>(clients.watch, WatchOptions::default(), Ignore);
        tokio::spawn(run);
        let check = informer(&Informer::new([handle.clone()]));
        assert_eq!(check(), Err(NotReady("pods not listed yet".to_owned())));
        handle.wait_synced().await;
        // Bookmarks keep a watch of an unchanged resource ready.
        for _ in 0..900 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(check(), Ok(()));
        }
        cluster.faults().add(FaultRule::new(FaultAction::WatchSilence));
        tokio::time::sleep(Duration::from_secs(121)).await;
        let reason = check().unwrap_err().0;
        assert!(reason.starts_with("watch of pods is silent for 1"), "{reason}");
        cluster.faults().clear();
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert_eq!(check(), Ok(()));
    }
}
