//! Kubeconfig features of kubectl, credential plugins and proxies, against an embedded API server behind
//! TLS.

#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "the tests wait for other processes, which do not follow virtual time"
)]

#[path = "support/logs.rs"]
mod logs;
#[path = "kubeconfig/plugins.rs"]
mod plugins;
#[path = "kubeconfig/proxies.rs"]
mod proxies;
#[path = "kubeconfig/servers.rs"]
mod servers;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use cluster::call::Call;
use cluster::client::{ClientOptions, Clients};
use cluster::connect::PluginLimits;
use cluster::error::ApiError;
use cluster::kubeconfig::{ClusterOptions, UserConfig, load_for_user};

/// The files of one test. The folder is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("concertina-kubeconfig-{}-{test}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }

    /// Writes and loads a kubeconfig with the given fields of cluster and user.
    fn user_config(&self, cluster: &str, user: &str) -> UserConfig {
        let path = self.file("config", &config(cluster, user));
        load_for_user(&ClusterOptions { kubeconfig: Some(path), ..ClusterOptions::default() }).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn config(cluster: &str, user: &str) -> String {
    format!(
        "current-context: dev\n\
         contexts: [{{name: dev, context: {{cluster: one, user: me}}}}]\n\
         clusters: [{{name: one, cluster: {{{cluster}}}}}]\n\
         users: [{{name: me, user: {{{user}}}}}]\n"
    )
}

fn clients(user_config: &UserConfig) -> Clients {
    clients_within(user_config, PluginLimits::default())
}

fn clients_within(user_config: &UserConfig, plugin_limits: PluginLimits) -> Clients {
    let options =
        ClientOptions { plugin_limits, request_timeout: Duration::from_secs(10), ..ClientOptions::default() };
    Clients::new(&user_config.config, &options).unwrap()
}

/// Fetches the list of API groups.
async fn ask(clients: &Clients) -> Result<(), ApiError> {
    clients.discovery.bytes(&Call::get(["apis"])).await.map(drop)
}
