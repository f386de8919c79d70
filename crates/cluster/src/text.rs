//! Limits of texts from a server.

/// Maximum size of an error text from a server, in bytes. The text becomes part of conditions and events. Go's client
/// has no limit. The texts of regular servers are far shorter.
pub(crate) const MAX_MESSAGE: usize = 16 << 10;

/// Truncates an external text to `limit` bytes, at a character boundary.
pub(crate) fn cut(mut text: String, limit: usize) -> String {
    text.truncate(text.floor_char_boundary(limit));
    text
}
