//! Parses a quantity by the rules of `resource.ParseQuantity`, with its error texts. Digits may be missing before or
//! after the dot. With most suffixes, both may be missing (`Mi` is 0, but `Pi` is an error).

use std::str::FromStr;

use super::{Format, NANOS_PER_UNIT, ParseQuantityError, Quantity};

const FORMAT_WRONG: ParseQuantityError = ParseQuantityError(
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
);
const SUFFIX: ParseQuantityError = ParseQuantityError("unable to parse quantity's suffix");
const NUMERIC: ParseQuantityError = ParseQuantityError("unable to parse numeric part of quantity");

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
        let parts = cut(text)?;
        let scale = interpret(parts.suffix).ok_or(SUFFIX)?;
        let (nanos, format, decimals) = match scale {
            Scale::Decimal(exponent, format) => {
                (amount(&parts, exponent, 1), format, decimals(&parts, exponent))
            }
            Scale::Binary(power) => {
                let nanos = amount(&parts, 0, 1 << power).min(LARGEST_BINARY);
                let below_one = nanos > 0 && nanos < NANOS_PER_UNIT;
                let format = if below_one { Format::DecimalSi } else { Format::BinarySi };
                (nanos, format, if parts.fraction.is_empty() { 0 } else { 9 })
            }
        };
        if parts.whole.is_empty() && parts.fraction.is_empty() && !digits_may_be_missing(scale) {
            return Err(NUMERIC);
        }
        Ok(Self { nanos: if parts.negative { -nanos } else { nanos }, format, decimals })
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

/// Computes the digits times 10 to the power of `exponent`, times `factor`, in nano-units. Rounds up, and returns
/// `i128::MAX` on overflow.
fn amount(parts: &Parts<'_>, exponent: i64, factor: u64) -> i128 {
    small_amount(parts, exponent, factor).unwrap_or_else(|| large_amount(parts, exponent, factor))
}

/// The fast path of [`amount`] for at most 18 digits, none of them below a nano-unit. `None` for other amounts and on
/// overflow.
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

/// The general path of [`amount`], exact for any number of digits.
///
/// The exponent moves the decimal point. Digits before the point are summed from the left. Digits after the point are
/// summed from the right, with a division by ten at each step, and a flag records lost remainders.
fn large_amount(parts: &Parts<'_>, exponent: i64, factor: u64) -> i128 {
    let unit = NANOS_PER_UNIT * i128::from(factor);
    let digits = || parts.whole.iter().chain(parts.fraction).map(|digit| i128::from(digit & 0x0f));
    let count = parts.whole.len() + parts.fraction.len();
    let leading_zeros = digits().take_while(|&digit| digit == 0).count();
    if leading_zeros == count {
        return 0;
    }
    let whole_len = i64::try_from(parts.whole.len()).unwrap_or(i64::MAX);
    let point = whole_len.saturating_add(exponent);

    let mut whole: i128 = 0;
    if let Ok(point) = usize::try_from(point) {
        // A number with more than 40 digits exceeds an i128.
        if point.saturating_sub(leading_zeros) > 40 {
            return i128::MAX;
        }
        for digit in digits().chain(std::iter::repeat(0)).take(point) {
            let Some(next) = whole.checked_mul(10).and_then(|tenfold| tenfold.checked_add(digit)) else {
                return i128::MAX;
            };
            whole = next;
        }
    }

    let mut fraction: i128 = 0;
    let mut cut_off = false;
    let mut shift = |digit: i128| {
        let sum = digit * unit + fraction;
        cut_off |= sum % 10 != 0;
        fraction = sum / 10;
        fraction
    };
    let digits_after_point = count.saturating_sub(usize::try_from(point).unwrap_or(0));
    for digit in parts.fraction.iter().rev().chain(parts.whole.iter().rev()).take(digits_after_point) {
        shift(i128::from(digit & 0x0f));
    }
    // Shifts in the zeros between the point and the first digit.
    for _ in point..0 {
        if shift(0) == 0 {
            break;
        }
    }

    whole
        .checked_mul(unit)
        .and_then(|nanos| nanos.checked_add(fraction + i128::from(cut_off)))
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
    fn fast_path_equals_the_general_path() {
        let digits: &[&[u8]] =
            &[b"", b"0", b"7", b"05", b"120", b"999999999", b"000000001", b"123456789012345678"];
        for (whole, fraction) in digits.iter().flat_map(|whole| digits.iter().map(move |part| (whole, part)))
        {
            let parts = Parts { negative: false, whole, fraction, suffix: "" };
            for exponent in [-9, -6, -3, 0, 3, 18, 30] {
                for factor in [1, 1 << 10, 1 << 40, 1 << 60] {
                    if let Some(amount) = small_amount(&parts, exponent, factor) {
                        assert_eq!(amount, large_amount(&parts, exponent, factor));
                    }
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
    fn missing_digits_are_zero_where_go_accepts_them() {
        for text in ["+", "-", ".", "Mi", "+Ti", "n", "-.k", "e3"] {
            assert_eq!(nanos(text), 0, "{text}");
        }
        for text in ["Pi", "Ei", "-.Ei", "e-10"] {
            assert_eq!(error(text), NUMERIC.0, "{text}");
        }
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
