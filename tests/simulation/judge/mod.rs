//! The invariants that are checked at the cluster: at each request, at each answer and each second.

mod rules;
mod standing;
mod watched;

use std::time::Duration;

use serde_json::Value;

pub(crate) use self::rules::{Rescale, Rules};
use self::standing::Standing;
use self::watched::Watched;
use crate::ledger::Entry;
use crate::plan::{Class, Fault, FaultKind, Plan};
use crate::run::Violation;

/// A leader that could not renew for so long writes nothing any more.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// How long what a process sees may be behind, if nothing goes wrong with its watches.
const LAG: Duration = Duration::from_secs(2);
/// How long it may be behind while something is wrong with its watches: longer than any fault lasts.
const LONG_LAG: Duration = Duration::from_secs(150);
const PERIOD: Duration = Duration::from_secs(15);
/// How late a sync may be that nothing stands in the way of: the one before takes its time, a few requests each way.
const LATE: Duration = Duration::from_secs(4);
/// How long a fault, a start or a fail-over may keep syncs from being on time once it is over.
const AFTERMATH: Duration = Duration::from_mins(1);
/// After the end of a leader the next one has synced every HPA within so long.
const TAKEN_OVER: Duration = AFTERMATH;
/// How long before a write its decision may have been made while requests are slow.
const LONG_WAY: Duration = Duration::from_secs(30);
/// The longest period of a policy, with some room.
const LONGEST: Duration = Duration::from_secs(400);

