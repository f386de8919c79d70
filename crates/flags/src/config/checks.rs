//! Checks of single values. Each error continues the text `invalid argument "x" for "--flag" flag: `.

#![allow(clippy::needless_pass_by_value, reason = "a check consumes the value of its flag")]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use autoscaling::duration::GoDuration;
use autoscaling::quantity::Quantity;
use autoscaling::settings::StatusPrecision;
use autoscaling::settings::Version;
use coexist::handover::scope::{ControllerName, Scope};
use rustls::{CipherSuite, NamedGroup};

use super::{GroupResource, HandoverGuard, LogFormat, ScaleTargets, TakeOver};
use crate::Reason;
use crate::gates;
use crate::serving::OpenPaths;
use crate::tls::{self as options, Supported};

/// The rate and the burst that client-go uses for a flag value of 0.
const CLIENT_GO_QPS: f64 = 5.0;
const CLIENT_GO_BURST: u32 = 10;

/// The maximum of `--decisions-per-hpa`, because a request for one HPA reads the whole record of the HPA.
const MOST_DECISIONS: usize = 1000;

/// Returns the error `must be {allowed}` if `value` is `None`.
fn must_be<T>(allowed: &'static str, value: Option<T>) -> Result<T, Reason> {
    value.ok_or(Reason::MustBe(allowed))
}

pub(crate) fn at_least_zero(value: GoDuration) -> Result<Duration, Reason> {
    must_be("at least 0s", value.unsigned())
}

/// Returns 0 for a negative duration, like kube-controller-manager.
#[expect(clippy::unnecessary_wraps, reason = "the signature of a check")]
pub(crate) fn negative_as_zero(value: GoDuration) -> Result<Duration, Reason> {
    Ok(value.unsigned().unwrap_or_default())
}

pub(crate) fn above_zero(value: GoDuration) -> Result<Duration, Reason> {
    must_be("greater than 0s", value.unsigned().filter(|duration| !duration.is_zero()))
}

