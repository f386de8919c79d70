{{/* Permissions for autoscaling, in the cluster or in one namespace. Shadow mode has no verbs that write. */}}
{{- define "concertina.rules" -}}
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [list, watch]
{{- if not (include "concertina.shadow" .) }}
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers/status]
  verbs: [update]
{{- end }}
{{- range .Values.scaleTargets | default (list "*.*") }}
{{- $parts := splitn "." 2 . }}
- apiGroups: [{{ $parts._1 | default "" | quote }}]
  resources: [{{ printf "%s/scale" $parts._0 | quote }}]
  verbs: {{ if include "concertina.shadow" $ }}[get]{{ else }}[get, update]{{ end }}
{{- end }}
{{- range .Values.scaleTargets }}
{{- $parts := splitn "." 2 . }}
- apiGroups: [{{ $parts._1 | default "" | quote }}]
  resources: [{{ $parts._0 | quote }}]
  verbs: [list, watch]
{{- if and $parts._1 (ne $parts._1 "apps") (not $.Values.watchNamespaces) }}
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  resourceNames: [{{ . | quote }}]
  verbs: [get]
{{- end }}
{{- else }}
- apiGroups: [apps]
  resources: [deployments, replicasets, statefulsets]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [replicationcontrollers]
  verbs: [list, watch]
{{- end }}
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
- apiGroups: [metrics.k8s.io]
  resources: [pods]
  verbs: [list]
- apiGroups: [custom.metrics.k8s.io]
  resources: ["*"]
  verbs: [get]
- apiGroups: [external.metrics.k8s.io]
  resources: ["*"]
  verbs: [list]
{{- range .Values.metricSources.adapters }}
- apiGroups: [{{ .apiGroup | quote }}]
  resources: ["*"]
  verbs: [get, list]
{{- end }}
{{- if .Values.scalingPolicies.enabled }}
- apiGroups: [autoscaling.concertina.dev]
  resources: [scalingpolicies, clusterscalingpolicies]
  verbs: [list, watch]
- apiGroups: [autoscaling.concertina.dev]
  resources: [scalingpolicies/status, clusterscalingpolicies/status]
  verbs: [patch]
{{- if not (include "concertina.labelled" .) }}
- apiGroups: [""]
  resources: [namespaces]
  verbs: [list, watch]
{{- end }}
{{- end }}
{{- if not (include "concertina.shadow" .) }}
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
- apiGroups: [""]
  resources: [events]
  verbs: [list]
{{- end }}
{{- end }}
