//! A node of the control plane. Its kubelet forwards ports to this machine, with the kubelet's own streaming code.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::controlplane::{ControlPlane, Keys, free_port};
use crate::outcome::{Context as _, Outcome, Process, ensure};

/// Creates the node `name` and starts its kubelet, which is built if necessary.
pub(crate) async fn start(plane: &ControlPlane, name: &str) -> Outcome<Process> {
    let keys = Keys::generate()?;
    let file = |name: &str| plane.folder().join(name);
    std::fs::write(file("kubelet.crt"), &keys.certificate_pem)?;
    std::fs::write(file("kubelet.key"), &keys.key_pem)?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubelet/build.sh");
    let built = Command::new(&script).output().context(script.display())?;
    let (printed, wrong) = (String::from_utf8_lossy(&built.stdout), String::from_utf8_lossy(&built.stderr));
    ensure(built.status.success(), || format!("{}: {wrong}", script.display()))?;
    let port = free_port()?;
    let mut kubelet = Command::new(printed.lines().last().unwrap_or_default());
    kubelet.arg(format!("--address=127.0.0.1:{port}"));
    kubelet.arg(format!("--tls-cert-file={}", file("kubelet.crt").display()));
    kubelet.arg(format!("--tls-private-key-file={}", file("kubelet.key").display()));
    let kubelet = Process::start("kubelet", kubelet, plane.folder())?;

    plane.admin.create("/api/v1/nodes", &json!({"metadata": {"name": name}})).await?;
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }});
    plane.admin.merge(&format!("/api/v1/nodes/{name}/status"), &status).await?;
    Ok(kubelet)
}
