//! The tokens of the text format.
//!
//! A lexer works on the bytes from the start of an entry. If the bytes end within a token and more bytes can follow,
//! the lexer stops with [`Incomplete`]. The entry is read again when more bytes have arrived.
//!
//! The tokens are those of Prometheus' `model/textparse`, v0.316.0, the parser of its scrapes. The parser deviates from
//! the specification of the format. NUL bytes are allowed in comments, texts and label values. Elsewhere, a NUL byte
//! ends the page or is invalid. Label values may contain line breaks.

/// The error for bytes that end within an entry.
#[derive(Debug)]
pub(crate) struct Incomplete;

/// The part of an entry that the lexer expects next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    Comment,
    MetadataName,
    MetadataText,
    Labels,
    LabelValue,
    Value,
    Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    Invalid,
    End,
    LineBreak,
    Blank,
    Help,
    Type,
    Text,
    Comment,
    Name,
    LabelName,
    Quoted,
    LabelValue,
    BraceOpen,
    BraceClose,
    Equal,
    Comma,
    Value,
    Timestamp,
}

#[derive(Debug)]
pub(crate) struct Lexer<'a> {
    bytes: &'a [u8],
    /// Whether the page ends with these bytes.
    complete: bool,
    state: State,
    start: usize,
    at: usize,
}

type Lexed<T = Token> = Result<T, Incomplete>;

impl<'a> Lexer<'a> {
    pub(crate) const fn new(bytes: &'a [u8], complete: bool) -> Self {
        Self { bytes, complete, state: State::Start, start: 0, at: 0 }
    }

    /// Returns the position after the last token.
    pub(crate) const fn position(&self) -> usize {
        self.at
    }

    /// Returns the bounds of the last token.
    pub(crate) const fn bounds(&self) -> (usize, usize) {
        (self.start, self.at)
    }

