//! HPAs of 3 KB and pods of 5.5 KB as an API server sends them, with managedFields.

use std::fmt::Write;

/// The number of HPAs per namespace.
pub(super) const PER_NAMESPACE: usize = 100;

/// Returns `metadata.namespace` of an HPA and its pods.
pub(super) fn namespace(hpa: usize) -> String {
    format!("team-{:03}", hpa / PER_NAMESPACE)
}

/// Returns `metadata.name` of an HPA and its Deployment.
pub(super) fn app(hpa: usize) -> String {
    format!("checkout-{:03}", hpa % PER_NAMESPACE)
}

/// Returns `metadata.uid` of an object. Each kind has a different number.
pub(super) fn uid(kind: usize, number: usize) -> String {
    format!("{:08x}-{kind:04x}-4c3d-8e9f-{number:012x}", number.wrapping_mul(2_654_435_761) & 0xffff_ffff)
}

/// Returns the pod template hash in the names and labels of an HPA's pods.
pub(super) fn template_hash(hpa: usize) -> String {
    format!("{:010x}", hpa * 7_919_113)
}

/// Returns `metadata.name` of a pod.
pub(super) fn pod_name(hpa: usize, pod: usize) -> String {
    let suffix = hpa.wrapping_mul(1_000_003).wrapping_add(pod * 7_919) % 60_466_176;
    format!("{}-{}-{suffix:05x}", app(hpa), template_hash(hpa))
}

/// Returns an HPA on cpu and memory as JSON. `version` is its resourceVersion, and `status` its status as JSON.
pub(super) fn hpa(hpa: usize, version: usize, status: &str) -> String {
    let (namespace, app, uid) = (namespace(hpa), app(hpa), uid(2, hpa));
    format!(
        r#"{{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v2","metadata":{{"name":"{app}","namespace":"{namespace}","uid":"{uid}","resourceVersion":"{version}","generation":2,"creationTimestamp":"2026-03-01T09:58:12Z","labels":{{"app.kubernetes.io/instance":"{app}","app.kubernetes.io/managed-by":"Helm","app.kubernetes.io/name":"{app}","app.kubernetes.io/part-of":"shop","helm.sh/chart":"{app}-1.42.0"}},"annotations":{{"meta.helm.sh/release-name":"{app}","meta.helm.sh/release-namespace":"{namespace}"}},"managedFields":[{{"manager":"helm","operation":"Update","apiVersion":"autoscaling/v2","time":"2026-03-01T09:58:12Z","fieldsType":"FieldsV1","fieldsV1":{{"f:metadata":{{"f:annotations":{{".":{{}},"f:meta.helm.sh/release-name":{{}},"f:meta.helm.sh/release-namespace":{{}}}},"f:labels":{{".":{{}},"f:app.kubernetes.io/instance":{{}},"f:app.kubernetes.io/managed-by":{{}},"f:app.kubernetes.io/name":{{}},"f:app.kubernetes.io/part-of":{{}},"f:helm.sh/chart":{{}}}}}},"f:spec":{{"f:behavior":{{".":{{}},"f:scaleDown":{{".":{{}},"f:policies":{{}},"f:selectPolicy":{{}},"f:stabilizationWindowSeconds":{{}}}}}},"f:maxReplicas":{{}},"f:metrics":{{}},"f:minReplicas":{{}},"f:scaleTargetRef":{{}}}}}}}},{{"manager":"kube-controller-manager","operation":"Update","apiVersion":"autoscaling/v2","time":"2026-03-01T10:02:12Z","fieldsType":"FieldsV1","fieldsV1":{{"f:status":{{"f:conditions":{{".":{{}},"k:{{\"type\":\"AbleToScale\"}}":{{".":{{}},"f:lastTransitionTime":{{}},"f:message":{{}},"f:reason":{{}},"f:status":{{}},"f:type":{{}}}}}},"f:currentMetrics":{{}},"f:currentReplicas":{{}},"f:desiredReplicas":{{}},"f:lastScaleTime":{{}}}}}},"subresource":"status"}}]}},"spec":{},"status":{status}}}"#,
        spec(&app)
    )
}

fn spec(app: &str) -> String {
    format!(
        r#"{{"scaleTargetRef":{{"kind":"Deployment","name":"{app}","apiVersion":"apps/v1"}},"minReplicas":2,"maxReplicas":50,"metrics":[{{"type":"Resource","resource":{{"name":"cpu","target":{{"type":"Utilization","averageUtilization":70}}}}}},{{"type":"Resource","resource":{{"name":"memory","target":{{"type":"Utilization","averageUtilization":80}}}}}}],"behavior":{{"scaleDown":{{"stabilizationWindowSeconds":300,"selectPolicy":"Max","policies":[{{"type":"Percent","value":10,"periodSeconds":60}}]}}}}}}"#
    )
}

/// Returns the status of an HPA after some syncs, as JSON.
pub(super) fn status(replicas: usize) -> String {
    format!(
        r#"{{"lastScaleTime":"2026-03-01T10:00:12Z","currentReplicas":{replicas},"desiredReplicas":{replicas},"currentMetrics":[{{"type":"Resource","resource":{{"name":"cpu","current":{{"averageUtilization":68,"averageValue":"171m"}}}}}},{{"type":"Resource","resource":{{"name":"memory","current":{{"averageUtilization":61,"averageValue":"327680955733m"}}}}}}],"conditions":[{{"type":"AbleToScale","status":"True","lastTransitionTime":"2026-03-01T09:58:27Z","reason":"ReadyForNewScale","message":"recommended size matches current size"}},{{"type":"ScalingActive","status":"True","lastTransitionTime":"2026-03-01T09:59:12Z","reason":"ValidMetricFound","message":"the HPA was able to successfully calculate a replica count from cpu resource utilization (percentage of request)"}},{{"type":"ScalingLimited","status":"False","lastTransitionTime":"2026-03-01T10:00:12Z","reason":"DesiredWithinRange","message":"the desired count is within the acceptable range"}}]}}"#
    )
}

