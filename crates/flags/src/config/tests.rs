use std::time::Duration;

use autoscaling::settings::{Settings, Version};

use super::*;
use crate::FlagSet;

fn read(words: &[&str]) -> Result<Config, String> {
    FlagSet::controller().resolve(words.iter().map(ToString::to_string)).map_err(|error| error.to_string())
}

fn config(word: &str) -> Config {
    read(&[word]).unwrap()
}

/// Returns the reason for an invalid flag value, without the prefix that names the flag.
fn reason(flag: &str, value: &str) -> String {
    let error = read(&[&format!("{flag}={value}")]).unwrap_err();
    let prefix = format!("invalid argument \"{value}\" for \"{flag}\" flag: ");
    error.strip_prefix(&prefix).unwrap_or_else(|| panic!("{error}")).to_owned()
}

#[test]
fn no_flags_resolve_to_the_default() {
    assert_eq!(read(&[]).unwrap(), Config::default());
}

#[test]
fn hpa_flags_of_kube_controller_manager_set_the_settings() {
    let config = read(&[
        "--horizontal-pod-autoscaler-sync-period=30s",
        "--horizontal_pod_autoscaler_downscale_stabilization=1m30s",
        "--horizontal-pod-autoscaler-tolerance",
        "0.05",
        "--horizontal-pod-autoscaler-cpu-initialization-period=0.5h",
        "--horizontal-pod-autoscaler-initial-readiness-delay=0",
        "--concurrent-horizontal-pod-autoscaler-syncs=10",
    ])
    .unwrap();
    assert_eq!(config.controller.sync_period, Duration::from_secs(30));
    assert_eq!(config.controller.settings.downscale_stabilization, Duration::from_secs(90));
    assert_eq!(config.controller.settings.tolerance, 0.05);
    assert_eq!(config.controller.settings.cpu_initialization_period, Duration::from_mins(30));
    assert_eq!(config.controller.settings.initial_readiness_delay, Duration::ZERO);
    assert_eq!(config.controller.concurrent_syncs, 10);
    assert_eq!(config.warnings, [""; 0]);
}

#[test]
fn kubeconfig_and_master_are_read() {
    let config = read(&["--kubeconfig=/etc/k", "--master=https://a:6443"]).unwrap();
    assert_eq!(config.kubeconfig, Some(PathBuf::from("/etc/k")));
    assert_eq!(config.master.as_deref(), Some("https://a:6443"));
    let none = read(&["--kubeconfig=", "--master="]).unwrap();
    assert_eq!((none.kubeconfig, none.master), (None, None));
}

#[test]
fn client_limits_follow_client_go() {
    assert_eq!(config("--kube-api-qps=50.5").controller.qps, Some(50.5));
    assert_eq!(config("--kube-api-qps=-1").controller.qps, None);
    assert_eq!(config("--kube-api-qps=0").controller.qps, Some(5.0));
    assert_eq!(config("--kube-api-burst=100").burst, 100);
    assert_eq!(config("--kube-api-burst=0").burst, 10);
    assert_eq!(reason("--kube-api-burst", "-1"), "must be at least 0");
    assert_eq!(reason("--kube-api-qps", "NaN"), "must be a number");
}

#[test]
fn invalid_values_are_refused_with_the_flag() {
    assert_eq!(reason("--concurrent-horizontal-pod-autoscaler-syncs", "0"), "must be at least 1");
    assert_eq!(reason("--horizontal-pod-autoscaler-sync-period", "0s"), "must be greater than 0s");
    assert_eq!(reason("--horizontal-pod-autoscaler-sync-period", "-1s"), "must be greater than 0s");
    assert_eq!(
        reason("--horizontal-pod-autoscaler-tolerance", "x"),
        "strconv.ParseFloat: parsing \"x\": invalid syntax"
    );
    assert_eq!(reason("--logging-format", "xml"), "must be text or json");
    assert_eq!(reason("--metrics-timeout", "0"), "must be greater than 0s");
    assert_eq!(reason("--max-metrics-response", "0"), "must be greater than 0");
    assert_eq!(reason("--max-concurrent-metric-requests", "0"), "must be at least 1");
    assert_eq!(
        reason("--health-address", "localhost"),
        "must be an IP address and a port, such as 127.0.0.1:8080"
    );
    for count in ["-1", "1001"] {
        assert_eq!(reason("--decisions-per-hpa", count), "must be 0 to 1000");
    }
    assert_eq!(reason("--emulated-version", "1.35"), "emulated version \"1.35\" is none of 1.36, 1.37, 1.38");
    assert_eq!(
        reason("--feature-gates", "HPAConfigurableTolerance=false"),
        "cannot set feature gate HPAConfigurableTolerance to false, feature is locked to true"
    );
}

