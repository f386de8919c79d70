//! `concertina simulate`: scenario files and their errors, repeatable runs, examples that support their claims, and the
//! recordings of kube-controller-manager that a scenario can express.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "simulate/cluster.rs"]
mod cluster;
#[path = "simulate/errors.rs"]
mod errors;
#[path = "simulate/examples.rs"]
mod examples;
#[path = "simulate/policies.rs"]
mod policies;
#[path = "simulate/recordings.rs"]
mod recordings;
#[path = "simulate/runs.rs"]
mod runs;

use std::path::{Path, PathBuf};

use concertina::tools::PROCESS;
use toolbox::options::{SimulateOptions, SimulateSource};
use toolbox::simulate::run::{Comparison, HpaRun};
use toolbox::simulate::{schema, simulate};

/// Writes a file for one test and returns its path.
fn file(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn options(path: &Path) -> SimulateOptions {
    SimulateOptions { source: SimulateSource::File(path.to_owned()), ..SimulateOptions::default() }
}

/// Runs a scenario.
fn run_scenario(name: &str, text: &str) -> Comparison {
    simulate(&options(&file(name, text)), PROCESS).unwrap_or_else(|error| panic!("{error}"))
}

/// The only HPA of the only run.
fn only(comparison: &Comparison) -> &HpaRun {
    assert_eq!((comparison.runs.len(), comparison.runs[0].hpas.len()), (1, 1));
    &comparison.runs[0].hpas[0]
}

#[test]
fn schema_file_matches_the_format() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/simulate.schema.json");
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    let is_same = stored.trim_end() == schema().trim_end();
    assert!(is_same, "concertina simulate --schema > docs/simulate.schema.json");
}

#[test]
fn program_exits_with_0_or_locates_the_error() {
    let program = |words: &[&str]| {
        std::process::Command::new(env!("CARGO_BIN_EXE_concertina"))
            .arg("simulate")
            .args(words)
            .output()
            .unwrap()
    };
    let text = format!("{}load: [{{cpu: 1}}]\nduration: 1m\n", runs::WEB);
    let path = file("program.yaml", &text);
    let output = program(&[path.to_str().unwrap(), "--csv", "-"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 6, "a heading and five samples");

    let wrong = file("program-wrong.yaml", &text.replace("1m", "soon"));
    let output = program(&[wrong.to_str().unwrap()]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("program-wrong.yaml:12: duration: invalid duration \"soon\""), "{error}");

    assert_eq!(program(&["--speed"]).status.code(), Some(2));
}
