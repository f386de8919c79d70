//! Pages over TLS with tokens of Secrets, against servers and an API server in memory.

use cluster::client::{ClientOptions, Clients};
use fake_cluster::{Cluster, FaultAction, FaultRule, Status};
use rcgen::{CertificateParams, CertifiedKey, KeyPair, date_time_ymd, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio_rustls::TlsAcceptor;

use super::*;

const FILE: &str = "pods: {enabled: true, tls: true, secretNamespaces: [shop]}";
const NAME: &str = "web.shop.svc";
const SECRETS: &str = "{metric: a, pods: {port: http, series: waiting, intervalSeconds: 1, scheme: https,
    tlsConfig: {ca: {secret: {name: scrape, key: ca.crt}}, serverName: web.shop.svc},
    authorization: {credentials: {name: scrape, key: token}}}}";

fn certificate(name: &str) -> CertifiedKey<KeyPair> {
    generate_simple_self_signed(vec![name.to_owned()]).unwrap()
}

fn expired() -> CertifiedKey<KeyPair> {
    let mut params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(2019, 1, 1), date_time_ymd(2020, 1, 1));
    let signing_key = KeyPair::generate().unwrap();
    let cert = params.self_signed(&signing_key).unwrap();
    CertifiedKey { cert, signing_key }
}

