//! Checks that `docs/reference/flags.md` matches the flag tables.

use std::collections::BTreeMap;
use std::path::Path;

use super::*;
use crate::cli::{kcm, own};

/// Renders the Markdown page with every flag.
fn page() -> String {
    let table = Table::new(&[kcm::FLAGS, kcm::REMOVED_FLAGS, own::FLAGS]);
    let mut text = "\
# Flags

This page lists every flag of the controller, its default, and the flags of kube-controller-manager
that have no effect.

Concertina accepts the command line of kube-controller-manager 1.36 and 1.37 unchanged, by pflag's
rules. The first tables list the flags that have an effect. `concertina --help` prints the same.
The [last table](#without-effect) lists the flags that are accepted and ignored. If one of these is
set to a value other than its default, a warning at startup names it.

This page is generated from the program's own tables.
"
    .to_owned();
    let ours = |flag: &Flag| own::FLAGS.iter().any(|own| own.name == flag.name);
    // Only `concertina rbac` has the flags of `Group::Rbac`.
    for group in Group::ALL.into_iter().filter(|group| *group != Group::Rbac) {
        let _ = write!(text, "\n## {}\n\n| flag | type | default | |\n|---|---|---|---|\n", group.title());
        for flag in table.flags() {
            let Purpose::Here { group: own, usage } = flag.purpose else { continue };
            if own != group {
                continue;
            }
            let kind = flag.kind.placeholder();
            let default = if flag.default.is_empty() { String::new() } else { format!("`{}`", flag.default) };
            let origin = if ours(flag) { " (concertina's own)" } else { "" };
            let _ = writeln!(text, "| `{}` | {kind} | {default} | {usage}{origin} |", flag.printed());
        }
    }
    text.push_str("\n## Without effect\n\n| flags | why |\n|---|---|\n");
    let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for flag in table.flags() {
        if let Purpose::Ignored { reason } = flag.purpose {
            reasons.entry(reason).or_default().push(format!("`--{}`", flag.name));
        }
    }
    for (reason, flags) in reasons {
        let _ = writeln!(text, "| {} | {reason} |", flags.join(", "));
    }
    text
}

#[test]
fn flags_page_equals_the_flag_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/flags.md");
    let page = page();
    if std::env::var_os("CONCERTINA_WRITE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let is_same = std::fs::read_to_string(&path).is_ok_and(|text| text == page);
    assert!(
        is_same,
        "docs/reference/flags.md is stale; regenerate it with CONCERTINA_WRITE_DOCS=1 cargo test --lib flags_page"
    );
}
