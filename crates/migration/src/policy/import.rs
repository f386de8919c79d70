//! `policy import`: converts objects of other autoscalers to ScalingPolicies. `sources import`: converts a
//! configuration of prometheus-adapter to ScalingPolicies and the file of sources. The commands read Kubernetes objects
//! from files, as YAML or JSON.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use policies::import::{Context, Import, MetricSources, Object, ScalingPolicy};
use serde::Serialize;
use serde_json::Value;

use super::document::Document;
use super::{PolicyError, Verdict};
use terminal::options::{EncodeError, to_yaml};
use terminal::values::{self, TextFileError, YamlError};
use terminal::words::{self, counted};

/// Runs `policy import`: prints the policies to `out`, and the notes to `notes`.
pub(super) fn run(
    files: &[PathBuf],
    read: &[FileObject],
    now: Timestamp,
    out: &mut (dyn Write + Send),
    notes: &mut (dyn Write + Send),
) -> Result<Verdict, PolicyError> {
    let import = import(read, now)?;
    if import.objects == 0 && import.notes.is_empty() {
        let what = "ScaledObject or configuration of prometheus-adapter";
        return Err(PolicyError::Nothing { files: super::names(files), what });
    }
    let lost = print_notes(&import, notes)?;
    print_policies(&import, out)?;
    summary(&import, lost, notes)
}

