//! The commands of the guides run against a real API server. A page that no longer contains a command fails its test.
//! Commands that wait for pods need kubelets and do not run here.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::cluster::Tools;
use crate::components::copy_folder;
use crate::controlplane::ControlPlane;
use crate::outcome::{Context, Outcome, ensure};
use crate::rendered::{HOME, path};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const ACCOUNT: &str = "system:serviceaccount:concertina-system:concertina";

/// A page and the folder in which its commands run: a copy of the repository's manifests, named `concertina`.
struct Page<'a> {
    tools: &'a Tools,
    folder: &'a Path,
    text: String,
}

impl<'a> Page<'a> {
    fn new(tools: &'a Tools, folder: &'a Path, name: &str) -> Outcome<Self> {
        Ok(Self { tools, folder, text: fs::read_to_string(format!("{ROOT}/docs/{name}"))? })
    }

    /// Runs a command of the page.
    fn run(&self, line: &str) -> Outcome<String> {
        ensure(self.text.contains(line), || format!("the page does not contain: {line}"))?;
        self.tools.shell(self.folder, line)
    }

    /// The fenced block that contains `part`.
    fn block(&self, part: &str) -> Outcome<&str> {
        let found = self.text.split("```").skip(1).step_by(2).find(|block| block.contains(part));
        let block = found.and_then(|block| block.split_once('\n')).map(|(_, block)| block);
        block.ok_or_else(|| format!("the page has no block with {part}").into())
    }
}

fn workspace() -> Outcome<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guides");
    let _ = fs::remove_dir_all(&folder);
    let repository = folder.join("concertina");
    copy_folder(Path::new(&path("kustomize")), &repository.join("deploy/kustomize"));
    fs::create_dir(folder.join("my-concertina"))?;
    Ok(repository)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl and KUBEBUILDER_ASSETS"]
async fn commands_of_the_guides_run_on_a_real_server() -> Outcome {
    let plane = ControlPlane::start().await?;
    let tools = Tools::new(&plane)?;
    let folder = workspace()?;
    quick_start(&tools).context("examples/kind/quickstart.sh")?;
    plane.admin.create("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await?;
    install_upgrade_uninstall(&tools, &folder)?;
    gitops(&tools, &folder).context("gitops.md")?;
    custom_targets(&tools, &folder).context("argo-rollouts.md")?;
    adapters(&tools, &folder).context("prometheus-adapter.md")?;
    vpa(&tools, &folder).context("vpa.md")?;
    fs::remove_dir_all(folder.parent().unwrap_or(&folder))?;
    Ok(())
}

fn quick_start(tools: &Tools) -> Outcome {
    let output = tools.shell(Path::new(ROOT), "QUICKSTART_CLUSTER=existing examples/kind/quickstart.sh")?;
    ensure(output.contains("Deployment/web"), || format!("the HPA is not described:\n{output}"))?;
    tools.shell(
        Path::new(ROOT),
        "kubectl delete -k target/kind && kubectl delete namespace try --wait=false",
    )?;
    Ok(())
}

fn install_upgrade_uninstall(tools: &Tools, folder: &Path) -> Outcome {
    let own = folder.with_file_name("my-concertina").join("kustomization.yaml");
    let install = Page::new(tools, folder, "getting-started/install.md")?;
    let manifest = install.block("# my-concertina/kustomization.yaml")?;
    fs::write(&own, manifest)?;
    install.run("kubectl apply -k ../my-concertina").context("install.md")?;
    let image = "kubectl -n concertina-system get deployment concertina -o \
                 jsonpath='{.spec.template.spec.containers[0].image}'";
    let installed = tools.shell(folder, image)?;
    ensure(installed == "registry.example.com/concertina:v0.1.0", || format!("installed {installed}"))?;

    let upgrade = Page::new(tools, folder, "guides/upgrade.md")?;
    fs::write(&own, manifest.replace("v0.1.0", "v0.2.0"))?;
    upgrade.run("kubectl apply -k ../my-concertina").context("upgrade.md")?;
    let upgraded = tools.shell(folder, image)?;
    ensure(upgraded.ends_with(":v0.2.0"), || format!("upgraded to {upgraded}"))?;

    let hpa = format!("{ROOT}/examples/handover/workload.yaml");
    tools.kubectl(&["apply", "-n", "shop", "-f", &hpa])?;
    let lease = "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: concertina, namespace: \
                 concertina-system}\n";
    tools.shell(folder, &format!("kubectl apply -f - <<'YAML'\n{lease}YAML"))?;
    let uninstall = Page::new(tools, folder, "guides/uninstall.md")?;
    for line in [
        "kubectl get events -A --field-selector reason=AnotherController",
        "kubectl delete -k ../my-concertina",
        "kubectl -n concertina-system delete lease concertina",
    ] {
        uninstall.run(line).context("uninstall.md")?;
    }
    let left = tools.shell(
        folder,
        "kubectl get clusterroles,clusterrolebindings,flowschemas -l app.kubernetes.io/name=concertina -o name
         kubectl -n concertina-system get deployments,services,leases,roles -o name",
    )?;
    ensure(left.is_empty(), || format!("still there after uninstall: {left}"))?;
    let kept = tools.kubectl(&["get", "hpa,deployment", "-n", "shop", "-o", "name"])?;
    ensure(kept.lines().count() == 2, || format!("of HPA and workload are left: {kept}"))
}

/// A manifest without `replicas` keeps the count of the HPA controller, as Flux applies it. One with `replicas` does not.
fn gitops(tools: &Tools, folder: &Path) -> Outcome {
    let page = Page::new(tools, folder, "guides/gitops.md")?;
    let _: serde_json::Value = serde_saphyr::from_str(page.block("RespectIgnoreDifferences")?)
        .map_err(|error| format!("the manifest for Argo CD: {error}"))?;
    let manifest = |replicas: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: git, namespace: shop}}\nspec:\n{replicas}  \
             selector: {{matchLabels: {{app: git}}}}\n  template:\n    metadata: {{labels: {{app: git}}}}\n    \
             spec: {{containers: [{{name: app, image: app}}]}}\n"
        )
    };
    let apply = |replicas: &str| {
        let line = format!(
            "kubectl apply --server-side --force-conflicts --field-manager=kustomize-controller -f - <<'YAML'\n{}YAML",
            manifest(replicas)
        );
        tools.shell(folder, &line)
    };
    let count = || tools.shell(folder, "kubectl -n shop get deployment git -o jsonpath='{.spec.replicas}'");
    apply("")?;
    tools.shell(folder, "kubectl -n shop scale deployment git --replicas=5")?;
    apply("")?;
    let kept = count()?;
    apply("  replicas: 2\n")?;
    let reset = count()?;
    ensure((kept.as_str(), reset.as_str()) == ("5", "2"), || format!("counts {kept}, then {reset}"))
}

