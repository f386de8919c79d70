//! The permissions that the file of `--metric-sources` needs.

use cluster::permission::{Permission, row};
use sources::SourceFile;

use crate::cli::Config;

/// Returns the permissions that a controller with the given flags and the given file needs.
pub fn source_permissions(config: &Config, file: &SourceFile) -> Vec<Permission> {
    let rows = file.adapters.keys().map(|group| Permission {
        why: "to read the metrics of an adapter that the file of metric sources lists",
        without: "metrics of scaling policies with this API group fail",
        ..row(group, "*", &["get", "list"])
    });
    let mut rows: Vec<Permission> = match &config.controller.watch_namespaces {
        None => rows.collect(),
        Some(namespaces) => {
            let within = |row: Permission| {
                namespaces.iter().map(move |name| Permission { namespace: Some(name.clone()), ..row.clone() })
            };
            rows.flat_map(within).collect()
        }
    };
    rows.extend(file.pods.secret_namespaces.iter().map(|namespace| Permission {
        namespace: Some(namespace.clone()),
        why: "to read the Secrets that scaling policies name for TLS and tokens of pods",
        without: "metrics of scaling policies with such a Secret fail",
        ..row("", "secrets", &["get"])
    }));
    rows
}
