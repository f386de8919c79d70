//! Tests of the certificate and of the check against the in-memory API server, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cluster::client::{ClientOptions, Clients};
use fake_cluster::{Cluster, FaultAction, FaultRule, Status};
use jiff::Timestamp;
use rustls::crypto::ring::default_provider;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::authority::Authorities;
use super::certificate::{Certificate, SECRET_KEY};
use super::{Check, CheckedGuard};
use clock::{Clock, SharedClock, VirtualClock};
use coexist::handover::charges::{Charges, GuardProof};
use coexist::handover::objects::{BUILT_IN_USERS, GuardObjects, service_name};
use coexist::handover::scope::ControllerName;

const NAMESPACE: &str = "concertina-system";
const NAME: &str = "concertina-handover";
const CONFIGURATIONS: &str = "admissionregistration.k8s.io/validatingwebhookconfigurations";

/// A clock that advances by one day per minute of tokio's clock, from the given time.
#[derive(Debug)]
struct FastClock(VirtualClock, Timestamp);

impl Clock for FastClock {
    fn now(&self) -> Timestamp {
        self.1 + self.0.now().duration_since(self.1) * 1440
    }
}

struct World {
    cluster: Cluster,
    clients: Clients,
    clock: SharedClock,
}

impl World {
    fn new() -> Self {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        Self::at(Arc::new(VirtualClock::starting_at(start)))
    }

    fn at(clock: SharedClock) -> Self {
        let cluster = Cluster::new(Arc::clone(&clock));
        let clients = Clients::over(cluster.connector(), &ClientOptions::default()).unwrap();
        Self { cluster, clients, clock }
    }

    fn with_secret() -> Self {
        let world = Self::new();
        let metadata = json!({"namespace": NAMESPACE, "name": NAME, "labels": {"team": "a"}});
        world.create(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata}));
        world
    }

    fn create(&self, object: &Value) {
        self.cluster.create(object.clone()).unwrap();
    }

    /// Creates the certificate of a replica, and starts to keep it current.
    fn certificate(&self) -> Arc<Certificate> {
        let (provider, clock) = (Arc::new(default_provider()), Arc::clone(&self.clock));
        let certificate = Certificate::signed(&self.clients.guard, NAMESPACE, NAME, clock, provider);
        let task = Arc::clone(&certificate);
        tokio::spawn(async move { task.keep_current().await });
        certificate
    }

    /// Returns the `caBundle` of the authorities in the Secret, in PEM.
    fn stored(&self) -> String {
        let secret = self.cluster.get("secrets", NAMESPACE, NAME).unwrap();
        let decoded = base64(&secret["data"][SECRET_KEY]);
        Authorities::parse(decoded.as_bytes()).unwrap().bundle()
    }

    fn trusts(&self, certificate: &Certificate, bundle: &str) -> bool {
        let (name, provider) = (service_name(NAMESPACE, NAME), Arc::new(default_provider()));
        certificate.is_trusted_by(bundle, &name, self.clock.now(), &provider)
    }

    fn updates(&self, resource: &str) -> usize {
        self.cluster.requests().count(|sent| sent.verb == "update" && sent.path.contains(resource))
    }

    /// Starts the check of a replica. Returns the receiver of the results.
    fn check(&self, guard: CheckedGuard, leads: &Arc<AtomicBool>) -> Arc<Charges> {
        let charges =
            Charges::new(ControllerName::default(), Duration::from_secs(15), false, Arc::clone(&self.clock));
        let leads = Arc::clone(leads);
        let check = Check {
            objects: objects(),
            guard,
            client: self.clients.guard.clone(),
            charges: Arc::clone(&charges),
            leads: Box::new(move || leads.load(Ordering::Relaxed)),
            clock: Arc::clone(&self.clock),
            provider: Arc::new(default_provider()),
        };
        tokio::spawn(check.run());
        charges
    }

    fn configuration(&self) -> Value {
        self.cluster.get(CONFIGURATIONS, "", NAME).unwrap()
    }
}

