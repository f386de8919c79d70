//! The steps of one decision as data.

use serde::{Deserialize, Serialize};

/// A decision and its steps, in the order of their computation. Times are in seconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The time of the decision.
    pub at: i64,
    /// The number of ready pods that the rates are relative to. At least 1.
    pub ready: i32,
    /// The lowest and the highest count that the rates permit.
    pub limits: (i32, i32),
    /// The proposal of the stable window.
    pub stable: Proposal,
    /// The proposal of the panic window. Used in panic mode only.
    pub panic: Proposal,
    /// The mode of the decision.
    pub mode: Mode,
    /// The result of the mode, before the delay of scale-downs.
    pub proposed: i32,
    /// The step that set the result.
    pub limit: Limit,
    /// The result.
    pub replicas: i32,
}

/// The count that one window proposes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Proposal {
    /// The average load over all pods, rounded to six decimal places, in the unit of the samples.
    pub average: f64,
    /// The number of seconds that the average covers. 0 if the window has no sample.
    pub seconds: u32,
    /// The average divided by the target, rounded up.
    pub desired: i32,
    /// [`Self::desired`], limited by the rates, and raised to the activation scale.
    pub replicas: i32,
    /// The rule that changed [`Self::desired`].
    pub clamp: Clamp,
}

/// The rule that changed the proposal of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Clamp {
    /// No rule: the proposal is unchanged.
    None,
    /// The largest factor of a step up.
    ScaleUpRate,
    /// The largest divisor of a step down.
    ScaleDownRate,
    /// The lowest count other than 0.
    ActivationScale,
}

/// The mode of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// The stable window decides.
    Stable,
    /// The higher proposal of both windows decides, and the count does not fall.
    #[serde(rename_all = "camelCase")]
    Panic {
        /// The start of the panic mode.
        since: i64,
        /// The last time at which the panic window reached the threshold. At first, the creation of an autoscaler that
        /// starts in panic mode. The mode ends once this time is older than the stable window.
        last_over: i64,
        /// The highest count since the start.
        highest: i32,
    },
}

/// The step that set the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Limit {
    /// The stable window, with the rule that changed its proposal.
    Stable(Clamp),
    /// The panic window, with the rule that changed its proposal.
    Panic(Clamp),
    /// The panic mode, which keeps the highest count since its start.
    PanicHighest,
    /// The delay of scale-downs, which keeps a higher earlier result.
    ScaleDownDelay,
}
