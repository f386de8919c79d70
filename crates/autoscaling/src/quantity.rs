//! Exact amounts, as `resource.Quantity` of apimachinery: decimal numbers with at most 29 significant digits that are
//! multiples of a nano-unit.

use std::fmt;
use std::hash::{Hash, Hasher};

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::number::saturate_to_i64;

mod parse;

const NANOS_PER_MILLI: i128 = 1_000_000;
const NANOS_PER_UNIT: i128 = 1_000_000_000;

/// The largest number of digits for which every integer fits into an `i128`.
const MOST_DIGITS: u32 = i128::MAX.ilog10();

/// An exact amount, with its format. Parsed from text with [`str::parse`], by the rules of `resource.ParseQuantity`.
///
/// Equality, order and hash depend only on the value. `Display` also depends on the format, and [`Self::as_f64`] on the
/// number of decimal places.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quantity {
    /// The amount in nano-units, divided by ten to the power of `zeros`.
    nanos: i128,
    /// 0 if an `i128` can hold the amount in nano-units. Otherwise, `nanos` has exactly [`MOST_DIGITS`] digits, so equal
    /// amounts have equal fields.
    zeros: u32,
    format: Format,
    /// The number of decimal places of the written amount in units, at most nine.
    decimals: u8,
}

/// The format of a printed quantity, `resource.Format` of apimachinery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// `1500m`, `2`, `3k`.
    #[default]
    DecimalSi,
    /// `96Mi`.
    BinarySi,
    /// `12e6`.
    DecimalExponent,
}

/// The reason why a text is not a quantity, in Kubernetes' words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseQuantityError(pub &'static str);

impl Quantity {
    /// Zero, in decimal format.
    pub const ZERO: Self = Self { nanos: 0, zeros: 0, format: Format::DecimalSi, decimals: 0 };

    /// Creates a quantity from milli-units.
    pub fn from_milli(milli: i64, format: Format) -> Self {
        Self { nanos: i128::from(milli) * NANOS_PER_MILLI, zeros: 0, format, decimals: 3 }
    }

    /// Creates a quantity from whole units.
    pub fn from_units(units: i64, format: Format) -> Self {
        Self { nanos: i128::from(units) * NANOS_PER_UNIT, zeros: 0, format, decimals: 0 }
    }

    /// Creates a quantity from nano-units.
    pub fn from_nanos(nanos: i128, format: Format) -> Self {
        Self { nanos, zeros: 0, format, decimals: 9 }
    }

    /// The value in nano-units, saturating.
    pub fn nanos(self) -> i128 {
        if self.zeros == 0 { self.nanos } else { i128::MAX * self.nanos.signum() }
    }

    /// The value in milli-units, rounded away from zero and saturating, as Go's `MilliValue`.
    pub fn milli_value(self) -> i64 {
        saturate_to_i64(divide_away_from_zero(self.nanos(), NANOS_PER_MILLI))
    }

    /// The value in whole units, rounded away from zero and saturating, as Go's `Value`.
    pub fn value(self) -> i64 {
        saturate_to_i64(divide_away_from_zero(self.nanos(), NANOS_PER_UNIT))
    }

    /// The value as float64, as Go's `AsApproximateFloat64`: the written digits times a power of ten, each rounded.
    /// `59m` is therefore 0.059000000000000004, not 0.059, which affects the bounds of a tolerance.
    pub fn as_f64(self) -> f64 {
        if self.zeros > 0 {
            let exponent = i64::from(self.zeros) - 9;
            return format!("{}e{exponent}", self.nanos).parse().unwrap_or(f64::INFINITY);
        }
        let (nanos_per_digit, power) = match self.decimals {
            0 => (1_000_000_000, 1.0),
            1 => (100_000_000, 1e-1),
            2 => (10_000_000, 1e-2),
            3 => (1_000_000, 1e-3),
            4 => (100_000, 1e-4),
            5 => (10_000, 1e-5),
            6 => (1_000, 1e-6),
            7 => (100, 1e-7),
            8 => (10, 1e-8),
            _ => (1, 1e-9),
        };
        (self.nanos / nanos_per_digit) as f64 * power
    }

