//! Concertina next to another controller of HPAs, so that the two do not act on the same HPA.
//!
//! [`takeover`] observes another controller, and starts to write once it has stopped. [`handover`] divides the HPAs
//! between the two, by labels, and checks the guard that refuses the writes of the other. [`shadow`] compares decisions
//! with those of a controller that acts on the same HPAs. Each is an observer or a guest of the syncs of the [`engine`].

pub mod handover;
pub mod shadow;
pub mod takeover;
