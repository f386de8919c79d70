//! Which HPAs of a cluster are set wrongly, what they should be, what that saves, and how sure it is.
//!
//! | module | contents |
//! |---|---|
//! | [`recording`] | the recorded values per minute, and the load that follows; pure |
//! | [`outcome`] | an advice, or the reason against one |

pub mod outcome;
pub mod recording;
