{{/* Names and labels. Names derive from the release, so a shadow and an active release can coexist. The selector has the
name of the objects, so it selects no pods of another dependency of the same release. */}}
{{- define "concertina.selector" -}}
app.kubernetes.io/name: concertina
app.kubernetes.io/instance: {{ include "concertina.fullname" . }}
{{- end }}

{{- define "concertina.labels" -}}
{{ include "concertina.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: concertina
app.kubernetes.io/component: controller
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The name of the objects, by Helm's convention. As a dependency, the chart always adds its name or alias, because other
objects may have the name of the release. */}}
{{- define "concertina.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name }}
{{- $alone := and .Chart.IsRoot (contains $name .Release.Name) }}
{{- $default := ternary .Release.Name (printf "%s-%s" .Release.Name $name) $alone }}
{{- .Values.fullnameOverride | default $default | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The mode, also from the values `shadow` and `scope` of earlier charts. */}}
{{- define "concertina.mode" -}}
{{- $modes := list }}
{{- if ne .Values.mode "replace" }}{{ $modes = append $modes .Values.mode }}{{ end }}
{{- if .Values.shadow }}{{ $modes = append $modes "shadow" }}{{ end }}
{{- if eq (.Values.scope | default "all") "labelled" }}{{ $modes = append $modes "labelled" }}{{ end }}
{{- $modes = uniq $modes }}
{{- if gt (len $modes) 1 }}
{{- fail (printf "the values ask for the modes %s, and a release has one: remove shadow and scope, set mode, and install a release for each mode" (join " and " $modes)) }}
{{- end }}
{{- first $modes | default "replace" }}
{{- end }}

{{/* Whether Concertina acts next to the built-in controller. */}}
{{- define "concertina.labelled" -}}
{{- if eq (include "concertina.mode" .) "labelled" }}true{{ end }}
{{- end }}

{{/* Whether Concertina only compares. */}}
{{- define "concertina.shadow" -}}
{{- if eq (include "concertina.mode" .) "shadow" }}true{{ end }}
{{- end }}

{{/* Whether the pods serve the webhook. */}}
{{- define "concertina.webhook" -}}
{{- if and (include "concertina.labelled" .) (eq .Values.handover.guard "webhook") }}true{{ end }}
{{- end }}

{{/* Whether metrics come from kubelets. */}}
{{- define "concertina.kubelets" -}}
{{- if (.Values.metricSources.kubelet | default dict).enabled }}true{{ end }}
{{- end }}

{{- define "concertina.account" -}}
{{ .Values.serviceAccount.name | default (include "concertina.fullname" .) }}
{{- end }}

{{/* The name of the guard's objects. Names have no upper case and no underscore. */}}
{{- define "concertina.guard" -}}
{{ printf "%s-handover" (.Values.handover.controllerName | lower | replace "_" "-") }}
{{- end }}

{{/* The name of the Lease: that of the instance. */}}
{{- define "concertina.lease" -}}
{{- if include "concertina.labelled" . }}{{ .Values.handover.controllerName | lower | replace "_" "-" }}{{ else }}concertina{{ end }}
{{- end }}

{{/* Whether the role in kube-system for client certificates is created. */}}
{{- define "concertina.clientCertificates" -}}
{{- if and .Values.clientCertificates (not .Values.watchNamespaces) (not (include "concertina.labelled" .)) }}true{{ end }}
{{- end }}

{{- define "concertina.subjects" -}}
subjects:
  - kind: ServiceAccount
    namespace: {{ .Release.Namespace }}
    name: {{ include "concertina.account" . }}
{{- end }}

{{- define "concertina.image" -}}
{{- with .Values.image -}}
{{- with .registry | default ($.Values.global).imageRegistry }}{{ . }}/{{ end }}{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default (printf "v%s" $.Chart.AppVersion) }}{{ end }}
{{- end }}
{{- end }}