pub(crate) fn at_least_one(count: i64) -> Result<usize, Reason> {
    let count = must_be("at least 1", u64::try_from(count).ok().filter(|count| *count > 0))?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

#[expect(clippy::unnecessary_wraps, reason = "the signature of a check")]
pub(crate) fn nonempty(text: String) -> Result<Option<String>, Reason> {
    Ok(Some(text).filter(|text| !text.is_empty()))
}

pub(crate) fn path(text: String) -> Result<Option<PathBuf>, Reason> {
    Ok(nonempty(text)?.map(PathBuf::from))
}

/// Accepts every number, like kube-controller-manager. JSON cannot represent NaN and infinities, so finite numbers with
/// the same effect replace them. No ratio is within a tolerance of NaN, so NaN is equivalent to a negative tolerance.
#[expect(clippy::unnecessary_wraps, reason = "the signature of a check")]
pub(crate) fn tolerance(tolerance: f64) -> Result<f64, Reason> {
    Ok(if tolerance.is_nan() { f64::MIN } else { tolerance.clamp(f64::MIN, f64::MAX) })
}

pub(crate) fn qps(qps: f64) -> Result<Option<f64>, Reason> {
    if qps.is_nan() {
        Err(Reason::MustBe("a number"))
    } else if qps == 0.0 {
        Ok(Some(CLIENT_GO_QPS))
    } else {
        Ok((qps > 0.0 && qps.is_finite()).then_some(qps))
    }
}

pub(crate) fn burst(burst: i64) -> Result<u32, Reason> {
    let burst = must_be("at least 0", u32::try_from(burst).ok())?;
    Ok(if burst == 0 { CLIENT_GO_BURST } else { burst })
}

pub(crate) fn decisions(count: i64) -> Result<usize, Reason> {
    must_be("0 to 1000", usize::try_from(count).ok().filter(|count| *count <= MOST_DECISIONS))
}

pub(crate) fn response_size(size: Quantity) -> Result<usize, Reason> {
    let size = must_be("greater than 0", Some(size).filter(|size| *size > Quantity::ZERO))?;
    Ok(usize::try_from(size.value()).unwrap_or(usize::MAX))
}

pub(crate) fn version(items: Vec<String>) -> Result<Version, Reason> {
    Ok(gates::parse_versions(&items)?)
}

pub(crate) fn log_format(name: String) -> Result<LogFormat, Reason> {
    match name.as_str() {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(Reason::MustBe("text or json")),
    }
}

pub(crate) fn takeover(word: String) -> Result<TakeOver, Reason> {
    match word.as_str() {
        "wait" => Ok(TakeOver::Wait),
        "warn" => Ok(TakeOver::Warn),
        "off" => Ok(TakeOver::Off),
        _ => Err(Reason::MustBe("wait, warn or off")),
    }
}

pub(crate) fn status_precision(text: String) -> Result<StatusPrecision, Reason> {
    text.parse::<StatusPrecision>().map_err(|error| Reason::Text(error.to_string()))
}

pub(crate) fn port(port: i64) -> Result<u16, Reason> {
    u16::try_from(port).map_err(|_| Reason::MustBe("between 0 and 65535; 0 disables the port"))
}

pub(crate) fn port_above_zero(port: i64) -> Result<u16, Reason> {
    let port = u16::try_from(port).ok().filter(|port| *port > 0);
    port.ok_or(Reason::MustBe("between 1 and 65535"))
}

/// Accepts only loopback addresses, because the port has no authentication.
pub(crate) fn health_address(address: String) -> Result<Option<SocketAddr>, Reason> {
    match address.parse::<SocketAddr>() {
        _ if address.is_empty() => Ok(None),
        Ok(address) if address.ip().to_canonical().is_loopback() => Ok(Some(address)),
        Ok(_) => Err(Reason::MustBe(
            "a loopback address, because the port has no authentication; use --secure-port for other addresses",
        )),
        Err(_) => Err(Reason::MustBe("an IP address and a port, such as 127.0.0.1:8080")),
    }
}

pub(crate) fn minimum_tls(version: String) -> Result<(bool, Option<String>), Reason> {
    let allowed = "VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13";
    options::minimum(&version).ok_or(Reason::MustBe(allowed))
}

pub(crate) fn cipher_suites(names: Vec<String>) -> Result<Supported<CipherSuite>, Reason> {
    Ok(options::suites(&names)?)
}

pub(crate) fn curves(numbers: Vec<i64>) -> Result<Supported<NamedGroup>, Reason> {
    // A number out of range becomes 0, which rustls does not support either.
    let numbers: Vec<u16> = numbers.into_iter().map(|number| number.try_into().unwrap_or(0)).collect();
    Ok(options::groups(&numbers)?)
}

pub(crate) fn open_paths(paths: Vec<String>) -> Result<OpenPaths, Reason> {
    Ok(OpenPaths::parse(&paths)?)
}

/// Checks the names of headers, and returns the names in lower case.
pub(crate) fn header_names(names: Vec<String>) -> Result<Vec<String>, Reason> {
    let names: Vec<_> = names.iter().map(|name| name.trim().to_ascii_lowercase()).collect();
    if names.iter().any(String::is_empty) { Err(Reason::EmptyHeader) } else { Ok(names) }
}

/// The default of `--built-in-users` in pflag's output format.
pub(crate) const BUILT_IN_USERS_TEXT: &str = "[system:serviceaccount:kube-system:horizontal-pod-autoscaler,\
     system:kube-controller-manager,system:vpa-recommender]";

pub(crate) fn scope(word: String) -> Result<Scope, Reason> {
    match word.as_str() {
        "all" => Ok(Scope::All),
        "labelled" => Ok(Scope::Labelled),
        "labeled" => Err(Reason::MustBe("all or labelled, which has two l")),
        _ => Err(Reason::MustBe("all or labelled")),
    }
}

pub(crate) fn controller_name(name: String) -> Result<ControllerName, Reason> {
    ControllerName::new(&name).map_err(|error| Reason::Text(error.to_string()))
}

pub(crate) fn built_in_users(users: Vec<String>) -> Result<Vec<String>, Reason> {
    if users.iter().any(String::is_empty) {
        return Err(Reason::MustBe("user names, such as system:kube-controller-manager"));
    }
    Ok(users)
}

/// Parses `--handover-guard`. Returns `None` for an empty value. The scope then selects the guard.
pub(crate) fn guard(word: String) -> Result<Option<HandoverGuard>, Reason> {
    match word.as_str() {
        "" => Ok(None),
        "webhook" => Ok(Some(HandoverGuard::Webhook)),
        "policy" => Ok(Some(HandoverGuard::Policy)),
        "rbac" => Ok(Some(HandoverGuard::Rbac)),
        "flag" => Ok(Some(HandoverGuard::Flag)),
        "none" => Ok(Some(HandoverGuard::None)),
        _ => Err(Reason::MustBe("webhook, policy, rbac, flag or none")),
    }
}

pub(crate) fn namespaces(names: Vec<String>) -> Result<Option<BTreeSet<String>>, Reason> {
    let mut namespaces = BTreeSet::new();
    for name in names {
        if !is_label(&name) {
            return Err(Reason::Namespace(name));
        }
        if !namespaces.insert(name.clone()) {
            return Err(Reason::Twice(name));
        }
    }
    // An empty list is an error: an empty variable in a script must not select the whole cluster.
    if namespaces.is_empty() { Err(Reason::NoNamespace) } else { Ok(Some(namespaces)) }
}

pub(crate) fn namespace(name: String) -> Result<String, Reason> {
    if is_label(&name) { Ok(name) } else { Err(Reason::Namespace(name)) }
}

pub(crate) fn scale_targets(names: Vec<String>) -> Result<ScaleTargets, Reason> {
    if names == ["*"] {
        return Ok(ScaleTargets::All);
    }
    let target = |name: String| {
        if !name.split('.').all(is_label) {
            return Err(Reason::Resource(name));
        }
        let (resource, group) = name.split_once('.').unwrap_or((&name, ""));
        Ok(GroupResource { group: group.to_owned(), resource: resource.to_owned() })
    };
    let targets = names.into_iter().map(target).collect::<Result<BTreeSet<_>, _>>()?;
    if targets.is_empty() {
        return Err(Reason::MustBe("* or resources with their groups, such as deployments.apps"));
    }
    Ok(ScaleTargets::Only(targets))
}

/// Returns whether a name is an RFC 1123 label, the format of the names of namespaces and resources.
fn is_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.len() <= 63
        && !name.is_empty()
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

#[cfg(test)]
mod tests {
    use crate::{Config, FlagSet};

    use super::*;

    #[test]
    fn health_address_must_be_loopback() {
        assert!(
            health_address("127.0.0.1:0".to_owned()).is_ok()
                && health_address("[::1]:8080".to_owned()).is_ok()
        );
        for outside in ["0.0.0.0:80", "[::]:80", "10.0.0.1:80"] {
            assert!(
                health_address(outside.to_owned())
                    .unwrap_err()
                    .to_string()
                    .starts_with("must be a loopback address"),
                "{outside}"
            );
        }
    }

    fn config(words: &[&str]) -> Result<Config, String> {
        FlagSet::controller()
            .resolve(words.iter().map(ToString::to_string))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn namespaces_accumulate_and_default_to_all() {
        assert_eq!(config(&[]).unwrap().controller.watch_namespaces, None);
        let namespaces = config(&["--watch-namespaces=shop,bank", "--watch-namespaces=a-1"]).unwrap();
        let names = ["a-1", "bank", "shop"].map(str::to_owned).into();
        assert_eq!(namespaces.controller.watch_namespaces, Some(names));
    }

    #[test]
    fn invalid_namespaces_are_refused_with_the_flag() {
        for (value, reason) in [
            ("", "must name at least one namespace"),
            ("shop,", "\"\" is not a valid namespace name"),
            ("shop,bank,shop", "shop is listed twice"),
            ("Shop", "\"Shop\" is not a valid namespace name"),
            ("*", "\"*\" is not a valid namespace name"),
            ("-a", "\"-a\" is not a valid namespace name"),
        ] {
            let error = config(&[&format!("--watch-namespaces={value}")]).unwrap_err();
            let expected = format!("invalid argument \"{value}\" for \"--watch-namespaces\" flag: {reason}");
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn scale_targets_are_all_or_resources_with_groups() {
        assert_eq!(config(&["--scale-targets=*"]).unwrap().scale_targets, ScaleTargets::All);
        let narrow = config(&["--scale-targets=rollouts.argoproj.io,replicationcontrollers"]).unwrap();
        let target =
            |group: &str, resource: &str| GroupResource { group: group.into(), resource: resource.into() };
        let expected = [target("", "replicationcontrollers"), target("argoproj.io", "rollouts")];
        assert_eq!(narrow.scale_targets, ScaleTargets::Only(expected.into()));
        for wrong in ["", "apps/deployments", "deployments.", "*,deployments.apps", "Deployments.apps"] {
            let error = config(&[&format!("--scale-targets={wrong}")]).unwrap_err();
            assert!(error.contains("\"--scale-targets\" flag"), "{error}");
        }
    }
}
