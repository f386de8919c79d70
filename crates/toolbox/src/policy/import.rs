//! `policy import`: converts objects of other autoscalers to ScalingPolicies. `sources import`: converts a
//! configuration of prometheus-adapter to ScalingPolicies and the file of sources.

use std::io::Write;
use std::path::{Path, PathBuf};

use policies::import::{Import, MetricSources, Object};
use serde::Serialize;

use super::read::FileObject;
use super::{PolicyError, Verdict};
use crate::explain::escape;
use crate::options::to_yaml;
use crate::words::counted;

/// Runs `policy import`: prints the policies to `out`, and the notes to `notes`.
pub(super) fn run(
    files: &[PathBuf],
    read: &[FileObject],
    out: &mut (dyn Write + Send),
    notes: &mut (dyn Write + Send),
) -> Result<Verdict, PolicyError> {
    let import = import(read)?;
    if import.objects == 0 && import.notes.is_empty() {
        let what = "ScaledObject, IntelligentHorizontalPodAutoscaler, ScalingSchedule or configuration of prometheus-adapter";
        return Err(PolicyError::Nothing { files: super::names(files), what });
    }
    let lost = print_notes(&import, notes)?;
    print_policies(&import, out)?;
    summary(&import, lost, notes)
}

/// Runs `sources import`: writes the sources to the file `sources` or to `out`, then the policies to `out`, and the
/// notes to `notes`.
pub(super) fn run_with_sources(
    files: &[PathBuf],
    read: &[FileObject],
    sources: Option<&Path>,
    out: &mut (dyn Write + Send),
    notes: &mut (dyn Write + Send),
) -> Result<Verdict, PolicyError> {
    let import = import(read)?;
    let Some(found) = &import.sources else {
        let what = "configuration of prometheus-adapter";
        return Err(PolicyError::Nothing { files: super::names(files), what });
    };
    let mut lost = print_notes(&import, notes)?;
    if import.policies.is_empty() {
        // No HPA of the files uses a metric of the rules, so no source is needed.
        return summary(&import, lost, notes);
    }
    for open in &found.open {
        writeln!(notes, "file of sources: prometheus[0].{open}")?;
    }
    lost += found.open.len();
    let text = text_of(found)?;
    match sources {
        Some(path) => std::fs::write(path, text)
            .map_err(|error| PolicyError::Sources { path: path.to_owned(), error })?,
        None => out.write_all(format!("---\n# The file of --metric-sources\n{text}").as_bytes())?,
    }
    print_policies(&import, out)?;
    summary(&import, lost, notes)
}

fn import(read: &[FileObject]) -> Result<Import, PolicyError> {
    let objects: Vec<Object> = read.iter().map(|read| read.object.clone()).collect();
    Ok(policies::import::import(&objects)?)
}

/// Prints the notes. Returns the number of fields that are not imported.
fn print_notes(import: &Import, notes: &mut (dyn Write + Send)) -> Result<usize, PolicyError> {
    for note in &import.notes {
        writeln!(notes, "{}", escape::terminal(&note.to_string()))?;
    }
    Ok(import.notes.iter().filter(|note| note.remark.is_lost()).count())
}

fn print_policies(import: &Import, out: &mut (dyn Write + Send)) -> Result<(), PolicyError> {
    let mut text = String::new();
    for policy in &import.policies {
        let origin = escape::terminal(&policy.origin).into_owned();
        text.extend(["---\n# ", &*origin, "\n", &yaml(policy)?]);
    }
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

fn summary(import: &Import, lost: usize, notes: &mut (dyn Write + Send)) -> Result<Verdict, PolicyError> {
    let policies = match import.policies.len() {
        1 => "1 policy".to_owned(),
        number => format!("{number} policies"),
    };
    writeln!(
        notes,
        "{} read, {policies} printed, {} not imported",
        counted(import.objects, "object"),
        counted(lost, "field")
    )?;
    Ok(Verdict::good_if(lost == 0))
}

/// Returns the text of the file of sources, with a comment for each field that the user must add.
fn text_of(sources: &MetricSources) -> Result<String, PolicyError> {
    let mut text = String::new();
    for open in &sources.open {
        text.extend(["# add ", *open, "\n"]);
    }
    Ok(text + &yaml(sources)?)
}

fn yaml(value: &impl Serialize) -> Result<String, PolicyError> {
    Ok(to_yaml(value)?.trim_end().to_owned() + "\n")
}
