//! A real API server takes what is shipped, and what is taken away leaves what others need.

use std::process::Command;

use serde_json::{Value, json};

use crate::assets;
use crate::controlplane::{ADMIN_TOKEN, ControlPlane};
use crate::outcome::{Context, Failure, Outcome, ensure};
use crate::rendered::{Key, Objects, VARIANTS, helm_command, kustomize, only, path, run};
use crate::rest::media;

/// Of the Prometheus operator, whose definitions are not here.
const FOREIGN: [&str; 2] = ["ServiceMonitor", "PrometheusRule"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl, HELM and KUBEBUILDER_ASSETS"]
async fn an_api_server_takes_what_is_shipped() -> Outcome {
    let plane = ControlPlane::start().await?;
    for name in ["team-a", "team-b"] {
        plane.admin.create("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await?;
    }
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    let namespace = json!({"metadata": {"name": "restricted", "labels": labels}});
    plane.admin.create("/api/v1/namespaces", &namespace).await?;

    for variant in VARIANTS {
        let objects = kustomize(variant.folder);
        every_object_is_valid(&plane, &objects).await.context(variant.folder)?;
        let refused = refusal_as_a_restricted_pod(&plane, &objects).await.context(variant.folder)?;
        let expected = (variant.folder == "overlays/control-plane").then_some(
            "violates PodSecurity \"restricted:latest\": host namespaces (hostNetwork=true), \
             hostPort (container \"concertina\" uses hostPort 10267)",
        );
        ensure(
            match (&refused, expected) {
                (None, None) => true,
                (Some(told), Some(expected)) => told.ends_with(expected),
                _ => false,
            },
            || format!("{}: as a restricted pod: {refused:?}, not {expected:?}", variant.folder),
        )?;
    }
    every_object_is_valid(&plane, &kustomize("prometheus")).await?;

    let kubectl = Tools::new(&plane)?;
    kubectl.comes_and_goes(&plane).await?;
    kubectl.release_comes_and_goes(&plane).await
}

async fn every_object_is_valid(plane: &ControlPlane, objects: &Objects) -> Outcome {
    for (name, object) in objects.iter().filter(|(name, _)| !FOREIGN.contains(&&*name.kind)) {
        let (collection, _) = place(object, name);
        // Unknown and doubled fields are mistakes.
        let path = format!("{collection}?dryRun=All&fieldValidation=Strict");
        plane.admin.create(&path, object).await.context(name)?;
    }
    Ok(())
}

/// Why the Deployment's pod may not run in a namespace that enforces `restricted`.
async fn refusal_as_a_restricted_pod(plane: &ControlPlane, objects: &Objects) -> Outcome<Option<String>> {
    let template = only(objects, "Deployment")["spec"]["template"].clone();
    let mut pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": template["spec"]});
    pod["metadata"]["labels"] = template["metadata"]["labels"].clone();
    let path = "/api/v1/namespaces/restricted/pods?dryRun=All&fieldValidation=Strict";
    let answer =
        plane.admin.send(http::Method::POST, path, &[("content-type", media::JSON)], Some(&pod)).await?;
    match answer.code {
        201 => Ok(None),
        403 => Ok(Some(answer.json()["message"].as_str().unwrap_or_default().to_owned())),
        code => Err(Failure(format!("{code} {}", answer.text))),
    }
}

/// kubectl and helm as somebody who may do everything.
struct Tools {
    kubeconfig: std::path::PathBuf,
}

impl Tools {
    fn new(plane: &ControlPlane) -> Outcome<Self> {
        let kubeconfig = plane.folder().join("admin.kubeconfig");
        assets::write_kubeconfig(
            &kubeconfig,
            &plane.url,
            &plane.folder().join("authority.crt"),
            ADMIN_TOKEN,
        )?;
        Ok(Self { kubeconfig })
    }

    fn kubectl(&self, words: &[&str]) -> Outcome<String> {
        let mut kubectl = Command::new("kubectl");
        kubectl.args(words).env("KUBECONFIG", &self.kubeconfig);
        run(kubectl).map_err(Failure).context(format!("kubectl {words:?}"))
    }

    fn helm(&self, words: &[&str]) -> Outcome<String> {
        let mut helm = helm_command();
        helm.args(words).args(["--namespace", "kube-system"]).env("KUBECONFIG", &self.kubeconfig);
        run(helm).map_err(Failure).context(format!("helm {words:?}"))
    }

    async fn comes_and_goes(&self, plane: &ControlPlane) -> Outcome {
        self.kubectl(&["apply", "-k", &path("kustomize/service-account")])?;
        for variant in VARIANTS {
            let folder = path(&format!("kustomize/{}", variant.folder));
            let objects = kustomize(variant.folder);
            self.kubectl(&["apply", "-k", &folder])?;
            let before = versions(plane, &objects).await?;
            self.kubectl(&["apply", "-k", &folder])?;
            let after = versions(plane, &objects).await?;
            ensure(before == after, || {
                format!("applying {} again changes something: {before:?}, {after:?}", variant.folder)
            })?;
            self.kubectl(&["delete", "-k", &folder])?;
            everything_is_gone(plane, &objects).await.context(variant.folder)?;
        }
        the_account_is_there(plane).await
    }

    async fn release_comes_and_goes(&self, plane: &ControlPlane) -> Outcome {
        // The chart's account is its own to create here.
        self.kubectl(&["delete", "-k", &path("kustomize/service-account")])?;
        let chart = path("helm/concertina");
        let install = ["upgrade", "--install", "concertina", &chart, "--set", "serviceAccount.create=true"];
        let told = self.helm(&install)?;
        ensure(told.contains("Switch the built-in loop off"), || {
            format!("no word on the built-in loop:\n{told}")
        })?;
        self.helm(&install)?;
        self.helm(&["uninstall", "concertina"])?;
        everything_is_gone(plane, &kustomize("base")).await.context("helm uninstall")?;
        the_account_is_there(plane).await
    }
}

/// What kubectl prints does not tell: it calls a PodDisruptionBudget configured each time, because it always sends the selector.
async fn versions(plane: &ControlPlane, objects: &Objects) -> Outcome<Vec<String>> {
    let mut versions = Vec::new();
    for (name, object) in objects {
        let stored = plane.admin.get(&place(object, name).1).await?;
        versions.push(format!("{name} {}", stored["metadata"]["resourceVersion"]));
    }
    Ok(versions)
}

async fn everything_is_gone(plane: &ControlPlane, objects: &Objects) -> Outcome {
    for (name, object) in objects {
        let (collection, path) = place(object, name);
        ensure(plane.admin.get(&collection).await.is_ok(), || format!("{collection} cannot be listed"))?;
        ensure(plane.admin.get(&path).await.is_err(), || format!("{name} is still there"))?;
    }
    Ok(())
}

async fn the_account_is_there(plane: &ControlPlane) -> Outcome {
    let path = "/api/v1/namespaces/kube-system/serviceaccounts/horizontal-pod-autoscaler";
    plane.admin.get(path).await.map(drop).context("the account of the built-in loop went along")
}

/// The paths of the collection and of the object.
fn place(object: &Value, name: &Key) -> (String, String) {
    let version = object["apiVersion"].as_str().unwrap();
    let root = if version.contains('/') { "apis" } else { "api" };
    let lower = name.kind.to_lowercase();
    let plural = lower.strip_suffix('y').map_or_else(|| format!("{lower}s"), |stem| format!("{stem}ies"));
    let namespace =
        name.namespace.as_ref().map(|namespace| format!("namespaces/{namespace}/")).unwrap_or_default();
    let collection = format!("/{root}/{version}/{namespace}{plural}");
    let path = format!("{collection}/{}", name.name);
    (collection, path)
}
