//! The search for better settings: a fast model orders them, replays with the controller's rules decide.

use autoscaling::spec::Behavior;
use backtest::contest;
use backtest::replay::{ReplayError, Run, Score, World, replay};
use backtest::series::Series;
use serde::Serialize;

use super::keda::ExternalMetric;
use super::model::{self, Cost, fraction};
use super::outcome::{Advised, Choice, Compared, Measured, Refusal, Sureness};
use super::rates::{self, Rates};
use super::recording::{Column, DAY, Load, Recording, index};

/// The part of the load on which settings are chosen.
pub(crate) const FITTED: f64 = 0.7;
/// The largest change of the target in one step, in points, and the distance of tried targets.
const STEP: i32 = 15;
const DISTANCE: i32 = 5;
/// The targets that may be advised.
const TARGETS: (i32, i32) = (10, 90);
/// The minutes that the pods must have been used near a higher target, and the points that count as near.
const SEEN: (usize, f64) = (30, 5.0);
/// The value of a pod-second of shortage, in pod-seconds.
const SHORTAGE_VALUE: f64 = 100.0;
/// The improvement from which settings are advised.
const WORTHWHILE: f64 = 0.02;
/// The most settings that are replayed exactly.
const SHORTLIST: usize = 3;
/// Unserved load in ppm from which an HPA is short.
const SHORT: f64 = 50.0;
/// The difference between recorded and replayed pods up to which a replay counts, and up to which an advice is sure.
const REPRODUCED: (f64, f64) = (0.15, 0.05);
/// The age of the metric in seconds.
const METRIC_AGE: i64 = 45;
/// The highest `maxReplicas` that is replayed.
const MOST_PODS: i32 = 5_000;
/// The minutes of a replay that only let it settle.
const SETTLING: usize = 60;
const WEEK: f64 = 7.0 * DAY as f64;

/// The settings of an HPA of today.
#[derive(Debug, Clone, PartialEq)]
pub struct Today {
    /// The settings that may change.
    pub choice: Choice,
    /// `behavior`, whose other fields stay.
    pub behavior: Option<Behavior>,
    /// `averageValue`, if this is the target: of cpu in cores, or of the external metric.
    pub average_value: Option<f64>,
    /// The external metric. `None` for cpu.
    pub external: Option<ExternalMetric>,
}

impl Today {
    /// Derives the target in percent of a pod's request, in cores, if the target is a value. That of an external metric
    /// is 100 % of itself.
    #[must_use]
    pub fn with_request(mut self, request: f64) -> Self {
        if let Some(value) = self.average_value {
            self.choice.target = i32::try_from(index(100.0 * value / request)).unwrap_or(i32::MAX).max(1);
        }
        self
    }

    /// Refuses an external metric that is not known to be a load that arrives.
    pub(crate) fn known_as_load(self) -> Result<Self, Refusal> {
        match self.external {
            Some(ExternalMetric { name, is_rate: false, .. }) => Err(Refusal::NoRate { metric: name }),
            _ => Ok(self),
        }
    }

    /// The HPA and its workload with other settings.
    pub(crate) fn world(&self, load: &Load, choice: Choice) -> World {
        let target = f64::from(choice.target) / load.capacity;
        // Without the field, the controller has other rules than those of its defaults.
        let is_own = self.behavior.is_some() || choice.scale_down_window_seconds != DEFAULT_WINDOW;
        let behavior = is_own.then(|| {
            let mut behavior = rates::complete(self.behavior.clone().unwrap_or_default(), choice);
            behavior.scale_down.stabilization_window_seconds = Some(choice.scale_down_window_seconds);
            behavior
        });
        World {
            metric: load.unit.metric(),
            target: i32::try_from(index(target)).unwrap_or(i32::MAX).max(1),
            min_replicas: choice.min_replicas,
            max_replicas: choice.max_replicas.min(MOST_PODS),
            behavior,
            pod_start: load.pod_start,
            metric_age: METRIC_AGE,
            seed: 1,
        }
    }
}

