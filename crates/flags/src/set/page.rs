//! A test that generates the page `docs/reference/flags.md`, and checks that it is current.

use std::fmt::Write as _;
use std::path::Path;

use crate::flag::{Flag, Purpose};
use crate::{kcm, own};

/// Compares the page with its generated text. With the environment variable `UPDATE_DOCS`, writes the text to the
/// page instead.
#[test]
fn flags_reference_page_equals_the_flag_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/flags.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, flags_page()).unwrap();
    }
    let is_current = std::fs::read_to_string(&path).unwrap() == flags_page();
    assert!(is_current, "flags.md is stale: run UPDATE_DOCS=1 cargo test --lib reference_page");
}

/// Renders the page `flags.md`: the flags of Concertina with their help texts, and the names of the ignored ones.
fn flags_page() -> String {
    let mut text = "\
# Flags

Concertina accepts the command line of kube-controller-manager 1.36 to 1.38 unchanged, by pflag's
rules. `concertina controller --help` explains every flag. This page is generated.

## Flags of Concertina

| flag | default | |
|---|---|---|
"
    .to_owned();
    let sorted = |mut flags: Vec<Flag>| {
        flags.sort_by_key(|flag| flag.name);
        flags
    };
    for flag in sorted(own::flags()) {
        let Purpose::Effective { usage, .. } = flag.purpose else { continue };
        let default = if flag.default.is_empty() { String::new() } else { format!("`{}`", flag.default) };
        let _ = writeln!(text, "| `{}` | {default} | {usage} |", flag.printed());
    }
    let kcm = [kcm::flags(), kcm::removed_flags()].into_iter().flatten().collect();
    let ignored: Vec<_> = sorted(kcm)
        .into_iter()
        .filter(|flag| matches!(flag.purpose, Purpose::Ignored { reason } if !reason.contains("other controllers")))
        .map(|flag| format!("`--{}`", flag.name))
        .collect();
    let _ = writeln!(
        text,
        "\n## Flags of kube-controller-manager\n\n\
         They have the same effect and default, except that the Lease is named `concertina`. Those of other\n\
         controllers and these are ignored. If one is not at its default, a warning at startup gives the reason:\n\
         {}.",
        ignored.join(", ")
    );
    text
}
