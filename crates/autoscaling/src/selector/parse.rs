//! The text form of a selector and its structured form, with their conversions to requirements.
//!
//! The grammar of the text form and its error texts are those of `labels.Parse`:
//!
//! ```text
//! selector    = [ requirement { "," requirement } ]
//! requirement = [ "!" ] key
//!             | key ( "=" | "==" | "!=" | "<" | ">" ) [ value ]
//!             | key ( "in" | "notin" ) "(" values ")"
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;

use limits::selector::BYTES;
use serde::{Deserialize, Serialize};

use super::{Operator, Requirement, SelectorError, validate};
use crate::failure;
use crate::settings::Version;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    End,
    Identifier,
    Comma,
    OpenParen,
    ClosedParen,
    Not,
    /// `=`, `==`, `!=`, `<` or `>`.
    Comparison(Operator),
    /// `in` or `notin`, which may also be keys and values.
    Membership(Operator),
}

#[derive(Debug, Clone, Copy)]
struct Token<'a> {
    kind: Kind,
    text: &'a str,
}

/// Parses the text form. Returns the requirements in the order of the text.
pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    check_length(text)?;
    let mut parser = Parser::new(text);
    let mut requirements = Vec::new();
    loop {
        if parser.next.kind == Kind::End {
            return Ok(requirements);
        }
        if !parser.at_requirement() {
            return Err(parser.found(", expected: !, identifier, or 'end of string'"));
        }
        let requirement = parser
            .requirement()
            .map_err(|error| SelectorError { message: format!("unable to parse requirement: {error}") })?;
        requirements.push(requirement);
        match parser.next.kind {
            Kind::End => return Ok(requirements),
            Kind::Comma => {
                parser.take();
                if !parser.at_requirement() {
                    return Err(parser.found(", expected: identifier after ','"));
                }
            }
            _ => return Err(parser.found(", expected: ',' or 'end of string'")),
        }
    }
}

/// Refuses a text that Kubernetes accepts, because its requirements would take 30 times its length.
fn check_length(text: &str) -> Result<(), SelectorError> {
    if text.len() <= BYTES {
        return Ok(());
    }
    let message = format!("the selector has {} bytes, at most {BYTES} are allowed", text.len());
    Err(SelectorError { message })
}

struct Parser<'a> {
    rest: &'a str,
    next: Token<'a>,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        let mut parser = Self { rest: text, next: Token { kind: Kind::End, text: "" } };
        parser.take();
        parser
    }

    /// Returns the next token, and reads the following token.
    fn take(&mut self) -> Token<'a> {
        let (following, rest) = lex(self.rest);
        self.rest = rest;
        std::mem::replace(&mut self.next, following)
    }

    /// Creates an error about the next token.
    fn found(&self, expected: &str) -> SelectorError {
        SelectorError { message: format!("found '{}'{expected}", self.next.text) }
    }

    fn at_identifier(&self) -> bool {
        matches!(self.next.kind, Kind::Identifier | Kind::Membership(_))
    }

    fn at_requirement(&self) -> bool {
        self.at_identifier() || self.next.kind == Kind::Not
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let negated = self.next.kind == Kind::Not;
        if negated {
            self.take();
        }
        if !self.at_identifier() {
            return Err(self.found(", expected: identifier"));
        }
        let key = self.take().text;
        validate::key_of_text(key)?;
        if negated {
            return validate::requirement(key, Operator::DoesNotExist, Vec::new());
        }
        let (operator, values) = match self.next.kind {
            Kind::End | Kind::Comma => (Operator::Exists, Vec::new()),
            Kind::Comparison(operator) => {
                self.take();
                (operator, vec![self.value()?])
            }
            Kind::Membership(operator) => {
                self.take();
                (operator, self.values()?)
            }
            _ => return Err(self.found(", expected: in, notin, =, ==, !=, gt, lt")),
        };
        validate::requirement(key, operator, values)
    }

    /// Parses the value after a comparison operator. The value may be empty.
    fn value(&mut self) -> Result<&'a str, SelectorError> {
        match self.next.kind {
            Kind::End | Kind::Comma => Ok(""),
            _ if self.at_identifier() => Ok(self.take().text),
            _ => Err(self.found(", expected: identifier")),
        }
    }

    /// Parses the list of values after `in` or `notin`. Values may be empty.
    fn values(&mut self) -> Result<Vec<&'a str>, SelectorError> {
        if self.next.kind != Kind::OpenParen {
            return Err(self.found(" expected: '('"));
        }
        self.take();
        if self.next.kind == Kind::ClosedParen {
            self.take();
            return Ok(vec![""]);
        }
        if !self.at_identifier() && self.next.kind != Kind::Comma {
            return Err(self.found(", expected: ',', ')' or identifier"));
        }
        let mut values = Vec::new();
        loop {
            if self.at_identifier() {
                values.push(self.take().text);
                match self.next.kind {
                    Kind::Comma => {}
                    Kind::ClosedParen => break,
                    _ => return Err(self.found(", expected: ',' or ')'")),
                }
            } else if self.next.kind == Kind::Comma {
                self.take();
                if values.is_empty() {
                    values.push("");
                }
                if matches!(self.next.kind, Kind::Comma | Kind::ClosedParen) {
                    values.push("");
                }
                if self.next.kind == Kind::ClosedParen {
                    break;
                }
            } else {
                return Err(self.found(", expected: ',', or identifier"));
            }
        }
        self.take();
        values.sort_unstable();
        values.dedup();
        Ok(values)
    }
}

