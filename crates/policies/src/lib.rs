//! The rules of scaling policies as pure functions. They extend the rules of the HPA in [`autoscaling`], called *the
//! reference*. The crate has no I/O, no async, no clock and no logging.
//!
//! A sync of an HPA with policies has these steps:
//!
//! 1. [`spec::parse`] or [`spec::read`] reads each policy once, and [`merge::Policy::merge`] merges the policies of an HPA.
//! 2. [`resolve::resolve`] computes the [`resolve::Rules`] at a time, with [`schedule`] for recurring schedules. The rules
//!    do not change before their [next edge](field@resolve::Rules::next_edge).
//! 3. [`bounds`] replaces the bounds of the HPA and the settings of the controller in the inputs of [`autoscaling::plan()`].
//!    [`guards::owned_pods`] and [`corrections`] replace the pods and the answers of metrics.
//! 4. [`resolve::Rules::decide`] decides by the evaluated metrics, with [`burst`], [`choice`] and their [`history`].
//! 5. [`resolve::Rules::apply`] applies [`guards`] and [`mode`] to the decision, and returns the [`steps::PolicyEffect`].
//!
//! [`import`] converts objects of other autoscalers to policies.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//!
//! use jiff::Timestamp;
//! use policies::merge::{Policy, Source};
//! use policies::resolve::resolve;
//! use policies::spec::{Level, parse};
//!
//! let parsed = parse(
//!     r#"
//!     mode: ScaleUpOnly
//!     until: 2026-11-24T08:00:00Z
//!     schedules:
//!     - {name: office, timeZone: Europe/Berlin, start: "0 8 * * 1-5", end: "0 19 * * 1-5", minReplicas: 10}
//!     gards: {rollout: Hold}
//!     "#,
//!     Level::Annotation,
//! );
//! assert_eq!(parsed.problems[0].to_string(), "gards: is unknown and has no effect; did you mean guards?");
//!
//! let annotation =
//!     Source { level: Level::Annotation, name: "".into(), created: None, parsed: Arc::new(parsed) };
//! let policy = Arc::new(Policy::merge(vec![annotation]));
//! let monday_noon: Timestamp = "2026-11-23T12:00:00Z".parse()?;
//! let rules = resolve(&policy, monday_noon);
//! let bounded = rules.bounds.apply(2, 20);
//! assert_eq!((bounded.min, bounded.max), (10, 20));
//! assert_eq!(
//!     bounded.steps[0].to_string(),
//!     "schedule office sets minReplicas to 10 instead of 2 until 2026-11-23T18:00:00Z"
//! );
//! assert_eq!(rules.next_edge, Some("2026-11-23T18:00:00Z".parse()?));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod bounds;
pub mod burst;
pub mod choice;
pub mod corrections;
mod decision;
pub mod guards;
pub mod history;
pub mod import;
pub mod merge;
pub mod mode;
pub mod resolve;
pub mod schedule;
pub mod spec;
pub mod steps;

#[cfg(test)]
mod tests;

pub use decision::{Earlier, PolicyDecision, TargetState, ready_pods};
