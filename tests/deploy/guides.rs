//! Runs the commands of the guides against a real API server. Each command of a page must run, or have a reason in
//! [`commands::SKIPPED`]. The test fails if it runs a command that the page no longer contains.

#[path = "guides/commands.rs"]
pub(crate) mod commands;
#[path = "guides/other_software.rs"]
mod other_software;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::cluster::Tools;
use crate::components::copy_folder;
use crate::controlplane::ControlPlane;
use crate::outcome::{Context, Outcome, ensure};
use crate::rendered::HOME;

use self::commands::{SKIPPED, commands};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const ACCOUNT: &str = "system:serviceaccount:concertina-system:concertina";

/// The environment that the pages expect: a copy of the repository in a folder `concertina`, and the program on the
/// PATH.
struct Workspace<'a> {
    tools: &'a Tools,
    /// The copy of the repository.
    repository: PathBuf,
    /// The commands that ran, each with its page.
    ran: RefCell<BTreeSet<(&'static str, String)>>,
}

/// A page of the documents.
struct Page<'a> {
    workspace: &'a Workspace<'a>,
    name: &'static str,
    text: String,
}

impl<'a> Workspace<'a> {
    fn new(tools: &'a Tools) -> Outcome<Self> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guides");
        let _ = fs::remove_dir_all(&folder);
        let repository = folder.join("concertina");
        for name in ["deploy", "examples"] {
            copy_folder(&Path::new(ROOT).join(name), &repository.join(name));
        }
        fs::create_dir(folder.join("my-concertina"))?;
        let bin = folder.join(".cargo/bin");
        fs::create_dir_all(&bin)?;
        symlink(env!("CARGO_BIN_EXE_concertina"), bin.join("concertina"))?;
        let helm = std::env::var("HELM").map_err(|_| "HELM is not set: run tests/helm/build.sh")?;
        symlink(helm, bin.join("helm"))?;
        Ok(Self { tools, repository, ran: RefCell::default() })
    }

    /// Returns the folder that contains the copy of the repository. It is also the home of the user.
    fn parent(&self) -> &Path {
        self.repository.parent().unwrap_or(&self.repository)
    }

    fn page(&'a self, name: &'static str) -> Outcome<Page<'a>> {
        Ok(Page { workspace: self, name, text: fs::read_to_string(format!("{ROOT}/docs/{name}"))? })
    }

    /// Runs a line in a folder, with the programs of the pages on the PATH.
    fn shell_in(&self, folder: &Path, line: &str) -> Outcome<String> {
        let home = self.parent().display();
        self.tools.shell(folder, &format!("export HOME='{home}' PATH='{home}/.cargo/bin':\"$PATH\"\n{line}"))
    }

    fn shell(&self, line: &str) -> Outcome<String> {
        self.shell_in(&self.repository, line)
    }

    /// Creates or changes an object.
    fn apply(&self, object: &serde_json::Value) -> Outcome {
        self.shell(&format!("kubectl apply --server-side -f - <<'JSON'\n{object}\nJSON")).map(drop)
    }
}

