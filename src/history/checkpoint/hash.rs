//! FNV-1a in 64 bits: which shard an HPA belongs to, and whether bytes are as they were written.
//!
//! Written down here because both are part of the format: the hash of the standard library may change.

const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// The hash of these bytes.
pub(super) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(OFFSET_BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

/// The shard of an HPA, of so many. The halves of the hash are folded: its lowest bits alone are only a parity.
pub(super) fn shard_of(uid: &str, shards: usize) -> usize {
    let hash = fnv1a(uid.as_bytes());
    let shards = u64::try_from(shards).unwrap_or(u64::MAX).max(1);
    usize::try_from((hash ^ (hash >> 32)) % shards).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the draft-eastlake-fnv test vectors.
    #[test]
    fn it_is_the_published_hash() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn hpas_are_spread_evenly_and_stay_where_they_are_or_move_to_a_new_shard_when_the_number_doubles() {
        let uids: Vec<_> = (0..8000_u32)
            .map(|n| format!("{n:08x}-0000-4000-8000-{:012x}", n.wrapping_mul(0x9e37_79b9)))
            .collect();
        let mut counts = [0_usize; 8];
        for uid in &uids {
            let (of_eight, of_four) = (shard_of(uid, 8), shard_of(uid, 4));
            counts[of_eight] += 1;
            assert!(of_eight == of_four || of_eight == of_four + 4);
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}
