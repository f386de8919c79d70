//! `docs/flags.md` is written from the tables.

use std::collections::BTreeMap;
use std::path::Path;

use super::*;
use crate::cli::{kcm, own};

/// The page with every flag.
fn page() -> String {
    let table = Table::new(&[kcm::FLAGS, kcm::REMOVED_FLAGS, own::FLAGS]);
    let mut text = "\
# Flags

The command line of kube-controller-manager 1.36 and 1.37 is accepted as it is, by pflag's rules. The first part lists what does something here, kube-controller-manager's flags and
concertina's own; `concertina --help` says the same. The second part lists what is accepted without effect, by reason; such a flag with another value than its default is named in a
warning at start. Written from the program's own tables.
"
    .to_owned();
    let ours = |flag: &Flag| own::FLAGS.iter().any(|own| own.name == flag.name);
    // Roles are the flags of `concertina rbac` alone.
    for group in Group::ALL.into_iter().filter(|group| *group != Group::Rbac) {
        let _ = write!(text, "\n## {}\n\n| flag | type | default | |\n|---|---|---|---|\n", group.title());
        for flag in table.flags() {
            let Purpose::Here { group: of, usage } = flag.purpose else { continue };
            if of != group {
                continue;
            }
            let kind = flag.kind.placeholder();
            let default = if flag.default.is_empty() { String::new() } else { format!("`{}`", flag.default) };
            let whose = if ours(flag) { " (concertina's own)" } else { "" };
            let _ = writeln!(text, "| `{}` | {kind} | {default} | {usage}{whose} |", flag.printed());
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
fn the_page_of_flags_is_what_the_program_takes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/flags.md");
    let page = page();
    if std::env::var_os("CONCERTINA_WRITE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let is_same = std::fs::read_to_string(&path).is_ok_and(|text| text == page);
    assert!(is_same, "write docs/flags.md anew: CONCERTINA_WRITE_DOCS=1 cargo test --lib page_of_flags");
}
