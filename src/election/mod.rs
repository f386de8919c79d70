//! Who leads: leader election on a Lease, by client-go's rules.
//!
//! `machine` decides and does nothing, `candidate` reads, writes and waits. Whoever leads may write until its renew
//! deadline and not a moment longer: the candidate moves the fence in the [write gate](crate::api::gate) with each
//! renewal, so that a process which slept, or whose renewal hangs, is stopped by its own clock before anybody else can
//! take the Lease.

mod candidate;
pub mod machine;
pub mod record;

pub use self::candidate::{Candidate, End, Holder, Parts, Standing, Timing, TimingError};
use crate::platform;

/// A name for this process that no other has, in the form of client-go's: the host's name, which for a pod is the pod's,
/// and a random part.
///
/// # Errors
/// The system has no random numbers: two processes of one host could not be told apart.
pub fn identity() -> Result<String, IdentityError> {
    let host = platform::host_name().unwrap_or_else(|| "unknown".to_owned());
    Ok(format!("{host}_{}", random_uuid()?))
}

/// The system gives no random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the system gives no random numbers, so this process has no name of its own among the candidates for the Lease"
)]
pub struct IdentityError;

/// A version 4 UUID.
fn random_uuid() -> Result<String, IdentityError> {
    let mut bytes = [0_u8; 16];
    rustls::crypto::ring::default_provider().secure_random.fill(&mut bytes).map_err(|_| IdentityError)?;
    let number = u128::from_be_bytes(bytes) & !(0xf000 << 64 | 0xc000 << 48) | 0x4000 << 64 | 0x8000 << 48;
    let hex = format!("{number:032x}");
    let mut text = String::with_capacity(36);
    for (at, digit) in hex.chars().enumerate() {
        if matches!(at, 8 | 12 | 16 | 20) {
            text.push('-');
        }
        text.push(digit);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_a_host_and_a_uuid_that_differs_each_time() {
        let (one, other) = (identity().unwrap(), identity().unwrap());
        assert_ne!(one, other);
        let (host, uuid) = one.rsplit_once('_').unwrap();
        assert!(!host.is_empty());
        let lengths: Vec<_> = uuid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{uuid}");
        assert_eq!(uuid.as_bytes()[14], b'4');
        assert!(matches!(uuid.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "{uuid}");
    }
}
