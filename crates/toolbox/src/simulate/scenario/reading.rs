//! Deserializes a document to typed values. Errors name location and field.

use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;

use super::document::{Node, Step, printed};
use super::problem::Problem;

/// Deserializes a whole document.
pub(super) fn read<T: DeserializeOwned>(node: &Node) -> Result<T, Problem> {
    serde_path_to_error::deserialize(node.json()).map_err(|error| {
        let steps = steps(error.path());
        let message = in_plain_words(&error.inner().to_string());
        Problem::new(node.locate(&steps), printed(&steps), message)
    })
}

fn steps(path: &serde_path_to_error::Path) -> Vec<Step> {
    let step = |segment: &Segment| match segment {
        Segment::Seq { index } => Some(Step::Index(*index)),
        Segment::Map { key } => Some(Step::Key(key.clone())),
        Segment::Enum { variant } => Some(Step::Key(variant.clone())),
        Segment::Unknown => None,
    };
    path.iter().filter_map(step).collect()
}

/// Rewrites serde's error for users. The result has the nearest valid name instead of all names, and no Rust
/// type names.
fn in_plain_words(message: &str) -> String {
    let names: Vec<_> = message.split('`').skip(1).step_by(2).collect();
    if let Some((wrong, valid)) = names.split_first() {
        if message.starts_with("unknown field") {
            return format!("unknown field{}", suggestion(wrong, valid));
        }
        if message.starts_with("unknown variant") {
            return format!("unknown value {wrong:?}{}", suggestion(wrong, valid));
        }
    }
    let number = ["u16", "u32", "u64"].iter().find(|number| message.ends_with(&format!("expected {number}")));
    let message = match number {
        Some(number) => message
            .replace(&format!("expected {number}"), "expected a whole number that is not negative")
            .replace('`', ""),
        None => message.replace('`', "\""),
    };
    message.replace("integer ", "").replace("floating point ", "")
}

/// `; did you mean "startup"?`, or all valid names if none is similar.
pub(crate) fn suggestion(wrong: &str, valid: &[&str]) -> String {
    let wrong_lower = wrong.to_lowercase();
    let distance = |name: &str| strsim::damerau_levenshtein(&wrong_lower, &name.to_lowercase());
    let nearest = valid.iter().map(|name| (distance(name), *name)).min();
    match nearest {
        Some((distance, name)) if distance <= 1 + wrong.chars().count() / 3 => {
            format!("; did you mean {name:?}?")
        }
        Some(_) => format!("; valid names are {}", valid.join(", ")),
        None => String::new(),
    }
}
