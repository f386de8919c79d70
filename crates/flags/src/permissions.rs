//! The permissions that the controller needs, with the reason for each permission. `concertina rbac` prints these
//! permissions as a manifest, and the process verifies that they are granted.
//!
//! Each permission has at least one request that needs it (see the table of [`cluster`]). The end-to-end tests run with
//! exactly these permissions, and report every permission that no request needs.

mod manifest;

pub use self::manifest::{Account, ManifestError, manifest, manifest_as_json};

use std::path::PathBuf;

use serde_json::Value;

use cluster::permission::{Permission, Subject, row};
use coexist::handover::objects::GuardObjects;
use coexist::handover::scope::Scope;
use engine::targets::{definition_permission, target_watch_permission};
use journal::history::rebuild::event_list_permission;
use rulebook::Kind;
use sources::SourceFile;

use crate::Config;
use crate::config::{ACCOUNT_NAME, ACCOUNT_NAMESPACE, HandoverGuard, HandoverWebhook, ScaleTargets};

/// The scalable resources that every cluster serves.
const BUILT_IN: [(&str, &str); 4] = [
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("", "replicationcontrollers"),
];

/// Returns the permissions that a controller with these flags needs, without those of [`source_permissions`] and
/// [`optional_watch_permissions`].
pub fn needed(config: &Config) -> Vec<Permission> {
    let mut needed = Vec::new();
    match &config.controller.watch_namespaces {
        None => needed.extend(controller_permissions(config)),
        Some(namespaces) => {
            for namespace in namespaces {
                let rows = controller_permissions(config).into_iter();
                needed.extend(rows.map(|row| Permission { namespace: Some(namespace.clone()), ..row }));
            }
        }
    }
    needed.extend(namespace_permissions(config));
    needed.extend(checkpoint_permission(config));
    needed.extend(guard_permissions(config));
    let mut rest = lease_permissions(config);
    rest.extend(server_permissions(config));
    if config.service_account_credentials {
        rest.extend(token_permissions(config));
        for row in &mut rest {
            row.subject = Subject::Credentials;
        }
    }
    needed.extend(rest);
    needed
}

fn controller_permissions(config: &Config) -> Vec<Permission> {
    let writes = !config.controller.dry_run;
    let mut rows = vec![
        Permission {
            why: "to list and watch HPAs",
            without: "no HPA is scaled",
            essential: true,
            ..row("autoscaling", "horizontalpodautoscalers", &["list", "watch"])
        },
        Permission {
            why: "to list and watch the pods of targets",
            without: "no HPA is scaled",
            essential: true,
            ..row("", "pods", &["list", "watch"])
        },
    ];
    if writes {
        rows.push(Permission {
            subresource: "status",
            why: "to publish decisions and the last scale time in the status",
            without: "HPAs show no conditions and no current metrics, and each sync that changes a status fails",
            essential: true,
            ..row("autoscaling", "horizontalpodautoscalers", &["update"])
        });
    }
    rows.extend(target_permissions(config));
    rows.extend(policy_permissions(config));
    rows.extend([
        Permission {
            why: "to read CPU and memory usage",
            without: "metrics of type Resource and ContainerResource fail",
            ..row("metrics.k8s.io", "pods", &["list"])
        },
        Permission {
            why: "to read metrics of pods and other objects",
            without: "metrics of type Pods and Object fail",
            ..row("custom.metrics.k8s.io", "*", &["get"])
        },
        Permission {
            why: "to read metrics from outside the cluster",
            without: "metrics of type External fail",
            ..row("external.metrics.k8s.io", "*", &["list"])
        },
    ]);
    if writes {
        rows.extend([
            Permission {
                why: "to report rescales and failures as events",
                without: "kubectl describe hpa shows no events",
                ..row("", "events", &["create", "patch"])
            },
            event_list_permission(),
        ]);
    }
    rows
}

/// Returns the permissions on ScalingPolicies and, without `--watch-namespaces`, on ClusterScalingPolicies. Returns an
/// empty list if the controller does not watch policies.
fn policy_permissions(config: &Config) -> Vec<Permission> {
    let controller = &config.controller;
    if !controller.watch_scaling_policies {
        return Vec::new();
    }
    let kinds = if controller.watch_namespaces.is_none() { &Kind::ALL[..] } else { &[Kind::Namespaced] };
    let read = kinds.iter().map(|kind| Permission {
        why: "to list and watch scaling policies",
        without: "HPAs that had a policy are not scaled, and others are scaled without one",
        essential: true,
        ..row(rulebook::GROUP, kind.resource(), &["list", "watch"])
    });
    let writes = kinds.iter().filter(|_| !controller.dry_run).map(|kind| Permission {
        subresource: "status",
        why: "to report the number of HPAs and invalid fields in the status of policies",
        without: "policies show no status",
        ..row(rulebook::GROUP, kind.resource(), &["patch"])
    });
    read.chain(writes).collect()
}

