//! Exact `resource.Quantity`: fixed point in nano-units.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An exact amount: nano-units in an `i128`, and the format in which it was written.
///
/// Equality and order are by value; the format only matters for printing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// How a quantity is printed.
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

/// Why a text is not a quantity, in the words of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseQuantityError(pub &'static str);

impl Quantity {
    /// From milli-units.
    pub fn from_milli(milli: i64, format: Format) -> Self {
        Self {
            nanos: i128::from(milli) * 1_000_000,
            format,
        }
    }

    /// From whole units.
    pub fn from_units(units: i64, format: Format) -> Self {
        Self {
            nanos: i128::from(units) * 1_000_000_000,
            format,
        }
    }

    /// In milli-units, rounded away from zero, saturating.
    pub fn milli_value(self) -> i64 {
        todo!()
    }

    /// In whole units, rounded away from zero, saturating.
    pub fn value(self) -> i64 {
        todo!()
    }

    /// As float64.
    pub fn as_f64(self) -> f64 {
        todo!()
    }

    /// The sum, saturating; the format of the first that is not zero, as in Go's `Quantity.Add`.
    pub fn saturating_add(self, _other: Self) -> Self {
        todo!()
    }

    /// The format.
    pub fn format(self) -> Format {
        self.format
    }
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(_text: &str) -> Result<Self, Self::Err> {
        todo!()
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        todo!()
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
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
        self.nanos.cmp(&other.nanos)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(_deserializer: D) -> Result<Self, D::Error> {
        todo!()
    }
}
