//! Command lines. A valid command line gives a configuration within its bounds, and an error names the invalid
//! argument.
//!
//! The input consists of the arguments, separated by line feeds.

#![no_main]

mod plant;

use std::ffi::OsString;
use std::time::Duration;

use concertina::invocation::Invocation;
use flags::{CliError, Config, FlagError};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let arguments: Vec<OsString> =
        if input.is_empty() { Vec::new() } else { input.split(|b| *b == b'\n').map(argument).collect() };
    let read = Invocation::from_args(arguments.clone());
    assert_eq!(read, Invocation::from_args(arguments.clone()), "parsing must be deterministic");
    match &read {
        Ok(Invocation::Controller(config)) => within_bounds(config),
        Ok(Invocation::Help(text) | Invocation::Version(text)) => assert!(!text.is_empty()),
        Ok(_) => {}
        Err(error) => names_its_argument(error, &arguments),
    }
    // An additional flag at the end overrides an earlier flag with the same name, and changes no other flag.
    if let Ok(Invocation::Controller(mut before)) = read
        && !arguments.iter().any(|argument| argument == "--")
    {
        let Ok(Invocation::Controller(mut after)) =
            Invocation::from_args(arguments.into_iter().chain([OsString::from("--dry_run=true")]))
        else {
            panic!("--dry_run=true makes a valid command line invalid");
        };
        assert_eq!(after.serving.given.len(), before.serving.given.len() + usize::from(!was_given(&before)));
        after.serving.given.clone_from(&before.serving.given);
        before.controller.dry_run = true;
        assert_eq!(after, before);
    }
});

#[cfg(unix)]
fn argument(bytes: &[u8]) -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes.to_vec())
}

fn was_given(config: &Config) -> bool {
    config.serving.given.iter().any(|(name, _)| name == "dry-run")
}

fn within_bounds(config: &Config) {
    let settings = &config.controller.settings;
    let mut tolerance = settings.tolerance;
    if plant::planted("flags") && config.controller.dry_run && config.burst == 7 {
        tolerance = f64::NAN;
    }
    assert!(tolerance.is_finite());
    assert!(
        config.controller.sync_period > Duration::ZERO && config.controller.metrics_timeout > Duration::ZERO
    );
    assert!(config.controller.concurrent_syncs >= 1 && config.burst >= 1);
    assert!(config.controller.qps.is_none_or(|qps| qps > 0.0 && qps.is_finite()));
    assert!(config.controller.max_metrics_response >= 1);
    assert!(
        config.controller.max_concurrent_metric_requests >= 1
            && config.controller.max_concurrent_metric_requests_per_api >= 1
    );
    assert!(config.controller.decisions_per_hpa <= 1000);
    assert!(config.kubeconfig.as_ref().is_none_or(|path| !path.as_os_str().is_empty()));
    assert!(config.master.as_ref().is_none_or(|server| !server.is_empty()));
    assert!(config.controller.watch_namespaces.as_ref().is_none_or(|names| {
        !names.is_empty() && names.iter().all(|name| !name.is_empty() && !name.contains(['/', '?', '%', ' ']))
    }));
    if let Some(election) = &config.election {
        let timing = election.timing;
        assert!(timing.lease > timing.renew_deadline, "{election:?}");
        assert!(timing.renew_deadline > timing.retry && timing.retry > Duration::ZERO, "{election:?}");
        assert!(!election.name.is_empty() && election.name != "kube-controller-manager", "{election:?}");
    }
    for warning in &config.warnings {
        assert!(warning.contains("--"), "{warning}");
    }
}

/// Checks that the text of an error quotes the invalid flag or argument.
fn names_its_argument(error: &CliError, arguments: &[OsString]) {
    let message = error.to_string();
    assert!(!message.is_empty());
    match error {
        CliError::Flag(FlagError::Invalid { flag, .. }) => {
            let name = flag.rsplit("--").next().unwrap_or_default();
            assert!(!name.is_empty() && message.contains(&format!("--{name}")), "{message}");
        }
        CliError::Flag(FlagError::Unknown { flag, .. }) => {
            let name = flag.trim_start_matches('-');
            let typed = |argument: &OsString| argument.to_string_lossy().contains(name);
            assert!(arguments.iter().any(typed), "{message}");
        }
        CliError::Flag(FlagError::Syntax(text)) => assert!(text.contains('-'), "{message}"),
        CliError::Flag(FlagError::Arguments(arguments)) => assert!(!arguments.is_empty()),
        CliError::Subcommand(_) => {}
        CliError::UnknownCommand { word, .. } => {
            assert!(arguments.iter().any(|argument| argument.to_str() == Some(word)), "{message}");
        }
        // `from_args` never returns this error, because it does not detect a terminal.
        CliError::NoCommand { .. } => assert!(message.contains("help"), "{message}"),
        CliError::NotText(_) => assert!(arguments.iter().any(|argument| argument.to_str().is_none())),
    }
}
