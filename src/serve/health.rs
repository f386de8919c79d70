//! Health checks and their pages.

use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use parking_lot::Mutex;

use super::pages::plain;

/// The named health checks, in the order of their registration. All clones share one registry.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<Mutex<Vec<Check>>>);

struct Check {
    name: String,
    scope: Scope,
    state: Box<dyn Fn() -> State + Send>,
}

/// The state of a check: `Ok` with a detail, which may be empty, or the reason for the failure.
pub(super) type State = Result<String, NotReady>;

/// The reason for the failure of a check, in one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotReady(pub String);

/// The group of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The check fails if the process must be restarted. It counts for `/livez`, `/healthz` and `/readyz`.
    Live,
    /// The check fails while the process cannot do its work. It counts for `/readyz` only.
    Ready,
}

impl Health {
    /// Creates a registry with the check `ping` only, which passes whenever the server responds.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check that is evaluated at every request. An error states why the check fails. `state` must not
    /// block.
    pub fn add(
        &self,
        name: impl Into<String>,
        scope: Scope,
        state: impl Fn() -> Result<(), NotReady> + Send + 'static,
    ) {
        self.note(name, scope, move || state().map(|()| String::new()));
    }

    /// Like [`Health::add`], but the check shows a detail if it passes.
    pub fn note(
        &self,
        name: impl Into<String>,
        scope: Scope,
        state: impl Fn() -> Result<String, NotReady> + Send + 'static,
    ) {
        self.0.lock().push(Check { name: name.into(), scope, state: Box::new(state) });
    }

    /// Returns the name and state of every check that counts for `scope`.
    pub(super) fn states(&self, scope: Scope) -> Vec<(String, State)> {
        let mut states = vec![("ping".to_owned(), Ok(String::new()))];
        let checks = self.0.lock();
        let counting = checks.iter().filter(|check| check.counts_for(scope));
        states.extend(counting.map(|check| (check.name.clone(), (check.state)())));
        states
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
