//! The pure core of Concertina: what a HorizontalPodAutoscaler controller decides, without doing anything.
//!
//! One sync goes through three steps, because the metrics to read depend on the Scale and the last
//! conditions depend on the answer to the write:
//!
//! 1. [`plan`]: from the HPA and its Scale, which metrics must be read, or that the matter is settled;
//! 2. [`decide`]: from the answers, the history and the time, the replica count and why;
//! 3. [`conclude`]: from the outcome of the write, the new status, the events, the changes of the history.
//!
//! Rules of this crate, held by its manifest: no async, no client, no clock, no logging. `now` is a value, and
//! changes of the history are values that the caller commits.

mod behavior;
mod conclude;
pub mod condition;
mod decide;
pub mod event;
pub mod explanation;
pub mod go;
pub mod history;
mod metric;
mod number;
mod plan;
pub mod pod;
pub mod quantity;
pub mod query;
mod readiness;
mod replicas;
mod requests;
pub mod selector;
pub mod settings;
pub mod spec;
mod stabilization;
pub mod status;

pub use conclude::{Conclusion, WriteOutcome, conclude, failed_update_status};
pub use decide::{Action, Answers, Computation, Decision, ErrorLabel, Verdict, decide};
pub use plan::{ApiVersionError, Hpa, Overlap, Plan, Scale, ScaleFailure, plan, target_group};
