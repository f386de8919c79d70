//! The guard of `--scope=labelled`, which refuses the writes of the built-in controller to HPAs in scope.
//!
//! | part | where it runs |
//! |---|---|
//! | [`review`]: the decision of the webhook, from memory | every replica, on a separate thread |
//! | [`certificate`]: the webhook's certificate and its authorities | every replica |
//! | [`proof`]: check of the guard's objects | every replica |
//! | [`proof`]: `caBundle` of the webhook configuration | the leader |

pub mod authority;
pub mod certificate;
pub mod proof;
pub mod review;
#[cfg(test)]
mod tests;
