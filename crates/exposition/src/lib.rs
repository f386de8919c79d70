//! Pages of metrics in Prometheus' text format 0.0.4, and values computed from these pages.
//!
//! - [`Page`] reads a page in pieces and passes each series to the caller. It accepts and refuses the same pages as
//!   Prometheus' own parser, and limits bytes, lines and labels.
//! - [`Scrape`] keeps the samples of some series names with given labels.
//! - [`Reduce`] combines samples into one number. [`Rates`] combines counters, over two or more scrapes.
//! - [`kubelet`] computes usage from `/metrics/resource` as metrics-server does.
//!
//! The crate has no I/O and no clock. Times are arguments.
//!
//! # Example
//!
//! ```
//! use exposition::{Limits, Reduce, Scrape, SeriesSelector};
//!
//! let labels = [("model".to_owned(), "llama".to_owned())].into();
//! let selector = SeriesSelector { series: "vllm:num_requests_waiting".into(), labels };
//! let mut scrape = Scrape::new(Limits::default(), [selector]);
//! scrape.push(b"# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{model=\"lla")?;
//! scrape.push(b"ma\",engine=\"0\"} 3\nvllm:num_requests_waiting{model=\"llama\",engine=\"1\"} 4\n")?;
//! let samples = scrape.finish()?.remove(0)?;
//! assert_eq!(Reduce::Sum.samples(&samples)?, Some(7.0));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

mod entry;
mod format;
pub mod kubelet;
mod lexer;
mod page;
mod samples;

pub use crate::entry::Series;
pub use crate::format::{PageError, SyntaxError, is_text_format};
pub use crate::page::{Limits, Page};
pub use crate::samples::{InvalidValue, LabelsHash, Rates, Reduce, Sample, Samples, Scrape, SeriesSelector};
