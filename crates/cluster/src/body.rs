//! Reads response bodies with size limits: as a whole, or line by line for watches.

use std::io::BufRead as _;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::error::ApiError;

/// Reads the next non-empty piece of a body. `None` at the end.
pub async fn chunk(body: &mut Incoming) -> Result<Option<Bytes>, ApiError> {
    while let Some(frame) = body.frame().await {
        match frame.map_err(|error| ApiError::from_body(&error))?.into_data() {
            Ok(data) if !data.is_empty() => return Ok(Some(data)),
            // Empty pieces and trailers are ignored.
            _ => {}
        }
    }
    Ok(None)
}

/// Reads the whole body. Fails if the body has more than `limit` bytes.
pub async fn collect(mut body: Incoming, limit: usize) -> Result<Bytes, ApiError> {
    let mut whole = BytesMut::new();
    while let Some(data) = chunk(&mut body).await? {
        if whole.len() + data.len() > limit {
            return Err(ApiError::TooLarge { limit });
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

/// Reads the first `limit` bytes of an error response. A read error ends the text.
pub async fn prefix(mut body: Incoming, limit: usize) -> Bytes {
    let mut whole = BytesMut::new();
    while let Ok(Some(data)) = chunk(&mut body).await {
        whole.extend_from_slice(&data);
        if whole.len() >= limit {
            whole.truncate(limit);
            break;
        }
    }
    whole.freeze()
}

/// Returns the message of a Status, or a plain text of 1 to 512 bytes without control characters. `None` for any other
/// body.
pub fn error_text(body: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Status {
        message: String,
    }
    if let Ok(Status { message }) = serde_json::from_slice(body) {
        return Some(message);
    }
    let text = std::str::from_utf8(body).ok()?.trim();
    (!text.is_empty() && text.len() <= 512 && !text.contains(char::is_control)).then(|| text.to_owned())
}

/// A reader of the lines of a watch.
#[derive(Debug)]
pub struct Lines {
    body: Incoming,
    arrived: LineBuffer,
    limit: usize,
}

impl Lines {
    /// Creates a reader of lines of at most `limit` bytes.
    pub fn new(body: Incoming, limit: usize) -> Self {
        Self { body, arrived: LineBuffer::default(), limit }
    }

    /// Reads the next non-empty line, without its line end. `None` if the server ended the watch. Drops an incomplete
    /// last line.
    pub async fn next(&mut self) -> Result<Option<BytesMut>, ApiError> {
        loop {
            if let Some(line) = self.arrived.take_line() {
                return Ok(Some(line));
            }
            if self.arrived.searched > self.limit {
                return Err(ApiError::TooLarge { limit: self.limit });
            }
            match chunk(&mut self.body).await? {
                Some(data) => self.arrived.push(&data),
                None => return Ok(None),
            }
        }
    }
}

/// Splits incoming bytes into lines.
#[derive(Debug, Default)]
pub struct LineBuffer {
    bytes: BytesMut,
    /// The number of leading bytes that contain no line end.
    searched: usize,
}

impl LineBuffer {
    /// Adds the next piece of the body.
    pub fn push(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// Removes and returns the next complete, non-empty line, without its line end.
    pub fn take_line(&mut self) -> Option<BytesMut> {
        loop {
            let mut unsearched = self.bytes.get(self.searched..).unwrap_or_default();
            // Reading from memory cannot fail.
            self.searched += unsearched.skip_until(b'\n').unwrap_or(0);
            if !self.bytes.get(..self.searched).is_some_and(|searched| searched.ends_with(b"\n")) {
                return None;
            }
            let mut line = self.bytes.split_to(std::mem::take(&mut self.searched));
            line.truncate(line.len() - 1);
            if !line.trim_ascii().is_empty() {
                return Some(line);
            }
        }
    }
}
