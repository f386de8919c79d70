//! The objects of the guards `webhook` and `policy`, as in the manifests. [`proof`](super::proof) compares them with
//! the objects of the cluster.

#![allow(
    clippy::indexing_slicing,
    reason = "indexes JSON only, where a missing field is null instead of a panic"
)]

use serde_json::{Value, json};

use super::scope::{ControllerName, LABEL};

/// The path of the webhook.
pub const PATH: &str = "/handover";
/// The names of the webhooks in their configuration: for statuses of HPAs by their label and by the label of their
/// namespace, for scales, and for events.
pub const WEBHOOKS: [&str; 4] = [
    "status.handover.concertina.dev",
    "status-by-namespace.handover.concertina.dev",
    "scale.handover.concertina.dev",
    "events.handover.concertina.dev",
];
/// The condition of the webhook for events, because an event has no label of its HPA.
const ABOUT_AN_HPA: &str = "has(object.involvedObject) ? object.involvedObject.kind == 'HorizontalPodAutoscaler' : \
                            has(object.regarding) && object.regarding.kind == 'HorizontalPodAutoscaler'";
/// The fields of a webhook, without its name and `clientConfig`.
const WEBHOOK_FIELDS: [&str; 9] = [
    "rules",
    "matchConditions",
    "matchPolicy",
    "namespaceSelector",
    "objectSelector",
    "failurePolicy",
    "timeoutSeconds",
    "sideEffects",
    "admissionReviewVersions",
];
/// The port of the Service in front of the webhook. The Service forwards to `--handover-webhook-port`.
pub const SERVICE_PORT: u16 = 443;

/// The users of the built-in controller, by distribution.
///
/// | user | where |
/// |---|---|
/// | `system:serviceaccount:kube-system:horizontal-pod-autoscaler` | kubeadm, k3s, kOps, EKS |
/// | `system:kube-controller-manager` | kube-controller-manager without credentials per controller |
/// | `system:vpa-recommender` | GKE, by published roles |
pub const BUILT_IN_USERS: [&str; 3] = [
    "system:serviceaccount:kube-system:horizontal-pod-autoscaler",
    "system:kube-controller-manager",
    "system:vpa-recommender",
];

/// Returns the name of an instance's guard objects, of its Service and of its Secret.
pub fn object_name(controller: &ControllerName) -> String {
    // Object names must not contain upper case letters or underscores.
    let valid = controller.as_str().to_ascii_lowercase().replace('_', "-");
    format!("{valid}-handover")
}

/// Returns the DNS name by which the API server verifies the certificate of a Service.
pub fn service_name(namespace: &str, service: &str) -> String {
    format!("{service}.{namespace}.svc")
}

/// The inputs of the guard objects of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardObjects {
    /// The name of the instance.
    pub controller: ControllerName,
    /// `--built-in-users`.
    pub built_in_users: Vec<String>,
    /// The namespace of the Service in front of the webhook.
    pub namespace: String,
}

impl GuardObjects {
    /// Returns the name of the webhook configuration, which is also the prefix of the names of the policies.
    pub fn name(&self) -> String {
        object_name(&self.controller)
    }

