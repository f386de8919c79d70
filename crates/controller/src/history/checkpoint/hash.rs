//! 64-bit FNV-1a: assigns HPAs to shards and protects their bytes.
//!
//! Implemented here because both uses are part of the format, while the hash of the standard library may
//! change.

const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// Hashes the given bytes.
pub(super) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(OFFSET_BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

/// Returns the shard of an HPA, out of `shards`. The halves of the hash are folded, because its lowest bits
/// alone are only a parity.
pub(super) fn shard_of(uid: &str, shards: usize) -> usize {
    let hash = fnv1a(uid.as_bytes());
    let shards = u64::try_from(shards).unwrap_or(u64::MAX).max(1);
    usize::try_from((hash ^ (hash >> 32)) % shards).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors come from draft-eastlake-fnv.
    #[test]
    fn hash_matches_the_published_vectors() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn hpas_spread_evenly_and_move_only_to_new_shards() {
        let uids: Vec<_> = (0..8000_u32)
            .map(|n| format!("{n:08x}-0000-4000-8000-{:012x}", n.wrapping_mul(0x9e37_79b9)))
            .collect();
        let mut counts = [0_usize; 8];
        for uid in &uids {
            let (eighth, fourth) = (shard_of(uid, 8), shard_of(uid, 4));
            counts[eighth] += 1;
            assert!(eighth == fourth || eighth == fourth + 4);
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}
