//! `scheme`, `tlsConfig` and `authorization` of `pods`: the settings of requests to pods. The fields have the same
//! names as in PodMonitors of Prometheus Operator.

use std::sync::Arc;

use serde_json::Value;

use super::metrics::{is_subdomain, required};
use super::reader::Reader;
use super::{Named, ProblemReason};

/// Maximum bytes of `pem`.
const MAX_CA: usize = 16 << 10;
/// Maximum bytes of the name of a Secret, a key or a server.
const MAX_NAME: usize = 253;

/// The settings of requests over TLS.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodTransport {
    /// `tlsConfig.ca`: the authorities that sign the certificates of the pods. `None` with `insecureSkipVerify`.
    pub authorities: Option<Authorities>,
    /// `tlsConfig.serverName`: the name in the certificates. `None` only with `insecureSkipVerify`.
    pub server_name: Option<Arc<str>>,
    /// `authorization.credentials`: the key of a Secret with the bearer token.
    pub token: Option<SecretKey>,
}

/// Certificate authorities in PEM.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Authorities {
    /// `pem`: the certificates themselves.
    Pem(Arc<str>),
    /// `secret`: a key of a Secret.
    Secret(SecretKey),
}

/// A key of a Secret in the namespace of the HPA.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretKey {
    /// `name`.
    pub name: Arc<str>,
    /// `key`.
    pub key: Arc<str>,
}

impl PodTransport {
    /// The keys of Secrets that the requests need.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretKey> {
        let authorities = match &self.authorities {
            Some(Authorities::Secret(key)) => Some(key),
            Some(Authorities::Pem(_)) | None => None,
        };
        authorities.into_iter().chain(&self.token)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Scheme {
    #[default]
    Http,
    Https,
}

impl Named for Scheme {
    const NAMES: &'static [(&'static str, Self)] = &[("http", Self::Http), ("https", Self::Https)];
}

/// Reads the settings. Returns `None` for requests without TLS.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Arc<PodTransport>> {
    let scheme = reader.choice::<Scheme>("scheme").unwrap_or_default();
    let (has_tls, has_token) = (reader.has("tlsConfig"), reader.has("authorization"));
    let tls = reader.group("tlsConfig", tls);
    let token = reader.unit("authorization", authorization);
    if scheme == Scheme::Http {
        for (field, is_set) in [("tlsConfig", has_tls), ("authorization", has_token)] {
            if is_set {
                reader.report(field, ProblemReason::Conflict("needs scheme: https"));
            }
        }
        return None;
    }
    if !has_tls {
        let reason = "scheme https needs it, because pods have no names that a certificate could have";
        reader.report("tlsConfig", ProblemReason::Missing(reason));
    }
    let (authorities, server_name) = tls?;
    Some(Arc::new(PodTransport { authorities, server_name, token }))
}

fn tls(reader: &mut Reader<'_>) -> (Option<Authorities>, Option<Arc<str>>) {
    let has_ca = reader.has("ca");
    let authorities = reader.unit("ca", authorities);
    let name = reader.convert("serverName", || "a DNS name".to_owned(), name);
    let is_insecure = reader.boolean("insecureSkipVerify").unwrap_or_default();
    if has_ca == is_insecure {
        reader.report_whole(ProblemReason::Conflict("needs either ca or insecureSkipVerify: true"));
    }
    if !is_insecure && name.is_none() {
        reader.report("serverName", ProblemReason::Missing("a certificate is verified for this name"));
    }
    (authorities, name)
}

fn authorities(reader: &mut Reader<'_>) -> Option<Authorities> {
    if reader.has("secret") == reader.has("pem") {
        reader.report_whole(ProblemReason::Conflict("needs either secret or pem"));
    }
    let secret = reader.unit("secret", secret_key).map(Authorities::Secret);
    let pem = reader.text("pem", MAX_CA).map(|pem| Authorities::Pem(pem.into()));
    secret.or(pem)
}

fn authorization(reader: &mut Reader<'_>) -> Option<SecretKey> {
    reader.require("credentials");
    reader.unit("credentials", secret_key)
}