#[test]
fn negative_values_are_accepted_as_by_kube_controller_manager() {
    let settings = |flag: &str, value: &str| {
        config(&format!("--horizontal-pod-autoscaler-{flag}={value}")).controller.settings
    };
    assert_eq!(settings("downscale-stabilization", "-5m").downscale_stabilization, Duration::ZERO);
    assert_eq!(settings("cpu-initialization-period", "-1ns").cpu_initialization_period, Duration::ZERO);
    assert_eq!(settings("initial-readiness-delay", "-30s").initial_readiness_delay, Duration::ZERO);
    assert_eq!(settings("tolerance", "-0.1").tolerance, -0.1);
    assert_eq!(settings("tolerance", "NaN").tolerance, f64::MIN);
    assert_eq!(settings("tolerance", "-Inf").tolerance, f64::MIN);
    assert_eq!(settings("tolerance", "Inf").tolerance, f64::MAX);
    let cached = config("--authorization-webhook-cache-authorized-ttl=-1s").serving.authorization;
    assert_eq!(cached.allowed_ttl, Duration::ZERO);
}

#[test]
fn emulated_version_sets_its_gates() {
    assert_eq!(config("--emulated-version=1.36").controller.settings, Settings::new(Version::V1_36));
    assert!(!config("--emulated-version=kube=1.36").controller.stale_consistency);
    assert_eq!(config("--emulated-version=1.38").controller.settings, Settings::new(Version::V1_38));
    let locked = read(&["--feature-gates=HPAGeneration=true", "--emulated-version=1.38"]).unwrap();
    let warning =
        "--feature-gates: HPAGeneration has no effect: always on in 1.38, and is removed in a later version";
    assert_eq!(locked.warnings, [warning]);
    let mixed = read(&["--feature-gates=HPAScaleToZero=true", "--emulated-version=v1.36"]).unwrap();
    assert!(mixed.controller.settings.scale_to_zero);
    assert!(!config("--feature-gates=StaleControllerConsistencyHPA=false").controller.stale_consistency);
    assert_eq!(Version::default(), Version::V1_37);
}

#[test]
fn own_flags_are_read() {
    let config = read(&[
        "--dry-run",
        "--metrics-timeout=5s",
        "--max-metrics-response=1Mi",
        "--max-concurrent-metric-requests=8",
        "--max-concurrent-metric-requests-per-api=4",
        "--health-address=[::1]:0",
        "--decisions-per-hpa=0",
        "--logging-format=json",
        "-v4",
    ])
    .unwrap();
    assert!(config.controller.dry_run);
    assert_eq!(config.controller.metrics_timeout, Duration::from_secs(5));
    assert_eq!(config.controller.metric_sharing, Some(Duration::from_secs(5)));
    assert_eq!(read(&["--share-metrics=false"]).unwrap().controller.metric_sharing, None);
    assert_eq!(config.controller.max_metrics_response, 1 << 20);
    assert_eq!(config.controller.max_concurrent_metric_requests, 8);
    assert_eq!(config.controller.max_concurrent_metric_requests_per_api, 4);
    assert_eq!(config.serving.plain, "[::1]:0".parse().ok());
    assert_eq!(config.controller.decisions_per_hpa, 0);
    assert_eq!(config.logging, LogOptions { format: LogFormat::Json, verbosity: 4 });
}

#[test]
fn scope_selects_the_guard() {
    let guard = |words: &[&str]| read(words).map(|config| config.handover.guard);
    assert_eq!(guard(&[]), Ok(HandoverGuard::None));
    assert_eq!(guard(&["--scope=labelled"]), Ok(HandoverGuard::Webhook));
    assert_eq!(guard(&["--scope=labelled", "--handover-guard=policy"]), Ok(HandoverGuard::Policy));
    assert_eq!(guard(&["--handover-guard=rbac"]), Ok(HandoverGuard::Rbac));
    assert_eq!(guard(&["--scope=labelled", "--handover-guard=none"]), Ok(HandoverGuard::None));
    let config =
        read(&["--scope=labelled", "--controller-name=blue", "--built-in-users=a,b", "--shadow-others"])
            .unwrap();
    assert_eq!(config.controller.controller_name.as_str(), "blue");
    assert_eq!(config.handover.built_in_users, ["a", "b"]);
    assert!(config.controller.shadow_others);
}

