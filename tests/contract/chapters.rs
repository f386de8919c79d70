//! The chapters of the contract, and how they are played.

use serde_json::json;

use crate::outcome::{Failure, Outcome};
use crate::rest::Rest;
use crate::step::{Saved, Step};
use crate::{events, hpas, lists, patches, scales, surface, tables};

/// Requests that belong together, in their order, in a namespace of their own.
pub(crate) struct Chapter {
    pub(crate) name: &'static str,
    pub(crate) steps: Vec<Step>,
}

fn chapters() -> Vec<Chapter> {
    let mut all = Vec::new();
    all.extend(surface::chapters());
    all.extend(hpas::chapters());
    all.extend(scales::chapters());
    all.extend(lists::chapters());
    all.extend(patches::chapters());
    all.extend(tables::chapters());
    all.extend(events::chapters());
    all
}

/// Plays all chapters against a server; the failure names every broken answer.
pub(crate) async fn run_suite(base_url: &str, token: &str) -> Outcome {
    let api = Rest::new(base_url, token)?;
    let show = std::env::var("CONCERTINA_CONTRACT_SHOW").ok();
    let (mut requests, mut broken) = (0, Vec::new());
    for chapter in chapters() {
        let namespace = format!("contract-{}", chapter.name);
        api.create("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await?;
        let mut saved = Saved::from([("ns".to_owned(), namespace)]);
        let show = show.as_deref().is_some_and(|text| chapter.name.contains(text));
        for step in &chapter.steps {
            requests += 1;
            if let Err(Failure(reason)) = step.play(&api, &mut saved, show).await {
                broken.push(format!("{}: {reason}", chapter.name));
            }
        }
    }
    if broken.is_empty() {
        eprintln!("{requests} requests, all answered as agreed");
        return Ok(());
    }
    Err(Failure(format!("{} of {requests} answers break the contract\n{}", broken.len(), broken.join("\n"))))
}