    /// The sum, in the format of the first operand other than zero, as Go's `Quantity.Add`. Saturates at the largest
    /// `i128` of nano-units, about 1.7 × 10²⁹ units.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self {
            nanos: self.nanos().saturating_add(other.nanos()),
            zeros: 0,
            format,
            decimals: self.decimals.max(other.decimals),
        }
    }

    /// Whether the value is 0.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// The format, derived from the suffix of the parsed text or passed to the constructor.
    pub fn format(self) -> Format {
        self.format
    }

    /// Returns the value as an integer and an exponent of ten. The exponent is the largest multiple of three with which
    /// the value has no fraction.
    fn split_by_thousands(self) -> (i128, i64) {
        if self.nanos == 0 {
            return (0, 0);
        }
        let (mut digits, mut exponent) = (self.nanos, i64::from(self.zeros) - 9);
        while digits % 10 == 0 {
            digits /= 10;
            exponent += 1;
        }
        while exponent % 3 != 0 {
            digits *= 10;
            exponent -= 1;
        }
        (digits, exponent)
    }

    /// Returns the value as an integer and its suffix. The suffix is the largest binary suffix with which the value has
    /// no fraction. `None` if the value is printed in decimal, because it has a fraction or its magnitude is below
    /// 1024.
    fn split_by_1024(self) -> Option<(i128, &'static str)> {
        if self.zeros > 0 || self.nanos % NANOS_PER_UNIT != 0 {
            return None;
        }
        let mut digits = self.nanos / NANOS_PER_UNIT;
        if digits.abs() < 1024 {
            return None;
        }
        let mut suffix = "";
        for larger in ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] {
            if digits % 1024 != 0 {
                break;
            }
            digits /= 1024;
            suffix = larger;
        }
        Some((digits, suffix))
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.format == Format::BinarySi
            && let Some((digits, suffix)) = self.split_by_1024()
        {
            return write!(f, "{digits}{suffix}");
        }
        let (digits, exponent) = self.split_by_thousands();
        let suffix = match exponent {
            0 => "",
            // `E` is the largest suffix.
            _ if self.format == Format::DecimalExponent || exponent > 18 => {
                return write!(f, "{digits}e{exponent}");
            }
            ..=-9 => "n",
            -6 => "u",
            -3 => "m",
            3 => "k",
            6 => "M",
            9 => "G",
            12 => "T",
            15 => "P",
            _ => "E",
        };
        write!(f, "{digits}{suffix}")
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        (self.nanos, self.zeros) == (other.nanos, other.zeros)
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let rank = |quantity: &Self| (i128::from(quantity.zeros) * quantity.nanos.signum(), quantity.nanos);
        rank(self).cmp(&rank(other))
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.nanos, self.zeros).hash(state);
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Accepts the values that Go's `UnmarshalJSON` accepts: a string with optional blanks around the amount, a number, or
/// null, which is 0.
impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(QuantityVisitor)
    }
}

struct QuantityVisitor;

impl Visitor<'_> for QuantityVisitor {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity such as \"1500m\", a number or null")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
        text.trim().parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, units: i64) -> Result<Quantity, E> {
        Ok(Quantity::from_units(units, Format::DecimalSi))
    }

    fn visit_u64<E: de::Error>(self, units: u64) -> Result<Quantity, E> {
        Ok(Quantity { nanos: i128::from(units) * NANOS_PER_UNIT, ..Quantity::ZERO })
    }

    fn visit_f64<E: de::Error>(self, units: f64) -> Result<Quantity, E> {
        // The shortest decimal representation of the float has the digits of the JSON text, if there are at most 15.
        units.to_string().parse().map_err(E::custom)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Quantity, E> {
        Ok(Quantity::ZERO)
    }
}

