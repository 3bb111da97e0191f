{{/* Name of everything of this release. */}}
{{- define "baton.name" -}}
{{- if contains .Chart.Name .Release.Name -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{/* Name that the certificate of all pods is for. */}}
{{- define "baton.serverName" -}}
{{- .Values.tls.serverName | default (printf "%s-router" (include "baton.name" .)) -}}
{{- end -}}

{{/* Scheme of the API and of the port `ops`. */}}
{{- define "baton.scheme" -}}
{{- ternary "https" "http" (not (empty .Values.tls.secretName)) -}}
{{- end -}}

{{/* Labels that select the pods of a component. Takes (list root component). */}}
{{- define "baton.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of an object. Takes (list root component). */}}
{{- define "baton.labels" -}}
{{- $root := index . 0 -}}
{{ include "baton.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: {{ $root.Chart.Name }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version }}
{{- end -}}

{{/* Pods that a component can have. Takes its values. */}}
{{- define "baton.most" -}}
{{- if .autoscaling.enabled -}}{{ max (int .replicas) (int .autoscaling.max) }}{{- else -}}{{ int .replicas }}{{- end -}}
{{- end -}}

{{/* Session addresses of all workers, separated by commas. Names of pods stay, so that a pod is found after a restart. */}}
{{- define "baton.workers" -}}
{{- $root := . -}}
{{- $addresses := list -}}
{{- range $role := list "prefill" "decode" -}}
{{- $pool := printf "%s-%s" (include "baton.name" $root) $role -}}
{{- range $at := until (int (include "baton.most" (get $root.Values $role))) -}}
{{- $addresses = append $addresses (printf "%s-%d.%s:9001" $pool $at $pool) -}}
{{- end -}}
{{- end -}}
{{- join "," $addresses -}}
{{- end -}}

{{/* Service account of routers. Only theirs has rights. */}}
{{- define "baton.routerAccount" -}}
{{ include "baton.name" . }}{{ if eq .Values.discovery.kind "kubernetes" }}-router{{ end }}
{{- end -}}
