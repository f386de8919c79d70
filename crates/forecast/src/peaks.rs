//! The highest load of each five minutes of the last 14 days.

use crate::number::slot;

/// Minutes of a bucket.
pub(crate) const BUCKET: i64 = 5;
/// Buckets of an hour.
pub(crate) const HOUR: i64 = 60 / BUCKET;
/// Earlier days that a forecast compares with.
pub(crate) const DAYS: usize = 14;
/// Buckets of a state: 14 days, and two hours more, because a clock change moves the same local minute.
pub(crate) const KEPT: usize = DAYS * 288 + 24;

/// A load in steps of 5 %. 0 means that the load is unknown.
pub(crate) type Code = u8;

/// The code of loads that do not matter, because one pod serves them.
const IDLE: Code = 1;
/// The load of each code from 2 up. The lowest is a tenth of a pod, and the highest exceeds 20,000 pods.
const LEVELS: [f32; 254] = levels();

#[expect(clippy::indexing_slicing, reason = "evaluated only by the compiler")]
const fn levels() -> [f32; 254] {
    let mut levels = [0.1; 254];
    let mut index = 1;
    while index < levels.len() {
        levels[index] = levels[index - 1] * 1.05;
        index += 1;
    }
    levels
}

/// The nearest code of a load.
pub(crate) fn code(load: f32) -> Code {
    let above = LEVELS.partition_point(|level| *level < load);
    let level = |index: usize| LEVELS.get(index).copied();
    let index = match (above.checked_sub(1).and_then(level), level(above)) {
        (None, Some(lowest)) if load < lowest / 2.0 => return IDLE,
        (Some(below), Some(next)) if load * load < below * next => above - 1,
        (Some(_), None) => above - 1,
        _ => above,
    };
    Code::try_from(index + 2).unwrap_or(Code::MAX)
}

/// The load of a code. `None` for an unknown load.
pub(crate) fn load(code: Code) -> Option<f32> {
    match code {
        0 => None,
        IDLE => Some(0.0),
        code => LEVELS.get(usize::from(code) - 2).copied(),
    }
}

/// The highest load of each bucket, in a ring. A bucket is numbered from the Unix epoch.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Peaks {
    codes: Box<[Code]>,
    newest: i64,
    /// The number of known codes.
    known: i64,
}

impl Peaks {
    /// Without any load.
    pub(crate) fn new() -> Self {
        Self { codes: vec![0; KEPT].into(), newest: i64::MIN, known: 0 }
    }

    /// With codes from the oldest to the newest. `None` unless there are [`KEPT`] codes.
    pub(crate) fn restored(newest: i64, codes: &[Code]) -> Option<Self> {
        let mut peaks = Self { newest, ..Self::new() };
        (codes.len() == KEPT).then_some(())?;
        for (code, bucket) in codes.iter().rev().zip(0..) {
            *peaks.codes.get_mut(slot(newest.checked_sub(bucket)?, KEPT))? = *code;
            peaks.known += i64::from(*code != 0);
        }
        Some(peaks)
    }

    /// The newest bucket, and the codes from the oldest to the newest.
    pub(crate) fn parts(&self) -> (i64, Vec<Code>) {
        let length = i64::try_from(KEPT).unwrap_or_default();
        let oldest = self.newest.saturating_sub(length - 1);
        (self.newest, (0..length).map(|bucket| self.get(oldest.saturating_add(bucket))).collect())
    }

    /// Moves to a bucket, whose load is unknown at first. Buckets between are gaps.
    pub(crate) fn advance(&mut self, bucket: i64) {
        let kept = i64::try_from(KEPT).unwrap_or_default();
        let first = self.newest.saturating_add(1).max(bucket.saturating_sub(kept - 1));
        for empty in first..=bucket {
            if let Some(code) = self.codes.get_mut(slot(empty, KEPT)) {
                self.known -= i64::from(*code != 0);
                *code = 0;
            }
        }
        self.newest = self.newest.max(bucket);
    }

    /// Adds a load to the newest bucket.
    pub(crate) fn raise(&mut self, load: f32) {
        if let Some(highest) = self.codes.get_mut(slot(self.newest, KEPT)) {
            self.known += i64::from(*highest == 0);
            *highest = code(load).max(*highest);
        }
    }

    /// The code of a bucket. 0 if the bucket is not kept.
    pub(crate) fn get(&self, bucket: i64) -> Code {
        let ago = self.newest.checked_sub(bucket).and_then(|ago| usize::try_from(ago).ok());
        if ago.is_none_or(|ago| ago >= KEPT) {
            return 0;
        }
        self.codes.get(slot(bucket, KEPT)).copied().unwrap_or_default()
    }

    /// The minutes with a known load, in whole buckets.
    pub(crate) fn known_minutes(&self) -> i64 {
        self.known * BUCKET
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_within_three_percent_and_keep_the_order() {
        let mut last = 0;
        for step in 0..2_000 {
            let value = 0.11 * 1.006_f32.powi(step);
            let (code, back) = (code(value), load(code(value)).unwrap());
            assert!(code >= last && (back / value - 1.0).abs() < 0.026, "{value} {back}");
            last = code;
        }
        assert_eq!((code(0.0), load(code(0.01)), load(0)), (1, Some(0.0), None));
        assert_eq!((code(0.06), code(f32::MAX)), (2, 255));
    }

    #[test]
    fn buckets_outside_of_the_ring_are_unknown() {
        let mut peaks = Peaks::new();
        peaks.advance(100);
        peaks.raise(3.0);
        peaks.raise(2.0);
        let kept = i64::try_from(KEPT).unwrap();
        assert_eq!((load(peaks.get(100)).unwrap() * 10.0).round(), 30.0);
        assert_eq!((peaks.get(101), peaks.get(99), peaks.get(100 - kept)), (0, 0, 0));
        peaks.advance(100 + kept - 1);
        assert_ne!(peaks.get(100), 0);
        assert_eq!(peaks.known_minutes(), 5);
        let (newest, codes) = peaks.parts();
        assert_eq!(Peaks::restored(newest, &codes), Some(peaks.clone()));
        peaks.advance(100 + kept);
        assert_eq!((peaks.get(100), peaks.known_minutes()), (0, 0));
        peaks.advance(i64::MAX);
        assert_eq!(Peaks::restored(0, &codes[1..]), None);
    }
}
