//! Chance that is the same in every run: numbers out of a seed and out of what they are drawn for.

/// What a number is drawn for. Extended step by step (the run, the workload, the pod, the purpose), so that a draw does
/// not depend on which others were made before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::embedded) struct Seed(u64);

impl Seed {
    pub(in crate::embedded) fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// The seed for a thing with a name.
    pub(in crate::embedded) fn of(self, name: &str) -> Self {
        // The end of the name is marked, so that "ab" and then "c" differs from "a" and then "bc".
        Self(mix(name.bytes().fold(self.0, |hash, byte| mix(hash ^ u64::from(byte))) ^ 0x100))
    }

    /// The seed for the n-th thing of its kind.
    pub(in crate::embedded) fn nth(self, number: u64) -> Self {
        Self(mix(self.0 ^ mix(number)))
    }

    /// A number from 0 up to, but not, 1; every time the same.
    pub(in crate::embedded) fn share(self) -> f64 {
        // 53 bits are what a float64 holds exactly.
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The last step of splitmix64: every bit of the input changes half of the output.
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
    fn draws_are_spread_evenly() {
        let draws: Vec<_> = (0..10_000).map(|number| Seed::new(1).nth(number).share()).collect();
        assert!(draws.iter().all(|draw| (0.0..1.0).contains(draw)));
        for tenth in 0..10_u32 {
            let (from, to) = (f64::from(tenth) / 10.0, f64::from(tenth + 1) / 10.0);
            let count = draws.iter().filter(|draw| (from..to).contains(*draw)).count();
            assert!((900..1_100).contains(&count), "{count} in tenth {tenth}");
        }
    }

    #[test]
    fn a_draw_depends_on_all_that_it_is_for_and_on_nothing_else() {
        let seed = Seed::new(7);
        assert_eq!(seed.of("web").nth(3).share(), Seed::new(7).of("web").nth(3).share());
        assert_ne!(seed.of("web").nth(3).share(), seed.of("web").nth(4).share());
        assert_ne!(seed.of("web").share(), Seed::new(8).of("web").share());
        assert_ne!(seed.of("ab").of("c").share(), seed.of("a").of("bc").share());
    }
}
