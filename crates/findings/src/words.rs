//! Counts and lists as text.

/// Formats a count with its noun: `1 pod`, `2 pods`, and `no pods` for a negative number.
pub fn counted(number: impl TryInto<u64>, what: &str) -> String {
    match number.try_into() {
        Ok(1) => format!("1 {what}"),
        Ok(number) => format!("{number} {what}s"),
        Err(_) => format!("no {what}s"),
    }
}

/// Formats a list with at most `most` names: `a, b, c and 4 more`.
pub fn listed(names: &[&str], most: usize) -> String {
    let first = names.get(..most).unwrap_or(names);
    match names.len() - first.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}
