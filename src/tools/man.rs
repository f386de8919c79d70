//! The hidden command `man`, which writes the manual pages of a release.

use std::path::{Path, PathBuf};

use clap::{Arg, Command, value_parser};

use crate::cli::{CliError, Parsed, Program, matches};

fn command(program: Program) -> Command {
    Command::new("man")
        .no_binary_name(true)
        .bin_name(format!("{program} man"))
        .about("Writes the manual pages of all commands into a folder.")
        .arg(
            Arg::new("folder")
                .value_name("FOLDER")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("Existing folder"),
        )
}

/// Writes the pages of the commands of `tree`. Returns the path of the first page, or the requested help text.
pub(super) fn parse(
    program: Program,
    words: &[String],
    tree: impl FnOnce() -> Command,
) -> Result<String, CliError> {
    let matches = match matches(command(program), words)? {
        Parsed::Options(matches) => matches,
        Parsed::Help(text) => return Ok(text),
    };
    let folder = matches.get_one::<PathBuf>("folder").cloned().unwrap_or_default();
    write(tree(), &folder)
        .map_err(|error| CliError::Subcommand(format!("cannot write to {}: {error}", folder.display())))
}

/// Writes the pages. Returns the path of the first page.
fn write(tree: Command, folder: &Path) -> std::io::Result<String> {
    clap_mangen::generate_to(tree, folder)?;
    Ok(folder.join("concertina.1").display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::completion;

    #[test]
    fn every_command_has_a_page() {
        let folder = std::env::temp_dir().join(format!("concertina-man-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        write(completion::tree(Program::Concertina, &[]), &folder).unwrap();
        for page in ["concertina", "concertina-why", "concertina-handover-enable", "concertina-controller"] {
            let path = folder.join(format!("{page}.1"));
            let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"));
            assert!(text.contains(".SH SYNOPSIS"), "{page}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
