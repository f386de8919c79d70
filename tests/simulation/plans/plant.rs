//! Bugs that are planted on the way between a process and the cluster, to show that the plans find such. None of them
//! shows in a run without a fault.

use std::sync::Arc;
use std::time::Duration;

use concertina::embedded::{Answer, Exchange, Server};
use serde_json::Value;

use super::way::Way;

/// A planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plant {
    /// A count whose answer was lost is written again 20 s later, whatever has happened since.
    RepeatsWrites,
    /// A watch that is opened again goes on from now, not from where the last one broke.
    SkipsEvents,
    /// The statuses of a process that follows another are answered and dropped.
    DropsStatuses,
}

/// Answers in the server's place, or alters what it is asked.
pub(crate) fn instead(way: &Way, exchange: &mut Exchange) -> Option<Answer> {
    match way.ground.plant? {
        Plant::SkipsEvents if exchange.verb == "watch" && way.ground.log().struck.is_some() => {
            let newest = way.ground.world.cluster.resource_version();
            let fields = exchange.query.split('&').map(|field| match field.split_once('=') {
                Some(("resourceVersion", _)) => format!("resourceVersion={newest}"),
                _ => field.to_owned(),
            });
            exchange.query = fields.collect::<Vec<_>>().join("&");
            None
        }
        Plant::DropsStatuses
            if !way.is_first && exchange.verb == "update" && exchange.path.ends_with("/status") =>
        {
            Some(Answer::json(200, exchange.body.clone()))
        }
        _ => None,
    }
}

/// Goes on after the process is dead.
pub(crate) fn afterwards(way: &Arc<Way>, mut exchange: Exchange, server: Server) {
    let writes = exchange.verb == "update" && exchange.path.ends_with("/scale");
    if way.ground.plant != Some(Plant::RepeatsWrites) || !writes {
        return;
    }
    let way = Arc::clone(way);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(20)).await;
        let mut body: Value = serde_json::from_slice(&exchange.body).unwrap();
        body["metadata"]["resourceVersion"] = "".into();
        exchange.body = body.to_string().into();
        way.ask(exchange, &server).await;
    });
}
