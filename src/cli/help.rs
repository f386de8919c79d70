//! The help texts, made from the tables of flags.

use std::fmt::Write;

use super::flags::{Flag, Group, Purpose, Table};

const CONTROLLER: &str = "\
Concertina scales workloads as HorizontalPodAutoscaler objects say, in place of the controller in
kube-controller-manager. It takes that program's flags.

Usage:
  concertina [flags]
";

const COMMANDS: &str = "
Commands (their flags: concertina COMMAND --help):
  rbac      Print the roles that a controller with these flags needs.
";

const TOOLS: &str = "  why       Tell why an HPA has the count it has, and what it does next.
  parity    Tell whether a dry run would have done what the built-in controller did.
  simulate  Play HPAs against a model of their workload, in virtual time.
  demo      Show autoscaling on a cluster that lives in this process.
";

/// Of the controller.
pub(super) fn controller(table: &Table) -> String {
    let tools = if cfg!(feature = "tools") { TOOLS } else { "" };
    of(&format!("{CONTROLLER}{COMMANDS}{tools}"), table)
}

/// Of whatever takes the controller's flags.
pub(super) fn of(usage: &str, table: &Table) -> String {
    let mut text = usage.to_owned();
    list(&mut text, table);
    let ignored = table.flags().filter(|flag| matches!(flag.purpose, Purpose::Ignored { .. })).count();
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "\nThe other {ignored} flags of kube-controller-manager are accepted, so that its command line can be copied, and\n\
         have no effect. One that is set to something else than its default is named in a warning, with the reason.\n"
    );
    text
}

fn list(text: &mut String, table: &Table) {
    for group in Group::ALL {
        let flags: Vec<(&Flag, &str)> = table
            .flags()
            .filter_map(|flag| match flag.purpose {
                Purpose::Here { group: of, usage } if of == group => Some((flag, usage)),
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
