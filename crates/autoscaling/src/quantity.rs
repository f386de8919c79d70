//! Exact `resource.Quantity`: fixed point in nano-units.

/// An exact amount: nano-units in an `i128`, and the format in which it was written.
///
/// Equality and order are by value; the format only matters for printing.
#[derive(Debug, Clone, Copy)]
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

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}
