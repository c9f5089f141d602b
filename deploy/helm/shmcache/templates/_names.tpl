{{- /*
Named templates give one line each, so that `template` can insert them at any place: the chart needs only what Go's
text/template and Sprig have, and toYaml.
*/ -}}
{{- define "shmcache.name" -}}
{{- if contains "shmcache" .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}{{ printf "%s-shmcache" .Release.Name | trunc 63 | trimSuffix "-" }}{{ end -}}
{{- end -}}

{{- define "shmcache.selector" -}}
{app.kubernetes.io/name: shmcache, app.kubernetes.io/instance: {{ .Release.Name }}}
{{- end -}}

{{- define "shmcache.labels" -}}
{app.kubernetes.io/name: shmcache, app.kubernetes.io/instance: {{ .Release.Name }}, app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}, app.kubernetes.io/managed-by: {{ .Release.Service }}, helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}}
{{- end -}}

{{- define "shmcache.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- /* A reflector as an element of a list of containers. */ -}}
{{- define "shmcache.reflector" -}}
name: reflector
        image: {{ template "shmcache.image" . }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
        args: {{ concat (list "run" "--config" "/etc/shmcache/shmcache.toml" "--log-format" "json") .Values.reflector.extraArgs | toJson }}
        ports:
        - {name: metrics, containerPort: {{ .Values.metricsPort }}}
        startupProbe:          # the first lists are stored
          httpGet: {path: /readyz, port: metrics}
          periodSeconds: 1
          failureThreshold: 300
        livenessProbe:         # fails if stuck or stopped, not if the API server is away
          httpGet: {path: /livez, port: metrics}
          periodSeconds: 10
          timeoutSeconds: 5
        resources: {{ toJson .Values.reflector.resources }}
        securityContext:
          runAsNonRoot: true
          runAsUser: {{ .Values.cache.user }}
          runAsGroup: {{ .Values.cache.user }}
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities: {drop: [ALL]}
        volumeMounts:
        - {name: cache, mountPath: {{ .Values.cache.directory }}}
        - {name: configuration, mountPath: /etc/shmcache, readOnly: true}
{{- end -}}
