//! The items that follow from the readings. Pure: the time is an argument.

mod installed;

use autoscaling::settings::Version;
use controller::election::leases::Record;
use jiff::{SignedDuration, Timestamp};

use crate::readings::{Api, Installation, Requirements, Surroundings};
use crate::report::{Item, Mark, item};
use cluster::error::ApiError;
use cluster::permission::Missing;
use terminal::words;

pub(crate) use self::installed::guard_objects;
pub use self::installed::installation;

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The oldest supported minor version of the API server, as in the chart.
pub(crate) const OLDEST: u32 = 33;
/// The difference between the clocks that the alert ConcertinaClockSkew reports.
const SKEW: SignedDuration = SignedDuration::from_secs(5);
/// The maximum number of missing permissions in one item.
const MOST: usize = 3;

const MATRIX: &str = "docs/reference/version-matrix.md";
const CLOCK: &str = "docs/runbook.md#concertinaclockskew";
const METRICS: &str = "docs/runbook.md#concertinametricsapidown";
const POLICIES: &str = "docs/guides/scaling-policies.md";
const INSTALL: &str = "docs/getting-started/install.md#2-install-next-to-the-built-in-controller";
const HANDOVER: &str = "docs/getting-started/managed-clusters.md#choose-a-guard";
const UPGRADE: &str = "docs/guides/upgrade.md#upgrade-concertina";

/// Returns the items about the cluster.
pub fn surroundings(read: &Surroundings) -> Vec<Item> {
    let mut items = vec![server(read), clock(read)];
    items.extend(read.metrics.iter().map(|(group, api)| metrics(group, api)));
    items.push(policies(&read.policies));
    items
}

/// Returns the number of the newest tested minor version.
fn newest() -> u32 {
    Version::ALL.iter().filter_map(|version| minor(*version)).max().unwrap_or(OLDEST)
}

/// Returns the minor version of Kubernetes, such as 37.
fn minor(version: Version) -> Option<u32> {
    version.name().split_once('.')?.1.parse().ok()
}

fn server(read: &Surroundings) -> Item {
    let version = &read.server.version;
    let newest = newest();
    let (mark, text) = match read.server.minor {
        None => (Mark::Warning, format!("{version}: the minor version is not a number")),
        Some(minor) if minor < OLDEST => {
            (Mark::Problem, format!("{version} is older than 1.{OLDEST}: upgrade the control plane first"))
        }
        Some(minor) if minor > newest => {
            (Mark::Warning, format!("{version} is newer than 1.{newest}, the newest tested version"))
        }
        Some(_) => (Mark::Good, version.clone()),
    };
    item(mark, "api-server", text, MATRIX)
}

fn clock(read: &Surroundings) -> Item {
    const NAME: &str = "clock";
    let Some(ahead) = read.server.ahead else {
        return item(Mark::Warning, NAME, "the API server sends no Date header", CLOCK);
    };
    if ahead.abs() <= SKEW {
        return item(Mark::Good, NAME, "equals that of the API server, within 5 s", CLOCK);
    }
    let direction = if ahead.is_negative() { "behind" } else { "ahead of" };
    let text = format!(
        "the API server is {} {direction} this machine: repair the clock of the one that is wrong",
        words::span(ahead.unsigned_abs())
    );
    item(Mark::Warning, NAME, text, CLOCK)
}

fn metrics(group: &'static str, api: &Api) -> Item {
    let is_resource = group == "metrics.k8s.io";
    match api {
        Api::Served(versions) => item(Mark::Good, group, format!("{} answers", versions.join(", ")), METRICS),
        Api::Failing(reason) => {
            item(Mark::Problem, group, format!("does not answer, so its metrics fail: {reason}"), METRICS)
        }
        Api::Absent if is_resource => {
            let text = "not installed, so metrics of CPU and memory fail: install metrics-server";
            item(Mark::Problem, group, text, METRICS)
        }
        Api::Absent => item(Mark::Good, group, "not installed; only HPAs with such metrics need it", METRICS),
    }
}