fn acceptor(own: &CertifiedKey<KeyPair>) -> TlsAcceptor {
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// Pods that serve TLS with one certificate, and the cluster with the Secrets.
struct TlsRig {
    rig: Rig,
    cluster: Cluster,
    clients: Clients,
}

impl TlsRig {
    fn new(file: &str, own: &CertifiedKey<KeyPair>) -> Self {
        let rig = Rig::with_tls(file, Some(acceptor(own)));
        rig.servers.serve("10.0.0.1:8080", |_| PageResponse::page("waiting 3\n"));
        let cluster = Cluster::new(Arc::new(clock::VirtualClock::starting_at(jiff::Timestamp::UNIX_EPOCH)));
        let clients = Clients::over(cluster.connector(), &ClientOptions::default()).unwrap();
        Self { rig, cluster, clients }
    }

    /// Creates or replaces a labelled Secret.
    fn secret(&self, namespace: &str, name: &str, data: &[(&str, &str)]) {
        self.cluster.put_raw(secret(namespace, name, data));
    }

    async fn read_in(&self, namespace: &str, metric: &str) -> Result<Values, String> {
        let (namespace, pods) = (namespace.into(), [pod("web", 1)]);
        let secrets = Some(&self.clients.core);
        let target = Target { namespace: &namespace, name: "web", pods: &pods, secrets };
        let read = self.rig.sources.read(&rule(metric), Form::PerPod, &target, now()).await;
        read.map(|reading| reading.values).map_err(|failure| failure.error.to_string())
    }

    async fn read(&self, metric: &str) -> Result<Values, String> {
        self.read_in("shop", metric).await
    }

    fn tokens(&self) -> Vec<String> {
        self.rig.servers.requests().into_iter().map(|request| request.authorization).collect()
    }

    fn reads_of_secrets(&self) -> Vec<String> {
        let requests = self.cluster.requests().entries().into_iter().map(|request| request.path);
        requests.filter(|path| path.contains("/secrets/")).collect()
    }
}

fn secret(namespace: &str, name: &str, data: &[(&str, &str)]) -> Value {
    let data: serde_json::Map<_, _> = data
        .iter()
        .map(|(key, value)| ((*key).to_owned(), json!(k8s_openapi::ByteString(value.as_bytes().to_vec()))))
        .collect();
    json!({"apiVersion": "v1", "kind": "Secret", "data": data,
        "metadata": {"name": name, "namespace": namespace, "labels": {"concertina.dev/metric-sources": "true"}}})
}

#[allow(clippy::unnecessary_wraps, reason = "compared with results")]
fn three() -> Result<Values, String> {
    Ok(Values::PerPod([("web".into(), 3.0)].into()))
}

#[tokio::test(start_paused = true)]
async fn page_is_read_over_tls_with_the_token_of_a_secret() {
    let own = certificate(NAME);
    let rig = TlsRig::new(FILE, &own);
    rig.secret("shop", "scrape", &[("ca.crt", &own.cert.pem()), ("token", "first\n")]);
    assert_eq!(rig.read(SECRETS).await, three());
    assert_eq!(rig.tokens(), ["Bearer first"]);
    // A Secret is read at most once in 30 s, so a changed token is used after the next read.
    rig.secret("shop", "scrape", &[("ca.crt", &own.cert.pem()), ("token", "second")]);
    for _ in 0..10 {
        advance(Duration::from_secs(2)).await;
        assert_eq!(rig.read(SECRETS).await, three());
    }
    assert_eq!(rig.reads_of_secrets(), ["/api/v1/namespaces/shop/secrets/scrape"]);
    advance(Duration::from_secs(12)).await;
    assert_eq!(rig.read(SECRETS).await, three());
    assert_eq!(rig.tokens().last().unwrap(), "Bearer second");
    assert_eq!(rig.reads_of_secrets().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn authorities_in_the_policy_need_no_secret() {
    let own = certificate(NAME);
    let rig = TlsRig::new("pods: {enabled: true, tls: true}", &own);
    let pem = serde_json::to_string(&own.cert.pem()).unwrap();
    let metric = |tls: &str| {
        format!("{{metric: a, pods: {{port: http, series: waiting, scheme: https, tlsConfig: {tls}}}}}")
    };
    let verified = metric(&format!("{{ca: {{pem: {pem}}}, serverName: {NAME}}}"));
    assert_eq!(rig.read(&verified).await, three());
    assert_eq!(rig.read(&metric("{insecureSkipVerify: true}")).await, three());
    let failed = rig.read(&metric(&format!("{{ca: {{pem: none}}, serverName: {NAME}}}"))).await.unwrap_err();
    assert_eq!(failed, "tlsConfig.ca cannot be used: it contains no PEM certificate");
    assert_eq!((rig.tokens(), rig.reads_of_secrets()), (vec![String::new(); 2], Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn token_is_not_sent_to_a_pod_without_a_valid_certificate() {
    let own = certificate(NAME);
    for (serves, trusted, expected) in [
        (certificate("other.shop.svc"), None, "certificate not valid for name \"web.shop.svc\""),
        (certificate(NAME), Some(&own), "invalid peer certificate"),
        (expired(), None, "certificate expired"),
    ] {
        let rig = TlsRig::new(FILE, &serves);
        let authority = trusted.unwrap_or(&serves).cert.pem();
        rig.secret("shop", "scrape", &[("ca.crt", &authority), ("token", "value-of-the-token")]);
        let failed = rig.read(SECRETS).await.unwrap_err();
        assert!(failed.starts_with("none of 1 pods has a number; web: the request failed: "), "{failed}");
        assert!(failed.contains(expected) && !failed.contains("value-of"), "{failed}");
        assert_eq!(rig.tokens(), Vec::<String>::new());
    }
    // A pod without TLS receives no request.
    let rig = Rig::new(FILE);
    rig.servers.serve("10.0.0.1:8080", |_| PageResponse::page("waiting 3\n"));
    let plain = "{metric: a, pods: {port: http, series: waiting, scheme: https, tlsConfig: {insecureSkipVerify: true}}}";
    assert!(rig.per_pod(plain, &[pod("web", 1)]).await.is_err());
    assert_eq!(rig.servers.requests(), []);
}

#[tokio::test(start_paused = true)]
async fn token_follows_no_redirect_and_a_refused_one_is_reported() {
    let own = certificate(NAME);
    let rig = TlsRig::new(FILE, &own);
    rig.secret("shop", "scrape", &[("ca.crt", &own.cert.pem()), ("token", "first")]);
    rig.rig.servers.serve("10.0.0.9:8080", |_| PageResponse::page("waiting 3\n"));
    for (status, expected) in [
        (401, "the server answers 401 Unauthorized"),
        (302, "the server answers 302 Found: redirects are not followed"),
    ] {
        let location = "https://10.0.0.9:8080/metrics".to_owned();
        let page = PageResponse { status, location, ..PageResponse::page("") };
        rig.rig.servers.serve("10.0.0.1:8080", move |_| page.clone());
        advance(Duration::from_secs(2)).await;
        let failed = rig.read(SECRETS).await.unwrap_err();
        assert_eq!(failed, format!("none of 1 pods has a number; web: {expected}"));
    }
    let requests = rig.rig.servers.requests();
    assert!(requests.iter().all(|request| request.address == "10.0.0.1:8080"), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn unusable_secret_fails_the_metric_with_its_reason() {
    let own = certificate(NAME);
    let authority = own.cert.pem();
    let unlabelled = || {
        let mut unlabelled = secret("shop", "scrape", &[("ca.crt", "a"), ("token", "b")]);
        unlabelled["metadata"]["labels"] = json!({});
        unlabelled
    };
    let whole = |token: &str| Some(secret("shop", "scrape", &[("ca.crt", &authority), ("token", token)]));
    let large = "x".repeat(1 << 20);
    let cases = [
        (None, "Secret scrape does not exist"),
        (Some(unlabelled()), "Secret scrape does not have the label concertina.dev/metric-sources: \"true\""),
        (Some(secret("shop", "scrape", &[("ca.crt", &authority)])), "Secret scrape has no key \"token\""),
        (whole(&large), "Secret scrape has more than 262144 bytes"),
        (
            whole("two\nlines"),
            "Secret scrape has no valid token under key \"token\": it must be one line of visible characters",
        ),
        (
            whole(""),
            "Secret scrape has no valid token under key \"token\": it must be one line of visible characters",
        ),
        (
            Some(secret("shop", "scrape", &[("ca.crt", "none"), ("token", "a")])),
            "tlsConfig.ca cannot be used: it contains no PEM certificate",
        ),
    ];
    for (stored, expected) in cases {
        let rig = TlsRig::new(FILE, &own);
        // A Secret of the same name in another namespace is not used.
        rig.secret("bank", "scrape", &[("ca.crt", &authority), ("token", "of the bank")]);
        if let Some(stored) = stored {
            rig.cluster.put_raw(stored);
        }
        assert_eq!(rig.read(SECRETS).await, Err(expected.to_owned()));
        assert_eq!(rig.tokens(), Vec::<String>::new());
        let others = "{metric: a, pods: {port: http, series: waiting, scheme: https, tlsConfig: {insecureSkipVerify: true}}}";
        assert_eq!(rig.read(others).await, three(), "another metric of the namespace");
        // The error is cached too.
        assert_eq!(rig.read(SECRETS).await, Err(expected.to_owned()));
        assert_eq!(rig.reads_of_secrets(), ["/api/v1/namespaces/shop/secrets/scrape"]);
    }
}

#[tokio::test(start_paused = true)]
async fn forbidden_or_malformed_secret_is_reported_without_its_value() {
    let own = certificate(NAME);
    for (fault, expected) in [
        (
            FaultAction::Status(Status::new(403, "Forbidden", "no".to_owned())),
            "Secret scrape cannot be read: grant get on it, as concertina rbac prints",
        ),
        (
            FaultAction::Body(
                r#"{"kind": "Secret", "metadata": {}, "data": {"token": "not base64!"}}"#.to_owned(),
            ),
            "Secret scrape cannot be decoded",
        ),
    ] {
        let rig = TlsRig::new(FILE, &own);
        rig.cluster.faults().add(FaultRule::new(fault).path_suffix("/secrets/scrape"));
        assert_eq!(rig.read(SECRETS).await, Err(expected.to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn tls_and_secrets_need_the_permission_of_the_file() {
    let own = certificate(NAME);
    for (file, namespace, expected) in [
        (PODS, "shop", "the source file does not allow TLS for pods: set pods.tls"),
        (
            "pods: {enabled: true, tls: true}",
            "shop",
            "the source file does not allow Secrets of this namespace: add it to pods.secretNamespaces",
        ),
        (
            FILE,
            "bank",
            "the source file does not allow Secrets of this namespace: add it to pods.secretNamespaces",
        ),
    ] {
        let rig = TlsRig::new(file, &own);
        rig.secret(namespace, "scrape", &[("ca.crt", &own.cert.pem()), ("token", "a")]);
        assert_eq!(rig.read_in(namespace, SECRETS).await, Err(expected.to_owned()));
        assert_eq!((rig.reads_of_secrets(), rig.tokens()), (Vec::new(), Vec::new()));
    }
}

#[tokio::test(start_paused = true)]
async fn secrets_of_a_namespace_are_bounded() {
    let own = certificate(NAME);
    let rig = TlsRig::new(FILE, &own);
    let metric = |number: u32| SECRETS.replace("name: scrape", &format!("name: scrape-{number}"));
    for number in 0..20 {
        let name = format!("scrape-{number}");
        rig.secret("shop", &name, &[("ca.crt", &own.cert.pem()), ("token", "a")]);
    }
    for number in 0..16 {
        assert_eq!(rig.read(&metric(number)).await, three(), "{number}");
    }
    let failed = rig.read(&metric(16)).await.unwrap_err();
    assert_eq!(failed, "the namespace names more than 16 Secrets for pages of pods");
    assert_eq!(rig.reads_of_secrets().len(), 16);
    // Secrets that no policy has used recently do not count.
    rig.rig.sources.current().scraper.due();
    sleep(Duration::from_mins(4)).await;
    rig.rig.sources.current().scraper.due();
    assert_eq!(rig.read(&metric(16)).await, three());
}

#[tokio::test(start_paused = true)]
async fn withdrawn_secret_ends_the_scrapes_between_syncs() {
    let own = certificate(NAME);
    let rig = TlsRig::new(FILE, &own);
    rig.secret("shop", "scrape", &[("ca.crt", &own.cert.pem()), ("token", "first")]);
    let running = tokio::spawn(Arc::clone(&rig.rig.sources).run(Reports::default()));
    assert_eq!(rig.read(SECRETS).await, three());
    sleep(Duration::from_secs(32)).await;
    assert!(rig.tokens().len() > 20);
    rig.cluster.faults().add(
        FaultRule::new(FaultAction::Status(Status::new(404, "NotFound", "gone".to_owned())))
            .path_suffix("/secrets/scrape"),
    );
    assert_eq!(rig.read(SECRETS).await, Err("Secret scrape does not exist".to_owned()));
    let sent = rig.tokens().len();
    sleep(Duration::from_mins(1)).await;
    assert_eq!(rig.tokens().len(), sent);
    running.abort();
}