    /// Returns the bytes between two positions.
    pub(crate) fn slice(&self, start: usize, end: usize) -> &'a [u8] {
        self.bytes.get(start..end).unwrap_or_default()
    }

    /// Returns the bytes of the last token.
    pub(crate) fn text(&self) -> &'a [u8] {
        self.slice(self.start, self.at)
    }

    /// Reads the next token, without blanks.
    pub(crate) fn token(&mut self) -> Lexed {
        loop {
            self.start = self.at;
            if self.at >= self.bytes.len() {
                return if self.complete { Ok(Token::End) } else { Err(Incomplete) };
            }
            let token = self.next()?;
            if token != Token::Blank {
                return Ok(token);
            }
        }
    }

    /// Returns the current byte. 0 after the end of the page.
    fn current(&self) -> Lexed<u8> {
        match self.bytes.get(self.at) {
            Some(byte) => Ok(*byte),
            None if self.complete => Ok(0),
            None => Err(Incomplete),
        }
    }

    /// Moves to the next byte and returns it. Skips NUL bytes where they are part of a token.
    fn advance(&mut self) -> Lexed<u8> {
        self.at = self.at.saturating_add(1);
        if matches!(self.state, State::LabelValue | State::MetadataText | State::Comment) {
            while self.bytes.get(self.at) == Some(&0) {
                self.at += 1;
            }
        }
        self.current()
    }

    /// Consumes the current byte, which ends the token `token`.
    fn take(&mut self, token: Token, state: State) -> Lexed {
        self.advance()?;
        self.state = state;
        Ok(token)
    }

    /// Moves at least one byte ahead, to the first byte for which `part` is false.
    fn advance_while(&mut self, part: impl Fn(u8) -> bool) -> Lexed<u8> {
        loop {
            let byte = self.advance()?;
            if !part(byte) {
                return Ok(byte);
            }
        }
    }

    /// Consumes `word`. Stops at the first byte that differs. Returns whether all bytes are equal.
    fn word(&mut self, word: &[u8]) -> Lexed<bool> {
        for expected in word {
            if self.current()? != *expected {
                return Ok(false);
            }
            self.advance()?;
        }
        Ok(true)
    }

    fn name(&mut self, token: Token, state: State, colons: bool) -> Lexed {
        self.advance_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || (colons && byte == b':'))?;
        self.state = state;
        Ok(token)
    }

    /// Reads a text in quotes, which may contain line breaks. The current byte is the first quote.
    fn quoted(&mut self, token: Token, state: State) -> Lexed {
        let mut byte = self.advance()?;
        loop {
            match byte {
                b'"' => return self.take(token, state),
                b'\\' => {
                    if matches!(self.advance()?, 0 | b'\n') {
                        return Ok(Token::Invalid);
                    }
                }
                0 => return Ok(Token::Invalid),
                _ => {}
            }
            byte = self.advance()?;
        }
    }

    /// Reads the rest of a line. The current byte may be the line break.
    fn comment(&mut self) -> Lexed {
        let mut byte = self.current()?;
        loop {
            match byte {
                0 => return Ok(Token::End),
                b'\n' => {
                    self.state = State::Start;
                    return Ok(Token::Comment);
                }
                _ => byte = self.advance()?,
            }
        }
    }

    fn blank(&mut self) -> Lexed {
        self.advance_while(is_blank)?;
        Ok(Token::Blank)
    }

    fn next(&mut self) -> Lexed {
        let byte = self.current()?;
        if is_blank(byte) && self.state != State::MetadataText {
            return self.blank();
        }
        match (self.state, byte) {
            (State::Start, 0) => self.take(Token::End, State::Start),
            (State::Start | State::Timestamp, b'\n') => self.take(Token::LineBreak, State::Start),
            (State::Start, b'#') => {
                if !is_blank(self.advance()?) {
                    return self.comment();
                }
                self.advance_while(is_blank)?;
                self.state = State::Comment;
                self.metadata_or_comment()
            }
            (State::Start, byte) if is_name_start(byte) => self.name(Token::Name, State::Value, true),
            (State::Start | State::Value, b'{') => self.take(Token::BraceOpen, State::Labels),
            (State::MetadataName, b'"') => self.quoted(Token::Name, State::MetadataText),
            (State::MetadataName, byte) if is_name_start(byte) => {
                self.name(Token::Name, State::MetadataText, true)
            }
            (State::MetadataText, _) => self.metadata_text(),
            (State::Labels, _) => self.labels(),
            (State::LabelValue, b'"') => self.quoted(Token::LabelValue, State::Labels),
            (State::Value, byte) if !matches!(byte, 0 | b'\n') => {
                self.advance_while(|byte| !is_blank(byte) && !matches!(byte, 0 | b'\n' | b'{'))?;
                self.state = State::Timestamp;
                Ok(Token::Value)
            }
            (State::Timestamp, b'0'..=b'9') => {
                self.advance_while(|byte| byte.is_ascii_digit())?;
                Ok(Token::Timestamp)
            }
            _ => Ok(Token::Invalid),
        }
    }

    /// Reads the start of metadata, or a comment, after `#` and blanks.
    fn metadata_or_comment(&mut self) -> Lexed {
        let (word, token): (&[u8], _) = match self.current()? {
            b'H' => (b"HELP", Token::Help),
            b'T' => (b"TYPE", Token::Type),
            _ => return self.comment(),
        };
        if !self.word(word)? || !is_blank(self.current()?) {
            return self.comment();
        }
        self.advance_while(is_blank)?;
        self.state = State::MetadataName;
        Ok(token)
    }

    /// Reads the text of metadata, up to the end of the line. Skips a text of only blanks.
    fn metadata_text(&mut self) -> Lexed {
        let mut byte = self.current()?;
        let blanks = is_blank(byte);
        while is_blank(byte) {
            byte = self.advance()?;
        }
        if blanks && matches!(byte, 0 | b'\n') {
            return Ok(Token::Blank);
        }
        while !matches!(byte, 0 | b'\n') {
            byte = self.advance()?;
        }
        self.state = State::Start;
        Ok(Token::Text)
    }

    /// Reads a token between the braces of a series.
    fn labels(&mut self) -> Lexed {
        match self.current()? {
            b'"' => self.quoted(Token::Quoted, State::Labels),
            b',' => self.take(Token::Comma, State::Labels),
            b'=' => self.take(Token::Equal, State::LabelValue),
            b'}' => self.take(Token::BraceClose, State::Value),
            byte if is_name_start(byte) && byte != b':' => self.name(Token::LabelName, State::Labels, false),
            _ => Ok(Token::Invalid),
        }
    }
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

const fn is_name_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b':')
}
