//! The explained controller: its flags, and the record of the leader's pod, which contains flags, history and the last
//! decisions. Each flag is given, read from the record, derived from the version of the API server, or assumed.

use std::collections::BTreeMap;

use autoscaling::settings::{Settings, Version};
use tokio::time::Instant;

use super::situation::{LastDecision, Recorded, Recorder};
use cluster::call::Call;
use cluster::client::Clients;
use controller::options::Options;
use engine::store::Key;
use flags::decision::{
    CPU_INITIALIZATION_PERIOD, DOWNSCALE_STABILIZATION, EMULATED_VERSION, FEATURE_GATES,
    INITIAL_READINESS_DELAY, SYNC_PERIOD, TOLERANCE,
};
use flags::{Config, DecisionFlags, FlagError};
use journal::record::wire::{API_VERSION, ControllerInfo, DecisionList};
use terminal::flag_use::{FlagOrigin, FlagUse, uses};
use terminal::forward::{Connection, ForwardError, WITHIN, Which};
use terminal::options::leader::Leader as Lease;

/// The options of a decision.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Resolved {
    pub(super) options: Options,
    /// Warnings about given flags without effect.
    pub(super) warnings: Vec<String>,
    pub(super) uses: Vec<FlagUse>,
}

/// Resolves the options of a decision. Without `--emulated-version`, the decision emulates the API server's version if
/// possible, because the built-in controller comes from the same release.
pub(super) fn resolve(flags: &DecisionFlags, server_minor: Option<u32>) -> Result<Resolved, FlagError> {
    let by_server = server_minor
        .filter(|_| !flags.has(EMULATED_VERSION))
        .and_then(|minor| Version::named(&format!("1.{minor}")))
        .map(Version::name);
    // If the server's version does not have the given gates, the controller must have another version.
    let by_server = by_server.filter(|version| flags.resolve(Some(version)).is_ok());
    let Config { controller: options, warnings, .. } = flags.resolve(by_server)?;
    let uses = uses(&options.settings, |name| match by_server {
        _ if flags.has(name) => FlagOrigin::Given,
        Some(_) if name == EMULATED_VERSION => FlagOrigin::Server,
        _ => FlagOrigin::Assumed,
    });
    Ok(Resolved { options, warnings, uses })
}

/// Resolves the options of a decision from the controller's record. Given flags override the record.
pub(super) fn recorded(flags: &DecisionFlags, controller: ControllerInfo) -> Result<Resolved, FlagError> {
    let mut settings = Settings::from(controller.settings);
    let version = Some(settings.version.name()).filter(|version| flags.resolve(Some(version)).is_ok());
    let Config { controller: options, warnings, .. } = flags.resolve(version)?;
    let given = &options.settings;
    if flags.has(TOLERANCE) {
        settings.tolerance = given.tolerance;
    }
    if flags.has(DOWNSCALE_STABILIZATION) {
        settings.downscale_stabilization = given.downscale_stabilization;
    }
    if flags.has(CPU_INITIALIZATION_PERIOD) {
        settings.cpu_initialization_period = given.cpu_initialization_period;
    }
    if flags.has(INITIAL_READINESS_DELAY) {
        settings.initial_readiness_delay = given.initial_readiness_delay;
    }
    // The emulated version also sets the defaults of the gates.
    let gates = flags.has(EMULATED_VERSION) || flags.has(FEATURE_GATES);
    if gates {
        settings.version = given.version;
        settings.scale_to_zero = given.scale_to_zero;
        settings.generation = given.generation;
        settings.configurable_tolerance = given.configurable_tolerance;
        settings.optimized_selector_store = given.optimized_selector_store;
        settings.pod_level_resources = given.pod_level_resources;
    }
    let sync_period = if flags.has(SYNC_PERIOD) { options.sync_period } else { controller.sync_period };
    let uses = uses(&settings, |name| match name {
        FEATURE_GATES if gates => FlagOrigin::Given,
        _ if flags.has(name) => FlagOrigin::Given,
        _ => FlagOrigin::Record,
    });
    Ok(Resolved { options: Options { settings, sync_period, ..options }, warnings, uses })
}

/// Reads the records of HPAs from the leader's pod, through one connection that stays open.
#[derive(Debug)]
pub(super) struct Leader {
    clients: Clients,
    /// The Leases, in the order of the search.
    candidates: Vec<Which>,
    /// The pods of dry runs, which are read if no Lease of a leader exists.
    shadows: Vec<Which>,
    connection: Option<Connection>,
}

