//! Parses a quantity by the rules of `resource.ParseQuantity`, with its error texts. Digits may be missing before or
//! after the dot. With most suffixes, both may be missing (`Mi` is 0, but `Pi` is an error).

use std::str::FromStr;

use limits::quantity::BYTES;

use super::{Format, MOST_DIGITS, NANOS_PER_UNIT, ParseQuantityError, Quantity, divide_away_from_zero};

const FORMAT_WRONG: ParseQuantityError = ParseQuantityError(
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
);
/// Kubernetes accepts longer texts. No system prints an amount with as many digits.
const TOO_LONG: ParseQuantityError = ParseQuantityError("quantities must have at most 4096 bytes");
const SUFFIX: ParseQuantityError = ParseQuantityError("unable to parse quantity's suffix");
const NUMERIC: ParseQuantityError = ParseQuantityError("unable to parse numeric part of quantity");

/// The number of significant digits of an amount with a decimal suffix.
const SIGNIFICANT_DIGITS: usize = 29;

/// The largest amount with a binary suffix: 2⁶³ − 1 units. Amounts with a decimal suffix are not limited.
const LARGEST_BINARY: i128 = i64::MAX as i128 * NANOS_PER_UNIT;

/// The parts of a quantity as text.
struct Parts<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    suffix: &'a str,
}

/// The factor of a suffix.
#[derive(Clone, Copy)]
enum Scale {
    /// The exponent of ten.
    Decimal(i64, Format),
    /// The exponent of two.
    Binary(u32),
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Err(FORMAT_WRONG);
        }
        if text.len() > BYTES {
            return Err(TOO_LONG);
        }
        let parts = cut(text)?;
        let scale = interpret(parts.suffix).ok_or(SUFFIX)?;
        let ((nanos, zeros), format, decimals) = match scale {
            Scale::Decimal(exponent, format) => {
                let small = small_amount(&parts, exponent, 1).map(|nanos| (nanos, 0));
                let amount = small.unwrap_or_else(|| decimal_amount(&parts, exponent));
                (amount, format, decimals(&parts, exponent))
            }
            Scale::Binary(power) => {
                let small = small_amount(&parts, 0, 1 << power);
                let nanos = small.unwrap_or_else(|| binary_amount(&parts, 1 << power)).min(LARGEST_BINARY);
                let below_one = nanos > 0 && nanos < NANOS_PER_UNIT;
                let format = if below_one { Format::DecimalSi } else { Format::BinarySi };
                ((nanos, 0), format, if parts.fraction.is_empty() { 0 } else { 9 })
            }
        };
        if parts.whole.is_empty() && parts.fraction.is_empty() && !digits_may_be_missing(scale) {
            return Err(NUMERIC);
        }
        Ok(Self { nanos: if parts.negative { -nanos } else { nanos }, zeros, format, decimals })
    }
}

/// Splits a text into an optional sign, digits with an optional dot, and a suffix: letters, an optional sign, and
/// digits.
fn cut(text: &str) -> Result<Parts<'_>, ParseQuantityError> {
    let (negative, rest) = match text.as_bytes() {
        [b'-', ..] => (true, text.get(1..)),
        [b'+', ..] => (false, text.get(1..)),
        _ => (false, Some(text)),
    };
    let (whole, rest) = split_while(rest.unwrap_or_default(), |byte| byte.is_ascii_digit());
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => split_while(rest, |byte| byte.is_ascii_digit()),
        None => ("", rest),
    };
    let (_, rest) = split_while(suffix, |byte| b"eEinumkKMGTP".contains(&byte));
    let (_, rest) = split_while(rest.strip_prefix(['-', '+']).unwrap_or(rest), |byte| byte.is_ascii_digit());
    if !rest.is_empty() {
        return Err(FORMAT_WRONG);
    }
    Ok(Parts { negative, whole: whole.as_bytes(), fraction: fraction.as_bytes(), suffix })
}

/// Splits after the leading bytes that satisfy `condition`, which must accept only ASCII.
fn split_while(text: &str, condition: impl Fn(u8) -> bool) -> (&str, &str) {
    let end = text.bytes().position(|byte| !condition(byte)).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

fn interpret(suffix: &str) -> Option<Scale> {
    let decimal = |exponent| Some(Scale::Decimal(exponent, Format::DecimalSi));
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => Some(Scale::Binary(10)),
        "Mi" => Some(Scale::Binary(20)),
        "Gi" => Some(Scale::Binary(30)),
        "Ti" => Some(Scale::Binary(40)),
        "Pi" => Some(Scale::Binary(50)),
        "Ei" => Some(Scale::Binary(60)),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            Some(Scale::Decimal(exponent, Format::DecimalExponent))
        }
    }
}

