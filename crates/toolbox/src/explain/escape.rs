//! Escapes the cluster's text for terminals and HTML.
//!
//! A name or a message can contain any text: sequences that move the cursor or change the clipboard of a terminal,
//! marks that reverse text, and markup. Unsafe characters are shown as `\u{...}`, and no character is dropped.

use std::borrow::Cow;
use std::fmt::Write;

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
    fn markup_is_shown_for_html() {
        assert_eq!(
            html(r#"<img src=x onerror="a&b('c')">"#),
            "&lt;img src=x onerror=&quot;a&amp;b(&#39;c&#39;)&quot;&gt;"
        );
        assert_eq!(html("\x1b\u{202e}"), "\\u{1b}\\u{202e}");
        assert!(matches!(html("plain"), Cow::Borrowed(_)));
    }
}