fn policies(api: &Api) -> Item {
    const NAME: &str = "scaling-policies";
    let (mark, text) = match api {
        Api::Absent => (Mark::Good, "not defined; they are optional".to_owned()),
        Api::Served(versions) if versions.iter().any(|version| version == rulebook::VERSION) => {
            (Mark::Good, format!("defined as {}", rulebook::VERSION))
        }
        Api::Served(versions) => {
            let versions = versions.join(", ");
            let needed = rulebook::VERSION;
            let text =
                format!("defined as {versions}, not as {needed}: apply the definitions of this version");
            (Mark::Problem, text)
        }
        Api::Failing(reason) => (Mark::Warning, format!("unknown: {reason}")),
    };
    item(mark, NAME, text, POLICIES)
}

/// Returns the items about the requirements of an installation. `now` is the time of the API server.
pub fn requirements(read: &Requirements, around: &Surroundings, now: Timestamp) -> Vec<Item> {
    let mut items = vec![
        permitted("permissions", &read.uncreatable, Mark::Problem, "you may create the objects", INSTALL),
        permitted("roles", &read.ungrantable, Mark::Problem, "you may grant the permissions", INSTALL),
        permitted("guard", &read.unguardable, Mark::Warning, "you may create a guard", HANDOVER),
    ];
    if around.server.minor.is_some_and(|minor| minor < OLDEST) {
        items.retain(|item| item.name != "guard");
    }
    items.extend(read.leases.iter().filter_map(|(name, record)| existing(name, record, now)));
    if !items.iter().any(|item| item.name == LEASE) {
        items.push(item(Mark::Good, LEASE, "no other installation", UPGRADE));
    }
    items
}

const LEASE: &str = "other-installation";

/// Returns the item about permissions of the user. `without` is the mark if one is missing.
fn permitted(
    name: &'static str,
    missing: &Result<Vec<Missing>, ApiError>,
    without: Mark,
    good: &str,
    page: &'static str,
) -> Item {
    match missing {
        Ok(missing) if missing.is_empty() => item(Mark::Good, name, good, page),
        Ok(missing) => item(without, name, format!("you are {}", listed(missing)), page),
        Err(error) => item(Mark::Warning, name, format!("unknown, because a review failed: {error}"), page),
    }
}

/// Lists missing permissions.
fn listed(missing: &[Missing]) -> String {
    let mut texts: Vec<String> = missing.iter().take(MOST).map(ToString::to_string).collect();
    if missing.len() > MOST {
        texts.push(format!("{} more", missing.len() - MOST));
    }
    texts.join("; ")
}

/// Returns the item about a Lease of an earlier installation. `None` without a Lease.
fn existing(name: &str, record: &Result<Option<Record>, ApiError>, now: Timestamp) -> Option<Item> {
    Some(match record {
        Ok(None) => return None,
        Ok(Some(record)) if record.is_held() && !is_expired(record, now) => {
            let text = format!(
                "{} holds the Lease {name}: upgrade this installation, or use a namespace of your own and \
                 --leader-elect-resource-name",
                record.holder
            );
            item(Mark::Problem, LEASE, text, UPGRADE)
        }
        Ok(Some(_)) => {
            let text = format!("the Lease {name} of an earlier installation exists; a new one uses it");
            item(Mark::Good, LEASE, text, UPGRADE)
        }
        Err(error) => item(Mark::Warning, LEASE, format!("cannot read the Lease {name}: {error}"), UPGRADE),
    })
}

/// Returns whether the holder has not renewed its Lease for longer than the duration of the Lease.
fn is_expired(record: &Record, now: Timestamp) -> bool {
    let length = SignedDuration::try_from(record.length()).unwrap_or(SignedDuration::MAX);
    record.renew_time.is_none_or(|renewed| now.duration_since(renewed) > length)
}

/// Returns the item about installations that cannot be listed or do not exist.
pub fn found<T>(deployments: &Result<Vec<T>, ApiError>) -> Option<Item> {
    const NAME: &str = "deployment";
    match deployments {
        Ok(found) if found.is_empty() => {
            let text = "no Deployment has the label app.kubernetes.io/name=concertina: install Concertina, or pass \
                        its namespace with -n";
            Some(item(Mark::Problem, NAME, text, INSTALL))
        }
        Ok(_) => None,
        Err(error) => {
            let text = format!("cannot list Deployments: {error}; pass a namespace with -n");
            Some(item(Mark::Problem, NAME, text, INSTALL))
        }
    }
}

/// Returns whether an installation is a dry run.
pub(crate) fn is_shadow(installation: &Installation) -> bool {
    installation.config.as_ref().is_ok_and(|config| config.controller.dry_run)
}
