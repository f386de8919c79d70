//! Binary encodings in the format of postcard: numbers are varints, and fields have no names.

use serde::{Deserialize, Serialize};

/// Appends the encoding of a value to `to`.
pub(crate) fn append<T: Serialize>(value: &T, to: Vec<u8>) -> Vec<u8> {
    // Fails only for a sequence of unknown length, which no encoded type contains.
    postcard::to_extend(value, to).unwrap_or_default()
}

/// Decodes a value from the start of `bytes`. Returns the value and the remaining bytes. The size of the input bounds
/// the memory, because a sequence reserves at most 1 MiB before its elements are read.
pub(crate) fn take<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<(T, &'a [u8]), postcard::Error> {
    postcard::take_from_bytes(bytes)
}
