//! The controller process, which the program passes to the commands, and the controller's flags that change a decision.
//! A command that decides itself resolves these flags through the process. Their names, rules and errors are the same
//! as on the controller's command line.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use clock::SharedClock;
use cluster::client::ClientOptions;
use controller::options::Options;
use engine::reconcile::Observers;
use futures::future::BoxFuture;
use sources::Sources;
use tokio_util::sync::CancellationToken;

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
    /// The options of the controller's clients, without an observer.
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

/// Name of the flag for the tolerance: the difference between a ratio and 1 up to which the count does not change.
pub const TOLERANCE: &str = "horizontal-pod-autoscaler-tolerance";
/// Name of the flag for the default stabilization window of scale-downs.
pub const DOWNSCALE_STABILIZATION: &str = "horizontal-pod-autoscaler-downscale-stabilization";
/// Name of the flag for the period after the start of a pod in which its cpu samples may be skipped.
pub const CPU_INITIALIZATION_PERIOD: &str = "horizontal-pod-autoscaler-cpu-initialization-period";
/// Name of the flag for the period after the start of a pod in which a change of readiness is its initial readiness.
pub const INITIAL_READINESS_DELAY: &str = "horizontal-pod-autoscaler-initial-readiness-delay";
/// Name of the flag for the time between two syncs of an HPA.
pub const SYNC_PERIOD: &str = "horizontal-pod-autoscaler-sync-period";
/// Name of the flag for the Kubernetes version whose behavior the controller emulates.
pub const EMULATED_VERSION: &str = "emulated-version";
/// Name of the flag that enables or disables features.
pub const FEATURE_GATES: &str = "feature-gates";

/// The names of the flags that change a decision, in the order of the help text.
pub const NAMES: [&str; 7] = [
    TOLERANCE,
    DOWNSCALE_STABILIZATION,
    CPU_INITIALIZATION_PERIOD,
    INITIAL_READINESS_DELAY,
    SYNC_PERIOD,
    EMULATED_VERSION,
    FEATURE_GATES,
];

/// The given flags that change a decision, validated by the controller's rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DecisionFlags {
    given: Vec<(&'static str, String)>,
}

/// Returns the help of the flags in [`NAMES`], in that order.
pub(crate) fn help(process: Process) -> Vec<FlagHelp> {
    let all = process.flags();
    NAMES.into_iter().filter_map(|name| all.iter().find(|flag| flag.name == name).cloned()).collect()
}

impl DecisionFlags {
    /// Validates flags by the controller's rules. A list flag may occur several times.
    ///
    /// # Errors
    /// Returns the controller's error for an invalid value.
    pub fn new(given: Vec<(&'static str, String)>, process: Process) -> Result<Self, FlagError> {
        let flags = Self { given };
        flags.resolve(None, process)?;
        Ok(flags)
    }

    /// Returns whether a flag was given.
    pub fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| *given == name)
    }

    /// Returns the controller's options that the flags define, for a dry run. `version` applies unless
    /// `--emulated-version` was given.
    ///
    /// # Errors
    /// Returns the controller's error if the gates do not exist at the version.
    pub fn resolve(&self, version: Option<&str>, process: Process) -> Result<ResolvedFlags, FlagError> {
        let version = version.filter(|_| !self.has(EMULATED_VERSION));
        let version = version.map(|version| (EMULATED_VERSION, version.to_owned()));
        let words = self.given.iter().cloned().chain(version);
        let mut resolved =
            process.resolve(words.map(|(name, value)| format!("--{name}={value}")).collect())?;
        resolved.options.dry_run = true;
        Ok(resolved)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::str::FromStr;
    use std::time::Duration;

    use autoscaling::duration::GoDuration;
    use autoscaling::settings::{Settings, Version};

    use super::*;

    /// A controller process for the tests of this crate. It has the flags that change a decision, and runs no
    /// controller.
    pub(crate) const FAKE: Process = &FakeProcess;

    #[derive(Debug)]
    struct FakeProcess;

    impl ControllerProcess for FakeProcess {
        fn flags(&self) -> Vec<FlagHelp> {
            let help = |name: &str| FlagHelp {
                name: name.to_owned(),
                placeholder: "value".to_owned(),
                usage: "A flag of the controller.".to_owned(),
            };
            NAMES.into_iter().map(help).collect()
        }

        fn resolve(&self, words: Vec<String>) -> Result<ResolvedFlags, FlagError> {
            let flags: Vec<_> =
                words.iter().filter_map(|word| word.strip_prefix("--")?.split_once('=')).collect();
            let version = flags.iter().find(|(name, _)| *name == EMULATED_VERSION);
            let version = version.and_then(|(_, version)| Version::named(version)).unwrap_or_default();
            let mut settings = Settings::new(version);
            let mut options = Options::default();
            let mut warnings = Vec::new();
            for (name, value) in flags {
                match name {
                    TOLERANCE => settings.tolerance = parsed(value)?,
                    DOWNSCALE_STABILIZATION => settings.downscale_stabilization = duration(value)?,
                    SYNC_PERIOD => options.sync_period = duration(value)?,
                    EMULATED_VERSION => {}
                    FEATURE_GATES => match value.split_once('=') {
                        Some(("HPAScaleToZero", value)) => settings.scale_to_zero = parsed(value)?,
                        Some(("HPAGeneration", value)) if version > Version::V1_36 => {
                            settings.generation = parsed(value)?;
                        }
                        _ => return Err(FlagError::Invalid(format!("unknown gate {value}"))),
                    },
                    "concurrent-gc-syncs" => warnings.push(format!("--{name} has no effect")),
                    _ => return Err(FlagError::Unknown(name.to_owned())),
                }
            }
            options.settings = settings;
            Ok(ResolvedFlags { options, clients: ClientOptions::default(), warnings })
        }

        fn run(
            &self,
            _: Vec<String>,
            _: SharedClock,
            _: Observers,
            _: Option<Arc<Sources>>,
            stop: CancellationToken,
        ) -> BoxFuture<'static, Result<(), Box<dyn Error + Send + Sync>>> {
            Box::pin(async move {
                stop.cancelled().await;
                Ok(())
            })
        }
    }

    fn parsed<T: FromStr>(value: &str) -> Result<T, FlagError> {
        value.parse().map_err(|_| FlagError::Invalid(format!("invalid value {value}")))
    }

    fn duration(value: &str) -> Result<Duration, FlagError> {
        parsed::<GoDuration>(value)?
            .unsigned()
            .ok_or_else(|| FlagError::Invalid("must be at least 0s".to_owned()))
    }

    fn resolved(given: &[(&'static str, &str)], version: Option<&str>) -> ResolvedFlags {
        let given = given.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        DecisionFlags::new(given, FAKE).unwrap().resolve(version, FAKE).unwrap()
    }

    #[test]
    fn given_version_overrides_the_servers() {
        let version = |given: &[_]| resolved(given, Some("1.36")).options.settings.version;
        assert_eq!(version(&[]), Version::V1_36);
        assert_eq!(version(&[(EMULATED_VERSION, "1.37")]), Version::V1_37);
    }

    #[test]
    fn options_are_a_dry_run() {
        assert!(resolved(&[], None).options.dry_run);
    }
}