/// Whether all digits may be missing. Go reads missing digits as 0 only if it does not use an `inf.Dec`.
fn digits_may_be_missing(scale: Scale) -> bool {
    match scale {
        Scale::Decimal(exponent, _) => exponent >= -9,
        Scale::Binary(power) => power <= 40,
    }
}

/// The number of decimal places after the exponent is applied, or nine if Go uses an `inf.Dec`.
fn decimals(parts: &Parts<'_>, exponent: i64) -> u8 {
    if parts.whole.len() + parts.fraction.len() > 18 {
        return 9;
    }
    let places = parts.fraction.iter().fold(exponent.saturating_neg(), |places, _| places.saturating_add(1));
    u8::try_from(places.clamp(0, 9)).unwrap_or(9)
}

/// Computes the digits times 10 to the power of `exponent`, times `factor`, in nano-units. `None` if there are more than
/// 18 digits or any of them is below a nano-unit, and on overflow.
fn small_amount(parts: &Parts<'_>, exponent: i64, factor: u64) -> Option<i128> {
    let count = parts.whole.len() + parts.fraction.len();
    if count > 18 {
        return None;
    }
    let digits = parts.whole.iter().chain(parts.fraction);
    let number = digits.fold(0_i64, |number, digit| number * 10 + i64::from(digit & 0x0f));
    let places = exponent.checked_add(9)?.checked_sub(i64::try_from(parts.fraction.len()).ok()?)?;
    let power = u32::try_from(places).ok().and_then(|places| 10_i64.checked_pow(places))?;
    i128::from(number).checked_mul(i128::from(power))?.checked_mul(i128::from(factor))
}

/// Computes the digits times 10 to the power of `exponent`, in nano-units and a number of further zeros. Rounds up to 29
/// significant digits, and then up to nano-units.
fn decimal_amount(parts: &Parts<'_>, exponent: i64) -> (i128, u32) {
    let digits = || parts.whole.iter().chain(parts.fraction).map(|digit| i128::from(digit & 0x0f));
    let leading_zeros = digits().take_while(|&digit| digit == 0).count();
    let mut significant = digits().skip(leading_zeros);
    let mut number =
        significant.by_ref().take(SIGNIFICANT_DIGITS).fold(0, |number, digit| number * 10 + digit);
    let (mut dropped, mut inexact) = (0_i64, false);
    for digit in significant {
        dropped += 1;
        inexact |= digit != 0;
    }
    number += i128::from(inexact);
    let fraction = i64::try_from(parts.fraction.len()).unwrap_or(i64::MAX);
    let places = exponent.saturating_add(9).saturating_add(dropped).saturating_sub(fraction);
    if number == 0 {
        return (0, 0);
    }
    if places < 0 {
        let divisor =
            u32::try_from(places.unsigned_abs()).ok().and_then(|places| 10_i128.checked_pow(places));
        // Every number has fewer digits than a divisor that overflows, and rounds up to one nano-unit.
        return (divisor.map_or(1, |divisor| divide_away_from_zero(number, divisor)), 0);
    }
    let power = u32::try_from(places).ok().and_then(|places| 10_i128.checked_pow(places));
    if let Some(nanos) = power.and_then(|power| number.checked_mul(power)) {
        return (nanos, 0);
    }
    let missing = MOST_DIGITS - 1 - number.ilog10();
    let zeros = u32::try_from(places - i64::from(missing)).unwrap_or(u32::MAX);
    (number * 10_i128.pow(missing), zeros)
}