/// An advice for one HPA.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Proposal {
    /// The advised settings.
    #[serde(flatten)]
    pub advised: Advised,
    /// How sure the advice is.
    pub sureness: Sureness,
    /// Whether load was lost with the settings of today.
    pub is_short: bool,
    /// Better settings for a controller with floors from the load of earlier days, as Concertina's policies have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with_floor: Option<Advised>,
    /// What to look at after the step, and before the next one.
    pub look_at: String,
}

/// What the search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Search {
    /// The advice, or the reason against one.
    pub outcome: Result<Proposal, Refusal>,
    /// The count of each minute of the load with the settings of today.
    pub today: Vec<i32>,
    /// The count of each minute with the advised settings. Empty without an advice.
    pub advised: Vec<i32>,
    /// The unserved load of each minute with the settings of today, in pod-seconds.
    pub unserved: Vec<f64>,
}

impl Search {
    fn refused(refusal: Refusal, today: &Parts) -> Self {
        Self {
            outcome: Err(refusal),
            today: today.counts.clone(),
            advised: Vec::new(),
            unserved: today.unserved.clone(),
        }
    }
}

/// Replays of both parts of a load.
struct Parts {
    fitted: Score,
    judged: Score,
    counts: Vec<i32>,
    unserved: Vec<f64>,
}

/// A load that is searched.
struct Searched<'a> {
    today: &'a Today,
    load: &'a Load,
    /// The first judged minute.
    split: usize,
    /// The fitted minutes.
    fitted: Series,
    /// The judged minutes, after a day in which the replay settles.
    judged: Series,
}

/// Searches settings for an HPA.
///
/// # Errors
/// Returns the error of a constant of the replay, so none.
pub fn search(today: &Today, recording: &Recording, load: &Load) -> Result<Search, ReplayError> {
    let minutes = load.series.loads.len();
    let split = load.minute_of(FITTED);
    let part = |from: usize, to: usize| Series {
        start: load.series.time(from),
        loads: load.series.loads.get(from..to).unwrap_or_default().to_vec(),
    };
    let searched = Searched {
        today,
        load,
        split,
        fitted: part(0, split),
        judged: part(split.saturating_sub(DAY), minutes),
    };
    searched.search(recording)
}

