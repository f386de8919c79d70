//! Seeded randomness for the jitter of waits. Equal seeds give equal runs.

/// A small random sequence (SplitMix64). Suitable only for spreading requests over time.
#[derive(Debug, Clone)]
pub struct Jitter(u64);

impl Jitter {
    /// Creates the sequence for `seed`.
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number in [0, 1).
    pub fn fraction(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        // A float64 represents 53 bits exactly.
        (z >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::Jitter;

    #[test]
    fn equal_seeds_give_equal_numbers_below_one() {
        let (mut a, mut b) = (Jitter::seeded(7), Jitter::seeded(7));
        for _ in 0..1000 {
            let x = a.fraction();
            assert!((0.0..1.0).contains(&x));
            assert_eq!(x, b.fraction());
        }
    }
}
