//! The commands with files, and against the in-memory cluster.

mod check;
mod examples;
mod import;

use std::path::PathBuf;
use std::sync::Arc;

use fake_cluster::Cluster;
use serde_json::{Value, json};

use super::{PolicyError, Verdict, run_with};
use crate::command::Parsed;
use crate::options::PolicyOptions;
use crate::options::policy::parse;
use clock::{SharedClock, VirtualClock};
use cluster::client::{ClientOptions, Clients};

/// A Monday, 13:00 in Berlin.
const NOW: &str = "2026-11-23T12:00:00Z";

/// A folder for the files of one test.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("concertina-policy-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The result of a command: the verdict, standard output and standard error, without the path of the folder.
struct Ran {
    verdict: Result<Verdict, String>,
    out: String,
    notes: String,
}

impl Ran {
    fn document(&self) -> Value {
        serde_json::from_str(&self.out).unwrap()
    }
}

fn options(words: &[&str]) -> PolicyOptions {
    match parse("concertina", words.iter().map(ToString::to_string)) {
        Ok(Parsed::Options(options)) => options,
        other => panic!("{other:?}"),
    }
}

/// Runs a command line after `policy`.
async fn run(folder: &Folder, words: &[&str], cluster: Option<&Cluster>) -> Ran {
    run_at(NOW, folder, words, cluster).await
}

async fn run_at(now: &str, folder: &Folder, words: &[&str], cluster: Option<&Cluster>) -> Ran {
    let clock: SharedClock = Arc::new(VirtualClock::starting_at(now.parse().unwrap()));
    let clients =
        cluster.map(|cluster| Clients::over(cluster.connector(), &ClientOptions::default()).unwrap());
    let (mut out, mut notes) = (Vec::new(), Vec::new());
    let verdict = run_with(&options(words), clients.as_ref(), clock, &mut out, &mut notes).await;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let short = |text: String| text.replace(&format!("{}/", folder.0.display()), "");
    Ran {
        verdict: verdict.map_err(|error: PolicyError| short(error.to_string())),
        out: short(text(out)),
        notes: short(text(notes)),
    }
}

/// A cluster with the HPAs `shop/web` and `back/jobs`, from 2 to 20 pods.
fn cluster() -> Cluster {
    let clock: SharedClock = Arc::new(VirtualClock::starting_at(NOW.parse().unwrap()));
    let cluster = Cluster::new(clock);
    for (namespace, name, team) in [("shop", "web", "shop"), ("back", "jobs", "back")] {
        cluster
            .create(json!({
                "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
                "metadata": {"namespace": namespace, "name": name, "labels": {"team": team}},
                "spec": {
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                    "minReplicas": 2, "maxReplicas": 20,
                },
            }))
            .unwrap();
    }
    cluster
}

fn policy(kind: &str, name: &str, spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "autoscaling.concertina.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    });
    if kind == "ScalingPolicy" {
        object["metadata"]["namespace"] = json!("shop");
    }
    object
}
