//! The strings and numbers of a query, in the forms that the parser knows.

/// A query whose strings have double or single quotes, and whose numbers have no `_`.
#[derive(Debug)]
pub(crate) struct Normal {
    /// The query.
    pub(crate) text: String,
    /// The query without the contents of strings and without comments.
    bare: String,
}

/// The words that make a calculation of an offset.
const DURATIONS: [&str; 4] = ["step", "range", "min", "max"];

impl Normal {
    /// Rewrites strings in backticks, in which a backslash is no escape, and numbers such as `100_000`.
    pub(crate) fn of(query: &str) -> Self {
        let (mut text, mut bare) = (String::with_capacity(query.len()), String::with_capacity(query.len()));
        let mut rest = query;
        while let Some(first) = rest.chars().next() {
            let length = match first {
                '"' | '\'' | '`' => string_length(rest, first),
                '#' => rest.find(['\r', '\n']).unwrap_or(rest.len()),
                _ if is_word(first) => rest.find(|letter| !is_word(letter)).unwrap_or(rest.len()),
                _ => first.len_utf8(),
            };
            let token = rest.split_at(length);
            rest = token.1;
            match first {
                '`' => match token.0.strip_prefix('`').and_then(|token| token.strip_suffix('`')) {
                    Some(content) => text.push_str(&quoted(content)),
                    None => text.push_str(token.0),
                },
                '0'..='9' => text.push_str(&without_separators(token.0)),
                _ => text.push_str(token.0),
            }
            match first {
                '"' | '\'' | '`' => bare.push('"'),
                '#' => bare.push(' '),
                _ => bare.push_str(token.0),
            }
        }
        Self { text, bare }
    }

    /// The syntax of PromQL in the query that the parser does not know. `None` if the query has no such syntax.
    pub(crate) fn unknown_syntax(&self) -> Option<&'static str> {
        if self.bare.contains("</") || self.bare.contains(">/") {
            return Some("the operators </ and >/");
        }
        let in_brackets =
            |part: &str| part.split_once(']').is_some_and(|(range, _)| range.contains(is_operator));
        if self.bare.split('[').skip(1).any(in_brackets) {
            return Some("calculations with durations");
        }
        let mut rest = self.bare.as_str();
        while let Some(start) = rest.find(is_word) {
            let word = rest.get(start..).unwrap_or_default();
            let (word, after) = word.split_at(word.find(|letter| !is_word(letter)).unwrap_or(word.len()));
            if matches!(word, "anchored" | "smoothed") {
                return Some("anchored and smoothed");
            }
            let offset = after.trim_start().trim_start_matches(['+', '-']).trim_start();
            let is_calculated =
                offset.starts_with('(') || DURATIONS.iter().any(|name| starts_call(offset, name));
            if word.eq_ignore_ascii_case("offset") && is_calculated {
                return Some("calculations with durations");
            }
            rest = after;
        }
        None
    }
}

fn is_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.' | ':')
}

fn is_operator(letter: char) -> bool {
    matches!(letter, '+' | '-' | '*' | '/' | '%' | '^' | '(' | ')')
}

fn starts_call(text: &str, name: &str) -> bool {
    text.strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with('('))
}

/// The length of a string literal, from its quote. A backslash is no escape between backticks.
fn string_length(text: &str, quote: char) -> usize {
    let mut characters = text.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        if character == '\\' && quote != '`' {
            characters.next();
        } else if character == quote {
            return at + character.len_utf8();
        }
    }
    text.len()
}

/// A string literal with double quotes.
fn quoted(content: &str) -> String {
    let mut literal = String::with_capacity(content.len() + 2);
    literal.push('"');
    for letter in content.chars() {
        match letter {
            '\\' | '"' => literal.extend(['\\', letter]),
            '\n' => literal.push_str("\\n"),
            letter => literal.push(letter),
        }
    }
    literal.push('"');
    literal
}

/// Removes each `_` between two digits.
fn without_separators(number: &str) -> String {
    let is_digit =
        |at: Option<usize>| at.and_then(|at| number.as_bytes().get(at)).is_some_and(u8::is_ascii_hexdigit);
    let stays = |(at, letter): &(usize, char)| {
        *letter != '_' || !is_digit(at.checked_sub(1)) || !is_digit(at.checked_add(1))
    };
    number.char_indices().filter(stays).map(|(_, letter)| letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_and_numbers_have_the_forms_of_the_parser() {
        for (query, expected) in [
            (r#"a{b=~`/api/\d+"`}"#, r#"a{b=~"/api/\\d+\""}"#),
            ("a{b=`\\`,c=\"d`\"} # `e`\n", "a{b=\"\\\\\",c=\"d`\"} # `e`\n"),
            ("a{b=`c", "a{b=`c"),
            ("x_1_000 > 1_000_000.5 + 0xf_f", "x_1_000 > 1000000.5 + 0xff"),
            ("1_ + 1__0", "1_ + 1__0"),
        ] {
            assert_eq!(Normal::of(query).text, expected);
        }
    }

    #[test]
    fn unknown_syntax_is_found_outside_of_strings() {
        for (query, expected) in [
            ("rate(x[step()])", Some("calculations with durations")),
            ("x[5m*2]", Some("calculations with durations")),
            ("x offset (5m+1m)", Some("calculations with durations")),
            ("x offset -step()", Some("calculations with durations")),
            ("rate(x[5m] anchored)", Some("anchored and smoothed")),
            ("x </ 5", Some("the operators </ and >/")),
            (r#"x{a="[5m*2] </ anchored"} offset 5m - (y) # offset (1m)"#, None),
            ("max_over_time(x[5m:1m]) offset 5m", None),
        ] {
            assert_eq!(Normal::of(query).unknown_syntax(), expected, "{query}");
        }
    }
}
