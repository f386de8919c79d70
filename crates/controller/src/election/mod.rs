//! Leader election on a Lease, by client-go's rules.
//!
//! `machine` decides without I/O. `candidate` reads, writes and waits. The leader may write until its renew
//! deadline and not longer: with each renewal the candidate extends the deadline of the [write
//! gate](cluster::gate). The leader's own clock therefore stops a suspended process, or a process with a
//! renewal that hangs, before another candidate can acquire the Lease.
//!
//! A candidate on a thread of its own also stops if the other threads hang ([`Heartbeat`]), because another
//! replica can then do their work.

mod candidate;
mod heartbeat;
pub mod leases;
pub mod machine;
mod peer;
pub mod record;
mod state;
mod timing;

pub use self::candidate::{Candidate, Parts};
pub use self::heartbeat::Heartbeat;
pub use self::peer::Peer;
pub use self::state::{CandidateExit, Holder, LeaderState, LeaseLife, LostReason};
pub use self::timing::{Timing, TimingError};
use cluster::platform;

/// Creates a unique name for this process in client-go's form: the host name, which in a pod is the pod's
/// name, and a random part.
///
/// # Errors
///
/// The system has no random numbers, so two processes of one host could have the same name.
pub fn identity() -> Result<String, IdentityError> {
    let host = platform::host_name().unwrap_or_else(|| "unknown".to_owned());
    Ok(format!("{host}_{}", random_uuid()?))
}

/// The system provides no random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("failed to create a unique identity for leader election: the system provides no random numbers")]
pub struct IdentityError;

/// Creates a version 4 UUID.
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
    fn identity_is_a_host_name_and_a_random_uuid() {
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
