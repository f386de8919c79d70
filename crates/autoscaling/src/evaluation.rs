//! The evaluation of an HPA's metrics, one at a time and in any order. A caller with many metrics can pause
//! between two of them, and drop each answer once it is evaluated.
//!
//! The memory of the results is bounded per metric, regardless of the number of pods and the length of
//! errors.

use std::sync::Arc;

use jiff::Timestamp;

use crate::adjustment::Choice;
use crate::decision::Decision;
use crate::explanation::{FailedMetric, LISTED_PODS, MetricReading};
use crate::history::History;
use crate::metric::{MetricFailure, Proposal, compute};
use crate::plan::{Case, Hpa, Plan, PlannedMetric};
use crate::pod::Pod;
use crate::query::{Answer, QueryError};
use crate::replicas::{Calculator, Tolerance};
use crate::settings::Settings;
use crate::status::MetricStatus;

/// Maximum number of pods that the explanation of one decision lists, for all metrics together. Further pods are only
/// counted.
const MAX_LISTED_PODS: usize = 20_000;

/// Maximum total bytes of the errors of failed metrics in one decision. Consecutive equal errors count once. Further
/// errors are truncated to [`SHORT_ERROR`] bytes.
const MAX_ERROR_BYTES: usize = 1 << 20;

/// Maximum bytes of each error that no longer fits into [`MAX_ERROR_BYTES`].
const SHORT_ERROR: usize = 128;

/// The metrics of one HPA that were evaluated so far. [`crate::decide`] evaluates all metrics at once.
#[derive(Debug)]
pub struct Evaluation<'a> {
    pub(crate) hpa: Hpa<'a>,
    pub(crate) plan: &'a Plan,
    pub(crate) settings: &'a Settings,
    /// By the index of the metric in the spec.
    pub(crate) results: Vec<Option<MetricResult>>,
    /// The failed metric that comes first in the spec.
    pub(crate) first_failure: Option<FirstFailure>,
    /// The proposal that replaces the highest proposal.
    pub(crate) choice: Option<Choice>,
    /// The number of pods that the explanation may still list.
    pods_left: usize,
    /// The number of bytes that further errors may use.
    error_bytes_left: usize,
    /// The last error. Consecutive equal errors share one text.
    last_error: Arc<str>,
}

/// The result of one metric, without the pods beyond [`MAX_LISTED_PODS`].
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "the explanation stores readings by value, too")]
pub(crate) enum MetricResult {
    /// The metric yielded a proposal.
    Valid(MetricStatus, MetricReading),
    /// The metric failed. Contains the reason of the event, and whether the spec is invalid.
    Failed(&'static str, bool, FailedMetric),
}

/// The first failure in the order of the spec.
#[derive(Debug)]
pub(crate) struct FirstFailure {
    index: usize,
    /// The failure with its complete text.
    pub(crate) failure: MetricFailure,
}

impl<'a> Evaluation<'a> {
    /// Creates an evaluation without results.
    pub fn new(hpa: &Hpa<'a>, plan: &'a Plan, settings: &'a Settings) -> Self {
        let mut evaluation = Self {
            hpa: *hpa,
            plan,
            settings,
            results: Vec::new(),
            first_failure: None,
            choice: None,
            pods_left: MAX_LISTED_PODS,
            error_bytes_left: MAX_ERROR_BYTES,
            last_error: "".into(),
        };
        evaluation.results.resize_with(evaluation.planned().len(), || None);
        evaluation
    }

    /// The number of metrics to evaluate. 0 if the plan reads no metrics.
    pub fn metrics(&self) -> usize {
        self.results.len()
    }

    /// Whether the metric at `index` in the spec was evaluated.
    pub fn is_evaluated(&self, index: usize) -> bool {
        self.results.get(index).is_some_and(Option::is_some)
    }

    /// Evaluates the metric at `index` in the spec. `pods` are the pods that the Scale's selector matches, sorted by
    /// name.
    pub fn evaluate(
        &mut self,
        index: usize,
        answer: Option<&Result<Answer, QueryError>>,
        pods: &[Arc<Pod>],
        now: Timestamp,
    ) {
        let (hpa, settings) = (self.hpa, self.settings);
        let (Some(scale), Some(planned), Some(metric)) =
            (&self.plan.scale, self.planned().get(index), hpa.spec.metrics.get(index))
        else {
            return;
        };
        let calculator = Calculator {
            current: scale.replicas,
            status_replicas: scale.status_replicas,
            pods,
            tolerance: Tolerance::new(hpa.spec.behavior.as_ref(), settings),
            settings,
            now,
        };
        let result = match compute(&hpa, metric, planned, answer, &calculator, settings) {
            Ok(Proposal { status, mut reading }) => {
                self.condense(&mut reading);
                MetricResult::Valid(status, reading)
            }
            Err(failure) => {
                let failed = FailedMetric {
                    subject: metric.subject(),
                    reason: failure.reason.into(),
                    class: Some(failure.class),
                    error: self.bounded(&failure.error),
                };
                let result = MetricResult::Failed(failure.reason, failure.is_spec, failed);
                if self.first_failure.as_ref().is_none_or(|first| index <= first.index) {
                    self.first_failure = Some(FirstFailure { index, failure });
                }
                result
            }
        };
        if let Some(slot) = self.results.get_mut(index) {
            *slot = Some(result);
        }
    }

    /// Computes the decision. A metric that was not evaluated fails.
    pub fn decide(mut self, history: &History, now: Timestamp) -> Decision {
        for index in 0..self.results.len() {
            if !self.is_evaluated(index) {
                self.evaluate(index, None, &[], now);
            }
        }
        Decision::new(self, history, now)
    }

    fn planned(&self) -> &'a [PlannedMetric] {
        match &self.plan.case {
            Case::Metrics(planned) => planned,
            _ => &[],
        }
    }

    /// Drops pods that exceed the limit of listed pods. The numbers of the reading do not change.
    fn condense(&mut self, reading: &mut MetricReading) {
        for keep in [LISTED_PODS, 0] {
            if reading.pods.len() > self.pods_left {
                (reading.pods, reading.unlisted) = reading.condensed_pods(keep);
            }
        }
        reading.pods.shrink_to_fit();
        self.pods_left = self.pods_left.saturating_sub(reading.pods.len());
    }

    /// The text of an error for the explanation.
    fn bounded(&mut self, error: &str) -> Arc<str> {
        if *self.last_error == *error {
            return Arc::clone(&self.last_error);
        }
        if let Some(left) = self.error_bytes_left.checked_sub(error.len()) {
            self.error_bytes_left = left;
            self.last_error = error.into();
            return Arc::clone(&self.last_error);
        }
        if error.len() <= SHORT_ERROR {
            return error.into();
        }
        let cut = error.get(..error.floor_char_boundary(SHORT_ERROR)).unwrap_or_default();
        format!("{cut}…").into()
    }
}