/// Whether the account of Concertina may do something in the namespace `shop`. `kubectl auth can-i` cannot name a group
/// with dots whose API is not installed.
fn can(tools: &Tools, folder: &Path, verb: &str, resource: &str, subresource: &str) -> Outcome<bool> {
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": ACCOUNT, "resourceAttributes": {
            "namespace": "shop", "verb": verb, "group": group, "resource": resource, "subresource": subresource,
        }},
    });
    let line = format!("kubectl create -o jsonpath='{{.status.allowed}}' -f - <<'JSON'\n{review}\nJSON");
    Ok(tools.shell(folder, &line)? == "true")
}

fn custom_targets(tools: &Tools, folder: &Path) -> Outcome {
    let page = Page::new(tools, folder, "guides/argo-rollouts.md")?;
    let values = page.block("scaleTargets:")?;
    let list = values.trim().trim_start_matches("scaleTargets: [").trim_end_matches(']').replace(", ", ",");
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "rollouts.argoproj.io"},
        "spec": {
            "group": "argoproj.io", "scope": "Namespaced",
            "names": {"plural": "rollouts", "singular": "rollout", "kind": "Rollout"},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.HPAReplicas",
                    "labelSelectorPath": ".status.selector",
                }},
            }],
        },
    });
    tools.shell(folder, &format!("kubectl apply -f - <<'JSON'\n{definition}\nJSON"))?;
    tools.shell(folder, "kubectl wait --for=condition=Established crd/rollouts.argoproj.io --timeout=60s")?;
    let concertina = env!("CARGO_BIN_EXE_concertina");
    let line = format!("{concertina} rbac --scale-targets={list} -o json | kubectl apply -f -");
    tools.shell(folder, &line)?;
    for (verb, resource, subresource, expected) in [
        ("update", "rollouts.argoproj.io", "scale", true),
        ("watch", "rollouts.argoproj.io", "", true),
        ("update", "deployments.apps", "scale", true),
        ("update", "replicasets.apps", "scale", false),
        ("update", "rollouts.argoproj.io", "", false),
    ] {
        let allowed = can(tools, folder, verb, resource, subresource)?;
        ensure(allowed == expected, || format!("{verb} {resource} {subresource}: expected {expected}"))?;
    }
    Ok(())
}

/// With the roles of [`custom_targets`], which contain those for metrics adapters.
fn adapters(tools: &Tools, folder: &Path) -> Outcome {
    for (verb, resource) in
        [("get", "pods.custom.metrics.k8s.io"), ("list", "orders.external.metrics.k8s.io")]
    {
        ensure(can(tools, folder, verb, resource, "")?, || format!("{verb} {resource} is refused"))?;
    }
    Ok(())
}

fn vpa(tools: &Tools, folder: &Path) -> Outcome {
    let page = Page::new(tools, folder, "guides/vpa.md")?;
    ensure(page.text.contains("`200m` per pod"), || "the page has another target".to_owned())?;
    let hpa = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "vpa", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "git"},
            "minReplicas": 1, "maxReplicas": 5,
            "metrics": [{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "AverageValue", "averageValue": "200m"},
            }}],
        },
    });
    tools.shell(folder, &format!("kubectl apply -f - <<'JSON'\n{hpa}\nJSON"))?;
    tools.kubectl(&["get", "namespace", HOME]).map(drop)
}