impl Page<'_> {
    /// Runs a command of the page in the repository.
    fn run(&self, line: &str) -> Outcome<String> {
        self.run_as(line, line)
    }

    /// Runs `line` in place of the command `command` of the page, for example with names in place of placeholders.
    fn run_as(&self, command: &str, line: &str) -> Outcome<String> {
        self.note(command)?;
        self.workspace.shell(line).context(self.name)
    }

    /// Runs a command of the page that may report findings, with exit code 3.
    fn explain(&self, command: &str, line: &str) -> Outcome<String> {
        self.run_as(command, &format!("{line} || [ $? = 3 ]"))
    }

    /// Runs a command of the page in the folder that contains the repository.
    fn run_outside(&self, line: &str) -> Outcome<String> {
        self.note(line)?;
        self.workspace.shell_in(self.workspace.parent(), line).context(self.name)
    }

    /// Records that a command of the page ran.
    fn note(&self, command: &str) -> Outcome {
        ensure(commands(&self.text).contains(command), || {
            format!("{} does not contain the command: {command}", self.name)
        })?;
        self.workspace.ran.borrow_mut().insert((self.name, command.to_owned()));
        Ok(())
    }

    /// Fails if a command of the page neither ran nor is in [`SKIPPED`].
    fn is_complete(&self) -> Outcome {
        let ran = self.workspace.ran.borrow();
        let has_reason = |command: &str| {
            SKIPPED.iter().any(|(page, start, _)| *page == self.name && command.starts_with(start))
        };
        let all = commands(&self.text);
        let missing: Vec<_> =
            all.iter().filter(|it| !ran.contains(&(self.name, (*it).clone())) && !has_reason(it)).collect();
        ensure(missing.is_empty(), || format!("{}: did not run: {missing:?}", self.name))
    }

    /// Returns the fenced block that contains `part`.
    fn block(&self, part: &str) -> Outcome<&str> {
        let found = self.text.split("```").skip(1).step_by(2).find(|block| block.contains(part));
        let block = found.and_then(|block| block.split_once('\n')).map(|(_, block)| block);
        block.ok_or_else(|| format!("{} has no block with {part}", self.name).into())
    }
}

#[test]
fn skipped_commands_exist() {
    for (page, start, reason) in SKIPPED {
        let text = fs::read_to_string(format!("{ROOT}/docs/{page}")).unwrap();
        let exists = commands(&text).iter().any(|command| command.starts_with(start));
        assert!(exists, "{page} has no command {start} ({reason:?})");
    }
}

