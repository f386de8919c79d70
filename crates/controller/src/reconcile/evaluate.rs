//! The evaluation of the metrics of a sync, in turns with other tasks.

use autoscaling::{Answers, Evaluation};
use jiff::Timestamp;

use super::policy_inputs::PolicyInputs;

/// The number of pods after which an evaluation lets other tasks run, summed over its metrics. Ten thousand
/// take about 2 ms.
const PODS_PER_TURN: usize = 10_000;

/// The cost of a metric without pods, in pods.
const METRIC_COST: usize = 20;

/// Evaluates the metrics that have an answer. Other tasks run in between, so that a sync with many metrics and
/// pods delays no other.
pub(super) async fn evaluate_metrics(
    evaluation: &mut Evaluation<'_>,
    answers: &Answers<'_>,
    policy: &mut PolicyInputs<'_>,
    at: Timestamp,
) {
    let mut cost = 0;
    for (index, answer) in answers.metrics.iter().enumerate() {
        let Some(answer) = answer else { continue };
        if evaluation.is_evaluated(index) {
            continue;
        }
        match policy.replace(index, answer, answers.pods) {
            Some((answer, pods)) => evaluation.evaluate(index, Some(&Ok(answer)), &pods, at),
            None => evaluation.evaluate(index, Some(answer), answers.pods, at),
        }
        cost += METRIC_COST + answers.pods.len();
        if cost >= PODS_PER_TURN {
            cost = 0;
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use autoscaling::failure::MetricFailureClass;
    use autoscaling::history::History;
    use autoscaling::query::QueryError;
    use autoscaling::settings::Settings;
    use autoscaling::spec::Spec;
    use autoscaling::status::Status;
    use autoscaling::{Hpa, Overlap, Scale, plan};
    use serde_json::json;

    use super::*;

    /// Evaluates failing metrics. Returns the number of turns of another task in the meantime.
    async fn turns_of_another_task(metrics: usize) -> usize {
        let metric = json!({"type": "External", "external": {
            "metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"},
        }});
        let spec: Spec = serde_json::from_value(json!({
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 10, "metrics": vec![metric; metrics],
        }))
        .unwrap();
        let (status, settings) = (Status::default(), Settings::default());
        let hpa = Hpa { namespace: "shop", name: "web", generation: None, spec: &spec, status: &status };
        let scale = Scale::new(2, 2, "app=web").unwrap();
        let plan = plan(&hpa, Ok(scale), |_| Overlap::None, &settings);
        let error = QueryError::new(MetricFailureClass::Other, "no");
        let answers = Answers { metrics: vec![Some(Err(error)); metrics], pods: &[] };

        let turns = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&turns);
        let other = tokio::spawn(async move {
            loop {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let mut evaluation = Evaluation::new(&hpa, &plan, &settings);
        evaluate_metrics(&mut evaluation, &answers, &mut PolicyInputs::default(), Timestamp::UNIX_EPOCH)
            .await;
        let turns = turns.load(Ordering::Relaxed);
        other.abort();
        let decision = evaluation.decide(&History::default(), Timestamp::UNIX_EPOCH);
        assert_eq!(decision.explanation().failed_count(), metrics);
        turns
    }

    #[tokio::test(start_paused = true)]
    async fn other_tasks_run_between_many_metrics() {
        assert_eq!(turns_of_another_task(400).await, 0);
        assert!(turns_of_another_task(10_000).await >= 19);
    }
}