#[test]
fn flags_that_cannot_hand_over_are_refused() {
    let error = |words: &[&str]| read(words).unwrap_err();
    assert_eq!(reason("--scope", "some"), "must be all or labelled");
    assert_eq!(reason("--scope", "labeled"), "must be all or labelled, which has two l");
    assert_eq!(reason("--handover-guard", "webhook"), "needs --scope=labelled");
    assert_eq!(reason("--handover-guard", "x"), "must be webhook, policy, rbac, flag or none");
    assert_eq!(
        error(&["--scope=labelled", "--handover-guard=flag"]),
        "invalid argument \"flag\" for \"--handover-guard\" flag: needs --scope=all"
    );
    assert_eq!(
        error(&["--shadow-others"]),
        "invalid argument \"true\" for \"--shadow-others\" flag: needs --scope=labelled"
    );
    assert_eq!(
        error(&["--scope=labelled", "--takeover=warn"]),
        "invalid argument \"warn\" for \"--takeover\" flag: must be wait with --scope=labelled"
    );
    assert!(reason("--controller-name", "a b").starts_with("must be 1 to 63 letters"));
    assert!(reason("--controller-name", "built-in").starts_with("must not be \"built-in\""));
    let own = error(&["--scope=labelled", "--use-service-account-credentials"]);
    assert!(
        own.contains("--use-service-account-credentials") && own.contains("--handover-guard=webhook"),
        "{own}"
    );
    assert!(
        read(&["--scope=labelled", "--use-service-account-credentials", "--handover-guard=none"]).is_ok()
    );
    assert!(error(&["--scope=labelled", "--built-in-users="]).contains("must be at least one user"));
    let warned = read(&["--scope=labelled", "--watch-namespaces=a"]).unwrap().warnings;
    assert!(warned[0].contains("labels of namespaces have no effect"), "{warned:?}");
}

#[test]
fn checkpoint_uses_the_namespace_and_name_of_the_lease() {
    let names = |words: &[&str]| {
        let checkpoint = read(words).unwrap().history_checkpoint?;
        Some(format!("{}/{}", checkpoint.namespace, checkpoint.names().next()?))
    };
    assert_eq!(names(&["--history-checkpoint=false"]), None);
    assert_eq!(names(&[]).unwrap(), "kube-system/concertina-history-0");
    let elsewhere = ["--leader-elect-resource-namespace=scaling", "--leader-elect-resource-name=hpa"];
    let flags = [&elsewhere[..], &["--leader-elect=false"]].concat();
    assert_eq!(names(&flags).unwrap(), "scaling/hpa-history-0");
    let foreign = ["--leader-elect-resource-name=kube-controller-manager"];
    assert_eq!(names(&foreign).unwrap(), "kube-system/concertina-history-0");
}

#[test]
fn kubeadm_command_line_has_one_warning_per_reason() {
    let config = read(&[
        "--allocate-node-cidrs=true",
        "--authentication-kubeconfig=/etc/kubernetes/controller-manager.conf",
        "--bind-address=127.0.0.1",
        "--cluster-cidr=10.244.0.0/16",
        "--cluster-name=kubernetes",
        "--controllers=*,bootstrapsigner,tokencleaner,-horizontal-pod-autoscaler-controller",
        "--kubeconfig=/etc/kubernetes/controller-manager.conf",
        "--leader-elect=true",
        "--use-service-account-credentials=true",
    ])
    .unwrap();
    assert!(config.service_account_credentials);
    assert_eq!(
        config.warnings,
        [
            "--allocate-node-cidrs, --cluster-cidr have no effect: meant for other controllers of kube-controller-manager",
            "--controllers has no effect: the HPA controller is the only controller and always runs",
        ]
    );
}

