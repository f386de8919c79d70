//! The fixture of a scenario: control plane, kubelet, metrics, a scalable custom resource, and the
//! autoscaler, which is either of two programs under the same account and flags.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::adapter::Adapter;
use crate::controlplane::ControlPlane;
use crate::kubelet::Kubelet;
use crate::metrics::Metrics;
use crate::outcome::Outcome;
use crate::process::Process;
use crate::widgets::define_widgets;

/// The autoscaler that drives the workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Autoscaler {
    /// The HPA controller in kube-controller-manager.
    BuiltIn,
    Concertina,
}

impl Autoscaler {
    /// Concertina, unless `CONCERTINA_E2E_AUTOSCALER=built-in` selects the controller that validates the
    /// scenarios themselves.
    pub(crate) fn under_test() -> Self {
        match std::env::var("CONCERTINA_E2E_AUTOSCALER").as_deref() {
            Ok("built-in") => Self::BuiltIn,
            _ => Self::Concertina,
        }
    }
}

/// The scale-down stabilization window.
pub(crate) const DOWNSCALE_WINDOW: Duration = Duration::from_secs(4);

/// The flags of both programs that change a decision.
pub(crate) const DECISION_FLAGS: &[&str] = &[
    "--horizontal-pod-autoscaler-cpu-initialization-period=1s",
    "--horizontal-pod-autoscaler-initial-readiness-delay=1s",
    "--horizontal-pod-autoscaler-downscale-stabilization=4s",
];

pub(crate) struct Fixture {
    pub(crate) plane: ControlPlane,
    pub(crate) metrics: Metrics,
    pub(crate) adapter: Adapter,
    /// Keeps the task of the kubelet alive.
    _kubelet: Kubelet,
}

impl Fixture {
    pub(crate) async fn start() -> Outcome<Self> {
        let mut plane = ControlPlane::start().await?;
        let controllers = "deployment-controller,replicaset-controller,replicationcontroller-controller,statefulset-controller";
        plane.start_controllers("workload-controllers", controllers, &[])?;
        let kubelet = Kubelet::start(plane.admin.clone());
        let metrics = Metrics::new(kubelet.pods.clone());
        let answers = metrics.clone();
        let adapter = Adapter::start(move |request| answers.answer(&request.path, &request.query)).await?;
        adapter.register(&plane.admin).await?;
        define_widgets(&plane.admin).await?;
        Ok(Self { plane, metrics, adapter, _kubelet: kubelet })
    }

    /// Starts the autoscaler under the built-in account and role.
    pub(crate) async fn autoscaler(&self, which: Autoscaler) -> Outcome<Process> {
        self.autoscaler_with(which, &[]).await
    }

    /// Like [`Self::autoscaler`], but with additional flags.
    pub(crate) async fn autoscaler_with(&self, which: Autoscaler, more: &[&str]) -> Outcome<Process> {
        let mut flags = vec!["--horizontal-pod-autoscaler-sync-period=1s".to_owned()];
        flags.extend(DECISION_FLAGS.iter().chain(more).map(|&flag| flag.to_owned()));
        match which {
            Autoscaler::BuiltIn => {
                self.plane.controllers("built-in", "horizontal-pod-autoscaler-controller", &flags)
            }
            Autoscaler::Concertina => {
                let kubeconfig =
                    self.plane.service_account("kube-system", "horizontal-pod-autoscaler").await?;
                let mut command = Command::new(binary());
                command.args(["--kube-api-qps=500", "--kube-api-burst=1000", "--secure-port=0"]);
                // The built-in role has no Lease, and these scenarios do not test leadership. Later
                // flags win.
                command.args(["--leader-elect=false", "--takeover=off"]);
                command.arg("--kubeconfig").arg(kubeconfig).args(flags);
                Process::start("concertina", command, self.plane.folder())
            }
        }
    }
}

pub(crate) fn binary() -> PathBuf {
    // `CONCERTINA_BIN` selects another build of the same program, for example a release.
    std::env::var_os("CONCERTINA_BIN").map_or_else(|| env!("CARGO_BIN_EXE_concertina").into(), PathBuf::from)
}
