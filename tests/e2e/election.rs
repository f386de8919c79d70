//! Replicas with one leader, and faults of the leader. The audit log of the API server shows which replica wrote when.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use clock::{Clock as _, ShiftedClock, SystemClock};
use concertina::invocation::Invocation;
use flags::Config;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::audit::{entries, is_review};
use crate::outcome::{Context as _, Failure, Outcome, Process, ensure, eventually};
use crate::world::{self, APP, Autoscaler, DECISION_FLAGS, Fixture, World, cpu_utilization};

/// The namespace of the replicas' accounts. The audit log records their requests.
const ACCOUNTS: &str = "replicas";
pub(crate) const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/concertina";
/// The maximum time from a crash to a write of the next leader: the Lease expires, and one sync follows.
pub(crate) const CRASH: Duration = Duration::from_secs(25);
/// The number of HPAs that keep the leader writing.
const HPAS: usize = 4;

/// Applies every fault to the leader, one after the other, with two or three replicas, and then checks
/// the audit log.
pub(crate) async fn only_one_writes(mut stage: Fixture) -> Outcome {
    let world = World::make(&stage, "replicated", Autoscaler::Concertina).await?;
    for index in 0..HPAS {
        let name = format!("web-{index}");
        world.deployment(&name, 1, APP).await?;
        let spec = json!({"minReplicas": 1, "maxReplicas": 8, "metrics": [cpu_utilization(50)]});
        world.hpa(&name, ("apps/v1", "Deployment", &name), spec).await?;
    }
    let load = async {
        // The usage changes, so that every sync has a status to write.
        for step in 0_i64.. {
            for index in 0..HPAS {
                world.cpu(&format!("web-{index}"), 60 + (step * 7) % 35);
            }
            sleep(Duration::from_millis(400)).await;
        }
    };
    let restart = tokio::select! {
        biased;
        restart = run_faults(&mut stage) => restart?,
        () = load => return Err(Failure("the load ended".to_owned())),
    };
    let log = Log::read(&stage)?;
    log.no_two_write_at_once()?;
    log.nothing_is_refused_before(restart)?;
    world.close().await
}

/// Runs the faults. Returns the time at which the API server stopped.
async fn run_faults(stage: &mut Fixture) -> Outcome<Timestamp> {
    grant(stage).await?;
    let mut replicas = Replicas::default();
    replicas.start(stage, "a").await?;
    replicas.acts(stage, "a", None).await?;
    replicas.start(stage, "b").await?;
    sleep(Duration::from_secs(3)).await;

    for (from, to) in [("a", "b"), ("b", "a")] {
        let signalled = now();
        replicas.get(from)?.signal("TERM")?;
        let took = replicas.acts(stage, to, Some(signalled)).await?;
        replicas.measurements.push(format!("planned handover: {took:.1?}"));
        ensure(took < Duration::from_secs(2), || format!("a planned handover took {took:?}"))?;
        let code = replicas.get(from)?.wait_for_exit(CRASH).await?;
        ensure(code == Some(0), || format!("the former leader exited with {code:?} after a clean release"))?;
        replicas.start(stage, from).await?;
        sleep(Duration::from_secs(3)).await;
    }

    for (from, to) in [("a", "b"), ("b", "a"), ("a", "b")] {
        let killed = now();
        replicas.get(from)?.signal("KILL")?;
        let took = replicas.acts(stage, to, Some(killed)).await?;
        replicas.measurements.push(format!("kill -9: {took:.1?}"));
        replicas.start(stage, from).await?;
        sleep(Duration::from_secs(3)).await;
    }

    // The clock of the third replica is an hour ahead.
    let ahead = FastClockReplica::start(stage).await?;
    sleep(Duration::from_secs(3)).await;

    let stopped = now();
    replicas.get("b")?.signal("STOP")?;
    let (next, took) = replicas.wait_for_other_writer(stage, "b", stopped).await?;
    replicas.measurements.push(format!("SIGSTOP: {took:.1?}, then {next} acts"));
    sleep(Duration::from_secs(30).saturating_sub(took)).await;
    replicas.get("b")?.signal("CONT")?;
    let code = replicas.get("b")?.wait_for_exit(CRASH).await?;
    ensure(code == Some(1), || format!("a stopped leader exited with {code:?} after SIGCONT"))?;
    replicas.start(stage, "b").await?;
    // Wait until `b` has read the Lease. Otherwise, `b` would create the deleted Lease, as the first replica does.
    sleep(Duration::from_secs(3)).await;

    let deleted = now();
    stage.plane.admin.delete(LEASE).await?;
    // Wait for the new Lease instead of the next write, because the syncs in flight still write.
    let again = eventually(CRASH, "the Lease is recreated", async || stage.plane.admin.get(LEASE).await);
    again.await.context(replicas.tails())?;
    let (next, took) = replicas.wait_for_other_writer(stage, "none", deleted).await?;
    replicas.measurements.push(format!("lease deleted: {next} acts after {took:.1?}"));

    let stolen_at = now();
    let patch = json!({"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 15}});
    stage.plane.admin.merge(LEASE, &patch).await?;
    let (next, took) =
        replicas.wait_for_other_writer(stage, "none", stolen_at + Duration::from_secs(1)).await?;
    replicas
        .measurements
        .push(format!("lease stolen: {next} acts after {:.1?}", took + Duration::from_secs(1)));
    replicas.revive(stage).await?;

    let restart = now();
    stage.plane.stop_apiserver();
    sleep(Duration::from_secs(20)).await;
    stage.plane.restart_apiserver().await?;
    let back = now();
    replicas.revive(stage).await?;
    let (next, took) = replicas.wait_for_other_writer(stage, "none", back).await?;
    replicas.measurements.push(format!("API server down for 20 s: {next} acts {took:.1?} after its restart"));

    ahead.stop.cancel();
    eprintln!("{}", replicas.measurements.join("\n"));
    Ok(restart)
}

pub(crate) fn now() -> Timestamp {
    SystemClock.now()
}

/// Binds the group of all replica accounts to the built-in role and to a role for the Lease.
pub(crate) async fn grant(stage: &Fixture) -> Outcome {
    let admin = &stage.plane.admin;
    admin.create("/api/v1/namespaces", &json!({"metadata": {"name": ACCOUNTS}})).await?;
    let subjects = json!([{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io",
        "name": format!("system:serviceaccounts:{ACCOUNTS}")}]);
    let role = json!({
        "metadata": {"name": "lease"},
        "rules": [
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": ["concertina"],
             "verbs": ["get", "list", "watch", "update"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "update"]},
        ],
    });
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    admin.create(&format!("{rbac}/namespaces/kube-system/roles"), &role).await?;
    let bind = |name: &str, kind: &str| {
        json!({
            "metadata": {"name": format!("replicas-{kind}").to_lowercase()}, "subjects": subjects,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        })
    };
    admin.create(&format!("{rbac}/namespaces/kube-system/rolebindings"), &bind("lease", "Role")).await?;
    let built_in = "system:controller:horizontal-pod-autoscaler";
    admin.create(&format!("{rbac}/clusterrolebindings"), &bind(built_in, "ClusterRole")).await.map(drop)
}

fn flags(kubeconfig: &Path) -> Vec<String> {
    let mut flags = vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        "--horizontal-pod-autoscaler-sync-period=1s".to_owned(),
        "--kube-api-qps=500".to_owned(),
        "--kube-api-burst=1000".to_owned(),
        "--secure-port=0".to_owned(),
        // The takeover has its own tests.
        "--takeover=off".to_owned(),
    ];
    flags.extend(DECISION_FLAGS.iter().map(|&flag| flag.to_owned()));
    flags
}