/// The reason why the record of an HPA is missing.
#[derive(Debug, thiserror::Error)]
enum MissingRecord {
    /// The controller responded with an error.
    #[error(transparent)]
    Refused(ForwardError),
    /// The response is not a record.
    #[error("failed to parse the controller's record: {0}: use the version of the controller")]
    Format(#[from] serde_json::Error),
    /// The record has another version.
    #[error("the controller's record has version {0}, not {API_VERSION}: use the version of the controller")]
    Version(String),
}

/// The records of the requested HPAs that the controller's pod returned.
#[derive(Debug, Default)]
pub(super) struct LeaderRecords {
    /// The pod of the controller. Empty if no controller responded.
    from: String,
    /// The record of each HPA, or the reason why it is missing.
    records: BTreeMap<Key, Result<Box<DecisionList>, MissingRecord>>,
    /// The reason why an HPA has no entry in `records`.
    otherwise: Option<Recorded>,
}

impl Leader {
    /// Creates the reader for the first of `leases` that exists. Returns `None` if `leases` is empty, or if the clients
    /// have no user credentials.
    pub(super) fn new(clients: &Clients, leases: &[Lease]) -> Option<Self> {
        (!leases.is_empty() && Connection::is_possible(clients)).then(|| Self {
            clients: clients.clone(),
            candidates: Which::leaders(leases),
            shadows: Which::shadows(leases),
            connection: None,
        })
    }

    /// Reads the records of `keys`, in the given order, for at most [`WITHIN`].
    pub(super) async fn read(&mut self, keys: &[Key]) -> LeaderRecords {
        let deadline = Instant::now() + WITHIN;
        let mut records = LeaderRecords::default();
        // An open connection may break, for example because its pod has stopped, and is then replaced.
        let kept = self.connection.take().filter(Connection::is_open);
        let result = match kept {
            Some(connection) => match self.all(connection, keys, deadline, &mut records).await {
                Err(ForwardError::Http(_)) => self.reconnect(keys, deadline, &mut records).await,
                result => result,
            },
            None => self.reconnect(keys, deadline, &mut records).await,
        };
        if let Err(error) = result {
            records.otherwise = Some(match error {
                ForwardError::NoLease { .. } => Recorded::NoLeader(error.to_string()),
                error => Recorded::Missing(error.to_string()),
            });
        }
        records
    }

    async fn reconnect(
        &mut self,
        keys: &[Key],
        deadline: Instant,
        records: &mut LeaderRecords,
    ) -> Result<(), ForwardError> {
        let connection = match Connection::open_first(&self.clients, &self.candidates, deadline).await {
            // No Concertina controller is the leader, but a dry run may exist in addition to another controller.
            Err(no_leader @ ForwardError::NoLease { .. }) => {
                Connection::open_first(&self.clients, &self.shadows, deadline).await.map_err(|_| no_leader)?
            }
            opened => opened?,
        };
        self.all(connection, keys, deadline, records).await
    }

    async fn all(
        &mut self,
        mut connection: Connection,
        keys: &[Key],
        deadline: Instant,
        records: &mut LeaderRecords,
    ) -> Result<(), ForwardError> {
        records.from = connection.peer.to_string();
        for key in keys {
            let call = Call::get(["decisions", &key.namespace, &key.name]);
            let record = match connection.get(call.path(), deadline).await {
                Ok(body) => read(&body),
                Err(error @ ForwardError::Status { .. }) => Err(MissingRecord::Refused(error)),
                Err(error) => return Err(error),
            };
            records.records.insert(key.clone(), record);
        }
        self.connection = Some(connection);
        Ok(())
    }
}

fn read(body: &[u8]) -> Result<Box<DecisionList>, MissingRecord> {
    let record: DecisionList = serde_json::from_slice(body)?;
    if record.api_version != API_VERSION {
        return Err(MissingRecord::Version(record.api_version));
    }
    Ok(Box::new(record))
}

impl LeaderRecords {
    /// Returns the record of an HPA with the UID `uid`. A record of an earlier HPA with the same name is ignored.
    pub(super) fn record(&self, key: &Key, uid: &str) -> Option<&DecisionList> {
        let record = self.records.get(key)?.as_deref().ok()?;
        (record.metadata.uid == uid).then_some(record)
    }

    /// Returns the pod of the controller, such as `pod kube-system/concertina-7d9c5`.
    pub(super) fn pod(&self) -> &str {
        &self.from
    }

    /// Returns the controller's version, period and settings, from any record.
    pub(super) fn controller(&self) -> Option<&ControllerInfo> {
        self.records.values().find_map(|record| record.as_ref().ok()).map(|record| &record.controller)
    }

