//! Numbers from a seed: SplitMix64.

pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// A number below `bound`, or 0.
    pub(crate) fn number(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// An index below `bound`, or 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.number(u64::try_from(bound).unwrap_or(u64::MAX))).unwrap_or(0)
    }

    /// A number from 0 to 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
