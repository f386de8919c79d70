//! A real API server accepts the shipped objects, and enforces the policy for updates of the webhook. An uninstall keeps
//! the objects that other software needs.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::controlplane::{self, ADMIN_TOKEN, ControlPlane};
use crate::outcome::{Context, Failure, Outcome, ensure, eventually};
use crate::rendered::{HOME, Key, Objects, VARIANTS, helm_command, kustomize, only, path, run};
use crate::rest::media;

/// The kinds of the Prometheus operator, which the control plane does not serve.
const FOREIGN: [&str; 2] = ["ServiceMonitor", "PrometheusRule"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl, HELM and KUBEBUILDER_ASSETS"]
async fn api_server_accepts_the_shipped_objects() -> Outcome {
    let plane = ControlPlane::start().await?;
    for name in ["team-a", "team-b", HOME, "concertina-blue"] {
        plane.admin.create("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await?;
    }
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    let namespace = json!({"metadata": {"name": "restricted", "labels": labels}});
    plane.admin.create("/api/v1/namespaces", &namespace).await?;

    for variant in VARIANTS {
        let objects = kustomize(variant.folder);
        every_object_is_valid(&plane, &objects).await.context(variant.folder)?;
        let refused = restricted_pod_refusal(&plane, &objects).await.context(variant.folder)?;
        let expected = (variant.folder == "overlays/control-plane").then_some(
            "violates PodSecurity \"restricted:latest\": host namespaces (hostNetwork=true), \
             hostPort (container \"concertina\" uses hostPort 10267)",
        );
        ensure(
            match (&refused, expected) {
                (None, None) => true,
                (Some(output), Some(expected)) => output.ends_with(expected),
                _ => false,
            },
            || format!("{}: refusal of a restricted pod: {refused:?}, expected {expected:?}", variant.folder),
        )?;
    }
    every_object_is_valid(&plane, &kustomize("prometheus")).await?;

    let kubectl = Tools::new(&plane)?;
    kubectl.apply_and_delete(&plane).await?;
    kubectl.update_the_webhook(&plane).await?;
    kubectl.install_and_uninstall(&plane).await
}

async fn every_object_is_valid(plane: &ControlPlane, objects: &Objects) -> Outcome {
    for (name, object) in objects.iter().filter(|(name, _)| !FOREIGN.contains(&&*name.kind)) {
        let (collection, _) = object_paths(object, name);
        // Unknown and duplicated fields are errors.
        let path = format!("{collection}?dryRun=All&fieldValidation=Strict");
        plane.admin.create(&path, object).await.context(name)?;
    }
    Ok(())
}

/// Returns the reason why a namespace that enforces `restricted` refuses the pod of the Deployment. Returns `None` if
/// the namespace accepts the pod.
async fn restricted_pod_refusal(plane: &ControlPlane, objects: &Objects) -> Outcome<Option<String>> {
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

/// Runs kubectl and helm as a user with full access.
pub(crate) struct Tools {
    pub(crate) kubeconfig: std::path::PathBuf,
}

impl Tools {
    pub(crate) fn new(plane: &ControlPlane) -> Outcome<Self> {
        let kubeconfig = plane.folder().join("admin.kubeconfig");
        controlplane::write_kubeconfig(
            &kubeconfig,
            &plane.url,
            &plane.folder().join("authority.crt"),
            ADMIN_TOKEN,
        )?;
        Ok(Self { kubeconfig })
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Outcome<String> {
        let mut kubectl = Command::new("kubectl");
        kubectl.args(arguments).env("KUBECONFIG", &self.kubeconfig);
        run(kubectl).map_err(Failure).context(format!("kubectl {arguments:?}"))
    }

    /// Runs a command line of a page in a folder.
    pub(crate) fn shell(&self, folder: &Path, line: &str) -> Outcome<String> {
        let mut bash = Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", line]).current_dir(folder).env("KUBECONFIG", &self.kubeconfig);
        run(bash).map_err(Failure).context(line)
    }

    pub(crate) fn helm(&self, arguments: &[&str]) -> Outcome<String> {
        let mut helm = helm_command();
        helm.args(arguments).env("KUBECONFIG", &self.kubeconfig);
        run(helm).map_err(Failure).context(format!("helm {arguments:?}"))
    }

    async fn apply_and_delete(&self, plane: &ControlPlane) -> Outcome {
        self.kubectl(&["apply", "-k", &path("kustomize/service-account")])?;
        for variant in VARIANTS {
            let folder = path(&format!("kustomize/{}", variant.folder));
            let objects = kustomize(variant.folder);
            self.kubectl(&["apply", "-k", &folder])?;
            let before = versions(plane, &objects).await?;
            self.kubectl(&["apply", "-k", &folder])?;
            let after = versions(plane, &objects).await?;
            ensure(before == after, || {
                format!("a second apply of {} changed versions: {before:?}, {after:?}", variant.folder)
            })?;
            self.kubectl(&["delete", "-k", &folder])?;
            check_objects_deleted(plane, &objects).await.context(variant.folder)?;
        }
        check_account_exists(plane).await
    }

    /// As the account of Concertina, changes `caBundle` of the webhook, and fails to change anything else.
    async fn update_the_webhook(&self, plane: &ControlPlane) -> Outcome {
        let folder = path("kustomize/overlays/scope-labelled");
        self.kubectl(&["apply", "-k", &folder])?;
        // The shipped role allows updates, but no patches.
        let role = ["--verb=get,patch", "--resource=validatingwebhookconfigurations"];
        self.kubectl(&[&["create", "clusterrole", "patch-webhook"][..], &role].concat())?;
        let account = "--serviceaccount=concertina-system:concertina";
        let binding =
            ["create", "clusterrolebinding", "patch-webhook", "--clusterrole=patch-webhook", account];
        self.kubectl(&binding)?;
        let patch = |operation: &str, path: &str, value: Value| {
            let patch = json!([{"op": operation, "path": path, "value": value}]).to_string();
            let user = "--as=system:serviceaccount:concertina-system:concertina";
            let object = ["patch", "validatingwebhookconfiguration", "concertina-handover", "--type=json"];
            self.kubectl(&[&object[..], &["-p", &patch, user]].concat())
        };
        let secrets = json!({
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"],
        });
        for (operation, path, value) in [
            ("add", "/webhooks/0/rules/-", secrets),
            ("replace", "/webhooks/0/clientConfig/service/namespace", "shop".into()),
            ("replace", "/webhooks/0/matchConditions/0/expression", "true".into()),
            ("replace", "/webhooks/0/failurePolicy", "Fail".into()),
            ("replace", "/webhooks/0/timeoutSeconds", 30.into()),
            ("add", "/metadata/finalizers", json!(["example.com/keep"])),
        ] {
            // The API server compiles policies in the background.
            eventually(Duration::from_secs(30), path, async || match patch(operation, path, value.clone()) {
                Err(Failure(reason)) if reason.contains("Concertina may change only caBundle") => Ok(()),
                other => Err(Failure(format!("{other:?}"))),
            })
            .await?;
        }
        let authority = STANDARD.encode(fs::read(plane.folder().join("authority.crt"))?);
        patch("add", "/webhooks/0/clientConfig/caBundle", authority.into())?;
        self.kubectl(&["delete", "clusterrole,clusterrolebinding", "patch-webhook"])?;
        self.kubectl(&["delete", "-k", &folder]).map(drop)
    }

    async fn install_and_uninstall(&self, plane: &ControlPlane) -> Outcome {
        // The second installation creates the account of the built-in controller, which must not exist before.
        self.kubectl(&["delete", "-k", &path("kustomize/service-account")])?;
        let chart = path("helm/concertina");
        let account = "serviceAccount.name=horizontal-pod-autoscaler,serviceAccount.create=true";
        for (namespace, folder, values) in
            [(HOME, "base", "logLevel=2"), ("kube-system", "overlays/built-in-account", account)]
        {
            let install =
                ["upgrade", "--install", "concertina", &chart, "--namespace", namespace, "--set", values];
            let output = self.helm(&install)?;
            ensure(output.contains("Switch the built-in controller off"), || {
                format!("the notes do not mention the built-in controller:\n{output}")
            })?;
            self.helm(&install)?;
            self.helm(&["uninstall", "concertina", "--namespace", namespace])?;
            check_objects_deleted(plane, &kustomize(folder)).await.context("helm uninstall")?;
        }
        check_account_exists(plane).await
    }
}

/// Returns the resourceVersions of all objects, which show whether a second apply changes an object. The output of
/// kubectl does not show this, because kubectl reports every PodDisruptionBudget with a selector as configured.
async fn versions(plane: &ControlPlane, objects: &Objects) -> Outcome<Vec<String>> {
    let mut versions = Vec::new();
    for (name, object) in objects {
        let stored = plane.admin.get(&object_paths(object, name).1).await?;
        versions.push(format!("{name} {}", stored["metadata"]["resourceVersion"]));
    }
    Ok(versions)
}

async fn check_objects_deleted(plane: &ControlPlane, objects: &Objects) -> Outcome {
    for (name, object) in objects {
        let (collection, path) = object_paths(object, name);
        ensure(plane.admin.get(&collection).await.is_ok(), || format!("failed to list {collection}"))?;
        ensure(plane.admin.get(&path).await.is_err(), || format!("{name} still exists"))?;
    }
    Ok(())
}

async fn check_account_exists(plane: &ControlPlane) -> Outcome {
    let path = "/api/v1/namespaces/kube-system/serviceaccounts/horizontal-pod-autoscaler";
    plane
        .admin
        .get(path)
        .await
        .map(drop)
        .context("the account of the built-in controller was deleted as well")
}

/// Returns the API path of the collection, and the API path of the object.
fn object_paths(object: &Value, name: &Key) -> (String, String) {
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
