//! The sections of the contract and the function that runs them.

use serde_json::json;

use crate::outcome::{Failure, Outcome};
use crate::rest::Rest;
use crate::step::{SavedValues, Step};
use crate::{discovery, events, hpas, lists, patches, scales, tables};

/// A sequence of requests that runs in its own namespace.
pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) steps: Vec<Step>,
}

fn sections() -> Vec<Section> {
    let mut all = Vec::new();
    all.extend(discovery::sections());
    all.extend(hpas::sections());
    all.extend(scales::sections());
    all.extend(lists::sections());
    all.extend(patches::sections());
    all.extend(tables::sections());
    all.extend(events::sections());
    all
}

/// Runs all sections against a server. The failure names every unexpected response.
pub(crate) async fn run_suite(base_url: &str, token: &str) -> Outcome {
    let api = Rest::new(base_url, token)?;
    let show = std::env::var("CONCERTINA_CONTRACT_SHOW").ok();
    let (mut requests, mut failures) = (0, Vec::new());
    for section in sections() {
        let namespace = format!("contract-{}", section.name);
        api.create("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await?;
        let mut saved = SavedValues::from([("ns".to_owned(), namespace)]);
        let show = show.as_deref().is_some_and(|text| section.name.contains(text));
        for step in &section.steps {
            requests += 1;
            if let Err(Failure(reason)) = step.run(&api, &mut saved, show).await {
                failures.push(format!("{}: {reason}", section.name));
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
