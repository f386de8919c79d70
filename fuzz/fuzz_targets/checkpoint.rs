//! Shards of a checkpoint. The bytes are decoded as they are, and with a valid header and checksum. A decoded shard is
//! equal after encoding and decoding.

#![no_main]

mod plant;

use journal::history::checkpoint::Shard;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    let mut sealed = b"CHPA\x02".to_vec();
    sealed.extend_from_slice(bytes);
    let sum = fnv1a(&sealed);
    sealed.extend_from_slice(&sum.to_be_bytes());
    check(&sealed);
});

fn check(bytes: &[u8]) {
    let Ok(shard) = Shard::decode(bytes) else { return };
    let mut written = shard.encode();
    if plant::planted("checkpoint") && shard.entries.len() == 2 {
        written[5] ^= 1;
    }
    assert_eq!(Shard::decode(&written).as_ref(), Ok(&shard));
    assert!(written.len() <= bytes.len());
    assert!(Shard::decode(&written[..written.len() - 1]).is_err());
}

/// Returns the 64-bit FNV-1a checksum.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}
