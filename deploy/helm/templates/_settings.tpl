{{/* What the chart itself sets of a component. Takes (list root component). */}}
{{- define "baton.own" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $values := get $root.Values $component -}}
model:
  path: {{ $root.Values.model.path | quote }}
{{- if eq $component "router" }}
router:
  listen: "0.0.0.0:8000"
  ops_listen: "0.0.0.0:8001"
  drain_s: {{ $values.drainSeconds }}
{{- if eq $root.Values.discovery.kind "kubernetes" }}
discovery:
  kind: kubernetes
discovery.kubernetes:
  selector: {{ printf "app.kubernetes.io/name=%s,app.kubernetes.io/instance=%s,llm-d.ai/role in (prefill,decode)" $root.Chart.Name $root.Release.Name | quote }}
  node_labels: {{ $root.Values.discovery.nodeLabels }}
{{- else }}
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
{{- range $section, $settings := $wanted -}}
{{- range $key, $value := $settings -}}
{{- if hasKey (get $own $section | default dict) $key -}}
{{- fail (printf "settings: %s.%s is set by the chart; docs/operate/kubernetes.md names the value for it" $section $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $all := mergeOverwrite $wanted $own -}}
{{- range $section := keys $all | sortAlpha }}
{{- $settings := get $all $section }}
[{{ $section }}]
{{ range $key := keys $settings | sortAlpha -}}
{{ $key }} = {{ get $settings $key | toJson }}
{{ end }}
{{- end }}
{{- end -}}
