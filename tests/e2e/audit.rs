//! What the API server's audit log says about the autoscaler's requests.

use std::collections::BTreeMap;

use serde_json::Value;

use super::outcome::{Outcome, ensure};

/// The ServiceAccount of the built-in autoscaler, which its bootstrap role and
/// the bindings of metrics adapters name.
pub(crate) const AUTOSCALER: &str = "system:serviceaccount:kube-system:horizontal-pod-autoscaler";

/// Checks every request that the autoscaler made. Nothing may be forbidden
/// under the built-in role, and nothing written but scales, status and events.
pub(crate) fn check(log: &str) -> Outcome<Summary> {
    let mut summary = Summary::default();
    let mut wrong = BTreeMap::new();
    for line in log.lines() {
        // A line that is still being written when the log is read belongs to nobody's test.
        let Ok(entry) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        if entry.pointer("/user/username") != Some(&Value::from(AUTOSCALER)) {
            continue;
        }
        let request = Request::of(&entry);
        summary.requests += 1;
        // A review is created, but nothing is stored: it asks what the account may do.
        if matches!(request.verb, "update" | "create" | "patch" | "delete") && !is_review(request.resource) {
            summary.writes += 1;
        }
        if request.code == 401 || request.code == 403 {
            *wrong.entry(format!("refused ({}): {}", request.code, request.text())).or_insert(0_u32) += 1;
        } else if !request.is_ordinary() {
            *wrong.entry(format!("not the autoscaler's business: {}", request.text())).or_insert(0) += 1;
        }
    }
    ensure(wrong.is_empty(), || {
        let lines: Vec<_> = wrong.iter().map(|(text, times)| format!("{text} ({times} times)")).collect();
        format!("the audit log shows requests that a drop-in may not make:\n{}", lines.join("\n"))
    })?;
    // A log without the autoscaler's requests would pass every check and prove nothing.
    ensure(summary.requests > 0, || format!("the audit log shows no requests of {AUTOSCALER}"))?;
    Ok(summary)
}

/// Checks that an account only read, and that nothing of it was refused; how many requests it made.
pub(crate) fn only_reads(log: &str, account: &str) -> Outcome<u32> {
    let (mut reads, mut wrong) = (0, Vec::new());
    for entry in log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        if entry.pointer("/user/username").and_then(Value::as_str) != Some(account) {
            continue;
        }
        let request = Request::of(&entry);
        reads += 1;
        // What one may do oneself is asked by a create, of which nothing is kept.
        let asks = request.verb == "create" && is_review(request.resource);
        if !(asks || matches!(request.verb, "get" | "list" | "watch")) || matches!(request.code, 401 | 403) {
            wrong.push(format!("{} ({})", request.text(), request.code));
        }
    }
    ensure(wrong.is_empty(), || format!("{account} did more than look:\n{}", wrong.join("\n")))?;
    ensure(reads > 0, || format!("the audit log shows no requests of {account}"))?;
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
    fn of(entry: &'a Value) -> Self {
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

/// Whether what is created is only a question.
pub(crate) fn is_review(resource: &str) -> bool {
    matches!(resource, "selfsubjectaccessreviews" | "subjectaccessreviews" | "tokenreviews")
}