/// What is wrong: the name of the invariant and what was seen.
pub(crate) type Finding = Option<(&'static str, String)>;

/// What is known of the world, to judge by.
#[derive(Debug)]
pub(crate) struct Judge {
    hpas: Vec<Watched>,
    processes: Vec<Standing>,
    has_election: bool,
    /// There are ConfigMaps to be read and written.
    has_checkpoint: bool,
    /// Until when views may be old.
    views_late_until: Duration,
    /// Until when what is written may have been decided long ago, by what was seen then: requests are slow.
    decisions_late_until: Duration,
    /// Until when rates are not judged: two lead at once, or clocks are wrong.
    rates_doubtful_until: Duration,
    /// What one process wrote down is old or yet to come by the clock of the next.
    clocks_differ: bool,
    /// Until when every sync may be late.
    disturbed_until: Duration,
    /// Until when a period may have requests that were told to come again.
    throttled_until: Duration,
    /// When nothing goes wrong any more.
    quiet: Duration,
    /// Until when events come that were held back, the first of a watch among them.
    late_events_until: Duration,
    /// When a process ended last.
    ended: Option<Duration>,
    /// When anything was rescaled last.
    pub(crate) rescaled: Duration,
    /// Who wrote the Lease last.
    leads: Option<(usize, u32)>,
    /// Until when two may lead at once, the Lease having been tampered with.
    leaders_doubtful_until: Duration,
    pub(crate) violations: Vec<Violation>,
}

impl Judge {
    pub(crate) fn new(plan: &Plan) -> Self {
        let scene = &plan.scene;
        Self {
            quiet: plan.quiet,
            late_events_until: Duration::ZERO,
            ended: None,
            rescaled: Duration::ZERO,
            leads: None,
            leaders_doubtful_until: Duration::ZERO,
            hpas: scene.hpas.iter().map(|_| Watched::default()).collect(),
            processes: (0..scene.processes).map(|_| Standing::new(0, scene.hpas.len())).collect(),
            has_election: scene.election,
            has_checkpoint: scene.checkpoint,
            views_late_until: Duration::ZERO,
            decisions_late_until: Duration::ZERO,
            rates_doubtful_until: Duration::ZERO,
            clocks_differ: false,
            disturbed_until: AFTERMATH,
            throttled_until: Duration::ZERO,
            violations: Vec::new(),
        }
    }

    // --- what is told

    /// A process begins a life.
    pub(crate) fn born(&mut self, process: usize, life: u32, now: Duration) {
        self.processes[process] = Standing::new(life, self.hpas.len());
        self.disturbed_until = self.disturbed_until.max(now + AFTERMATH);
    }

    /// A process ends, in whatever way.
    pub(crate) fn ended(&mut self, now: Duration) {
        self.hpas.iter_mut().for_each(Watched::is_left);
        self.ended = Some(now);
        if self.clocks_differ {
            self.rates_doubtful_until = self.rates_doubtful_until.max(now + LONGEST);
        }
        self.disturbed_until = self.disturbed_until.max(now + AFTERMATH);
        // Who scaled in between, a person or the process? Nothing in the cluster tells.
        for hpa in &mut self.hpas {
            if hpa.touched.is_some_and(|touched| touched + PERIOD * 2 > now) {
                hpa.rates_doubtful_until = now + LONGEST;
            }
        }
    }

    /// Somebody else changes what an HPA scales.
    pub(crate) fn touches(&mut self, hpa: usize, now: Duration) {
        self.hpas[hpa].touched = Some(now);
    }

    /// When somebody else last did.
    pub(crate) fn touched(&self, hpa: usize) -> Option<Duration> {
        self.hpas[hpa].touched
    }

    /// The HPA as it is now.
    pub(crate) fn seen(&mut self, hpa: usize, object: Option<&Value>, now: Duration) {
        self.hpas[hpa].becomes(object.map(Rules::of), now);
    }

    pub(crate) fn begins(&mut self, fault: &Fault, now: Duration) {
        use FaultKind as K;
        let late = |until: &mut Duration, by: Duration| *until = (*until).max(fault.until.max(now) + by);
        match fault.kind {
            K::ClockDrift => {
                self.clocks_differ = true;
                late(&mut self.rates_doubtful_until, LONGEST);
            }
            K::ClockJump => {
                self.clocks_differ = true;
                // What only a status tells is read after that as of another time.
                if self.ended.is_some_and(|ended| now < ended + TAKEN_OVER) {
                    late(&mut self.rates_doubtful_until, LONGEST);
                }
            }
            K::Throttle => late(&mut self.throttled_until, PERIOD),
            K::WatchLate => late(&mut self.late_events_until, Duration::from_millis(fault.amount)),
            K::LeaseDeleted | K::LeaseStolen => {
                late(&mut self.rates_doubtful_until, LONGEST);
                late(&mut self.leaders_doubtful_until, RENEW_DEADLINE + PERIOD);
            }
            _ => {}
        }
        let of_decisions = [K::MetricsSlow, K::Slow, K::Hang, K::Throttle, K::Storm, K::ResetBefore];
        if of_decisions.contains(&fault.kind) {
            late(&mut self.decisions_late_until, AFTERMATH);
        }
        let of_views = [
            K::Partition,
            K::Hang,
            K::Slow,
            K::Storm,
            K::Throttle,
            K::ResetBefore,
            K::ResetAfter,
            K::WatchCut,
            K::WatchHole,
            K::WatchLate,
            K::WatchSilent,
            K::WatchGone,
            K::ListGone,
            K::ListCut,
            K::Restart,
            K::CrashBefore,
            K::CrashAfter,
        ];
        let of_one_metric = [
            K::MetricsDown,
            K::MetricsSlow,
            K::MetricsPartial,
            K::MetricsStale,
            K::MetricsCut,
            K::MetricsKind,
            K::MetricsEmpty,
            K::MetricsHuge,
        ];
        if of_views.contains(&fault.kind) {
            late(&mut self.views_late_until, AFTERMATH);
        }
        match fault.hpa {
            Some(hpa) if of_one_metric.contains(&fault.kind) => {
                late(&mut self.hpas[hpa].disturbed_until, AFTERMATH);
            }
            _ => late(&mut self.disturbed_until, AFTERMATH),
        }
    }

    /// A process was shown this version of something.
    pub(crate) fn shown(&mut self, process: usize, life: u32, version: &str) {
        let standing = &mut self.processes[process];
        if standing.life == life {
            standing.versions.insert(version.to_owned());
        }
    }

    /// A process has synced an HPA: it has decided, and written the count if it wanted to.
    pub(crate) fn synced(&mut self, process: usize, life: u32, hpa: usize, now: Duration) {
        self.hpas[hpa].synced = now;
        let standing = &mut self.processes[process];
        if standing.life == life {
            standing.scales[hpa].synced(now);
        }
    }

    pub(crate) fn sent(&mut self, entry: &Entry) -> Finding {
        let finding = self
            .no_write_after_the_fence(entry)
            .or_else(|| self.one_writes_at_a_time(entry))
            .or_else(|| self.replicas_fit_a_count(entry))
            .or_else(|| self.requests_are_bounded(entry))
            .or_else(|| self.nothing_is_done_for_what_is_gone(entry))
            .or_else(|| self.a_status_is_written_over_what_was_seen(entry));
        if let Some(standing) = self.standing(entry) {
            standing.sent(entry);
        }
        finding
    }

    pub(crate) fn applied(&mut self, entry: &Entry, now: Duration) -> Finding {
        let finding = self
            .replicas_are_within_bounds(entry, now)
            .or_else(|| self.one_write_for_one_decision(entry))
            .or_else(|| self.a_scale_is_written_over_what_was_read(entry))
            .or_else(|| self.nothing_goes_down_while_a_metric_is_missing(entry, now))
            .or_else(|| self.rates_hold(entry, now));
        if let (Some(hpa), Class::ScalePut, true) = (entry.hpa, entry.class, entry.is_done()) {
            let again = self.standing(entry).is_some_and(|standing| standing.scales[hpa].again);
            self.hpas[hpa].rescaled(entry, now);
            if again {
                // It is remembered as it was decided, from the count that somebody else changed meanwhile.
                self.hpas[hpa].rates_doubtful_until = now + LONGEST;
            }
            self.rescaled = now;
        }
        if let (Some(hpa), Class::StatusPut, true) = (entry.hpa, entry.class, entry.is_done()) {
            self.hpas[hpa].is_told = true;
        }
        if entry.class == Class::LeaseWrite && entry.is_done() {
            self.leads = Some((entry.process, entry.life));
        }
        finding
    }

    /// An answer reached its process.
    pub(crate) fn answered(&mut self, entry: &Entry) {
        if let Some(standing) = self.standing(entry) {
            standing.answered(entry);
        }
    }

    pub(crate) fn second(&mut self, now: Duration) -> Finding {
        self.syncs_are_on_time(now).or_else(|| self.all_is_synced_again(now))
    }

    /// HPAs that have been gone for so long that nothing of them may be left.
    pub(crate) fn forgotten(&self, now: Duration) -> Vec<usize> {
        let is_gone = |hpa: &Watched| hpa.gone_since().is_some_and(|since| self.is_over(since, now));
        (0..self.hpas.len()).filter(|hpa| is_gone(&self.hpas[*hpa])).collect()
    }

    fn standing(&mut self, entry: &Entry) -> Option<&mut Standing> {
        Some(&mut self.processes[entry.process]).filter(|standing| standing.life == entry.life)
    }

    /// Whether something that was so at `since` must be known everywhere by now.
    fn is_over(&self, since: Duration, now: Duration) -> bool {
        now > self.views_late_until && now > since + PERIOD + LAG
    }

    /// How long a view may be behind now.
    fn lag(&self, now: Duration) -> Duration {
        let is_late = now < self.views_late_until.max(self.decisions_late_until);
        if is_late { LONG_LAG } else { LAG }
    }

    /// What an HPA asked for as long as a view may be behind.
    fn recent(&self, hpa: usize, now: Duration) -> Vec<Rules> {
        self.hpas[hpa].since(now.saturating_sub(self.lag(now)))
    }

    // --- the invariants

    /// 1. What is written lies between the bounds that the HPA has, or had as long as a view may be old, is never
    ///    negative, and is zero only where the HPA allows it.
    fn replicas_are_within_bounds(&self, entry: &Entry, now: Duration) -> Finding {
        let (hpa, replicas) = rescale(entry)?;
        let recent = self.recent(hpa, now);
        if recent.iter().any(|rules| rules.admits(replicas)) {
            return None;
        }
        Some(("replicas are within bounds", format!("{entry}; allowed is {recent:?}")))
    }

    /// 3. Nothing goes down, but to a bound, unless every metric was read: with an answer of 200 since the sync before.
    fn nothing_goes_down_while_a_metric_is_missing(&mut self, entry: &Entry, now: Duration) -> Finding {
        let (hpa, to) = rescale(entry)?;
        let from = entry.before.filter(|from| to < *from)?;
        let recent = self.recent(hpa, now);
        let scale = &self.standing(entry)?.scales[hpa];
        if scale.again {
            // It was decided from the count that somebody else changed meanwhile, and went up from there.
            return None;
        }
        let read = scale.metrics();
        let allowed = |rules: &Rules| rules.restores(from, to) || (read.1 == 0 && read.0 >= rules.queries);
        if recent.iter().any(allowed) {
            return None;
        }
        Some((
            "nothing goes down while a metric is missing",
            format!("{entry}; {} metrics were read, {} not", read.0, read.1),
        ))
    }

    /// 4. Rate policies hold over any period, whoever decides: by the rescales that the cluster has seen.
    fn rates_hold(&mut self, entry: &Entry, now: Duration) -> Finding {
        let (hpa, to) = rescale(entry)?;
        let from = entry.before?;
        if now < self.rates_doubtful_until.max(self.hpas[hpa].rates_doubtful_until)
            || self.standing(entry)?.scales[hpa].again
            // It may be another one's of its name.
            || (self.hpas[hpa].began > Duration::ZERO && entry.sent < self.hpas[hpa].began + self.lag(now))
        {
            return None;
        }
        let rescales = self.hpas[hpa].counted().to_vec();
        let recent = self.recent(hpa, now);
        let is_late = now < self.decisions_late_until;
        let decided = entry.sent.saturating_sub(if is_late { LONG_WAY } else { Duration::ZERO });
        let allowed = |rules: &Rules| {
            let limit = rules.limit(from, to, &rescales, decided..now);
            rules.restores(from, to)
                || (from == 0 && to == rules.min)
                || if to > from { to <= limit } else { to >= limit }
        };
        if to == from || recent.iter().any(allowed) {
            return None;
        }
        let limits: Vec<_> =
            recent.iter().map(|rules| rules.limit(from, to, &rescales, decided..now)).collect();
        Some(("rates hold", format!("{entry}; the policies allow {limits:?} after {rescales:?}")))
    }

    /// 5. Nothing is written by a process whose last renewal was sent longer ago than the renew deadline.
    fn no_write_after_the_fence(&self, entry: &Entry) -> Finding {
        if !entry.writes() || !self.has_election {
            return None;
        }
        let standing = &self.processes[entry.process];
        let renewed = standing.renewed.filter(|_| standing.life == entry.life);
        match renewed {
            Some(renewed) if entry.sent <= renewed + RENEW_DEADLINE => None,
            Some(renewed) => {
                Some(("no write after the fence", format!("{entry}; the Lease was renewed at {renewed:?}")))
            }
            None => Some(("no write after the fence", format!("{entry}; this process does not lead"))),
        }
    }

    /// 5. Only the one writes who wrote the Lease last.
    fn one_writes_at_a_time(&self, entry: &Entry) -> Finding {
        let leads = self.leads.filter(|leads| *leads != (entry.process, entry.life))?;
        let is_doubtful = !entry.writes() || entry.sent < self.leaders_doubtful_until;
        (!is_doubtful)
            .then(|| ("one writes at a time", format!("{entry}; the Lease was written by {leads:?} last")))
    }

    /// 1. A count that no server takes is not even sent, but where an HPA has it as a bound that no server takes either.
    fn replicas_fit_a_count(&self, entry: &Entry) -> Finding {
        let replicas = entry.replicas.filter(|_| entry.class == Class::ScalePut)?;
        let is_bound = |rules: &Rules| replicas == rules.min || replicas == rules.max;
        let asked_for = || self.recent(entry.hpa.unwrap_or(0), entry.sent).iter().any(is_bound);
        let fits = (0..=i64::from(i32::MAX)).contains(&replicas) || asked_for();
        (!fits).then(|| ("replicas are within bounds", entry.to_string()))
    }

    /// 5. One decision leads to one successful write of a Scale at most: before another the Scale is read again.
    fn one_write_for_one_decision(&mut self, entry: &Entry) -> Finding {
        let (hpa, _) = rescale(entry)?;
        let read = &mut self.standing(entry)?.scales[hpa];
        read.written += 1;
        (read.written > 1)
            .then(|| ("one write for one decision", format!("{entry}; after another since it was read")))
    }

    /// 5. A Scale is written with the version that was read: what somebody else did meanwhile is not undone unseen.
    fn a_scale_is_written_over_what_was_read(&mut self, entry: &Entry) -> Finding {
        let (hpa, _) = rescale(entry)?;
        let read = &self.standing(entry)?.scales[hpa].version;
        (entry.version.is_empty() || entry.version != *read).then(|| {
            (
                "a Scale is written over what was read",
                format!("{entry}; with version {:?}, read was {read:?}", entry.version),
            )
        })
    }

    /// 5. A status is written with a version that the process has seen.
    fn a_status_is_written_over_what_was_seen(&mut self, entry: &Entry) -> Finding {
        if entry.class != Class::StatusPut {
            return None;
        }
        let is_seen = self.standing(entry)?.versions.contains(&entry.version);
        (!is_seen).then(|| {
            ("a status is written over what was seen", format!("{entry}; with version {:?}", entry.version))
        })
    }

    /// 7. Whatever is wrong with one HPA, every other one is synced on time.
    fn syncs_are_on_time(&self, now: Duration) -> Finding {
        if now < self.disturbed_until || now < self.views_late_until {
            return None;
        }
        let is_late =
            |hpa: &Watched| now > hpa.disturbed_until.max(hpa.synced) + PERIOD + LATE && hpa.is_due();
        let late = self.hpas.iter().position(is_late)?;
        Some(("syncs are on time", format!("h{late} was synced at {:?} last", self.hpas[late].synced)))
    }

    /// 6. Two periods after the last fault every HPA was synced again.
    fn all_is_synced_again(&self, now: Duration) -> Finding {
        let quiet = self.quiet.max(self.late_events_until);
        if now < quiet + PERIOD * 2 + LATE || now > quiet + PERIOD * 3 {
            return None;
        }
        let late = self.hpas.iter().position(|hpa| hpa.is_due() && hpa.synced < quiet)?;
        Some(("all is synced again", format!("h{late} was synced at {:?} last", self.hpas[late].synced)))
    }

    /// 8. No process sends more requests in a period than its HPAs need, and a bounded number of repetitions.
    fn requests_are_bounded(&mut self, entry: &Entry) -> Finding {
        let since = entry.sent.saturating_sub(PERIOD);
        let needed: usize = self.hpas.iter().map(|hpa| hpa.requests(since)).sum();
        let standing = self.standing(entry)?;
        let made = standing.in_a_period(entry.sent, PERIOD);
        // With a checkpoint, two for each of its parts and once more after a failure.
        let most = 60 + 2 * needed + if self.has_checkpoint { 40 } else { 0 };
        // Told to come again at once, each comes ten times more at most, as client-go has it.
        let most = if entry.sent < self.throttled_until { 11 * most } else { most };
        (made > most)
            .then(|| ("requests are bounded", format!("{made} requests in a period, the last one {entry}")))
    }

    /// 9. Nothing is done any more for an HPA that is gone.
    fn nothing_is_done_for_what_is_gone(&self, entry: &Entry) -> Finding {
        let gone = self.hpas[entry.hpa?].gone_since()?;
        let is_over = self.is_over(gone, entry.sent);
        is_over.then(|| ("nothing is done for what is gone", format!("{entry}; it is gone since {gone:?}")))
    }
}

/// The HPA and the count of a rescale that took place.
fn rescale(entry: &Entry) -> Option<(usize, i64)> {
    let replicas = entry.replicas.filter(|_| entry.class == Class::ScalePut && entry.is_done())?;
    Some((entry.hpa?, replicas))
}
