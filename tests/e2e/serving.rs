//! Who sees what of the secure port, with real tokens and real RBAC.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::controlplane::free_port;
use crate::metric_specs::cpu_utilization;
use crate::outcome::{Context as _, Failure, Outcome, ensure, eventually};
use crate::rest::Rest;
use crate::stage::{Autoscaler, Stage};
use crate::world::{APP, SOON, World};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// The shortest that the API server gives.
const TEN_MINUTES: u32 = 600;
/// A token's review holds for ten seconds.
const TOKEN_TTL: Duration = Duration::from_secs(10);

/// A scraper, two tenants and a stranger.
pub(crate) async fn everybody_sees_his_own(stage: &Stage) -> Outcome {
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

    let stranger = account(admin, "default", "stranger").await?;
    let code = eventually(SOON, "the port is served", async || {
        autoscaler.still_runs()?;
        Rest::new(&url, &stranger)?.code("/metrics").await
    });
    let code = code.await.context(autoscaler.tail(20))?;
    ensure(code == 503, || format!("the controller may not ask about others yet: {code}"))?;
    // What every aggregated API server is given.
    let account_of_ours = json!([{"kind": "ServiceAccount", "namespace": "kube-system",
        "name": "horizontal-pod-autoscaler"}]);
    admin
        .create(
            &format!("{RBAC}/clusterrolebindings"),
            &binding("concertina-auth-delegator", "ClusterRole", "system:auth-delegator", &account_of_ours),
        )
        .await?;
    eventually(SOON, "the stranger is known and may see nothing", async || {
        let code = Rest::new(&url, &stranger)?.code("/metrics").await?;
        ensure(code == 403, || format!("it is {code}"))
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
    // What the role view is made of, as nothing aggregates roles here.
    let bind = binding("developer", "ClusterRole", "system:aggregate-to-view", &developer);
    admin.create(&format!("{RBAC}/namespaces/tenant-a/rolebindings"), &bind).await?;

    let (scraper_sees, tenant_sees) = (Rest::new(&url, &scraper)?, Rest::new(&url, &tenant)?);
    eventually(SOON, "RBAC knows both", async || {
        let codes =
            (scraper_sees.code("/metrics").await?, tenant_sees.code("/decisions/tenant-a/web").await?);
        ensure(codes == (200, 200), || format!("it is {codes:?}"))
    })
    .await
    .context(autoscaler.tail(20))?;
    let metrics = scraper_sees.send(Method::GET, "/metrics", &[], None).await?.text;
    ensure(metrics.contains("horizontal_pod_autoscaler_controller_"), || format!("no metrics: {metrics}"))?;

    for (who, rest, path, expected) in [
        ("tenant", &tenant_sees, "/decisions/tenant-a/web", 200),
        ("tenant", &tenant_sees, "/decisions?namespace=tenant-a", 200),
        ("tenant", &tenant_sees, "/decisions/tenant-b/web", 403),
        ("tenant", &tenant_sees, "/decisions?namespace=tenant-b", 403),
        ("tenant", &tenant_sees, "/decisions", 403),
        ("tenant", &tenant_sees, "/metrics", 403),
        ("scraper", &scraper_sees, "/decisions/tenant-a/web", 403),
        ("scraper", &scraper_sees, "/flagz", 403),
        ("scraper", &scraper_sees, "/livez", 200),
        ("nobody", &Rest::new(&url, "no-token-of-anybody")?, "/metrics", 401),
        ("nobody", &Rest::new(&url, "no-token-of-anybody")?, "/decisions", 401),
        ("nobody", &Rest::new(&url, "no-token-of-anybody")?, "/readyz", 200),
    ] {
        let code = rest.code(path).await?;
        ensure(code == expected, || format!("{who} gets {code} for {path}, not {expected}"))?;
    }
    let refused = tenant_sees.send(Method::GET, "/decisions/tenant-b/web", &[], None).await?.json();
    let message = refused.get("message").and_then(Value::as_str).unwrap_or_default();
    let expected = "horizontalpodautoscalers.autoscaling \"web\" is forbidden: User \
                    \"system:serviceaccount:tenant-a:developer\" cannot get resource \"horizontalpodautoscalers\" in API \
                    group \"autoscaling\" in the namespace \"tenant-b\"";
    ensure(message == expected, || format!("refused with {message:?}"))?;
    eventually(SOON, "one decision of the tenant's, and no other", async || {
        let page = tenant_sees.get("/decisions?namespace=tenant-a").await?;
        let items = page.get("items").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let namespaces: Vec<_> = items.iter().map(|item| item.get("namespace")).collect();
        ensure(namespaces == [Some(&json!("tenant-a"))], || format!("{page}"))
    })
    .await?;

    // A token is bound to its account: without it, it is nobody's, as soon as its review has run out.
    admin.delete("/api/v1/namespaces/monitoring/serviceaccounts/prometheus").await?;
    eventually(TOKEN_TTL + SOON, "the token is nobody's any more", async || {
        let code = scraper_sees.code("/metrics").await?;
        ensure(code == 401, || format!("it is {code}"))
    })
    .await?;
    for world in &worlds {
        world.close().await?;
    }
    Ok(())
}

/// A token of a new account, good for ten minutes.
async fn account(admin: &Rest, namespace: &str, name: &str) -> Outcome<String> {
    let made = admin.create("/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await;
    // It may be there.
    drop(made);
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
