//! Access to the secure port, with real tokens and real RBAC.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::controlplane::free_port;
use crate::outcome::{Context as _, Failure, Outcome, ensure, eventually};
use crate::rest::Rest;
use crate::world::{APP, Autoscaler, Fixture, SOON, World, cpu_utilization};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// The shortest token lifetime that the API server issues.
const TEN_MINUTES: u32 = 600;
/// The controller caches a token review for ten seconds.
const TOKEN_TTL: Duration = Duration::from_secs(10);

/// Requests the pages of the secure port as a scraper, a tenant, an account without rights, and an anonymous client.
pub(crate) async fn clients_see_what_rbac_allows(stage: &Fixture) -> Outcome {
    let admin = &stage.plane.admin;
    let mut worlds = Vec::new();
    for namespace in ["tenant-a", "tenant-b"] {
        let world = World::make(stage, namespace, Autoscaler::Concertina).await?;
        world.deployment("web", 1, APP).await?;
        let spec = json!({"minReplicas": 1, "maxReplicas": 4, "metrics": [cpu_utilization(50)]});
        world.cpu("web", 50);
        world.hpa("web", ("apps/v1", "Deployment", "web"), spec).await?;
        worlds.push(world);
    }
    let port = free_port()?;
    let flags = [
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".to_owned(),
        "--leader-elect=false".to_owned(),
        "--takeover=off".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut autoscaler = stage.autoscaler_with(Autoscaler::Concertina, &flags).await?;
    let url = format!("https://127.0.0.1:{port}");

    let unprivileged = account(admin, "default", "unprivileged").await?;
    let code = eventually(SOON, "the port is served", async || {
        autoscaler.still_runs()?;
        Rest::new(&url, &unprivileged)?.code("/metrics").await
    });
    let code = code.await.context(autoscaler.tail(20))?;
    ensure(code == 503, || format!("expected 503 before the controller may review tokens: {code}"))?;
    // Every aggregated API server has this binding.
    let controller_account = json!([{"kind": "ServiceAccount", "namespace": "kube-system",
        "name": "horizontal-pod-autoscaler"}]);
    admin
        .create(
            &format!("{RBAC}/clusterrolebindings"),
            &binding(
                "concertina-auth-delegator",
                "ClusterRole",
                "system:auth-delegator",
                &controller_account,
            ),
        )
        .await?;
    eventually(SOON, "the account without rights is identified and refused", async || {
        let code = Rest::new(&url, &unprivileged)?.code("/metrics").await?;
        ensure(code == 403, || format!("the code is {code}"))
    })
    .await?;

    let scraper = account(admin, "monitoring", "prometheus").await?;
    let role = json!({
        "metadata": {"name": "metrics"},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    });
    admin.create(&format!("{RBAC}/clusterroles"), &role).await?;
    let prometheus = json!([{"kind": "ServiceAccount", "namespace": "monitoring", "name": "prometheus"}]);
    let bind = binding("scraper", "ClusterRole", "metrics", &prometheus);
    admin.create(&format!("{RBAC}/clusterrolebindings"), &bind).await?;
    let tenant = account(admin, "tenant-a", "developer").await?;
    let developer = json!([{"kind": "ServiceAccount", "namespace": "tenant-a", "name": "developer"}]);
    // The tenant has a part of the role `view`, because no controller aggregates roles here.
    let bind = binding("developer", "ClusterRole", "system:aggregate-to-view", &developer);
    admin.create(&format!("{RBAC}/namespaces/tenant-a/rolebindings"), &bind).await?;

    let (scraper_client, tenant_client) = (Rest::new(&url, &scraper)?, Rest::new(&url, &tenant)?);
    eventually(SOON, "RBAC has observed both bindings", async || {
        let codes =
            (scraper_client.code("/metrics").await?, tenant_client.code("/decisions/tenant-a/web").await?);
        ensure(codes == (200, 200), || format!("the codes are {codes:?}"))
    })
    .await
    .context(autoscaler.tail(20))?;
    let metrics = scraper_client.send(Method::GET, "/metrics", &[], None).await?.text;
    ensure(metrics.contains("horizontal_pod_autoscaler_controller_"), || {
        format!("/metrics has no metrics of the controller: {metrics}")
    })?;

    for (client, rest, path, expected) in [
        ("tenant", &tenant_client, "/decisions/tenant-a/web", 200),
        ("tenant", &tenant_client, "/decisions?namespace=tenant-a", 200),
        ("tenant", &tenant_client, "/decisions/tenant-b/web", 403),
        ("tenant", &tenant_client, "/decisions?namespace=tenant-b", 403),
        ("tenant", &tenant_client, "/decisions", 403),
        ("tenant", &tenant_client, "/metrics", 403),
        ("scraper", &scraper_client, "/decisions/tenant-a/web", 403),
        ("scraper", &scraper_client, "/flagz", 403),
        ("scraper", &scraper_client, "/livez", 200),
        ("anonymous", &Rest::new(&url, "invalid-token")?, "/metrics", 401),
        ("anonymous", &Rest::new(&url, "invalid-token")?, "/decisions", 401),
        ("anonymous", &Rest::new(&url, "invalid-token")?, "/readyz", 200),
    ] {
        let code = rest.code(path).await?;
        ensure(code == expected, || format!("{client} gets {code} for {path} instead of {expected}"))?;
    }
    let refused = tenant_client.send(Method::GET, "/decisions/tenant-b/web", &[], None).await?.json();
    let message = refused.get("message").and_then(Value::as_str).unwrap_or_default();
    let expected = "horizontalpodautoscalers.autoscaling \"web\" is forbidden: User \
                    \"system:serviceaccount:tenant-a:developer\" cannot get resource \"horizontalpodautoscalers\" in API \
                    group \"autoscaling\" in the namespace \"tenant-b\"";
    ensure(message == expected, || format!("refused with {message:?}"))?;
    eventually(SOON, "only the tenant's decision", async || {
        let page = tenant_client.get("/decisions?namespace=tenant-a").await?;
        let items = page.get("items").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let namespaces: Vec<_> = items.iter().map(|item| item.get("namespace")).collect();
        ensure(namespaces == [Some(&json!("tenant-a"))], || format!("{page}"))
    })
    .await?;

    // A token is bound to its account. After the deletion of the account, the port accepts the token until the cached
    // review expires.
    admin.delete("/api/v1/namespaces/monitoring/serviceaccounts/prometheus").await?;
    eventually(TOKEN_TTL + SOON, "the token is rejected", async || {
        let code = scraper_client.code("/metrics").await?;
        ensure(code == 401, || format!("the code is {code}"))
    })
    .await?;
    for world in &worlds {
        world.close().await?;
    }
    Ok(())
}

/// Creates an account. Returns a token that is valid for ten minutes.
async fn account(admin: &Rest, namespace: &str, name: &str) -> Outcome<String> {
    let created = admin.create("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await;
    // The namespace may exist already.
    drop(created);
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    admin.create(&accounts, &json!({"metadata": {"name": name}})).await?;
    let request = json!({"spec": {"expirationSeconds": TEN_MINUTES}});
    let answer = admin.create(&format!("{accounts}/{name}/token"), &request).await?;
    let token = answer.pointer("/status/token").and_then(Value::as_str);
    token.map(str::to_owned).ok_or_else(|| Failure(format!("no token in {answer}")))
}

fn binding(name: &str, kind: &str, role: &str, subjects: &Value) -> Value {
    json!({
        "metadata": {"name": name},
        "subjects": subjects,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
    })
}

impl Rest {
    async fn code(&self, path: &str) -> Outcome<u16> {
        self.send(Method::GET, path, &[], None).await.map(|answer| answer.code)
    }
}
