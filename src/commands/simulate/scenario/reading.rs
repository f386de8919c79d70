//! From a document to typed values, with errors that name place and field.

use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;

use super::document::{Node, Step, printed};
use super::problem::Problem;

/// Reads a whole document.
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

/// What serde says, for people: with the nearest name instead of all of them, and without the names of Rust's types.
fn in_plain_words(message: &str) -> String {
    let names: Vec<_> = message.split('`').skip(1).step_by(2).collect();
    if let Some((wrong, known)) = names.split_first() {
        if message.starts_with("unknown field") {
            return format!("there is no such field{}", suggestion(wrong, known));
        }
        if message.starts_with("unknown variant") {
            return format!("there is no {wrong:?} here{}", suggestion(wrong, known));
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

/// `; did you mean "startup"?`, or all that is known where nothing is near.
pub(crate) fn suggestion(wrong: &str, known: &[&str]) -> String {
    let wrong_lower = wrong.to_lowercase();
    let distance = |name: &str| strsim::damerau_levenshtein(&wrong_lower, &name.to_lowercase());
    let nearest = known.iter().map(|name| (distance(name), *name)).min();
    match nearest {
        Some((distance, name)) if distance <= 1 + wrong.chars().count() / 3 => {
            format!("; did you mean {name:?}?")
        }
        Some(_) => format!("; known are {}", known.join(", ")),
        None => String::new(),
    }
}
