//! The command `completion`, the completion of command lines, and the hidden command `man`, which writes the manual
//! pages of a release.
//!
//! The completion script of a shell runs the program with the environment variable [`VARIABLE`]. The names of HPAs come
//! from the cluster that the connection flags on the command line select.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, value_parser};
use clap_complete::engine::{self, ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};

use super::{commands, controller_command};
use crate::{failed, print, tools};
use flags::FlagSet;
use flags::{CliError, Parsed, Program, matches};

/// The environment variable that selects the shell to complete for.
const VARIABLE: &str = "CONCERTINA_COMPLETE";
/// Time limit of the list of HPAs, because a key press must not wait for an unreachable cluster.
const PATIENCE: Duration = Duration::from_secs(2);
const SHELLS: [&str; 4] = ["bash", "zsh", "fish", "powershell"];

/// Creates the command line of `completion`.
fn command(program: Program) -> Command {
    Command::new("completion")
        .no_binary_name(true)
        .bin_name(format!("{program} completion"))
        .about("Prints the completion script of a shell, which completes commands, flags and names of HPAs.")
        .after_help(
            "Examples:\n\
             \x20 source <(concertina completion bash)                   # ~/.bashrc\n\
             \x20 source <(concertina completion zsh)                    # ~/.zshrc, after compinit\n\
             \x20 concertina completion fish | source                    # ~/.config/fish/config.fish\n\
             \x20 concertina completion powershell | Out-String | Invoke-Expression\n\n\
             kubectl completes \"kubectl concertina\" if the program is also on the PATH as\n\
             kubectl_complete-concertina, for example as a symbolic link.",
        )
        .arg(
            Arg::new("shell")
                .value_name("SHELL")
                .required(true)
                .value_parser(PossibleValuesParser::new(SHELLS))
                .help("Shell"),
        )
}

/// Runs the command `completion`. Returns the script of the shell, or the requested help text.
pub(super) fn parse(program: Program, words: &[String]) -> Result<String, CliError> {
    let matches = match matches(command(program), words)? {
        Parsed::Options(matches) => matches,
        Parsed::Help(text) => return Ok(text),
    };
    let shell = matches.get_one::<String>("shell").map(String::as_str).unwrap_or_default();
    script(shell).map_err(|error| CliError::Subcommand(error.to_string()))
}

fn script(shell: &str) -> io::Result<String> {
    let shells = Shells::builtins();
    let shell = shells.completer(shell).ok_or(io::ErrorKind::Unsupported)?;
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "concertina", "concertina", "concertina", &mut script)?;
    String::from_utf8(script).map_err(io::Error::other)
}

/// Completes a command line, if a shell or kubectl requests a completion. Otherwise, returns `None`.
pub(crate) fn complete(program: Program, words: &[OsString]) -> Option<ExitCode> {
    if program == Program::KubectlCompletion {
        return Some(match for_kubectl(words) {
            Ok(text) => print(&text),
            Err(error) => failed(&error),
        });
    }
    std::env::var_os(VARIABLE)?;
    let called = OsString::from("concertina");
    // The words of the line follow `--`. The first of them is the name of the program.
    let line: Vec<OsString> = words.iter().skip_while(|word| *word != "--").skip(2).cloned().collect();
    let environment = CompleteEnv::with_factory(|| tree(Program::Concertina, &line)).var(VARIABLE);
    let here = std::env::current_dir().ok();
    match environment.try_complete([called].iter().chain(words), here.as_deref()) {
        Ok(true) => Some(ExitCode::SUCCESS),
        Ok(false) => None,
        Err(error) => Some(failed(&error)),
    }
}

/// Returns one candidate per line, and then the directive 4, which keeps kubectl from adding names of files.
fn for_kubectl(words: &[OsString]) -> io::Result<String> {
    let words = words.to_vec();
    let mut tree = tree(Program::KubectlPlugin, &words);
    let line: Vec<OsString> = [OsString::from("concertina")].into_iter().chain(words).collect();
    let last = line.len().saturating_sub(1).max(1);
    let candidates = engine::complete(&mut tree, line, last, None)?;
    let mut text = String::new();
    for candidate in candidates.iter().filter(|candidate| !candidate.is_hide_set()) {
        text.push_str(&candidate.get_value().to_string_lossy());
        if let Some(help) = candidate.get_help() {
            text.push('\t');
            text.push_str(help.to_string().lines().next().unwrap_or_default());
        }
        text.push('\n');
    }
    text.push_str(":4\n");
    Ok(text)
}

