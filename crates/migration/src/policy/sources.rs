//! `sources check`: validates files of metric sources with the parser of the controller.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sources::SourceFile;

use super::{PolicyError, Verdict, import};
use terminal::words;

/// The key of the chart's ConfigMap. Other keys of a ConfigMap with this key are not checked.
const KEY: &str = "sources.yaml";

/// Validates files, and prints a line for each.
pub(super) fn run(files: &[PathBuf], out: &mut (dyn Write + Send)) -> Result<Verdict, PolicyError> {
    let mut valid = true;
    for path in files {
        for (name, text) in texts(path)? {
            let read = SourceFile::parse(&text, &name);
            valid &= read.is_ok();
            let line =
                read.map_or_else(|error| error.to_string(), |_| format!("{} is valid", name.display()));
            writeln!(out, "{}", words::terminal(&line))?;
        }
    }
    out.flush()?;
    Ok(Verdict::good_if(valid))
}

/// Returns the files of sources in a file, each with its name: those in ConfigMaps, or the file itself if it has no
/// Kubernetes object.
fn texts(path: &Path) -> Result<Vec<(PathBuf, String)>, PolicyError> {
    let text = import::text(path)?;
    // The parser of the sources reports a text that is not YAML.
    let objects = import::documents(path, &text).unwrap_or_default();
    if !objects.iter().any(|read| read.object.value.get("kind").is_some()) {
        return Ok(vec![(path.to_owned(), text)]);
    }
    let found: Vec<_> = objects.iter().flat_map(|read| config_map(path, &read.object.value)).collect();
    if found.is_empty() {
        return Err(PolicyError::Nothing { files: path.display().to_string(), what: "ConfigMap with data" });
    }
    Ok(found)
}

fn config_map(path: &Path, object: &Value) -> Vec<(PathBuf, String)> {
    let Some(data) = object.get("data").and_then(Value::as_object) else { return Vec::new() };
    if object.get("kind").is_none_or(|kind| kind != "ConfigMap") {
        return Vec::new();
    }
    let map = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let keys = data.iter().filter(|(key, _)| !data.contains_key(KEY) || *key == KEY);
    keys.filter_map(|(key, text)| {
        let name = format!("{}: ConfigMap {map}: {key}", path.display());
        Some((name.into(), text.as_str()?.to_owned()))
    })
    .collect()
}
