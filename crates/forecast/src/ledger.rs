//! The pods that each candidate would have added, and the shortage that it would have avoided.

use serde::{Deserialize, Serialize};

use crate::number::slot;

/// The number of candidates.
pub(crate) const CANDIDATES: usize = 10;
/// The quantiles of earlier days. `None` does not look at earlier days.
pub(crate) const QUANTILES: [Option<f32>; 5] = [None, Some(0.5), Some(0.75), Some(0.9), Some(1.0)];
/// The days of a replay, with today.
const KEPT: usize = 8;

/// A way to forecast the load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The weighted quantile of the same minutes of earlier days.
    pub quantile: Option<f32>,
    /// Whether the slope of the last two minutes continues.
    pub slope: bool,
}

impl Candidate {
    /// The candidate with an index: each quantile without the slope, then with it.
    pub(crate) fn at(index: u8) -> Self {
        let index = usize::from(index);
        let quantile = QUANTILES.get(index % QUANTILES.len()).copied().flatten();
        Self { quantile, slope: index >= QUANTILES.len() }
    }
}

/// The sums of one day, in pod-minutes.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The day since the Unix epoch, in UTC.
    day: i64,
    pub(crate) sums: Tally,
}

/// What a replay found, in pod-minutes.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// The minutes of the sums.
    pub minutes: f32,
    /// The pods that the HPA alone asked for.
    pub asked: f32,
    /// The load above the full capacity of the HPA alone.
    pub short: f32,
    /// The pods that each candidate adds.
    pub extra: [f32; CANDIDATES],
    /// The part of [`Self::short`] that each candidate avoids.
    pub avoided: [f32; CANDIDATES],
}

/// The sums of the last eight days.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Ledger([Entry; KEPT]);

impl Ledger {
    /// The sums of a day, which replace those of eight days before.
    pub(crate) fn today(&mut self, day: i64) -> Option<&mut Tally> {
        let entry = self.0.get_mut(slot(day, KEPT))?;
        if entry.day != day {
            *entry = Entry { day, sums: Tally::default() };
        }
        Some(&mut entry.sums)
    }

    /// The sums of the eight days up to a day.
    pub(crate) fn tally(&self, day: i64) -> Tally {
        let mut tally = Tally::default();
        for Entry { day: of, sums } in &self.0 {
            if (0..8).contains(&day.saturating_sub(*of)) {
                tally.add(sums);
            }
        }
        tally
    }

    /// Whether all sums are finite and not negative.
    pub(crate) fn is_sound(&self) -> bool {
        let is_sound = |sum: &f32| sum.is_finite() && *sum >= 0.0;
        self.0.iter().all(|Entry { sums, .. }| {
            let Tally { minutes, asked, short, extra, avoided } = sums;
            [minutes, asked, short].into_iter().chain(extra).chain(avoided).all(is_sound)
        })
    }
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.minutes += other.minutes;
        self.asked += other.asked;
        self.short += other.short;
        for (sum, other) in self.extra.iter_mut().zip(&other.extra) {
            *sum += other;
        }
        for (sum, other) in self.avoided.iter_mut().zip(&other.avoided) {
            *sum += other;
        }
    }

    /// The pods that a candidate adds, and the shortage that it avoids.
    pub(crate) fn of(&self, candidate: u8) -> (f32, f32) {
        let at = |sums: &[f32; CANDIDATES]| sums.get(usize::from(candidate)).copied().unwrap_or_default();
        (at(&self.extra), at(&self.avoided))
    }

    /// The candidate with the highest value of avoided shortage over added pods, among those within the budget.
    pub(crate) fn choose(&self, budget: f32, value: f32) -> Choice {
        let mut best = None;
        let mut refusal = if self.short > 0.0 { Choice::NoneAvoids } else { Choice::NoShortage };
        let candidates = (0_u8..).zip(self.extra.iter().zip(&self.avoided));
        for (candidate, (&extra, &avoided)) in candidates.filter(|(_, (_, avoided))| **avoided > 0.0) {
            let benefit = value * avoided - extra;
            if benefit <= 0.0 {
                refusal = refusal.max(Choice::NonePays);
            } else if extra > budget * self.asked {
                refusal = refusal.max(Choice::OverBudget);
            } else if best.is_none_or(|(_, highest)| benefit > highest) {
                best = Some((candidate, benefit));
            }
        }
        best.map_or(refusal, |(candidate, _)| Choice::Candidate(candidate))
    }
}

/// The result of a choice. The later of two refusals is closer to a floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub(crate) enum Choice {
    /// There was no choice yet, or the HPA alone was never short.
    #[default]
    NoShortage,
    NoneAvoids,
    NonePays,
    OverBudget,
    Candidate(u8),
}
