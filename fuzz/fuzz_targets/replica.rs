//! A leader's response to a standby. The response encodes to the same bytes after decoding, and trailing
//! bytes are refused.

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
    // A truncated response is not accepted as a whole one.
    assert!(again(&written[..written.len() - 1]).is_none());
    written.push(0);
    assert!(again(&written).is_none());
});
