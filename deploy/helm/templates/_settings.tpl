{{/* What the chart itself sets of a component. Takes (list root component). */}}
{{- define "baton.own" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $values := get $root.Values $component -}}
model:
  path: {{ $root.Values.model.path | quote }}
discovery:
  {{- /* Workers do nothing to be found through Kubernetes. */}}
  kind: {{ ternary "static" $root.Values.discovery.kind (and (eq $root.Values.discovery.kind "kubernetes") (ne $component "router")) }}
  {{- if and (eq $root.Values.discovery.kind "kubernetes") (eq $component "router") }}
  kubernetes:
    selector: {{ printf "app.kubernetes.io/name=%s,app.kubernetes.io/instance=%s,llm-d.ai/role in (prefill,decode)" $root.Chart.Name $root.Release.Name | quote }}
    node_labels: {{ $root.Values.discovery.nodeLabels }}
  {{- end }}
  {{- if and (eq $root.Values.discovery.kind "etcd") $root.Values.discovery.etcd.tlsSecret }}
  etcd:
    tls:
      ca: /etc/baton-etcd/ca.crt
      cert: /etc/baton-etcd/tls.crt
      key: /etc/baton-etcd/tls.key
  {{- end }}
{{- if $root.Values.tls.secretName }}
tls:
  cert: /etc/baton-tls/tls.crt
  key: /etc/baton-tls/tls.key
  client_ca: /etc/baton-tls/ca.crt
  ca: /etc/baton-tls/ca.crt
  server_name: {{ include "baton.serverName" $root }}
{{- end }}
{{- with $root.Values.admin.keysSecret }}
admin:
  beyond_loopback: true
  keys_file: /etc/baton-operators/keys.json
{{- end }}
{{- if eq $component "router" }}
router:
  listen: "0.0.0.0:8000"
  ops_listen: "0.0.0.0:8001"
  drain_s: {{ $values.drainSeconds }}
  {{- if $values.keysSecret }}
  keys_file: /etc/baton-keys/keys.json
  {{- end }}
{{- if eq $root.Values.discovery.kind "static" }}
cluster:
  workers: {{ include "baton.workers" $root | quote }}
{{- end }}
{{- else }}
worker:
  listen: "0.0.0.0:9001"
  ops_listen: "0.0.0.0:9002"
  drain_s: {{ $values.drainSeconds }}
transport:
  listen: "0.0.0.0:9100"
{{- if $values.disks }}
{{- $folders := list }}
{{- range $at, $disk := $values.disks }}{{ $folders = append $folders (printf "/var/lib/baton/disk-%d" $at) }}{{ end }}
disk:
  folders: {{ join "," $folders | quote }}
{{- end }}
{{- if $values.sharedMemory }}
host:
  folder: /dev/shm/baton
{{- end }}
{{- end }}
{{- end -}}

{{/* The configuration of a component, as TOML. Takes (list root component). */}}
{{- define "baton.toml" -}}
{{- $root := index . 0 -}}
{{- $values := get $root.Values (index . 1) -}}
{{- $own := include "baton.own" . | fromYaml -}}
{{- $wanted := mergeOverwrite (deepCopy $root.Values.settings) (deepCopy $values.settings) -}}
{{- include "baton.clash" (list "" $wanted $own) -}}
{{- $all := mergeOverwrite $wanted $own -}}
{{- range $section := keys $all | sortAlpha }}
{{- include "baton.section" (list $section (get $all $section)) }}
{{- end }}
{{- end -}}

{{/* Fails if a setting is set by the values and by the chart. Takes (list prefix wanted own). */}}
{{- define "baton.clash" -}}
{{- $prefix := index . 0 -}}
{{- $own := index . 2 -}}
{{- range $key, $value := index . 1 -}}
{{- if and (hasKey $own $key) (kindIs "map" $value) -}}
{{- include "baton.clash" (list (printf "%s%s." $prefix $key) $value (get $own $key)) -}}
{{- else if hasKey $own $key -}}
{{- fail (printf "settings: %s%s is set by the chart; docs/operate/kubernetes.md names the value for it" $prefix $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A section of settings as TOML, then those within it. Takes (list name settings). */}}
{{- define "baton.section" -}}
{{- $name := index . 0 -}}
{{- $settings := index . 1 }}
[{{ $name }}]
{{ range $key := keys $settings | sortAlpha -}}
{{ if not (kindIs "map" (get $settings $key)) -}}
{{ $key }} = {{ get $settings $key | toJson }}
{{ end }}
{{- end }}
{{- range $key := keys $settings | sortAlpha }}
{{- if kindIs "map" (get $settings $key) }}
{{- include "baton.section" (list (printf "%s.%s" $name $key) (get $settings $key)) }}
{{- end }}
{{- end }}
{{- end -}}
