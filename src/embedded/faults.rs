//! Faults by request: rules that make chosen requests fail in chosen ways.
//!
//! Rules are tried in the order in which they were added; the first that matches and has not run out decides.
//! [`FaultAction::Delay`] alone lets the request go on to the rules behind it. Nothing is random: a rule that
//! answers twice answers the next two requests that match.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::status::Status;

/// What a rule does with a request.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum FaultAction {
    /// Answers with this Status (and its `Retry-After`).
    Status(Status),
    /// Answers with text, as proxies and broken adapters do.
    Text {
        /// HTTP status code.
        code: u16,
        /// The body.
        body: String,
    },
    /// Answers with a code, text and the header `Retry-After` in seconds.
    RetryAfter {
        /// HTTP status code, such as 429 or 503.
        code: u16,
        /// Seconds.
        seconds: u32,
    },
    /// Answers 200 `application/json` with this body, whatever it is.
    Body(String),
    /// Waits, then goes on.
    Delay(Duration),
    /// Applies the request, then waits before it answers.
    DelayAnswer(Duration),
    /// Never answers and does not apply the request; the connection stays open.
    Silence,
    /// Applies the request and never answers.
    SilenceAfterApplying,
    /// Closes the connection without applying the request.
    Close,
    /// Applies the request and closes the connection instead of answering.
    CloseAfterApplying,
    /// Applies the request, announces the whole answer, sends its first bytes and closes the connection.
    Truncate(usize),
    /// Running and new watches end, as if their time were over. Counts ended watches.
    WatchClose,
    /// Running and new watches deliver nothing and stay open while the rule is there; what they held back follows
    /// when the rule goes. Such a rule does not run out.
    WatchSilence,
    /// Running and new watches get an ERROR event with this Status and end. Counts ended watches.
    WatchError(Status),
    /// Watch events are lost. Counts events.
    WatchDrop,
    /// Watch events come twice. Counts events.
    WatchDuplicate,
    /// Watch events come later, in order. Counts events.
    WatchDelay(Duration),
}

impl FaultAction {
    fn concerns_running_watches(&self) -> bool {
        matches!(
            self,
            Self::WatchClose
                | Self::WatchSilence
                | Self::WatchError(_)
                | Self::WatchDrop
                | Self::WatchDuplicate
                | Self::WatchDelay(_)
        )
    }
}

/// Which requests, how often, and what happens to them. Without conditions it matches every request.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultRule {
    verb: Option<String>,
    prefix: Option<String>,
    suffix: Option<String>,
    part: Option<String>,
    subresource: Option<String>,
    user_agent: Option<String>,
    skip: u64,
    times: Option<u64>,
    action: FaultAction,
}

impl FaultRule {
    /// A rule for every request, for ever.
    pub fn new(action: FaultAction) -> Self {
        Self {
            verb: None,
            prefix: None,
            suffix: None,
            part: None,
            subresource: None,
            user_agent: None,
            skip: 0,
            times: None,
            action,
        }
    }

    /// Only this verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    #[must_use]
    pub fn verb(mut self, verb: &str) -> Self {
        self.verb = Some(verb.to_owned());
        self
    }

    /// Only paths (not decoded, without query) that begin with this.
    #[must_use]
    pub fn path_prefix(mut self, prefix: &str) -> Self {
        self.prefix = Some(prefix.to_owned());
        self
    }

    /// Only paths that end with this.
    #[must_use]
    pub fn path_suffix(mut self, suffix: &str) -> Self {
        self.suffix = Some(suffix.to_owned());
        self
    }

    /// Only paths that contain this.
    #[must_use]
    pub fn path_contains(mut self, part: &str) -> Self {
        self.part = Some(part.to_owned());
        self
    }

    /// Only this subresource, such as `scale` or `status`; empty: only requests without one.
    #[must_use]
    pub fn subresource(mut self, subresource: &str) -> Self {
        self.subresource = Some(subresource.to_owned());
        self
    }

    /// Only clients whose `User-Agent` begins with this.
    #[must_use]
    pub fn user_agent(mut self, prefix: &str) -> Self {
        self.user_agent = Some(prefix.to_owned());
        self
    }

    /// Lets the first matches pass.
    #[must_use]
    pub fn after(mut self, skip: u64) -> Self {
        self.skip = skip;
        self
    }