/// Returns the permission on namespaces, or `None` if the controller does not watch namespaces.
fn namespace_permissions(config: &Config) -> Option<Permission> {
    let controller = &config.controller;
    let (why, without) = if controller.scope == Scope::Labelled {
        (
            "to find the namespaces with the label concertina.dev/controller",
            "only labels of HPAs put HPAs in scope",
        )
    } else {
        (
            "to match namespaces with the selectors of ClusterScalingPolicies",
            "ClusterScalingPolicies with a namespaceSelector apply to no HPA",
        )
    };
    let reads = controller.scope == Scope::Labelled || controller.watch_scaling_policies;
    (reads && controller.watch_namespaces.is_none()).then(|| Permission {
        why,
        without,
        // Policies that select namespaces are unknown without it.
        essential: controller.watch_scaling_policies,
        ..row("", "namespaces", &["list", "watch"])
    })
}

fn target_permissions(config: &Config) -> Vec<Permission> {
    let scale = |group: &str, resource: &str| {
        let (verbs, why): (&'static [&'static str], _) = if config.controller.dry_run {
            (&["get"], "to read the replica counts of targets")
        } else {
            (&["get", "update"], "to read and change the replica counts of targets")
        };
        Permission {
            subresource: "scale",
            why,
            without: "HPAs with such a target fail with FailedGetScale or FailedUpdateScale; if the role is narrower \
                      on purpose, set --scale-targets",
            ..row(group, resource, verbs)
        }
    };
    match &config.scale_targets {
        ScaleTargets::All => vec![scale("*", "*")],
        ScaleTargets::Only(targets) => {
            targets.iter().map(|target| scale(&target.group, &target.resource)).collect()
        }
    }
}

/// Returns the permissions to watch targets and to read the CustomResourceDefinitions of targets. These permissions
/// only save requests, so the check of the permissions does not verify them. A failed watch logs the missing permission.
pub fn optional_watch_permissions(config: &Config) -> Vec<Permission> {
    let built_in = BUILT_IN.iter().map(|(group, resource)| ((*group).to_owned(), (*resource).to_owned()));
    let targets: Vec<(String, String)> = match &config.scale_targets {
        ScaleTargets::All => built_in.collect(),
        ScaleTargets::Only(targets) => {
            targets.iter().map(|target| (target.group.clone(), target.resource.clone())).collect()
        }
    };
    let mut rows = Vec::new();
    let namespaces: Vec<Option<&str>> = match &config.controller.watch_namespaces {
        None => vec![None],
        Some(namespaces) => namespaces.iter().map(|name| Some(name.as_str())).collect(),
    };
    for namespace in namespaces {
        rows.extend(
            targets.iter().map(|(group, resource)| target_watch_permission(group, resource, namespace)),
        );
    }
    for (group, resource) in &targets {
        if !BUILT_IN.contains(&(group, resource)) {
            rows.push(definition_permission(&format!("{resource}.{group}")));
        }
    }
    rows
}

/// Returns the permissions on the objects of the guard, each limited to the names of the objects.
fn guard_permissions(config: &Config) -> Vec<Permission> {
    const GROUP: &str = "admissionregistration.k8s.io";
    let HandoverWebhook { namespace, certificate, .. } = &config.handover_webhook;
    let objects = GuardObjects {
        controller: config.controller.controller_name.clone(),
        built_in_users: Vec::new(),
        namespace: namespace.clone(),
    };
    let names = |objects: &[Value]| {
        let names = objects.iter().filter_map(|object| object.pointer("/metadata/name")?.as_str());
        names.map(str::to_owned).collect()
    };
    let check = Permission {
        why: "to check that the guard refuses writes of the built-in controller",
        without: "the controller takes charge of an HPA in scope only after two quiet periods, and detects a broken \
                  guard only by writes of the built-in controller",
        ..row(GROUP, "", &["get"])
    };
    match config.handover.guard {
        _ if config.controller.dry_run => Vec::new(),
        HandoverGuard::Webhook => {
            let mut rows = Vec::new();
            if certificate.is_none() {
                rows.push(Permission {
                    namespace: Some(namespace.clone()),
                    names: vec![objects.name()],
                    why: "to share the certificate authorities of the webhook with the other replicas",
                    without: "the webhook has no certificate, so the built-in controller continues to write HPAs in scope",
                    ..row("", "secrets", &["get", "update"])
                });
            }
            let (verbs, why): (&'static [_], _) = match certificate {
                Some(_) => (&["get"], check.why),
                None => (&["get", "update"], "to check the webhook and to write its caBundle"),
            };
            let resource = "validatingwebhookconfigurations".to_owned();
            rows.push(Permission { resource, verbs, why, names: vec![objects.name()], ..check });
            rows
        }
        HandoverGuard::Policy => {
            let policies = "validatingadmissionpolicies".to_owned();
            let bindings = "validatingadmissionpolicybindings".to_owned();
            vec![
                Permission { resource: policies, names: names(&objects.policies()), ..check.clone() },
                Permission { resource: bindings, names: names(&objects.bindings()), ..check },
            ]
        }
        HandoverGuard::Rbac | HandoverGuard::Flag | HandoverGuard::None => Vec::new(),
    }
}

