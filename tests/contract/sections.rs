//! The chapters of the contract and the function that runs them.

use serde_json::json;

use crate::outcome::{Failure, Outcome};
use crate::rest::Rest;
use crate::step::{Saved, Step};
use crate::{discovery, events, hpas, lists, patches, scales, tables};

/// A sequence of requests that runs in its own namespace.
pub(crate) struct Chapter {
    pub(crate) name: &'static str,
    pub(crate) steps: Vec<Step>,
}

fn chapters() -> Vec<Chapter> {
    let mut all = Vec::new();
    all.extend(discovery::chapters());
    all.extend(hpas::chapters());
    all.extend(scales::chapters());
    all.extend(lists::chapters());
    all.extend(patches::chapters());
    all.extend(tables::chapters());
    all.extend(events::chapters());
    all
}

/// Runs all chapters against a server. The failure names every unexpected response.
pub(crate) async fn run_suite(base_url: &str, token: &str) -> Outcome {
    let api = Rest::new(base_url, token)?;
    let show = std::env::var("CONCERTINA_CONTRACT_SHOW").ok();
    let (mut requests, mut failures) = (0, Vec::new());
    for chapter in chapters() {
        let namespace = format!("contract-{}", chapter.name);
        api.create("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await?;
        let mut saved = Saved::from([("ns".to_owned(), namespace)]);
        let show = show.as_deref().is_some_and(|text| chapter.name.contains(text));
        for step in &chapter.steps {
            requests += 1;
            if let Err(Failure(reason)) = step.run(&api, &mut saved, show).await {
                failures.push(format!("{}: {reason}", chapter.name));
            }
        }
    }
    if failures.is_empty() {
        eprintln!("{requests} requests, all responses as expected");
        return Ok(());
    }
    Err(Failure(format!(
        "{} of {requests} responses break the contract\n{}",
        failures.len(),
        failures.join("\n")
    )))
}
