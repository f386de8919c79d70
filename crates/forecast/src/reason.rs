//! The reasons for a floor or for no floor.

use std::fmt::Write as _;

use jiff::civil::Weekday;

/// The reason for a floor or for no floor. Shortages and pods are in pod-minutes of the last eight days.
#[derive(Debug, Clone, PartialEq)]
pub enum Reason {
    /// A candidate pays.
    Pays {
        /// The highest loads at this time of the three days that count most, from the oldest.
        peaks: Vec<(Weekday, f32)>,
        /// Whether the slope of the last minutes also counts.
        slope: bool,
        /// The shortage that the candidate would have avoided.
        avoided: f32,
        /// The shortage of the HPA alone.
        short: f32,
        /// The added pods, relative to those of the HPA alone.
        extra: f32,
    },
    /// The HPA alone was never short.
    NoShortage,
    /// No candidate avoids any of the shortage.
    NoneAvoids {
        /// The shortage of the HPA alone.
        short: f32,
    },
    /// Every candidate costs more than the shortage that it avoids.
    NonePays {
        /// The shortage of the HPA alone.
        short: f32,
    },
    /// Every candidate that pays adds more pods than the budget.
    OverBudget {
        /// The shortage of the HPA alone.
        short: f32,
        /// The budget, relative to the pods of the HPA alone.
        budget: f32,
    },
    /// The floor has added twice the budget of a day since midnight UTC.
    DayBudget {
        /// The pods that the floor added today.
        spent: f32,
    },
    /// The load of an hour was far below that of earlier days.
    Moved,
    /// The history is too short.
    ShortHistory {
        /// The minutes with a known load.
        known: i64,
        /// The minimum.
        needed: i64,
    },
    /// The history belonged to another HPA with the same name.
    OtherUid {
        /// The minutes with a known load of this HPA.
        known: i64,
        /// The minimum.
        needed: i64,
    },
    /// No minute before this time was learned.
    Stale,
}

impl Reason {
    /// Whether there is a floor.
    pub fn pays(&self) -> bool {
        matches!(self, Self::Pays { .. })
    }

    /// The reason as a sentence without a subject, for the floor that would apply.
    pub fn sentence(&self, floor: u32) -> String {
        match self {
            Self::Pays { peaks, slope, avoided, short, extra } => {
                let mut text = format!("{floor}: ");
                if !peaks.is_empty() {
                    let _ = write!(text, "at this time {}", listed(peaks));
                }
                if *slope {
                    text.push_str(if peaks.is_empty() { "the load" } else { ", and the load" });
                    text.push_str(" of the last minutes counts as if it continued to rise");
                }
                let percent = extra * 100.0;
                let _ = write!(
                    text,
                    "; in 8 days this floor avoided {avoided:.0} of {short:.0} pod-minutes of shortage for \
                     {percent:.1} % more pods"
                );
                text
            }
            Self::NoShortage => "no floor: in 8 days the HPA alone was short for 0 pod-minutes".to_owned(),
            Self::NoneAvoids { short } => format!(
                "no floor: in 8 days the HPA alone was short for {short:.1} pod-minutes, and no forecast would \
                 have avoided them"
            ),
            Self::NonePays { short } => format!(
                "no floor: in 8 days the HPA alone was short for {short:.1} pod-minutes, and each forecast \
                 would have cost more than they are worth"
            ),
            Self::OverBudget { short, budget } => format!(
                "no floor: in 8 days the HPA alone was short for {short:.1} pod-minutes, and each forecast \
                 would have added more than the budget of {:.1} % of pods",
                budget * 100.0
            ),
            Self::DayBudget { spent } => format!(
                "no floor until midnight UTC: today it added {spent:.0} pod-minutes, twice the budget of a day"
            ),
            Self::Moved => {
                "no floor for an hour: the load of the last hour is below 40 % of earlier days".to_owned()
            }
            Self::ShortHistory { known, needed } => {
                format!("no floor: the history has {:.1} of {:.1} days", days(*known), days(*needed))
            }
            Self::OtherUid { known, needed } => format!(
                "no floor: the HPA was created again, and its history has {:.1} of {:.1} days",
                days(*known),
                days(*needed)
            ),
            Self::Stale => "no floor: the load of the last minute is not known yet".to_owned(),
        }
    }
}

fn days(minutes: i64) -> f64 {
    minutes as f64 / 1440.0
}

/// Lists the peaks of days: `the last Mondays peaked at 2.9, 3.0 and 3.2 pods`.
fn listed(peaks: &[(Weekday, f32)]) -> String {
    let first = peaks.first().map(|(day, _)| *day);
    let mut text = match first.filter(|first| peaks.iter().all(|(day, _)| day == first)) {
        Some(day) if peaks.len() > 1 => format!("the last {}s peaked at ", name(day)),
        Some(day) => format!("the last {} peaked at ", name(day)),
        None => "similar days peaked at ".to_owned(),
    };
    for (at, (_, load)) in peaks.iter().enumerate() {
        let separator = match at {
            0 => "",
            _ if at + 1 == peaks.len() => " and ",
            _ => ", ",
        };
        let _ = write!(text, "{separator}{load:.1}");
    }
    text + " pods of load"
}

fn name(day: Weekday) -> &'static str {
    match day {
        Weekday::Monday => "Monday",
        Weekday::Tuesday => "Tuesday",
        Weekday::Wednesday => "Wednesday",
        Weekday::Thursday => "Thursday",
        Weekday::Friday => "Friday",
        Weekday::Saturday => "Saturday",
        Weekday::Sunday => "Sunday",
    }
}
