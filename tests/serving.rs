//! Tests of the secure port over real TCP and TLS. An embedded API server answers TokenReviews and
//! SubjectAccessReviews. The tests in this file concern authentication and authorization.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test may panic")]

#[path = "serving/connections.rs"]
mod connections;
#[path = "serving/harness.rs"]
mod harness;
#[path = "serving/webhook.rs"]
mod webhook;

use std::time::Duration;

use fake_cluster::Cluster;
use flags::serving::OpenPaths;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::harness::{Authority, Harness, SOON, bearer};

const HPAS: &str = "horizontalpodautoscalers.autoscaling";
const SCRAPER: &str = "system:serviceaccount:monitoring:prometheus";

fn message(body: &str) -> String {
    let status: Value = serde_json::from_str(body).unwrap();
    assert_eq!((&status["kind"], &status["status"]), (&json!("Status"), &json!("Failure")), "{body}");
    status["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn metrics_require_a_token_with_permission() {
    let rig = Harness::start();
    rig.reviews().add_token("good", SCRAPER, &["system:serviceaccounts"]);
    rig.reviews().add_token("useless", "system:serviceaccount:default:default", &[]);
    rig.reviews().allow_path(SCRAPER, "get", "/metrics");
    let (status, body) = rig.get("/metrics", "good").await;
    assert!(status == 200 && body.contains("concertina_build_info"), "{status} {body}");
    for headers in ["", "Authorization: Basic Z29vZDpnb29k\r\n", &bearer("wrong")] {
        let (status, body) = rig.ask("GET", "/metrics", headers).await;
        assert_eq!((status, message(&body).as_str()), (401, "Unauthorized"), "{headers}");
    }
    let (status, body) = rig.get("/metrics", "useless").await;
    assert_eq!(status, 403);
    assert_eq!(
        message(&body),
        "forbidden: User \"system:serviceaccount:default:default\" cannot get path \"/metrics\""
    );
    // HEAD is a separate verb for paths, as in the API server.
    assert_eq!(rig.ask("HEAD", "/metrics", &bearer("good")).await.0, 403);
    rig.shut_down().await;
}

#[tokio::test]
async fn only_health_endpoints_are_open_without_credentials() {
    let rig = Harness::start();
    for path in ["/healthz", "/livez", "/readyz", "/readyz?verbose", "/livez?exclude=x"] {
        assert_eq!(rig.ask("GET", path, "").await.0, 200, "{path}");
        assert_eq!(rig.get(path, "wrong").await.0, 200, "{path}");
    }
    for path in
        ["/", "/livez/ping", "/version", "/flagz", "/statusz", "/decisions", "/debug/pprof/", "/configz"]
    {
        assert_eq!(rig.ask("GET", path, "").await.0, 401, "{path}");
    }
    assert_eq!(rig.token_reviews(), 0, "anonymous requests trigger no token review");
    rig.shut_down().await;

    let open = |serving: &mut flags::serving::Serving| {
        serving.authorization.open_paths =
            OpenPaths::parse(&["/metrics".into(), "/readyz/*".into()]).unwrap();
    };
    let rig = Harness::with(open, |_| {});
    assert_eq!(rig.ask("GET", "/metrics", "").await.0, 200);
    assert_eq!(rig.ask("GET", "/readyz/ping", "").await.0, 200);
    assert_eq!(rig.ask("GET", "/healthz", "").await.0, 401, "the path is not in the list");
    rig.shut_down().await;
}

#[tokio::test]
async fn tenants_read_decisions_of_hpas_that_they_may_read() {
    let rig = Harness::start();
    rig.reviews().add_token("tenant", "jane", &["shop-developers"]);
    rig.reviews().allow_resource("shop-developers", "get", HPAS, Some("shop"));
    rig.reviews().allow_resource("shop-developers", "list", HPAS, Some("shop"));
    rig.reviews().add_token("admin", "root", &["admins"]);
    rig.reviews().allow_resource("admins", "list", HPAS, None);
    // By default, no decisions are recorded. Only authorized clients get the 404 with this reason.
    for allowed in ["/decisions/shop/web", "/decisions?namespace=shop", "/decisions?namespace=shop&limit=5"] {
        let (status, body) = rig.get(allowed, "tenant").await;
        assert_eq!(status, 404, "{allowed} {body}");
        assert!(message(&body).contains("no decisions are recorded"), "{body}");
    }
    for forbidden in
        ["/decisions", "/decisions/bank/web", "/decisions?namespace=bank", "/decisions?namespace="]
    {
        assert_eq!(rig.get(forbidden, "tenant").await.0, 403, "{forbidden}");
    }
    let (_, body) = rig.get("/decisions/bank/web", "tenant").await;
    assert_eq!(
        message(&body),
        "horizontalpodautoscalers.autoscaling \"web\" is forbidden: User \"jane\" cannot get resource \
         \"horizontalpodautoscalers\" in API group \"autoscaling\" in the namespace \"bank\""
    );
    assert_eq!(rig.get("/decisions", "admin").await.0, 404);
    for malformed in ["/decisions/shop", "/decisions/a/b/c", "/decisions/..%2f/web", "/decisions?namespace=A"]
    {
        assert!([400, 404].contains(&rig.get(malformed, "tenant").await.0), "{malformed}");
        assert_eq!(rig.ask("GET", malformed, "").await.0, 401, "{malformed}");
    }
    rig.shut_down().await;
}

#[tokio::test]
async fn removed_token_is_rejected_after_its_cached_review_expires() {
    let ttl = Duration::from_millis(300);
    let rig = Harness::with(|serving| serving.authentication.token_ttl = ttl, |_| {});
    rig.reviews().add_token("token", SCRAPER, &[]);
    rig.reviews().allow_path(SCRAPER, "get", "/metrics");
    let first = Instant::now();
    for _ in 0..3 {
        assert_eq!(rig.get("/metrics", "token").await.0, 200);
    }
    assert!(rig.token_reviews() == 1 || first.elapsed() >= ttl, "a review is cached for its TTL");
    rig.reviews().remove_token("token");
    let removed = Instant::now();
    while rig.get("/metrics", "token").await.0 == 200 {
        // The default TTL is 10 s.
        assert!(removed.elapsed() < Duration::from_secs(8), "the removed token is still accepted");
    }
    assert_eq!(rig.get("/metrics", "token").await.0, 401);
    rig.shut_down().await;
}

#[tokio::test]
async fn open_connection_does_not_keep_a_revoked_permission() {
    let rig = Harness::with(
        |serving| {
            serving.authorization.allowed_ttl = Duration::ZERO;
            serving.authorization.denied_ttl = Duration::ZERO;
        },
        |_| {},
    );
    rig.reviews().add_token("token", SCRAPER, &[]);
    rig.reviews().allow_path(SCRAPER, "get", "/metrics");
    let mut stream = rig.connect(crate::harness::client(None)).await.unwrap();
    let headers = bearer("token");
    assert_eq!(crate::harness::ask(&mut stream, "GET", "/metrics", &headers).await.0, 200);
    rig.reviews().allow_nothing();
    assert_eq!(crate::harness::ask(&mut stream, "GET", "/metrics", &headers).await.0, 403);
    rig.shut_down().await;
}

#[tokio::test]
async fn health_is_served_and_access_refused_without_an_api_server() {
    let rig = Harness::start();
    rig.reviews().add_token("token", SCRAPER, &[]);
    rig.reviews().allow_path(SCRAPER, "get", "/metrics");
    rig.cut_off();
    let (status, body) = rig.get("/metrics", "token").await;
    assert_eq!(status, 503);
    assert_eq!(message(&body), "token review failed: the API server is unavailable");
    assert_eq!(rig.ask("GET", "/livez", "").await.0, 200);
    assert_eq!(rig.ask("GET", "/metrics", "").await.0, 401);
    rig.cluster.faults().clear();
    assert_eq!(rig.get("/metrics", "token").await.0, 200, "a failed review is not cached");
    rig.shut_down().await;
}

#[tokio::test]
async fn authorized_clients_read_version_flagz_and_statusz() {
    let rig = Harness::with(|serving| serving.given = vec![("v".into(), "4".into())], |_| {});
    rig.reviews().add_token("token", "jane", &["system:masters"]);
    let (status, body) = rig.get("/version", "token").await;
    let version: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &version["minor"], &version["compiler"]), (200, &json!("37"), &json!("rustc")));
    let (_, flags) = rig.get("/flagz", "token").await;
    assert!(flags.starts_with("\nconcertina flagz\nWarning: This endpoint is not meant"), "{flags}");
    assert!(flags.contains("\nv=4\n") && flags.contains("\nsecure-port=10257\n"), "{flags}");
    let (_, status) = rig.get("/statusz", "token").await;
    assert!(
        status.contains("\nEmulation version: 1.37\n") && status.contains("\nUp: 0 hr 00 min "),
        "{status}"
    );
    for path in ["/debug/pprof/profile", "/debug/flags/v", "/configz", "/parity"] {
        assert_eq!(rig.get(path, "token").await.0, 404, "{path}");
    }
    let (status, _) = rig.ask("POST", "/flagz", &bearer("token")).await;
    assert_eq!(status, 405);
    rig.shut_down().await;
}

