//! What the controller has to be allowed, and for what: one table that `concertina rbac` prints as a manifest and that
//! is checked at start.
//!
//! A row is here because a request is made (the table of [`crate::api`]), not because another role has it: the
//! end-to-end tests run under exactly these rules and look for one that no request needed.

pub mod check;
mod manifest;

pub use self::manifest::{Account, manifest};

use std::fmt::Write;
use std::path::PathBuf;

use crate::cli::Config;
use crate::cli::config::{ScaleSource, ScaleTargets};

/// Something that has to be allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    /// The API group; empty for the core group, `*` for all.
    pub group: String,
    /// `pods`, `*`.
    pub resource: String,
    /// `scale`; empty without one.
    pub subresource: &'static str,
    /// `list`, `watch`.
    pub verbs: &'static [&'static str],
    /// Where; `None`: everywhere, or the resource has no namespace.
    pub namespace: Option<String>,
    /// The objects it is about; empty: all.
    pub names: Vec<String>,
    /// Who needs it.
    pub subject: Subject,
    /// The role that it is granted with.
    pub role: Role,
    /// What for.
    pub why: &'static str,
    /// What does not work without it.
    pub without: &'static str,
    /// Without it, no HPA is acted on.
    pub essential: bool,
}

/// Whose requests these are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The controller's: watches, scales, metrics, status, events.
    Controller,
    /// With `--use-service-account-credentials`, what is still done with the credentials given: Lease, reviews, tokens.
    Credentials,
}

/// The role of a permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The one that every controller needs in that place.
    Own,
    /// What `--history-checkpoint` adds.
    History,
}

/// The ServiceAccount of `--use-service-account-credentials`: kube-controller-manager's name for this controller, which
/// the bindings of metrics adapters have too.
pub const ACCOUNT_NAMESPACE: &str = "kube-system";
/// Its name.
pub const ACCOUNT_NAME: &str = "horizontal-pod-autoscaler";

/// The scalable resources that every cluster has.
const BUILT_IN: [(&str, &str); 4] = [
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("", "replicationcontrollers"),
];

/// Everything that these flags need.
pub fn needed(config: &Config) -> Vec<Permission> {
    let mut needed = Vec::new();
    match &config.watch_namespaces {
        None => needed.extend(of_the_controller(config)),
        Some(namespaces) => {
            for namespace in namespaces {
                let here = of_the_controller(config).into_iter();
                needed.extend(here.map(|row| Permission { namespace: Some(namespace.clone()), ..row }));
            }
        }
    }
    needed.extend(of_the_checkpoint(config));
    let mut rest = of_the_lease(config);
    rest.extend(of_the_server(config));
    if config.service_account_credentials {
        rest.extend(of_the_tokens(config));
        for row in &mut rest {
            row.subject = Subject::Credentials;
        }
    }
    needed.extend(rest);
    needed
}

/// A row for all objects of a resource everywhere.
fn row(group: &str, resource: &str, verbs: &'static [&'static str]) -> Permission {
    Permission {
        group: group.to_owned(),
        resource: resource.to_owned(),
        subresource: "",
        verbs,
        namespace: None,
        names: Vec::new(),
        subject: Subject::Controller,
        role: Role::Own,
        why: "",
        without: "",
        essential: false,
    }
}

fn of_the_controller(config: &Config) -> Vec<Permission> {
    let writes = !config.dry_run;
    let mut rows = vec![
        Permission {
            why: "to know the HPAs",
            without: "no HPA is acted on",
            essential: true,
            ..row("autoscaling", "horizontalpodautoscalers", &["list", "watch"])
        },
        Permission {
            why: "to know the pods of their targets",
            without: "no HPA is acted on",
            essential: true,
            ..row("", "pods", &["list", "watch"])
        },
    ];
    if writes {
        rows.push(Permission {
            subresource: "status",
            why: "to tell in status what was decided and when it was scaled last",
            without: "HPAs show no conditions and no current metrics, and each sync of one that changes fails",
            essential: true,
            ..row("autoscaling", "horizontalpodautoscalers", &["update"])
        });
    }
    rows.extend(of_the_targets(config));
    rows.extend([
        Permission {
            why: "to read CPU and memory usage",
            without: "metrics of type Resource and ContainerResource fail",
            ..row("metrics.k8s.io", "pods", &["list"])
        },
        Permission {
            why: "to read metrics of pods and of other objects",
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
                why: "to tell of scaling and of trouble in events",
                without: "kubectl describe hpa shows no events",
                ..row("", "events", &["create", "patch"])
            },
            rescales_told(),
        ]);
    }
    rows
}

