//! Quantities. Parsing, printing, order, rounding and sums are compared with exact arithmetic.
//!
//! The input is a text, optionally followed by a blank and a second text.

#![no_main]

mod cost;
mod plant;

use autoscaling::quantity::{Format, Quantity};
use libfuzzer_sys::fuzz_target;
use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive, Zero};

const NANOS: u64 = 1_000_000_000;

fuzz_target!(|text: &str| cost::bounded(|| {
    let (first, second) = text.split_once(' ').unwrap_or((text, "1"));
    let (Some(a), Some(b)) = (check(first), check(second)) else { return };
    let larger = |quantity: &Quantity| quantity.nanos().abs() == i128::MAX;
    if !(larger(&a) && larger(&b)) {
        assert_eq!(a.cmp(&b), a.nanos().cmp(&b.nanos()));
        assert_eq!(a == b, a.nanos() == b.nanos());
    }

    let mut sum = a.saturating_add(b);
    if plant::planted("quantity") && sum.nanos() > i128::from(u64::MAX) * 4_000_000_000 {
        sum = Quantity::from_nanos(a.nanos().wrapping_add(b.nanos() / 2), sum.format());
    }
    let exact = BigInt::from(a.nanos()) + BigInt::from(b.nanos());
    assert_eq!(BigInt::from(sum.nanos()), saturate(&exact), "{a} + {b}");
    assert_eq!(sum, b.saturating_add(a));
    assert_eq!(sum.format(), if a.is_zero() { b.format() } else { a.format() });
    if a <= b {
        assert!(a.value() <= b.value() && a.milli_value() <= b.milli_value());
    }
}));

/// Parses a text and compares every conversion with exact arithmetic.
fn check(text: &str) -> Option<Quantity> {
    let read = text.parse::<Quantity>();
    let json = serde_json::to_string(text).unwrap();
    if text.trim() == text {
        let from_json = serde_json::from_str::<Quantity>(&json);
        assert_eq!(from_json.ok(), read.clone().ok(), "as JSON: {text:?}");
    }
    let quantity = read.ok()?;
    assert_eq!(BigInt::from(quantity.nanos()), exact(text), "{text:?}");
    let nanos = BigInt::from(quantity.nanos());
    assert_eq!(BigInt::from(quantity.value()), clamp(&round_away_from_zero(&nanos, NANOS)), "{text:?}");
    assert_eq!(
        BigInt::from(quantity.milli_value()),
        clamp(&round_away_from_zero(&nanos, 1_000_000)),
        "{text:?}"
    );

    let float = quantity.as_f64();
    let wanted = nanos.to_f64().unwrap() / 1e9;
    if quantity.nanos().abs() < i128::MAX {
        assert!((float - wanted).abs() <= wanted.abs() * 1e-14, "{text:?}: {float:e}, expected {wanted:e}");
    }

    let printed = quantity.to_string();
    let again: Quantity = printed.parse().unwrap_or_else(|error| panic!("{text:?} as {printed:?}: {error}"));
    assert_eq!(again, quantity, "{text:?} as {printed:?}");
    // Binary quantities are excluded: without a binary suffix, their text parses as decimal.
    if quantity.format() != Format::BinarySi {
        assert_eq!(again.to_string(), printed);
        assert!(again.format() == quantity.format() || !printed.contains(['E', 'i']), "{text:?}");
    }
    assert!(printed.len() <= 44, "{printed:?}");
    Some(quantity)
}

/// Parses a valid text with arbitrary precision. Returns the value in nano-units.
fn exact(text: &str) -> BigInt {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mut digits = format!("0{whole}{fraction}").parse::<BigInt>().unwrap();
    let binary = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|unit| *unit == suffix);
    let decimal = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"].iter().position(|unit| *unit == suffix);
    let (power_of_two, exponent) = match (binary, decimal) {
        (_, Some(at)) => (0, 3 * (i64::try_from(at).unwrap() - 3)),
        (Some(at), None) => (10 * at, 0),
        (None, None) => (0, suffix[1..].parse().unwrap()),
    };
    if power_of_two == 0 {
        let dropped = digits.to_string().len().saturating_sub(29);
        let unit = BigInt::from(10).pow(u32::try_from(dropped).unwrap());
        digits = (digits + &unit - 1) / &unit * unit;
    }
    // An exponent beyond these limits gives the same saturated result.
    let length = i64::try_from(text.len()).unwrap();
    let places = exponent.clamp(-100 - length, 100 + length) - i64::try_from(fraction.len()).unwrap() + 9;
    let scaled = digits << power_of_two;
    let power = BigInt::from(10).pow(u32::try_from(places.unsigned_abs()).unwrap());
    let nanos = if places >= 0 { scaled * power } else { (scaled + &power - 1) / power };
    let bound = BigInt::from(i64::MAX) * NANOS;
    let nanos = saturate(&if power_of_two > 0 { nanos.min(bound) } else { nanos });
    if text.starts_with('-') { -nanos } else { nanos }
}

fn saturate(nanos: &BigInt) -> BigInt {
    nanos.clone().clamp(BigInt::from(i128::MIN), BigInt::from(i128::MAX))
}

fn clamp(wide: &BigInt) -> BigInt {
    wide.clone().clamp(BigInt::from(i64::MIN), BigInt::from(i64::MAX))
}

fn round_away_from_zero(nanos: &BigInt, by: u64) -> BigInt {
    let magnitude: BigInt = (nanos.abs() + (by - 1)) / by;
    if nanos.is_negative() && !magnitude.is_zero() { -magnitude } else { magnitude }
}
