//! Answers read with bounds: whole ones up to a limit, watches line by line.

use std::io::BufRead as _;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::error::ApiError;

/// The next piece of an answer.
pub(super) async fn chunk(body: &mut Incoming) -> Result<Option<Bytes>, ApiError> {
    while let Some(frame) = body.frame().await {
        match frame.map_err(|error| ApiError::from_body(&error))?.into_data() {
            Ok(data) if !data.is_empty() => return Ok(Some(data)),
            // An empty piece, or trailers, which nothing here uses.
            _ => {}
        }
    }
    Ok(None)
}

/// The whole answer, which may have at most `limit` bytes.
pub(super) async fn collect(mut body: Incoming, limit: usize) -> Result<Bytes, ApiError> {
    let mut whole = BytesMut::new();
    while let Some(data) = chunk(&mut body).await? {
        if whole.len() + data.len() > limit {
            return Err(ApiError::TooLarge { limit });
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

/// The first bytes of an error answer; what fails on the way ends it.
pub(super) async fn beginning(mut body: Incoming, limit: usize) -> Bytes {
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

/// The text of a short answer, or the message of a Status.
pub(super) fn said(body: &[u8]) -> Option<String> {
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

/// The lines of a watch.
#[derive(Debug)]
pub(super) struct Lines {
    body: Incoming,
    arrived: LineBuffer,
    limit: usize,
}

impl Lines {
    /// Lines of at most `limit` bytes.
    pub(super) fn new(body: Incoming, limit: usize) -> Self {
        Self { body, arrived: LineBuffer::default(), limit }
    }

    /// The next line that is not empty, without its end. `None`: the server ended the watch. A last line that breaks
    /// off is dropped, as the connection has ended anyway.
    pub(super) async fn next(&mut self) -> Result<Option<BytesMut>, ApiError> {
        loop {
            if let Some(line) = self.arrived.next() {
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

/// Bytes as they arrive, cut into lines.
#[derive(Debug, Default)]
pub(super) struct LineBuffer {
    bytes: BytesMut,
    /// How many of the bytes are known to hold no line end.
    searched: usize,
}

impl LineBuffer {
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// The next line that is complete and not empty, without its end.
    pub(super) fn next(&mut self) -> Option<BytesMut> {
        loop {
            let mut unsearched = self.bytes.get(self.searched..).unwrap_or_default();
            // From memory nothing can fail.
            self.searched += unsearched.skip_until(b'\n').unwrap_or(0);
            if !self.bytes.get(..self.searched).is_some_and(|seen| seen.ends_with(b"\n")) {
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
