//! The real Prometheus, which scrapes the loads of all pods every 5 s.

use std::net::SocketAddr;
use std::process::Command;

use crate::controlplane::free_port;
use crate::fixture::Fixture;
use crate::outcome::{Context as _, Outcome};
use crate::process::Process;

use super::pages::ALL;

pub(crate) struct Prometheus {
    pub(crate) port: u16,
    _process: Process,
}

impl Prometheus {
    /// Starts the program that `PROMETHEUS` names.
    pub(crate) fn start(stage: &Fixture, pages: SocketAddr) -> Outcome<Self> {
        let program = std::env::var_os("PROMETHEUS")
            .ok_or("PROMETHEUS is not set: run tests/prometheus/build.sh prometheus")?;
        let folder = stage.plane.folder().join("prometheus");
        std::fs::create_dir_all(&folder)?;
        let configuration = folder.join("prometheus.yml");
        let scrape = format!(
            "scrape_configs: [{{job_name: pods, scrape_interval: 5s, scrape_timeout: 5s, metrics_path: {ALL}, \
             static_configs: [{{targets: ['{pages}']}}]}}]\n"
        );
        std::fs::write(&configuration, scrape)?;
        let port = free_port()?;
        let mut command = Command::new(program);
        command
            .arg(format!("--config.file={}", configuration.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let process = Process::start("prometheus", command, stage.plane.folder()).context("prometheus")?;
        Ok(Self { port, _process: process })
    }
}
