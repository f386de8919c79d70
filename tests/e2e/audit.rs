//! Reads the autoscaler's requests from the API server's audit log.

use std::collections::BTreeMap;

use serde_json::Value;

use super::outcome::{Outcome, ensure};

/// The ServiceAccount of the built-in autoscaler. Its bootstrap role and the roles of metrics adapters are bound to
/// this account.
pub(crate) const AUTOSCALER: &str = "system:serviceaccount:kube-system:horizontal-pod-autoscaler";

/// The entries of an audit log. Incomplete lines are ignored, because the API server may be writing the last line.
pub(crate) fn entries(log: &str) -> impl Iterator<Item = Value> {
    log.lines().filter_map(|line| serde_json::from_str(line).ok())
}

/// Checks every request of the autoscaler. The built-in role must allow all of them, and writes may concern only
/// scales, statuses of HPAs, and events.
pub(crate) fn check(log: &str) -> Outcome<Summary> {
    let mut summary = Summary::default();
    let mut violations = BTreeMap::new();
    for entry in entries(log) {
        if entry.pointer("/user/username") != Some(&Value::from(AUTOSCALER)) {
            continue;
        }
        let request = Request::from_entry(&entry);
        summary.requests += 1;
        if matches!(request.verb, "update" | "create" | "patch" | "delete") && !is_review(request.resource) {
            summary.writes += 1;
        }
        if request.code == 401 || request.code == 403 {
            *violations.entry(format!("refused ({}): {}", request.code, request.text())).or_insert(0_u32) +=
                1;
        } else if !request.is_ordinary() {
            *violations.entry(format!("unexpected request: {}", request.text())).or_insert(0) += 1;
        }
    }
    ensure(violations.is_empty(), || {
        let lines: Vec<_> =
            violations.iter().map(|(text, times)| format!("{text} ({times} times)")).collect();
        format!(
            "the audit log contains requests that a drop-in replacement must not send:\n{}",
            lines.join("\n")
        )
    })?;
    // A log without the autoscaler's requests would pass every check and prove nothing.
    ensure(summary.requests > 0, || format!("the audit log contains no requests of {AUTOSCALER}"))?;
    Ok(summary)
}

/// Checks that an account sent only reads and reviews, and that none of them was refused. Returns the number of these
/// requests.
pub(crate) fn only_reads(log: &str, account: &str) -> Outcome<u32> {
    let (mut reads, mut violations) = (0, Vec::new());
    for entry in entries(log) {
        if entry.pointer("/user/username").and_then(Value::as_str) != Some(account) {
            continue;
        }
        let request = Request::from_entry(&entry);
        reads += 1;
        let reviews = request.verb == "create" && is_review(request.resource);
        if !(reviews || matches!(request.verb, "get" | "list" | "watch")) || matches!(request.code, 401 | 403)
        {
            violations.push(format!("{} ({})", request.text(), request.code));
        }
    }
    ensure(violations.is_empty(), || {
        format!("{account} sent requests other than allowed reads:\n{}", violations.join("\n"))
    })?;
    ensure(reads > 0, || format!("the audit log contains no requests of {account}"))?;
    Ok(reads)
}

#[derive(Default, Debug)]
pub(crate) struct Summary {
    pub(crate) requests: u32,
    pub(crate) writes: u32,
}

struct Request<'a> {
    verb: &'a str,
    uri: &'a str,
    resource: &'a str,
    subresource: &'a str,
    code: u64,
}

impl<'a> Request<'a> {
    fn from_entry(entry: &'a Value) -> Self {
        let text = |pointer| entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        Self {
            verb: text("/verb"),
            uri: text("/requestURI"),
            resource: text("/objectRef/resource"),
            subresource: text("/objectRef/subresource"),
            code: entry.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or_default(),
        }
    }

    fn is_ordinary(&self) -> bool {
        match self.verb {
            "get" | "list" | "watch" => true,
            "update" => {
                self.subresource == "scale"
                    || (self.resource == "horizontalpodautoscalers" && self.subresource == "status")
            }
            "create" if is_review(self.resource) => true,
            "create" | "patch" => self.resource == "events",
            _ => false,
        }
    }

    fn text(&self) -> String {
        let path = self.uri.split('?').next().unwrap_or_default();
        format!("{} {path}", self.verb)
    }
}

/// Whether a create request for `resource` is a review, of which the server stores nothing.
pub(crate) fn is_review(resource: &str) -> bool {
    matches!(
        resource,
        "selfsubjectaccessreviews" | "selfsubjectreviews" | "subjectaccessreviews" | "tokenreviews"
    )
}
