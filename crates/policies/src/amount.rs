//! Amounts of pods: a count, or a percentage of a count.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A count of pods, or a percentage of another count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Amount {
    /// A count.
    Pods(u32),
    /// A percentage.
    Percent(u32),
}

impl Amount {
    /// Parses `5` and `20%`. `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let (number, amount): (&str, fn(u32) -> Self) = match text.strip_suffix('%') {
            Some(percent) => (percent, Self::Percent),
            None => (text, Self::Pods),
        };
        // `u32` accepts a plus sign, but an amount has no sign.
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        number.parse().ok().filter(|_| is_number).map(amount)
    }

    /// The number of pods. A percentage is relative to `replicas` and rounded up.
    pub fn pods(self, replicas: i32) -> i32 {
        let pods = match self {
            Self::Pods(pods) => u64::from(pods),
            Self::Percent(percent) => {
                let replicas = u64::from(u32::try_from(replicas).unwrap_or(0));
                (replicas * u64::from(percent)).div_ceil(100)
            }
        };
        i32::try_from(pods).unwrap_or(i32::MAX)
    }

    /// The number of pods of one step from `replicas`. A percentage above 0 allows at least one pod, so a count of 0
    /// can change.
    pub fn step(self, replicas: i32) -> i32 {
        match self {
            Self::Percent(percent) if percent > 0 => self.pods(replicas).max(1),
            Self::Pods(_) | Self::Percent(_) => self.pods(replicas),
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pods(pods) => write!(f, "{pods}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amount_is_a_count_or_a_percentage() {
        assert_eq!(Amount::parse("5"), Some(Amount::Pods(5)));
        assert_eq!(Amount::parse("20%"), Some(Amount::Percent(20)));
        for text in ["", "%", "-1", "+1", "1.5", "20 %", "20%%", "99999999999", "five"] {
            assert_eq!(Amount::parse(text), None, "{text:?}");
        }
        assert_eq!(Amount::Percent(20).to_string(), "20%");
        assert_eq!(Amount::Pods(5).to_string(), "5");
    }

    #[test]
    fn percentage_rounds_up_to_whole_pods() {
        for (percent, replicas, pods, step) in [
            (20, 0, 0, 1),
            (100, 0, 0, 1),
            (0, 0, 0, 0),
            (0, 10, 0, 0),
            (20, 1, 1, 1),
            (20, 4, 1, 1),
            (20, 5, 1, 1),
            (20, 6, 2, 2),
            (20, 10, 2, 2),
            (100, 7, 7, 7),
            (150, 3, 5, 5),
            (1, 1000, 10, 10),
            (u32::MAX, i32::MAX, i32::MAX, i32::MAX),
            (100, -3, 0, 1),
        ] {
            let amount = Amount::Percent(percent);
            assert_eq!(
                (amount.pods(replicas), amount.step(replicas)),
                (pods, step),
                "{percent}% of {replicas}"
            );
        }
        assert_eq!((Amount::Pods(0).step(10), Amount::Pods(u32::MAX).pods(0)), (0, i32::MAX));
    }
}
