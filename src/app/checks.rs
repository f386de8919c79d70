//! What has to hold for the process to be live and ready.

use tokio_util::sync::CancellationToken;

use super::Assembly;
use super::guard::Guard;
use super::leading::Leading;
use crate::api::watch::{Handle, Informer};
use crate::permissions::check::Findings;
use crate::serve::{Health, Scope};

/// Adds the checks. A replica that stands by is ready: it sees what the leader sees.
pub(super) fn add(
    health: &Health,
    assembly: &Assembly,
    leading: Option<&Leading>,
    guard: Option<&Guard>,
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
            Some(error) if errors.all(|error| error.is_some()) => Err(format!("no watch works: {error}")),
            _ => Ok(()),
        }
    });
    // Whoever holds back is ready: it sees and decides everything.
    if let Some(guard) = guard {
        let takeover = guard.takeover();
        health.note("takeover", Scope::Ready, move || Ok(takeover.detail()));
    }
    health.add("permissions", Scope::Ready, move || permissions.ready());
    let stop = stop.clone();
    health.add("shutdown", Scope::Ready, move || {
        if stop.is_cancelled() { Err("the process is ending".to_owned()) } else { Ok(()) }
    });
}

/// Names each namespace that is missing.
fn informer(informer: &Informer) -> impl Fn() -> Result<(), String> + Send + use<> {
    let informer = informer.clone();
    move || {
        let missing: Vec<_> = informer
            .watches()
            .map(Handle::status)
            .filter(|status| !status.synced)
            .map(|status| match &status.error {
                Some(error) => format!("{} cannot be listed: {error}", status.place()),
                None => format!("{} are not listed yet", status.place()),
            })
            .collect();
        if missing.is_empty() { Ok(()) } else { Err(missing.join("; ")) }
    }
}
