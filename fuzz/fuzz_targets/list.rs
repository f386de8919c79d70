//! Lists that are split into items while they arrive. The items are equal for every cut of the bytes, and equal to the
//! items that serde_json reads from the whole body.
//!
//! The input is that of `cuts::parts`.

#![no_main]

mod cuts;
mod once;
mod plant;

use cluster::fuzzing;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|input: &[u8]| {
    let (lengths, bytes) = cuts::parts(input);
    let whole = fuzzing::list(&[bytes]);
    let mut pieces = cuts::cut(bytes, lengths);
    if plant::planted("list") && pieces.len() > 9 {
        pieces.swap(4, 5);
    }
    assert_eq!(fuzzing::list(&pieces), whole);
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(fuzzing::list(&single), whole);

    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return };
    let Some(object) = value.as_object() else { return };
    // The splitter compares keys without unescaping, in contrast to serde_json.
    if bytes.windows(2).any(|part| part == b"\\u") || !once::every_key(bytes) {
        return;
    }
    let Ok(list) = whole else {
        // A field next to the items may have the wrong type.
        return;
    };
    let text_of = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    assert_eq!((list.kind.as_str(), list.api_version.as_str()), (text_of("kind"), text_of("apiVersion")));
    let items = object.get("items").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let read: Result<Vec<Value>, _> = list.items.iter().map(|item| serde_json::from_slice(item)).collect();
    assert_eq!(read.expect("an item of valid JSON must be valid"), items);
});
