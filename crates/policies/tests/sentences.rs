//! Draws decisions with all kinds of steps, and compares each sentence with its decision as data: the count, the steps,
//! and the direction. Whether a step limited the count is determined by another decision without the step.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

#[path = "../../autoscaling/tests/recordings/sentences.rs"]
mod check;
#[path = "sentences/draw.rs"]
mod draw;

use std::collections::BTreeMap;

use autoscaling::explanation::{DecisionPath, Explanation, LimitingStep, MetricExplanation};
use policies::choice::FallbackStep;
use policies::sentence::Decided;
use policies::steps::{PolicyEffect, Step, StepReason};

use draw::{Draw, Without, World};

/// More are drawn with `CONCERTINA_SENTENCES`.
const DECISIONS: u64 = 4_000;

/// The words of each limiting step.
fn words(step: LimitingStep) -> &'static [&'static str] {
    match step {
        LimitingStep::ScaleUpWindow => &["scale-up window allows only"],
        LimitingStep::ScaleDownWindow => &["scale-down window still holds"],
        LimitingStep::ScaleUpPolicy => {
            &["scale-up policies allow", "scaling up is disabled", "without a behavior one sync"]
        }
        LimitingStep::ScaleDownPolicy => &["scale-down policies allow", "scaling down is disabled"],
        LimitingStep::Maximum => &["maxReplicas is"],
        LimitingStep::Minimum => &["minReplicas is"],
        LimitingStep::Failure | LimitingStep::Tolerance | LimitingStep::MissingPods => &[],
    }
}

/// The words of each step of a policy that replaces the count.
fn policy_words(reason: StepReason) -> &'static str {
    match reason {
        StepReason::InvalidMode => "the mode of the policy is invalid",
        StepReason::Paused => "paused",
        StepReason::ScaleUpOnly => "only scale-ups",
        StepReason::ScaleDownOnly => "only scale-downs",
        StepReason::Pinned => "pinned",
        StepReason::DryRun => "dry run",
        StepReason::PendingPods => "more than",
        StepReason::RolloutInProgress => "rolls out",
        StepReason::ZeroMetrics => "all metrics dropped to 0",
        StepReason::MaxStep => "the largest step is to",
        _ => "\0",
    }
}

const STEPS: [(LimitingStep, Without); 6] = [
    (LimitingStep::ScaleUpWindow, Without::Windows),
    (LimitingStep::ScaleDownWindow, Without::Windows),
    (LimitingStep::ScaleUpPolicy, Without::Rates),
    (LimitingStep::ScaleDownPolicy, Without::Rates),
    (LimitingStep::Maximum, Without::Maximum),
    (LimitingStep::Minimum, Without::Minimum),
];

const ALL: [Without; 4] = [Without::Windows, Without::Rates, Without::Maximum, Without::Minimum];

/// Compares the named limits of a decision with decisions without them.
fn limits(world: &World, sentence: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let decided = world.decide(&[]);
    let explanation = decided.decision.explanation();
    // At zero replicas, a minimum of 0 may disable autoscaling, so a decision without the minimum states nothing.
    let is_compared = explanation.path == DecisionPath::Metrics && explanation.current > 0;
    let Some(desired) = explanation.desired.filter(|_| is_compared) else {
        return faults;
    };
    let named: Vec<Without> = STEPS
        .into_iter()
        .filter(|(step, _)| words(*step).iter().any(|words| sentence.contains(words)))
        .map(|(_, without)| without)
        .collect();
    // The decision with some of the steps only.
    let with = |steps: &[Without]| {
        let others: Vec<Without> = ALL.into_iter().filter(|step| !steps.contains(step)).collect();
        world.count(&others)
    };
    if with(&named) != Some(desired) {
        faults.push(format!("names {named:?}, which give {:?}", with(&named)));
    }
    for step in &named {
        let others: Vec<Without> = named.iter().copied().filter(|other| other != step).collect();
        // A bound and a disabled direction may limit the count equally.
        if with(&others) == Some(desired) && !sentence.contains("is disabled") {
            faults.push(format!("names {step:?}, without which the count is the same"));
        }
    }
    faults
}

