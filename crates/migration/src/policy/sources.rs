//! `sources check`: validates files of metric sources with the parser of the controller.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::document::SourcesDocument;
use super::{PolicyError, Verdict, import};
use terminal::explain::Style;

/// The key of the chart's ConfigMap. Other keys of a ConfigMap with this key are not checked.
const KEY: &str = "sources.yaml";

/// Validates files, and prints a line for each.
pub(super) fn run(files: &[PathBuf], out: &mut (dyn Write + Send)) -> Result<Verdict, PolicyError> {
    let mut valid = true;
    for path in files {
        for found in documents(path)? {
            valid &= found.problem.is_none();
            writeln!(out, "{}", Style { colours: false, width: None }.line(&found.line(), 0))?;
        }
    }
    out.flush()?;
    Ok(Verdict::good_if(valid))
}

/// Returns the files of sources in a file: those in ConfigMaps, or the file itself if it has no Kubernetes object.
fn documents(path: &Path) -> Result<Vec<SourcesDocument>, PolicyError> {
    let text = import::text(path)?;
    let file = path.display().to_string();
    // The parser of the sources reports a text that is not YAML.
    let objects = import::documents(path, &text).unwrap_or_default();
    if !objects.iter().any(|read| read.object.value.get("kind").is_some()) {
        return Ok(vec![SourcesDocument::parse(file.into(), &text)]);
    }
    let found: Vec<_> = objects.iter().flat_map(|read| config_map(&file, &read.object.value)).collect();
    if found.is_empty() {
        return Err(PolicyError::Nothing { files: file, what: "ConfigMap with data" });
    }
    Ok(found)
}

fn config_map(file: &str, object: &Value) -> Vec<SourcesDocument> {
    let Some(data) = object.get("data").and_then(Value::as_object) else { return Vec::new() };
    if object.get("kind").is_none_or(|kind| kind != "ConfigMap") {
        return Vec::new();
    }
    let map = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let keys = data.iter().filter(|(key, _)| !data.contains_key(KEY) || *key == KEY);
    keys.filter_map(|(key, text)| {
        let location = format!("{file}: ConfigMap {map}: {key}");
        Some(SourcesDocument::parse(location.into(), text.as_str()?))
    })
    .collect()
}