impl Searched<'_> {
    fn search(&self, recording: &Recording) -> Result<Search, ReplayError> {
        let choice = self.today.choice;
        let (fitted, judged) = (self.fit(choice, &[])?, self.judge(choice, &[])?);
        let today = self.parts(fitted, &judged);
        let reproduced = match self.reproduced(recording, &today.counts) {
            Ok(difference) => difference,
            Err(refusal) => return Ok(Search::refused(refusal, &today)),
        };
        if let Err(refusal) = self.today.clone().known_as_load() {
            return Ok(Search::refused(refusal, &today));
        }
        let is_short = today.fitted.unserved_ppm() >= SHORT;
        let (mut candidates, unseen) = self.shortlist(&[]);
        candidates.extend(self.with_other_rates(candidates.first().copied(), is_short));
        let mut best: Option<(Choice, Run)> = None;
        let mut most = 0.0_f64;
        for candidate in candidates {
            let run = self.fit(candidate, &[])?;
            if !is_not_worse(&cost(&run.score), &cost(&today.fitted), self.fitted_minutes()) {
                continue;
            }
            most = most.max(1.0 - run.score.pod_seconds / today.fitted.pod_seconds.max(1.0));
            // Other rates change more than one number, so they are worth a percent.
            let margin = if candidate.keeps_rates() { 1.0 } else { 1.0 - WORTHWHILE / 2.0 };
            let is_better =
                |(_, other): &(Choice, Run)| value(&cost(&run.score)) < margin * value(&cost(&other.score));
            if best.as_ref().is_none_or(is_better) {
                best = Some((candidate, run));
            }
        }
        let worthwhile = (1.0 - WORTHWHILE) * value(&cost(&today.fitted));
        let found = best.filter(|(_, run)| value(&cost(&run.score)) <= worthwhile);
        let Some((advised, run)) = found else {
            let unseen =
                unseen.map(|target| Refusal::NeverSeen { target, highest: self.load.seen_for(SEEN.0) });
            let right = Refusal::AlreadyRight { best: most };
            return Ok(Search::refused(unseen.unwrap_or(right), &today));
        };
        let parts = self.parts(run, &self.judge(advised, &[])?);
        let advised = self.advised(advised, &today, &parts);
        if !is_not_worse(&cost(&parts.judged), &cost(&today.judged), self.judged_minutes())
            || value(&cost(&parts.judged)) > value(&cost(&today.judged))
        {
            let refusal = Refusal::NotConfirmed {
                fitted: advised.fitted.saved_share(),
                judged: advised.judged.saved_share(),
                unserved_today: today.judged.unserved_ppm(),
                unserved: parts.judged.unserved_ppm(),
            };
            return Ok(Search::refused(refusal, &today));
        }
        let proposal = Proposal {
            sureness: self.sureness(&advised, reproduced),
            is_short,
            with_floor: self.with_floor(&today, &parts, advised.settings)?,
            look_at: look_at(choice, advised.settings),
            advised,
        };
        Ok(Search {
            outcome: Ok(proposal),
            today: today.counts,
            advised: parts.counts,
            unserved: today.unserved,
        })
    }

    fn fit(&self, choice: Choice, floors: &[i32]) -> Result<Run, ReplayError> {
        replay(&self.fitted, &self.today.world(self.load, choice), floors, SETTLING)
    }

    fn judge(&self, choice: Choice, floors: &[i32]) -> Result<Run, ReplayError> {
        let settling = self.split.min(DAY);
        let floors = floors.get(self.split - settling..).unwrap_or_default();
        replay(&self.judged, &self.today.world(self.load, choice), floors, settling)
    }

    /// Joins the replays of both parts.
    fn parts(&self, fitted: Run, judged: &Run) -> Parts {
        let settling = self.split.min(DAY);
        let (mut counts, mut unserved) = (fitted.counts, fitted.unserved);
        counts.extend(judged.counts.get(settling..).unwrap_or_default());
        unserved.extend(judged.unserved.get(settling..).unwrap_or_default());
        Parts { fitted: fitted.score, judged: judged.score, counts, unserved }
    }

    fn fitted_minutes(&self) -> usize {
        self.fitted.loads.iter().skip(SETTLING).flatten().count()
    }

    fn judged_minutes(&self) -> usize {
        self.load.series.loads.iter().skip(self.split).flatten().count()
    }

    fn measured(score: &Score, minutes: usize) -> Measured {
        let weeks = minutes.max(1) as f64 / WEEK;
        let rounded = |value: f64| (value * 10.0).round() / 10.0;
        Measured {
            pod_hours_a_week: rounded(score.pod_hours() / weeks),
            unserved_ppm: rounded(score.unserved_ppm()),
            minutes_above80_a_week: rounded(f64::from(score.minutes_above_80) / weeks),
            rescales_a_week: rounded(f64::from(score.rescales) / weeks),
        }
    }

    fn advised(&self, settings: Choice, today: &Parts, parts: &Parts) -> Advised {
        let compared = |today: &Score, advised: &Score, minutes: usize| Compared {
            today: Self::measured(today, minutes),
            advised: Self::measured(advised, minutes),
        };
        Advised {
            settings,
            fitted: compared(&today.fitted, &parts.fitted, self.fitted_minutes()),
            judged: compared(&today.judged, &parts.judged, self.judged_minutes()),
        }
    }

    /// Compares the replay of today's settings with the recorded counts, where these settings applied. Returns the
    /// relative difference.
    fn reproduced(&self, recording: &Recording, counts: &[i32]) -> Result<f64, Refusal> {
        let choice = self.today.choice;
        let target = self.today.average_value.unwrap_or_else(|| choice.target.into());
        let applies = |column, minute, setting: f64| {
            recording.at(column, minute).is_none_or(|known| (known / setting - 1.0).abs() < 0.001)
        };
        let (mut recorded, mut replayed) = (0.0, 0.0);
        for (at, count) in counts.iter().enumerate().skip(SETTLING) {
            let minute = self.load.from + at;
            let pods = recording.at(Column::Replicas, minute).or_else(|| recording.at(Column::Ready, minute));
            let is_known = self.load.series.loads.get(at).is_some_and(Option::is_some)
                && applies(Column::Min, minute, choice.min_replicas.into())
                && applies(Column::Max, minute, choice.max_replicas.into())
                && applies(Column::Target, minute, target);
            if let Some(pods) = pods.filter(|_| is_known) {
                recorded += pods / 60.0;
                replayed += f64::from(*count) / 60.0;
            }
        }
        let difference = (replayed / recorded - 1.0).abs();
        // Without a recorded minute under today's settings, the difference is not a number.
        if difference <= REPRODUCED.0 {
            Ok(difference)
        } else {
            Err(Refusal::NotReproduced { recorded, replayed })
        }
    }

    /// The settings to replay, best first, and the target of better ones that the pods were never used near.
    fn shortlist(&self, floors: &[i32]) -> (Vec<Choice>, Option<i32>) {
        let today = self.today.choice;
        let minutes = self.fitted.loads.len();
        let run = |choice: Choice| model::run(self.load, choice, floors, minutes);
        let base = model::run(self.load, today, &[], minutes);
        let rank = |choices: Vec<Choice>| {
            let mut ranked: Vec<(f64, Choice)> = choices
                .into_iter()
                .map(|choice| (choice, run(choice)))
                .filter(|(_, cost)| is_not_worse(cost, &base, minutes))
                .map(|(choice, cost)| (value(&cost), choice))
                .collect();
            ranked.sort_by(|(a, _), (b, _)| a.total_cmp(b));
            ranked
        };
        let mut first = rank(self.grid(base.unserved / base.load.max(1.0) * 1e6 >= SHORT));
        first.truncate(2 * SHORTLIST);
        let windows = first.iter().flat_map(|(_, choice)| {
            [60, 120]
                .into_iter()
                .filter(|window| *window < today.scale_down_window_seconds)
                .map(|window| Choice { scale_down_window_seconds: window, ..*choice })
        });
        let mut ranked = rank(windows.collect());
        ranked.append(&mut first);
        ranked.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        ranked.retain(|(found, choice)| {
            (*choice != today || !floors.is_empty()) && *found <= (1.0 - WORTHWHILE / 2.0) * value(&base)
        });
        let seen = self.load.seen_for(SEEN.0) + SEEN.1;
        let is_seen = |choice: &Choice| {
            let is_bolder = choice.target > today.target || choice.min_replicas < today.min_replicas;
            !is_bolder || f64::from(choice.target) <= seen
        };
        let unseen = ranked.first().map(|(_, choice)| *choice).filter(|choice| !is_seen(choice));
        let allowed = ranked.into_iter().map(|(_, choice)| choice).filter(is_seen).take(SHORTLIST);
        (allowed.collect(), unseen.map(|choice| choice.target))
    }

    /// All tried targets and bounds.
    fn grid(&self, is_short: bool) -> Vec<Choice> {
        let today = self.today.choice;
        let steps = (-STEP / DISTANCE..=STEP / DISTANCE).map(|step| today.target + step * DISTANCE);
        let mut targets: Vec<i32> =
            steps.map(|target| target.clamp(TARGETS.0, TARGETS.1.max(today.target))).collect();
        targets.dedup();
        if self.today.external.is_some() {
            // What a pod can serve of an external metric is not known, only what its target is.
            targets = vec![today.target];
        }
        let mut mins = vec![today.min_replicas];
        let lower = [0.75, 0.5].map(|share| fraction(today.min_replicas, share));
        mins.extend(lower.into_iter().filter(|min| *min < today.min_replicas));
        if is_short {
            mins.push(today.min_replicas.saturating_add(1));
            mins.push(fraction(today.min_replicas, 1.5));
        }
        mins.retain(|min| *min <= today.max_replicas);
        mins.dedup();
        let mut maxes = vec![today.max_replicas];
        if is_short {
            maxes.push(today.max_replicas.saturating_mul(2).min(MOST_PODS.max(today.max_replicas)));
        }
        let choices = targets.iter().flat_map(|target| {
            let maxes = &maxes;
            mins.iter().flat_map(move |min| {
                maxes.iter().map(move |max| Choice {
                    target: *target,
                    min_replicas: *min,
                    max_replicas: *max,
                    ..today
                })
            })
        });
        choices.collect()
    }

    /// Settings with the default rates: those of today, and the best of others. The fast model has no rates, so all are
    /// replayed.
    fn with_other_rates(&self, best: Option<Choice>, is_short: bool) -> impl Iterator<Item = Choice> {
        let today = self.today.choice;
        let tried = rates::tried(self.today.behavior.as_ref(), is_short).into_iter();
        tried.flat_map(move |(scale_up_rates, scale_down_rates): (Rates, Rates)| {
            let choices = [Some(today), best].into_iter().flatten();
            choices.map(move |choice| Choice { scale_up_rates, scale_down_rates, ..choice })
        })
    }

    /// Settings with the floors of the forecast that are better than the advised ones.
    fn with_floor(
        &self,
        today: &Parts,
        advised: &Parts,
        settings: Choice,
    ) -> Result<Option<Advised>, ReplayError> {
        let world = self.today.world(self.load, self.today.choice);
        let forecast = forecast::Settings { mode: forecast::Mode::Floor, ..forecast::Settings::default() };
        let found = contest::floors(&self.load.series, &today.counts, &world, &forecast, self.split);
        if found.floors.iter().all(|floor| *floor == 0) {
            return Ok(None);
        }
        let (allowed, _) = self.shortlist(&found.floors);
        let Some(choice) = allowed.first().map(|choice| choice.with_rates_of(settings)) else {
            return Ok(None);
        };
        let parts = self.parts(self.fit(choice, &found.floors)?, &self.judge(choice, &found.floors)?);
        let is_better = |run: &Score, other: &Score, minutes| {
            is_not_worse(&cost(run), &cost(other), minutes)
                && value(&cost(run)) <= (1.0 - WORTHWHILE) * value(&cost(other))
        };
        let is_advised = is_better(&parts.fitted, &advised.fitted, self.fitted_minutes())
            && is_better(&parts.judged, &advised.judged, self.judged_minutes());
        Ok(is_advised.then(|| self.advised(choice, today, &parts)))
    }

    fn sureness(&self, advised: &Advised, reproduced: f64) -> Sureness {
        let difference = (advised.fitted.saved_share() - advised.judged.saved_share()).abs();
        if self.load.days() < 7.0 || difference > 0.05 {
            Sureness::Low
        } else if self.load.days() >= 10.0
            && !self.load.is_upper_bound
            && difference <= 0.02
            && reproduced <= REPRODUCED.1
        {
            Sureness::High
        } else {
            Sureness::Medium
        }
    }
}

