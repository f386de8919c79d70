//! What comes from the cluster, made harmless for where it is shown. This is the only place that does so.
//!
//! A name or a message may hold anything: sequences that move the cursor or change the clipboard of a terminal, marks
//! that reverse text, markup. None of it is dropped; it is shown as `\u{...}`.

use std::borrow::Cow;
use std::fmt::Write;

/// For a terminal: one line of text without control characters and marks that reorder or hide text.
pub fn terminal(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_unsafe(character) {
            push_escaped(&mut escaped, character);
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

/// For HTML, as text or within a quoted attribute: the same, and without markup.
pub fn html(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|character| is_unsafe(character) || entity(character).is_some()) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match entity(character) {
            Some(entity) => escaped.push_str(entity),
            None if is_unsafe(character) => push_escaped(&mut escaped, character),
            None => escaped.push(character),
        }
    }
    Cow::Owned(escaped)
}

fn push_escaped(text: &mut String, character: char) {
    // Writing to a String cannot fail.
    let _ = write!(text, "\\u{{{:x}}}", u32::from(character));
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

/// Control characters (C0, DEL, C1), line and paragraph separators, marks of direction, characters without width or with
/// none but their effect, and tags.
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
    fn what_acts_on_a_terminal_is_shown_instead() {
        assert_eq!(terminal("a\x1b[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(terminal("one\ntwo\r\u{9b}"), "one\\u{a}two\\u{d}\\u{9b}");
        assert_eq!(terminal("web\u{202e}gnp"), "web\\u{202e}gnp");
        assert_eq!(terminal("a\u{2066}b\u{2069}\u{200b}"), "a\\u{2066}b\\u{2069}\\u{200b}");
        assert!(matches!(terminal("Größe 80 % → 5, 猫"), Cow::Borrowed(_)));
    }

    #[test]
    fn markup_is_shown_instead_of_followed() {
        assert_eq!(
            html(r#"<img src=x onerror="a&b('c')">"#),
            "&lt;img src=x onerror=&quot;a&amp;b(&#39;c&#39;)&quot;&gt;"
        );
        assert_eq!(html("\x1b\u{202e}"), "\\u{1b}\\u{202e}");
        assert!(matches!(html("plain"), Cow::Borrowed(_)));
    }
}