/// Returns a pod of an HPA's Deployment as JSON, with one container.
pub(super) fn pod(hpa: usize, pod: usize) -> String {
    let (namespace, app, hash, name) = (namespace(hpa), app(hpa), template_hash(hpa), pod_name(hpa, pod));
    let number = hpa * 100 + pod;
    let (node, second) = (number % 997, number % 60);
    let mut text = String::with_capacity(6 << 10);
    let put = |text: &mut String, part: std::fmt::Arguments<'_>| text.write_fmt(part).unwrap_or_default();
    put(
        &mut text,
        format_args!(
            r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","generateName":"{app}-{hash}-","namespace":"{namespace}","uid":"{uid}","resourceVersion":"{version}","generation":1,"creationTimestamp":"2026-03-01T09:58:{second:02}Z","labels":{{"app.kubernetes.io/instance":"{app}","app.kubernetes.io/name":"{app}","app.kubernetes.io/part-of":"shop","pod-template-hash":"{hash}"}},"annotations":{{"checksum/config":"8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4","prometheus.io/port":"9090","prometheus.io/scrape":"true"}},"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"{app}-{hash}","uid":"{owner}","controller":true,"blockOwnerDeletion":true}}],"#,
            uid = uid(1, number),
            version = 1_000_000 + number,
            owner = uid(3, hpa),
        ),
    );
    text.push_str(
        r#""managedFields":[{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","time":"2026-03-01T09:58:12Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{".":{},"f:checksum/config":{},"f:prometheus.io/port":{},"f:prometheus.io/scrape":{}},"f:generateName":{},"f:labels":{".":{},"f:app.kubernetes.io/instance":{},"f:app.kubernetes.io/name":{},"f:app.kubernetes.io/part-of":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"7c0f3f5e-0003-4c3d-8e9f-000000000001\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:env":{".":{},"k:{\"name\":\"LOG_LEVEL\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:imagePullPolicy":{},"f:livenessProbe":{".":{},"f:failureThreshold":{},"f:httpGet":{".":{},"f:path":{},"f:port":{},"f:scheme":{}},"f:periodSeconds":{},"f:successThreshold":{},"f:timeoutSeconds":{}},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:name":{},"f:protocol":{}}},"f:resources":{".":{},"f:limits":{".":{},"f:memory":{}},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}},{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":"2026-03-01T09:58:31Z","fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"ContainersReady\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}},"k:{\"type\":\"Ready\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}},"f:containerStatuses":{},"f:hostIP":{},"f:phase":{},"f:podIP":{},"f:podIPs":{".":{},"k:{\"ip\":\"10.4.17.29\"}":{".":{},"f:ip":{}}},"f:startTime":{}}},"subresource":"status"}]},"#,
    );
    put(
        &mut text,
        format_args!(
            r#""spec":{{"volumes":[{{"name":"kube-api-access-x7k2p","projected":{{"sources":[{{"serviceAccountToken":{{"expirationSeconds":3607,"path":"token"}}}},{{"configMap":{{"name":"kube-root-ca.crt","items":[{{"key":"ca.crt","path":"ca.crt"}}]}}}},{{"downwardAPI":{{"items":[{{"path":"namespace","fieldRef":{{"apiVersion":"v1","fieldPath":"metadata.namespace"}}}}]}}}}],"defaultMode":420}}}}],"containers":[{{"name":"main","image":"registry.example.com/shop/{app}:1.42.0","ports":[{{"name":"http","containerPort":8080,"protocol":"TCP"}}],"env":[{{"name":"LOG_LEVEL","value":"info"}}],"resources":{{"limits":{{"memory":"512Mi"}},"requests":{{"cpu":"250m","memory":"512Mi"}}}},"volumeMounts":[{{"name":"kube-api-access-x7k2p","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}}],"livenessProbe":{{"httpGet":{{"path":"/healthz","port":"http","scheme":"HTTP"}},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3}},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default","serviceAccount":"default","nodeName":"node-{node:04}","securityContext":{{}},"schedulerName":"default-scheduler","tolerations":[{{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}},{{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}}],"priority":0,"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"}},"status":{{"phase":"Running","conditions":[{{"type":"PodReadyToStartContainers","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-03-01T09:58:{second:02}Z"}},{{"type":"Initialized","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-03-01T09:58:{second:02}Z"}},{{"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-03-01T09:59:{second:02}Z"}},{{"type":"ContainersReady","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-03-01T09:59:{second:02}Z"}},{{"type":"PodScheduled","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-03-01T09:58:{second:02}Z"}}],"hostIP":"10.0.3.14","podIP":"10.4.17.29","podIPs":[{{"ip":"10.4.17.29"}}],"startTime":"2026-03-01T09:58:{second:02}Z","containerStatuses":[{{"name":"main","state":{{"running":{{"startedAt":"2026-03-01T09:58:{second:02}Z"}}}},"lastState":{{}},"ready":true,"restartCount":0,"image":"registry.example.com/shop/{app}:1.42.0","imageID":"registry.example.com/shop/{app}@sha256:8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4","containerID":"containerd://4b227777d4dd1fc61c6f884f48641d02b4d121d3fd328cb08b5531fcacdabf8a","started":true}}],"qosClass":"Burstable"}}}}"#
        ),
    );
    text
}