/// Processes by account.
#[derive(Default)]
pub(crate) struct Replicas {
    all: BTreeMap<&'static str, Process>,
    /// Measured durations, one line for each.
    measurements: Vec<String>,
}

impl Replicas {
    async fn start(&mut self, stage: &Fixture, name: &'static str) -> Outcome {
        self.start_with(stage, name, &[]).await
    }

    /// Like [`Self::start`], but with additional flags.
    pub(crate) async fn start_with(&mut self, stage: &Fixture, name: &'static str, more: &[&str]) -> Outcome {
        let kubeconfig = stage.plane.service_account(ACCOUNTS, name).await?;
        let mut command = Command::new(world::binary());
        command.args(flags(&kubeconfig)).args(more);
        let log = format!("replica-{name}-{}", now().as_second());
        self.all.insert(name, Process::start(&log, command, stage.plane.folder())?);
        Ok(())
    }

    pub(crate) fn get(&mut self, name: &str) -> Outcome<&mut Process> {
        self.all.get_mut(name).ok_or_else(|| Failure(format!("replica {name} was not started")))
    }

    /// Restarts replicas that have exited, as a kubelet does.
    async fn revive(&mut self, stage: &Fixture) -> Outcome {
        for name in ["a", "b"] {
            if self.get(name)?.still_runs().is_err() {
                self.start(stage, name).await?;
            }
        }
        Ok(())
    }

    /// Waits until the given replica writes. Returns the time from `since` to the write.
    pub(crate) async fn acts(
        &mut self,
        stage: &Fixture,
        name: &str,
        since: Option<Timestamp>,
    ) -> Outcome<Duration> {
        let since = since.unwrap_or(Timestamp::UNIX_EPOCH);
        let description = format!("replica {name} acts");
        let written = eventually(CRASH, &description, async || {
            let log = Log::read(stage)?;
            let written = log.writes.iter().find(|write| write.by == name && write.at > since);
            written.map(|write| write.at).ok_or_else(|| Failure(format!("no write of {name} since {since}")))
        });
        let written = written.await.context(self.tails())?;
        Ok(written.duration_since(since).unsigned_abs())
    }

