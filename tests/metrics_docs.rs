//! Checks that `docs/reference/metrics.md` equals the declarations of Concertina's own metrics, and that all files of
//! `docs` and `deploy` name only declared metrics.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use engine::telemetry::declarations::GROUPS;

const DOCS: &str = include_str!("../docs/reference/metrics.md");

/// A row of a table: the heading of its section, and its cells.
type Row = (String, Vec<String>);

fn documented() -> Vec<Row> {
    let mut heading = String::new();
    let mut rows = Vec::new();
    for line in DOCS.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            title.clone_into(&mut heading);
        } else if line.starts_with("| `") {
            // A bar within a cell is escaped.
            let line = line.replace("\\|", "¦");
            let cells: Vec<_> = line.split('|').map(|cell| cell.trim().replace('¦', "|")).collect();
            assert_eq!(cells.len(), 4, "two cells between bars: {line}");
            rows.push((heading.clone(), cells.into_iter().skip(1).take(2).collect()));
        }
    }
    rows
}

fn declared() -> Vec<Row> {
    let rows = GROUPS.iter().flat_map(|group| {
        // The page refers to the documentation of upstream for the other metrics.
        group.metrics.iter().filter(|metric| metric.name.starts_with("concertina_")).map(|metric| {
            let labels = if metric.labels.is_empty() {
                String::new()
            } else {
                format!("{{{}}}", metric.labels.join(","))
            };
            let cells = [format!("`{}{labels}`", metric.name), metric.meaning.to_owned()];
            (group.title.to_owned(), cells.to_vec())
        })
    });
    rows.collect()
}

#[test]
fn documented_metrics_equal_declared_metrics() {
    let (documented, declared) = (documented(), declared());
    for row in &declared {
        assert!(documented.contains(row), "docs/reference/metrics.md lacks this row: {row:?}");
    }
    for row in &documented {
        assert!(declared.contains(row), "no metric is declared like this row: {row:?}");
    }
    assert_eq!(documented, declared, "the order differs");
}

/// Returns every file below a folder, recursively.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn metrics_in_docs_alerts_and_dashboards_exist() {
    let names: Vec<_> = GROUPS.iter().flat_map(|group| group.metrics).map(|metric| metric.name).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for file in ["docs", "deploy"].into_iter().flat_map(|folder| files(&root.join(folder))) {
        // Files that are not UTF-8 text name no metrics.
        let text = fs::read_to_string(&file).unwrap_or_default();
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for word in words.filter(|word| word.starts_with("concertina_") && *word != "concertina_") {
            let mut plain =
                ["", "_bucket", "_sum", "_count"].iter().filter_map(|part| word.strip_suffix(part));
            assert!(plain.any(|name| names.contains(&name)), "{}: no metric is named {word}", file.display());
        }
    }
}
