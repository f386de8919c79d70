//! A leader's response to a standby. A decoded response encodes to at most as many bytes. These bytes decode, and
//! encode to the same bytes again. They are refused without their last byte, and with a further byte.

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
