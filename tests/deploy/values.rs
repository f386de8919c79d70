//! The tables of the chart's values, generated from the comments of `values.yaml`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use serde_json::Value;

use crate::rendered::path;

/// A value of the chart: its path, its default and the comment before it.
struct Row {
    path: String,
    default: String,
    comment: String,
}

/// Reads the rows of `values.yaml`. A comment belongs to the next key. A mapping has a row for each of its leaves. The
/// comment of a mapping belongs to its first leaf.
fn rows(text: &str) -> Vec<Row> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut rows: Vec<Row> = Vec::new();
    let mut parents: Vec<(usize, &str)> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    let mut inherited = String::new();
    for (number, line) in lines.iter().enumerate() {
        let content = line.trim();
        if content.is_empty() {
            comment.clear();
            inherited.clear();
        } else if let Some(words) = content.strip_prefix('#') {
            comment.push(words.trim());
        } else if let Some(item) = content.strip_prefix("- ") {
            let row = rows.last_mut().unwrap();
            row.default = match row.default.strip_suffix(']') {
                Some(items) => format!("{items}, {item}]"),
                None => format!("[{item}]"),
            };
        } else {
            let (key, default) = content.split_once(':').unwrap_or_else(|| panic!("no key in {line}"));
            parents.retain(|(depth, _)| *depth < indent(line));
            let path: Vec<_> = parents.iter().map(|(_, key)| *key).chain([key]).collect();
            let own = std::mem::take(&mut comment).join(" ");
            let next = lines.get(number + 1).map_or(0, |next| indent(next));
            if default.trim().is_empty() && next > indent(line) {
                parents.push((indent(line), key));
                let is_list = lines[number + 1].trim().starts_with("- ");
                if !is_list {
                    inherited = [std::mem::take(&mut inherited), own].concat();
                    continue;
                }
            }
            let comment = [std::mem::take(&mut inherited), own];
            let comment: Vec<_> = comment.into_iter().filter(|part| !part.is_empty()).collect();
            rows.push(Row {
                path: path.join("."),
                default: default.trim().to_owned(),
                comment: comment.join(" "),
            });
        }
    }
    rows
}

fn table(rows: &[Row]) -> String {
    let mut text = "| value | default | description |\n|---|---|---|\n".to_owned();
    for Row { path, default, comment } in rows {
        let comment = comment.replace('|', "\\|").replace('<', "&lt;");
        let _ = writeln!(text, "| `{path}` | `{default}` | {comment} |");
    }
    text
}

/// The leaves of the defaults. A list or an empty map is a leaf.
fn leaves(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, field) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                leaves(field, &path, found);
            }
        }
        _ => {
            found.insert(path.to_owned());
        }
    }
}

#[test]
fn value_tables_equal_the_comments_of_values_yaml() {
    let text = fs::read_to_string(path("helm/concertina/values.yaml")).unwrap();
    let rows = rows(&text);
    let mut expected = BTreeSet::new();
    leaves(&serde_saphyr::from_str(&text).unwrap(), "", &mut expected);
    let listed: BTreeSet<_> = rows.iter().map(|row| row.path.clone()).collect();
    assert_eq!(listed, expected, "the generator reads values.yaml differently from a YAML parser");

    let (start, end) = ("<!-- values: generated -->\n", "<!-- end of values -->\n");
    for page in ["helm/concertina/README.md", "../docs/reference/helm-values.md"].map(path) {
        let current = fs::read_to_string(&page).unwrap();
        let (before, rest) = current.split_once(start).unwrap_or_else(|| panic!("no marker in {page}"));
        let (_, after) = rest.split_once(end).unwrap_or_else(|| panic!("no marker in {page}"));
        let generated = format!("{before}{start}\n{}\n{end}{after}", table(&rows));
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&page, &generated).unwrap();
        } else {
            assert!(
                current == generated,
                "{page} is stale; run UPDATE_DOCS=1 cargo test --test deploy value_tables"
            );
        }
    }
}
