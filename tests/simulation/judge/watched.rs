//! An HPA and its target, as the judge knows them.

use std::time::Duration;

use super::{LONG_LAG, PERIOD, Rescale, Rules};
use crate::ledger::Entry;

/// The most events that are told of one object at once.
const EVENTS: usize = 30;

/// An HPA and its target.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// What it allows, since when; none while it is not there.
    versions: Vec<(Duration, Option<Rules>)>,
    rescales: Vec<Rescale>,
    /// Since when it is there, or was.
    pub(super) began: Duration,
    /// Whether a controller has written its status.
    pub(super) is_told: bool,
    /// When it was synced last.
    pub(super) synced: Duration,
    /// When somebody else gave its target a count.
    pub(super) touched: Option<Duration>,
    /// Until when its rates are not judged.
    pub(super) rates_doubtful_until: Duration,
    /// Until when its own syncs may be late.
    pub(super) disturbed_until: Duration,
}

impl Watched {
    pub(super) fn becomes(&mut self, rules: Option<Rules>, now: Duration) {
        if self.versions.last().is_none_or(|(_, last)| *last != rules) {
            self.disturbed_until = self.disturbed_until.max(now + PERIOD);
            if rules.is_none() {
                self.is_told = false;
            } else if self.now().is_none() {
                // Another of its name had no past; what the last one asked for may still be on its way.
                self.rescales.clear();
                self.began = now;
            }
            self.versions.push((now, rules));
        }
    }

    /// All that it allowed since then.
    pub(super) fn since(&self, since: Duration) -> Vec<Rules> {
        self.rules(since).cloned().collect()
    }

    fn rules(&self, since: Duration) -> impl Iterator<Item = &Rules> {
        let ends = self.versions.iter().skip(1).map(|(from, _)| *from).chain([Duration::MAX]);
        let recent = self.versions.iter().zip(ends).filter(move |(_, end)| *end >= since);
        recent.filter_map(|((_, rules), _)| rules.as_ref())
    }

    fn now(&self) -> Option<&Rules> {
        self.versions.last().and_then(|(_, rules)| rules.as_ref())
    }

    pub(super) fn is_due(&self) -> bool {
        self.now().is_some_and(|rules| rules.has_target)
    }

    pub(super) fn gone_since(&self) -> Option<Duration> {
        self.versions.last().filter(|(_, rules)| rules.is_none()).map(|(since, _)| *since)
    }

    /// The most requests that one period of it takes, without repetitions, by what it asked for since then.
    pub(super) fn requests(&self, since: Duration) -> usize {
        let most = |rules: &Rules| 5 + rules.queries + rules.metrics.min(EVENTS);
        self.rules(since).map(most).max().unwrap_or(0)
    }

    /// A process has ended. Where it had written no status yet, it looks to the next one as if nobody had ever scaled it.
    pub(super) fn is_left(&mut self) {
        if !self.is_told {
            self.rescales.iter_mut().for_each(|rescale| rescale.may_be_forgotten = true);
        }
    }

    /// A rescale took place. Decided by what was seen of the HPA before it had a `behavior`, it is not remembered.
    pub(super) fn rescaled(&mut self, entry: &Entry, now: Duration) {
        let (Some(from), Some(to)) = (entry.before, entry.replicas) else { return };
        let Some(rules) = self.now() else { return };
        let has_behavior = rules.behavior.is_some();
        // What the process saw of the HPA may be old.
        let seen = self.since(now.saturating_sub(LONG_LAG));
        for rules in &seen {
            rules.forget(&mut self.rescales, to > from, now);
        }
        if has_behavior {
            let may_be_forgotten = seen.iter().any(|rules| rules.behavior.is_none());
            self.rescales.push(Rescale { at: now, change: to - from, may_be_forgotten });
        }
    }

    /// The rescales that have to be counted, whoever made them.
    pub(super) fn counted(&self) -> &[Rescale] {
        &self.rescales
    }
}
