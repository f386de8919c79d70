//! One number from several samples.

use crate::scrape::Sample;

/// The function that combines several samples of one pod into one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reduce {
    /// Their sum.
    Sum,
    /// Their average.
    Average,
    /// Their maximum.
    Max,
}

/// A value that a count cannot be computed from: NaN or infinite. Also a sum that is too large.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("the value {0} is not a finite number")]
pub struct InvalidValue(pub f64);

impl Reduce {
    /// One number from the values of samples. `None`, not 0, without samples.
    pub fn samples(self, samples: &[Sample]) -> Result<Option<f64>, InvalidValue> {
        self.values(samples.iter().map(|sample| sample.value))
    }

    /// One number from values. `None` without values.
    pub fn values(self, values: impl IntoIterator<Item = f64>) -> Result<Option<f64>, InvalidValue> {
        let (mut count, mut sum, mut max) = (0_u32, 0.0, f64::NEG_INFINITY);
        for value in values {
            if !value.is_finite() {
                return Err(InvalidValue(value));
            }
            count = count.saturating_add(1);
            sum += value;
            max = max.max(value);
        }
        if count == 0 {
            return Ok(None);
        }
        let result = match self {
            Self::Sum => sum,
            Self::Average => sum / f64::from(count),
            Self::Max => max,
        };
        if result.is_finite() { Ok(Some(result)) } else { Err(InvalidValue(result)) }
    }
}
