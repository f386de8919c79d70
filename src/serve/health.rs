//! Health checks with their pages, and the pages about this program: `/version`, `/statusz` and `/flagz`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::sync::Arc;

use autoscaling::settings::Version;
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use parking_lot::Mutex;
use serde_json::json;

use super::pages::plain;
use clock::SharedClock;

/// The named health checks, in the order of their registration. Clones share one registry.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<Mutex<Vec<Check>>>);

struct Check {
    name: String,
    scope: Scope,
    state: Box<dyn Fn() -> State + Send>,
}

/// The state of a check: a detail, which may be empty, or the reason for a failure.
pub(super) type State = Result<String, NotReady>;

/// The reason for the failure of a check, as one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotReady(pub String);

/// The group of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// A check that fails if the process must be restarted. Part of `/livez`, `/healthz` and `/readyz`.
    Live,
    /// A check that fails while the process cannot do its work. Part of `/readyz` only.
    Ready,
}

impl Health {
    /// Creates a registry with only the check `ping`, which always passes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check. Every request for its pages evaluates `state`, which must not block.
    pub fn add(
        &self,
        name: impl Into<String>,
        scope: Scope,
        state: impl Fn() -> Result<(), NotReady> + Send + 'static,
    ) {
        self.note(name, scope, move || state().map(|()| String::new()));
    }

    /// Adds a check like [`Health::add`]. If the check passes, the page shows the detail that `state` returns.
    pub fn note(
        &self,
        name: impl Into<String>,
        scope: Scope,
        state: impl Fn() -> Result<String, NotReady> + Send + 'static,
    ) {
        self.0.lock().push(Check { name: name.into(), scope, state: Box::new(state) });
    }

    /// Returns the name and the state of every check that is part of `scope`.
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

const NAME: &str = "concertina";

/// The description of this program, in the formats of Kubernetes' components.
#[derive(Debug)]
pub struct Component {
    clock: SharedClock,
    started: Timestamp,
    emulated: &'static str,
    /// The value of every flag, by name.
    flags: BTreeMap<String, String>,
}

impl Component {
    /// Creates the description. `flags` contains the value of every flag, and the time of the start is now.
    pub fn new(version: Version, flags: BTreeMap<String, String>, clock: SharedClock) -> Self {
        Self { started: clock.now(), clock, emulated: version.name(), flags }
    }

    /// Returns `version.Info` as JSON, with the emulated version of Kubernetes and the version of this program.
    pub(super) fn version(&self) -> Vec<u8> {
        let (major, minor) = self.emulated.split_once('.').unwrap_or_default();
        let version = json!({
            "major": major,
            "minor": minor,
            "emulationMajor": major,
            "emulationMinor": minor,
            "gitVersion": concat!("v", env!("CARGO_PKG_VERSION"), "+concertina"),
            "gitCommit": "",
            "gitTreeState": "",
            "buildDate": "",
            "goVersion": "",
            "compiler": "rustc",
            "platform": format!("{}/{}", std::env::consts::OS, architecture()),
        });
        version.to_string().into_bytes()
    }

    pub(super) fn statusz(&self) -> String {
        let mut text = header("statusz");
        let started = self.started.to_zoned(TimeZone::UTC).strftime("%a %b %e %H:%M:%S UTC %Y");
        let up = self.clock.now().duration_since(self.started);
        let seconds = up.as_secs().max(0);
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\nStarted: {started}\nUp: {} hr {:02} min {:02} sec\nGo version: none, this is Rust\n\
             Binary version: {}\nEmulation version: {}\n\
             Paths: /decisions /flagz /handover /healthz /livez /metrics /readyz /statusz /version\n",
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60,
            env!("CARGO_PKG_VERSION"),
            self.emulated,
        );
        text
    }

    pub(super) fn flagz(&self) -> String {
        let mut text = header("flagz");
        for (name, value) in &self.flags {
            let _ = writeln!(text, "{name}={value}");
        }
        text
    }
}

fn header(page: &str) -> String {
    format!(
        "\n{NAME} {page}\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
         guarantees and is for debugging purposes only.\n"
    )
}

/// Returns Go's name of the architecture.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