/// To read events of rescales; everywhere.
pub(crate) fn rescales_told() -> Permission {
    Permission {
        why: "to learn from events, when leading begins, what was scaled before",
        without: "an HPA whose history is lost is not scaled until the longest period of its policies after its last \
                  rescale",
        ..row("", "events", &["list"])
    }
}

fn of_the_targets(config: &Config) -> Vec<Permission> {
    let scale = |group: &str, resource: &str| {
        let (verbs, why): (&'static [&'static str], _) = if config.dry_run {
            (&["get"], "to read the replica counts of targets")
        } else {
            (&["get", "update"], "to read and change the replica counts of targets")
        };
        Permission {
            subresource: "scale",
            why,
            without: "HPAs with such a target fail with FailedGetScale or FailedUpdateScale; if the role is meant to \
                      be narrower, say so with --scale-targets",
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

/// To watch targets; everywhere, or in one namespace.
pub(crate) fn to_watch_targets(group: &str, resource: &str, namespace: Option<&str>) -> Permission {
    Permission {
        namespace: namespace.map(str::to_owned),
        why: "to watch targets, instead of reading each one's replica count in each sync",
        without: "each sync of an HPA with such a target makes one request more",
        ..row(group, resource, &["list", "watch"])
    }
}

/// To know where the objects of a custom resource have their counts, by the name of its definition.
pub(crate) fn to_read_definition(name: &str) -> Permission {
    Permission {
        names: vec![name.to_owned()],
        why: "to know where the targets of this kind have their replica counts",
        without: "each sync of an HPA with such a target makes one request more",
        ..row("apiextensions.k8s.io", "customresourcedefinitions", &["get"])
    }
}

/// What spares requests. Not asked for at start: what is missing is told when the first target is watched.
pub fn to_spare_requests(config: &Config) -> Vec<Permission> {
    if config.scale_source == ScaleSource::Get {
        return Vec::new();
    }
    let built_in = BUILT_IN.iter().map(|(group, resource)| ((*group).to_owned(), (*resource).to_owned()));
    let targets: Vec<(String, String)> = match &config.scale_targets {
        ScaleTargets::All => built_in.collect(),
        ScaleTargets::Only(targets) => {
            targets.iter().map(|target| (target.group.clone(), target.resource.clone())).collect()
        }
    };
    let mut rows = Vec::new();
    let namespaces: Vec<Option<&str>> = match &config.watch_namespaces {
        None => vec![None],
        Some(namespaces) => namespaces.iter().map(|name| Some(name.as_str())).collect(),
    };
    for namespace in namespaces {
        rows.extend(targets.iter().map(|(group, resource)| to_watch_targets(group, resource, namespace)));
    }
    for (group, resource) in &targets {
        if !BUILT_IN.contains(&(group, resource)) {
            rows.push(to_read_definition(&format!("{resource}.{group}")));
        }
    }
    rows
}

/// The ConfigMaps are shipped, empty: a role that may create them could create any other one of that namespace, too.
fn of_the_checkpoint(config: &Config) -> Vec<Permission> {
    let place = config.history_checkpoint.as_ref().filter(|_| !config.dry_run);
    let row = place.map(|place| Permission {
        namespace: Some(place.namespace.clone()),
        names: place.names().collect(),
        role: Role::History,
        why: "to keep what is remembered of HPAs over a restart of all replicas",
        without: "a restart of all replicas forgets recommendations, and knows rescales by status and events only",
        ..row("", "configmaps", &["get", "update"])
    });
    row.into_iter().collect()
}

/// In a dry run there is no election: it would write the Lease.
fn of_the_lease(config: &Config) -> Vec<Permission> {
    let Some(election) = config.election.as_ref().filter(|_| !config.dry_run) else {
        return Vec::new();
    };
    let lease = |verbs, name: Option<&String>, why| Permission {
        namespace: Some(election.namespace.clone()),
        names: name.cloned().into_iter().collect(),
        why,
        without: "this replica never leads, so it never acts",
        essential: true,
        ..row("coordination.k8s.io", "leases", verbs)
    };
    vec![
        lease(
            &["get", "update", "watch"],
            Some(&election.name),
            "to hold the Lease of the leader, or to wait for it",
        ),
        lease(&["create"], None, "to make that Lease at first; a role cannot name what is yet to be made"),
    ]
}

/// Nothing if other kubeconfigs are named for it: then it is the business of their users.
fn of_the_server(config: &Config) -> Vec<Permission> {
    let serving = &config.serving;
    let is_ours =
        |kubeconfig: &Option<PathBuf>| serving.port != 0 && config.reviews_itself(kubeconfig.as_deref());
    let authentication = &serving.authentication;
    let mut rows = Vec::new();
    if is_ours(&authentication.kubeconfig) {
        rows.push(Permission {
            why: "to tell who asks for /metrics or /decisions with a token",
            without: "such requests get no answer but 503",
            ..row("authentication.k8s.io", "tokenreviews", &["create"])
        });
        let has_files = authentication.client_ca.is_some() && authentication.front_proxy.is_some();
        if !authentication.skip_lookup && !has_files {
            rows.push(Permission {
                namespace: Some("kube-system".to_owned()),
                names: vec!["extension-apiserver-authentication".to_owned()],
                why: "to know whose client certificates are good",
                without: "requests for /metrics and /decisions that show a client certificate get no answer but 401",
                ..row("", "configmaps", &["get"])
            });
        }
    }
    if is_ours(&serving.authorization.kubeconfig) {
        rows.push(Permission {
            why: "to tell whether they may",
            without: "requests for /metrics and /decisions are turned away",
            ..row("authorization.k8s.io", "subjectaccessreviews", &["create"])
        });
    }
    rows
}

fn of_the_tokens(config: &Config) -> Vec<Permission> {
    let mut rows = vec![Permission {
        subresource: "token",
        names: vec![ACCOUNT_NAME.to_owned()],
        why: "to ask for the tokens to act with",
        without: "no HPA is acted on",
        essential: true,
        ..row("", "serviceaccounts", &["create"])
    }];
    if !config.dry_run {
        rows.push(Permission {
            why: "to make that account if it is missing, as kube-controller-manager does",
            without: "somebody else has to make it",
            ..row("", "serviceaccounts", &["create"])
        });
    }
    for row in &mut rows {
        row.namespace = Some(ACCOUNT_NAMESPACE.to_owned());
    }
    rows
}

impl Permission {
    /// The rule that allows it: `{apiGroups: [apps], resources: [deployments], verbs: [list, watch]}`
    pub fn rule(&self) -> String {
        let mut rule = format!(
            "{{apiGroups: [{}], resources: [{}]",
            manifest::scalar(&self.group),
            manifest::scalar(&self.resource_with_subresource())
        );
        if !self.names.is_empty() {
            let names: Vec<_> = self.names.iter().map(|name| manifest::scalar(name)).collect();
            let _ = write!(rule, ", resourceNames: [{}]", names.join(", "));
        }
        let _ = write!(rule, ", verbs: [{}]}}", self.verbs.join(", "));
        rule
    }

    /// `horizontalpodautoscalers/status`
    fn resource_with_subresource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }

    /// `horizontalpodautoscalers.autoscaling/status`, as errors of the API server and kubectl call it.
    pub fn full_resource(&self) -> String {
        let group = if matches!(&*self.group, "" | "*") { String::new() } else { format!(".{}", self.group) };
        let subresource =
            if self.subresource.is_empty() { String::new() } else { format!("/{}", self.subresource) };
        format!("{}{group}{subresource}", self.resource)
    }
}
