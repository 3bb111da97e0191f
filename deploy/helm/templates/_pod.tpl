{{/* What every pod has in its security context. Takes whether it runs as root. */}}
{{- define "baton.podSecurity" -}}
runAsNonRoot: {{ not . }}
runAsUser: {{ ternary 0 65532 . }}
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* The image of a container: of the root context, and of whether it has GPUs. */}}
{{- define "baton.image" -}}
{{- $root := index . 0 }}
{{- with $root.Values.image }}
{{- $tag := .tag | default $root.Chart.AppVersion }}
{{- if index $ 1 }}{{ $tag = .cudaTag | default (printf "%s-cuda" $tag) }}{{ end -}}
image: {{ printf "%s:%s" .repository $tag | quote }}
imagePullPolicy: {{ .pullPolicy }}
{{- end }}
{{- end -}}

{{/* Environment of every container: what only the cluster knows, and secrets. */}}
{{- define "baton.environment" -}}
- name: BATON_CLUSTER__SECRET
  valueFrom:
    secretKeyRef: {name: {{ .Values.clusterSecret }}, key: secret}
- name: BATON_CLUSTER__ACCEPT_SECRET
  valueFrom:
    secretKeyRef: {name: {{ .Values.clusterSecret }}, key: accept, optional: true}
{{- if eq .Values.discovery.kind "etcd" }}
{{- with .Values.discovery.etcd.secret }}
- name: BATON_DISCOVERY__ETCD__USERNAME
  valueFrom:
    secretKeyRef: {name: {{ . }}, key: username}
- name: BATON_DISCOVERY__ETCD__PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ . }}, key: password}
{{- end }}
{{- end }}
{{- with .Values.objectStore.secret }}
- name: AWS_ACCESS_KEY_ID
  valueFrom:
    secretKeyRef: {name: {{ . }}, key: key_id}
- name: AWS_SECRET_ACCESS_KEY
  valueFrom:
    secretKeyRef: {name: {{ . }}, key: secret}
- name: AWS_SESSION_TOKEN
  valueFrom:
    secretKeyRef: {name: {{ . }}, key: token, optional: true}
{{- end }}
{{- with .Values.hub.secret }}
- name: HF_TOKEN
  valueFrom:
    secretKeyRef: {name: {{ . }}, key: token}
{{- end }}
{{- with .Values.hub.endpoint }}
- name: HF_ENDPOINT
  value: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Mounts of a container. Takes (list root component). */}}
{{- define "baton.mounts" -}}
{{- $root := index . 0 -}}
- {name: configuration, mountPath: /etc/baton, readOnly: true}
- {name: cache, mountPath: /var/cache/baton}
- {name: tmp, mountPath: /tmp}
{{- if $root.Values.tls.secretName }}
- {name: tls, mountPath: /etc/baton-tls, readOnly: true}
{{- end }}
{{- if $root.Values.model.volume }}
- {name: models, mountPath: /models, readOnly: true}
{{- end }}
{{- range $name, $_ := include "baton.secrets" . | fromYaml }}
- {name: {{ $name }}, mountPath: /etc/baton-{{ $name }}, readOnly: true}
{{- end }}
{{- end -}}

{{/* Secrets that a component has as files below /etc, each with its name there. Takes (list root component). */}}
{{- define "baton.secrets" -}}
{{- $root := index . 0 -}}
{{- with (get $root.Values (index . 1)).keysSecret }}
keys: {{ . }}
{{- end }}
{{- with $root.Values.admin.keysSecret }}
operators: {{ . }}
{{- end }}
{{- if eq $root.Values.discovery.kind "etcd" }}
{{- with $root.Values.discovery.etcd.tlsSecret }}
etcd: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Volumes of every pod. Takes (list root component). */}}
{{- define "baton.volumes" -}}
{{- $root := index . 0 -}}
- name: configuration
  configMap: {name: {{ include "baton.name" $root }}-{{ index . 1 }}}
- name: cache
  {{- toYaml $root.Values.cache | nindent 2 }}
- name: tmp
  emptyDir: {}
{{- with $root.Values.tls.secretName }}
- name: tls
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- with $root.Values.model.volume }}
- name: models
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- range $name, $secret := include "baton.secrets" . | fromYaml }}
- name: {{ $name }}
  secret: {secretName: {{ $secret }}, defaultMode: 0440}
{{- end }}
{{- end -}}

{{/* Probes on the port `ops`. Takes (list root seconds), with the seconds that starting may take. */}}
{{- define "baton.probes" -}}
{{- $scheme := ternary ", scheme: HTTPS" "" (not (empty (index . 0).Values.tls.secretName)) -}}
startupProbe:
  httpGet: {path: /live, port: ops{{ $scheme }}}
  periodSeconds: 5
  failureThreshold: {{ div (add (int (index . 1)) 4) 5 }}
livenessProbe:
  httpGet: {path: /live, port: ops{{ $scheme }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /ready, port: ops{{ $scheme }}}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 2
{{- end -}}
