//! Label selectors. The text of a parsed selector parses to an equal selector. A naive evaluation of the text matches
//! the same labels.
//!
//! The input has three parts, separated by the byte 1: a selector as text, labels as `key=value` separated by `;`, and
//! a structured selector as JSON. A missing part is empty.

#![no_main]

mod cost;
mod plant;

use std::collections::BTreeMap;

use autoscaling::selector::{LabelSelector, LabelSelectorRequirement, Selector, go_print};
use autoscaling::settings::Version;
use libfuzzer_sys::fuzz_target;

type Labels = BTreeMap<String, String>;

fuzz_target!(|input: &str| cost::bounded(|| {
    let mut parts = input.splitn(3, '\u{1}');
    let text = parts.next().unwrap_or_default();
    let labels: Labels = parts.next().unwrap_or_default().split(';').map(pair).collect();
    let json = parts.next().unwrap_or_default();

    let direct = Selector::parse(text);
    if let Ok(selector) = &direct {
        assert_eq!(Selector::parse(&selector.to_string()).as_ref(), Ok(selector));
        check(selector, &labels);
        assert!(!selector.selects_nothing());
    }
    let structured = LabelSelector::parse(text, Version::V1_38);
    let scale = Selector::parse_scale(text, Version::V1_38);
    assert_eq!(scale.is_ok(), structured.is_ok(), "{text:?}");
    if let (Ok(selector), Ok(structured)) = (&scale, &structured) {
        let direct = direct.as_ref().expect("the selector of a scale must be a selector");
        check(selector, &labels);
        assert_eq!(selector.matches(&labels), satisfied(structured, &labels), "{text:?}");
        // If a text requires two values for a label, the selector of a scale uses the last value. A direct selector
        // matches no labels.
        assert!(!direct.matches(&labels) || selector.matches(&labels), "{text:?}");
    }
    if direct.is_err() {
        let message = scale.expect_err("an invalid selector must be invalid for a scale").to_string();
        assert!(message.starts_with("couldn't parse the selector string \""), "{message}");
    }

    if let Ok(structured) = serde_json::from_str::<LabelSelector>(json) {
        let again = serde_json::to_string(&structured).unwrap();
        assert_eq!(serde_json::from_str::<LabelSelector>(&again).unwrap(), structured);
        assert!(go_print(Some(&structured)).starts_with("&LabelSelector{MatchLabels:map[string]string{"));
        if let Ok(selector) = Selector::from_label_selector(Some(&structured)) {
            check(&selector, &labels);
            assert_eq!(selector.matches(&labels), satisfied(&structured, &labels), "{json}");
        }
    }
}));

fn pair(text: &str) -> (String, String) {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    (key.to_owned(), value.to_owned())
}

/// Checks the invariants of every selector.
fn check(selector: &Selector, labels: &Labels) {
    let printed = selector.to_string();
    let again = Selector::parse(&printed).unwrap_or_else(|error| panic!("{printed:?}: {error}"));
    // A list may contain a duplicate value, which its text repeats. The parsed text has a set without duplicates.
    if selector != &again {
        assert!(printed.contains(" in (") || printed.contains(" notin ("), "{printed:?}");
        assert_eq!(Selector::parse(&again.to_string()).as_ref(), Ok(&again));
    }
    assert_eq!(again.is_empty(), selector.is_empty());
    assert_eq!(selector.is_empty(), printed.is_empty());
    let mut matches = selector.matches(labels);
    if plant::planted("selector") && printed.contains(" notin (") && labels.len() > 1 {
        matches = !matches;
    }
    assert_eq!(again.matches(labels), selector.matches(labels), "{printed:?} on {labels:?}");
    let requirements = cut(&printed);
    assert!(requirements.is_sorted_by_key(|requirement| key_of(requirement)), "{printed:?}");
    let all = requirements.iter().all(|requirement| holds(requirement, labels));
    assert_eq!(matches, all, "{printed:?} on {labels:?}");
}

/// Splits the text of a selector into requirements, at the commas outside parentheses.
fn cut(printed: &str) -> Vec<&str> {
    let (mut depth, mut start, mut requirements) = (0, 0, Vec::new());
    for (at, byte) in printed.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            b',' if depth == 0 => {
                requirements.push(&printed[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !printed.is_empty() {
        requirements.push(&printed[start..]);
    }
    requirements
}

fn key_of(requirement: &str) -> &str {
    let bare = requirement.strip_prefix('!').unwrap_or(requirement);
    &bare[..bare.find([' ', '=', '!', '<', '>']).unwrap_or(bare.len())]
}

/// Evaluates one requirement in the text of a selector.
fn holds(requirement: &str, labels: &Labels) -> bool {
    let key = key_of(requirement);
    assert!(is_key(key), "{key:?} is not a label key");
    let has = labels.get(key);
    let Some(rest) = requirement.strip_prefix(key) else { return has.is_none() };
    if rest.is_empty() {
        return has.is_some();
    }
    if let Some(values) = rest.strip_prefix(" in (").and_then(|rest| rest.strip_suffix(')')) {
        return has.is_some_and(|has| listed(values, has));
    }
    if let Some(values) = rest.strip_prefix(" notin (").and_then(|rest| rest.strip_suffix(')')) {
        return !has.is_some_and(|has| listed(values, has));
    }
    if let Some(value) = rest.strip_prefix("!=") {
        assert!(is_value(value), "{value:?} is not a label value");
        return has.is_none_or(|has| has != value);
    }
    if let Some(value) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
        assert!(is_value(value), "{value:?} is not a label value");
        return has.is_some_and(|has| has == value);
    }
    let (above, bound) = match rest.strip_prefix('>') {
        Some(bound) => (true, bound),
        None => (false, rest.strip_prefix('<').unwrap_or_else(|| panic!("{requirement:?}"))),
    };
    let bound: i64 = bound.parse().unwrap();
    has.and_then(|has| has.parse::<i64>().ok())
        .is_some_and(|has| if above { has > bound } else { has < bound })
}

fn listed(values: &str, has: &str) -> bool {
    let values: Vec<&str> = values.split(',').collect();
    assert!(values.iter().all(|value| is_value(value)) && values.is_sorted(), "{values:?}");
    values.contains(&has)
}

/// Evaluates a structured selector field by field.
fn satisfied(selector: &LabelSelector, labels: &Labels) -> bool {
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    equal
        && selector.match_expressions.iter().flatten().all(
            |LabelSelectorRequirement { key, operator, values }| {
                let has = labels.get(key);
                let among = has.is_some_and(|has| values.iter().flatten().any(|value| value == has));
                match operator.as_str() {
                    "In" => among,
                    "NotIn" => !among,
                    "Exists" => has.is_some(),
                    "DoesNotExist" => has.is_none(),
                    other => panic!("{other:?} was accepted as an operator"),
                }
            },
        )
}

fn is_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let is_lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    !name.is_empty()
        && is_value(name)
        && prefix.is_none_or(|prefix| {
            prefix.len() <= 253
                && prefix.split('.').all(|label| {
                    label.starts_with(is_lower)
                        && label.ends_with(is_lower)
                        && label.chars().all(|c| is_lower(c) || c == '-')
                })
        })
}

fn is_value(value: &str) -> bool {
    let outer = |c: char| c.is_ascii_alphanumeric();
    value.len() <= 63
        && (value.is_empty() || (value.starts_with(outer) && value.ends_with(outer)))
        && value.chars().all(|c| outer(c) || matches!(c, '-' | '_' | '.'))
}
