//! The commands of a page, and the reasons why the test of the guides skips some of them.

use std::collections::BTreeSet;

/// The reason why the test of the guides skips a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Skip {
    /// The command builds or pushes an image, or uses kind.
    Docker,
    /// The command needs running pods. The control plane has no kubelets.
    Pods,
    /// The command downloads a file, or needs an object from such a file.
    Network,
    /// The command needs another shell, or runs until an interrupt.
    Terminal,
    /// The command needs the leader of a labelled installation, which `tests/e2e/handover.rs` runs.
    Handover,
}

/// The skipped commands: page, start of the command, and reason.
pub(crate) const SKIPPED: &[(&str, &str, Skip)] = &[
    ("getting-started/cli.md", "concertina completion", Skip::Terminal),
    ("getting-started/cli.md", "concertina why -l app=shop --watch", Skip::Terminal),
    ("getting-started/kind.md", "docker build", Skip::Docker),
    ("getting-started/kind.md", "kind ", Skip::Docker),
    ("getting-started/kind.md", "kubectl apply -f https://", Skip::Network),
    ("getting-started/kind.md", "kubectl -n kube-system patch deployment metrics-server", Skip::Network),
    ("getting-started/kind.md", "kubectl -n kube-system rollout status", Skip::Pods),
    ("getting-started/kind.md", "kubectl -n concertina-system rollout status", Skip::Pods),
    ("getting-started/kind.md", "kubectl -n try get hpa web --watch", Skip::Terminal),
    ("getting-started/install.md", "docker ", Skip::Docker),
    ("getting-started/install.md", "kubectl -n concertina-system rollout status", Skip::Pods),
    ("getting-started/managed-clusters.md", "kubectl -n concertina-system rollout status", Skip::Pods),
    ("getting-started/managed-clusters.md", "concertina handover enable", Skip::Handover),
    ("getting-started/managed-clusters.md", "concertina handover check", Skip::Handover),
    ("getting-started/managed-clusters.md", "concertina handover status", Skip::Handover),
    ("getting-started/managed-clusters.md", "concertina handover disable", Skip::Handover),
    ("getting-started/shadow.md", "concertina parity", Skip::Pods),
    ("guides/scale-from-the-past.md", "concertina advise", Skip::Network),
    ("guides/keda.md", "concertina handover enable", Skip::Handover),
    ("guides/keda.md", "concertina handover disable", Skip::Handover),
    ("guides/upgrade.md", "kubectl -n concertina-system rollout status", Skip::Pods),
];

/// Returns the commands in the blocks `console` of a page, without comments. A command may have several lines. In a
/// block that also shows output, commands start with a dollar sign.
pub(crate) fn commands(page: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let blocks = page.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("console\n"));
    for block in blocks {
        let has_output = block.lines().any(|line| line.trim_start().starts_with("$ "));
        // A block in a list is indented as a whole.
        let indent = block.lines().map(|line| line.len() - line.trim_start().len()).next().unwrap_or(0);
        let mut lines = block.lines().map(|line| line.get(indent..).unwrap_or_default());
        while let Some(first) = lines.next() {
            let first = match first.strip_prefix("$ ") {
                Some(command) => command,
                None if has_output || first.is_empty() || first.starts_with('#') => continue,
                None => first,
            };
            let mut command = first.to_owned();
            let mut end = |last: &str, command: &mut String| {
                for line in lines.by_ref() {
                    command.push('\n');
                    command.push_str(line);
                    if line.ends_with(last) {
                        break;
                    }
                }
            };
            if command.ends_with("<<'YAML'") {
                end("YAML", &mut command);
            } else if command.ends_with("--patch='[") {
                end("]'", &mut command);
            }
            while command.ends_with('\\') {
                let Some(line) = lines.next() else { break };
                command.truncate(command.len() - 1);
                command.push_str(line.trim_start());
            }
            let end = command.find("  #").unwrap_or(command.len());
            found.insert(command[..end].trim_end().to_owned());
        }
    }
    found
}

#[test]
fn commands_are_read_with_their_further_lines() {
    let page = "text\n```console\nhelm install a \\\n  --set b=c\nkubectl get hpa  # all\n\n# comment\n```\n```yaml\na: b\n```\n\
                ```console\n$ concertina parity\noutput\n```\n   ```console\n   cat >a <<'YAML'\n   b: c\n   YAML\n   ls\n   ```\n";
    let expected = [
        "cat >a <<'YAML'\nb: c\nYAML",
        "concertina parity",
        "helm install a --set b=c",
        "kubectl get hpa",
        "ls",
    ];
    assert_eq!(commands(page), expected.map(str::to_owned).into());
}