/// The window of scale-downs without `behavior`, in seconds.
pub const DEFAULT_WINDOW: i32 = 300;

fn cost(score: &Score) -> Cost {
    let Score { load, unserved, pod_seconds, minutes_above_80, .. } = *score;
    Cost { load, unserved, pod_seconds, minutes_above_80 }
}

/// What a run costs, with its shortage.
fn value(cost: &Cost) -> f64 {
    cost.pod_seconds + SHORTAGE_VALUE * cost.unserved
}

/// Whether a run serves at least as well as today: 2 % and 5 ppm more of unserved load, and one minute in a thousand
/// more above 80 %, are taken as equal.
fn is_not_worse(cost: &Cost, today: &Cost, minutes: usize) -> bool {
    let ppm = |cost: &Cost| if cost.load > 0.0 { cost.unserved / cost.load * 1e6 } else { 0.0 };
    ppm(cost) <= 1.02 * ppm(today) + 5.0
        && f64::from(cost.minutes_above_80) <= f64::from(today.minutes_above_80) + minutes as f64 / 1000.0
}

/// What to look at after a change.
fn look_at(today: Choice, to: Choice) -> String {
    if to.target >= today.target + STEP || to.target + STEP <= today.target {
        "the latency of a week, then ask again: a step changes the target by at most 15 points".to_owned()
    } else if to.target > today.target || to.min_replicas < today.min_replicas {
        "the latency at the highest load of a week".to_owned()
    } else if !to.scale_down_rates.are_kept() {
        "the latency after each peak of a week".to_owned()
    } else {
        "the pods of a week".to_owned()
    }
}
