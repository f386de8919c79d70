//! Go durations. The results are compared with a second parser that uses integers.

#![no_main]

mod plant;

use autoscaling::duration::{DurationError, GoDuration};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match text.parse::<GoDuration>() {
        Ok(duration) => {
            accepted(text, duration);
        }
        Err(error) => refused(text, &error),
    }
    // The bytes of an input of eight bytes are also a duration.
    if let Ok(bytes) = <[u8; 8]>::try_from(text.as_bytes()) {
        printed(GoDuration(i64::from_le_bytes(bytes)));
    }
});

fn accepted(text: &str, duration: GoDuration) {
    printed(duration);
    let (low, high) = bounds(text).unwrap_or_else(|| panic!("accepted {text:?}, which is not a duration"));
    let nanos = i128::from(duration.0.unsigned_abs());
    // Go computes fractions in float64 and truncates, so each fraction may be one nanosecond below the exact value.
    assert!(low <= nanos && nanos <= high, "{text:?}: {low} <= {nanos} <= {high}");
    assert!(duration.0 >= 0 || text.starts_with('-'), "{text:?}");
    assert_eq!(duration.unsigned().is_some(), duration.0 >= 0);
    if let Some(opposite) = text.strip_prefix('-') {
        match opposite.parse::<GoDuration>() {
            Ok(positive) => assert_eq!(Some(duration.0), positive.0.checked_neg()),
            Err(_) => assert!(duration.0 == i64::MIN || opposite.starts_with(['+', '-']), "{text:?}"),
        }
    }
}

fn refused(text: &str, error: &DurationError) {
    let message = error.to_string();
    assert!(message.starts_with("time: ") && message.is_ascii(), "{message}");
    if let Some((_, high)) = bounds(text) {
        assert!(high > i128::from(i64::MAX), "refused the duration {text:?}: {error}");
    }
}

/// Checks that the text of a duration parses to the same duration.
fn printed(duration: GoDuration) {
    let mut text = duration.to_string();
    if plant::planted("duration") && duration.0 % 60_000_000_000 == 0 && duration.0 > 3_600_000_000_000 {
        text.truncate(text.len() - "m0s".len());
    }
    assert_eq!(text.parse(), Ok(duration), "{text:?}");
    assert!(text.len() <= "-2562047h47m16.854775808s".len() + 1, "{text:?}");
    assert!(!text.contains(".0s") && text.matches(['.']).count() <= 1, "{text:?}");
}

/// Returns the bounds of the magnitude of a duration in nanoseconds, without a limit of the size. Returns `None` if the
/// text is not a duration.
fn bounds(text: &str) -> Option<(i128, i128)> {
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Some((0, 0));
    }
    let (mut low, mut high) = (0_i128, 0_i128);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (digits, after) = rest.split_at(number);
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        rest = after;
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let whole = whole.trim_start_matches('0');
        let whole: i128 = match whole.len() {
            0 => 0,
            1..=20 => whole.parse().unwrap(),
            _ => i128::from(u64::MAX),
        };
        // The digits after the eighteenth are less than one nanosecond, even in hours.
        let cut = fraction.get(..18).unwrap_or(fraction);
        let scale = 10_i128.pow(u32::try_from(cut.len()).unwrap());
        let part = cut.parse::<i128>().unwrap_or(0) * unit / scale;
        low += whole * unit + (part - 1).max(0);
        high += whole * unit + part + 1;
    }
    Some((low, high))
}
