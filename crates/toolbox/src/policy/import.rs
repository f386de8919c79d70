//! `policy import`: ScalingPolicies from objects of other autoscalers.

use std::io::Write;
use std::path::PathBuf;

use policies::import::{Import, Object};

use super::read::FileObject;
use super::{PolicyError, Verdict};
use crate::explain::escape;
use crate::words::counted;

/// Prints the policies to `out`, and the notes to `notes`.
pub(super) fn run(
    files: &[PathBuf],
    read: &[FileObject],
    out: &mut (dyn Write + Send),
    notes: &mut (dyn Write + Send),
) -> Result<Verdict, PolicyError> {
    let objects: Vec<Object> = read.iter().map(|read| read.object.clone()).collect();
    let Import { policies, notes: found, objects } = policies::import::import(&objects)?;
    if objects == 0 && found.is_empty() {
        let what = "ScaledObject, IntelligentHorizontalPodAutoscaler, ScalingSchedule or configuration of prometheus-adapter";
        return Err(PolicyError::Nothing { files: super::names(files), what });
    }
    for note in &found {
        writeln!(notes, "{}", escape::terminal(&note.to_string()))?;
    }
    let mut text = String::new();
    for policy in &policies {
        let yaml = serde_saphyr::to_string(policy)
            .map_err(|error| PolicyError::Encoding { form: "YAML", error: error.to_string() })?;
        let origin = escape::terminal(&policy.origin).into_owned();
        text.extend(["---\n# ", &*origin, "\n", yaml.trim_end(), "\n"]);
    }
    out.write_all(text.as_bytes())?;
    out.flush()?;
    let lost = found.iter().filter(|note| note.remark.is_lost()).count();
    let policies = match policies.len() {
        1 => "1 policy".to_owned(),
        number => format!("{number} policies"),
    };
    writeln!(
        notes,
        "{} read, {policies} printed, {} not imported",
        counted(objects, "object"),
        counted(lost, "field")
    )?;
    Ok(if lost == 0 { Verdict::Good } else { Verdict::Attention })
}
