//! The published schemas of the answers of `why`.

use schemars::JsonSchema;

use crate::schemas::check;

/// A finding of the crate `findings`.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct FindingSchema {
    /// The code, which `docs/reference/findings.md` lists.
    code: String,
    /// `error`, `warning` or `info`.
    severity: String,
    /// The observation, in one sentence.
    message: String,
    /// The recommended action, in one or two sentences.
    advice: String,
}

#[test]
fn answers_have_published_schemas() {
    check::<super::Document<'static>>("why");
    check::<super::List<'static>>("why-list");
}