#[test]
fn serving_flags_of_kube_controller_manager_are_read() {
    let config = read(&[
        "--bind-address=::",
        "--secure-port=10267",
        "--tls-cert-file=/tls/a.crt",
        "--tls-private-key-file=/tls/a.key",
        "--tls-sni-cert-key=/tls/b.crt,/tls/b.key",
        "--tls-sni-cert-key=/tls/c.crt,/tls/c.key:c.example.com",
        "--tls-min-version=VersionTLS11",
        "--tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "--tls-curve-preferences=25,29",
        "--authentication-kubeconfig=/etc/k",
        "--authentication-token-webhook-cache-ttl=1m",
        "--authorization-always-allow-paths=/healthz,/metrics",
        "--requestheader-client-ca-file=/proxy.crt",
        "--requestheader-username-headers=X-Remote-User",
    ])
    .unwrap();
    let serving = &config.serving;
    assert_eq!((serving.address.to_string().as_str(), serving.port), ("::", 10267));
    assert_eq!(serving.certificate.as_ref().unwrap().key, PathBuf::from("/tls/a.key"));
    assert_eq!(serving.sni.len(), 2);
    assert_eq!(serving.authentication.kubeconfig, Some(PathBuf::from("/etc/k")));
    assert_eq!(serving.authentication.token_ttl, Duration::from_mins(1));
    assert_eq!(serving.authentication.front_proxy.as_ref().unwrap().headers.user, ["x-remote-user"]);
    assert!(serving.authorization.open_paths.contain("/metrics"));
    assert_eq!(
        config.warnings,
        [
            "--tls-min-version=VersionTLS11: using TLS 1.2, the oldest supported version",
            "--tls-cipher-suites: ignored TLS_RSA_WITH_RC4_128_SHA: not supported by rustls",
            "--tls-curve-preferences: ignored 25: not supported by rustls",
        ]
    );
    assert!(
        serving.given.contains(&("authorization-always-allow-paths".into(), "[/healthz,/metrics]".into())),
        "{:?}",
        serving.given
    );
}

#[test]
fn invalid_serving_flags_are_refused_with_the_flag() {
    assert_eq!(reason("--secure-port", "65536"), "must be between 0 and 65535; 0 disables the port");
    assert_eq!(reason("--tls-cert-file", "a"), "needs --tls-private-key-file");
    assert_eq!(reason("--tls-cipher-suites", "X"), "Cipher suite X not supported or doesn't exist");
    assert_eq!(reason("--tls-curve-preferences", "25"), "rustls supports none of the given curves");
    assert!(reason("--health-address", "0.0.0.0:80").starts_with("must be a loopback address"));
    assert!(reason("--bind-address", "here").contains("failed to parse IP"));
}

#[test]
fn lease_of_kube_controller_manager_is_never_used() {
    let given = read(&["--leader-elect-resource-name=kube-controller-manager"]).unwrap();
    assert_eq!(given.election, Some(Election::default()));
    assert_eq!(
        given.warnings,
        ["--leader-elect-resource-name=kube-controller-manager is not used: that Lease belongs to \
          kube-controller-manager; kube-system/concertina is used instead"]
    );
    let named = config("--leader-elect-resource-name=hpa");
    assert_eq!(named.election.map(|election| election.name).as_deref(), Some("hpa"));
    assert_eq!(config("--leader-elect=false").election, None);
}

#[test]
fn timings_that_allow_two_leaders_are_refused_with_the_flag() {
    assert_eq!(
        reason("--leader-elect-lease-duration", "10s"),
        "the lease duration must be greater than --leader-elect-renew-deadline"
    );
    assert_eq!(
        reason("--leader-elect-renew-deadline", "2.4s"),
        "the renew deadline must be greater than --leader-elect-retry-period times 1.2"
    );
    assert_eq!(reason("--leader-elect-retry-period", "0s"), "the retry period must be greater than 0s");
    assert_eq!(reason("--leader-elect-resource-lock", "endpoints"), "must be leases");
    assert_eq!(reason("--takeover", "later"), "must be wait, warn or off");
}

#[test]
fn ignored_flag_at_its_default_causes_no_warning() {
    let config = read(&[
        "--concurrent-job-syncs=5",
        "--controllers=*",
        "--leader-elect=false",
        "--cluster-name",
        "kubernetes",
    ]);
    assert_eq!(config.unwrap().warnings, [""; 0]);
}

#[test]
fn removed_flag_is_accepted_with_a_warning() {
    let warnings = config("--horizontal-pod-autoscaler-downscale-delay=5m0s").warnings;
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].starts_with(
            "--horizontal-pod-autoscaler-downscale-delay has no effect: removed from Kubernetes"
        )
    );
    assert!(read(&["--horizontal-pod-autoscaler-use-rest-clients"]).is_ok());
}

#[test]
fn ignored_flag_still_requires_a_value_of_its_type() {
    let error = read(&["--concurrent-job-syncs=many"]).unwrap_err();
    assert!(error.contains("\"--concurrent-job-syncs\" flag: strconv.ParseInt: parsing \"many\""), "{error}");
}

#[test]
fn gates_of_other_components_cause_one_warning() {
    let warnings = config("--feature-gates=RotateKubeletServerCertificate=true,JobManagedBy=true").warnings;
    assert_eq!(
        warnings,
        [
            "--feature-gates: RotateKubeletServerCertificate, JobManagedBy have no effect: the HPA controller does not have them"
        ]
    );
}
