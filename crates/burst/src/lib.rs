//! Scaling by two averages of the load, over a long stable window and a short panic window.
//!
//! The rules are those of Knative's Autoscaler, `knative.dev/serving` v0.51.0, `pkg/autoscaler/scaling` and
//! `pkg/autoscaler/aggregation`, for a reachable revision. The test `kpa` of the root package compares every decision
//! with recordings of Knative's decisions.
//!
//! The crate has no I/O and no clock. Times are arguments, in whole seconds since the Unix epoch. The caller records
//! a sample about every second, and calls [`Autoscaler::decide`] about every two seconds.
//!
//! # Example
//!
//! The target is 10 concurrent requests per pod. The load rises to 80 requests, eight times the target of the only pod.
//!
//! ```
//! use burst::{Autoscaler, Mode, Settings};
//!
//! let settings = Settings { target: 10.0, stable_window: 60, panic_window: 6, ..Settings::default() };
//! let mut autoscaler = Autoscaler::new(settings, 1, 0)?;
//! for second in 1..=6 {
//!     autoscaler.record(second, 80.0)?;
//! }
//! let decision = autoscaler.decide(6, 1).ok_or("no sample within the stable window")?;
//! assert_eq!(decision.replicas, 8);
//! assert!(matches!(decision.mode, Mode::Panic { since: 6, .. }));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

mod autoscaler;
mod window;

pub use crate::autoscaler::{
    Autoscaler, Clamp, Explanation, InvalidSample, InvalidSettings, Limit, Mode, Proposal, Settings,
};
