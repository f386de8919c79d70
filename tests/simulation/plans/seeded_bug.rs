//! Bugs that are injected between a process and the cluster. They show that the plans find bugs. None of them
//! has an effect in a run without a fault.

use std::sync::Arc;
use std::time::Duration;

use fake_cluster::{Answer, Exchange, Server};
use serde_json::Value;

use super::fault_injector::FaultInjector;

/// A planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SeededBug {
    /// A count without a response is written again 20 s later, over any newer state.
    RepeatsWrites,
    /// A reopened watch continues from the current version and not from the version at which the previous one
    /// broke.
    SkipsEvents,
    /// Status writes of a successor process are confirmed and dropped.
    DropsStatuses,
}

/// Acts as the planted bug: returns a response in place of the server, or alters the request.
pub(crate) fn intercept(link: &FaultInjector, exchange: &mut Exchange) -> Option<Answer> {
    match link.ground.plant? {
        SeededBug::SkipsEvents if exchange.verb == "watch" && link.ground.log().fault_time.is_some() => {
            let newest = link.ground.world.cluster.resource_version();
            let fields = exchange.query.split('&').map(|field| match field.split_once('=') {
                Some(("resourceVersion", _)) => format!("resourceVersion={newest}"),
                _ => field.to_owned(),
            });
            exchange.query = fields.collect::<Vec<_>>().join("&");
            None
        }
        SeededBug::DropsStatuses
            if !link.is_first && exchange.verb == "update" && exchange.path.ends_with("/status") =>
        {
            Some(Answer::json(200, exchange.body.clone()))
        }
        _ => None,
    }
}

/// Acts as the planted bug after the process has died.
pub(crate) fn continue_after_death(link: &Arc<FaultInjector>, mut exchange: Exchange, server: Server) {
    let writes = exchange.verb == "update" && exchange.path.ends_with("/scale");
    if link.ground.plant != Some(SeededBug::RepeatsWrites) || !writes {
        return;
    }
    let link = Arc::clone(link);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(20)).await;
        let mut body: Value = serde_json::from_slice(&exchange.body).unwrap();
        body["metadata"]["resourceVersion"] = "".into();
        exchange.body = body.to_string().into();
        link.forward(exchange, &server).await;
    });
}
