//! Go's `%q`, which upstream uses in error texts.

use std::fmt::Write;

/// Quotes a text like `strconv.Quote`: in double quotes, with Go's escapes for unprintable characters.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            printable if is_printable(printable) => quoted.push(printable),
            other => {
                let code = u32::from(other);
                // Writing to a String cannot fail.
                let _ = match code {
                    0..=0x7f => write!(quoted, "\\x{code:02x}"),
                    0x80..=0xffff => write!(quoted, "\\u{code:04x}"),
                    _ => write!(quoted, "\\U{code:08x}"),
                };
            }
        }
    }
    quoted.push('"');
    quoted
}

/// Whether `strconv.IsPrint` accepts the character: a letter, mark, number, punctuation, symbol or the ASCII space.
fn is_printable(character: char) -> bool {
    if character.is_ascii() {
        return character == ' ' || character.is_ascii_graphic();
    }
    // Rust escapes all other characters, and a mark at the start of a text. A letter before the character avoids the
    // second case.
    let after_letter = ['a', character].iter().collect::<String>();
    after_letter.escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    use super::quote;

    #[test]
    fn texts_are_quoted_as_in_go() {
        assert_eq!(quote("web"), r#""web""#);
        assert_eq!(quote("a\"b\\c'd"), r#""a\"b\\c'd""#);
        assert_eq!(quote("\u{0}\u{7}\u{8}\u{b}\u{c}\n\r\t\u{7f}"), r#""\x00\a\b\v\f\n\r\t\x7f""#);
        assert_eq!(quote("µ é e\u{301} 日本"), "\"µ é e\u{301} 日本\"");
        assert_eq!(quote("\u{a0}\u{200b}\u{feff}"), r#""\u00a0\u200b\ufeff""#);
        assert_eq!(quote("\u{e000}\u{10ffff}"), r#""\ue000\U0010ffff""#);
    }
}
