//! Reads a scenario from a file, from manifests and their loads, or from a cluster.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::SimulateError;
use super::from_cluster;
use super::scenario::{self, Node};
use crate::options::SimulateSource;
use fake_cluster::load::{Interpolation, Points};

/// The source name of values that do not come from a file.
const COMMAND_LINE: &str = "the command line";

/// Reads the document of a scenario.
pub(super) fn document(source: &SimulateSource) -> Result<Node, SimulateError> {
    match source {
        SimulateSource::Schema => Ok(Node::from_json(&COMMAND_LINE.into(), &json!({}))),
        SimulateSource::File(path) => file(path),
        SimulateSource::Manifests(pairs) => manifests(pairs),
        SimulateSource::Cluster(options, name) => Ok(from_cluster::read(options, name)?),
    }
}

/// Reads a scenario file.
pub(super) fn file(path: &Path) -> Result<Node, SimulateError> {
    Ok(scenario::open(&path.display().to_string(), &read(path)?)?)
}

fn read(path: &Path) -> Result<String, SimulateError> {
    std::fs::read_to_string(path).map_err(|source| SimulateError::Read { path: path.to_owned(), source })
}

/// Builds a scenario from HPA manifests, each with a CSV of its load.
fn manifests(pairs: &[(PathBuf, PathBuf)]) -> Result<Node, SimulateError> {
    let mut hpas = Vec::new();
    let mut loads = Vec::new();
    let mut files = Vec::new();
    let mut longest = None;
    for (hpa, load) in pairs {
        let found = scenario::manifests::read(hpa, &read(hpa)?)?;
        loads.extend(found.hpas.iter().map(|manifest| scenario::load_of(manifest, load)));
        hpas.extend(found.hpas.iter().cloned());
        files.push(found);
        // An invalid CSV is ignored here. Reading the load reports the error with its location.
        let length = Points::from_csv(&read(load)?, Interpolation::Linear).map(|points| points.length()).ok();
        longest = longest.max(length);
    }
    let source: Arc<str> = COMMAND_LINE.into();
    let mut document = Node::from_json(&source, &json!({ "load": loads }));
    document.put("hpas", Node::list(&source, hpas));
    for manifests in files {
        manifests.describe(&mut document);
    }
    if let Some(longest) = longest.filter(|longest| !longest.is_zero()) {
        let seconds = Value::from(format!("{}s", longest.as_secs().max(1)));
        document.put("duration", Node::from_json(&source, &seconds));
    }
    Ok(document)
}
