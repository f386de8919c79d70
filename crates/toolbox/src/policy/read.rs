//! Reads files with Kubernetes objects, as YAML or JSON.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use policies::import::Object;
use serde_json::Value;

use super::PolicyError;
use crate::yaml::{self, YamlError};

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

fn text(path: &Path) -> Result<String, PolicyError> {
    let failed = |error| PolicyError::File { path: path.to_owned(), error };
    let mut bytes = Vec::new();
    let most = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    if path.as_os_str() == "-" {
        std::io::stdin().lock().take(most).read_to_end(&mut bytes).map_err(failed)?;
    } else {
        File::open(path).map_err(failed)?.take(most).read_to_end(&mut bytes).map_err(failed)?;
    }
    if bytes.len() > MAX_BYTES {
        return Err(PolicyError::TooLarge { path: path.to_owned(), limit: MAX_BYTES });
    }
    String::from_utf8(bytes).map_err(|_| PolicyError::NotText { path: path.to_owned() })
}

fn documents(path: &Path, text: &str) -> Result<Vec<FileObject>, PolicyError> {
    let documents: Vec<Value> = yaml::documents(text).map_err(|YamlError { line, message }| {
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
