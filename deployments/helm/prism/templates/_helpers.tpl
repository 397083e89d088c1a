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
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Labels that are immutable in a DaemonSet. */}}
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

{{/* The ConfigMap with the node configurations; empty without one. */}}
{{- define "prism.config" -}}
{{- $config := .Values.config -}}
{{- if and .Values.migStrategy (or $config.name (and $config.create (not $config.map))) -}}
{{- fail "migStrategy is set and the chart does not make the entries of the ConfigMap: set flags.migStrategy in its entries" -}}
{{- end -}}
{{- if and $config.map $config.name -}}
{{- fail "config.map and config.name are both set: keep map for a ConfigMap of the chart, or name for one that exists" -}}
{{- else if $config.map -}}
{{- if and $config.default (not (hasKey $config.map $config.default)) -}}
{{- fail (printf "config.default is %q, which config.map does not have; it has: %s" $config.default (keys $config.map | sortAlpha | join ", ")) -}}
{{- else if and (not $config.default) (gt (len $config.map) 1) (not (hasKey $config.map "default")) (not (has "empty" $config.fallbackStrategies)) -}}
{{- fail (printf "config.map has several entries and none is called default: set config.default to one of them, or add empty to config.fallbackStrategies: %s" (keys $config.map | sortAlpha | join ", ")) -}}
{{- end -}}
{{- printf "%s-config" (include "prism.fullname" .) -}}
{{- else if $config.name -}}
{{- $config.name -}}
{{- else if or $config.create .Values.migStrategy -}}
{{- printf "%s-config" (include "prism.fullname" .) -}}
{{- else if $config.default -}}
{{- fail (printf "config.default is %q and there is no configuration: set config.map or config.name" $config.default) -}}
{{- end -}}
{{- end -}}

{{/* Whether the chart makes that ConfigMap; empty if not. */}}
{{- define "prism.config.create" -}}
{{- if or .Values.config.map .Values.migStrategy (and .Values.config.create (not .Values.config.name)) }}true{{ end -}}
{{- end -}}

{{/*
The text of the node configurations, which are text or YAML in the values.
migStrategy is set in each that is an object; without config.map in one entry
that advertises all GPUs whole.
*/}}
{{- define "prism.config.data" -}}
{{- $entries := .Values.config.map -}}
{{- if and .Values.migStrategy (not $entries) -}}
{{- $entries = dict (default "default" .Values.config.default) (dict "apiVersion" "gpu.prism.dev/v1alpha1" "kind" "NodeConfig") -}}
{{- end -}}
{{- range $key, $document := $entries }}
{{- with $.Values.migStrategy }}
{{- $parsed := kindIs "string" $document | ternary ($document | toString | fromYaml) $document }}
{{- if and (kindIs "map" $parsed) (not (hasKey $parsed "Error")) }}
{{- $flags := kindIs "map" $parsed.flags | ternary $parsed.flags dict }}
{{- $document = merge (dict "flags" (merge (dict "migStrategy" .) $flags)) $parsed }}
{{- end }}
{{- end }}
{{ $key | quote }}: |2
  {{- if kindIs "string" $document }}
  {{- $document | trimSuffix "\n" | nindent 2 }}
  {{- else }}
  {{- toYaml $document | nindent 2 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/*
The MIG profiles that the entries of config.map name, as JSON: a list of
profiles under the key "profiles". What is no NodeConfig names none.
*/}}
{{- define "prism.mig.profiles" -}}
{{- $profiles := list -}}
{{- range $document := .Values.config.map -}}
{{- $config := $document -}}
{{- if kindIs "string" $document -}}
{{- $config = fromYaml $document -}}
{{- end -}}
{{- $gpus := get (kindIs "map" $config | ternary $config dict) "gpus" -}}
{{- range $entry := kindIs "slice" $gpus | ternary $gpus list -}}
{{- $mig := get (kindIs "map" $entry | ternary $entry dict) "mig" -}}
{{- $mig = kindIs "map" $mig | ternary $mig dict -}}
{{- $listed := get $mig "profiles" -}}
{{- $replicas := get $mig "replicas" -}}
{{- $profiles = concat $profiles (kindIs "slice" $listed | ternary $listed list) (keys (kindIs "map" $replicas | ternary $replicas dict)) -}}
{{- end -}}
{{- end -}}
{{- $valid := list -}}
{{- range $profile := $profiles -}}
{{- if and (kindIs "string" $profile) (regexMatch "^[1-9][0-9]?g\\.[0-9]{1,4}gb([+-][a-z]+(\\.[a-z]+)*)*$" $profile) -}}
{{- $valid = append $valid $profile -}}
{{- end -}}
{{- end -}}
{{- dict "profiles" ($valid | uniq | sortAlpha) | toJson -}}
{{- end -}}

