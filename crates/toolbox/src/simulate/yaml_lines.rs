//! The lines of fields in a YAML text.

use serde_json::Value;

use super::scenario::Node;
use super::scenario::document::Step;

/// Returns the line of the field at a JSON pointer in a YAML document, counted from 1. `None` if the document has no
/// such field.
pub(crate) fn line(document: &Document, pointer: &str) -> Option<u64> {
    document.value.pointer(pointer)?;
    let steps: Vec<_> = pointer
        .split('/')
        .skip(1)
        .map(|part| {
            let part = part.replace("~1", "/").replace("~0", "~");
            part.parse().map_or(Step::Key(part), Step::Index)
        })
        .collect();
    Some(document.node.locate(&steps).line).filter(|line| *line > 0)
}

/// A parsed YAML text.
#[derive(Debug)]
pub(crate) struct Document {
    node: Node,
    value: Value,
}

impl Document {
    /// Reads a text. `None` if it is not a YAML document.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let node = Node::read("", text).ok()?;
        let value = node.json();
        Some(Self { node, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_that_of_the_key() {
        let text = "metadata:\n  annotations:\n    a.b/policy: |\n      maxReplicas: 5\n      x: 1\nspec:\n  metrics:\n  \
                    - type: Resource\n    resource:\n      name: cpu\n      target:\n        averageUtilization: 60\n  \
                    maxReplicas: 9\n";
        let document = Document::read(text).unwrap();
        let line = |pointer| line(&document, pointer);
        assert_eq!(line("/spec/maxReplicas"), Some(13));
        assert_eq!(line("/metadata/annotations/a.b~1policy"), Some(3));
        assert_eq!(line("/spec/metrics/0/resource/target/averageUtilization"), Some(12));
        assert_eq!(line("/spec/minReplicas"), None);
        assert_eq!(line("/spec/metrics/1"), None);
        assert!(Document::read("a: [").is_none());
    }
}
