//! The invariants, numbered as in docs/internals/simulation.md. They are checked on every request and response at the
//! cluster, and every second.

mod rules;
mod state;

use std::time::Duration;

use flags::config::TakeOver;
use serde_json::Value;

pub(crate) use self::rules::{Rescale, Rules};
use self::state::{HpaState, ProcessState};
use crate::faults::RESTORE_UNNOTICED;
use crate::plan::{Class, Fault, FaultKind, Plan};
use crate::request_log::Entry;
use crate::run::Violation;

/// Time since the last renewal after which a leader must not write.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Maximum age of a process's view while its watches have no fault.
const LAG: Duration = Duration::from_secs(2);
/// Maximum age of a view while a fault affects watches: longer than any fault without its aftermath.
const LONG_LAG: Duration = Duration::from_secs(150);
const PERIOD: Duration = Duration::from_secs(15);
/// Maximum lateness of an undisturbed sync: the duration of the previous sync and a few requests.
const MAX_LATENESS: Duration = Duration::from_secs(4);
/// Time after a fault, a start or a failover in which syncs may be late.
const AFTERMATH: Duration = Duration::from_mins(1);
/// After a leader has stopped, the next leader syncs every HPA within this time.
const HANDOVER: Duration = AFTERMATH;
/// Maximum time between a decision and its write while requests are slow.
const SLOW_WRITE: Duration = Duration::from_secs(30);
/// Requests of a process per period while nothing changes, without requests for its HPAs: eight for the Lease, eight
/// for discovery, four for watches that end.
const CALM: usize = 20;
/// Requests of a process for hostile tenants per period: four clients with 20 requests per second and
/// bursts of 30.
const TENANTS: usize = 4 * (20 * 15 + 30);
/// The longest policy period plus a margin.
const LONGEST_PERIOD: Duration = Duration::from_secs(400);

