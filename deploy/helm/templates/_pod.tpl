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

{{/* The image of every container. */}}
{{- define "baton.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end -}}

{{/* Environment of every container: what only the cluster knows, and secrets. */}}
{{- define "baton.environment" -}}
- name: BATON_CLUSTER__SECRET
  valueFrom:
    secretKeyRef: {name: {{ .Values.clusterSecret }}, key: secret}
- name: BATON_CLUSTER__ACCEPT_SECRET
  valueFrom:
    secretKeyRef: {name: {{ .Values.clusterSecret }}, key: accept, optional: true}
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

{{/* Mounts of every container. */}}
{{- define "baton.mounts" -}}
- {name: configuration, mountPath: /etc/baton, readOnly: true}
- {name: cache, mountPath: /var/cache/baton}
- {name: tmp, mountPath: /tmp}
{{- if .Values.tls.secretName }}
- {name: tls, mountPath: /etc/baton-tls, readOnly: true}
{{- end }}
{{- if .Values.model.volume }}
- {name: models, mountPath: /models, readOnly: true}
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
