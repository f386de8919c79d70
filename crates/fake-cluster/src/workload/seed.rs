//! Reproducible randomness: numbers derived from a seed and a purpose.

/// A seed for draws. Seeds are derived step by step (the run, the workload, the pod, the purpose), so that
/// the order of draws has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seed(u64);

impl Seed {
    pub(crate) fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// Derives the seed for a name.
    pub(crate) fn for_name(self, name: &str) -> Self {
        // A mark ends the name, so that "ab" followed by "c" differs from "a" followed by "bc".
        Self(mix(name.bytes().fold(self.0, |hash, byte| mix(hash ^ u64::from(byte))) ^ 0x100))
    }

    /// Derives the seed for the n-th item.
    pub(crate) fn nth(self, number: u64) -> Self {
        Self(mix(self.0 ^ mix(number)))
    }

    /// Returns a reproducible number in [0, 1).
    pub(crate) fn share(self) -> f64 {
        // A float64 represents 53 bits exactly.
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Applies the last step of splitmix64: each input bit changes about half of the output bits.
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::Seed;

    #[test]
    fn draws_are_uniformly_distributed() {
        let draws: Vec<_> = (0..10_000).map(|number| Seed::new(1).nth(number).share()).collect();
        assert!(draws.iter().all(|draw| (0.0..1.0).contains(draw)));
        for tenth in 0..10_u32 {
            let (from, to) = (f64::from(tenth) / 10.0, f64::from(tenth + 1) / 10.0);
            let count = draws.iter().filter(|draw| (from..to).contains(*draw)).count();
            assert!((900..1_100).contains(&count), "{count} in tenth {tenth}");
        }
    }

    #[test]
    fn draw_depends_on_its_whole_derivation_only() {
        let seed = Seed::new(7);
        assert_eq!(seed.for_name("web").nth(3).share(), Seed::new(7).for_name("web").nth(3).share());
        assert_ne!(seed.for_name("web").nth(3).share(), seed.for_name("web").nth(4).share());
        assert_ne!(seed.for_name("web").share(), Seed::new(8).for_name("web").share());
        assert_ne!(seed.for_name("ab").for_name("c").share(), seed.for_name("a").for_name("bc").share());
    }
}
