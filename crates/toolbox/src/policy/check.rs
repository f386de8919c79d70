//! `policy check`: the policy fields without effect, and the effect of all other fields on HPAs.

mod document;
mod matches;
mod report;
mod world;

use std::io::Write;

use jiff::Timestamp;

use self::document::Document;
use self::report::Report;
use self::world::World;
use super::read::FileObject;
use super::{PolicyError, Verdict};
use crate::explain::{Style, Zone};
use crate::options::policy::CheckOptions;
use crate::options::why::Output;
use cluster::client::Clients;

/// Checks the objects of files, and prints the answer. Without clients, only HPAs of the files are matched.
pub(super) async fn run(
    options: &CheckOptions,
    default_namespace: &str,
    read: &[FileObject],
    clients: Option<&Clients>,
    now: Timestamp,
    colours: bool,
    out: &mut (dyn Write + Send),
) -> Result<Verdict, PolicyError> {
    let documents: Vec<Document> =
        read.iter().filter_map(|read| Document::new(read, default_namespace, now)).collect();
    if documents.is_empty() {
        let what = "ScalingPolicy, ClusterScalingPolicy or annotation concertina.dev/policy";
        return Err(PolicyError::Nothing { files: super::names(&options.files), what });
    }
    let mut world = World::default();
    if let Some(clients) = clients {
        world.read(clients, options.cluster.namespace.as_deref()).await?;
    }
    world.add_files(read, &documents, default_namespace);
    let rows = matches::rows(&documents, &world, now);
    let report = Report { documents: &documents, rows: &rows, notes: &world.notes, now };
    let text = match options.output {
        Output::Text => report.text(&Zone::local(options.utc), Style { colours, width: None }),
        Output::Json => serde_json::to_string_pretty(&report.document())
            .map_err(|error| PolicyError::Encoding { form: "JSON", error: error.to_string() })?,
        Output::Yaml => serde_saphyr::to_string(&report.document())
            .map_err(|error| PolicyError::Encoding { form: "YAML", error: error.to_string() })?,
    };
    writeln!(out, "{}", text.trim_end())?;
    out.flush()?;
    let is_good = documents.iter().all(|document| document.problems.is_empty())
        && rows.iter().all(|row| row.problems.is_empty());
    Ok(if is_good { Verdict::Good } else { Verdict::Attention })
}