/// Returns all commands as one tree. The names of HPAs come from the cluster that the flags in `line` select.
fn tree(program: Program, line: &[OsString]) -> Command {
    let flags = FlagSet::controller();
    let line: Vec<String> = line.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let tools = tools::commands(&program.to_string()).map(|command| {
        let line = line.clone();
        match command.get_name() {
            "why" => command.mut_arg("name", |arg| {
                arg.add(ArgValueCompleter::new(move |current: &OsStr| hpas(&line, current)))
            }),
            _ => command,
        }
    });
    Command::new("concertina")
        .bin_name(program.to_string())
        .about("A drop-in replacement for the HorizontalPodAutoscaler controller of kube-controller-manager.")
        .disable_help_subcommand(true)
        .subcommand(controller_command(program, &flags).bin_name(format!("{program} controller")))
        .subcommand(flags.add_to(commands::own_command().name("rbac")).bin_name(format!("{program} rbac")))
        .subcommands(tools)
        .subcommand(commands::version_command(program))
        .subcommand(command(program))
        .subcommand(Command::new("help").about("Lists the commands, or explains one."))
}

/// Returns the names of HPAs that start with `current`.
fn hpas(line: &[String], current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    let names = names(line.to_vec());
    names.into_iter().filter(|name| name.starts_with(current)).map(CompletionCandidate::new).collect()
}

fn names(line: Vec<String>) -> Vec<String> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return Vec::new();
    };
    let listing = async { tokio::time::timeout(PATIENCE, tools::hpa_names(line)).await };
    // A shell cannot display an error during completion.
    runtime.block_on(listing).ok().and_then(Result::ok).unwrap_or_default()
}

fn man_command(program: Program) -> Command {
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

/// Runs the command `man`. Writes the manual page of each command, and returns the path of the first page, or the
/// requested help text.
pub(super) fn write_manual(program: Program, words: &[String]) -> Result<String, CliError> {
    let matches = match matches(man_command(program), words)? {
        Parsed::Options(matches) => matches,
        Parsed::Help(text) => return Ok(text),
    };
    let folder = matches.get_one::<PathBuf>("folder").cloned().unwrap_or_default();
    write(tree(Program::Concertina, &[]), &folder)
        .map_err(|error| CliError::Subcommand(format!("cannot write to {}: {error}", folder.display())))
}

fn write(tree: Command, folder: &Path) -> std::io::Result<String> {
    clap_mangen::generate_to(tree, folder)?;
    Ok(folder.join("concertina.1").display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(words: &[&str]) -> Vec<String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let text = for_kubectl(&words).unwrap();
        let (candidates, directive) =
            text.trim_end().rsplit_once('\n').unwrap_or_else(|| ("", text.trim_end()));
        assert_eq!(directive, ":4");
        candidates.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn tree_is_valid_and_has_every_command() {
        let tree = tree(Program::Concertina, &[]);
        for (name, _) in tools::COMMANDS {
            assert!(tree.get_subcommands().any(|command| command.get_name() == *name), "{name}");
        }
        tree.debug_assert();
    }

    #[test]
    fn commands_flags_and_values_are_completed() {
        assert_eq!(completed(&["wh"]), ["why"]);
        assert!(completed(&["handover", ""]).contains(&"enable".to_owned()));
        assert_eq!(completed(&["why", "--all-n"]), ["--all-namespaces"]);
        assert_eq!(completed(&["parity", "-o", "y"]), ["yaml"]);
        assert!(completed(&["controller", "--horizontal-pod-autoscaler-tol"])[0].ends_with("-tolerance"));
    }

    #[test]
    fn names_are_empty_without_a_cluster() {
        assert_eq!(completed(&["why", "--kubeconfig=/nonexistent", "web"]), Vec::<String>::new());
    }

    #[test]
    fn every_shell_has_a_script() {
        for shell in SHELLS {
            let script = script(shell).unwrap();
            assert!(script.contains(VARIABLE), "{shell}: {script}");
        }
        let words = ["tcsh".to_owned()];
        assert!(parse(Program::Concertina, &words).unwrap_err().to_string().contains("powershell"));
    }

    #[test]
    fn every_command_has_a_page() {
        let folder = std::env::temp_dir().join(format!("concertina-man-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        write(tree(Program::Concertina, &[]), &folder).unwrap();
        for page in ["concertina", "concertina-why", "concertina-handover-enable", "concertina-controller"] {
            let path = folder.join(format!("{page}.1"));
            let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"));
            assert!(text.contains(".SH SYNOPSIS"), "{page}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