fn objects() -> GuardObjects {
    GuardObjects {
        controller: ControllerName::default(),
        built_in_users: BUILT_IN_USERS.map(str::to_owned).into(),
        namespace: NAMESPACE.to_owned(),
    }
}

fn base64(value: &Value) -> String {
    use ::base64::Engine;
    let bytes = ::base64::engine::general_purpose::STANDARD.decode(value.as_str().unwrap()).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn leader(leads: bool) -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(leads))
}

fn is_proven(charges: &Charges) -> bool {
    matches!(charges.guard_proof(), GuardProof::Proven { .. })
}

fn reason(charges: &Charges) -> String {
    match charges.guard_proof() {
        GuardProof::Broken { reason } => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn one_of_several_replicas_fills_the_secret() {
    let world = World::with_secret();
    let replicas = [world.certificate(), world.certificate(), world.certificate()];
    sleep(Duration::from_secs(10)).await;
    let stored = world.stored();
    assert_eq!(stored.matches("BEGIN CERTIFICATE").count(), 1);
    for replica in &replicas {
        assert_eq!(replica.bundle().as_ref(), Some(&stored));
        assert!(world.trusts(replica, &stored));
    }
    assert!(world.updates("secrets") <= 3);
    let secret = world.cluster.get("secrets", NAMESPACE, NAME).unwrap();
    assert_eq!(secret["metadata"]["labels"], json!({"team": "a"}));
}

#[tokio::test(start_paused = true)]
async fn certificate_is_retried_and_renewed_for_two_years() {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let world = World::at(Arc::new(FastClock(VirtualClock::starting_at(start), start)));
    world.cluster.faults().add(FaultRule::new(FaultAction::Status(Status::new(403, "Forbidden", "no"))));
    let certificate = world.certificate();
    sleep(Duration::from_secs(20)).await;
    assert_eq!(certificate.bundle(), None);
    world.cluster.faults().clear();
    sleep(Duration::from_secs(20)).await;
    assert_eq!(certificate.bundle(), None);
    let metadata = json!({"namespace": NAMESPACE, "name": NAME});
    world.create(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata}));
    sleep(Duration::from_secs(10)).await;
    let mut bundle = certificate.bundle().unwrap();
    let mut changes = 0;
    for _ in 0..730 {
        // This pause is a day of the fast clock, in which the replica reads the Secret once.
        sleep(Duration::from_mins(1)).await;
        // An API server with the bundle of the previous day trusts the certificate.
        assert!(world.trusts(&certificate, &bundle));
        let now = world.stored();
        changes += usize::from(now != bundle);
        bundle = now;
    }
    assert!((3..=6).contains(&changes), "{changes}");
}

#[tokio::test(start_paused = true)]
async fn leader_writes_the_bundle_and_every_replica_proves_the_guard() {
    let world = World::with_secret();
    let certificates = [world.certificate(), world.certificate()];
    let flags = [leader(false), leader(false)];
    let [one, other] =
        [0, 1].map(|at| world.check(CheckedGuard::Webhook(Arc::clone(&certificates[at])), &flags[at]));
    sleep(Duration::from_secs(6)).await;
    let missing = "ValidatingWebhookConfiguration concertina-handover does not exist: ";
    assert!(reason(&one).starts_with(missing), "{}", reason(&one));
    world.create(&objects().webhook());
    sleep(Duration::from_secs(6)).await;
    assert!(reason(&one).contains("caBundle does not trust"), "{}", reason(&one));
    assert_eq!(world.updates("validatingwebhookconfigurations"), 0);
    flags[0].store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(12)).await;
    assert!(is_proven(&one) && is_proven(&other));
    for webhook in world.configuration()["webhooks"].as_array().unwrap() {
        assert_eq!(base64(&webhook["clientConfig"]["caBundle"]), world.stored());
    }
    assert_eq!(world.updates("validatingwebhookconfigurations"), 1);
}

