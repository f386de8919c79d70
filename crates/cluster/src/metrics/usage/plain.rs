//! The fast path for items in Go's output form: no spaces between tokens, no escapes in strings.
//!
//! All items usually have this form, and the fast path takes a third of the general path's time. Any other
//! form falls back to the general path, which also produces the errors. The fast path accepts no item that
//! the general path would reject.

use super::decode::Reader;

/// The unread part of an item.
pub(super) struct Cursor<'a> {
    rest: &'a str,
}

/// The decoded fields of an item. Its containers are already in the reader.
#[derive(Default)]
pub(super) struct Item<'a> {
    pub(super) name: &'a str,
    pub(super) labels: Option<&'a str>,
    pub(super) timestamp: Option<&'a str>,
    pub(super) window: Option<&'a str>,
}

/// Reads an item. `None` if it does not have the plain form. The reader may then hold part of its containers.
pub(super) fn item<'a>(text: &'a str, reader: &mut Reader) -> Option<Item<'a>> {
    let mut cursor = Cursor { rest: text };
    let mut item = Item::default();
    let (mut metadata, mut containers) = (false, false);
    cursor.object(|key, cursor| {
        match key {
            "metadata" if !metadata => {
                metadata = true;
                cursor.object(|key, cursor| {
                    match key {
                        "name" => item.name = cursor.string()?,
                        "labels" => item.labels = Some(cursor.strings()?),
                        _ => cursor.skip()?,
                    }
                    Some(())
                })?;
            }
            "timestamp" => item.timestamp = Some(cursor.string()?),
            "window" => item.window = Some(cursor.string()?),
            "containers" if !containers => {
                containers = true;
                cursor.list(|cursor| container(cursor, reader))?;
            }
            "metadata" | "containers" => return None,
            _ => cursor.skip()?,
        }
        Some(())
    })?;
    cursor.rest.is_empty().then_some(item)
}

fn container(cursor: &mut Cursor<'_>, reader: &mut Reader) -> Option<()> {
    let mut name = "";
    cursor.object(|key, cursor| {
        match key {
            "name" => name = cursor.string()?,
            "usage" => cursor.object(|resource, cursor| reader.plain_amount(resource, cursor.string()?))?,
            _ => cursor.skip()?,
        }
        Some(())
    })?;
    reader.container(name);
    Some(())
}

impl<'a> Cursor<'a> {
    fn eat(&mut self, byte: u8) -> Option<()> {
        if self.rest.as_bytes().first() != Some(&byte) {
            return None;
        }
        self.rest = self.rest.get(1..)?;
        Some(())
    }

    /// The members of an object.
    fn object(&mut self, mut member: impl FnMut(&'a str, &mut Self) -> Option<()>) -> Option<()> {
        self.eat(b'{')?;
        if self.eat(b'}').is_some() {
            return Some(());
        }
        loop {
            let key = self.string()?;
            self.eat(b':')?;
            member(key, self)?;
            if self.eat(b',').is_none() {
                return self.eat(b'}');
            }
        }
    }

    /// The elements of a list.
    fn list(&mut self, mut element: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.eat(b'[')?;
        if self.eat(b']').is_some() {
            return Some(());
        }
        loop {
            element(self)?;
            if self.eat(b',').is_none() {
                return self.eat(b']');
            }
        }
    }

    /// A string without escapes.
    fn string(&mut self) -> Option<&'a str> {
        self.eat(b'"')?;
        let bytes = self.rest.as_bytes();
        let end = bytes.iter().position(|byte| matches!(byte, b'"' | b'\\' | ..=0x1f))?;
        let (text, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest;
        self.eat(b'"')?;
        Some(text)
    }

    /// An object of strings, in its JSON form.
    fn strings(&mut self) -> Option<&'a str> {
        let before = self.rest;
        self.object(|_, cursor| cursor.string().map(|_| ()))?;
        before.get(..before.len() - self.rest.len())
    }

    /// Skips a string, an object of strings or `null`.
    fn skip(&mut self) -> Option<()> {
        match self.rest.as_bytes().first()? {
            b'"' => self.string().map(|_| ()),
            b'{' => self.strings().map(|_| ()),
            _ => {
                self.rest = self.rest.strip_prefix("null")?;
                Some(())
            }
        }
    }
}
