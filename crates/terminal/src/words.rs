//! Texts for readers: escapes of the cluster's text for terminals and HTML, and texts of counts, lists, durations and
//! numbers.
//!
//! A name or a message can contain any text: sequences that move the cursor or change the clipboard of a terminal,
//! marks that reverse text, and markup. Unsafe characters are shown as `\u{...}`, and no character is dropped.

use std::borrow::Cow;
use std::fmt::Write;
use std::time::Duration;

use autoscaling::duration::GoDuration;
use autoscaling::explanation::Span;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
pub use findings::{counted, listed};
use ring::digest::{SHA256, digest};

/// Formats a duration as on a command line: `5m0s`.
pub fn duration(duration: Duration) -> String {
    GoDuration(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)).to_string()
}

/// Escapes a text for a terminal. The result is one line without control characters and without marks that reorder or
/// hide text.
pub fn terminal(text: &str) -> Cow<'_, str> {
    escaped(text, |_| None)
}

/// Escapes a text for HTML, as content or within a quoted attribute: markup, and all characters that [`terminal`]
/// escapes.
pub fn html(text: &str) -> Cow<'_, str> {
    escaped(text, entity)
}

fn escaped(text: &str, entity: impl Fn(char) -> Option<&'static str>) -> Cow<'_, str> {
    if !text.chars().any(|character| is_unsafe(character) || entity(character).is_some()) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match entity(character) {
            Some(entity) => escaped.push_str(entity),
            // Writing to a String cannot fail.
            None if is_unsafe(character) => drop(write!(escaped, "\\u{{{:x}}}", u32::from(character))),
            None => escaped.push(character),
        }
    }
    Cow::Owned(escaped)
}

fn entity(character: char) -> Option<&'static str> {
    Some(match character {
        '&' => "&amp;",
        '<' => "&lt;",
        '>' => "&gt;",
        '"' => "&quot;",
        '\'' => "&#39;",
        _ => return None,
    })
}

/// Returns whether a character is a control character (C0, DEL, C1), a line or paragraph separator, a direction mark, a
/// zero-width or invisible format character, or a tag.
fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

