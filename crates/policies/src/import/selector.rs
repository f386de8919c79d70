//! Selectors of series in PromQL.

/// A selector: a name, matchers in braces, or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Selector {
    /// The name before the braces, or the quoted name within them.
    pub(super) name: Option<String>,
    /// The matchers: label, operator and value.
    pub(super) matchers: Vec<(String, Operator, String)>,
}

/// The operator of a matcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    Matches,
    MatchesNot,
}

const OPERATORS: [(&str, Operator); 4] = [
    ("=~", Operator::Matches),
    ("!~", Operator::MatchesNot),
    ("!=", Operator::NotEqual),
    ("=", Operator::Equal),
];

/// Reads a query that is valid PromQL. Returns `None` if it is another expression than a selector without a range, an
/// offset or a time.
pub(super) fn read(query: &str) -> Option<Selector> {
    let (name, rest) = word(query.trim());
    let mut selector =
        Selector { name: Some(name.to_owned()).filter(|name| !name.is_empty()), matchers: Vec::new() };
    if rest.trim().is_empty() {
        return selector.name.is_some().then_some(selector);
    }
    let mut rest = rest.trim_start().strip_prefix('{')?.trim_start();
    while !rest.starts_with('}') {
        let is_quoted = rest.starts_with(['"', '\'', '`']);
        let (label, after) = if is_quoted {
            string(rest)?
        } else {
            let (label, after) = word(rest);
            (label.to_owned(), after)
        };
        let after = after.trim_start();
        rest = match OPERATORS.iter().find_map(|(text, operator)| Some((operator, after.strip_prefix(text)?)))
        {
            Some((operator, after)) => {
                let (value, after) = string(after.trim_start())?;
                selector.matchers.push((label, *operator, value));
                after
            }
            None if is_quoted => {
                selector.name.get_or_insert(label);
                after
            }
            None => return None,
        };
        rest = rest.trim_start();
        match rest.strip_prefix(',') {
            Some(after) => rest = after.trim_start(),
            None if rest.starts_with('}') => {}
            None => return None,
        }
    }
    rest.strip_prefix('}')?.trim().is_empty().then_some(selector)
}

/// Splits a text after the name at its start, which may be empty.
fn word(text: &str) -> (&str, &str) {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
    text.split_at(text.find(|letter| !is_name(letter)).unwrap_or(text.len()))
}

/// Splits a text after the string literal at its start. Returns the content of the literal. Numeric escapes stay as
/// they are.
fn string(text: &str) -> Option<(String, &str)> {
    let quote = text.chars().next().filter(|quote| matches!(quote, '"' | '\'' | '`'))?;
    let mut content = String::new();
    let mut letters = text.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        if letter == quote {
            return Some((content, text.get(at + 1..)?));
        }
        if letter != '\\' || quote == '`' {
            content.push(letter);
            continue;
        }
        match letters.next()?.1 {
            'n' => content.push('\n'),
            't' => content.push('\t'),
            escaped @ ('"' | '\'' | '\\') => content.push(escaped),
            other => content.extend(['\\', other]),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_selector_is_read() {
        let matcher = |label: &str, operator, value: &str| (label.to_owned(), operator, value.to_owned());
        for (query, name, matchers) in [
            ("up", Some("up"), vec![]),
            (" job:rate1m { } ", Some("job:rate1m"), vec![]),
            (
                r#"up{a="b", c!~'d\'e\\.',}"#,
                Some("up"),
                vec![matcher("a", Operator::Equal, "b"), matcher("c", Operator::MatchesNot, "d'e\\.")],
            ),
            (
                r#"{"my.name", "a b"!="c", __name__=~`x\d`}"#,
                Some("my.name"),
                vec![matcher("a b", Operator::NotEqual, "c"), matcher("__name__", Operator::Matches, "x\\d")],
            ),
        ] {
            let expected = Selector { name: name.map(str::to_owned), matchers };
            assert_eq!(read(query), Some(expected), "{query}");
        }
        for query in [
            "",
            "rate(foo[5m])",
            "sum(rate(x[5m])) by (pod)",
            "foo or bar",
            "foo > 0",
            "foo[5m]",
            "foo offset 5m",
            "foo @ 5",
            r#"foo{a="b""#,
            r#"foo{a="b"}[5m]"#,
            r#"foo{a="b" c="d"}"#,
            "foo{a}",
            "-foo",
            "(foo)",
        ] {
            assert_eq!(read(query), None, "{query}");
        }
    }
}
