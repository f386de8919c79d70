//! The items about one installation.

use coexist::handover::objects::GuardObjects;
use coexist::handover::proof::{self, Defect};
use coexist::handover::scope::Scope;
use flags::Config;
use flags::config::{HandoverGuard, TakeOver};
use jiff::Timestamp;
use sources::SourceFile;
use terminal::forward::may_hold;
use terminal::words::{self, counted};

use super::{OLDEST, VERSION, is_expired, listed, minor};
use crate::readings::{BuiltIn, HandoverPage, Installation, Leader, SourceText, Surroundings};
use crate::report::{Item, Mark, item};

const DOWN: &str = "docs/runbook.md#concertinadown";
const RESTARTING: &str = "docs/runbook.md#concertinarestarting";
const UPGRADE: &str = "docs/guides/upgrade.md#upgrade-concertina";
const EMULATION: &str = "docs/guides/upgrade.md#upgrade-kubernetes";
const FORBIDDEN: &str = "docs/runbook.md#concertinaforbidden";
const SOURCES: &str = "docs/runbook.md#concertinametricsourcesinvalid";
const NO_LEADER: &str = "docs/runbook.md#concertinanoleader";
const NOTHING_SCALES: &str = "docs/troubleshooting.md#nothing-scales";
const NOT_ACTING: &str = "docs/runbook.md#concertinanotacting";
const SWITCH_OFF: &str = "docs/getting-started/install.md#3-switch-the-built-in-controller-off";
const CONTESTED: &str = "docs/runbook.md#concertinacontested";
const GUARD: &str = "docs/runbook.md#concertinaguardmissing";
const MONITORING: &str = "docs/guides/monitoring.md#scrape-it";

/// Returns the items about an installation. `now` is the time of the API server.
pub fn installation(read: &Installation, around: &Surroundings, now: Timestamp) -> Vec<Item> {
    let mut items = vec![deployment(read), version(read)];
    let config = match &read.config {
        Ok(config) => config,
        Err(error) => {
            let text =
                format!("the arguments are unknown to this version, so the rest is not checked: {error}");
            items.push(item(Mark::Warning, "flags", text, RESTARTING));
            return items;
        }
    };
    items.extend(emulation(config, around));
    items.push(permissions(read, config));
    items.extend(metric_sources(read));
    if super::is_shadow(read) {
        return items;
    }
    items.extend(lease(read, now));
    items.extend(readiness(read));
    if config.controller.scope == Scope::Labelled {
        items.extend([handover(read), guard(read, config)]);
    } else {
        items.push(takeover(read, config));
    }
    items.push(monitoring(read));
    items
}

fn deployment(read: &Installation) -> Item {
    let (ready, wanted) = read.replicas;
    let kind = if super::is_shadow(read) { ", a shadow that writes nothing" } else { "" };
    let text = format!("{ready} of {wanted} replicas are ready, image {}{kind}", read.image);
    let mark = match ready {
        0 => Mark::Problem,
        ready if ready < wanted => Mark::Warning,
        _ => Mark::Good,
    };
    item(mark, "deployment", text, DOWN)
}

/// Returns the version in a tag of an image, such as `0.1.0` of `registry/concertina:v0.1.0`.
fn tag(image: &str) -> Option<&str> {
    let (_, name) = image.rsplit_once('/').unwrap_or(("", image));
    let (_, tag) = name.split('@').next()?.split_once(':')?;
    Some(tag.trim_start_matches('v'))
}

/// Compares the version of the controller with that of this program.
fn version(read: &Installation) -> Item {
    const NAME: &str = "version";
    let leader = read.leader.as_ref().and_then(|leader| leader.as_ref().ok());
    let of_leader = leader.map(|leader| leader.version.as_str()).filter(|version| !version.is_empty());
    match of_leader.or_else(|| tag(&read.image)) {
        Some(VERSION) => item(Mark::Good, NAME, VERSION, UPGRADE),
        Some(version) => {
            let text = format!("the controller is {version}, this program {VERSION}: use equal versions");
            item(Mark::Warning, NAME, text, UPGRADE)
        }
        None => item(Mark::Warning, NAME, "unknown: the image has no tag and no leader answers", UPGRADE),
    }
}