/// Formats a number with about four significant digits and without trailing zeros: `0.0725`, `3.142`, `1234`. Infinity
/// and NaN become `?`.
pub fn number(value: f64) -> String {
    let magnitude = value.abs();
    if !value.is_finite() {
        return "?".to_owned();
    }
    let places = match magnitude {
        0.0..1e-6 => 0,
        _ if magnitude < 0.01 => 6,
        _ if magnitude < 1.0 => 4,
        _ if magnitude < 10.0 => 3,
        _ if magnitude < 100.0 => 2,
        _ if magnitude < 1000.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.places$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Formats a number in few characters. Numbers of at least ten thousand have the suffix `k`, `M` or `G`.
pub fn short(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude >= 1e10 => format!("{}G", number(value / 1e9)),
        magnitude if magnitude >= 1e7 => format!("{}M", number(value / 1e6)),
        magnitude if magnitude >= 1e4 => format!("{}k", number(value / 1e3)),
        _ => number(value),
    }
}

/// Formats a fraction as a percentage. The result for a value other than 0 is never `0 %`.
pub fn percent(fraction: f64) -> String {
    let percent = fraction * 100.0;
    match percent.abs() {
        magnitude if magnitude > 0.0 && magnitude < 0.01 => "< 0.01 %".to_owned(),
        magnitude if magnitude < 1.0 => format!("{} %", number((percent * 100.0).round() / 100.0)),
        _ => format!("{} %", number((percent * 10.0).round() / 10.0)),
    }
}

/// Formats a duration in whole seconds: `2 min 10 s`.
pub fn span(length: Duration) -> String {
    Span::seconds(i64::try_from(length.as_secs()).unwrap_or(i64::MAX)).to_string()
}

/// Returns the sentence of a decision without the prefix `goes from 2 to 4: `, for texts that already contain both
/// counts.
pub fn reason(sentence: &str) -> &str {
    match sentence.split_once(": ") {
        Some((verdict, reason)) if verdict.starts_with("goes from ") => reason,
        _ => sentence,
    }
}

/// Returns `; did you mean "startup"?`, or the list of all valid names if no name is similar.
pub fn suggestion(wrong: &str, valid: &[&str]) -> String {
    let nearest = valid.iter().filter_map(|name| Some((distance(wrong, name)?, *name))).min();
    match nearest {
        Some((_, name)) => format!("; did you mean {name:?}?"),
        None if valid.is_empty() => String::new(),
        None => format!("; valid names are {}", valid.join(", ")),
    }
}

/// Returns the number of typing errors, apart from capitals, that make `name` to `wrong`. `None` if the names are not
/// similar.
pub fn distance(wrong: &str, name: &str) -> Option<usize> {
    let distance = strsim::damerau_levenshtein(&wrong.to_lowercase(), &name.to_lowercase());
    (distance <= 1 + wrong.chars().count() / 3).then_some(distance)
}

/// Returns the hash of a style or script as a source of a content security policy, such as `sha256-...`.
pub fn hash(source: &str) -> String {
    format!("sha256-{}", STANDARD.encode(digest(&SHA256, source.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_for_a_terminal() {
        assert_eq!(terminal("a\x1b[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(terminal("one\ntwo\r\u{9b}"), "one\\u{a}two\\u{d}\\u{9b}");
        assert_eq!(terminal("web\u{202e}gnp"), "web\\u{202e}gnp");
        assert_eq!(terminal("a\u{2066}b\u{2069}\u{200b}"), "a\\u{2066}b\\u{2069}\\u{200b}");
        assert!(matches!(terminal("Größe 80 % → 5, 猫"), Cow::Borrowed(_)));
    }

    #[test]
    fn console_shows_the_same_characters_as_the_terminal() {
        let script = include_str!("../../console/assets/dom.js");
        let (_, rest) = script.split_once("const HIDDEN =").unwrap();
        let (_, rest) = rest.split_once("/[").unwrap();
        let (class, _) = rest.split_once("]/gu").unwrap();
        let mut ranges: Vec<[u32; 2]> = Vec::new();
        let mut is_range = false;
        for part in class.split("\\u").skip(1) {
            let number = part.trim_end_matches('-').trim_matches(['{', '}']);
            let number = u32::from_str_radix(number, 16).unwrap();
            match ranges.last_mut() {
                Some(last) if is_range => last[1] = number,
                _ => ranges.push([number, number]),
            }
            is_range = part.ends_with('-');
        }
        for character in '\0'..=char::MAX {
            let is_shown = ranges.iter().any(|[from, to]| (*from..=*to).contains(&u32::from(character)));
            assert_eq!(is_shown, is_unsafe(character), "{:x}", u32::from(character));
        }
    }

    #[test]
    fn markup_is_shown_for_html() {
        assert_eq!(
            html(r#"<img src=x onerror="a&b('c')">"#),
            "&lt;img src=x onerror=&quot;a&amp;b(&#39;c&#39;)&quot;&gt;"
        );
        assert_eq!(html("\x1b\u{202e}"), "\\u{1b}\\u{202e}");
        assert!(matches!(html("plain"), Cow::Borrowed(_)));
    }

    #[test]
    fn number_keeps_four_significant_digits() {
        let texts = [0.0, 0.072_514, 3.234_56, 12.5, 80.0, 123.456, 54_321.9, -0.000_000_1].map(number);
        assert_eq!(texts, ["0", "0.0725", "3.235", "12.5", "80", "123.5", "54322", "0"]);
        assert_eq!([9_999.0, 12_000.0, 2.5e7, 3e10].map(short), ["9999", "12k", "25M", "30G"]);
        assert_eq!([0.0, 0.000_01, 0.001_234, 0.25].map(percent), ["0 %", "< 0.01 %", "0.12 %", "25 %"]);
    }
}
