//! `concertina console` next to real replicas: it shows the leader, and each change of the leader while it runs.

use std::process::Command;

use serde_json::{Value, json};

use crate::election::{self, CRASH, LEASE, Replicas};
use crate::outcome::{Context as _, Failure, Outcome, ensure, eventually};
use crate::process::Process;
use crate::rest::Rest;
use crate::world::{APP, Autoscaler, Fixture, SOON, World, binary, cpu_utilization};
use crate::{forward, why};

const NAMESPACE: &str = "console";
/// The account that runs the command.
const ACCOUNT: &str = "operator";

pub(crate) async fn shows_changes_of_the_leader(stage: &Fixture) -> Outcome {
    let world = World::make(stage, NAMESPACE, Autoscaler::Concertina).await?;
    world.deployment("web", 1, APP).await?;
    world.cpu("web", 100);
    let spec = json!({"minReplicas": 1, "maxReplicas": 8, "metrics": [cpu_utilization(50)]});
    world.hpa("web", ("apps/v1", "Deployment", "web"), spec).await?;
    election::grant(stage).await?;
    let mut replicas = Replicas::default();
    replicas.start_with(stage, "a", &[]).await?;
    let first = holder_other_than(stage, "").await.context(replicas.tails())?;

    let (process, page) = start(stage).await?;
    // Without the right to read the Lease, the page names that right and shows everything else.
    let shown = page.get("/controller").await?;
    let names_right = shown["missing"].to_string().contains("leases.coordination.k8s.io");
    let is_partial = names_right && shown["lease"].is_null();
    ensure(is_partial, || format!("without the right to read the Lease: {shown}"))?;
    let marks = marks(&page).await?;
    ensure(marks.is_empty(), || format!("without the right to read the Lease: {marks:?}"))?;

    let rules = json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
        "resourceNames": ["concertina"], "verbs": ["get"]}]);
    forward::grant(stage, "lease-reader", ACCOUNT, "default", &rules).await?;
    shows(&page, &[&first]).await.context(process.tail(20))?;

    replicas.start_with(stage, "b", &[]).await?;
    replicas.get("a")?.signal("TERM")?;
    let second = holder_other_than(stage, &first).await.context(replicas.tails())?;
    shows(&page, &[&first, &second]).await.context(process.tail(20))?;

    replicas.start_with(stage, "a", &[]).await?;
    replicas.get("b")?.signal("KILL")?;
    let third = holder_other_than(stage, &second).await.context(replicas.tails())?;
    shows(&page, &[&first, &second, &third]).await.context(process.tail(20))?;
    world.close().await
}

/// Waits until the Lease has a holder other than `former`. Returns it.
async fn holder_other_than(stage: &Fixture, former: &str) -> Outcome<String> {
    eventually(CRASH, "the Lease has another holder", async || {
        let lease = stage.plane.admin.get(LEASE).await?;
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        ensure(!holder.is_empty() && holder != former, || lease["spec"].to_string())?;
        Ok(holder.to_owned())
    })
    .await
}

/// Waits until the page shows these leaders, oldest first: the last one in the state of the controller, and each as a
/// mark of the HPA's timeline.
async fn shows(page: &Rest, leaders: &[&str]) -> Outcome {
    eventually(SOON, &format!("the page shows the leaders {leaders:?}"), async || {
        let state = page.get("/controller").await?;
        let holder = &state["lease"]["holder"];
        ensure(leaders.last().is_some_and(|last| *holder == *last), || format!("{holder} leads"))?;
        let marks = marks(page).await?;
        let expected: Vec<_> =
            leaders.iter().map(|leader| format!("leader change: {leader} leads")).collect();
        ensure(marks == expected, || format!("the timeline shows {marks:?}"))
    })
    .await
}

/// The changes of the leader on the timeline of the HPA.
async fn marks(page: &Rest) -> Outcome<Vec<String>> {
    let document = page.get(&format!("/hpas/{NAMESPACE}/web")).await?;
    let data = document.pointer("/timeline/data").ok_or("the page of the HPA has no timeline")?;
    let mut texts = Vec::new();
    collect(data, &mut texts);
    texts.retain(|text| text.starts_with("leader change"));
    Ok(texts)
}

/// Adds all texts of a document.
fn collect(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| collect(value, texts)),
        Value::Object(fields) => fields.values().for_each(|value| collect(value, texts)),
        _ => {}
    }
}

/// Starts the command as a user who may read HPAs, and returns a client of its page.
async fn start(stage: &Fixture) -> Outcome<(Process, Rest)> {
    let kubeconfig = stage.plane.service_account("default", ACCOUNT).await?;
    why::bind(stage, ACCOUNT, "system:aggregate-to-view").await?;
    let mut command = Command::new(binary());
    command.args(["console", "--browser=off", "--kubeconfig"]).arg(kubeconfig).env_remove("HTTP_PROXY");
    let process = Process::start("console", command, stage.plane.folder())?;
    process.wait_for_log("http://127.0.0.1:", SOON).await?;
    let output = process.tail(20);
    let url = output.lines().map(str::trim).find(|line| line.starts_with("http://127.0.0.1:"));
    let url = url.ok_or_else(|| Failure(output.clone()))?;
    let page = Rest::new(url.trim_end_matches('/'), "")?;
    eventually(SOON, "the page has the HPA", async || page.get(&format!("/hpas/{NAMESPACE}/web")).await)
        .await?;
    Ok((process, page))
}