/// Compares the script with the page, because users read both.
#[test]
fn quick_start_script_has_the_commands_of_the_page() {
    let script = fs::read_to_string(format!("{ROOT}/examples/kind/quickstart.sh")).unwrap();
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let script = words(
        &script
            .replace("\"$folder/", "target/kind/")
            .replace(".yaml\"", ".yaml")
            .replace("\"$folder\"", "target/kind"),
    );
    let page = fs::read_to_string(format!("{ROOT}/docs/getting-started/kind.md")).unwrap();
    let (steps, _) = page.split_once("## 6.").unwrap();
    for command in commands(steps) {
        let is_other = command.contains("--watch") || command.starts_with("concertina why");
        assert!(is_other || script.contains(&words(&command)), "the script lacks: {command}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl, HELM and KUBEBUILDER_ASSETS"]
async fn commands_of_the_guides_run_on_a_real_server() -> Outcome {
    let plane = ControlPlane::start().await?;
    let tools = Tools::new(&plane)?;
    let workspace = Workspace::new(&tools)?;
    quick_start(&workspace)?;
    plane.admin.create("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await?;
    workspace.shell("kubectl apply -n shop -f examples/handover/workload.yaml")?;
    command_line(&workspace)?;
    shadow(&workspace)?;
    install_upgrade_uninstall(&workspace)?;
    helm_and_monitoring(&workspace)?;
    labelled(&workspace)?;
    other_software::gitops(&workspace)?;
    other_software::custom_targets(&workspace)?;
    other_software::keda(&workspace)?;
    other_software::adapter(&workspace, &plane).await?;
    fs::remove_dir_all(workspace.parent())?;
    Ok(())
}

fn quick_start(workspace: &Workspace<'_>) -> Outcome {
    let output = workspace
        .shell("QUICKSTART_CLUSTER=existing CONCERTINA= examples/kind/quickstart.sh")
        .context("examples/kind/quickstart.sh")?;
    ensure(output.contains("Deployment/web"), || format!("the HPA is not described:\n{output}"))?;
    // Namespaces remain: a control plane without the namespace controller does not delete them.
    workspace.shell("kubectl delete -k target/kind && kubectl -n try delete deployment,hpa web")?;
    let page = workspace.page("getting-started/kind.md")?;
    page.note("kubectl create namespace concertina-system")?;
    page.note("kubectl create namespace try")?;
    for start in [
        "mkdir",
        "cat >target/kind/cluster",
        "cat >target/kind/kustomization",
        "kubectl apply -k",
        "kubectl -n try apply",
    ] {
        let command = commands(&page.text).into_iter().find(|command| command.starts_with(start));
        page.run(&command.ok_or_else(|| format!("the page has no command {start}"))?)?;
    }
    page.explain("concertina why -n try web", "concertina why -n try web")?;
    workspace.shell("kubectl delete -k target/kind && kubectl -n try delete deployment,hpa web")?;
    page.is_complete()
}

fn command_line(workspace: &Workspace<'_>) -> Outcome {
    let page = workspace.page("getting-started/cli.md")?;
    page.run("ln -s concertina ~/.cargo/bin/kubectl-concertina")?;
    page.run("ln -s concertina ~/.cargo/bin/kubectl_complete-concertina")?;
    let help = page.run("kubectl concertina why --help")?;
    ensure(help.contains("kubectl concertina why"), || format!("the help has another name:\n{help}"))?;
    page.run("source <(concertina completion bash)")?;
    let names = workspace.shell("kubectl_complete-concertina why -n shop ''")?;
    ensure(names.lines().any(|line| line.starts_with("web")), || format!("no name of an HPA in:\n{names}"))?;
    let one = page.explain("concertina why -n NAMESPACE NAME", "concertina why -n shop web")?;
    let namespace = page.explain("concertina why -n NAMESPACE", "concertina why -n shop")?;
    let all = page.explain("concertina why -A", "concertina why -A")?;
    for output in [one, namespace, all] {
        ensure(output.contains("web"), || format!("no HPA in:\n{output}"))?;
    }
    let errors = page.explain("concertina why -A --state=error", "concertina why -A --state=error")?;
    ensure(errors.contains(" HPA"), || format!("no number of HPAs in:\n{errors}"))?;
    page.is_complete()
}

fn shadow(workspace: &Workspace<'_>) -> Outcome {
    let folder = workspace.repository.join("my-shadow");
    fs::create_dir(&folder)?;
    let text = "resources: [../deploy/kustomize/overlays/shadow]\n";
    fs::write(folder.join("kustomization.yaml"), text)?;
    let page = workspace.page("getting-started/shadow.md")?;
    page.note("kubectl create namespace concertina-system")?;
    page.run("kubectl apply -k my-shadow")?;
    page.run("kubectl delete -k my-shadow")?;
    let install = "helm install concertina-shadow deploy/helm/concertina -n concertina-system --create-namespace \
                   --set mode=shadow --set image.repository=registry.example.com/concertina";
    page.run(install)?;
    page.run("helm uninstall concertina-shadow -n concertina-system")?;
    nothing_is_left(workspace).context("shadow.md")?;
    page.is_complete()
}

fn install_upgrade_uninstall(workspace: &Workspace<'_>) -> Outcome {
    let own = workspace.parent().join("my-concertina/kustomization.yaml");
    let install = workspace.page("getting-started/install.md")?;
    let manifest = install.block("# my-concertina/kustomization.yaml")?;
    fs::write(&own, manifest)?;
    // Without metrics-server, the checks report a problem.
    let before = install.explain("concertina check --pre", "concertina check --pre")?;
    ensure(before.contains("√ permissions"), || format!("no permissions in:\n{before}"))?;
    install.note("kubectl create namespace concertina-system")?;
    install.run("kubectl apply -k ../my-concertina")?;
    let image = "kubectl -n concertina-system get deployment concertina -o \
                 jsonpath='{.spec.template.spec.containers[0].image}'";
    let installed = workspace.shell(image)?;
    ensure(installed == "registry.example.com/concertina:v0.1.0", || format!("installed {installed}"))?;
    install.run("kubectl get hpa -A")?;
    install.explain("concertina why -A", "concertina why -A")?;
    let check = install.explain("concertina check", "concertina check")?;
    for line in ["concertina-system/concertina\n", "√ permissions", "× lease"] {
        ensure(check.contains(line), || format!("no {line} in:\n{check}"))?;
    }

    let upgrade = workspace.page("guides/upgrade.md")?;
    fs::write(&own, manifest.replace("v0.1.0", "v0.2.0"))?;
    upgrade.run("kubectl apply -k ../my-concertina")?;
    let upgraded = workspace.shell(image)?;
    ensure(upgraded.ends_with(":v0.2.0"), || format!("upgraded to {upgraded}"))?;
    upgrade.is_complete()?;

    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "concertina", "namespace": HOME},
    });
    workspace.apply(&lease)?;
    let uninstall = workspace.page("guides/uninstall.md")?;
    for line in [
        "kubectl get events -A --field-selector reason=AnotherController",
        "kubectl delete -k ../my-concertina",
        "kubectl -n concertina-system delete lease concertina",
    ] {
        if line.starts_with("kubectl delete") {
            uninstall.explain("concertina check", "concertina check")?;
        }
        uninstall.run(line)?;
    }
    nothing_is_left(workspace).context("uninstall.md")?;
    let kept = workspace.shell("kubectl get hpa,deployment -n shop -o name")?;
    ensure(kept.lines().count() == 2, || format!("of HPA and workload are left: {kept}"))?;

    let helm = "helm install concertina deploy/helm/concertina -n concertina-system --create-namespace --set \
                image.repository=registry.example.com/concertina --set image.tag=v0.1.0";
    install.run(helm)?;
    ensure(workspace.shell(image)? == "registry.example.com/concertina:v0.1.0", || {
        "another image".to_owned()
    })?;
    install.is_complete()
}

