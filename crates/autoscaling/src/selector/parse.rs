//! The text form: the grammar of `labels.Parse`, and its error texts.
//!
//! ```text
//! selector    = [ requirement { "," requirement } ]
//! requirement = [ "!" ] key
//!             | key ( "=" | "==" | "!=" | "<" | ">" ) [ value ]
//!             | key ( "in" | "notin" ) "(" values ")"
//! ```

use super::{Operator, Requirement, SelectorError, validate};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    End,
    Identifier,
    Comma,
    OpenParen,
    ClosedParen,
    Not,
    /// `=`, `==`, `!=`, `<`, `>`.
    Comparison(Operator),
    /// `in`, `notin`: words that can also be keys and values.
    Membership(Operator),
}

#[derive(Debug, Clone, Copy)]
struct Token<'a> {
    kind: Kind,
    text: &'a str,
}

/// The requirements of a selector in their given order.
pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, SelectorError> {
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

    /// Consumes the next token.
    fn take(&mut self) -> Token<'a> {
        let (following, rest) = lex(self.rest);
        self.rest = rest;
        std::mem::replace(&mut self.next, following)
    }

    /// An error about the next token.
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

    /// The value after a comparison. A missing value is the empty value.
    fn value(&mut self) -> Result<&'a str, SelectorError> {
        match self.next.kind {
            Kind::End | Kind::Comma => Ok(""),
            _ if self.at_identifier() => Ok(self.take().text),
            _ => Err(self.found(", expected: identifier")),
        }
    }

    /// The list after `in` or `notin`. A missing entry is the empty value.
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

/// The first token and the rest. A NUL ends the text or an identifier, as in upstream.
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
