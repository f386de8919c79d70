//! The commands that move HPAs to Concertina.
//!
//! | module | commands |
//! |---|---|
//! | [`parity`] | `concertina parity`: compares a dry run with the built-in controller |
//! | [`handover`] | `concertina handover`: hands HPAs over from the built-in controller, and back |
//! | [`policy`] | `concertina policy` and `sources`: validates scaling policies, and imports them from other autoscalers |

pub mod handover;
pub mod parity;
pub mod policy;
#[cfg(test)]
#[path = "../../../tests/support/schemas.rs"]
mod schemas;