/// Compares `--emulated-version` with the version of the API server.
fn emulation(config: &Config, around: &Surroundings) -> Option<Item> {
    const NAME: &str = "emulated-version";
    let (emulated, server) = (minor(config.controller.settings.version)?, around.server.minor?);
    // The default is also right for a newer server, whose version is a beta here.
    let fits = match server {
        ..=36 => emulated == 36,
        37 => emulated == 37,
        _ => emulated >= 37,
    };
    if fits || server < OLDEST {
        return Some(item(Mark::Good, NAME, format!("decides as 1.{emulated}"), EMULATION));
    }
    let advice = if server <= 36 { "set --emulated-version=1.36" } else { "remove --emulated-version" };
    let text = format!("decides as 1.{emulated}, but the control plane is 1.{server}: {advice}");
    Some(item(Mark::Warning, NAME, text, EMULATION))
}

/// Returns the item about the permissions of the controller's account.
fn permissions(read: &Installation, config: &Config) -> Item {
    const NAME: &str = "permissions";
    if config.own_kubeconfig().is_some() || config.master.is_some() {
        let text = "not checked, because the controller has a kubeconfig: see readiness";
        return item(Mark::Warning, NAME, text, FORBIDDEN);
    }
    let missing = match &read.missing {
        Ok(missing) => missing,
        Err(error) => {
            let text = format!("unknown, because you may not review them: {error}");
            return item(Mark::Warning, NAME, text, FORBIDDEN);
        }
    };
    let Some(first) = missing.iter().find(|one| one.permission.essential).or_else(|| missing.first()) else {
        return item(Mark::Good, NAME, "the account has all of them", FORBIDDEN);
    };
    let mark = if first.permission.essential { Mark::Problem } else { Mark::Warning };
    let text = format!(
        "the account is {}; without it, {}: apply the output of concertina rbac",
        listed(missing),
        first.permission.without
    );
    item(mark, NAME, text, FORBIDDEN)
}

fn metric_sources(read: &Installation) -> Option<Item> {
    let (mark, text) = match read.sources.as_ref()? {
        SourceText::Elsewhere => {
            let text = "not checked, because the file is not in a ConfigMap: run concertina sources check";
            (Mark::Warning, text.to_owned())
        }
        SourceText::Unread(error) => (Mark::Warning, format!("cannot read the ConfigMap: {error}")),
        SourceText::Text { config_map, key, text: None } => {
            (Mark::Problem, format!("ConfigMap {config_map} has no {key}, so no replica starts"))
        }
        SourceText::Text { config_map, key, text: Some(text) } => {
            match SourceFile::parse(text, &key.into()) {
                Ok(file) => (Mark::Good, format!("ConfigMap {config_map}: {}", contents(&file))),
                Err(error) => {
                    (Mark::Problem, format!("ConfigMap {config_map}: {error}; no replica starts with it"))
                }
            }
        }
    };
    Some(item(mark, "metric-sources", text, SOURCES))
}

/// Lists the sources of a file.
fn contents(file: &SourceFile) -> String {
    let mut names: Vec<String> = file.prometheus.keys().map(|name| format!("prometheus {name}")).collect();
    let enabled = [(file.pods.enabled, "pods"), (file.kubelet.enabled, "kubelet")];
    names.extend(enabled.iter().filter(|(enabled, _)| *enabled).map(|(_, name)| (*name).to_owned()));
    names.extend(file.adapters.keys().map(|group| format!("adapter {group}")));
    if names.is_empty() { "no source".to_owned() } else { names.join(", ") }
}

/// Returns the item about the Lease. `None` without leader election.
fn lease(read: &Installation, now: Timestamp) -> Option<Item> {
    let lease = read.lease.as_ref()?;
    let name = &lease.name;
    let (mark, text) = match &lease.record {
        Err(error) => (Mark::Warning, format!("cannot read {name}: {error}")),
        Ok(None) => (Mark::Problem, format!("{name} does not exist: no replica has been the leader")),
        Ok(Some(record)) if !record.is_held() => (Mark::Problem, format!("{name} has no holder")),
        Ok(Some(record)) => {
            let holder = &record.holder;
            let age =
                |since: Timestamp| words::span(now.duration_since(since).try_into().unwrap_or_default());
            let renewed =
                record.renew_time.map_or_else(|| "never".to_owned(), |at| format!("{} ago", age(at)));
            let pod = read.pods.as_ref().map(|pods| pods.iter().any(|pod| may_hold(pod, holder)));
            match pod {
                _ if is_expired(record, now) => {
                    (Mark::Problem, format!("{holder} holds {name}, but renewed it {renewed}"))
                }
                Ok(false) => (
                    Mark::Problem,
                    format!(
                        "{holder} holds {name}, which is no pod of this Deployment: remove the other controller"
                    ),
                ),
                Err(error) => (
                    Mark::Warning,
                    format!("{holder} holds {name}, renewed {renewed}, but cannot list the pods: {error}"),
                ),
                Ok(true) => {
                    let since =
                        record.acquire_time.map_or_else(String::new, |at| format!(" for {}", age(at)));
                    (Mark::Good, format!("{holder} has held {name}{since}, renewed {renewed}"))
                }
            }
        }
    };
    Some(item(mark, "lease", text, NO_LEADER))
}