{{/*
Name of the class of a MIG profile, without the driver's, as the controller
names it: different for different profiles.
*/}}
{{- define "prism.mig.class" -}}
{{- if and (le (len .) 32) (regexMatch "^[1-9][0-9]?g\\.[0-9]{1,4}gb([+-][a-z]+(\\.[a-z]+)*)?$" .) (not (contains "+no." (printf "%s." .))) -}}
mig-{{ . | replace "-" "-no-" | replace "." "-" | replace "+" "-" }}
{{- else -}}
mig-profile-{{ sha256sum . | trunc 16 }}
{{- end -}}
{{- end -}}

{{/*
The classes of MIG profiles, as JSON: under the key "made" those of the chart,
under "left" existing ones of another owner, which Helm refuses to take over. The
chart creates none where the controller does.
*/}}
{{- define "prism.mig.classes" -}}
{{- $made := list -}}
{{- $left := list -}}
{{- if and .Values.deviceClasses.create (not (include "prism.controller" .)) -}}
{{- range $profile := (include "prism.mig.profiles" . | fromJson).profiles -}}
{{- $class := dict "profile" $profile "name" (printf "%s.%s" (include "prism.mig.class" $profile) $.Values.driverName) -}}
{{- $found := lookup "resource.k8s.io/v1" "DeviceClass" "" $class.name -}}
{{- if or (not $found) (eq (dig "metadata" "annotations" "meta.helm.sh/release-name" "" $found) $.Release.Name) -}}
{{- $made = append $made $class -}}
{{- else -}}
{{- $left = append $left $class -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- dict "made" $made "left" $left | toJson -}}
{{- end -}}

{{/* Name of the DaemonSet of the MPS service; empty where it is off. */}}
{{- define "prism.mps" -}}
{{- if .Values.mps.enabled -}}
{{- printf "%s-mps" (include "prism.fullname" .) -}}
{{- end -}}
{{- end -}}

