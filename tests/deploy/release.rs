//! The files of a release: chart and manifests name one image, and a real API server installs them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::cluster::Tools;
use crate::controlplane::ControlPlane;
use crate::outcome::{Context, Outcome, ensure};
use crate::rendered::{HOME, Objects, helm_command, objects, only, run};

const IMAGE: &str = "registry.example.com/team/concertina:v9.8.7";

/// Runs `.ci/release` for the parts that need no build of the program.
fn release(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    let mut script = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.ci/release"));
    script.args(["v9.8.7", "Team/Concertina"]).arg(&folder).args(["chart", "manifests", "sums"]);
    script.env("REGISTRY", "registry.example.com");
    run(script).unwrap();
    folder
}

fn image(objects: &Objects) -> Value {
    only(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]["image"].clone()
}

#[test]
#[ignore = "needs kubectl and HELM"]
fn chart_and_manifests_of_a_release_name_its_image() {
    let folder = release("release-image");
    let chart = folder.join("concertina-9.8.7.tgz");
    let mut helm = helm_command();
    helm.args(["template", "concertina", "--namespace", HOME]).arg(&chart);
    assert_eq!(image(&objects(&run(helm).unwrap())), IMAGE);
    for name in ["install.yaml", "shadow.yaml"] {
        assert_eq!(image(&objects(&fs::read_to_string(folder.join(name)).unwrap())), IMAGE, "{name}");
    }
    let sums = fs::read_to_string(folder.join("checksums.txt")).unwrap();
    let files: Vec<_> = sums.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(files, ["concertina-9.8.7.tgz", "install.yaml", "shadow.yaml"]);
    fs::remove_dir_all(folder).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl, HELM and KUBEBUILDER_ASSETS"]
async fn release_is_installed_upgraded_rolled_back_and_removed() -> Outcome {
    let folder = release("release-install");
    let file = |name: &str| folder.join(name).display().to_string();
    let plane = ControlPlane::start().await?;
    plane.admin.create("/api/v1/namespaces", &json!({"metadata": {"name": HOME}})).await?;
    let tools = Tools::new(&plane)?;
    for name in ["install.yaml", "shadow.yaml"] {
        tools.kubectl(&["apply", "-f", &file(name)]).context(name)?;
        tools.kubectl(&["delete", "-f", &file(name)]).context(name)?;
    }
    let chart = file("concertina-9.8.7.tgz");
    let replicas =
        || tools.kubectl(&["get", "deployment", "concertina", "-n", HOME, "-o", "jsonpath={.spec.replicas}"]);
    tools.helm(&["install", "concertina", &chart, "--namespace", HOME])?;
    let upgrade =
        ["upgrade", "concertina", &chart, "--namespace", HOME, "--reuse-values", "--set", "replicas=3"];
    tools.helm(&upgrade)?;
    let upgraded = replicas()?;
    tools.helm(&["rollback", "concertina", "1", "--namespace", HOME])?;
    let rolled_back = replicas()?;
    ensure((upgraded.as_str(), rolled_back.as_str()) == ("3", "2"), || {
        format!("replicas after upgrade and rollback: {upgraded}, {rolled_back}")
    })?;
    tools.helm(&["uninstall", "concertina", "--namespace", HOME])?;
    let left = tools.kubectl(&["get", "deployments", "-A", "-o", "name"])?;
    ensure(left.is_empty(), || format!("still there after uninstall: {left}"))
}

/// `.ci/image` tries its tree as the user and with the entry point of the Dockerfile.
#[test]
fn dockerfile_uses_the_pinned_toolchain_and_one_user() {
    let file = |name: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap();
    let toolchain = file("rust-toolchain.toml");
    let version =
        toolchain.lines().find_map(|line| line.strip_prefix("channel = ")).unwrap().trim_matches('"');
    let dockerfile = file("Dockerfile");
    for expected in [format!("FROM rust:{version}-alpine"), format!("ENV RUSTUP_TOOLCHAIN={version}\n")] {
        assert!(dockerfile.contains(&expected), "{expected} is missing");
    }
    for instruction in ["USER 65532:65532", "ENTRYPOINT [\"/concertina\"]"] {
        assert_eq!(dockerfile.lines().filter(|line| *line == instruction).count(), 1, "{instruction}");
    }
    let settings =
        dockerfile.lines().filter(|line| line.starts_with("USER ") || line.starts_with("ENTRYPOINT "));
    assert_eq!(settings.count(), 2);
}
