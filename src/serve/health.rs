//! Health checks and the pages on which they are shown.

use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;

use super::pages::plain;

/// The named health checks, in the order in which they were added. Clones are the same registry.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<Mutex<Vec<Check>>>);

struct Check {
    name: String,
    scope: Scope,
    state: Box<dyn Fn() -> State + Send>,
}

/// Whether a check holds, with more to say about it, which may be nothing; or why it does not.
pub(super) type State = Result<String, String>;

/// Which question a check belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Does the process work? If not, it should be restarted. Counts for `/livez`, `/healthz` and `/readyz`.
    Live,
    /// Does it do its work now? Counts for `/readyz` only.
    Ready,
}

/// A health check whose state is told rather than asked for. Clones are the same check.
#[derive(Debug, Clone)]
pub struct Condition(Arc<Mutex<Result<(), String>>>);

impl Health {
    /// No checks but `ping`, which holds if anyone answers at all.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check that is asked at every request; an error says why it does not hold. Must not block.
    pub fn add(
        &self,
        name: impl Into<String>,
        scope: Scope,
        state: impl Fn() -> Result<(), String> + Send + 'static,
    ) {
        self.note(name, scope, move || state().map(|()| String::new()));
    }

    /// The same for a check that has something to tell where it holds, too.
    pub fn note(
        &self,
        name: impl Into<String>,
        scope: Scope,
        state: impl Fn() -> Result<String, String> + Send + 'static,
    ) {
        self.lock().push(Check { name: name.into(), scope, state: Box::new(state) });
    }

    /// Adds a check that is told when it holds; until then it fails with this reason.
    pub fn condition(&self, name: impl Into<String>, scope: Scope, reason: impl Into<String>) -> Condition {
        let condition = Condition(Arc::new(Mutex::new(Err(reason.into()))));
        let state = condition.clone();
        self.add(name, scope, move || state.lock().clone());
        condition
    }

    /// The names of the checks that fail, with the reason.
    pub fn failing(&self, scope: Scope) -> Vec<(String, String)> {
        let failing = |check: &Check| Some((check.name.clone(), (check.state)().err()?));
        self.lock().iter().filter(|check| check.counts_for(scope)).filter_map(failing).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Check>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Name and state of everything that counts.
    pub(super) fn states(&self, scope: Scope) -> Vec<(String, State)> {
        let mut states = vec![("ping".to_owned(), Ok(String::new()))];
        let checks = self.lock();
        let counting = checks.iter().filter(|check| check.counts_for(scope));
        states.extend(counting.map(|check| (check.name.clone(), (check.state)())));
        states
    }
}

impl Condition {
    /// It holds.
    pub fn holds(&self) {
        *self.lock() = Ok(());
    }

    /// It does not hold.
    pub fn fails(&self, reason: impl Into<String>) {
        *self.lock() = Err(reason.into());
    }

    fn lock(&self) -> MutexGuard<'_, Result<(), String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Check {
    fn counts_for(&self, scope: Scope) -> bool {
        self.scope == Scope::Live || scope == Scope::Ready
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} check {}", self.scope, self.name)
    }
}

pub(super) fn one_check(name: &str, states: Vec<(String, State)>) -> Response<Full<Bytes>> {
    match states.into_iter().find(|(other, _)| *other == name) {
        None => plain(StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
        Some((_, Ok(_))) => plain(StatusCode::OK, "ok".to_owned()),
        Some((_, Err(reason))) => {
            plain(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {reason}\n"))
        }
    }
}

pub(super) fn all_checks(
    group: &str,
    states: &[(String, State)],
    query: Option<&str>,
) -> Response<Full<Bytes>> {
    let query: Vec<_> =
        query.unwrap_or_default().split('&').map(|pair| pair.split_once('=').unwrap_or((pair, ""))).collect();
    let mut excluded: BTreeSet<&str> =
        query.iter().filter(|(key, _)| *key == "exclude").map(|(_, name)| *name).collect();
    let (mut text, mut failed) = (String::new(), false);
    for (name, state) in states {
        // Writing to a string cannot fail.
        let _ = match state {
            _ if excluded.remove(name.as_str()) => writeln!(text, "[+]{name} excluded: ok"),
            Ok(more) if more.is_empty() => writeln!(text, "[+]{name} ok"),
            Ok(more) => writeln!(text, "[+]{name} ok: {more}"),
            Err(reason) => {
                failed = true;
                writeln!(text, "[-]{name} failed: {reason}")
            }
        };
    }
    if !excluded.is_empty() {
        let names: Vec<_> = excluded.iter().map(|name| format!("\"{}\"", name.escape_debug())).collect();
        let names = names.join(",");
        let _ = writeln!(text, "warn: some health checks cannot be excluded: no matches for {names}");
    }
    if failed {
        return plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{text}{group} check failed\n"));
    }
    if query.iter().any(|(key, _)| *key == "verbose") {
        return plain(StatusCode::OK, format!("{text}{group} check passed\n"));
    }
    plain(StatusCode::OK, "ok".to_owned())
}