    /// Waits until a replica other than `not` writes. Returns its name and the time from `since` to the
    /// write.
    async fn wait_for_other_writer(
        &mut self,
        stage: &Fixture,
        not: &str,
        since: Timestamp,
    ) -> Outcome<(String, Duration)> {
        let written = eventually(CRASH * 2, "another replica acts", async || {
            let log = Log::read(stage)?;
            let written = log.writes.iter().find(|write| write.by != not && write.at > since);
            let written = written.map(|write| (write.by.clone(), write.at));
            written.ok_or_else(|| Failure(format!("no write since {since} except by {not}")))
        });
        let (by, at) = written.await.context(self.tails())?;
        Ok((by, at.duration_since(since).unsigned_abs()))
    }

    pub(crate) fn tails(&self) -> String {
        self.all.values().map(|process| process.tail(15)).collect()
    }
}

/// A replica whose clock is an hour ahead of the other clocks. It runs inside the test process.
struct FastClockReplica {
    stop: CancellationToken,
}

impl FastClockReplica {
    async fn start(stage: &Fixture) -> Outcome<Self> {
        let kubeconfig = stage.plane.service_account(ACCOUNTS, "ahead").await?;
        let config: Box<Config> = match Invocation::from_args(flags(&kubeconfig).into_iter().map(Into::into))?
        {
            Invocation::Controller(config) => config,
            other => return Err(Failure(format!("the flags select {other:?} instead of the controller"))),
        };
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        tokio::spawn(async move {
            // A replica that has lost the Lease exits, so the loop restarts it.
            while !stopped.is_cancelled() {
                let clock =
                    ShiftedClock { clock: Arc::new(SystemClock), ahead: SignedDuration::from_hours(1) };
                let ended = concertina::app::run(&config, Arc::new(clock), Vec::new(), stopped.clone()).await;
                eprintln!("the replica with the fast clock exited: {ended:?}");
                sleep(Duration::from_secs(1)).await;
            }
        });
        Ok(Self { stop })
    }
}

/// The writes of the replicas, except for Leases and reviews, and their refused requests.
pub(crate) struct Log {
    pub(crate) writes: Vec<Write>,
    refused: Vec<(Timestamp, String)>,
}

pub(crate) struct Write {
    pub(crate) at: Timestamp,
    pub(crate) by: String,
    /// Verb, resource and subresource.
    pub(crate) request: String,
}

impl Log {
    pub(crate) fn read(stage: &Fixture) -> Outcome<Self> {
        let prefix = format!("system:serviceaccount:{ACCOUNTS}:");
        let (mut writes, mut refused) = (Vec::new(), Vec::new());
        for entry in entries(&stage.plane.audit_log()?) {
            let text = |pointer| entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let Some(by) = text("/user/username").strip_prefix(&prefix) else { continue };
            let code = entry.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or_default();
            let (verb, resource) = (text("/verb"), text("/objectRef/resource"));
            let request = format!("{verb} {resource}/{}", text("/objectRef/subresource"));
            let at = text("/requestReceivedTimestamp").parse()?;
            if matches!(code, 401 | 403) {
                refused.push((at, format!("{by}: {request} ({code})")));
            }
            if matches!(verb, "create" | "update" | "patch" | "delete")
                && resource != "leases"
                && !is_review(resource)
            {
                writes.push(Write { at, by: by.to_owned(), request });
            }
        }
        writes.sort_by_key(|write| write.at);
        Ok(Self { writes, refused })
    }

    /// Checks that the terms of the writing replicas do not overlap. After a write of another replica, a replica may
    /// write again only after its own takeover, which takes at least 3 s.
    pub(crate) fn no_two_write_at_once(&self) -> Outcome {
        let terms = self.writes.chunk_by(|one, other| one.by == other.by).collect::<Vec<_>>();
        let text = terms.iter().filter_map(|term| {
            let (first, last) = (term.first()?, term.last()?);
            Some(format!(
                "{} {} to {} ({} writes, first {})",
                first.by,
                first.at,
                last.at,
                term.len(),
                first.request
            ))
        });
        let text = text.collect::<Vec<_>>().join("\n");
        eprintln!("{text}");
        // Two interleaved writers make many short terms. The faults make about a dozen.
        ensure(terms.len() <= 16, || format!("{} terms:\n{text}", terms.len()))?;
        for pair in terms.windows(3) {
            let [one, between, again] = pair else { continue };
            let (Some(one), Some(again)) = (one.last(), again.first()) else { continue };
            let gone = again.at.duration_since(one.at);
            let back_too_soon = one.by == again.by && gone < SignedDuration::from_secs(3);
            ensure(!back_too_soon, || {
                format!("{} wrote again {gone} after another with {} writes:\n{text}", one.by, between.len())
            })?;
        }
        Ok(())
    }

    /// Checks that no request before `restart` was refused. After its restart, the API server refuses requests until
    /// its cache of roles is filled.
    pub(crate) fn nothing_is_refused_before(&self, restart: Timestamp) -> Outcome {
        let refused: Vec<_> = self
            .refused
            .iter()
            .filter(|(at, _)| *at < restart)
            .map(|(_, request)| request.as_str())
            .collect();
        ensure(refused.is_empty(), || format!("refused:\n{}", refused.join("\n")))
    }
}
