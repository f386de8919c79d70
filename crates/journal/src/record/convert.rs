//! Conversions between the types of the `/decisions` response and those of the core.

use autoscaling::history;
use autoscaling::settings::Settings;
use autoscaling::settings::StatusPrecision;
use autoscaling::{Action, WriteOutcome};

use super::wire::{ActionTaken, FeatureGates, History, Outcome, SettingsInfo};

impl From<&Settings> for SettingsInfo {
    fn from(settings: &Settings) -> Self {
        Self {
            emulated_version: settings.version,
            tolerance: settings.tolerance,
            downscale_stabilization: settings.downscale_stabilization,
            cpu_initialization_period: settings.cpu_initialization_period,
            initial_readiness_delay: settings.initial_readiness_delay,
            feature_gates: FeatureGates {
                hpa_scale_to_zero: settings.scale_to_zero,
                hpa_generation: settings.generation,
                hpa_configurable_tolerance: settings.configurable_tolerance,
                hpa_optimized_selector_store: settings.optimized_selector_store,
                pod_level_resources: settings.pod_level_resources,
            },
        }
    }
}

impl From<SettingsInfo> for Settings {
    fn from(info: SettingsInfo) -> Self {
        Self {
            tolerance: info.tolerance,
            downscale_stabilization: info.downscale_stabilization,
            cpu_initialization_period: info.cpu_initialization_period,
            initial_readiness_delay: info.initial_readiness_delay,
            version: info.emulated_version,
            scale_to_zero: info.feature_gates.hpa_scale_to_zero,
            generation: info.feature_gates.hpa_generation,
            configurable_tolerance: info.feature_gates.hpa_configurable_tolerance,
            optimized_selector_store: info.feature_gates.hpa_optimized_selector_store,
            pod_level_resources: info.feature_gates.pod_level_resources,
            // The record explains decisions, which do not depend on it.
            status_precision: StatusPrecision::default(),
        }
    }
}

impl From<history::History> for History {
    fn from(history: history::History) -> Self {
        let history::History {
            recommendations,
            scale_ups,
            scale_downs,
            unknown_up,
            unknown_down,
            unsettled,
            inherited,
        } = history;
        Self { recommendations, scale_ups, scale_downs, unknown_up, unknown_down, unsettled, inherited }
    }
}

impl From<History> for history::History {
    fn from(history: History) -> Self {
        let History {
            recommendations,
            scale_ups,
            scale_downs,
            unknown_up,
            unknown_down,
            unsettled,
            inherited,
        } = history;
        Self { recommendations, scale_ups, scale_downs, unknown_up, unknown_down, unsettled, inherited }
    }
}

impl From<Action> for ActionTaken {
    fn from(action: Action) -> Self {
        match action {
            Action::None => Self::None,
            Action::ScaleUp => Self::ScaleUp,
            Action::ScaleDown => Self::ScaleDown,
        }
    }
}

impl From<&WriteOutcome> for Outcome {
    fn from(outcome: &WriteOutcome) -> Self {
        match outcome {
            WriteOutcome::NotNeeded => Self::NotNeeded,
            WriteOutcome::Done => Self::Done,
            WriteOutcome::Failed(_) | WriteOutcome::Unknown(_) => Self::Failed,
            WriteOutcome::Withheld => Self::Withheld,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use autoscaling::history::PendingWrite;
    use autoscaling::settings::Version;
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn settings_round_trip_and_read_like_flags() {
        let settings = Settings {
            tolerance: 0.05,
            downscale_stabilization: Duration::from_millis(1500),
            ..Settings::new(Version::V1_36)
        };
        let json = serde_json::to_value(SettingsInfo::from(&settings)).unwrap();
        assert_eq!(json["emulatedVersion"], "1.36");
        assert_eq!(json["downscaleStabilization"], "1.5s");
        assert_eq!(json["cpuInitializationPeriod"], "5m0s");
        assert_eq!(json["featureGates"]["HPAScaleToZero"], false);
        let read: SettingsInfo = serde_json::from_value(json).unwrap();
        assert_eq!(Settings::from(read), settings);
    }

    #[test]
    fn invalid_duration_is_refused_with_its_text() {
        let mut json = serde_json::to_value(SettingsInfo::from(&Settings::default())).unwrap();
        for (text, expected) in
            [("-5m", "duration \"-5m\" is negative"), ("5", "missing unit in duration \"5\"")]
        {
            json["initialReadinessDelay"] = text.into();
            let error = serde_json::from_value::<SettingsInfo>(json.clone()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn pending_write_round_trips_and_is_absent_by_default() {
        let at = Timestamp::UNIX_EPOCH;
        let plain = history::History {
            scale_ups: vec![history::ScaleEvent::new(at, 2)],
            ..history::History::default()
        };
        let json = serde_json::to_value(History::from(plain.clone())).unwrap();
        let expected = serde_json::json!({
            "recommendations": [],
            "scaleUps": [{"at": "1970-01-01T00:00:00Z", "change": 2}],
            "scaleDowns": [],
        });
        assert_eq!(json, expected);
        let mut doubted = history::History {
            unknown_up: Some(at),
            unknown_down: Some(at),
            unsettled: Some(PendingWrite { at, from: 2, to: 3 }),
            inherited: Some(at),
            ..plain
        };
        doubted.scale_ups.push(history::ScaleEvent { at, change: 1, earliest: Some(Timestamp::MIN) });
        let json = serde_json::to_value(History::from(doubted.clone())).unwrap();
        let read: History = serde_json::from_value(json).unwrap();
        assert_eq!(history::History::from(read), doubted);
    }
}
