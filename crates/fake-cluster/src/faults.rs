//! Fault rules, which make matching requests fail in a defined way.
//!
//! Rules are tried in the order in which they were added. The first matching rule that neither skips the match nor has
//! run out applies. Later rules are then tried only after [`FaultAction::Delay`]. Nothing is random: a rule with
//! [`FaultRule::times`] 2 applies to the next two requests that match.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::status::Status;

/// The effect of a rule on a request.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum FaultAction {
    /// Returns the Status and its `Retry-After`.
    Status(Status),
    /// Returns a text, as proxies and broken adapters do.
    Text {
        /// HTTP status code.
        code: u16,
        /// The body.
        body: String,
    },
    /// Returns a Status with the code, and the header `Retry-After` in seconds.
    RetryAfter {
        /// HTTP status code, such as 429 or 503.
        code: u16,
        /// The value of the header in seconds.
        seconds: u32,
    },
    /// Returns 200 `application/json` with the body, which need not be JSON.
    Body(String),
    /// Waits, then continues with the next rules.
    Delay(Duration),
    /// Applies the request, then waits before the response.
    DelayAnswer(Duration),
    /// Sends no response and does not apply the request. The connection stays open.
    Silence,
    /// Applies the request and sends no response. The connection stays open.
    SilenceAfterApplying,
    /// Closes the connection without applying the request.
    Close,
    /// Applies the request and closes the connection without a response.
    CloseAfterApplying,
    /// Applies the request and announces the full length of the response. Then sends only the given number of bytes and
    /// closes the connection.
    Truncate(usize),
    /// Ends open and new watches, as if they had timed out. Each ended watch is a match.
    WatchClose,
    /// Keeps open and new watches silent until the rule is removed, even beyond their `timeoutSeconds`. The withheld
    /// events are sent after the removal. The rule does not run out.
    WatchSilence,
    /// Keeps a watch silent until the client closes it, like a connection whose peer hangs. Each watch is a match.
    WatchHang,
    /// Sends an ERROR event with the Status to open and new watches and ends them. Each ended watch is a match.
    WatchError(Status),
    /// Drops watch events. Each event is a match.
    WatchDrop,
    /// Sends watch events twice. Each event is a match.
    WatchDuplicate,
    /// Delays watch events and keeps their order. Each event is a match.
    WatchDelay(Duration),
}

impl FaultAction {
    fn concerns_running_watches(&self) -> bool {
        matches!(
            self,
            Self::WatchClose
                | Self::WatchSilence
                | Self::WatchHang
                | Self::WatchError(_)
                | Self::WatchDrop
                | Self::WatchDuplicate
                | Self::WatchDelay(_)
        )
    }
}

/// An action for the requests that match all conditions. A rule without conditions matches every request.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultRule {
    verb: Option<String>,
    prefix: Option<String>,
    suffix: Option<String>,
    part: Option<String>,
    subresource: Option<String>,
    user_agent: Option<String>,
    impersonated: Option<String>,
    skip: u64,
    times: Option<u64>,
    action: FaultAction,
}

impl FaultRule {
    /// Creates a rule that matches every request and does not run out.
    pub fn new(action: FaultAction) -> Self {
        Self {
            verb: None,
            prefix: None,
            suffix: None,
            part: None,
            subresource: None,
            user_agent: None,
            impersonated: None,
            skip: 0,
            times: None,
            action,
        }
    }

    /// Matches only requests with the given verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`,
    /// `deletecollection`.
    #[must_use]
    pub fn verb(mut self, verb: &str) -> Self {
        self.verb = Some(verb.to_owned());
        self
    }

    /// Matches only paths (not decoded, without query) that start with `prefix`.
    #[must_use]
    pub fn path_prefix(mut self, prefix: &str) -> Self {
        self.prefix = Some(prefix.to_owned());
        self
    }

    /// Matches only paths that end with `suffix`.
    #[must_use]
    pub fn path_suffix(mut self, suffix: &str) -> Self {
        self.suffix = Some(suffix.to_owned());
        self
    }

    /// Matches only paths that contain `part`.
    #[must_use]
    pub fn path_contains(mut self, part: &str) -> Self {
        self.part = Some(part.to_owned());
        self
    }

    /// Matches only the given subresource, such as `scale` or `status`. An empty text matches only requests without a
    /// subresource.
    #[must_use]
    pub fn subresource(mut self, subresource: &str) -> Self {
        self.subresource = Some(subresource.to_owned());
        self
    }

