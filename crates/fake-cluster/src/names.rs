//! Validation of names.

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";

/// Returns the reasons why a text cannot be a path segment.
pub(crate) fn path_segment_problems(name: &str) -> Vec<String> {
    if matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"]
        .iter()
        .filter(|letter| name.contains(**letter))
        .map(|letter| format!("may not contain '{letter}'"))
        .collect()
}

/// Returns the reasons why a text is not a DNS label.
pub(crate) fn dns_label_problems(text: &str) -> Vec<String> {
    let mut problems = too_long(text, 63);
    if !label(text) {
        problems.push(if text.split('.').all(label) {
            "must not contain dots".to_owned()
        } else {
            format!(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                 and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                 '{LABEL}')"
            )
        });
    }
    problems
}

/// Returns the reasons why a text is not a DNS subdomain.
pub(crate) fn dns_subdomain_problems(text: &str) -> Vec<String> {
    let mut problems = too_long(text, 253);
    if !text.split('.').all(label) {
        problems.push(format!(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '{LABEL}(\\.{LABEL})*')"
        ));
    }
    problems
}

fn too_long(text: &str, limit: usize) -> Vec<String> {
    if text.len() > limit { vec![format!("must be no more than {limit} bytes")] } else { Vec::new() }
}

fn label(text: &str) -> bool {
    let alphanumeric = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    !text.is_empty()
        && text.chars().all(|letter| alphanumeric(letter) || letter == '-')
        && text.starts_with(alphanumeric)
        && text.ends_with(alphanumeric)
}
