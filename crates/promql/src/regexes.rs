//! Regular expressions of a query, which are kept from the parser.
//!
//! The crate of the parser compiles each regular expression, with up to 20 MB. Only the server needs them compiled, and
//! reports invalid ones. So the parser gets a name in place of each.

use promql_parser::label::{MatchOp, Matcher};
use promql_parser::util::unquote_string;

/// The regular expressions of a query, in the order of its text.
#[derive(Debug, Default)]
pub(crate) struct Regexes(Vec<String>);

impl Regexes {
    /// Replaces each string after `=~` or `!~` by a name. Strings and comments end where the parser ends them, so it
    /// sees no other regular expression. A string that is invalid for the parser stays, and fails there.
    pub(crate) fn take(query: &str) -> (String, Self) {
        let (mut text, mut regexes) = (String::with_capacity(query.len()), Vec::new());
        let mut is_regex = false;
        let mut rest = query;
        while let Some(first) = rest.chars().next() {
            let token = rest.split_at(match first {
                '"' | '\'' | '`' => string_length(rest),
                '#' => rest.find(['\r', '\n']).unwrap_or(rest.len()),
                '=' | '!' if rest.get(1..2) == Some("~") => 2,
                first => first.len_utf8(),
            });
            rest = token.1;
            if is_regex && let Some(regex) = unquoted(token.0) {
                text.extend(["\"", &name(regexes.len()), "\""]);
                regexes.push(regex);
            } else {
                text.push_str(token.0);
            }
            let separates = first == '#' || first.is_ascii_whitespace();
            is_regex = matches!(token.0, "=~" | "!~") || (is_regex && separates);
        }
        (text, Self(regexes))
    }

    /// Puts a regular expression back in place of its name. Returns `None` for an unknown name.
    pub(crate) fn put_back(&self, matcher: &mut Matcher) -> Option<()> {
        if matches!(matcher.op, MatchOp::Equal | MatchOp::NotEqual) {
            return Some(());
        }
        let named = (0..).zip(&self.0).find(|(index, _)| name(*index) == matcher.value);
        matcher.value.clone_from(named?.1);
        Some(())
    }
}

/// The name of a regular expression. It matches no empty text, as the parser requires of one matcher of a selector.
fn name(index: usize) -> String {
    format!("regex-{index:02}")
}

/// The content of a string literal. `None` for another token, and for a string that is invalid for the parser.
fn unquoted(token: &str) -> Option<String> {
    let mut characters = token.strip_prefix(['"', '\'', '`'])?.chars();
    while let Some(character) = characters.next() {
        // The function of the parser panics here. The parser refuses the string before it calls the function.
        if character == '\\' && !characters.next().is_some_and(|escaped| escaped.is_ascii()) {
            return None;
        }
    }
    unquote_string(token).ok()
}

/// The length of a string literal, from its quote. As in the parser, a backslash escapes within each kind of quotes.
fn string_length(text: &str) -> usize {
    let mut characters = text.char_indices();
    let quote = characters.next().map(|(_, quote)| quote);
    while let Some((at, character)) = characters.next() {
        if character == '\\' {
            characters.next();
        } else if Some(character) == quote {
            return at + character.len_utf8();
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regexes_are_found_where_the_parser_reads_them() {
        for (query, expected, regexes) in [
            (r#"a{b=~"c"}"#, r#"a{b=~"regex-00"}"#, vec!["c"]),
            (
                "a{b!~ # \"x\"\n 'c\\'d', e=~`f`}",
                "a{b!~ # \"x\"\n \"regex-00\", e=~\"regex-01\"}",
                vec!["c'd", "f"],
            ),
            (r#"a{b="=~", c="\"=~\"d"}"#, r#"a{b="=~", c="\"=~\"d"}"#, vec![]),
            (r#"a{b=~"\q"}"#, r#"a{b=~"\q"}"#, vec![]),
            (r#"a{b=~"\é"}"#, r#"a{b=~"\é"}"#, vec![]),
            (r#"a{b=~"c"#, r#"a{b=~"c"#, vec![]),
            ("# =~\"c\"\na", "# =~\"c\"\na", vec![]),
            ("\u{e9}=~`\u{e9}`", "\u{e9}=~\"regex-00\"", vec!["\u{e9}"]),
        ] {
            let (text, found) = Regexes::take(query);
            assert_eq!((&*text, found.0), (expected, regexes.into_iter().map(str::to_owned).collect()));
        }
    }
}