/// Splits off the first token. As in `labels.Parse`, a NUL character ends the text or an identifier.
fn lex(text: &str) -> (Token<'_>, &str) {
    let text = text.trim_start_matches([' ', '\t', '\r', '\n']);
    let symbol = |kind, length| {
        let (text, rest) = text.split_at_checked(length).unwrap_or((text, ""));
        (Token { kind, text }, rest)
    };
    match text.as_bytes() {
        [] | [0, ..] => (Token { kind: Kind::End, text: "" }, ""),
        [b',', ..] => symbol(Kind::Comma, 1),
        [b'(', ..] => symbol(Kind::OpenParen, 1),
        [b')', ..] => symbol(Kind::ClosedParen, 1),
        [b'=', b'=', ..] => symbol(Kind::Comparison(Operator::DoubleEquals), 2),
        [b'=', ..] => symbol(Kind::Comparison(Operator::Equals), 1),
        [b'!', b'=', ..] => symbol(Kind::Comparison(Operator::NotEquals), 2),
        [b'!', ..] => symbol(Kind::Not, 1),
        [b'<', ..] => symbol(Kind::Comparison(Operator::LessThan), 1),
        [b'>', ..] => symbol(Kind::Comparison(Operator::GreaterThan), 1),
        _ => {
            let ends = |byte| {
                matches!(
                    byte,
                    b'=' | b'!' | b'(' | b')' | b',' | b'>' | b'<' | b' ' | b'\t' | b'\r' | b'\n' | 0
                )
            };
            let length = text.bytes().position(ends).unwrap_or(text.len());
            let (word, rest) = text.split_at_checked(length).unwrap_or((text, ""));
            let kind = match word {
                "in" => Kind::Membership(Operator::In),
                "notin" => Kind::Membership(Operator::NotIn),
                _ => Kind::Identifier,
            };
            (Token { kind, text: word }, rest.strip_prefix('\0').unwrap_or(rest))
        }
    }
}

/// The structured form of a selector: `metav1.LabelSelector`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// `matchLabels`: the required value of each label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_labels: Option<BTreeMap<String, String>>,
    /// `matchExpressions`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_expressions: Option<Vec<LabelSelectorRequirement>>,
}

/// An entry of `matchExpressions`: `metav1.LabelSelectorRequirement`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelectorRequirement {
    /// The label key.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`. Any other text is an error of the conversion.
    pub operator: String,
    /// The values of `In` and `NotIn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<String>>,
}