fn divide_away_from_zero(nanos: i128, by: i128) -> i128 {
    let whole = nanos / by;
    if nanos % by == 0 { whole } else { whole + nanos.signum() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn q(text: &str) -> Quantity {
        text.parse().unwrap()
    }

    #[test]
    fn equal_amounts_are_equal_in_any_notation() {
        assert_eq!(q("1"), q("1000m"));
        assert_eq!(q("1Ki"), q("1024"));
        assert!(q("1Ki") > q("1k"));
        let hash = |quantity: Quantity| {
            let mut hasher = std::hash::DefaultHasher::new();
            quantity.hash(&mut hasher);
            hasher.finish()
        };
        assert_eq!(hash(q("1Ki")), hash(q("1024")));
    }

    #[test]
    fn values_are_rounded_away_from_zero() {
        assert_eq!(q("1n").milli_value(), 1);
        assert_eq!(q("-1n").milli_value(), -1);
        assert_eq!(q("1001u").milli_value(), 2);
        assert_eq!(q("1500m").value(), 2);
        assert_eq!(q("-1500m").value(), -2);
    }

    #[test]
    fn floats_equal_those_of_go() {
        assert_eq!(q("59m").as_f64(), 59.0 * 1e-3);
        assert_ne!(q("59m").as_f64(), 0.059);
        assert_eq!(q("0.1").as_f64(), 0.1);
        assert_eq!(q("1e3").as_f64(), 1000.0);
        assert_eq!(q("1Ki").saturating_add(q("500m")).as_f64(), 1024.5);
        // One value for each number of decimal places. A computation from nano-units would yield different floats.
        let written = ["4.3", "0.06", "0.011", "0.0019", "0.00003", "0.000001", "0.0000001", "0.00000005"];
        let digits = [43.0, 6.0, 11.0, 19.0, 3.0, 1.0, 1.0, 5.0];
        let powers = [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8];
        for ((text, digits), power) in written.into_iter().zip(digits).zip(powers) {
            assert_eq!(q(text).as_f64(), digits * power, "{text}");
        }
        // Go stores an amount with more than eighteen digits as an `inf.Dec` with nine decimal places.
        assert_eq!(q("172757217426062276").as_f64(), 172_757_217_426_062_276.0);
        assert_eq!(
            q("6249979066121302517").as_f64(),
            6_249_979_066_121_302_517_000_000_000_i128 as f64 * 1e-9
        );
        assert_ne!(q("6249979066121302517").as_f64(), 6_249_979_066_121_302_517.0);
    }

    #[test]
    fn values_saturate() {
        assert_eq!(q("1e20").value(), i64::MAX);
        assert_eq!(q("-1e20").value(), i64::MIN);
        assert_eq!(q("9E").milli_value(), i64::MAX);
        let huge = q("1e40");
        assert_eq!(huge.saturating_add(huge).nanos(), i128::MAX);
        assert_eq!(q("-1e40").saturating_add(q("-1e40")).nanos(), i128::MIN);
    }

    #[test]
    fn sum_has_the_format_of_its_first_non_zero_part() {
        assert_eq!(q("1Ki").saturating_add(q("1k")).to_string(), "2024");
        assert_eq!(q("0").saturating_add(q("1Mi")).to_string(), "1Mi");
        assert_eq!(q("1Mi").saturating_add(q("1048576")).to_string(), "2Mi");
        assert_eq!(q("1048576").saturating_add(q("1Mi")).to_string(), "2097152");
    }

    #[test]
    fn amounts_above_exa_are_printed_with_an_exponent() {
        assert_eq!(q("999E").to_string(), "999E");
        assert_eq!(q("1000E").to_string(), "1e21");
        assert_eq!(q("1001E").to_string(), "1001E");
        assert_eq!(q("-20000E").to_string(), "-20e21");
        assert_eq!(q("1e21").to_string(), "1e21");
        assert_eq!(q("1e22").to_string(), "10e21");
        assert_eq!(q("12e2147483647").to_string(), "120e2147483646");
    }

    #[test]
    fn amounts_above_the_fixed_point_range_keep_their_order() {
        let texts = ["-1e41", "-2e40", "-1e40", "-18e28", "-17e28", "-1E", "0", "1n", "1E"];
        let larger = ["17e28", "18e28", "1e40", "2e40", "1e41", "1e100"];
        let amounts: Vec<Quantity> = texts.into_iter().chain(larger).map(q).collect();
        assert!(amounts.is_sorted_by(|a, b| a < b), "{amounts:?}");
        assert_eq!(q("1e40"), q("10000000000000000000000E"));
        assert_eq!(q("1e40").as_f64(), 1e40);
        assert_eq!((q("1e30").value(), q("-1e30").milli_value()), (i64::MAX, i64::MIN));
    }

    #[test]
    fn json_may_be_a_string_a_number_or_null() {
        let read = serde_json::from_str::<Quantity>;
        assert_eq!(read("\" 1500m \"").unwrap(), q("1500m"));
        assert_eq!(read("2").unwrap(), q("2"));
        assert_eq!(read("-2").unwrap(), q("-2"));
        assert_eq!(read("0.25").unwrap(), q("250m"));
        assert_eq!(read("null").unwrap(), Quantity::ZERO);
        assert!(read("\"1 m\"").unwrap_err().to_string().starts_with("quantities must match"));
        assert!(read("true").is_err());
        assert_eq!(serde_json::to_string(&q("0.5")).unwrap(), "\"500m\"");
    }
}