    /// Returns the ValidatingWebhookConfiguration, without `caBundle`. The webhooks match as few requests about HPAs out
    /// of scope as possible, because each of these requests waits for `timeoutSeconds` while no replica answers.
    pub fn webhook(&self) -> Value {
        let [status, by_namespace, scale, events] = WEBHOOKS;
        let by_label = json!({"matchLabels": {LABEL: self.controller.as_str()}});
        let mut statuses = self.entry(status, &[], &status_rule());
        statuses["objectSelector"] = by_label.clone();
        let mut in_namespaces = self.entry(by_namespace, &[], &status_rule());
        in_namespaces["namespaceSelector"] = by_label;
        in_namespaces["objectSelector"] =
            json!({"matchExpressions": [{"key": LABEL, "operator": "DoesNotExist"}]});
        let about_an_hpa = json!({"name": "about-an-hpa", "expression": ABOUT_AN_HPA});
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": self.name()},
            "webhooks": [
                statuses,
                in_namespaces,
                self.entry(scale, &[], &scale_rule()),
                self.entry(events, &[about_an_hpa], &event_rule()),
            ],
        })
    }

    /// Returns the policy that lets the ServiceAccount `account` change only `caBundle` of the webhooks, and its binding.
    /// RBAC cannot limit an update to one field.
    pub fn update_policy(&self, account: &str) -> [Value; 2] {
        let name = format!("{}-webhook", self.name());
        let user = cel_string(&format!("system:serviceaccount:{}:{account}", self.namespace));
        let user =
            json!({"name": "concertina", "expression": format!("request.userInfo.username == {user}")});
        let rule = json!({
            "apiGroups": ["admissionregistration.k8s.io"], "apiVersions": ["*"], "operations": ["UPDATE"],
            "resources": ["validatingwebhookconfigurations"], "resourceNames": [self.name()], "scope": "Cluster",
        });
        let validation = |expression: String| {
            let message = "Concertina may change only caBundle";
            json!({"expression": expression, "message": message, "reason": "Forbidden"})
        };
        let same = |old: &str, new: &str, fields: &[&str]| {
            let same: Vec<_> =
                fields.iter().map(|field| format!("{old}.?{field} == {new}.?{field}")).collect();
            same.join(" && ")
        };
        let webhooks = format!(
            "object.webhooks.size() == oldObject.webhooks.size() && object.webhooks.all(new, \
             oldObject.webhooks.exists(old, old.name == new.name && {} && {}))",
            same("old.clientConfig", "new.clientConfig", &["url", "service"]),
            same("old", "new", &WEBHOOK_FIELDS),
        );
        let metadata = ["labels", "annotations", "finalizers", "ownerReferences"];
        let metadata = same("object.metadata", "oldObject.metadata", &metadata);
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [rule]},
                "matchConditions": [user],
                "validations": [validation(webhooks), validation(metadata)],
            },
        });
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        });
        [policy, binding]
    }

    fn entry(&self, name: &str, conditions: &[Value], rule: &Value) -> Value {
        let mut all = vec![self.user_condition()];
        all.extend_from_slice(conditions);
        json!({
            "name": name,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            // Without Concertina the built-in controller must continue to scale.
            "failurePolicy": "Ignore",
            "timeoutSeconds": 1,
            "clientConfig": {
                "service": {
                    "name": self.name(), "namespace": self.namespace, "path": PATH, "port": SERVICE_PORT,
                },
            },
            "matchConditions": all,
            "rules": [rule],
        })
    }

    /// Returns the ValidatingAdmissionPolicies for scales, for statuses and for events.
    pub fn policies(&self) -> [Value; 3] {
        let scale = self.policy(
            "scale",
            true,
            &[scale_rule()],
            // The plural of a kind is regular in the core group and in `apps`. In other groups, the plural can be any
            // word, so only the name and the group are compared.
            "params.spec.scaleTargetRef.name != request.name || (has(params.spec.scaleTargetRef.apiVersion) && \
             params.spec.scaleTargetRef.apiVersion.contains('/') ? \
             params.spec.scaleTargetRef.apiVersion.split('/')[0] : '') != request.resource.group || \
             (request.resource.group in ['', 'apps'] && params.spec.scaleTargetRef.kind.lowerAscii() + 's' != \
             request.resource.resource)",
            "this workload is scaled by Concertina",
        );
        let label = |object: &str| {
            format!(
                "has({object}.metadata.labels) && '{LABEL}' in {object}.metadata.labels ? \
                 {object}.metadata.labels['{LABEL}'] : ''"
            )
        };
        let status = self.policy(
            "status",
            false,
            &[status_rule()],
            // The labels of the stored object are used, because a writer may send stale labels.
            &format!(
                "(has(oldObject.metadata.labels) && '{LABEL}' in oldObject.metadata.labels ? \
                 oldObject.metadata.labels['{LABEL}'] : ({})) != '{}'",
                label("namespaceObject"),
                self.controller
            ),
            "this HPA is controlled by Concertina",
        );
        let events = self.policy(
            "events",
            true,
            &[event_rule()],
            "!(has(object.involvedObject) ? object.involvedObject.kind == 'HorizontalPodAutoscaler' && \
             object.involvedObject.name == params.metadata.name && object.involvedObject.namespace == \
             params.metadata.namespace : has(object.regarding) && object.regarding.kind == \
             'HorizontalPodAutoscaler' && object.regarding.name == params.metadata.name && \
             object.regarding.namespace == params.metadata.namespace)",
            "this HPA is controlled by Concertina",
        );
        [scale, status, events]
    }

    /// Returns the bindings of the policies. A policy with HPAs as parameters has two bindings: for HPAs with the
    /// label, and for HPAs without the label in namespaces with the label.
    pub fn bindings(&self) -> [Value; 5] {
        let by_hpa = json!({"matchLabels": {LABEL: self.controller.as_str()}});
        let without = json!({"matchExpressions": [{"key": LABEL, "operator": "DoesNotExist"}]});
        let namespaces = json!({"matchLabels": {LABEL: self.controller.as_str()}});
        let parameters = |selector: &Value| json!({"selector": selector, "parameterNotFoundAction": "Allow"});
        let binding = |suffix: &str, policy: &str, rest: Value| {
            let mut spec = json!({
                "policyName": format!("{}-{policy}", self.name()), "validationActions": ["Deny"],
            });
            if let (Some(spec), Value::Object(rest)) = (spec.as_object_mut(), rest) {
                spec.extend(rest);
            }
            json!({
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "ValidatingAdmissionPolicyBinding",
                "metadata": {"name": format!("{}-{policy}{suffix}", self.name())},
                "spec": spec,
            })
        };
        let hpa = |policy| binding("", policy, json!({"paramRef": parameters(&by_hpa)}));
        let namespace = |policy| {
            let rest = json!({
                "paramRef": parameters(&without), "matchResources": {"namespaceSelector": namespaces},
            });
            binding("-by-namespace", policy, rest)
        };
        [
            hpa("scale"),
            namespace("scale"),
            binding("", "status", json!({})),
            hpa("events"),
            namespace("events"),
        ]
    }

    fn policy(
        &self,
        suffix: &str,
        has_parameter: bool,
        rules: &[Value],
        expression: &str,
        message: &str,
    ) -> Value {
        let mut spec = json!({
            // If a policy fails to evaluate, the built-in controller must continue to scale.
            "failurePolicy": "Ignore",
            "matchConstraints": {"resourceRules": rules},
            "matchConditions": [self.user_condition()],
            "validations": [{"expression": expression, "message": message, "reason": "Forbidden"}],
        });
        if has_parameter {
            spec["paramKind"] = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"});
        }
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": format!("{}-{suffix}", self.name())},
            "spec": spec,
        })
    }

    fn user_condition(&self) -> Value {
        let users: Vec<_> = self.built_in_users.iter().map(|user| cel_string(user)).collect();
        let expression = format!("request.userInfo.username in [{}]", users.join(", "));
        json!({"name": "built-in-loop", "expression": expression})
    }
}

fn status_rule() -> Value {
    rule(&["autoscaling"], &["UPDATE"], "horizontalpodautoscalers/status")
}

fn scale_rule() -> Value {
    rule(&["*"], &["UPDATE"], "*/scale")
}

fn event_rule() -> Value {
    rule(&["", "events.k8s.io"], &["CREATE", "UPDATE"], "events")
}

fn rule(groups: &[&str], operations: &[&str], resource: &str) -> Value {
    json!({
        "apiGroups": groups, "apiVersions": ["*"], "operations": operations, "resources": [resource],
        "scope": "Namespaced",
    })
}

/// Returns a CEL string literal.
fn cel_string(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}
