//! The files of a release: chart and manifests name one image, and a real API server installs them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::cluster::Tools;
use crate::controlplane::ControlPlane;
use crate::outcome::{Context, Failure, Outcome, ensure};
use crate::rendered::{HOME, Objects, helm_command, objects, only, run};

const IMAGE: &str = "registry.example.com/team/concertina:v9.8.7";
const REPOSITORY: &str = "https://github.com/Team/Concertina";

/// Runs the parts of `.ci/release` that need no build of the program. Returns the folder with their files.
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
    let mut helm = helm_command();
    helm.args(["show", "chart"]).arg(&chart);
    let about: Value = serde_saphyr::from_str(&run(helm).unwrap()).unwrap();
    assert_eq!((&about["home"], &about["sources"][0]), (&REPOSITORY.into(), &REPOSITORY.into()));
    let mut helm = helm_command();
    helm.args(["template", "concertina", "--namespace", HOME, "--set", "prometheus.rule.enabled=true"])
        .arg(&chart);
    let rule = only(&objects(&run(helm).unwrap()), "PrometheusRule");
    let groups = rule["spec"]["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
    let urls: Vec<_> = rules.filter_map(|rule| rule["annotations"]["runbook_url"].as_str()).collect();
    let runbook = format!("{REPOSITORY}/blob/v9.8.7/docs/runbook.md#");
    assert!(urls.len() > 20 && urls.iter().all(|url| url.starts_with(&runbook)), "{urls:?}");
    let mut helm = helm_command();
    helm.args(["show", "readme"]).arg(&chart);
    let readme = run(helm).unwrap();
    let install = "helm install concertina oci://registry.example.com/team/charts/concertina --version 9.8.7 \
                   --namespace concertina-system --create-namespace\n";
    assert!(readme.contains(install), "{readme}");
    assert_eq!((&about["version"], &about["appVersion"]), (&"9.8.7".into(), &"9.8.7".into()));
    for name in ["install.yaml", "shadow.yaml"] {
        assert_eq!(image(&objects(&fs::read_to_string(folder.join(name)).unwrap())), IMAGE, "{name}");
    }
    let sums = fs::read_to_string(folder.join("checksums.txt")).unwrap();
    let files: Vec<_> = sums.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(files, ["concertina-9.8.7.tgz", "install.yaml", "shadow.yaml"]);
    fs::remove_dir_all(folder).unwrap();
}

