//! `.ci/walk`, which uses a release from its files alone. The program of the image runs on this machine in place of the
//! pods of the chart, next to the built-in controller.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::cluster::Tools;
use crate::controlplane::ControlPlane;
use crate::guides::commands::commands;
use crate::node;
use crate::outcome::{Context as _, Failure, Outcome, Process, ensure, eventually};
use crate::rendered::{HOME, flags, run};

/// The time for a step of the script, such as a sync of either controller.
const SOON: Duration = Duration::from_mins(1);

fn script() -> String {
    format!("{}/.ci/walk", env!("CARGO_MANIFEST_DIR"))
}

/// Runs the script on the folder that `PUBLISHED` names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl, HELM, KUBEBUILDER_ASSETS, Go and PUBLISHED, a folder of .ci/release"]
async fn published_files_alone_hand_a_namespace_over_and_back() -> Outcome {
    let folder = std::env::var_os("PUBLISHED").ok_or("PUBLISHED is not set: run .ci/release")?;
    let folder = Path::new(&folder);
    let mut plane = ControlPlane::start().await?;
    let period = ["--horizontal-pod-autoscaler-sync-period=2s".to_owned()];
    plane.start_controllers("built-in", "horizontal-pod-autoscaler-controller", &period)?;
    let mut script = Command::new(script());
    script.arg(folder).env("KUBECONFIG", Tools::new(&plane)?.kubeconfig);
    let mut walk = Process::start("walk", script, plane.folder())?;
    let mut pod = Pod::start(&plane, folder).await.context(walk.tail(20))?;
    let code = walk.wait_for_exit(Duration::from_mins(10)).await?;
    let failure = || format!("{}\n{}\n{}", walk.tail(30), pod.process.tail(20), plane.tails());
    ensure(code == Some(0), failure)?;
    eprintln!("{}", walk.tail(200));
    pod.process.still_runs()
}

/// The leader, with the objects that a Deployment controller and a kubelet would write about it.
struct Pod {
    process: Process,
    _kubelet: Process,
}

impl Pod {
    /// Waits for the Deployment, and runs one of its pods on this machine.
    async fn start(plane: &ControlPlane, release: &Path) -> Outcome<Self> {
        let path = format!("/apis/apps/v1/namespaces/{HOME}/deployments/concertina");
        let deployment =
            eventually(SOON, "the chart is installed", async || plane.admin.get(&path).await).await?;
        let kubelet = node::start(plane, "node").await?;
        let image = release.join("concertina-image-amd64.tar.gz");
        let mut unpack = Command::new("tar");
        unpack
            .arg("--extract")
            .arg("--file")
            .arg(image)
            .arg("--directory")
            .arg(plane.folder())
            .arg("./concertina");
        run(unpack).map_err(Failure)?;
        let mut program = Command::new(plane.folder().join("concertina"));
        program.args(flags(&deployment)).arg("--bind-address=127.0.0.1").arg("--kubeconfig");
        program.arg(plane.service_account(HOME, "concertina").await?);
        let mut process = Process::start("concertina", program, plane.folder())?;

        let mut spec = deployment["spec"]["template"]["spec"].clone();
        spec["nodeName"] = "node".into();
        // The identity of the leader starts with the hostname of its pod.
        spec["hostname"] = fs::read_to_string("/proc/sys/kernel/hostname")?.trim().into();
        let labels = &deployment["spec"]["template"]["metadata"]["labels"];
        let pods = format!("/api/v1/namespaces/{HOME}/pods");
        let pod = json!({"metadata": {"name": "concertina-0", "labels": labels}, "spec": spec});
        plane.admin.create(&pods, &pod).await?;
        let ready = json!({"status": {
            "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
        }});
        plane.admin.merge(&format!("{pods}/concertina-0/status"), &ready).await?;

        process.wait_for_log("the guard is in place", SOON).await?;
        process.still_runs()?;
        let replicas = &deployment["spec"]["replicas"];
        let status = json!({"status": {
            "observedGeneration": deployment["metadata"]["generation"], "replicas": replicas,
            "updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas,
        }});
        plane.admin.merge(&format!("{path}/status"), &status).await?;
        Ok(Self { process, _kubelet: kubelet })
    }
}

/// Compares the script with the page, because users read the page.
#[test]
fn page_about_releases_has_the_commands_of_the_walk() {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let script = words(&fs::read_to_string(script()).unwrap().replace("\\\n", ""));
    let page = format!("{}/docs/getting-started/release.md", env!("CARGO_MANIFEST_DIR"));
    let page = commands(&fs::read_to_string(page).unwrap());
    assert!(page.len() > 10, "{page:?}");
    let missing: Vec<_> = page.iter().filter(|command| !script.contains(&words(command))).collect();
    assert!(missing.is_empty(), "the script lacks {missing:?}");
}
