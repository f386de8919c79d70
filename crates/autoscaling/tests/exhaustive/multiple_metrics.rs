//! Several metrics: the highest proposal wins, and a failed metric never lowers the count.

use autoscaling::Verdict;
use autoscaling::failure::MetricFailureClass;
use autoscaling::history::History;
use autoscaling::query::QueryError;

use crate::workload::{NOW, WHOLE, Workload, asking_for, count_after, for_each_in_parallel, sequences};

/// The outcome of one metric: a failure, or a proposal.
const OUTCOMES: [Option<i64>; 7] = [None, Some(-1), Some(0), Some(1), Some(2), Some(3), Some(5)];

/// The best proposal and its index. A later proposal wins if it is higher, or if the best so far is zero.
fn best(outcomes: &[Option<i64>]) -> (i64, Option<usize>) {
    let (mut best, mut index) = (0, None);
    for (at, outcome) in outcomes.iter().enumerate() {
        if let Some(proposal) = *outcome
            && (proposal > best || best == 0)
        {
            (best, index) = (proposal, Some(at));
        }
    }
    (best, index)
}

fn workload(current: i32, metrics: usize) -> Workload {
    let mut workload = Workload::asked_directly(1, 10, current);
    workload.spec.metrics = vec![workload.spec.metrics[0].clone(); metrics].into();
    workload
}

fn count(workload: &Workload, outcomes: &[Option<i64>]) -> (i32, autoscaling::Decision) {
    let answer = |outcome: &Option<i64>| {
        Some(outcome.map(asking_for).ok_or_else(|| QueryError::new(MetricFailureClass::Other, "no answer")))
    };
    let answers = outcomes.iter().map(answer).collect();
    let decision = workload.decide_all(answers, &History::default(), NOW);
    (count_after(&decision), decision)
}

#[test]
fn highest_of_several_metrics_wins_and_a_failed_one_keeps_the_count() {
    let all = sequences(OUTCOMES.len(), if WHOLE { 5 } else { 3 });
    let tried = for_each_in_parallel(&all, |indices| {
        let outcomes: Vec<Option<i64>> = indices.iter().map(|&index| OUTCOMES[index]).collect();
        let failed = outcomes.iter().filter(|outcome| outcome.is_none()).count();
        for current in [1, 2, 4] {
            let workload = workload(current, outcomes.len());
            let (count_now, decision) = count(&workload, &outcomes);
            let (best, winner) = best(&outcomes);
            let held = failed == outcomes.len() || (failed > 0 && best < i64::from(current));
            let case = || format!("{outcomes:?} current {current}");
            assert_eq!(matches!(decision.verdict(), Verdict::NoCount(_)), held, "{}", case());
            let explanation = decision.explanation();
            if held {
                assert_eq!((count_now, explanation.proposal), (current, None), "{}", case());
            } else {
                assert_eq!(explanation.proposal.map(i64::from), Some(best), "{}", case());
                assert_eq!(explanation.winner, winner, "{}", case());
                assert_eq!(explanation.metrics.len(), outcomes.len(), "{}", case());
            }
            if failed > 0 {
                assert!(count_now >= current, "fewer while a metric is missing: {}", case());
            }
            // A higher proposal of any one metric never lowers the count.
            for (at, &index) in indices.iter().enumerate() {
                if OUTCOMES[index].is_some() && index + 1 < OUTCOMES.len() {
                    let mut more = outcomes.clone();
                    more[at] = OUTCOMES[index + 1];
                    let (count_then, _) = count(&workload, &more);
                    assert!(count_then >= count_now, "{count_then} with {more:?}: {}", case());
                }
            }
        }
        3
    });
    println!("{tried} decisions");
}