    /// Returns the controller that recorded an HPA, or the reason why the record is missing.
    pub(super) fn about(&self, key: &Key, uid: &str) -> Recorded {
        match self.records.get(key) {
            Some(Ok(record)) if record.metadata.uid == uid => Recorded::Read(self.recorder(record)),
            Some(Ok(_)) => Recorded::Missing(
                "the controller's record belongs to an earlier HPA with this name".to_owned(),
            ),
            Some(Err(reason)) => Recorded::Missing(reason.to_string()),
            None => self.otherwise.clone().unwrap_or(Recorded::NotRequested),
        }
    }

    fn recorder(&self, record: &DecisionList) -> Recorder {
        let last = record.decisions.first().map(|last| LastDecision {
            sentence: last.result.sentence.clone(),
            at: last.last_at,
            syncs: last.syncs,
            since: last.first_at,
        });
        let comparison = record.comparison.clone();
        Recorder { from: self.from.clone(), version: record.controller.version.clone(), last, comparison }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn resolved(given: &[(&'static str, &str)], minor: Option<u32>) -> Resolved {
        let given = given.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        resolve(&DecisionFlags::new(given).unwrap(), minor).unwrap()
    }

    fn origin(resolved: &Resolved, name: &str) -> (String, FlagOrigin) {
        let found = resolved.uses.iter().find(|flag| flag.name == name).unwrap();
        (found.value.clone(), found.origin)
    }

    #[test]
    fn flags_are_assumed_and_the_version_is_the_servers_by_default() {
        let by_server = resolved(&[], Some(36));
        assert_eq!(origin(&by_server, TOLERANCE), ("0.1".to_owned(), FlagOrigin::Assumed));
        assert_eq!(origin(&by_server, DOWNSCALE_STABILIZATION), ("5m0s".to_owned(), FlagOrigin::Assumed));
        assert_eq!(origin(&by_server, EMULATED_VERSION), ("1.36".to_owned(), FlagOrigin::Server));
        assert!(!by_server.options.settings.scale_to_zero);
        let newer = origin(&resolved(&[], Some(38)), EMULATED_VERSION);
        assert_eq!(newer, ("1.38".to_owned(), FlagOrigin::Server));
        for minor in [None, Some(35), Some(99)] {
            let assumed = ("1.37".to_owned(), FlagOrigin::Assumed);
            assert_eq!(origin(&resolved(&[], minor), EMULATED_VERSION), assumed);
        }
    }

    #[test]
    fn given_flags_override_the_defaults() {
        let given = [(TOLERANCE, "0.05"), (EMULATED_VERSION, "1.36"), (FEATURE_GATES, "HPAScaleToZero=true")];
        let resolved = resolved(&given, Some(37));
        assert_eq!(origin(&resolved, TOLERANCE), ("0.05".to_owned(), FlagOrigin::Given));
        assert_eq!(origin(&resolved, EMULATED_VERSION), ("1.36".to_owned(), FlagOrigin::Given));
        let (gates, from) = origin(&resolved, FEATURE_GATES);
        assert!(gates.contains("HPAScaleToZero=true") && from == FlagOrigin::Given, "{gates}");
    }

    #[test]
    fn gates_missing_at_the_servers_version_keep_the_default_version() {
        let resolved = resolved(&[(FEATURE_GATES, "HPAGeneration=true")], Some(36));
        assert_eq!(origin(&resolved, EMULATED_VERSION), ("1.37".to_owned(), FlagOrigin::Assumed));
    }

    #[test]
    fn record_supplies_flags_that_are_not_given() {
        let settings = Settings { tolerance: 0.3, scale_to_zero: false, ..Settings::new(Version::V1_36) };
        let info = || ControllerInfo {
            version: "0".to_owned(),
            sync_period: Duration::from_secs(5),
            settings: (&settings).into(),
        };
        let with = |given: &[(&'static str, &str)]| {
            let given = given.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
            recorded(&DecisionFlags::new(given).unwrap(), info()).unwrap()
        };
        let plain = with(&[]);
        assert_eq!((&plain.options.settings, plain.options.sync_period), (&settings, Duration::from_secs(5)));
        assert_eq!(origin(&plain, TOLERANCE), ("0.3".to_owned(), FlagOrigin::Record));
        assert_eq!(origin(&plain, EMULATED_VERSION), ("1.36".to_owned(), FlagOrigin::Record));

        let other = with(&[(TOLERANCE, "0.2"), (SYNC_PERIOD, "7s")]);
        assert_eq!(origin(&other, TOLERANCE), ("0.2".to_owned(), FlagOrigin::Given));
        assert_eq!(other.options.sync_period, Duration::from_secs(7));
        assert!(!other.options.settings.scale_to_zero);

        let newer = with(&[(EMULATED_VERSION, "1.37")]);
        assert_eq!(newer.options.settings, Settings { tolerance: 0.3, ..Settings::new(Version::V1_37) });
        assert_eq!(origin(&newer, FEATURE_GATES).1, FlagOrigin::Given);
    }
}
