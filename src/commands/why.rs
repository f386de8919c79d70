//! `concertina why`: why an HPA has the count it has, and what it does next, by the controller's own steps.

pub mod counterfactual;
pub mod findings;
pub mod render;
#[cfg(test)]
mod scene;
pub mod situation;

pub use self::situation::Situation;