/// Creates the ConfigMap with the authorities, in the form that the API server publishes.
fn publish(cluster: &Cluster, clients: &Authority, proxies: &Authority) {
    cluster
        .create(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "namespace": "kube-system", "name": "extension-apiserver-authentication" },
            "data": {
                "client-ca-file": clients.pem,
                "requestheader-client-ca-file": proxies.pem,
                "requestheader-allowed-names": "[\"front-proxy-client\"]",
                "requestheader-username-headers": "[\"X-Remote-User\"]",
                "requestheader-group-headers": "[\"X-Remote-Group\"]",
                "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
            },
        }))
        .unwrap();
}

/// Waits until the server has read the authorities.
async fn wait_for_authorities(rig: &Harness, authority: &Authority) {
    let start = Instant::now();
    while rig.ask_with_certificate(authority.sign("probe", "system:masters", 4000), "/metrics", "").await.0
        == 401
    {
        assert!(start.elapsed() < SOON, "the server did not read the authorities in time");
    }
}

#[tokio::test]
async fn client_certificate_of_the_cluster_ca_identifies_the_client() {
    let (ours, foreign, proxies) =
        (Authority::new("ours"), Authority::new("ours"), Authority::new("proxies"));
    let rig = Harness::with(|_| {}, |cluster| publish(cluster, &ours, &proxies));
    wait_for_authorities(&rig, &ours).await;
    rig.reviews().allow_path("scrapers", "get", "/metrics");
    assert_eq!(rig.ask_with_certificate(ours.sign("p", "scrapers", 4000), "/metrics", "").await.0, 200);
    let (status, body) = rig.ask_with_certificate(ours.sign("p", "others", 4000), "/metrics", "").await;
    assert_eq!(status, 403);
    assert!(message(&body).contains("User \"p\" cannot get path"), "{body}");
    for untrusted in [foreign.sign("p", "scrapers", 4000), ours.sign("p", "scrapers", 2020)] {
        assert_eq!(rig.ask_with_certificate(untrusted, "/metrics", "").await.0, 401);
    }
    // A client with an untrusted certificate is identified by its token.
    rig.reviews().add_token("token", "jane", &["scrapers"]);
    assert_eq!(
        rig.ask_with_certificate(foreign.sign("p", "x", 4000), "/metrics", &bearer("token")).await.0,
        200
    );
    // `system:masters` has access even when the API server is down.
    rig.cut_off();
    assert_eq!(
        rig.ask_with_certificate(ours.sign("admin", "system:masters", 4000), "/metrics", "").await.0,
        200
    );
    assert_eq!(rig.ask_with_certificate(ours.sign("q", "scrapers", 4000), "/metrics", "").await.0, 503);
    rig.shut_down().await;
}