    /// Runs out after so many matches.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    fn matches(&self, request: &FaultSubject) -> bool {
        let equal = |wanted: &Option<String>, got: &str| wanted.as_deref().is_none_or(|wanted| wanted == got);
        equal(&self.verb, request.verb)
            && equal(&self.subresource, &request.subresource)
            && self.prefix.as_deref().is_none_or(|prefix| request.path.starts_with(prefix))
            && self.suffix.as_deref().is_none_or(|suffix| request.path.ends_with(suffix))
            && self.part.as_deref().is_none_or(|part| request.path.contains(part))
            && self.user_agent.as_deref().is_none_or(|agent| request.user_agent.starts_with(agent))
    }
}

/// What a rule can look at.
#[derive(Debug, Clone)]
pub(crate) struct FaultSubject {
    pub(crate) verb: &'static str,
    pub(crate) path: String,
    pub(crate) subresource: String,
    pub(crate) user_agent: String,
}

/// Names a rule, so that it can be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FaultId(u64);

/// The rules of a cluster. A handle: clones share the rules.
#[derive(Debug, Clone)]
pub struct Faults {
    rules: Arc<Mutex<Vec<(FaultId, FaultRule)>>>,
    /// Counts changes of the rules, for running watches, and gives out ids.
    changes: Arc<watch::Sender<u64>>,
}

impl Faults {
    pub(crate) fn new() -> Self {
        Self { rules: Arc::default(), changes: Arc::new(watch::Sender::new(0)) }
    }

    /// Adds a rule behind the others. Running watches heed it at once.
    pub fn add(&self, rule: FaultRule) -> FaultId {
        let mut rules = self.lock();
        let mut id = FaultId(0);
        self.changes.send_modify(|changes| {
            *changes += 1;
            id = FaultId(*changes);
        });
        rules.push((id, rule));
        id
    }

    /// Removes a rule; false if it is gone already.
    pub fn remove(&self, id: FaultId) -> bool {
        let mut rules = self.lock();
        let before = rules.len();
        rules.retain(|(other, _)| *other != id);
        let removed = rules.len() < before;
        self.changes.send_modify(|changes| *changes += 1);
        removed
    }

    /// Removes every rule.
    pub fn clear(&self) {
        self.lock().clear();
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// How many rules are there that have not run out.
    pub fn active(&self) -> usize {
        self.lock().iter().filter(|(_, rule)| rule.times != Some(0)).count()
    }

    /// The next thing to happen to a request that has arrived; used up.
    pub(crate) fn for_request(
        &self,
        subject: &FaultSubject,
        passed: &mut Vec<FaultId>,
    ) -> Option<FaultAction> {
        let mut rules = self.lock();
        for (id, rule) in rules.iter_mut() {
            if passed.contains(id) || rule.action.concerns_running_watches() || !rule.matches(subject) {
                continue;
            }
            passed.push(*id);
            if rule.use_up() {
                return Some(rule.action.clone());
            }
        }
        None
    }

    /// What ends or silences a running watch.
    pub(crate) fn for_watch(&self, subject: &FaultSubject) -> Option<FaultAction> {
        let mut rules = self.lock();
        for (_, rule) in rules.iter_mut().filter(|(_, rule)| rule.matches(subject)) {
            if rule.action == FaultAction::WatchSilence {
                return Some(FaultAction::WatchSilence);
            }
            let ends = matches!(rule.action, FaultAction::WatchClose | FaultAction::WatchError(_));
            if ends && rule.use_up() {
                return Some(rule.action.clone());
            }
        }
        None
    }

    /// What happens to one event of a watch.
    pub(crate) fn for_event(&self, subject: &FaultSubject) -> Option<FaultAction> {
        let mut rules = self.lock();
        for (_, rule) in rules.iter_mut().filter(|(_, rule)| rule.matches(subject)) {
            let per_event = matches!(
                rule.action,
                FaultAction::WatchDrop | FaultAction::WatchDuplicate | FaultAction::WatchDelay(_)
            );
            if per_event && rule.use_up() {
                return Some(rule.action.clone());
            }
        }
        None
    }

    /// Wakes whoever waits for the rules to change.
    pub(crate) fn changed(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(FaultId, FaultRule)>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FaultRule {
    /// Counts a match; whether the rule acts on it.
    fn use_up(&mut self) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        match &mut self.times {
            Some(0) => false,
            Some(times) => {
                *times -= 1;
                true
            }
            None => true,
        }
    }
}
