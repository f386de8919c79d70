//! The controller process, which the program passes to the commands.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use cluster::client::ClientOptions;
use controller::options::Options;
use controller::reconcile::Observers;
use futures::future::BoxFuture;
use sources::Sources;
use tokio_util::sync::CancellationToken;

use clock::SharedClock;

#[cfg(test)]
pub(crate) mod fake;

/// The controller process: its flags, and a function that runs the controller.
pub trait ControllerProcess: fmt::Debug + Sync {
    /// Returns the flags that have an effect.
    fn flags(&self) -> Vec<FlagHelp>;

    /// Resolves the arguments of a command line that contains only flags.
    ///
    /// # Errors
    /// Returns the first invalid flag.
    fn resolve(&self, words: Vec<String>) -> Result<ResolvedFlags, FlagError>;

    /// Runs the controller with the flags `words` until `stop`. `observers` receive its concluded syncs. `sources`
    /// replaces the sources of the flags, if it is given.
    fn run(
        &self,
        words: Vec<String>,
        clock: SharedClock,
        observers: Observers,
        sources: Option<Arc<Sources>>,
        stop: CancellationToken,
    ) -> BoxFuture<'static, Result<(), Box<dyn Error + Send + Sync>>>;
}

/// The controller process, fixed for the lifetime of the program.
pub type Process = &'static dyn ControllerProcess;

/// A flag of the controller in help texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlagHelp {
    /// The name without dashes.
    pub name: String,
    /// The placeholder of the value.
    pub placeholder: String,
    /// The help text.
    pub usage: String,
}

/// The resolved flags of a controller.
#[derive(Debug, Clone)]
pub struct ResolvedFlags {
    /// The options of the controller.
    pub options: Options,
    /// The options of its clients, without an observer.
    pub clients: ClientOptions,
    /// Warnings about given flags without effect.
    pub warnings: Vec<String>,
}

/// The reason why a flag of the controller is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// The controller does not have the flag.
    #[error("unknown flag: --{0}")]
    Unknown(String),
    /// The value is not allowed. Contains the controller's error text.
    #[error("{0}")]
    Invalid(String),
}