#[tokio::test]
async fn only_a_front_proxy_may_identify_the_client_by_headers() {
    let (ours, proxies) = (Authority::new("ours"), Authority::new("proxies"));
    let rig = Harness::with(|_| {}, |cluster| publish(cluster, &ours, &proxies));
    wait_for_authorities(&rig, &ours).await;
    rig.reviews().allow_path("scrapers", "get", "/metrics");
    let headers = "X-Remote-User: jane\r\nX-Remote-Group: scrapers\r\n";
    let proxy = || proxies.sign("front-proxy-client", "", 4000);
    assert_eq!(rig.ask_with_certificate(proxy(), "/metrics", headers).await.0, 200);
    assert_eq!(rig.ask_with_certificate(proxy(), "/metrics", "X-Remote-User: jane\r\n").await.0, 403);
    assert_eq!(
        rig.ask_with_certificate(proxy(), "/metrics", "").await.0,
        401,
        "a proxy has no identity itself"
    );
    assert_eq!(rig.ask_with_certificate(proxies.sign("another", "", 4000), "/metrics", headers).await.0, 401);
    assert_eq!(
        rig.ask_with_certificate(ours.sign("joe", "x", 4000), "/metrics", headers).await.0,
        403,
        "headers of a client without a proxy certificate are ignored"
    );
    assert_eq!(rig.ask("GET", "/metrics", headers).await.0, 401);
    rig.shut_down().await;
}