/// Computes the digits times `factor` in nano-units, exact for any number of digits. Rounds up, and returns `i128::MAX`
/// on overflow.
///
/// Digits before the point are summed from the left. Digits after the point are summed from the right, with a division
/// by ten at each step, and a flag records lost remainders.
fn binary_amount(parts: &Parts<'_>, factor: u64) -> i128 {
    let unit = NANOS_PER_UNIT * i128::from(factor);
    let value = |digit: &u8| i128::from(digit & 0x0f);
    let mut whole = Some(0_i128);
    for digit in parts.whole.iter().map(value) {
        whole = whole.and_then(|whole| whole.checked_mul(10)?.checked_add(digit));
    }
    let (mut fraction, mut cut_off) = (0, false);
    for digit in parts.fraction.iter().rev().map(value) {
        let sum = digit * unit + fraction;
        cut_off |= sum % 10 != 0;
        fraction = sum / 10;
    }
    whole
        .and_then(|whole| whole.checked_mul(unit)?.checked_add(fraction + i128::from(cut_off)))
        .unwrap_or(i128::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(text: &str) -> i128 {
        text.parse::<Quantity>().unwrap().nanos()
    }

    fn error(text: &str) -> &'static str {
        text.parse::<Quantity>().unwrap_err().0
    }

    #[test]
    fn fractions_of_a_nano_unit_round_up() {
        assert_eq!(nanos("1e-30"), 1);
        assert_eq!(nanos("-1e-30"), -1);
        assert_eq!(nanos("1e-9223372036854775808"), 1);
        assert_eq!(nanos(&format!("1.{}1", "0".repeat(500))), 1_000_000_001);
        assert_eq!(nanos(&format!("1{}e-400", "0".repeat(400))), 1_000_000_000);
        assert_eq!(nanos(&format!("1.{}Ki", "0".repeat(500))), 1_024_000_000_000);
        assert_eq!(nanos(&format!("0.{}1Ki", "0".repeat(500))), 1);
    }

    #[test]
    fn fast_path_equals_the_general_paths() {
        let digits: &[&[u8]] =
            &[b"", b"0", b"7", b"05", b"120", b"999999999", b"000000001", b"123456789012345678"];
        for (whole, fraction) in digits.iter().flat_map(|whole| digits.iter().map(move |part| (whole, part)))
        {
            let parts = Parts { negative: false, whole, fraction, suffix: "" };
            for exponent in [-9, -6, -3, 0, 3, 18, 30] {
                if let Some(amount) = small_amount(&parts, exponent, 1) {
                    assert_eq!((amount, 0), decimal_amount(&parts, exponent));
                }
            }
            for factor in [1 << 10, 1 << 40, 1 << 60] {
                if let Some(amount) = small_amount(&parts, 0, factor) {
                    assert_eq!(amount, binary_amount(&parts, factor));
                }
            }
        }
    }

    #[test]
    fn amounts_that_are_too_large_saturate() {
        assert_eq!(nanos("1e9223372036854775807"), i128::MAX);
        assert_eq!(nanos("0e9223372036854775807"), 0);
        assert_eq!(nanos(&"9".repeat(500)), i128::MAX);
        assert_eq!(nanos(&format!("{}1", "0".repeat(500))), NANOS_PER_UNIT);
        assert_eq!(nanos("100Ei"), LARGEST_BINARY);
        assert_eq!(nanos("-100Ei"), -LARGEST_BINARY);
    }

    #[test]
    fn amounts_keep_29_significant_digits() {
        let printed = |text: &str| text.parse::<Quantity>().unwrap().to_string();
        let digits = "12345678901234567890123456789";
        assert_eq!(printed(digits), digits);
        assert_eq!(printed(&format!("{digits}0")), format!("{digits}0"));
        assert_eq!(printed(&format!("-{digits}01")), "-1234567890123456789012345679k");
        assert_eq!(printed(&format!("{digits}E")), format!("{digits}E"));
        assert_eq!(printed(&format!("0.0{digits}1E")), "12345678901234567890123457n");
        assert_eq!(printed("123456789012345678901.1234567891"), "123456789012345678901123456790n");
        assert_eq!(printed(&"9".repeat(30)), "1e30");
        assert_eq!(printed(&"9".repeat(500)), "100e498");
        assert_eq!(printed("1.00000000000000000000000000001"), "1000000001n");
        assert_eq!(printed("1000000000000000000000000000000000000000n"), "1e30");
    }

    #[test]
    fn missing_digits_are_zero_where_go_accepts_them() {
        for text in ["+", "-", ".", "Mi", "+Ti", "n", "-.k", "e3"] {
            assert_eq!(nanos(text), 0, "{text}");
        }
        for text in ["Pi", "Ei", "-.Ei", "e-10"] {
            assert_eq!(error(text), NUMERIC.0, "{text}");
        }
    }

    #[test]
    fn length_is_bounded() {
        assert_eq!(nanos(&"0".repeat(BYTES)), 0);
        assert_eq!(error(&"0".repeat(BYTES + 1)), TOO_LONG.0);
        assert!(TOO_LONG.0.contains(&BYTES.to_string()));
    }

    #[test]
    fn text_with_an_unknown_letter_is_not_a_quantity() {
        assert_eq!(error("1x"), FORMAT_WRONG.0);
        assert_eq!(error("1 Mi"), FORMAT_WRONG.0);
        assert_eq!(error("1µ"), FORMAT_WRONG.0);
        assert_eq!(error("1mm"), SUFFIX.0);
        assert_eq!(error("1e99999999999999999999"), SUFFIX.0);
    }
}
