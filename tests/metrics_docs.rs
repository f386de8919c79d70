//! `docs/metrics.md` and the declarations say the same, both ways.

use concertina::telemetry::declarations::GROUPS;

const DOCS: &str = include_str!("../docs/metrics.md");

/// A row of a table: its heading, and its cells without `watch for`.
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
            assert_eq!(cells.len(), 7, "five cells between bars: {line}");
            rows.push((heading.clone(), cells.into_iter().skip(1).take(4).collect()));
        }
    }
    rows
}

fn declared() -> Vec<Row> {
    let rows = GROUPS.iter().flat_map(|group| {
        group.metrics.iter().map(|metric| {
            let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            let cells = [
                format!("`{}`", metric.name),
                metric.kind.as_str().to_owned(),
                labels.join(", "),
                metric.meaning.to_owned(),
            ];
            (group.title.to_owned(), cells.to_vec())
        })
    });
    rows.collect()
}

#[test]
fn every_metric_is_documented_as_it_is_declared_and_nothing_else_is() {
    let (documented, declared) = (documented(), declared());
    for row in &declared {
        assert!(documented.contains(row), "docs/metrics.md lacks this row: {row:?}");
    }
    for row in &documented {
        assert!(declared.contains(row), "no metric is declared like this row: {row:?}");
    }
    assert_eq!(documented, declared, "the order differs");
}

#[test]
fn what_queries_and_prose_name_exists() {
    let names: Vec<_> = GROUPS.iter().flat_map(|group| group.metrics).map(|metric| metric.name).collect();
    let words = DOCS.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    for word in words.filter(|word| word.starts_with("concertina_") && *word != "concertina_") {
        let suffixes = ["", "_bucket", "_sum", "_count"];
        let known =
            suffixes.iter().any(|suffix| word.strip_suffix(suffix).is_some_and(|w| names.contains(&w)));
        assert!(known, "{word} is no metric");
    }
}
