//! Checks the references in the documents: paths, links, and the names of tests for the threats in SECURITY.md.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The folders of the repository in which a document may name a path.
const FOLDERS: [&str; 10] =
    ["src/", "crates/", "tests/", "docs/", "deploy/", "examples/", "benches/", "fuzz/", ".ci/", ".github/"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns all Markdown documents of the repository, relative to its root.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
            if entry.file_type().unwrap().is_dir() {
                if name != "target" && (!name.starts_with('.') || name == ".github") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Returns the code spans of a document that name a path in the repository. Placeholders and patterns are omitted.
fn named_paths(text: &str) -> BTreeSet<&str> {
    let spans = text.split('`').skip(1).step_by(2);
    spans
        .filter(|span| FOLDERS.iter().any(|folder| span.starts_with(folder)))
        .filter(|span| !span.contains([' ', '*', '{', '<', '$', '…', '\n']))
        // These folders are generated, and git ignores them.
        .filter(|span| !span.starts_with("fuzz/grown") && !span.starts_with("fuzz/unpacked"))
        .filter(|span| !span.starts_with("fuzz/artifacts") && !span.starts_with("fuzz/target"))
        .map(|span| span.trim_end_matches('/'))
        .collect()
}

#[test]
fn every_path_that_a_document_names_exists() {
    let mut missing = Vec::new();
    let mut checked = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for path in named_paths(&text) {
            checked += 1;
            // A line or a module may follow the path of a file.
            let file = path.split(['#', ':']).next().unwrap_or(path);
            if !root().join(file).exists() {
                missing.push(format!("{}: {path}", document.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(checked > 20, "only {checked} paths were found");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn every_row_of_where_is_names_a_definition_in_its_file() {
    let page = fs::read_to_string(root().join("docs/where-is.md")).unwrap();
    let mut checked = 0;
    let mut wrong = Vec::new();
    for row in page.lines().filter(|row| row.starts_with("| ") && row.contains('`')) {
        let cells: Vec<_> = row.trim_matches(['|', ' ']).split(" | ").collect();
        let [.., path, name] = cells.as_slice() else {
            wrong.push(row.to_owned());
            continue;
        };
        let name = name.trim_matches('`').rsplit("::").next().unwrap_or_default();
        let file = fs::read_to_string(root().join(path.trim_matches('`'))).unwrap_or_default();
        let defines = |kind| {
            file.split(&format!("{kind} {name}"))
                .skip(1)
                .any(|after| !after.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
        };
        checked += 1;
        if !["fn", "struct", "enum", "trait", "const", "type", "mod"].into_iter().any(defines) {
            wrong.push(row.to_owned());
        }
    }
    assert!(checked >= 50, "only {checked} rows were found");
    assert!(wrong.is_empty(), "no definition in the file:\n{}", wrong.join("\n"));
}

/// Returns the text of all Rust files below a folder.
fn sources(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            text.push_str(&sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
    text
}

#[test]
fn every_threat_is_on_the_security_page_and_its_tests_exist() {
    let page = fs::read_to_string(root().join("tests/threats.md")).unwrap();
    let security = fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    let unknown: Vec<_> = rows
        .filter_map(|row| row.trim_start_matches("| ").split(" | ").next())
        .filter(|threat| !security.contains(&format!("\n| {threat} | ")))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let sources: String = ["src", "crates", "tests"].map(|folder| sources(&root().join(folder))).concat();
    let is_name = |name: &&str| {
        name.matches('_').count() > 0
            && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
    };
    let tables = page.lines().filter(|line| line.starts_with('|'));
    let names: BTreeSet<_> =
        tables.flat_map(|row| row.split('`').skip(1).step_by(2)).filter(is_name).collect();
    let missing: Vec<_> = names.iter().filter(|name| !sources.contains(&format!("fn {name}("))).collect();
    assert!(names.len() > 50, "only {} tests were found", names.len());
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_link_between_documents_leads_to_a_file() {
    let mut missing = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        let folder = document.parent().unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            if file.is_empty() || link.contains("://") || link.contains([' ', '\n', '`']) {
                continue;
            }
            if !folder.join(file).exists() {
                missing.push(format!("{}: {link}", document.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
