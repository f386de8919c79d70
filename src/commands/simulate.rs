//! `concertina simulate`: HPAs against a model of their workload, in virtual time, through the whole controller.

mod figure;
pub mod page;
pub mod run;
#[cfg(test)]
mod sample;
pub mod table;
mod text;