{{- define "prism.mps.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: mps
{{- end -}}

{{- define "prism.mps.labels" -}}
{{ include "prism.labels" . }}
app.kubernetes.io/component: mps
{{- end -}}

{{/* Name of the DaemonSet of the exporter; empty where it is off. */}}
{{- define "prism.exporter" -}}
{{- if .Values.exporter.enabled -}}
{{- printf "%s-exporter" (include "prism.fullname" .) -}}
{{- end -}}
{{- end -}}

{{- define "prism.exporter.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: exporter
{{- end -}}

{{- define "prism.exporter.labels" -}}
{{ include "prism.labels" . }}
app.kubernetes.io/component: exporter
{{- end -}}

{{/* The ConfigMap with the counters of /metrics/dcgm; empty for the default ones. */}}
{{- define "prism.exporter.counters" -}}
{{- $counters := .Values.exporter.counters -}}
{{- if and $counters.csv $counters.configMap -}}
{{- fail "exporter.counters.csv and exporter.counters.configMap are both set: keep csv for a ConfigMap of the chart, or configMap for one that exists" -}}
{{- else if $counters.csv -}}
{{- printf "%s-exporter-counters" (include "prism.fullname" .) -}}
{{- else -}}
{{- $counters.configMap -}}
{{- end -}}
{{- end -}}

{{/*
The endpoints of a PodMonitor or ServiceMonitor of the exporter. The labels
namespace, pod and container of a series are those of the container that has the
GPU. A series without them must not get those of the exporter.
*/}}
{{- define "prism.exporter.endpoints" -}}
{{- range .paths }}
- port: metrics
  path: {{ . }}
  interval: {{ $.interval }}
  honorLabels: true
  relabelings:
  - action: labeldrop
    regex: namespace|pod|container
  - sourceLabels: [__meta_kubernetes_pod_node_name]
    targetLabel: node
  # Both pages have the same address: up and scrape_* would be the same series twice.
  - sourceLabels: [__metrics_path__]
    targetLabel: metrics_path
  {{- with $.endpoint }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Name of the ConfigMap with policy and defaults for profiles; empty where processes are not profiled and no reports are kept. */}}
{{- define "prism.profiler" -}}
{{- if or .Values.profiler.tools .Values.profiler.reports.keep -}}
{{- printf "%s-profiler" (include "prism.fullname" .) -}}
{{- end -}}
{{- end -}}

{{- define "prism.profiler.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: profiler
{{- end -}}

{{- define "prism.profiler.objectLabels" -}}
{{ include "prism.labels" . }}
app.kubernetes.io/component: profiler
{{- end -}}

{{/* The flags of prism-tool for one version, as a list. */}}
{{- define "prism.profiler.flags" -}}
- {{ printf "--version=%s" .tool.version | quote }}
- {{ printf "--path=%s" .tool.path | quote }}
- {{ printf "--versions=%s" (join "," .versions) | quote }}
- {{ printf "--state-dir=%s" .state | quote }}
- {{ printf "--cdi-roots=%s" (clean .root.Values.cdiRoot) | quote }}
- {{ printf "--work-dir=%s" .work | quote }}
- {{ printf "--import-memory=%s" .root.Values.profiler.importMemory | quote }}
- {{ printf "--import-space=%s" (toString .root.Values.profiler.importSpace) | quote }}
- {{ printf "--import-deadline=%s" .root.Values.profiler.importDeadline | quote }}
- {{ printf "--log-format=%s" .root.Values.logFormat | quote }}
- {{ printf "-v=%v" .root.Values.logVerbosity | quote }}
{{- end -}}

{{/* Name of the DaemonSet of the collector of performance counters; empty if it is off. */}}
{{- define "prism.collector" -}}
{{- if (.Values.profiler.collector | default dict).enabled -}}
{{- printf "%s-collector" (include "prism.fullname" .) -}}
{{- end -}}
{{- end -}}

{{- define "prism.collector.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: collector
{{- end -}}

{{- define "prism.collector.labels" -}}
{{ include "prism.labels" . }}
app.kubernetes.io/component: collector
{{- end -}}

{{/* The claim of its pods: all GPUs of the node by admin access, in use or not. */}}
{{- define "prism.collector.claim" -}}
devices:
  requests:
  - name: gpus
    exactly:
      deviceClassName: monitor.{{ .Values.driverName }}
      adminAccess: true
      tolerations:
      - operator: Exists
{{- end -}}

{{/* Name of the template of these claims: its spec is immutable, so a different one gets another name. */}}
{{- define "prism.collector.template" -}}
{{- printf "%s-%s" (include "prism.collector" .) (include "prism.collector.claim" . | sha256sum | trunc 8) -}}
{{- end -}}

{{/* The tool of the collector, as JSON: the version that the values name, or the highest one. */}}
{{- define "prism.collector.tool" -}}
{{- $wanted := .Values.profiler.collector.toolVersion -}}
{{- $versions := list -}}
{{- $chosen := dict -}}
{{- $highest := "" -}}
{{- range $tool := .Values.profiler.tools -}}
{{- $versions = append $versions $tool.version -}}
{{- /* Compared as text, so all numbers get the same length. */ -}}
{{- $key := "" -}}
{{- range $number := splitList "." $tool.version -}}{{- $key = printf "%s%09d." $key (atoi $number) -}}{{- end -}}
{{- if and (or (not $wanted) (eq $wanted $tool.version)) (gt $key $highest) -}}
{{- $highest = $key -}}
{{- $chosen = $tool -}}
{{- end -}}
{{- end -}}
{{- if not $chosen -}}
{{- fail (printf "profiler.collector.toolVersion is %q, which profiler.tools does not have; it has: %s" $wanted (join ", " $versions)) -}}
{{- end -}}
{{- toJson $chosen -}}
{{- end -}}

{{/* The rules of the cluster for profiles, without what is empty. */}}
{{- define "prism.profiler.rules" -}}
{{- $policy := dict -}}
{{- range $key, $value := .Values.profiler.policy -}}
{{- if $value -}}{{- $_ := set $policy $key $value -}}{{- end -}}
{{- end -}}
{{- toYaml (dict "policy" $policy "defaults" (ternary list .Values.profiler.defaults (empty .Values.profiler.tools))) -}}
{{- end -}}

{{/* The entries of config.map that share GPUs with MPS, in a sentence; empty without any. */}}
{{- define "prism.mps.configured" -}}
{{- $found := list -}}
{{- range $key, $document := .Values.config.map -}}
{{- $config := kindIs "string" $document | ternary ($document | toString | fromYaml) $document -}}
{{- $config = kindIs "map" $config | ternary $config dict -}}
{{- $sharing := get $config "sharing" -}}
{{- $uses := hasKey (kindIs "map" $sharing | ternary $sharing dict) "mps" -}}
{{- $gpus := get $config "gpus" -}}
{{- range $entry := kindIs "slice" $gpus | ternary $gpus list -}}
{{- $modes := get (kindIs "map" $entry | ternary $entry dict) "modes" -}}
{{- $uses = or $uses (has "mps" (kindIs "slice" $modes | ternary $modes list)) -}}
{{- end -}}
{{- if $uses -}}
{{- $found = append $found $key -}}
{{- end -}}
{{- end -}}
{{- $found | sortAlpha | join ", " -}}
{{- end -}}

{{/* Name of the Deployment of prism-controller; empty where it is off. */}}
{{- define "prism.controller" -}}
{{- if .Values.controller.enabled -}}
{{- printf "%s-controller" (include "prism.fullname" .) -}}
{{- end -}}
{{- end -}}

{{/* Name of the ClusterRole for labels of Nodes, as the controller names it, and of its binding; empty where the controller is off. */}}
{{- define "prism.nodeLabels" -}}
{{- with include "prism.controller" . -}}
{{- printf "%s-nodelabels" . -}}
{{- else -}}
{{- if (.Values.nodeLabels | default dict).enabled -}}
{{- fail "nodeLabels.enabled needs the controller, which sets and removes the labels: set controller.enabled=true" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Name of the Deployment that runs prism-controller, for DeviceClasses or for reports; empty where neither is wanted. */}}
{{- define "prism.controller.deployment" -}}
{{- if or .Values.controller.enabled (include "prism.profiler" .) -}}
{{- printf "%s-controller" (include "prism.fullname" .) -}}
{{- end -}}
{{- end -}}

{{/* Name of the Secret with which the controller answers the API server, for admission or for reports; empty where neither is wanted. */}}
{{- define "prism.controller.serving" -}}
{{- $certificate := .Values.controller.admission.certificate -}}
{{- if or (include "prism.admission" .) (include "prism.profiler" .) -}}
{{- if and $certificate.caBundle (not $certificate.secretName) -}}
{{- fail "controller.admission.certificate.caBundle is set without secretName: name its Secret, or leave both to the chart" -}}
{{- end -}}
{{- default (printf "%s-controller-admission" (include "prism.fullname" .)) $certificate.secretName -}}
{{- end -}}
{{- end -}}

{{/* A map of labels as the text of a selector. */}}
{{- define "prism.selector.text" -}}
{{- $all := list -}}
{{- range $key, $value := . -}}{{- $all = append $all (printf "%s=%s" $key $value) -}}{{- end -}}
{{- join "," $all -}}
{{- end -}}

{{/* Names of the Secrets with which plugins answer controllers about reports, and controllers ask. */}}
{{- define "prism.reports.node" -}}
{{- if include "prism.profiler" . -}}
{{- default (printf "%s-reports-node" (include "prism.fullname" .)) .Values.profiler.reports.certificate.nodeSecretName -}}
{{- end -}}
{{- end -}}

{{- define "prism.reports.controller" -}}
{{- if include "prism.profiler" . -}}
{{- default (printf "%s-reports-controller" (include "prism.fullname" .)) .Values.profiler.reports.certificate.controllerSecretName -}}
{{- end -}}
{{- end -}}

{{/* Name of the Secret with the webhook's certificate; empty where the webhook is off. */}}
{{- define "prism.admission" -}}
{{- $admission := .Values.controller.admission -}}
{{- with include "prism.controller" . -}}
{{- if $admission.enabled -}}
{{- if and $admission.certificate.caBundle (not $admission.certificate.secretName) -}}
{{- fail "controller.admission.certificate.caBundle is set without secretName: name its Secret, or leave both to the chart" -}}
{{- end -}}
{{- default (printf "%s-admission" .) $admission.certificate.secretName -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "prism.controller.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end -}}

{{- define "prism.controller.labels" -}}
{{ include "prism.labels" . }}
app.kubernetes.io/component: controller
{{- end -}}

{{/*
The class that selects MIG devices by capacity; empty where there is none. It
has no selectors, so it is only created with its policy, and where API servers
keep capacity requests. A vendor's suffix of a version is a pre-release.
*/}}
{{- define "prism.byCapacity" -}}
{{- if and .Values.deviceClasses.create .Values.admissionPolicy.create (semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version) -}}
{{- printf "by-capacity.%s" .Values.driverName -}}
{{- end -}}
{{- end -}}


{{/* Subjects of an RBAC binding, with the API group of their kind. */}}
{{- define "prism.subjects" -}}
{{- range . }}
- kind: {{ .kind }}
  {{- if ne .kind "ServiceAccount" }}
  apiGroup: rbac.authorization.k8s.io
  {{- end }}
  name: {{ .name | quote }}
  {{- with .namespace }}
  namespace: {{ . | quote }}
  {{- end }}
{{- end }}
{{- end -}}
