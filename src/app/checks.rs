//! What has to hold for the process to be live and ready.

use tokio_util::sync::CancellationToken;

use super::Assembly;
use super::guard::Guard;
use super::leading::Leading;
use crate::api::watch::Handle;
use crate::serve::{Health, Scope};

/// Adds the checks. A replica that stands by is ready: it sees what the leader sees.
pub(super) fn add(
    health: &Health,
    assembly: &Assembly,
    leading: Option<&Leading>,
    guard: Option<&Guard>,
    stop: &CancellationToken,
) {
    if let Some(leading) = leading {
        let renewal = leading.renewal();
        health.add("leader-election", Scope::Live, move || renewal.check());
    }
    health.add("hpa-informer", Scope::Ready, informer(&assembly.hpas));
    health.add("pod-informer", Scope::Ready, informer(&assembly.pods));
    let watches = [assembly.hpas.clone(), assembly.pods.clone()];
    health.add("api-server", Scope::Ready, move || {
        let errors: Vec<_> = watches.iter().filter_map(|watch| watch.status().error).collect();
        match errors.first() {
            Some(error) if errors.len() == watches.len() => Err(format!("no watch works: {error}")),
            _ => Ok(()),
        }
    });
    // Whoever holds back is ready: it sees and decides everything.
    if let Some(guard) = guard {
        let takeover = guard.takeover();
        health.note("takeover", Scope::Ready, move || Ok(takeover.detail()));
    }
    let stop = stop.clone();
    health.add("shutdown", Scope::Ready, move || {
        if stop.is_cancelled() { Err("the process is ending".to_owned()) } else { Ok(()) }
    });
}

fn informer(handle: &Handle) -> impl Fn() -> Result<(), String> + Send + use<> {
    let handle = handle.clone();
    move || {
        let status = handle.status();
        match (status.synced, status.error) {
            (true, _) => Ok(()),
            (false, Some(error)) => Err(format!("{} cannot be listed: {error}", status.resource)),
            (false, None) => Err(format!("{} are not listed yet", status.resource)),
        }
    }
}
