//! The objects that kustomize and Helm render, as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::process::Command;

use serde_json::Value;

/// An installation variant, as a kustomize folder and as values of the chart.
pub(crate) struct Variant {
    pub(crate) folder: &'static str,
    pub(crate) release: &'static str,
    pub(crate) namespace: &'static str,
    pub(crate) values: &'static [&'static str],
}

/// The namespace of the default installation.
pub(crate) const HOME: &str = "concertina-system";

pub(crate) const VARIANTS: &[Variant] = &[
    Variant { folder: "base", release: "concertina", namespace: HOME, values: &[] },
    Variant {
        folder: "overlays/built-in-account",
        release: "concertina",
        namespace: "kube-system",
        values: &["serviceAccount.name=horizontal-pod-autoscaler", "serviceAccount.create=false"],
    },
    Variant {
        folder: "overlays/built-in-role",
        release: "concertina",
        namespace: "kube-system",
        values: &[
            "serviceAccount.name=horizontal-pod-autoscaler",
            "serviceAccount.create=false",
            "rbac.builtInRoles=true",
        ],
    },
    Variant {
        folder: "overlays/control-plane",
        release: "concertina",
        namespace: HOME,
        values: &["controlPlane=true"],
    },
    Variant {
        folder: "overlays/scaling-policies",
        release: "concertina",
        namespace: HOME,
        values: &["scalingPolicies.enabled=true"],
    },
    Variant {
        folder: "overlays/shadow",
        release: "concertina-shadow",
        namespace: HOME,
        values: &["mode=shadow"],
    },
    Variant {
        folder: "overlays/namespaced",
        release: "concertina",
        namespace: "team-a",
        values: &["watchNamespaces={team-a,team-b}"],
    },
    Variant {
        folder: "overlays/scope-labelled",
        release: "concertina",
        namespace: HOME,
        values: &["mode=labelled"],
    },
    Variant {
        folder: "overlays/scope-labelled-policy",
        release: "concertina",
        namespace: HOME,
        values: &["mode=labelled", "handover.guard=policy"],
    },
    Variant {
        folder: "overlays/second-instance",
        release: "blue-concertina",
        namespace: "concertina-blue",
        values: &["mode=labelled", "handover.controllerName=blue-concertina"],
    },
];

/// Returns whether a role extends the roles of users (view, edit, admin) instead of granting rights to the controller.
pub(crate) fn is_for_users(role: &Value) -> bool {
    let labels = role["metadata"]["labels"].as_object();
    labels.is_some_and(|labels| {
        labels.keys().any(|key| key.starts_with("rbac.authorization.k8s.io/aggregate-to-"))
    })
}

/// The identity of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) kind: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace.as_deref().unwrap_or_default(), self.name)
    }
}

pub(crate) type Objects = BTreeMap<Key, Value>;

/// Renders the objects of a folder below deploy/kustomize.
pub(crate) fn kustomize(folder: &str) -> Objects {
    let mut kubectl = Command::new("kubectl");
    kubectl.arg("kustomize").arg(path(&format!("kustomize/{folder}")));
    objects(&run(kubectl).unwrap())
}

/// Renders the objects of the chart, without the labels that only Helm sets.
pub(crate) fn helm(release: &str, namespace: &str, values: &[&str]) -> Objects {
    let mut objects = objects(&run(template(release, namespace, values)).unwrap());
    for object in objects.values_mut() {
        let metadata = object["metadata"].as_object_mut().unwrap();
        if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
            // The definitions of scaling policies are the same file in kustomize and the chart, so the chart adds no
            // labels to them.
            let Some(manager) = labels.remove("app.kubernetes.io/managed-by") else { continue };
            assert_eq!(manager, "Helm");
            for name in ["helm.sh/chart", "version", "part-of", "component"] {
                let name =
                    if name.contains('/') { name.to_owned() } else { format!("app.kubernetes.io/{name}") };
                labels.remove(&name).unwrap();
            }
        }
    }
    objects
}

/// Renders the chart with invalid `values`. Returns the error of Helm.
pub(crate) fn helm_complains(namespace: &str, values: &[&str]) -> String {
    match run(template("concertina", namespace, values)) {
        Ok(_) => panic!("the chart accepts {values:?}"),
        Err(error) => error,
    }
}

fn template(release: &str, namespace: &str, values: &[&str]) -> Command {
    let mut helm = helm_command();
    helm.args(["template", release, "--namespace", namespace]).arg(path("helm/concertina"));
    // `helm install` creates the pod of `helm test` no more than kustomize does.
    if !values.iter().any(|value| value.starts_with("test.")) {
        helm.arg("--skip-tests");
    }
    for value in values {
        helm.args(["--set", value]);
    }
    helm
}

pub(crate) fn helm_command() -> Command {
    Command::new(
        std::env::var_os("HELM").expect("HELM is not set; run: export HELM=\"$(tests/helm/build.sh)\""),
    )
}

/// Returns the absolute path of a file or folder below deploy/.
pub(crate) fn path(below: &str) -> String {
    format!("{}/deploy/{below}", env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command. Returns its standard output, or its standard error if it fails.
pub(crate) fn run(mut command: Command) -> Result<String, String> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

pub(crate) fn objects(yaml: &str) -> Objects {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
    let mut objects = Objects::new();
    for object in documents {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let name = Key {
            kind: text(&object["kind"]).unwrap(),
            namespace: text(&object["metadata"]["namespace"]),
            name: text(&object["metadata"]["name"]).unwrap(),
        };
        assert!(objects.insert(name.clone(), object).is_none(), "duplicate object {name}");
    }
    objects
}

/// Returns the only object of kind `kind`.
pub(crate) fn only(objects: &Objects, kind: &str) -> Value {
    let mut found = objects.iter().filter(|(name, _)| name.kind == kind);
    let (_, object) = found.next().unwrap_or_else(|| panic!("no object of kind {kind}"));
    assert!(found.next().is_none(), "more than one object of kind {kind}");
    object.clone()
}

/// Returns the object of kind `kind` with the name `object`.
pub(crate) fn named(objects: &Objects, kind: &str, object: &str) -> Value {
    let found = objects.iter().find(|(name, _)| name.kind == kind && name.name == object);
    found.unwrap_or_else(|| panic!("no {kind} {object}")).1.clone()
}

/// Returns the arguments of a Deployment's container.
pub(crate) fn flags(deployment: &Value) -> Vec<String> {
    let arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
    arguments.iter().map(|argument| argument.as_str().unwrap().to_owned()).collect()
}