/// Returns the item about the health checks of the leader. `None` without a leader.
fn readiness(read: &Installation) -> Option<Item> {
    const NAME: &str = "readiness";
    let leader = match read.leader.as_ref()? {
        Ok(leader) => leader,
        Err(error) => {
            let text = format!("unknown, because the leader's state cannot be read: {error}");
            return Some(item(Mark::Warning, NAME, text, NOTHING_SCALES));
        }
    };
    let failed: Vec<_> = leader
        .checks
        .iter()
        .filter(|(_, (passes, _))| !passes)
        .map(|(name, (_, reason))| format!("{name}: {reason}"))
        .collect();
    Some(match leader.checks.len() {
        0 => item(Mark::Warning, NAME, "the leader's page has no checks", NOTHING_SCALES),
        count if failed.is_empty() => {
            item(Mark::Good, NAME, format!("the leader passes {}", counted(count, "check")), NOTHING_SCALES)
        }
        _ => item(Mark::Problem, NAME, format!("the leader fails {}", failed.join("; ")), NOTHING_SCALES),
    })
}

fn leader(read: &Installation) -> Option<&Leader> {
    read.leader.as_ref()?.as_ref().ok()
}

/// Returns whether the leader acts on all HPAs, and whether the built-in controller is switched off.
fn takeover(read: &Installation, config: &Config) -> Item {
    const NAME: &str = "takeover";
    let on: Vec<&str> = match &read.built_in {
        Ok(pods) => pods.iter().filter(|pod| pod.enabled).map(|pod| pod.pod.as_str()).collect(),
        Err(_) => Vec::new(),
    };
    let is_off = on.is_empty() && read.built_in.as_ref().is_ok_and(|pods: &Vec<BuiltIn>| !pods.is_empty());
    let state = leader(read).and_then(|leader| leader.checks.get(NAME)).map(|(_, detail)| detail.as_str());
    let acts = state.is_some_and(|state| state.starts_with("acting"));
    let runs = || {
        let pods = words::listed(&on, 3);
        format!("; the arguments of {pods} do not exclude horizontal-pod-autoscaler-controller")
    };
    match state {
        _ if config.takeover == TakeOver::Off => {
            item(Mark::Warning, NAME, "--takeover=off does not notice another controller", NOT_ACTING)
        }
        // A pod that waits for the Lease of kube-controller-manager writes after it takes over.
        Some(state) if acts && !on.is_empty() && config.handover.guard != HandoverGuard::Rbac => {
            item(Mark::Warning, NAME, format!("{state}{}", runs()), SWITCH_OFF)
        }
        Some(state) if acts => item(Mark::Good, NAME, state, NOT_ACTING),
        Some(state) if !on.is_empty() => item(Mark::Warning, NAME, format!("{state}{}", runs()), SWITCH_OFF),
        Some(state) => item(Mark::Warning, NAME, state, NOT_ACTING),
        None if !on.is_empty() => {
            item(Mark::Warning, NAME, format!("the leader's state is unknown{}", runs()), SWITCH_OFF)
        }
        None if is_off => {
            let text =
                "the leader's state is unknown; kube-controller-manager excludes the built-in controller";
            item(Mark::Warning, NAME, text, NOT_ACTING)
        }
        None => item(Mark::Warning, NAME, "the leader's state is unknown", NOT_ACTING),
    }
}

