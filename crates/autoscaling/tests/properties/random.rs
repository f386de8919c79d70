//! Reproducible random numbers from a seed (SplitMix64).

/// A stream of random numbers.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Self(seed);
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below a bound, which must be above 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // The high half of the product is uniform enough for bounds far below 2^64.
        u64::try_from((u128::from(self.next()) * u128::from(bound)) >> 64).unwrap()
    }

    /// A number between two bounds, inclusive.
    pub(crate) fn within(&mut self, low: i64, high: i64) -> i64 {
        let span = u64::try_from(i128::from(high) - i128::from(low) + 1).unwrap();
        i64::try_from(i128::from(low) + i128::from(self.below(span))).unwrap()
    }

    /// True once in `times` calls on average.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        let index = self.below(choices.len() as u64);
        choices[usize::try_from(index).unwrap()]
    }

    /// A replica count: mostly small, sometimes thousands, sometimes at the edge of 32 bits.
    pub(crate) fn count(&mut self) -> i32 {
        let count = match self.below(8) {
            0 => self.choose(&[0, 1, 1 << 30, (1 << 30) + 1, i64::from(i32::MAX) - 1, i32::MAX.into()]),
            1 => self.within(0, 5000),
            _ => self.within(0, 20),
        };
        i32::try_from(count).unwrap()
    }
}
