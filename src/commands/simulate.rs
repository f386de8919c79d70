//! `concertina simulate`: HPAs against a model of their workload, in virtual time, through the whole controller.

pub mod run;
