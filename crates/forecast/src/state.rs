//! The state of an HPA, what it learns each minute, and the floor that follows.

use jiff::Timestamp;
use jiff::civil::Weekday;

use crate::calendar::{Calendar, Days, QUARTER};
use crate::ledger::{CANDIDATES, Candidate, Choice, Ledger, QUANTILES, Tally};
use crate::number::{ceil_to_count, floor_to_count, narrow, slot, to_count};
use crate::peaks::{self, BUCKET, Code, DAYS, HOUR, Peaks};
use crate::reason::Reason;

/// The highest number of minutes that a pod takes to start.
const LONGEST_START: i64 = 15;
/// The utilization of a pod that serves the load of earlier days.
const UTILIZATION: f32 = 0.9;
/// The factor of a load that saturated its pods, and was higher than measured.
const SATURATED: f32 = 1.5;
/// The load relative to that of earlier days below which a workload has moved.
const MOVED: f32 = 0.4;
/// Slots of the ring of minutes.
const RING: usize = 16;

/// Whether a floor applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The floor is only shown.
    #[default]
    Preview,
    /// The floor applies.
    Floor,
}

/// The settings of a forecast.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Whether a floor applies.
    pub mode: Mode,
    /// The highest share of pods that a floor adds to those of the HPA alone.
    pub budget: f64,
    /// The value of a pod-minute of shortage, in pod-minutes.
    pub shortage_value: f64,
    /// The minutes that a pod takes to start, at the 90 % quantile: 1 to 15. Other values are limited to these.
    pub start_minutes: i64,
    /// The minutes with a known load before the first floor.
    pub minimum_history: i64,
    /// The highest floor, relative to `maxReplicas`.
    pub maximum_floor: f64,
    /// The wall clock and the holidays.
    pub calendar: Calendar,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::Preview,
            budget: 0.05,
            shortage_value: 100.0,
            start_minutes: 3,
            minimum_history: 3 * 1440,
            maximum_floor: 0.8,
            calendar: Calendar::default(),
        }
    }
}

impl Settings {
    fn start(&self) -> i64 {
        self.start_minutes.clamp(1, LONGEST_START)
    }

    /// The highest floor of an HPA.
    fn cap(&self, max_replicas: i32) -> u16 {
        floor_to_count(self.maximum_floor.clamp(0.0, 1.0) * f64::from(max_replicas))
    }
}

/// What was observed in the last minute.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// The highest load in pods at full capacity. `None` if no metric was read.
    pub load: Option<f64>,
    /// Whether the pods were at least 98 % utilized.
    pub saturated: bool,
    /// The count that the HPA alone asks for, without a floor.
    pub asked: i32,
    /// `maxReplicas` of the HPA.
    pub max_replicas: i32,
}

/// The reason why a state does not learn an observation.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum Refused {
    /// The load is not a number, negative or infinite. The minute counts as a gap.
    #[error("a load of {0} is not possible, so its minute counts as a gap")]
    Load(f64),
    /// The state has learned this minute or a later one.
    #[error("the minute before {0} was learned before")]
    Past(Timestamp),
}

/// The load that is expected until a pod that starts now is ready.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Band {
    /// The median of earlier days.
    pub usual: f32,
    /// The load that 95 % of minutes do not exceed.
    pub upper: f32,
}

/// The forecast for a minute.
#[derive(Debug, Clone, PartialEq)]
pub struct Outlook {
    /// The floor that applies. `None` in [`Mode::Preview`] and without a reason for a floor.
    pub floor: Option<u32>,
    /// The floor that would apply in [`Mode::Floor`].
    pub proposed: Option<u32>,
    /// The candidate of the floor.
    pub candidate: Option<Candidate>,
    /// The expected load. `None` if none is known.
    pub band: Option<Band>,
    /// The reason.
    pub reason: Reason,
    /// What the replay of the last eight days found.
    pub tally: Tally,
}

