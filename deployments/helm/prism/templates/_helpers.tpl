{{/* Name of the chart's objects: the release's, with the chart's in it. */}}
{{- define "prism.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "prism.kubeletPlugin" -}}
{{- printf "%s-kubelet-plugin" (include "prism.fullname" .) -}}
{{- end -}}

{{/*
The account that the plugin runs as. Everything that names the account takes it
from here: a policy for another account would never apply.
*/}}
{{- define "prism.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "prism.kubeletPlugin" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.create is false: set serviceAccount.name to an account that exists" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "prism.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}

{{/* Labels that never change in the life of a DaemonSet. */}}
{{- define "prism.kubeletPlugin.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: kubelet-plugin
{{- end -}}

{{- define "prism.labels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "prism.kubeletPlugin.labels" -}}
{{ include "prism.labels" . }}
app.kubernetes.io/component: kubelet-plugin
{{- end -}}
