//! The health checks of the process.

use tokio_util::sync::CancellationToken;

use super::leader::LeaderElection;
use super::takeover_setup::TakeoverSetup;
use crate::permissions::check::Findings;
use crate::serve::{Health, NotReady, Scope};
use cluster::watch::{Handle, Informer};
use controller::assembly::Assembly;

/// Adds the health checks. A standby replica is ready, because it has the same caches as the leader.
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
    // A replica that holds writes back is ready, because its caches are current and it computes every
    // decision.
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

/// Creates a check that fails with the names of the namespaces that are not listed yet.
fn informer(informer: &Informer) -> impl Fn() -> Result<(), NotReady> + Send + use<> {
    let informer = informer.clone();
    move || {
        let missing: Vec<_> = informer
            .watches()
            .map(Handle::status)
            .filter(|status| !status.synced)
            .map(|status| match &status.error {
                Some(error) => format!("failed to list {}: {error}", status.place()),
                None => format!("{} not listed yet", status.place()),
            })
            .collect();
        if missing.is_empty() { Ok(()) } else { Err(NotReady(missing.join("; "))) }
    }
}