/// Returns the item about the HPAs in scope.
fn handover(read: &Installation) -> Item {
    const NAME: &str = "handover";
    let Some(HandoverPage { hpas, .. }) = leader(read).and_then(|leader| leader.handover.as_ref()) else {
        return item(Mark::Warning, NAME, "the leader's state is unknown", CONTESTED);
    };
    let of = |state: &str| {
        let hpas = hpas.iter().filter(move |hpa| hpa.state == state);
        hpas.map(|hpa| format!("{}/{}", hpa.namespace, hpa.name)).collect::<Vec<_>>()
    };
    let names = |names: &[String]| words::listed(&names.iter().map(String::as_str).collect::<Vec<_>>(), 3);
    let (contested, claiming) = (of("contested"), of("claiming"));
    if !contested.is_empty() {
        let text = format!("another controller writes {}", names(&contested));
        return item(Mark::Problem, NAME, text, CONTESTED);
    }
    if !claiming.is_empty() {
        let text = format!("not yet in charge of {}", names(&claiming));
        return item(Mark::Warning, NAME, text, CONTESTED);
    }
    item(Mark::Good, NAME, format!("in charge of {}", counted(hpas.len(), "HPA")), CONTESTED)
}

/// Returns the item about the guard: the state that the leader reports, or else the objects.
fn guard(read: &Installation, config: &Config) -> Item {
    const NAME: &str = "guard";
    let kind = config.handover.guard.as_str();
    let page = leader(read).and_then(|leader| leader.handover.as_ref());
    match page.map(|page| (page.guard.state.as_str(), page.guard.reason.as_deref())) {
        Some(("proven", _)) => {
            return item(Mark::Good, NAME, format!("the leader has proven the {kind}"), GUARD);
        }
        Some(("broken", reason)) => {
            let reason = reason.unwrap_or("no reason is known");
            return item(Mark::Problem, NAME, format!("the {kind} is broken: {reason}"), GUARD);
        }
        _ => {}
    }
    if !config.handover.guard.checks_users() {
        return item(Mark::Warning, NAME, format!("--handover-guard={kind} has no objects"), GUARD);
    }
    match objects_of(read, config) {
        Err(error) => {
            item(Mark::Warning, NAME, format!("cannot read the objects of the {kind}: {error}"), GUARD)
        }
        Ok(Err(defect)) => item(Mark::Problem, NAME, defect.to_string(), GUARD),
        Ok(Ok(())) => {
            let text =
                format!("the objects of the {kind} are in place, but the leader has not proven them yet");
            item(Mark::Warning, NAME, text, GUARD)
        }
    }
}

/// Compares the objects of the guard with those of the manifests.
fn objects_of<'a>(
    read: &'a Installation,
    config: &Config,
) -> Result<Result<(), Defect>, &'a cluster::error::ApiError> {
    let found = read.guard.as_ref()?;
    let objects = guard_objects(config);
    let get = |kind: &str, name: &str| found.get(&(kind.to_owned(), name.to_owned()));
    Ok(if config.handover.guard == HandoverGuard::Webhook {
        // Only a replica knows its certificate.
        let trusts = |authorities: &str, _: &str| !authorities.is_empty();
        proof::webhook(&objects, get("ValidatingWebhookConfiguration", &objects.name()), &trusts)
    } else {
        proof::policies(&objects, &get)
    })
}

/// Returns the inputs of the guard's objects.
pub(crate) fn guard_objects(config: &Config) -> GuardObjects {
    GuardObjects {
        controller: config.controller.controller_name.clone(),
        built_in_users: config.handover.built_in_users.clone(),
        namespace: config.handover_webhook.namespace.clone(),
    }
}

fn monitoring(read: &Installation) -> Item {
    const NAME: &str = "alerts";
    let found = match &read.monitoring {
        Ok(found) => found,
        Err(error) => return item(Mark::Warning, NAME, format!("unknown: {error}"), MONITORING),
    };
    let scraped = found.monitors > 0 || found.annotated;
    let (mark, text) = match (scraped, found.rules) {
        (false, _) => (
            Mark::Warning,
            "no ServiceMonitor, PodMonitoring or annotation prometheus.io/scrape, so metrics may not be read",
        ),
        (true, 0) if found.rules_served => {
            (Mark::Warning, "metrics are read, but no PrometheusRule has the alerts")
        }
        (true, 0) => {
            (Mark::Warning, "metrics are read; PrometheusRules are not defined, so load the rules as a file")
        }
        (true, _) => (Mark::Good, "metrics are read, and a PrometheusRule has the alerts"),
    };
    item(mark, NAME, text, MONITORING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_the_tag_of_the_image() {
        for (image, expected) in [
            ("registry:5000/a/concertina:v0.1.0", Some("0.1.0")),
            ("concertina:0.2.0@sha256:00", Some("0.2.0")),
            ("registry:5000/concertina@sha256:00", None),
            ("registry:5000/concertina", None),
        ] {
            assert_eq!(tag(image), expected, "{image}");
        }
    }
}