/// A violation: the name of the invariant and the evidence.
pub(crate) type Finding = Option<(&'static str, String)>;

/// The observed state of the cluster and its processes, for checks of the invariants.
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact about the world")]
#[derive(Debug)]
pub(crate) struct Invariants {
    hpas: Vec<HpaState>,
    processes: Vec<ProcessState>,
    has_election: bool,
    /// Whether processes run with `--takeover=wait`.
    waits: bool,
    /// Time of the last status write by another controller.
    other_controller: Option<Duration>,
    /// Whether a checkpoint is read and written.
    has_checkpoint: bool,
    /// Maximum age of a view while a fault affects watches.
    longest_lag: Duration,
    /// Time until which views may be stale.
    views_late_until: Duration,
    /// Time until which faults break watches.
    watches_break_until: Duration,
    /// Time until which watches may continue from a version that a restore of etcd has lost.
    restore_unnoticed_until: Duration,
    /// Time until which writes may follow from earlier decisions and stale views, because requests are slow.
    decisions_late_until: Duration,
    /// Time until which rates are not checked, because two processes may lead or clocks are wrong.
    rates_doubtful_until: Duration,
    /// Whether the clocks of processes may differ, so that a time recorded by one process is wrong for another.
    clocks_differ: bool,
    /// Time until which every sync may be late.
    disturbed_until: Duration,
    /// Time until which a period may contain repetitions of throttled requests.
    throttled_until: Duration,
    /// Time after which no fault occurs except hostile tenants.
    quiet: Duration,
    /// Time until which delayed watch events arrive, including the first event of a watch.
    late_events_until: Duration,
    /// Time of the last crash or orderly shutdown of a process.
    ended: Option<Duration>,
    /// Time of the last rescale of any target.
    pub(crate) rescaled: Duration,
    /// Process and lifetime that wrote the Lease last.
    lease_writer: Option<(usize, u32)>,
    /// Time until which two processes may lead, because another client changed the Lease.
    leaders_doubtful_until: Duration,
    pub(crate) violations: Vec<Violation>,
}

impl Invariants {
    pub(crate) fn new(plan: &Plan) -> Self {
        let scene = &plan.scene;
        Self {
            quiet: plan.quiet,
            late_events_until: Duration::ZERO,
            ended: None,
            rescaled: Duration::ZERO,
            lease_writer: None,
            leaders_doubtful_until: Duration::ZERO,
            hpas: scene.hpas.iter().map(|_| HpaState::default()).collect(),
            processes: (0..scene.processes)
                .map(|_| ProcessState::new(0, scene.hpas.len(), Duration::ZERO))
                .collect(),
            has_election: scene.election,
            waits: scene.takeover == TakeOver::Wait,
            other_controller: None,
            has_checkpoint: scene.checkpoint,
            longest_lag: LONG_LAG + plan.faults.iter().map(Fault::aftermath).max().unwrap_or_default(),
            views_late_until: Duration::ZERO,
            watches_break_until: Duration::ZERO,
            restore_unnoticed_until: Duration::ZERO,
            decisions_late_until: Duration::ZERO,
            rates_doubtful_until: Duration::ZERO,
            clocks_differ: false,
            disturbed_until: AFTERMATH,
            throttled_until: Duration::ZERO,
            violations: Vec::new(),
        }
    }

    // --- observations

    /// Records that a process starts a lifetime.
    pub(crate) fn life_started(&mut self, process: usize, life: u32, now: Duration) {
        self.processes[process] = ProcessState::new(life, self.hpas.len(), now);
        self.disturbed_until = self.disturbed_until.max(now + AFTERMATH);
    }

    /// Records a crash or an orderly shutdown of a process.
    pub(crate) fn ended(&mut self, now: Duration) {
        self.hpas.iter_mut().for_each(HpaState::process_ended);
        self.ended = Some(now);
        if self.clocks_differ {
            self.rates_doubtful_until = self.rates_doubtful_until.max(now + LONGEST_PERIOD);
        }
        self.disturbed_until = self.disturbed_until.max(now + AFTERMATH);
        // Nothing in the cluster shows whether a user or the process scaled last.
        for hpa in &mut self.hpas {
            if hpa.last_foreign_change.is_some_and(|at| at + PERIOD * 2 > now) {
                hpa.rates_doubtful_until = now + LONGEST_PERIOD;
            }
        }
    }

    /// Records a foreign change of an HPA or its target.
    pub(crate) fn foreign_change(&mut self, hpa: usize, now: Duration) {
        self.hpas[hpa].last_foreign_change = Some(now);
    }

    /// Time of the last foreign change of an HPA or its target.
    pub(crate) fn last_foreign_change(&self, hpa: usize) -> Option<Duration> {
        self.hpas[hpa].last_foreign_change
    }

    /// Records the current state of an HPA, or `None` if the HPA does not exist.
    pub(crate) fn hpa_changed(&mut self, hpa: usize, object: Option<&Value>, now: Duration) {
        self.hpas[hpa].update(object.map(Rules::from_object), now);
    }

    /// Records that another controller writes a status.
    pub(crate) fn other_controller_wrote(&mut self, now: Duration) {
        self.other_controller = Some(now);
    }

    /// Records that the cluster has lost its last changes.
    pub(crate) fn etcd_restored(&mut self, now: Duration) {
        for hpa in &mut self.hpas {
            hpa.has_status = false;
        }
        self.rescaled = now;
    }

    pub(crate) fn fault_started(&mut self, fault: &Fault, now: Duration) {
        use FaultKind as K;
        if fault.kind.is_tenant() {
            return;
        }
        let ends = self.end_of_effect(fault, now);
        let late = |until: &mut Duration, by: Duration| *until = (*until).max(ends + by);
        match fault.kind {
            K::ClockDrift => {
                self.clocks_differ = true;
                late(&mut self.rates_doubtful_until, LONGEST_PERIOD);
            }
            K::ClockJump => {
                self.clocks_differ = true;
                // A restarted process compares the times in a status with its own clock, which is wrong.
                if self.ended.is_some_and(|ended| now < ended + HANDOVER) {
                    late(&mut self.rates_doubtful_until, LONGEST_PERIOD);
                }
            }
            // The next leader can write while the process still ends.
            K::Restart if self.clocks_differ => late(&mut self.rates_doubtful_until, LONGEST_PERIOD),
            K::Throttle => late(&mut self.throttled_until, PERIOD),
            K::WatchLate => late(&mut self.late_events_until, Duration::from_millis(fault.amount)),
            K::LeaseDeleted | K::LeaseStolen | K::EtcdRestored => {
                late(&mut self.rates_doubtful_until, LONGEST_PERIOD);
                late(&mut self.leaders_doubtful_until, RENEW_DEADLINE + PERIOD);
            }
            _ => {}
        }
        let delay_decisions =
            [K::MetricsSlow, K::Slow, K::Hang, K::Throttle, K::Storm, K::Unauthorized, K::ResetBefore];
        if delay_decisions.contains(&fault.kind) {
            late(&mut self.decisions_late_until, AFTERMATH);
        }
        let affect_one_metric = [
            K::MetricsDown,
            K::MetricsSlow,
            K::MetricsPartial,
            K::MetricsStale,
            K::MetricsCut,
            K::MetricsKind,
            K::MetricsEmpty,
            K::MetricsHuge,
        ];
        if fault.delays_views() {
            late(&mut self.views_late_until, AFTERMATH);
        }
        match fault.hpa {
            Some(hpa) if affect_one_metric.contains(&fault.kind) => {
                late(&mut self.hpas[hpa].disturbed_until, AFTERMATH);
            }
            _ => late(&mut self.disturbed_until, AFTERMATH),
        }
    }

    /// Time at which the effect of a fault ends. A watch that breaks while a restore of etcd is unnoticed restarts the
    /// two silences that cause a list.
    fn end_of_effect(&mut self, fault: &Fault, now: Duration) -> Duration {
        let until = fault.until.max(now);
        if fault.delays_views() {
            self.watches_break_until = self.watches_break_until.max(until);
            if fault.loses_versions() || now < self.restore_unnoticed_until {
                self.restore_unnoticed_until = self.watches_break_until + RESTORE_UNNOTICED;
                return self.restore_unnoticed_until;
            }
        }
        until + fault.aftermath()
    }

    /// Records that a process received an object with `version`.
    pub(crate) fn received(&mut self, process: usize, life: u32, version: &str) {
        let standing = &mut self.processes[process];
        if standing.life == life {
            standing.versions.insert(version.to_owned());
        }
    }

    /// Records that a process finished a sync of an HPA, including any scale write.
    pub(crate) fn synced(&mut self, process: usize, life: u32, hpa: usize, now: Duration) {
        self.hpas[hpa].synced = now;
        let standing = &mut self.processes[process];
        if standing.life == life {
            standing.scales[hpa].synced(now);
        }
    }

    pub(crate) fn sent(&mut self, entry: &Entry) -> Finding {
        let finding = self
            .no_write_after_the_deadline(entry)
            .or_else(|| self.only_the_lease_writer_writes(entry))
            .or_else(|| self.no_write_beside_another_controller(entry))
            .or_else(|| self.replicas_fit_int32(entry))
            .or_else(|| self.requests_are_bounded(entry))
            .or_else(|| self.no_requests_for_deleted_hpas(entry))
            .or_else(|| self.status_writes_use_a_received_version(entry));
        if let Some(standing) = self.current_life(entry) {
            standing.sent(entry);
        }
        finding
    }

    pub(crate) fn applied(&mut self, entry: &Entry, now: Duration) -> Finding {
        let finding = self
            .replicas_are_within_bounds(entry, now)
            .or_else(|| self.one_write_per_decision(entry))
            .or_else(|| self.scale_writes_use_the_version_read(entry))
            .or_else(|| self.no_scale_down_while_a_metric_is_missing(entry, now))
            .or_else(|| self.rate_policies_hold(entry, now));
        if let (Some(hpa), Class::ScalePut, true) = (entry.hpa, entry.class, entry.is_done()) {
            let again = self.current_life(entry).is_some_and(|standing| standing.scales[hpa].again);
            if let (Some(from), Some(to)) = (entry.before, entry.replicas) {
                self.hpas[hpa].rescaled(from, to, now, self.longest_lag);
            }
            if again {
                // The history records the decision, which started from the count before the foreign change.
                self.hpas[hpa].rates_doubtful_until = now + LONGEST_PERIOD;
            }
            self.rescaled = now;
        }
        if let (Some(hpa), Class::StatusPut, true) = (entry.hpa, entry.class, entry.is_done()) {
            self.hpas[hpa].has_status = true;
        }
        if entry.class == Class::LeaseWrite && entry.is_done() {
            self.lease_writer = Some((entry.process, entry.life));
        }
        finding
    }

    /// Records that a response reached its process.
    pub(crate) fn answered(&mut self, entry: &Entry) {
        if let Some(standing) = self.current_life(entry) {
            standing.answered(entry);
        }
    }

    pub(crate) fn second(&mut self, now: Duration) -> Finding {
        self.syncs_are_on_time(now).or_else(|| self.hpas_are_synced_after_the_faults(now))
    }

    /// Time of the last creation of an HPA of this name. A restore of etcd may create it with an earlier UID.
    pub(crate) fn created(&self, hpa: usize) -> Duration {
        self.hpas[hpa].created
    }

    /// HPAs that were deleted so long ago that no state of them may remain.
    pub(crate) fn long_deleted(&self, now: Duration) -> Vec<usize> {
        let is_gone =
            |hpa: &HpaState| hpa.deleted_since().is_some_and(|since| self.must_be_known(since, now));
        (0..self.hpas.len()).filter(|hpa| is_gone(&self.hpas[*hpa])).collect()
    }

    fn current_life(&mut self, entry: &Entry) -> Option<&mut ProcessState> {
        Some(&mut self.processes[entry.process]).filter(|standing| standing.life == entry.life)
    }

    /// Whether every process must have observed a change from time `since`.
    fn must_be_known(&self, since: Duration, now: Duration) -> bool {
        now > self.views_late_until && now > since + PERIOD + LAG
    }

    /// Current maximum age of a view.
    fn lag(&self, now: Duration) -> Duration {
        let is_late = now < self.views_late_until.max(self.decisions_late_until);
        if is_late { self.longest_lag } else { LAG }
    }

    /// The rules that an HPA had within the maximum age of a view.
    fn recent(&self, hpa: usize, now: Duration) -> Vec<Rules> {
        self.hpas[hpa].since(now.saturating_sub(self.lag(now)))
    }

    // --- the invariants

    /// Invariant 1: a written count lies within bounds that the HPA has, or had within the maximum age of a view. It is
    /// never negative, and zero only if the HPA allows it.
    fn replicas_are_within_bounds(&self, entry: &Entry, now: Duration) -> Finding {
        let (hpa, replicas) = rescale(entry)?;
        let recent = self.recent(hpa, now);
        if recent.iter().any(|rules| rules.admits(replicas)) {
            return None;
        }
        Some(("replicas are within bounds", format!("{entry}; the bounds are {recent:?}")))
    }

    /// Invariant 3: a scale-down requires a recent 200 response for every metric. A return to a bound is exempt.
    fn no_scale_down_while_a_metric_is_missing(&mut self, entry: &Entry, now: Duration) -> Finding {
        let (hpa, to) = rescale(entry)?;
        let from = entry.before.filter(|from| to < *from)?;
        let recent = self.recent(hpa, now);
        let scale = &self.current_life(entry)?.scales[hpa];
        if scale.again {
            // The decision scaled up from the count before a foreign change.
            return None;
        }
        let read = scale.metrics();
        let allowed = |rules: &Rules| rules.restores(from, to) || (read.1 == 0 && read.0 >= rules.queries);
        if recent.iter().any(allowed) {
            return None;
        }
        Some((
            "no scale-down while a metric is missing",
            format!("{entry}; {} metrics were read, {} failed", read.0, read.1),
        ))
    }

    /// Invariant 4: the rescales that the cluster applied exceed no rate policy over any period, for all writers
    /// together.
    fn rate_policies_hold(&mut self, entry: &Entry, now: Duration) -> Finding {
        let (hpa, to) = rescale(entry)?;
        let from = entry.before?;
        if now < self.rates_doubtful_until.max(self.hpas[hpa].rates_doubtful_until)
            || self.current_life(entry)?.scales[hpa].again
            // The write may concern a deleted HPA of the same name.
            || (self.hpas[hpa].created > Duration::ZERO && entry.sent < self.hpas[hpa].created + self.lag(now))
        {
            return None;
        }
        let rescales = self.hpas[hpa].counted().to_vec();
        let recent = self.recent(hpa, now);
        let is_late = now < self.decisions_late_until;
        let decided = entry.sent.saturating_sub(if is_late { SLOW_WRITE } else { Duration::ZERO });
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
        Some(("rate policies hold", format!("{entry}; the policies allow {limits:?} after {rescales:?}")))
    }

    /// Invariant 5: a process writes nothing once the renew deadline has passed since it sent its last renewal.
    fn no_write_after_the_deadline(&self, entry: &Entry) -> Finding {
        if !entry.writes() || !self.has_election {
            return None;
        }
        let standing = &self.processes[entry.process];
        let renewed = standing.renewed.filter(|_| standing.life == entry.life);
        match renewed {
            Some(renewed) if entry.sent <= renewed + RENEW_DEADLINE => None,
            Some(renewed) => Some((
                "no write after the renew deadline",
                format!("{entry}; the Lease was renewed at {renewed:?}"),
            )),
            None => Some((
                "no write after the renew deadline",
                format!("{entry}; this process is not the leader"),
            )),
        }
    }

    /// Invariant 5: only the process with the latest write of the Lease writes Scales, statuses and events.
    fn only_the_lease_writer_writes(&self, entry: &Entry) -> Finding {
        let writer = self.lease_writer.filter(|writer| *writer != (entry.process, entry.life))?;
        let is_doubtful = !entry.writes() || entry.sent < self.leaders_doubtful_until;
        (!is_doubtful)
            .then(|| ("only the Lease writer writes", format!("{entry}; {writer:?} wrote the Lease last")))
    }

    /// Invariant 5: with `--takeover=wait`, a process writes no Scale and no status for two periods after a write of
    /// another controller.
    fn no_write_beside_another_controller(&self, entry: &Entry) -> Finding {
        if !self.waits || !matches!(entry.class, Class::ScalePut | Class::StatusPut) {
            return None;
        }
        let wrote = self.other_controller?;
        let is_observed = self.processes[entry.process].started + AFTERMATH < wrote;
        let is_quiet = entry.sent > wrote + LAG && entry.sent < wrote + PERIOD * 2;
        (is_observed && is_quiet && entry.sent > self.views_late_until).then(|| {
            ("no write beside another controller", format!("{entry}; another controller wrote at {wrote:?}"))
        })
    }

    /// Invariant 1: no count outside of int32 is sent, unless it is a bound of the HPA. No API server accepts such a
    /// bound.
    fn replicas_fit_int32(&self, entry: &Entry) -> Finding {
        let replicas = entry.replicas.filter(|_| entry.class == Class::ScalePut)?;
        let is_bound = |rules: &Rules| replicas == rules.min || replicas == rules.max;
        let is_a_bound = || self.recent(entry.hpa.unwrap_or(0), entry.sent).iter().any(is_bound);
        let fits = (0..=i64::from(i32::MAX)).contains(&replicas) || is_a_bound();
        (!fits).then(|| ("replicas are within bounds", entry.to_string()))
    }

    /// Invariant 5: one decision leads to at most one successful write of a Scale. The Scale is read again before the
    /// next write.
    fn one_write_per_decision(&mut self, entry: &Entry) -> Finding {
        let (hpa, _) = rescale(entry)?;
        let read = &mut self.current_life(entry)?.scales[hpa];
        read.written += 1;
        (read.written > 1).then(|| {
            ("one write for one decision", format!("{entry}; it is not the first since the Scale was read"))
        })
    }

    /// Invariant 5: a Scale is written with the version that was read, so that no foreign write is overwritten.
    fn scale_writes_use_the_version_read(&mut self, entry: &Entry) -> Finding {
        let (hpa, _) = rescale(entry)?;
        let read = &self.current_life(entry)?.scales[hpa].version;
        (entry.version.is_empty() || entry.version != *read).then(|| {
            (
                "a Scale write uses the version read",
                format!("{entry}; its version is {:?}, the version read is {read:?}", entry.version),
            )
        })
    }

    /// Invariant 5: a status is written with a version that the process received.
    fn status_writes_use_a_received_version(&mut self, entry: &Entry) -> Finding {
        if entry.class != Class::StatusPut {
            return None;
        }
        let is_seen = self.current_life(entry)?.versions.contains(&entry.version);
        (!is_seen).then(|| {
            ("a status write uses a received version", format!("{entry}; its version is {:?}", entry.version))
        })
    }

    /// Invariant 7: a fault of one HPA does not delay the syncs of the others.
    fn syncs_are_on_time(&self, now: Duration) -> Finding {
        if now < self.disturbed_until || now < self.views_late_until {
            return None;
        }
        let is_late = |hpa: &HpaState| {
            let latest = hpa.disturbed_until.max(hpa.synced) + PERIOD + MAX_LATENESS + hpa.own_delay();
            now > latest && hpa.is_due()
        };
        let late = self.hpas.iter().position(is_late)?;
        Some(("syncs are on time", format!("h{late} was last synced at {:?}", self.hpas[late].synced)))
    }

    /// Invariant 6: two periods after the last fault, every HPA has been synced again.
    fn hpas_are_synced_after_the_faults(&self, now: Duration) -> Finding {
        let quiet = self.quiet.max(self.late_events_until);
        if now < quiet + PERIOD * 2 + MAX_LATENESS || now > quiet + PERIOD * 3 {
            return None;
        }
        let late = self.hpas.iter().position(|hpa| hpa.is_due() && hpa.synced < quiet)?;
        Some((
            "HPAs are synced after the faults",
            format!("h{late} was last synced at {:?}", self.hpas[late].synced),
        ))
    }

    /// Invariant 8: the requests of a process per period are bounded by the needs of its HPAs and a number of
    /// repetitions.
    fn requests_are_bounded(&mut self, entry: &Entry) -> Finding {
        let since = entry.sent.saturating_sub(PERIOD + self.lag(entry.sent));
        let needed: usize = self.hpas.iter().map(|hpa| hpa.requests(since)).sum();
        let standing = self.current_life(entry)?;
        let made = standing.in_a_period(entry, PERIOD);
        let needed = if entry.is_tenant { TENANTS } else { needed };
        // In a period, an HPA is synced at its offset, after an edit, and once more after another edit or a takeover. A
        // checkpoint adds two requests per part, and one more after a failure.
        let most = 60 + 3 * needed + if self.has_checkpoint { 40 } else { 0 };
        // Each throttled request is retried at most ten times, as in client-go.
        let most = if entry.sent < self.throttled_until { 11 * most } else { most };
        let most = if self.is_calm(entry.sent) && !entry.is_tenant { self.calm_requests() } else { most };
        (made > most).then(|| {
            ("requests are bounded", format!("{made} requests in a period, the last one is {entry}"))
        })
    }

    /// Whether nothing has changed for a while: no fault, no user action, no rescale. Always false with a checkpoint,
    /// because a checkpoint may be written at any time.
    fn is_calm(&self, now: Duration) -> bool {
        let disturbed = self.hpas.iter().map(|hpa| hpa.disturbed_until).max().unwrap_or_default();
        now > self.quiet + AFTERMATH
            && now > self.disturbed_until.max(disturbed).max(self.throttled_until).max(self.views_late_until)
            && now > self.rescaled + PERIOD * 2
            && !self.has_checkpoint
    }

    /// One and a half times the requests that a process needs per period while nothing changes.
    fn calm_requests(&self) -> usize {
        let needed = CALM + self.hpas.iter().map(HpaState::calm_requests).sum::<usize>();
        needed + needed / 2
    }

    /// Invariant 9: no requests are sent for a deleted HPA.
    fn no_requests_for_deleted_hpas(&self, entry: &Entry) -> Finding {
        let deleted = self.hpas[entry.hpa?].deleted_since()?;
        let must_be_known = self.must_be_known(deleted, entry.sent);
        must_be_known
            .then(|| ("no requests for deleted HPAs", format!("{entry}; it was deleted at {deleted:?}")))
    }
}

/// The HPA and the count of a Scale write that the cluster applied.
fn rescale(entry: &Entry) -> Option<(usize, i64)> {
    let replicas = entry.replicas.filter(|_| entry.class == Class::ScalePut && entry.is_done())?;
    Some((entry.hpa?, replicas))
}
