//! A controller process for the tests of this crate. It has the flags that change a decision, and runs no controller.

use std::error::Error;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::duration::GoDuration;
use autoscaling::settings::{Settings, Version};
use cluster::client::ClientOptions;
use controller::options::Options;
use controller::reconcile::Observers;
use futures::future::BoxFuture;
use sources::Sources;
use tokio_util::sync::CancellationToken;

use super::{ControllerProcess, FlagError, FlagHelp, Process, ResolvedFlags};
use crate::options::decision;
use clock::SharedClock;

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
        decision::NAMES.into_iter().map(help).collect()
    }

    fn resolve(&self, words: Vec<String>) -> Result<ResolvedFlags, FlagError> {
        let flags: Vec<_> =
            words.iter().filter_map(|word| word.strip_prefix("--")?.split_once('=')).collect();
        let is_old = flags.contains(&(decision::EMULATED_VERSION, "1.36"));
        let mut settings = Settings::new(if is_old { Version::V1_36 } else { Version::V1_37 });
        let mut options = Options::default();
        let mut warnings = Vec::new();
        for (name, value) in flags {
            match name {
                decision::TOLERANCE => settings.tolerance = parsed(value)?,
                decision::DOWNSCALE_STABILIZATION => settings.downscale_stabilization = duration(value)?,
                decision::SYNC_PERIOD => options.sync_period = duration(value)?,
                decision::EMULATED_VERSION => {}
                decision::FEATURE_GATES => match value.split_once('=') {
                    Some(("HPAScaleToZero", value)) => settings.scale_to_zero = parsed(value)?,
                    Some(("HPAGeneration", value)) if !is_old => settings.generation = parsed(value)?,
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
