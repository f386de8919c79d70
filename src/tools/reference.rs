//! Generates the tables of flags in `docs/reference`, and tests that the pages are current.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use clap::Arg;
use toolbox::command::{command_lines, connection_flags};

use super::PROCESS;
use crate::cli::flags::{HEADINGS, Purpose};
use crate::cli::{kcm, own};
use crate::invocation::commands;

/// Compares the page `name` with its generated text. With the environment variable `UPDATE_DOCS`, writes the text to
/// the page instead. `generate` receives the current page.
fn check(name: &str, generate: impl Fn(&str) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference").join(name);
    let page = std::fs::read_to_string(&path).unwrap();
    let generated = generate(&page);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &generated).unwrap();
    } else {
        assert!(
            page == generated,
            "docs/reference/{name} is stale: run UPDATE_DOCS=1 cargo test --lib reference_page"
        );
    }
}

#[test]
fn flags_reference_page_equals_the_flag_tables() {
    check("flags.md", |_| flags_page());
}

#[test]
fn cli_reference_page_has_the_flags_of_every_command() {
    let connection = connection_flags();
    let commands = [commands::own_command()].into_iter().chain(command_lines("concertina", PROCESS));
    let commands = commands.collect::<Vec<_>>();
    check("cli.md", |page| {
        let mut page = replaced(page, "connection", &table(connection.get_arguments()));
        for command in &commands {
            let shared = |arg: &Arg| {
                connection.get_arguments().any(|shared| {
                    shared.get_id() == arg.get_id()
                        && shared.get_help().map(ToString::to_string)
                            == arg.get_help().map(ToString::to_string)
                })
            };
            let arguments = command.get_arguments().filter(|arg| !shared(arg) && !arg.is_positional());
            let arguments = arguments.collect::<Vec<_>>();
            let name = command.get_name().trim_start_matches("concertina ");
            if !arguments.is_empty() {
                page = replaced(&page, name, &table(arguments.into_iter()));
            }
        }
        page
    });
}

/// Returns the page with another text between the markers of a generated table.
fn replaced(page: &str, name: &str, table: &str) -> String {
    let (start, end) =
        (format!("<!-- flags of {name}: generated -->\n"), format!("<!-- end of {name} -->\n"));
    let (before, rest) = page.split_once(&start).unwrap_or_else(|| panic!("no marker {start}"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("no marker {end}"));
    format!("{before}{start}\n{table}\n{end}{after}")
}

/// Renders flags as a Markdown table.
fn table<'a>(arguments: impl Iterator<Item = &'a Arg>) -> String {
    let mut text = "| flag | default | description |\n|---|---|---|\n".to_owned();
    for arg in arguments {
        let short = arg.get_short().map(|letter| format!("-{letter}, ")).unwrap_or_default();
        let long = arg.get_long().unwrap_or_default();
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let (mut value, mut default, mut allowed) = (String::new(), String::new(), String::new());
        if arg.get_action().takes_values() && !arg.is_require_equals_set() {
            value = arg.get_value_names().map(|names| format!(" {}", names[0])).unwrap_or_default();
            let first = arg.get_default_values().first();
            default = first.map(|text| format!("`{}`", text.display())).unwrap_or_default();
            let values = arg.get_possible_values();
            let values: Vec<_> = values.iter().map(|value| format!("`{}`", value.get_name())).collect();
            if !values.is_empty() {
                allowed = format!(" ({})", values.join(", "));
            }
        }
        let _ = writeln!(text, "| `{short}--{long}{value}` | {default} | {help}{allowed} |");
    }
    text
}

/// Renders the page `flags.md`, with every flag of the controller.
fn flags_page() -> String {
    let mut text = "\
# Flags

Concertina accepts the command line of kube-controller-manager 1.36 and 1.37 unchanged, by pflag's
rules. The first tables list the flags that have an effect; a star marks those that
kube-controller-manager does not have. The [last table](#without-effect) lists the flags that are
accepted and ignored. If one of these is not at its default, a warning at startup names it.

This page is generated from the program's own tables.
"
    .to_owned();
    let own = own::flags();
    let is_own = |name| own.iter().any(|flag| flag.name == name);
    let mut flags =
        [kcm::flags(), kcm::removed_flags(), own::flags()].into_iter().flatten().collect::<Vec<_>>();
    flags.sort_by_key(|flag| flag.name);
    for title in HEADINGS {
        let _ = write!(text, "\n## {title}\n\n| flag | type | default | |\n|---|---|---|---|\n");
        for flag in &flags {
            let Purpose::Effective { heading, usage } = flag.purpose else { continue };
            if heading != title {
                continue;
            }
            let default = if flag.default.is_empty() { String::new() } else { format!("`{}`", flag.default) };
            let origin = if is_own(flag.name) { " \\*" } else { "" };
            let _ = writeln!(
                text,
                "| `{}` | {} | {default} | {usage}{origin} |",
                flag.printed(),
                flag.placeholder
            );
        }
    }
    text.push_str("\n## Without effect\n\n| flags | why |\n|---|---|\n");
    let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for flag in &flags {
        if let Purpose::Ignored { reason } = flag.purpose {
            reasons.entry(reason).or_default().push(format!("`--{}`", flag.name));
        }
    }
    for (reason, flags) in reasons {
        let _ = writeln!(text, "| {} | {reason} |", flags.join(", "));
    }
    text
}
