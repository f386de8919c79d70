//! What this program says of itself: `/version`, `/statusz` and `/flagz`, in the forms of Kubernetes' components.

use std::collections::BTreeMap;
use std::fmt::Write;

use autoscaling::settings::Version;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;

use crate::cli::flags::Table;
use crate::cli::{Config, kcm, own};
use crate::clock::SharedClock;

const NAME: &str = "concertina";

/// This program, since it was started.
#[derive(Debug)]
pub struct Component {
    clock: SharedClock,
    started: Timestamp,
    emulated: &'static str,
    /// Every flag with its value.
    flags: BTreeMap<String, String>,
}

impl Component {
    /// With these flags, started now.
    pub fn new(config: &Config, clock: SharedClock) -> Self {
        let table = Table::new(&[kcm::FLAGS, own::FLAGS]);
        let defaults = table.flags().map(|flag| (flag.name.to_owned(), flag.default.to_owned()));
        let mut flags: BTreeMap<String, String> = defaults.collect();
        flags.extend(config.serving.given.iter().cloned());
        let emulated = match config.settings.version {
            Version::V1_36 => "1.36",
            Version::V1_37 => "1.37",
        };
        Self { started: clock.now(), clock, emulated, flags }
    }

    /// The JSON of `version.Info`: which Kubernetes it behaves as, and which program it is.
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
             Paths: /decisions /flagz /healthz /history /livez /metrics /readyz /statusz /version\n",
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

/// As Go calls it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
