//! `concertina simulate`: HPAs against a model of their workload, in virtual time, through the whole controller.

pub mod chart;
pub mod export;
mod figure;
pub mod page;
pub mod run;
#[cfg(test)]
mod sample;
pub mod svg;
pub mod table;
mod text;
