{{/* What autoscaling itself needs, in the cluster or in one namespace; what changes something is left out in shadow mode. */}}
{{- define "concertina.rules" -}}
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [list, watch]
{{- if not .Values.shadow }}
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers/status]
  verbs: [update]
{{- end }}
{{- range .Values.scaleTargets | default (list "*.*") }}
{{- $parts := splitn "." 2 . }}
- apiGroups: [{{ $parts._1 | default "" | quote }}]
  resources: [{{ printf "%s/scale" $parts._0 | quote }}]
  verbs: {{ if $.Values.shadow }}[get]{{ else }}[get, update]{{ end }}
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
{{- if not .Values.shadow }}
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
- apiGroups: [""]
  resources: [events]
  verbs: [list]
{{- end }}
{{- end }}
