//! The rules for keys, values and operators of the text form and the structured form, in the words of apimachinery.

use std::fmt::Write;

use super::{Operator, Requirement, SelectorError};
use crate::failure;

const NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
     '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
     used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

const SUBDOMAIN_RULE: &str = "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
     characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used \
     for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Maximum bytes of the name part of a key, and of a value.
const NAME_LENGTH: usize = 63;
/// Maximum bytes of the prefix of a key.
const PREFIX_LENGTH: usize = 253;

/// Checks a key of the text form. In contrast to [`requirement`], the error has the path `<nil>`.
pub(super) fn key_of_text(key: &str) -> Result<(), SelectorError> {
    let faults = faults_of_key(key);
    if faults.is_empty() {
        Ok(())
    } else {
        Err(SelectorError { message: invalid("<nil>", &failure::quote(key), &faults) })
    }
}

/// Creates a requirement. The error contains all faults.
pub(super) fn requirement(
    key: &str,
    operator: Operator,
    values: Vec<&str>,
) -> Result<Requirement, SelectorError> {
    let mut errors = Vec::new();
    let faults = faults_of_key(key);
    if !faults.is_empty() {
        errors.push(invalid("key", &failure::quote(key), &faults));
    }
    match operator {
        Operator::In | Operator::NotIn if values.is_empty() => {
            errors.push(invalid(
                "values",
                "null",
                &["for 'in', 'notin' operators, values set can't be empty".into()],
            ));
        }
        Operator::Exists | Operator::DoesNotExist if !values.is_empty() => errors.push(invalid(
            "values",
            &json_list(&values),
            &["values set must be empty for exists and does not exist".into()],
        )),
        Operator::GreaterThan | Operator::LessThan => {
            for (at, value) in values.iter().enumerate() {
                if value.parse::<i64>().is_err() {
                    let fault = "for 'Gt', 'Lt' operators, the value must be an integer";
                    errors.push(invalid(&format!("values[{at}]"), &failure::quote(value), &[fault.into()]));
                }
            }
        }
        _ => {}
    }
    for (at, value) in values.iter().enumerate() {
        let faults = faults_of_value(value);
        if !faults.is_empty() {
            errors.push(invalid(&format!("values[{at}][{key}]"), &failure::quote(value), &faults));
        }
    }
    if !errors.is_empty() {
        return Err(SelectorError { message: aggregate(errors) });
    }
    let mut values: Box<[Box<str>]> = values.into_iter().map(Box::from).collect();
    values.sort_unstable();
    Ok(Requirement { key: key.into(), operator, values })
}

fn invalid(path: &str, value: &str, faults: &[String]) -> String {
    format!("{path}: Invalid value: {value}: {}", faults.join("; "))
}

/// Joins errors like `utilerrors.Aggregate`: without duplicates, and in brackets if there are several.
fn aggregate(errors: Vec<String>) -> String {
    let mut distinct: Vec<String> = Vec::new();
    for error in errors {
        if !distinct.contains(&error) {
            distinct.push(error);
        }
    }
    match distinct.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// Returns the reasons why a text is not a label key, in the words of apimachinery.
pub fn faults_of_key(key: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut parts = key.split('/');
    let (prefix, name) = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => (None, name),
        (Some(prefix), Some(name), None) => (Some(prefix), name),
        _ => {
            faults.push(format!(
                "a valid label key {NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
            return faults;
        }
    };
    match prefix {
        Some("") => faults.push("prefix part must be non-empty".into()),
        Some(prefix) => {
            if prefix.len() > PREFIX_LENGTH {
                faults.push(format!("prefix part must be no more than {PREFIX_LENGTH} bytes"));
            }
            if !prefix.split('.').all(is_dns_label) {
                faults.push(SUBDOMAIN_RULE.into());
            }
        }
        None => {}
    }
    if name.is_empty() {
        faults.push("name part must be non-empty".into());
    } else if name.len() > NAME_LENGTH {
        faults.push(format!("name part must be no more than {NAME_LENGTH} bytes"));
    }
    if !is_name(name) {
        faults.push(format!("name part {NAME_RULE}"));
    }
    faults
}

/// Returns the reasons why a text is not a label value, in the words of apimachinery.
pub fn faults_of_value(value: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if value.len() > NAME_LENGTH {
        faults.push(format!("must be no more than {NAME_LENGTH} bytes"));
    }
    if !value.is_empty() && !is_name(value) {
        faults.push(VALUE_RULE.into());
    }
    faults
}

fn is_name(text: &str) -> bool {
    within(text, |byte| byte.is_ascii_alphanumeric(), b"-_.")
}

fn is_dns_label(text: &str) -> bool {
    within(text, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit(), b"-")
}

/// Whether a text consists of `outer` and `inner` bytes, with `outer` bytes at both ends. False for an empty text.
fn within(text: &str, outer: impl Fn(u8) -> bool, inner: &[u8]) -> bool {
    match text.as_bytes() {
        [] => false,
        [one] => outer(*one),
        [first, between @ .., last] => {
            outer(*first) && outer(*last) && between.iter().all(|byte| outer(*byte) || inner.contains(byte))
        }
    }
}

/// Prints a list of strings like Go's `json.Marshal`.
fn json_list(values: &[&str]) -> String {
    let mut json = String::from("[");
    for (at, value) in values.iter().enumerate() {
        if at > 0 {
            json.push(',');
        }
        json.push('"');
        for character in value.chars() {
            match character {
                '"' => json.push_str("\\\""),
                '\\' => json.push_str("\\\\"),
                '\u{8}' => json.push_str("\\b"),
                '\u{c}' => json.push_str("\\f"),
                '\n' => json.push_str("\\n"),
                '\r' => json.push_str("\\r"),
                '\t' => json.push_str("\\t"),
                ..' ' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                    // Writing to a String cannot fail.
                    let _ = write!(json, "\\u{:04x}", u32::from(character));
                }
                other => json.push(other),
            }
        }
        json.push('"');
    }
    json.push(']');
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(key: &str, operator: Operator, values: &[&str]) -> String {
        requirement(key, operator, values.to_vec()).unwrap_err().message
    }

    #[test]
    fn several_faults_are_listed_in_brackets() {
        let message = error("a", Operator::GreaterThan, &["-x"]);
        assert!(
            message.starts_with("[values[0]: Invalid value: \"-x\": for 'Gt', 'Lt' operators, "),
            "{message}"
        );
        assert!(
            message.contains(", values[0][a]: Invalid value: \"-x\": a valid label must be"),
            "{message}"
        );
        assert!(message.ends_with(']'), "{message}");
    }

    #[test]
    fn prefix_must_be_a_dns_subdomain() {
        assert!(faults_of_key("example.com/part").is_empty());
        assert_eq!(faults_of_key("/part"), ["prefix part must be non-empty"]);
        assert_eq!(faults_of_key("Example.com/part"), [SUBDOMAIN_RULE]);
        assert_eq!(faults_of_key("a..b/part"), [SUBDOMAIN_RULE]);
        let long = format!("{}/part", "a".repeat(254));
        assert_eq!(faults_of_key(&long), ["prefix part must be no more than 253 bytes"]);
    }

    #[test]
    fn empty_name_violates_two_rules() {
        let faults = faults_of_key("example.com/");
        assert_eq!(faults.first().map(String::as_str), Some("name part must be non-empty"));
        assert_eq!(faults.len(), 2);
    }

    #[test]
    fn values_are_listed_as_json() {
        assert_eq!(json_list(&["a\"b", "<\u{1}\n>"]), r#"["a\"b","\u003c\u0001\n\u003e"]"#);
    }
}