/// `.ci/release` writes a manifest for krew when the folder has the archives of all systems.
#[test]
fn krew_manifest_has_the_checksums_of_all_archives() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("release-krew");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let sums = || {
        let mut script = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.ci/release"));
        script.args(["v9.8.7", "Team/Concertina"]).arg(&folder).arg("sums");
        run(script).unwrap();
    };
    let systems = ["linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64", "windows-amd64"];
    for system in systems {
        sums();
        assert!(!folder.join("krew.yaml").exists(), "without {system}");
        fs::write(folder.join(format!("concertina-{system}.tar.gz")), system).unwrap();
    }
    sums();
    let manifest: Value =
        serde_saphyr::from_str(&fs::read_to_string(folder.join("krew.yaml")).unwrap()).unwrap();
    assert_eq!(manifest["spec"]["version"], "v9.8.7");
    let checksums = fs::read_to_string(folder.join("checksums.txt")).unwrap();
    let platforms = manifest["spec"]["platforms"].as_array().unwrap();
    // Windows on ARM uses the archive for amd64.
    assert_eq!(platforms.len(), systems.len() + 1);
    for platform in platforms {
        let uri = platform["uri"].as_str().unwrap();
        let prefix = format!("{REPOSITORY}/releases/download/v9.8.7/");
        let line =
            format!("{}  {}\n", platform["sha256"].as_str().unwrap(), uri.strip_prefix(&prefix).unwrap());
        assert!(checksums.contains(&line), "{line} is not in {checksums}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl, HELM and KUBEBUILDER_ASSETS"]
async fn release_is_installed_upgraded_rolled_back_and_removed() -> Outcome {
    install(&release("release-install"), "9.8.7").await
}

/// Installs the manifests and the chart of a release on a real API server, and removes them again.
async fn install(folder: &Path, version: &str) -> Outcome {
    let file = |name: &str| folder.join(name).display().to_string();
    let plane = ControlPlane::start().await?;
    plane.admin.create("/api/v1/namespaces", &json!({"metadata": {"name": HOME}})).await?;
    let tools = Tools::new(&plane)?;
    let field = |name: &str, path: &str| {
        tools.kubectl(&["get", "deployment", name, "-n", HOME, "-o", &format!("jsonpath={{{path}}}")])
    };
    let image = |name: &str| field(name, ".spec.template.spec.containers[0].image");
    let mut images = BTreeSet::new();
    for (name, deployment) in [("install.yaml", "concertina"), ("shadow.yaml", "concertina-shadow")] {
        tools.kubectl(&["apply", "-f", &file(name)]).context(name)?;
        images.insert(image(deployment)?);
        tools.kubectl(&["delete", "-f", &file(name)]).context(name)?;
    }
    let chart = file(&format!("concertina-{version}.tgz"));
    tools.helm(&["install", "concertina", &chart, "--namespace", HOME])?;
    images.insert(image("concertina")?);
    ensure(images.len() == 1 && images.iter().all(|image| image.ends_with(&format!(":v{version}"))), || {
        format!("chart and manifests name {images:?}")
    })?;
    let upgrade =
        ["upgrade", "concertina", &chart, "--namespace", HOME, "--reuse-values", "--set", "replicaCount=3"];
    tools.helm(&upgrade)?;
    let upgraded = field("concertina", ".spec.replicas")?;
    tools.helm(&["rollback", "concertina", "1", "--namespace", HOME])?;
    let rolled_back = field("concertina", ".spec.replicas")?;
    ensure((upgraded.as_str(), rolled_back.as_str()) == ("3", "2"), || {
        format!("replicas after upgrade and rollback: {upgraded}, {rolled_back}")
    })?;
    tools.helm(&["uninstall", "concertina", "--namespace", HOME])?;
    let left = tools.kubectl(&["get", "deployments", "-A", "-o", "name"])?;
    ensure(left.is_empty(), || format!("still there after uninstall: {left}"))
}

/// Checks the folder that `PUBLISHED` names, with all parts of `.ci/release` for this machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl, HELM, KUBEBUILDER_ASSETS and PUBLISHED, a folder of .ci/release"]
async fn published_folder_is_complete_and_installs() -> Outcome {
    let folder = std::env::var_os("PUBLISHED").ok_or("PUBLISHED is not set: run .ci/release")?;
    let folder = PathBuf::from(folder);
    let version = env!("CARGO_PKG_VERSION");
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(&folder)? {
        names.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    for expected in [
        "checksums.txt",
        "concertina-image-amd64.cdx.json",
        "concertina-image-amd64.tar.gz",
        "concertina-linux-amd64.tar.gz",
        "concertina-man.tar.gz",
        "install.yaml",
        "shadow.yaml",
    ] {
        ensure(names.contains(expected), || format!("{expected} is missing in {names:?}"))?;
    }
    let work = Path::new(env!("CARGO_TARGET_TMPDIR")).join("published");
    let _ = fs::remove_dir_all(&work);
    let shell = |line: &str| {
        let mut bash = Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", line]).env("WORK", &work).current_dir(&folder);
        run(bash).map_err(Failure).context(line)
    };
    shell("sha256sum --check --strict checksums.txt")?;
    // Every file has a checksum, except the list of checksums and the manifest that is made from the list.
    let listed = shell("awk '{print $2}' checksums.txt")?;
    names.retain(|name| !["checksums.txt", "krew.yaml"].contains(&name.as_str()));
    ensure(listed.lines().collect::<BTreeSet<_>>() == names.iter().map(String::as_str).collect(), || {
        format!("checksums of {listed}")
    })?;
    let unpack = "mkdir -p \"$WORK/cli\" \"$WORK/image\" \"$WORK/man\"
         tar -xzf concertina-linux-amd64.tar.gz -C \"$WORK/cli\"
         tar -xzf concertina-image-amd64.tar.gz -C \"$WORK/image\"
         tar -xzf concertina-man.tar.gz -C \"$WORK/man\"
         ls \"$WORK/cli\" \"$WORK/man\"";
    let files = shell(unpack)?;
    for name in ["LICENSE", "third-party.txt", "sbom.cdx.json", "concertina-why.1"] {
        ensure(files.contains(name), || format!("{name} is not in the archives:\n{files}"))?;
    }
    for program in ["cli", "image"] {
        let said = shell(&format!("\"$WORK/{program}/concertina\" version"))?;
        ensure(said.trim() == format!("Concertina v{version}"), || format!("{program}: {said}"))?;
    }
    // The archive of the command line has `why`. The image contains only the controller.
    shell("\"$WORK/cli/concertina\" why --help")?;
    shell("! \"$WORK/image/concertina\" why --help 2>/dev/null")?;
    let sbom: Value =
        serde_json::from_str(&fs::read_to_string(folder.join("concertina-image-amd64.cdx.json"))?)?;
    let components = sbom["components"].as_array().map_or(0, Vec::len);
    ensure(components > 50, || format!("the SBOM has {components} components"))?;
    fs::remove_dir_all(&work)?;
    install(&folder, version).await
}

/// `.ci/image` runs the image with the user and the entry point of the Dockerfile.
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
