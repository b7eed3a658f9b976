{{- define "stepwell.name" -}}
{{ .Values.nameOverride | default .Release.Name | trunc 53 | trimSuffix "-" }}
{{- end }}

{{- define "stepwell.selector" -}}
app.kubernetes.io/name: stepwell
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "stepwell.metadata" -}}
name: {{ include "stepwell.name" . }}
labels:
  {{- include "stepwell.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
  helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "stepwell.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{- define "stepwell.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false # otherwise variables such as STEPWELL_PORT appear in the environment
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.postgresCA }}
volumes:
  - name: postgres-ca # the authority of Postgres's certificate, for sslrootcert in DATABASE_URL
    configMap: {name: {{ . }}, optional: true}
{{- end }}
{{- end }}

{{- define "stepwell.container" -}}
name: stepwell
image: {{ include "stepwell.image" . }}
{{- if .Values.postgresCA }}
volumeMounts:
  - {name: postgres-ca, mountPath: /etc/postgres-ca, readOnly: true}
{{- end }}
resources: {{ toYaml .Values.resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}
