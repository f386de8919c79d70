//! Rules of scaling policies as pure functions. The crate has no I/O, no async, no clock and no logging.
//!
//! [`schedule`] computes when a schedule is active, in the time zone of its owner.
//!
//! # Example
//!
//! ```
//! use jiff::Timestamp;
//! use policies::schedule::Recurrence;
//!
//! let office_hours = Recurrence::parse("Europe/Berlin", "0 8 * * 1-5", "0 19 * * 1-5")?;
//! let monday_noon: Timestamp = "2026-11-23T12:00:00Z".parse()?;
//! let phase = office_hours.phase(monday_noon);
//! assert!(phase.is_active);
//! assert_eq!(phase.until, Some("2026-11-23T18:00:00Z".parse()?));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod schedule;