/// Runs the pages about monitoring and Helm on the release of [`install_upgrade_uninstall`], and uninstalls the
/// release.
fn helm_and_monitoring(workspace: &Workspace<'_>) -> Outcome {
    for (kind, plural) in [("ServiceMonitor", "servicemonitors"), ("PrometheusRule", "prometheusrules")] {
        other_software::define(workspace, "monitoring.coreos.com", "v1", kind, plural)?;
    }
    let page = workspace.page("guides/monitoring.md")?;
    // The page offers kustomize and Helm. Helm does not adopt the objects of kustomize, so the test deletes them first.
    page.run("kubectl apply -k deploy/kustomize/prometheus")?;
    workspace.shell("kubectl delete -k deploy/kustomize/prometheus")?;
    page.run(
        "helm upgrade concertina deploy/helm/concertina -n concertina-system --reuse-values --set \
         prometheus.serviceMonitor.enabled=true --set prometheus.rule.enabled=true --set \
         grafana.dashboard.enabled=true",
    )?;
    let created = workspace
        .shell("kubectl -n concertina-system get servicemonitors,prometheusrules,configmaps -o name")?;
    for name in ["servicemonitor", "prometheusrule", "configmap/concertina-dashboard"] {
        ensure(created.contains(name), || format!("no {name} in:\n{created}"))?;
    }
    page.run("kubectl get events -A --field-selector reason=LastDecision")?;
    page.is_complete()?;
    let uninstall = workspace.page("guides/uninstall.md")?;
    uninstall.run("helm uninstall concertina -n concertina-system")?;
    nothing_is_left(workspace).context("helm uninstall")?;
    uninstall.is_complete()
}

fn labelled(workspace: &Workspace<'_>) -> Outcome {
    let page = workspace.page("getting-started/managed-clusters.md")?;
    let plan = page.explain("concertina handover plan", "concertina handover plan")?;
    ensure(plan.contains("kind: ValidatingWebhookConfiguration"), || format!("no guard in:\n{plan}"))?;
    page.note("kubectl create namespace concertina-system")?;
    let own = workspace.parent().join("my-concertina/kustomization.yaml");
    fs::write(own, "resources: [../concertina/deploy/kustomize/overlays/scope-labelled]\n")?;
    page.run_outside("kubectl apply -k my-concertina")?;
    page.explain("concertina why -n shop web", "concertina why -n shop web")?;
    workspace.shell("kubectl delete -k ../my-concertina")?;
    page.is_complete()
}

fn nothing_is_left(workspace: &Workspace<'_>) -> Outcome {
    let left = workspace.shell(
        "kubectl get clusterroles,clusterrolebindings,flowschemas -l app.kubernetes.io/name=concertina -o name
         kubectl -n concertina-system get deployments,services,leases,roles -o name",
    )?;
    ensure(left.is_empty(), || format!("still there after the removal: {left}"))
}