/// Runs `sources import`: writes the sources to the file `sources` or to `out`, then the policies to `out`, and the
/// notes to `notes`. If no policy is imported, only the notes are written.
pub(super) fn run_with_sources(
    files: &[PathBuf],
    read: &[FileObject],
    sources: Option<&Path>,
    now: Timestamp,
    out: &mut (dyn Write + Send),
    notes: &mut (dyn Write + Send),
) -> Result<Verdict, PolicyError> {
    let import = import(read, now)?;
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

fn import(read: &[FileObject], now: Timestamp) -> Result<Import, PolicyError> {
    let objects: Vec<Object> = read.iter().map(|read| read.object.clone()).collect();
    let context = Context { now, invalid_query: &super::document::invalid_query };
    let mut import = policies::import::import(&objects, &context)?;
    for policy in std::mem::take(&mut import.policies) {
        match problems(&policy, now)? {
            None => import.policies.push(policy),
            Some(problems) => import.notes.push(policy.refused(problems)),
        }
    }
    Ok(import)
}

/// The problems that `policy check` finds in a policy. `None` without problems.
fn problems(policy: &ScalingPolicy, now: Timestamp) -> Result<Option<String>, PolicyError> {
    let value = serde_json::to_value(policy).map_err(EncodeError::from)?;
    let object = FileObject { object: Object { location: "".into(), value }, text: None };
    let document = Document::new(&object, super::DEFAULT_NAMESPACE, now);
    let problems = document.iter().flat_map(|document| &document.problems).map(ToString::to_string);
    let problems: Vec<String> = problems.collect();
    Ok((!problems.is_empty()).then(|| format!("the policy would be invalid: {}", problems.join("; "))))
}

/// Prints the notes. Returns the number of fields that are not imported.
fn print_notes(import: &Import, notes: &mut (dyn Write + Send)) -> Result<usize, PolicyError> {
    for note in &import.notes {
        writeln!(notes, "{}", words::terminal(&note.to_string()))?;
    }
    Ok(import.notes.iter().filter(|note| note.remark.is_lost()).count())
}

fn print_policies(import: &Import, out: &mut (dyn Write + Send)) -> Result<(), PolicyError> {
    let mut text = String::new();
    for policy in &import.policies {
        let origin = words::terminal(&policy.origin).into_owned();
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

/// Maximum size of a file, in bytes.
const MAX_BYTES: usize = 16 << 20;
/// Maximum number of objects in all files.
const MAX_OBJECTS: usize = 20_000;

/// An object of a file.
#[derive(Debug)]
pub(super) struct FileObject {
    pub(super) object: Object,
    /// The text of the file, if the object is its only document and not a list.
    pub(super) text: Option<Arc<str>>,
}

/// Reads the objects of files in their order. Lists are replaced by their items, and empty documents are skipped.
pub(super) fn objects(files: &[PathBuf]) -> Result<Vec<FileObject>, PolicyError> {
    let mut objects = Vec::new();
    for path in files {
        let text = text(path)?;
        objects.extend(documents(path, &text)?);
        if objects.len() > MAX_OBJECTS {
            return Err(PolicyError::TooManyObjects { limit: MAX_OBJECTS });
        }
    }
    Ok(objects)
}

/// Reads a file, or standard input for the path `-`.
pub(super) fn text(path: &Path) -> Result<String, PolicyError> {
    values::text_of_file(path, MAX_BYTES).map_err(|error| {
        let path = path.to_owned();
        match error {
            TextFileError::Io(error) => PolicyError::File { path, error },
            TextFileError::TooLarge { limit } => PolicyError::TooLarge { path, limit },
            TextFileError::NotText => PolicyError::NotText { path },
        }
    })
}

/// Returns the objects of a text. Lists are replaced by their items, and empty documents are skipped.
pub(super) fn documents(path: &Path, text: &str) -> Result<Vec<FileObject>, PolicyError> {
    let documents: Vec<Value> = values::documents(text).map_err(|YamlError { line, message }| {
        PolicyError::Form { path: path.to_owned(), document: document_of(text, line), problem: message }
    })?;
    let name = path.display();
    let is_single = documents.len() == 1;
    let mut objects = Vec::new();
    for (index, mut document) in documents.into_iter().enumerate() {
        let location = format!("{name}: document {}", index + 1);
        let is_list = document.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
        match document.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) if is_list => {
                for (index, value) in items.into_iter().enumerate() {
                    let location = format!("{location}, items[{index}]").into();
                    objects.push(FileObject { object: Object { location, value }, text: None });
                }
            }
            _ if document.is_null() => {}
            items => {
                if let (Some(items), Some(fields)) = (items, document.as_object_mut()) {
                    fields.insert("items".to_owned(), items);
                }
                let text = is_single.then(|| text.into());
                objects
                    .push(FileObject { object: Object { location: location.into(), value: document }, text });
            }
        }
    }
    Ok(objects)
}

/// Returns the number of the document that contains a line. Documents and lines are counted from 1.
fn document_of(text: &str, line: u64) -> usize {
    let line = usize::try_from(line).unwrap_or(usize::MAX);
    let mut number = 1;
    let mut has_content = false;
    for text in text.lines().take(line) {
        if text == "---" || text.starts_with("--- ") {
            number += usize::from(has_content);
            has_content = false;
        }
        let content = text.trim();
        has_content |= !content.is_empty() && !content.starts_with('#') && content != "---";
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(String, String)>, String> {
        let objects = documents(Path::new("a.yaml"), text).map_err(|error| error.to_string())?;
        Ok(objects
            .into_iter()
            .map(|read| (read.object.location.to_string(), read.object.value.to_string()))
            .collect())
    }

    fn owned(entries: &[(&str, &str)]) -> Vec<(String, String)> {
        entries.iter().map(|(location, value)| ((*location).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn documents_and_items_of_lists_have_their_location() {
        assert_eq!(
            read("---\na: 1\n---\nkind: List\nitems: [{b: 2}, {c: 3}]\n---\n{\"d\": 4}\n").unwrap(),
            owned(&[
                ("a.yaml: document 1", r#"{"a":1}"#),
                ("a.yaml: document 2, items[0]", r#"{"b":2}"#),
                ("a.yaml: document 2, items[1]", r#"{"c":3}"#),
                ("a.yaml: document 3", r#"{"d":4}"#),
            ])
        );
        assert_eq!(read("# nothing\n").unwrap(), owned(&[]));
        // `items` is a plain field of an object that is not a list.
        assert_eq!(read("items: [1]").unwrap(), owned(&[("a.yaml: document 1", r#"{"items":[1]}"#)]));
        assert_eq!(
            read("{kind: List, items: 5}").unwrap(),
            owned(&[("a.yaml: document 1", r#"{"items":5,"kind":"List"}"#)])
        );
    }

    #[test]
    fn text_is_kept_for_a_single_document() {
        let is_kept = |text: &str| {
            let objects = documents(Path::new("a.yaml"), text).unwrap();
            objects.iter().map(|read| read.text.as_deref() == Some(text)).collect::<Vec<_>>()
        };
        assert_eq!(is_kept("mode: Paused"), [true]);
        assert_eq!(is_kept("mode: Paused\n---\nmode: Auto"), [false, false]);
        assert_eq!(is_kept("kind: List\nitems: [{a: 1}]"), [false]);
    }

    #[test]
    fn invalid_document_is_named_with_its_line() {
        let error = read("# one\n---\na: 1\n---\nb: [\n").unwrap_err();
        assert!(error.starts_with("a.yaml: document 2: "), "{error}");
        assert!(error.contains("line"), "{error}");
        let error = read("a: {").unwrap_err();
        assert!(error.starts_with("a.yaml: document 1: "), "{error}");
        // The expansion of nested aliases is bounded.
        let level = |level: usize| {
            let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
            format!("a{level}: &a{level} [{aliases}]\n")
        };
        let bomb: String = (1..10).map(level).collect();
        assert!(read(&format!("a0: &a0 [x, x]\n{bomb}")).is_err());
        assert!(read(&format!("a0: &a0 [x, x]\n{}", level(1))).is_ok());
    }

    #[test]
    fn files_are_bounded() {
        let folder = std::env::temp_dir().join(format!("concertina-policy-read-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = |name: &str, content: &[u8]| {
            let path = folder.join(name);
            std::fs::write(&path, content).unwrap();
            objects(&[path]).map(|objects| objects.len()).map_err(|error| error.to_string())
        };
        assert_eq!(file("good", b"a: 1"), Ok(1));
        let error = file("large", &vec![b'#'; MAX_BYTES + 1]).unwrap_err();
        assert!(error.ends_with("large has more than 16 MiB: pass fewer objects at once"), "{error}");
        assert_eq!(file("most", &vec![b'#'; MAX_BYTES]), Ok(0));
        let error = file("binary", &[0xff, 0xfe]).unwrap_err();
        assert!(error.ends_with("binary is not text in UTF-8"), "{error}");
        let many = format!("{{kind: List, items: [{}]}}", "{},".repeat(MAX_OBJECTS + 1));
        let error = file("many", many.as_bytes()).unwrap_err();
        assert!(error.starts_with("the files have more than 20000 objects"), "{error}");
        let error = objects(&[folder.join("absent")]).unwrap_err().to_string();
        assert!(error.starts_with("cannot read ") && error.contains("absent"), "{error}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
