//! The response of the leader to a standby. The encoded form of a decoded response is not longer than the input. It
//! decodes and encodes to the same bytes. It is invalid without its last byte, and with an additional byte.

#![no_main]

mod plant;

use controller::history::replica::again;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(mut written) = again(bytes) else { return };
    if plant::planted("replica") && bytes.len() > 60 {
        written.push(0);
    }
    assert!(written.len() <= bytes.len());
    assert_eq!(again(&written).as_ref(), Some(&written));
    assert!(again(&written[..written.len() - 1]).is_none());
    written.push(0);
    assert!(again(&written).is_none());
});
