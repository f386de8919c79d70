//! How one replica reaches another: where a process is found, by which certificate it is known, and how it is asked.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};

use crate::serve::Endpoints;

/// Where a replica serves, and the certificate that it shows there. The leader's is told by the Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its secure port, at an address that the others can reach.
    pub address: SocketAddr,
    /// Whoever shows another certificate there is not meant.
    pub certificate: Fingerprint,
}

/// The SHA-256 of a certificate, as `sha256:` and hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; SHA256_OUTPUT_LEN]);

/// What a process serves, for those who make it reachable.
pub struct Served {
    /// Its pages.
    pub endpoints: Endpoints,
    /// Where they are served by HTTPS, if they are.
    pub address: Option<SocketAddr>,
    /// The certificate that is shown there to a client that names no host. It may change.
    pub certificate: Arc<dyn Fn() -> Option<Fingerprint> + Send + Sync>,
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Connects replicas with each other. One process has one.
pub trait Link: fmt::Debug + Send + Sync + 'static {
    /// Takes note of what this process serves. Called once, before it stands for election.
    fn serves(&self, served: Served);

    /// Where the other replicas find this process now; `None` if nowhere. Asked whenever the Lease is written.
    fn here(&self) -> Option<Peer>;

    /// A GET of a path, with its query, by this process's own credentials. Whoever asks bounds the time.
    fn ask<'a>(&'a self, peer: &'a Peer, path: &'a str) -> BoxFuture<'a, Result<Bytes, LinkError>>;
}

/// Why a replica cannot be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// Nobody is there, or the connection broke.
    #[error("{peer} cannot be reached: {reason}; the replicas must reach each other's secure ports")]
    Unreachable {
        /// Who was asked.
        peer: SocketAddr,
        /// What happened.
        reason: String,
    },
    /// Somebody else is there.
    #[error("{peer} shows another certificate ({shown}) than the Lease names ({pinned})")]
    Certificate {
        /// Who was asked.
        peer: SocketAddr,
        /// What was shown.
        shown: Fingerprint,
        /// What the Lease names.
        pinned: Fingerprint,
    },
    /// It was answered with an error.
    #[error("{peer} answers {code}: {message}")]
    Refused {
        /// Who was asked.
        peer: SocketAddr,
        /// The HTTP status.
        code: u16,
        /// What it says.
        message: String,
    },
    /// There is nothing to show to a replica, or it cannot be used.
    #[error("this replica cannot show who it is: {0}")]
    Credentials(String),
    /// The answer is larger than any should be.
    #[error("{peer} answers with more than {limit} bytes")]
    TooLarge {
        /// Who was asked.
        peer: SocketAddr,
        /// How many would have been read.
        limit: usize,
    },
}

impl Fingerprint {
    /// Of a certificate in DER.
    pub fn of(certificate: &[u8]) -> Self {
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        bytes.copy_from_slice(digest(&SHA256, certificate).as_ref());
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let digits = text.strip_prefix("sha256:").ok_or(FingerprintError)?;
        let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
        if pairs.len() != SHA256_OUTPUT_LEN || !rest.is_empty() {
            return Err(FingerprintError);
        }
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        for (byte, pair) in bytes.iter_mut().zip(pairs) {
            let digit = |at: u8| char::from(at).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            let [high, low] = pair.map(digit);
            *byte = high.ok_or(FingerprintError)? << 4 | low.ok_or(FingerprintError)?;
        }
        Ok(Self(bytes))
    }
}

/// A text is no fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be sha256: and 64 hexadecimal digits")]
pub struct FingerprintError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_as_it_is_written() {
        let fingerprint = Fingerprint::of(b"abc");
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(fingerprint.to_string(), text);
        assert_eq!(text.parse(), Ok(fingerprint));
        assert_eq!(text.to_uppercase().replace("SHA", "sha").parse(), Ok(fingerprint));
        let short = &text[..70];
        for wrong in ["", "sha256:", short, &format!("{text}0"), &text.replace("ba", "bg"), &text[7..]] {
            assert_eq!(wrong.parse::<Fingerprint>(), Err(FingerprintError), "{wrong}");
        }
    }
}