/// The forecasts for a minute, and what the HPA asked for in it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Slot {
    minute: i64,
    floors: [u16; CANDIDATES],
    asked: Option<u16>,
    band: Option<Band>,
    active: Option<u8>,
}

impl Slot {
    const EMPTY: Self =
        Self { minute: i64::MIN, floors: [0; CANDIDATES], asked: None, band: None, active: None };
}

/// The state of one HPA.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    pub(crate) uid: u64,
    /// Whether the history of another UID was dropped.
    pub(crate) replaced: bool,
    /// The last learned minute since the Unix epoch.
    pub(crate) minute: i64,
    pub(crate) peaks: Peaks,
    pub(crate) ledger: Ledger,
    pub(crate) choice: Choice,
    /// The pods that the floor added on a day.
    pub(crate) spent: (i64, f32),
    /// The minute up to which the workload counts as moved.
    pub(crate) moved_until: i64,
    /// The logarithm of the factor of the band.
    pub(crate) widening: f32,
    /// The last three loads, newest first.
    loads: [Option<f32>; 3],
    ring: [Slot; RING],
    /// The days before two quarters of an hour, and the first quarter.
    days: (i64, [Days; 2]),
    analog: Analog,
}

/// The loads of earlier days in some buckets, from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Analog {
    buckets: (i64, i64),
    quantiles: Option<[f32; 5]>,
}

