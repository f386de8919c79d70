//! Take-over: never at work at the same time as another controller of the same HPAs.

pub mod foreign;
