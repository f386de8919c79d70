//! The command `version`.

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};
use serde_json::json;

use crate::cli::{CliError, Parsed, Program, matches};
use crate::invocation::Invocation;

/// The command line of `version`.
pub(crate) fn command(program: Program) -> Command {
    Command::new("version")
        .no_binary_name(true)
        .bin_name(format!("{program} version"))
        .about("Prints the version of this program.")
        .arg(
            Arg::new("output")
                .long("output")
                .short('o')
                .value_name("how")
                .value_parser(PossibleValuesParser::new(["text", "json", "yaml"]))
                .default_value("text")
                .help("Output format"),
        )
}

pub(super) fn parse(program: Program, words: &[String]) -> Result<Invocation, CliError> {
    let matches = match matches(command(program), words)? {
        Parsed::Options(matches) => matches,
        Parsed::Help(text) => return Ok(Invocation::Help(text)),
    };
    let version = concat!("v", env!("CARGO_PKG_VERSION"));
    let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
    let text = match matches.get_one::<String>("output").map(String::as_str) {
        Some("json") => {
            let value = json!({"version": version, "emulatedVersions": EMULATED, "platform": platform});
            format!("{value:#}")
        }
        Some("yaml") => {
            let emulated = EMULATED.map(|version| format!("\"{version}\"")).join(", ");
            format!("version: {version}\nemulatedVersions: [{emulated}]\nplatform: {platform}")
        }
        _ => super::readable_version(),
    };
    Ok(Invocation::Version(text))
}

/// The versions of kube-controller-manager that `--emulated-version` selects.
pub(super) const EMULATED: [&str; 2] = ["1.36", "1.37"];

#[cfg(test)]
mod tests {
    use super::super::raw_version;
    use super::*;

    fn read(words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        match parse(Program::Concertina, &words) {
            Ok(Invocation::Version(text) | Invocation::Help(text)) => text,
            Ok(other) => panic!("{other:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn version_has_the_same_data_in_every_format() {
        assert!(read(&[]).starts_with("Concertina v"), "{}", read(&[]));
        let json: serde_json::Value = serde_json::from_str(&read(&["-o", "json"])).unwrap();
        let yaml: serde_json::Value = serde_saphyr::from_str(&read(&["--output=yaml"])).unwrap();
        assert_eq!(json, yaml);
        assert!(raw_version().contains(&EMULATED.join(",")));
        assert!(read(&["-o", "wide"]).contains("wide"));
        assert!(read(&["--help"]).contains("Usage: concertina version"));
    }
}