/// Returns the permission on the ConfigMaps of the checkpoint. The permission does not include `create`, because a Role
/// cannot limit `create` to these names. The manifest therefore contains the ConfigMaps without data.
fn checkpoint_permission(config: &Config) -> Option<Permission> {
    let place = config.history_checkpoint.as_ref().filter(|_| !config.controller.dry_run);
    place.map(|place| Permission {
        namespace: Some(place.namespace.clone()),
        names: place.names().collect(),
        why: "to pass histories on to the next leader",
        without: "a change of leader loses recommendations, and restores rescales only from status and events",
        ..row("", "configmaps", &["get", "update"])
    })
}

/// Returns the permissions on the Lease. A dry run needs none, because it takes part in no election.
fn lease_permissions(config: &Config) -> Vec<Permission> {
    let Some(election) = config.election.as_ref().filter(|_| !config.controller.dry_run) else {
        return Vec::new();
    };
    let lease = |verbs, name: Option<&String>, why| Permission {
        namespace: Some(election.namespace.clone()),
        names: name.cloned().into_iter().collect(),
        why,
        without: "this replica never becomes the leader, so it never scales",
        essential: true,
        ..row("coordination.k8s.io", "leases", verbs)
    };
    vec![
        lease(
            &["get", "update", "watch"],
            Some(&election.name),
            "to hold the Lease of the leader, or to wait for it",
        ),
        lease(&["create"], None, "to create that Lease; a rule for create cannot name an object"),
    ]
}

/// Returns the permissions for reviews of clients. Reviews with another kubeconfig need no permission of the
/// controller, because they use the credentials of that kubeconfig.
fn server_permissions(config: &Config) -> Vec<Permission> {
    let serving = &config.serving;
    let is_ours =
        |kubeconfig: &Option<PathBuf>| serving.port != 0 && config.reviews_itself(kubeconfig.as_deref());
    let authentication = &serving.authentication;
    let mut rows = Vec::new();
    if is_ours(&authentication.kubeconfig) {
        rows.push(Permission {
            why: "to authenticate bearer tokens of requests for /metrics or /decisions",
            without: "such requests are refused with 503",
            ..row("authentication.k8s.io", "tokenreviews", &["create"])
        });
        let has_files = authentication.client_ca.is_some() && authentication.front_proxy.is_some();
        if !authentication.skip_lookup && !has_files {
            rows.push(Permission {
                namespace: Some("kube-system".to_owned()),
                names: vec!["extension-apiserver-authentication".to_owned()],
                why: "to read the authorities that sign client certificates",
                without: "requests for /metrics and /decisions with a client certificate are refused with 401",
                ..row("", "configmaps", &["get"])
            });
        }
    }
    if is_ours(&serving.authorization.kubeconfig) {
        rows.push(Permission {
            why: "to authorize requests for /metrics and /decisions",
            without: "requests for /metrics and /decisions are refused",
            ..row("authorization.k8s.io", "subjectaccessreviews", &["create"])
        });
    }
    rows
}

fn token_permissions(config: &Config) -> Vec<Permission> {
    let mut rows = vec![Permission {
        subresource: "token",
        names: vec![ACCOUNT_NAME.to_owned()],
        why: "to request the tokens of the controller's ServiceAccount",
        without: "no HPA is scaled",
        essential: true,
        ..row("", "serviceaccounts", &["create"])
    }];
    if !config.controller.dry_run {
        rows.push(Permission {
            why: "to create that ServiceAccount if it is missing, as kube-controller-manager does",
            without: "an administrator has to create it",
            ..row("", "serviceaccounts", &["create"])
        });
    }
    for row in &mut rows {
        row.namespace = Some(ACCOUNT_NAMESPACE.to_owned());
    }
    rows
}

/// Returns the permissions that the file of metric sources requires.
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
