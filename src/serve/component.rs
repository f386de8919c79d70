//! Describes this program on `/version`, `/statusz` and `/flagz`, in the formats of Kubernetes' components.

use std::collections::BTreeMap;
use std::fmt::Write;

use autoscaling::settings::Version;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;

use clock::SharedClock;

const NAME: &str = "concertina";

/// The running program.
#[derive(Debug)]
pub struct Component {
    clock: SharedClock,
    started: Timestamp,
    emulated: &'static str,
    /// Every flag with its value.
    flags: BTreeMap<String, String>,
}

impl Component {
    /// Creates the description of a program that starts now, with the value of every flag.
    pub fn new(version: Version, flags: BTreeMap<String, String>, clock: SharedClock) -> Self {
        let emulated = match version {
            Version::V1_36 => "1.36",
            Version::V1_37 => "1.37",
        };
        Self { started: clock.now(), clock, emulated, flags }
    }

    /// Returns the JSON of `version.Info`: the emulated version of Kubernetes, and the version of this
    /// program.
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
        let serves_console = self.flags.get("console").is_some_and(|value| value == "true");
        let console = if serves_console { "/console " } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\nStarted: {started}\nUp: {} hr {:02} min {:02} sec\nGo version: none, this is Rust\n\
             Binary version: {}\nEmulation version: {}\n\
             Paths: {console}/decisions /flagz /handover /healthz /history /livez /metrics /readyz /statusz /version\n",
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

/// Returns the architecture, by its name in Go.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
