//! Which HPAs of a cluster are set wrongly, what they should be, what that saves, and how sure it is.
//!
//! | module | contents |
//! |---|---|
//! | [`recording`] | the recorded values per minute, and the load that follows; pure |
//! | `model` | a fast model that orders settings; pure |
//! | [`search`] | replays with the controller's rules that choose and judge settings; pure |
//! | [`findings`] | what else a recording shows; pure |
//! | [`outcome`] | an advice, or the reason against one |

pub mod findings;
mod model;
pub mod outcome;
pub mod recording;
pub mod search;
