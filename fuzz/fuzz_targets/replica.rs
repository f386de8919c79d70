//! What a leader answers a standby: read, it is written again as the same, and nothing follows it.

#![no_main]

mod plant;

use concertina::history::replica::again;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut written) = again(bytes) else { return };
    if plant::planted("replica") && bytes.len() > 60 {
        written.push(0);
    }
    assert!(written.len() <= bytes.len());
    assert_eq!(again(&written).as_ref(), Ok(&written));
    // Nothing that is cut off is taken for the whole.
    assert!(again(&written[..written.len() - 1]).is_err());
    written.push(0);
    assert!(again(&written).is_err());
});
