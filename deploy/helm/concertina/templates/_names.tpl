{{/* Names and labels. Names derive from the release, so that a shadow and an acting release can coexist. */}}
{{- define "concertina.selector" -}}
app.kubernetes.io/name: concertina
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "concertina.labels" -}}
{{ include "concertina.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Whether Concertina acts next to the built-in controller. */}}
{{- define "concertina.labelled" -}}
{{- if eq .Values.scope "labelled" }}true{{ end }}
{{- end }}

{{/* Whether the pods serve the webhook. */}}
{{- define "concertina.webhook" -}}
{{- if and (include "concertina.labelled" .) (eq .Values.handover.guard "webhook") }}true{{ end }}
{{- end }}

{{/* Whether the account belongs to the release, not to the built-in controller. */}}
{{- define "concertina.ownAccount" -}}
{{- if and (not .Values.serviceAccount.name) (or .Values.shadow .Values.watchNamespaces (include "concertina.labelled" .)) }}true{{ end }}
{{- end }}

{{- define "concertina.account" -}}
{{- if include "concertina.ownAccount" . }}{{ .Release.Name }}
{{- else }}{{ .Values.serviceAccount.name | default "horizontal-pod-autoscaler" }}
{{- end }}
{{- end }}

{{- define "concertina.subjects" -}}
subjects:
  - kind: ServiceAccount
    namespace: {{ .Release.Namespace }}
    name: {{ include "concertina.account" . }}
{{- end }}

{{/* Namespace of the Lease. There is one per cluster for all release names, so that two releases never both act. */}}
{{- define "concertina.homeNamespace" -}}
{{- if or .Values.watchNamespaces (include "concertina.labelled" .) }}{{ .Release.Namespace }}{{ else }}kube-system{{ end }}
{{- end }}

{{- define "concertina.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default (printf "v%s" $.Chart.AppVersion) }}{{ end }}
{{- end }}
{{- end }}