#[tokio::test(start_paused = true)]
async fn changed_or_unreadable_webhook_is_seen_within_half_a_minute() {
    let world = World::with_secret();
    let certificate = world.certificate();
    world.create(&objects().webhook());
    let charges = world.check(CheckedGuard::Webhook(certificate), &leader(true));
    sleep(Duration::from_secs(12)).await;
    assert!(is_proven(&charges));
    let half_a_minute = Duration::from_secs(30);

    let mut wrong = world.configuration();
    wrong["webhooks"][0]["namespaceSelector"] = json!({"matchLabels": {"a": "b"}});
    world.cluster.update(wrong).unwrap();
    sleep(half_a_minute).await;
    assert!(reason(&charges).contains("webhooks[0].namespaceSelector is"), "{}", reason(&charges));

    let mut right = world.configuration();
    right["webhooks"][0]["namespaceSelector"] = json!({});
    // This bundle does not contain the authority of the certificate.
    right["webhooks"][0]["clientConfig"]["caBundle"] = json!("AAAA");
    world.cluster.update(right).unwrap();
    sleep(half_a_minute).await;
    assert!(is_proven(&charges), "the leader writes the bundle again");

    // An unreachable API server does not prove a broken guard.
    let unavailable = Status::new(503, "ServiceUnavailable", "later");
    world.cluster.faults().add(FaultRule::new(FaultAction::Status(unavailable)));
    sleep(half_a_minute).await;
    assert!(is_proven(&charges));
    world.cluster.faults().clear();
    world.cluster.faults().add(FaultRule::new(FaultAction::Status(Status::new(403, "Forbidden", "no"))));
    sleep(half_a_minute).await;
    assert!(reason(&charges).contains("grant get on it"), "{}", reason(&charges));
    world.cluster.faults().clear();
    world.cluster.delete(CONFIGURATIONS, "", NAME).unwrap();
    sleep(half_a_minute).await;
    assert!(reason(&charges).contains("does not exist"), "{}", reason(&charges));
}

#[tokio::test(start_paused = true)]
async fn url_is_proven_only_for_a_host_in_the_certificate() {
    let world = World::with_secret();
    let certificate = world.certificate();
    let mut configuration = objects().webhook();
    for (webhook, host) in configuration["webhooks"].as_array_mut().unwrap().iter_mut().zip([
        "localhost",
        "127.0.0.1:10250",
        "[::1]:10250",
        "127.0.0.1",
    ]) {
        webhook["clientConfig"] = json!({"url": format!("https://{host}/handover")});
    }
    world.create(&configuration);
    let charges = world.check(CheckedGuard::Webhook(certificate), &leader(true));
    sleep(Duration::from_secs(12)).await;
    assert!(is_proven(&charges), "{:?}", charges.guard_proof());
    let mut other = world.configuration();
    other["webhooks"][3]["clientConfig"]["url"] = json!("https://example.com/handover");
    world.cluster.update(other).unwrap();
    sleep(Duration::from_secs(30)).await;
    assert!(
        reason(&charges).contains("the certificate of the webhook for example.com"),
        "{}",
        reason(&charges)
    );
}

#[tokio::test(start_paused = true)]
async fn deleted_binding_of_a_policy_is_seen_within_half_a_minute() {
    let world = World::new();
    for object in objects().policies().iter().chain(&objects().bindings()) {
        world.create(object);
    }
    let charges = world.check(CheckedGuard::Policy, &leader(true));
    sleep(Duration::from_secs(3)).await;
    assert!(is_proven(&charges), "{:?}", charges.guard_proof());
    let bindings = "admissionregistration.k8s.io/validatingadmissionpolicybindings";
    world.cluster.delete(bindings, "", "concertina-handover-scale").unwrap();
    sleep(Duration::from_secs(30)).await;
    let expected = "ValidatingAdmissionPolicyBinding concertina-handover-scale does not exist: ";
    assert!(reason(&charges).starts_with(expected), "{}", reason(&charges));
    assert_eq!(world.cluster.requests().count(|sent| sent.verb != "get"), 0);
}