    /// Matches only clients with a `User-Agent` that starts with `prefix`.
    #[must_use]
    pub fn user_agent(mut self, prefix: &str) -> Self {
        self.user_agent = Some(prefix.to_owned());
        self
    }

    /// Matches only requests that impersonate `user` (header `Impersonate-User`).
    #[must_use]
    pub fn impersonated(mut self, user: &str) -> Self {
        self.impersonated = Some(user.to_owned());
        self
    }

    /// Skips the first `skip` matches.
    #[must_use]
    pub fn after(mut self, skip: u64) -> Self {
        self.skip = skip;
        self
    }

    /// Limits the rule to `times` matches.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    fn matches(&self, request: &FaultSubject) -> bool {
        let equal = |wanted: &Option<String>, got: &str| wanted.as_deref().is_none_or(|wanted| wanted == got);
        equal(&self.verb, request.verb)
            && equal(&self.subresource, &request.subresource)
            && equal(&self.impersonated, &request.impersonated)
            && self.prefix.as_deref().is_none_or(|prefix| request.path.starts_with(prefix))
            && self.suffix.as_deref().is_none_or(|suffix| request.path.ends_with(suffix))
            && self.part.as_deref().is_none_or(|part| request.path.contains(part))
            && self.user_agent.as_deref().is_none_or(|agent| request.user_agent.starts_with(agent))
    }
}

/// The properties of a request that rules match.
#[derive(Debug, Clone)]
pub(crate) struct FaultSubject {
    pub(crate) verb: &'static str,
    pub(crate) path: String,
    pub(crate) subresource: String,
    pub(crate) user_agent: String,
    pub(crate) impersonated: String,
}

/// The identifier of a rule, for its removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FaultId(u64);

/// The fault rules of a cluster. Clones share the rules.
#[derive(Debug, Clone)]
pub struct Faults {
    rules: Arc<Mutex<Vec<(FaultId, FaultRule)>>>,
    /// The number of changes of the rules. It notifies open watches and provides ids.
    changes: Arc<watch::Sender<u64>>,
}

impl Faults {
    pub(crate) fn new() -> Self {
        Self { rules: Arc::default(), changes: Arc::new(watch::Sender::new(0)) }
    }

    /// Appends a rule, which applies to open watches immediately.
    pub fn add(&self, rule: FaultRule) -> FaultId {
        let mut rules = self.rules.lock();
        let mut id = FaultId(0);
        self.changes.send_modify(|changes| {
            *changes += 1;
            id = FaultId(*changes);
        });
        rules.push((id, rule));
        id
    }

    /// Removes a rule. Returns false if it does not exist.
    pub fn remove(&self, id: FaultId) -> bool {
        let mut rules = self.rules.lock();
        let before = rules.len();
        rules.retain(|(other, _)| *other != id);
        let removed = rules.len() < before;
        self.changes.send_modify(|changes| *changes += 1);
        removed
    }

    /// Removes every rule.
    pub fn clear(&self) {
        self.rules.lock().clear();
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Returns the number of rules that have not run out.
    pub fn active(&self) -> usize {
        self.rules.lock().iter().filter(|(_, rule)| rule.times != Some(0)).count()
    }

    /// Returns the next action for an incoming request, and counts the match. `passed` contains the rules that the
    /// request has already matched.
    pub(crate) fn for_request(
        &self,
        subject: &FaultSubject,
        passed: &mut Vec<FaultId>,
    ) -> Option<FaultAction> {
        let mut rules = self.rules.lock();
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

    /// Returns the action that ends, silences or hangs an open watch.
    pub(crate) fn for_watch(&self, subject: &FaultSubject) -> Option<FaultAction> {
        let mut rules = self.rules.lock();
        for (_, rule) in rules.iter_mut().filter(|(_, rule)| rule.matches(subject)) {
            if rule.action == FaultAction::WatchSilence {
                return Some(FaultAction::WatchSilence);
            }
            let ends = matches!(
                rule.action,
                FaultAction::WatchClose | FaultAction::WatchError(_) | FaultAction::WatchHang
            );
            if ends && rule.use_up() {
                return Some(rule.action.clone());
            }
        }
        None
    }

    /// Returns the action for one event of a watch.
    pub(crate) fn for_event(&self, subject: &FaultSubject) -> Option<FaultAction> {
        let mut rules = self.rules.lock();
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

    /// Returns a receiver that is notified when the rules change.
    pub(crate) fn changed(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

impl FaultRule {
    /// Counts a match. Returns whether the rule applies to the match.
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
