//! Help texts, rendered from the flag tables.

use std::fmt::Write;

use super::flags::{Flag, Group, Purpose, Table};

const CONTROLLER: &str = "\
Concertina is a drop-in replacement for the HorizontalPodAutoscaler controller of
kube-controller-manager. It accepts that program's flags.

Usage:
  concertina [flags]
";

const COMMANDS: &str = "
Commands (their flags: concertina COMMAND --help):
  rbac      Print the roles that a controller with these flags needs.
";

const TOOLS: &str = "  why       Explain the replica count of an HPA and its next decision.
  parity    Compare a dry run with the built-in controller.
  simulate  Simulate HPAs and their workloads in virtual time.
  demo      Run a demo cluster with autoscaled workloads in this process.
";

/// Renders the help text of the controller.
pub(crate) fn controller(table: &Table) -> String {
    let tools = if cfg!(feature = "tools") { TOOLS } else { "" };
    of(&format!("{CONTROLLER}{COMMANDS}{tools}"), table)
}

/// Renders the help text of a command that accepts the controller's flags.
pub(crate) fn of(usage: &str, table: &Table) -> String {
    let mut text = usage.to_owned();
    list(&mut text, table);
    let ignored = table.flags().filter(|flag| matches!(flag.purpose, Purpose::Ignored { .. })).count();
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "\nThe other {ignored} flags of kube-controller-manager are accepted and ignored, so that its command line can be\n\
         copied. Each that is not set to its default is logged as a warning at startup, with the reason.\n"
    );
    text
}

fn list(text: &mut String, table: &Table) {
    for group in Group::ALL {
        let flags: Vec<(&Flag, &str)> = table
            .flags()
            .filter_map(|flag| match flag.purpose {
                Purpose::Here { group: own, usage } if own == group => Some((flag, usage)),
                _ => None,
            })
            .collect();
        if flags.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n{}:", group.title());
        for (flag, usage) in flags {
            let _ = write!(text, "  {}", flag.printed());
            let placeholder = flag.kind.placeholder();
            if !placeholder.is_empty() {
                let _ = write!(text, " {placeholder}");
            }
            if !matches!(flag.default, "" | "false") {
                let _ = write!(text, " (default {})", flag.default);
            }
            let _ = writeln!(text, "\n      {usage}");
        }
    }
}

#[cfg(test)]
mod tests;
