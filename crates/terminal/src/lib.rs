//! What the commands for a terminal share.
//!
//! | module | contents |
//! |---|---|
//! | [`options`] | flags that commands share, the connection flags of kubectl, and the parsing of a command line |
//! | [`address`], [`forward`] | connections to a controller: at a URL, or by port-forward to its pod |
//! | [`ending`], [`progress`] | the exit codes, reads that can be interrupted, and what a command waits for |
//! | [`explain`] | a decision as steps and lines, with emphasis |
//! | [`flag_use`] | the settings of a controller as flags |
//! | [`namespaces`] | the labels of namespaces |
//! | [`values`], [`words`] | JSON and YAML values, and formatted texts |

pub mod address;
pub mod ending;
pub mod explain;
pub mod flag_use;
pub mod forward;
pub mod namespaces;
pub mod options;
pub mod progress;
pub mod values;
pub mod words;
