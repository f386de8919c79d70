//! Draws decisions with all kinds of steps, and compares each sentence with its decision as data: the count, the steps,
//! and the direction. Whether a step limited the count is determined by another decision without the step.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

#[path = "../../autoscaling/tests/recordings/sentences.rs"]
mod check;
#[path = "sentences/draw.rs"]
mod draw;

use std::collections::BTreeMap;

use autoscaling::explanation::{DecisionPath, LimitingStep};
use policies::sentence::Decided;
use policies::steps::{Step, StepReason};

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
    assert!(kinds.len() > 15 && kinds.values().all(|number| *number > 3), "{kinds:?}");
}