impl LabelSelector {
    /// Parses the text form, like `metav1.ParseToLabelSelector` of a version.
    ///
    /// # Errors
    /// Fails like [`Selector::parse`](super::Selector::parse), and for the operators `<` and `>`, which the structured
    /// form lacks. Before 1.38, also fails for `!=`.
    pub fn parse(text: &str, version: Version) -> Result<Self, SelectorError> {
        check_length(text)?;
        let mut requirements = requirements(text).map_err(|error| SelectorError {
            message: format!("couldn't parse the selector string \"{text}\": {error}"),
        })?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));

        let mut labels = BTreeMap::new();
        let mut expressions = Vec::new();
        for Requirement { key, operator, values } in requirements {
            let structured = match operator {
                Operator::Equals | Operator::DoubleEquals => {
                    // Only the last of several values for one label is kept, because `matchLabels` is a map.
                    labels.extend(values.into_iter().map(|value| (String::from(key.clone()), value.into())));
                    continue;
                }
                Operator::In => "In",
                Operator::NotIn => "NotIn",
                Operator::NotEquals if version.allows_scale_not_equals() => "NotIn",
                Operator::Exists => "Exists",
                Operator::DoesNotExist => "DoesNotExist",
                Operator::GreaterThan | Operator::LessThan => {
                    let message =
                        format!("{} isn't supported in label selectors", failure::quote(operator.as_str()));
                    return Err(SelectorError { message });
                }
                Operator::NotEquals => return Err(not_an_operator(operator.as_str())),
            };
            expressions.push(LabelSelectorRequirement {
                key: key.into(),
                operator: structured.to_owned(),
                values: (!values.is_empty()).then(|| values.into_iter().map(String::from).collect()),
            });
        }
        Ok(Self {
            match_labels: (!labels.is_empty()).then_some(labels),
            match_expressions: (!expressions.is_empty()).then_some(expressions),
        })
    }

    /// Returns the requirements of `matchLabels`, then those of `matchExpressions`. Fails at the first invalid
    /// requirement.
    pub(super) fn requirements(&self) -> Result<Vec<Requirement>, SelectorError> {
        let mut requirements = Vec::new();
        for (key, value) in self.match_labels.iter().flatten() {
            requirements.push(validate::requirement(key, Operator::Equals, vec![value])?);
        }
        for expression in self.match_expressions.iter().flatten() {
            let operator = match expression.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                unknown => return Err(not_an_operator(unknown)),
            };
            let values = expression.values.iter().flatten().map(String::as_str).collect();
            requirements.push(validate::requirement(&expression.key, operator, values)?);
        }
        Ok(requirements)
    }
}

fn not_an_operator(operator: &str) -> SelectorError {
    SelectorError { message: format!("{} is not a valid label selector operator", failure::quote(operator)) }
}

/// Prints a selector like Go's `%+v` of a `*metav1.LabelSelector`: `nil`, or `&LabelSelector{MatchLabels:...}`.
pub fn go_print(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else {
        return "nil".to_owned();
    };
    let mut printed = String::from("&LabelSelector{MatchLabels:map[string]string{");
    for (key, value) in selector.match_labels.iter().flatten() {
        // Writing to a String cannot fail.
        let _ = write!(printed, "{key}: {value},");
    }
    printed.push_str("},MatchExpressions:[]LabelSelectorRequirement{");
    for LabelSelectorRequirement { key, operator, values } in selector.match_expressions.iter().flatten() {
        let values = values.as_deref().unwrap_or_default().join(" ");
        let _ =
            write!(printed, "LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},");
    }
    printed.push_str("},}");
    printed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_and_absent_fields_are_equal() {
        let read = |json| serde_json::from_str::<LabelSelector>(json).unwrap();
        assert_eq!(read(r#"{"matchLabels":null,"matchExpressions":null}"#), LabelSelector::default());
        let one = read(r#"{"matchExpressions":[{"key":"a","operator":"Exists"}]}"#);
        assert_eq!(
            serde_json::to_string(&one).unwrap(),
            r#"{"matchExpressions":[{"key":"a","operator":"Exists"}]}"#
        );
    }
}
