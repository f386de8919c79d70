//! Floors from the load of earlier days, as pure functions: the series of an HPA's load in, a floor with its reasons
//! out.
//!
//! Load is in pods at full capacity: 1 is what one pod serves at 100 % utilization. A [`State`] keeps the highest load
//! of each five minutes for 14 days. At the start of each minute, ten [candidates](Candidate) forecast the load until a
//! pod that starts now is ready: from the same local minutes of earlier days, and from the slope of the last minutes.
//! [`State::learn`] replays each candidate against what the HPA alone asks for: the pods that it adds, and the shortage
//! that it avoids. Each hour, the candidate with the highest benefit of the last eight days is chosen, within a budget
//! of added pods. If none pays, there is no floor.
//!
//! The crate has no clock: the time is an argument.
//!
//! | module | contents |
//! |---|---|
//! | [`calendar`] | the same local minutes of earlier days, and the weights of these days |
//! | [`reason`] | the reasons for a floor or for no floor, as data and as a sentence |
//! | [`stored`] | the form in which a state is kept outside of the process |

pub mod calendar;
mod ledger;
mod number;
mod peaks;
pub mod reason;
mod state;
pub mod stored;
#[cfg(test)]
mod tests;

pub use self::ledger::{Candidate, Tally};
pub use self::state::{Band, Mode, Observation, Outlook, Refused, Settings, State};