/// Returns a number for a UID. Different UIDs have different numbers, as far as it matters.
pub(crate) fn uid_hash(uid: &str) -> u64 {
    uid.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

impl State {
    /// Creates the state of an HPA without a history.
    pub fn new(uid: &str) -> Self {
        Self {
            uid: uid_hash(uid),
            replaced: false,
            minute: i64::MIN,
            peaks: Peaks::new(),
            ledger: Ledger::default(),
            choice: Choice::default(),
            spent: (0, 0.0),
            moved_until: i64::MIN,
            widening: 0.0,
            loads: [None; 3],
            ring: [Slot::EMPTY; RING],
            days: (i64::MIN, [Days::default(); 2]),
            analog: Analog { buckets: (i64::MAX, i64::MIN), quantiles: None },
        }
    }

    /// Whether the history is shorter than its minimum.
    pub fn is_short(&self, settings: &Settings) -> bool {
        self.peaks.known_minutes() < settings.minimum_history
    }

    /// Whether this is a longer history of the same HPA than another state.
    pub fn extends(&self, other: &Self) -> bool {
        self.uid == other.uid && self.peaks.known_minutes() > other.peaks.known_minutes()
    }

    /// Learns the last complete minute before `now`, and forecasts the minute of `now`. Minutes without a call are
    /// gaps. The history of another UID is dropped.
    ///
    /// # Errors
    /// Returns [`Refused`] for an impossible load, and for a minute that was learned before.
    pub fn learn(
        &mut self,
        uid: &str,
        now: Timestamp,
        observed: &Observation,
        settings: &Settings,
    ) -> Result<(), Refused> {
        if self.uid != uid_hash(uid) {
            *self = Self { replaced: true, ..Self::new(uid) };
        }
        let minute = now.as_second().div_euclid(60) - 1;
        if minute <= self.minute {
            return Err(Refused::Past(now));
        }
        let (load, refused) = match observed.load {
            Some(load) if !load.is_finite() || load < 0.0 => (None, Err(Refused::Load(load))),
            load => (load.map(narrow), Ok(())),
        };
        let load = load.map(|load| if observed.saturated { load * SATURATED } else { load });
        let (last, next) = (self.minute.saturating_add(1), minute + 1);
        let is_first_of = |minutes: i64| last.div_euclid(minutes) != next.div_euclid(minutes);
        self.remember(minute, load);
        self.account(minute, load, to_count(observed.asked), settings.start());
        self.days_at(next, &settings.calendar);
        if is_first_of(BUCKET) && self.has_moved(next) {
            self.moved_until = next + 60;
        }
        if is_first_of(60) {
            let tally = self.ledger.tally(next.div_euclid(1440));
            self.choice = tally.choose(narrow(settings.budget), narrow(settings.shortage_value));
        }
        self.forecast(next, settings, settings.cap(observed.max_replicas));
        refused
    }

    /// Adds a minute to the history. Minutes since the last are gaps.
    fn remember(&mut self, minute: i64, load: Option<f32>) {
        for _ in 0..minute.saturating_sub(self.minute).min(3) {
            let [newest, second, _] = self.loads;
            self.loads = [None, newest, second];
        }
        self.loads[0] = load;
        self.minute = minute;
        self.peaks.advance(minute.div_euclid(BUCKET));
        if let Some(load) = load {
            self.peaks.raise(load);
        }
    }

    fn slot(&self, minute: i64) -> Option<&Slot> {
        self.ring.get(slot(minute, RING)).filter(|slot| slot.minute == minute)
    }

    /// Compares the forecasts for a minute with its load, and with what the HPA alone asked for.
    fn account(&mut self, minute: i64, load: Option<f32>, asked: u16, start: i64) {
        let Some(slot) = self.ring.get_mut(slot(minute, RING)).filter(|slot| slot.minute == minute) else {
            return;
        };
        slot.asked = Some(asked);
        let (floors, active) = (slot.floors, slot.active);
        // A pod that is ready in this minute was asked for in the minute of the start.
        if let (Some(load), Some(band)) = (load, self.slot(minute - start).and_then(|slot| slot.band)) {
            let miss = if load > band.upper { 1.0 } else { 0.0 };
            self.widening = (self.widening + 0.02 * (miss - 0.05)).clamp(-0.7, 1.0);
        }
        let Some(load) = load else { return };
        let (mut ready, mut lows) = (asked, floors);
        for earlier in minute - start..minute {
            let Some((slot, asked)) = self.slot(earlier).and_then(|slot| Some((slot, slot.asked?))) else {
                return;
            };
            ready = ready.min(asked);
            for (low, floor) in lows.iter_mut().zip(&slot.floors) {
                *low = (*low).min(*floor);
            }
        }
        let short = (load - f32::from(ready)).max(0.0);
        let day = minute.div_euclid(1440);
        if self.spent.0 != day {
            self.spent = (day, 0.0);
        }
        let Some(sums) = self.ledger.today(day) else { return };
        sums.minutes += 1.0;
        sums.asked += f32::from(asked);
        sums.short += short;
        let candidates = sums.extra.iter_mut().zip(&mut sums.avoided).zip(floors.into_iter().zip(lows));
        for (index, ((extra, avoided), (floor, low))) in (0_u8..).zip(candidates) {
            let added = f32::from(floor.saturating_sub(asked));
            *extra += added;
            *avoided += short - (load - f32::from(ready.max(low))).max(0.0);
            if active == Some(index) {
                self.spent.1 += added;
            }
        }
    }

    /// Updates the days before a minute.
    fn days_at(&mut self, minute: i64, calendar: &Calendar) {
        let quarter = minute.div_euclid(QUARTER);
        if self.days.0 != quarter {
            let days = |quarter| calendar.days(quarter * QUARTER);
            self.days = (quarter, [days(quarter), days(quarter + 1)]);
            self.analog.buckets = (i64::MAX, i64::MIN);
        }
    }

    /// The highest load of each earlier day from a minute for some minutes, with the day's weight.
    fn analogs(&self, first: i64, last: i64) -> [(Code, f32); DAYS] {
        let mut found = [(0, 0.0); DAYS];
        let (quarter, [days, next]) = &self.days;
        for ((found, day), next) in found.iter_mut().zip(days).zip(next) {
            found.1 = day.weight;
            for bucket in first..=last {
                let day = if (bucket * BUCKET).div_euclid(QUARTER) > *quarter { next } else { day };
                found.0 = found.0.max(self.peaks.get(bucket - day.ago));
            }
        }
        found
    }

    /// Whether the load of the last hour is far below that of most earlier days.
    fn has_moved(&self, minute: i64) -> bool {
        let end = minute.div_euclid(BUCKET);
        let [days, _] = &self.days.1;
        let (mut all, mut below) = (0.0, 0.0);
        for day in days {
            let (mut known, mut now, mut then) = (0, 0.0, 0.0);
            for bucket in end - HOUR..end {
                let pair =
                    (peaks::load(self.peaks.get(bucket)), peaks::load(self.peaks.get(bucket - day.ago)));
                if let (Some(one), Some(other)) = pair {
                    (known, now, then) = (known + 1, now + one, then + other);
                }
            }
            if known > HOUR / 2 {
                all += day.weight;
                below += if now < MOVED * then { day.weight } else { 0.0 };
            }
        }
        below > all / 2.0
    }

    /// Forecasts the load from a minute until a pod that starts in it is ready.
    fn forecast(&mut self, minute: i64, settings: &Settings, cap: u16) {
        let horizon = settings.start() + 1;
        let buckets = (minute.div_euclid(BUCKET), (minute + horizon - 1).div_euclid(BUCKET));
        // The days before change only with the buckets.
        if self.analog.buckets != buckets {
            let quantiles = quantiles(self.analogs(buckets.0, buckets.1));
            self.analog = Analog { buckets, quantiles };
        }
        let rising = match self.loads {
            [Some(last), _, Some(before)] => Some(last + horizon as f32 * ((last - before) / 2.0).max(0.0)),
            [last, ..] => last,
        };
        let mut floors = [0; CANDIDATES];
        for (index, floor) in (0_u8..).zip(&mut floors) {
            let analog = usize::from(index) % QUANTILES.len();
            let analog = analog.checked_sub(1).and_then(|at| self.analog.quantiles?.get(at).copied());
            let pods = analog.unwrap_or_default() / UTILIZATION;
            let slope = rising.filter(|_| Candidate::at(index).slope).unwrap_or_default();
            *floor = ceil_to_count(pods.max(slope)).min(cap);
        }
        let band = self.analog.quantiles.map_or_else(
            || self.loads[0].map(|last| (last, last)),
            |[usual, .., high]| Some((usual, high.max(self.loads[0].unwrap_or_default()))),
        );
        let band = band.map(|(usual, high)| Band { usual, upper: high * self.widening.exp() });
        let active = match self.status(minute, settings) {
            Status::Active(candidate) => Some(candidate),
            _ => None,
        };
        if let Some(slot) = self.ring.get_mut(slot(minute, RING)) {
            *slot = Slot { minute, floors, asked: None, band, active };
        }
    }

    #[cfg(test)]
    pub(crate) fn floors(&self, now: Timestamp) -> Option<[u16; CANDIDATES]> {
        self.slot(now.as_second().div_euclid(60)).map(|slot| slot.floors)
    }

    fn status(&self, minute: i64, settings: &Settings) -> Status {
        if self.is_short(settings) {
            return Status::ShortHistory;
        }
        if minute < self.moved_until {
            return Status::Moved;
        }
        let Choice::Candidate(candidate) = self.choice else { return Status::Refused };
        let day = minute.div_euclid(1440);
        if self.spent.0 == day && self.spent.1 > 0.0 {
            let tally = self.ledger.tally(day);
            let budget = narrow(settings.budget) * tally.asked / tally.minutes.max(1.0) * 1440.0;
            if self.spent.1 > 2.0 * budget {
                return Status::DayBudget;
            }
        }
        Status::Active(candidate)
    }

    /// The forecast for the minute of `now`, with its reason.
    pub fn outlook(&self, now: Timestamp, settings: &Settings) -> Outlook {
        let minute = now.as_second().div_euclid(60);
        let tally = self.ledger.tally(minute.div_euclid(1440));
        let slot = self.slot(minute);
        let active = slot.and_then(|slot| slot.active);
        let proposed = slot.and_then(|slot| slot.floors.get(usize::from(active?)).map(|at| u32::from(*at)));
        Outlook {
            floor: proposed.filter(|_| settings.mode == Mode::Floor),
            proposed,
            candidate: active.map(Candidate::at),
            band: slot.and_then(|slot| slot.band),
            reason: slot.map_or(Reason::Stale, |_| self.reason(minute, active, &tally, settings)),
            tally,
        }
    }

    fn reason(&self, minute: i64, active: Option<u8>, tally: &Tally, settings: &Settings) -> Reason {
        let (known, needed, short) = (self.peaks.known_minutes(), settings.minimum_history, tally.short);
        if let Some(candidate) = active {
            let (extra, avoided) = tally.of(candidate);
            let Candidate { quantile, slope } = Candidate::at(candidate);
            let peaks = quantile.map(|_| self.peaks_of_days()).unwrap_or_default();
            return Reason::Pays { peaks, slope, avoided, short, extra: extra / tally.asked.max(1.0) };
        }
        match (self.status(minute, settings), self.choice) {
            (Status::ShortHistory, _) if self.replaced => Reason::OtherUid { known, needed },
            (Status::ShortHistory, _) => Reason::ShortHistory { known, needed },
            (Status::Moved, _) => Reason::Moved,
            (_, Choice::NoneAvoids) => Reason::NoneAvoids { short },
            (_, Choice::NonePays) => Reason::NonePays { short },
            (_, Choice::OverBudget) => Reason::OverBudget { short, budget: narrow(settings.budget) },
            (_, Choice::NoShortage) => Reason::NoShortage,
            (_, Choice::Candidate(_)) => Reason::DayBudget { spent: self.spent.1 },
        }
    }

    /// The peaks of the three days that count most, from the oldest.
    fn peaks_of_days(&self) -> Vec<(Weekday, f32)> {
        let (first, last) = self.analog.buckets;
        let [days, _] = &self.days.1;
        let found = self.analogs(first, last).into_iter().zip(days).rev();
        let mut peaks: Vec<_> = found
            .filter_map(|((code, weight), day)| Some((weight, day.weekday?, peaks::load(code)?)))
            .filter(|(weight, ..)| *weight > 0.0)
            .collect();
        while peaks.len() > 3 {
            let lightest = (0..).zip(&peaks).min_by(|(_, one), (_, other)| one.0.total_cmp(&other.0));
            let lightest = lightest.map_or(0, |(index, _)| index);
            peaks.remove(lightest);
        }
        peaks.into_iter().map(|(_, weekday, load)| (weekday, load)).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    ShortHistory,
    Moved,
    Refused,
    DayBudget,
    Active(u8),
}

/// The quantiles 0.5, 0.75, 0.9, 1 and 0.95 of the loads of earlier days. `None` if none is known.
fn quantiles(mut days: [(Code, f32); DAYS]) -> Option<[f32; 5]> {
    days.sort_unstable_by_key(|(code, _)| *code);
    let known = || days.iter().filter(|(code, weight)| *code != 0 && *weight > 0.0);
    let total: f32 = known().map(|(_, weight)| weight).sum();
    let highest = known().next_back()?.0;
    let quantile = |share: f32| {
        let mut sum = 0.0;
        let reaches = |(_, weight): &&(Code, f32)| {
            sum += weight;
            sum >= share * total - 1e-4
        };
        let code = known().find(reaches).map_or(highest, |(code, _)| *code);
        peaks::load(code).unwrap_or_default()
    };
    Some([quantile(0.5), quantile(0.75), quantile(0.9), quantile(1.0), quantile(0.95)])
}