/// Compares the source of the proposal and the remark about the choice with the fallbacks and `combine`.
fn choice(
    world: &World,
    explanation: &Explanation,
    effect: &PolicyEffect,
    is_replaced: bool,
    sentence: &str,
) -> Vec<String> {
    let mut faults = Vec::new();
    let Some(proposal) = explanation.proposal.filter(|_| explanation.path == DecisionPath::Metrics) else {
        return faults;
    };
    let mut expect = |words: &str, is_expected: bool| {
        if sentence.contains(words) != is_expected {
            faults.push(format!("{words:?} is {}expected", if is_expected { "" } else { "not " }));
        }
    };
    let fallbacks: Vec<&FallbackStep> = effect
        .steps
        .iter()
        .filter_map(|step| if let Step::Fallback(fallback) = step { Some(fallback) } else { None })
        .collect();
    let combine = effect.steps.iter().find_map(|step| match step {
        Step::Combine(combine) => Some(combine),
        _ => None,
    });
    let failed = combine.and_then(|combine| combine.failed.as_ref());
    expect("combine: Min holds", failed.is_some());
    if let Some(failed) = failed {
        expect(&format!("{failed} cannot be read and may ask for the lowest count"), true);
    }
    let is_lowest = combine.is_some() && failed.is_none() && !is_replaced;
    expect("lowest proposal", is_lowest);
    if let Some(combine) = combine.filter(|_| is_lowest) {
        expect(&format!("(the lowest proposal, the highest is {})", combine.highest), true);
    }
    let of_fallback = explanation.winner.is_none() && failed.is_none() && !fallbacks.is_empty();
    expect(&format!("so its fallback asks for {proposal}"), of_fallback);
    // A fallback that permits a scale-down is named, and no other fallback is.
    let permits = explanation.winner.is_some() && proposal < explanation.current && combine.is_none();
    let permits = permits && !is_replaced && !fallbacks.is_empty();
    expect("so its fallback asks for only", permits && fallbacks[0].proposal.is_some());
    expect("so it is ignored", permits && fallbacks[0].proposal.is_none());
    let proposals = explanation.metrics.iter().filter_map(MetricExplanation::reading);
    let proposals = proposals.map(|reading| reading.proposal);
    let proposals = proposals.chain(fallbacks.iter().filter_map(|fallback| fallback.proposal));
    let is_changed = |step: &Step| matches!(step, Step::Burst(_) | Step::Correction(_));
    let chosen = if world.combines() { proposals.min() } else { proposals.max() };
    let expected = if failed.is_some() { Some(explanation.current) } else { chosen };
    // The proposal of a negative value is negative. As in upstream, any proposal replaces 0, so a negative proposal can
    // be chosen. The count is the same.
    let floored = |count: i32| count.max(0);
    if !effect.steps.iter().any(is_changed) && expected.map(floored) != Some(floored(proposal)) {
        faults.push(format!("the proposals give {expected:?}, the decision has {proposal}"));
    }
    faults
}

/// Names the rules that chose the proposal.
fn chosen_by(explanation: &Explanation, effect: &PolicyEffect) -> impl Iterator<Item = String> {
    let winner = explanation.winner;
    effect.steps.iter().filter_map(move |step| match step {
        Step::Combine(combine) => Some(format!("combine, failed {}", combine.failed.is_some())),
        Step::Fallback(FallbackStep { action, .. }) => {
            let action = format!("{action:?}");
            let action = action.split('(').next().unwrap_or_default();
            Some(format!("fallback {action}, metric wins {}", winner.is_some()))
        }
        _ => None,
    })
}

#[test]
fn sentence_of_every_decision_agrees_with_the_decision() {
    let mut kinds = BTreeMap::<String, usize>::new();
    let mut wrong = Vec::new();
    let decisions =
        std::env::var("CONCERTINA_SENTENCES").ok().map_or(DECISIONS, |number| number.parse().unwrap());
    for seed in 0..decisions {
        let world = Draw::new(seed).world();
        let (decided, effect) = world.apply();
        let explanation = decided.decision.explanation();
        let decision = Decided::new(explanation, effect.as_ref());
        let sentence = decision.sentence(world.now);
        let count = decided.decision.count();
        let mut faults = Vec::new();
        if decision.count() != count {
            faults.push(format!("the count is {:?}, the controller applies {count:?}", decision.count()));
        }
        let replaced = decision.replaced_by();
        faults.extend(check::faults(&sentence, explanation, count, replaced.is_some()));
        let holds = effect.as_ref().is_some_and(|effect| effect.applied != effect.recommended);
        if holds && replaced.is_none() {
            faults.push("the policy replaces the count without a step".to_owned());
        }
        for reason in StepReason::ALL {
            let named = sentence.contains(policy_words(reason));
            if named != (replaced.map(Step::reason) == Some(reason)) {
                faults.push(format!("{reason:?} replaces the count: {}", !named));
            }
        }
        if replaced.is_none() {
            faults.extend(limits(&world, &sentence));
        }
        if let Some(effect) = &effect {
            faults.extend(choice(&world, explanation, effect, replaced.is_some(), &sentence));
            for kind in chosen_by(explanation, effect) {
                *kinds.entry(kind).or_default() += 1;
            }
        }
        let kind = replaced.map(|step| format!("{:?}", step.reason()));
        let kind = kind.or_else(|| explanation.limiting_step().map(|step| step.as_str().to_owned()));
        *kinds.entry(kind.unwrap_or_else(|| format!("{:?}", explanation.path))).or_default() += 1;
        if !faults.is_empty() {
            wrong.push(format!("seed {seed}: {sentence}\n  {}", faults.join("\n  ")));
        }
    }
    println!("{decisions} sentences, {} contradict their decision: {kinds:?}", wrong.len());
    for wrong in wrong.iter().take(20) {
        println!("{wrong}");
    }
    assert!(wrong.is_empty(), "{} sentences contradict their decision", wrong.len());
    assert!(kinds.len() > 29 && kinds.values().all(|number| *number > 3), "{kinds:?}");
}