fn secret_key(reader: &mut Reader<'_>) -> Option<SecretKey> {
    reader.require("name");
    let name = reader.convert("name", || "the name of a Secret".to_owned(), name);
    let key = required(reader, "key", MAX_NAME);
    Some(SecretKey { name: name?, key: key?.into() })
}

/// Converts a DNS subdomain.
fn name(value: &Value) -> Option<Arc<str>> {
    value.as_str().filter(|name| name.len() <= MAX_NAME && is_subdomain(name)).map(Into::into)
}

#[cfg(test)]
mod tests {
    use crate::spec::{Level, MetricOrigin, parse};

    use super::*;

    fn transport(fields: &str) -> Result<Option<Arc<PodTransport>>, String> {
        let text = format!("metrics: [{{metric: a, pods: {{port: https, series: b, {fields}}}}}]");
        let parsed = parse(&text, Level::Annotation);
        if let Some(problem) = parsed.problems.first() {
            return Err(problem.to_string());
        }
        match &parsed.spec.metrics.unwrap()[0].origin {
            MetricOrigin::Pods(series) => Ok(series.transport.clone()),
            origin => panic!("{origin:?}"),
        }
    }

    #[test]
    fn pages_are_requested_over_tls_with_a_token() {
        assert_eq!(transport("scheme: http"), Ok(None));
        let key = |name: &str, key: &str| SecretKey { name: name.into(), key: key.into() };
        let read = transport(
            "scheme: https, tlsConfig: {ca: {secret: {name: tls, key: ca.crt}}, serverName: web.shop.svc}, \
             authorization: {credentials: {name: scrape, key: token}}",
        );
        let transport_of_secrets = read.unwrap().unwrap();
        assert_eq!(transport_of_secrets.authorities, Some(Authorities::Secret(key("tls", "ca.crt"))));
        assert_eq!(transport_of_secrets.server_name.as_deref(), Some("web.shop.svc"));
        let secrets: Vec<_> = transport_of_secrets.secrets().cloned().collect();
        assert_eq!(secrets, [key("tls", "ca.crt"), key("scrape", "token")]);
        let insecure = transport("scheme: https, tlsConfig: {insecureSkipVerify: true}").unwrap().unwrap();
        assert_eq!((&insecure.authorities, &insecure.server_name, &insecure.token), (&None, &None, &None));
    }

    #[test]
    fn incomplete_transport_is_reported_with_its_path() {
        for (fields, expected) in [
            ("scheme: ftp", "metrics[0].pods.scheme: must be http or https, not \"ftp\""),
            (
                "scheme: https",
                "metrics[0].pods.tlsConfig: is missing; scheme https needs it, because pods have no names that a \
                 certificate could have",
            ),
            (
                "authorization: {credentials: {name: a, key: b}}",
                "metrics[0].pods.authorization: needs scheme: https",
            ),
            ("tlsConfig: {insecureSkipVerify: true}", "metrics[0].pods.tlsConfig: needs scheme: https"),
            (
                "scheme: https, tlsConfig: {serverName: a}",
                "metrics[0].pods.tlsConfig: needs either ca or insecureSkipVerify: true",
            ),
            (
                "scheme: https, tlsConfig: {ca: {pem: x}, insecureSkipVerify: true}",
                "metrics[0].pods.tlsConfig: needs either ca or insecureSkipVerify: true",
            ),
            (
                "scheme: https, tlsConfig: {ca: {pem: x}}",
                "metrics[0].pods.tlsConfig.serverName: is missing; a certificate is verified for this name",
            ),
            (
                "scheme: https, tlsConfig: {ca: {}, serverName: a}",
                "metrics[0].pods.tlsConfig.ca: needs either secret or pem",
            ),
            (
                "scheme: https, tlsConfig: {ca: {secret: {name: ../b, key: c}}, serverName: a}",
                "metrics[0].pods.tlsConfig.ca.secret.name: must be the name of a Secret, not \"../b\"",
            ),
            (
                "scheme: https, tlsConfig: {insecureSkipVerify: true}, authorization: {}",
                "metrics[0].pods.authorization.credentials: is required",
            ),
        ] {
            assert_eq!(transport(fields), Err(expected.to_owned()), "{fields}");
        }
    }
}
