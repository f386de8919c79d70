//! The way to the cluster as kubectl takes it: credential plugins and proxies, against an embedded API server behind TLS.

#![cfg(all(unix, feature = "tools"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
#![allow(clippy::disallowed_methods, reason = "other processes are waited for, which follow no virtual time")]

#[path = "kubeconfig/plugins.rs"]
mod plugins;
#[path = "kubeconfig/proxies.rs"]
mod proxies;
#[path = "kubeconfig/servers.rs"]
mod servers;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use concertina::api::call::Call;
use concertina::api::client::{ClientOptions, Clients};
use concertina::api::connect::PluginLimits;
use concertina::api::error::ApiError;
use concertina::api::kubeconfig::{ClusterOptions, UserConfig, load_for_user};

/// The files of one test, gone when the test is.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("concertina-way-{}-{test}", std::process::id()));
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

    /// A kubeconfig with these fields of cluster and user, read.
    fn way(&self, cluster: &str, user: &str) -> UserConfig {
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

fn clients(way: &UserConfig) -> Clients {
    clients_within(way, PluginLimits::default())
}

fn clients_within(way: &UserConfig, plugin_limits: PluginLimits) -> Clients {
    let options =
        ClientOptions { plugin_limits, request_timeout: Duration::from_secs(10), ..ClientOptions::default() };
    Clients::new(&way.config, &options).unwrap()
}

/// Asks for the list of API groups.
async fn ask(clients: &Clients) -> Result<(), ApiError> {
    clients.discovery.bytes(&Call::get(["apis"])).await.map(drop)
}
