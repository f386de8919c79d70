//! The operator and the metrics adapter of KEDA, on the control plane of a test.
//!
//! `CONCERTINA_KEDA` names the folder that `tests/keda/build.sh` prints.

#[path = "keda/push.rs"]
mod push;
#[path = "keda/states.rs"]
mod states;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::controlplane::{Keys, free_port};
use crate::extensions;
use crate::handover::rig::{create_namespace, kubeconfig};
use crate::metrics::EXTERNAL;
use crate::outcome::{Context as _, Failure, Outcome, Process, eventually};
use crate::world::{Fixture, SOON};

pub(crate) use self::states::are_equal_beside_both_controllers;

const VARIABLE: &str = "CONCERTINA_KEDA";

/// The operator and the metrics adapter of KEDA.
pub(crate) struct Keda {
    operator: Process,
    adapter: Option<Process>,
    programs: PathBuf,
    certificates: PathBuf,
    /// The port of the operator from which the adapter reads metrics.
    service: u16,
    /// The port of the adapter.
    port: u16,
}

impl Keda {
    /// Installs KEDA, and replaces the registration of the external metrics API.
    pub(crate) async fn start(stage: &Fixture) -> Outcome<Self> {
        let programs = programs()?;
        let api = &stage.plane.admin;
        create_namespace(stage, "keda").await?;
        for file in std::fs::read_dir(programs.join("crds"))? {
            let text = std::fs::read_to_string(file?.path())?;
            let definition: Value = serde_saphyr::from_str(text.trim_start_matches("---\n"))?;
            api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await?;
        }
        eventually(SOON, "ScaledObjects are served", async || {
            api.get("/apis/keda.sh/v1alpha1/scaledobjects").await.map(drop)
        })
        .await?;

        let certificates = certificates(stage)?;
        let (service, port) = (free_port()?, free_port()?);
        let mut operator = command(stage, &programs, "operator")?;
        operator.args(["--enable-prometheus-metrics=false", "--health-probe-bind-address=0"]);
        operator.arg(format!("--metrics-service-bind-address=127.0.0.1:{service}"));
        operator.arg("--cert-dir").arg(&certificates);
        let operator = Process::start("keda-operator", operator, stage.plane.folder())?;

        let mut keda = Self { operator, adapter: None, programs, certificates, service, port };
        keda.start_adapter(stage)?;
        extensions::unregister(api, EXTERNAL, "v1beta1").await?;
        extensions::name_as(api, "keda-metrics-apiserver", port).await?;
        extensions::register_at(api, ("keda-metrics-apiserver", port), EXTERNAL, "v1beta1").await?;
        extensions::available(api, EXTERNAL, "v1beta1").await.context(keda.tails())?;
        Ok(keda)
    }

    pub(crate) fn start_adapter(&mut self, stage: &Fixture) -> Outcome {
        let mut adapter = command(stage, &self.programs, "adapter")?;
        for flag in ["--authentication-kubeconfig", "--authorization-kubeconfig", "--lister-kubeconfig"] {
            adapter.arg(flag).arg(kubeconfig(stage)?);
        }
        adapter.arg("--cert-dir").arg(&self.certificates);
        adapter.args(["--bind-address=127.0.0.1", &format!("--secure-port={}", self.port)]);
        adapter.arg(format!("--metrics-service-address=localhost:{}", self.service));
        adapter.arg(format!("--port={}", free_port()?));
        self.adapter = Some(Process::start("keda-adapter", adapter, stage.plane.folder())?);
        Ok(())
    }

    /// Kills the adapter, so that the external metrics API is away.
    pub(crate) fn stop_adapter(&mut self) {
        self.adapter = None;
    }

    pub(crate) fn tails(&self) -> String {
        let adapter = self.adapter.as_ref().map(|adapter| adapter.tail(20));
        self.operator.tail(20) + &adapter.unwrap_or_default()
    }
}

fn programs() -> Outcome<PathBuf> {
    let folder = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    folder.map(PathBuf::from).ok_or_else(|| {
        Failure(format!(
            "{VARIABLE} is not set; build KEDA with: export {VARIABLE}=\"$(tests/keda/build.sh)\""
        ))
    })
}

fn command(stage: &Fixture, programs: &Path, name: &str) -> Outcome<Command> {
    let mut command = Command::new(programs.join(name));
    command.env("KUBECONFIG", kubeconfig(stage)?).env("WATCH_NAMESPACE", "");
    command.env("POD_NAMESPACE", "keda").env("KEDA_CLUSTER_OBJECT_NAMESPACE", "keda");
    Ok(command)
}

/// The folder with the certificates of both programs.
fn certificates(stage: &Fixture) -> Outcome<PathBuf> {
    let folder = stage.plane.folder().join("keda-certificates");
    std::fs::create_dir_all(&folder)?;
    let keys = Keys::generate()?;
    for (file, text) in
        [("ca.crt", &keys.authority_pem), ("tls.crt", &keys.certificate_pem), ("tls.key", &keys.key_pem)]
    {
        std::fs::write(folder.join(file), text)?;
    }
    Ok(folder)
}
