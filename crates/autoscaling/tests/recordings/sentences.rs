//! Compares the sentence of a decision with the decision as data.

use std::collections::BTreeSet;

use autoscaling::explanation::{DecisionPath, Explanation, MetricExplanation, ProposalReason};

/// Returns what the sentence says against the decision, or says twice, or leaves out. `count` is the count that is
/// applied, and `replaced` shows whether a scaling policy replaces the count of the HPA.
pub(crate) fn faults(
    sentence: &str,
    explanation: &Explanation,
    count: Option<i32>,
    replaced: bool,
) -> Vec<String> {
    let mut faults = Vec::new();
    let mut fault = |what: String| faults.push(what);
    let current = explanation.current;
    if matches!(explanation.path, DecisionPath::NoScale | DecisionPath::Deleted) {
        return faults;
    }
    let expected = match count {
        Some(count) if count != current => format!("goes from {current} to {count}: "),
        _ => format!("stays at {current}: "),
    };
    if !sentence.starts_with(&expected) {
        fault(format!("does not start with {expected:?}"));
    }
    let reasons = sentence.split_once(": ").map_or("", |(_, reasons)| reasons);
    if reasons.is_empty() || reasons.starts_with([',', ';', ' ']) {
        fault("has an empty reason".to_owned());
    }
    for empty in ["  ", ": ;", "; ;", ", ,", ": ,", "()", "NaN", "inf "] {
        if sentence.contains(empty) {
            fault(format!("contains {empty:?}"));
        }
    }
    let mut seen = BTreeSet::new();
    for clause in
        reasons.split("; ").flat_map(|part| part.split(", but ")).flat_map(|part| part.split(", and "))
    {
        // A wait belongs to the clause before it.
        let clause = clause.split(", for ").next().unwrap_or_default().trim();
        if clause.is_empty() || clause.ends_with([',', ';']) {
            fault("has an empty clause".to_owned());
        }
        if !seen.insert(clause) {
            fault(format!("has the clause {clause:?} twice"));
        }
    }
    if explanation.path != DecisionPath::Metrics || explanation.desired.is_none() {
        return faults;
    }
    let reading = explanation.winning_metric().and_then(MetricExplanation::reading);
    let why = reading.map(|reading| reading.why);
    // A count that the correction of missing pods rejects is not the proposal.
    if why != Some(ProposalReason::CountReversed)
        && let Some(asked) = number_after(reasons, &["asks for ", "ask for ", "ask for the current count "])
        && Some(asked) != explanation.proposal
    {
        fault(format!("asks for {asked}, the proposal is {:?}", explanation.proposal));
    }
    let has_limit = reasons.contains(", but ") || replaced;
    let Some(reading) = reading.filter(|_| !replaced) else { return faults };
    let starts = |words: &str| {
        let clause = reasons.strip_prefix(&format!("{} is at ", reading.subject)).unwrap_or_default();
        clause.split(", but ").next().unwrap_or_default().contains(words)
    };
    if starts("above its target") && !has_limit && count <= Some(current) {
        fault("is above its target, and the count does not grow".to_owned());
    }
    if starts("below its target") && !has_limit && count >= Some(current) {
        fault("is below its target, and the count does not fall".to_owned());
    }
    if (starts("above its target") && reading.ratio < 1.0)
        || (starts("below its target") && reading.ratio > 1.0)
    {
        fault(format!("names the wrong side of the target, the ratio is {}", reading.ratio));
    }
    if reasons.replace("tolerance of its target of", "").contains(" of its target of ") {
        fault("shows the value as a share of the target".to_owned());
    }
    if why == Some(ProposalReason::CountReversed) && reasons.contains("other way") {
        fault("says that the ratio changes its side, but only the count does".to_owned());
    }
    if !has_limit
        && starts("within tolerance")
        && count != Some(current)
        && !reasons.contains("status.replicas")
    {
        fault("is within tolerance, and the count changes".to_owned());
    }
    faults
}

fn number_after(text: &str, words: &[&str]) -> Option<i32> {
    let (at, words) = words
        .iter()
        .filter_map(|words| Some((text.find(words)?, *words)))
        .filter(|(at, words)| {
            text[at + words.len()..].starts_with(|first: char| first.is_ascii_digit() || first == '-')
        })
        .min()?;
    let rest = &text[at + words.len()..];
    let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '-').unwrap_or(rest.len());
    rest[..end].parse().ok()
}
