{{- define "usbdra.driver" -}}usb.{{ .Values.group }}{{- end }}
{{- define "usbdra.signer" -}}
{{- if not .Values.controller.enabled }}{{ fail "agent.certificates.mode: without the controller (controller.enabled) only Files works" }}{{ end -}}
{{- if eq .Values.agent.certificates.mode "Cluster" }}{{ .Values.group }}/usbdra-node{{ else }}{{ .Values.agent.certificates.signerName }}{{ end }}
{{- end }}
{{- define "usbdra.assignment" -}}
{{- if and .Values.requireAssignment (not .Values.controller.enabled) }}{{ fail "requireAssignment needs controller.enabled: without it no device can be assigned" }}{{ end }}
{{- if .Values.requireAssignment }}Required{{ else if and .Values.policies.enabled .Values.controller.enabled }}Optional{{ else }}Off{{ end }}
{{- end }}
{{- define "usbdra.labels" -}}
app.kubernetes.io/name: usbdra
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* Networks from which anyone may connect to the exporter, as an environment variable. */}}
{{- define "usbdra.networks" -}}
{{- with .Values.exporter.allowedCIDRs -}}
- {name: USBDRA_ALLOWED_CIDRS, value: {{ join "," . | quote }}}
{{- end -}}
{{- end }}

{{/* Traces, as OpenTelemetry's own variables; NODE_NAME is one of the container's. */}}
{{- define "usbdra.tracing" -}}
{{- with .Values.tracing }}{{- if .endpoint -}}
- {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ .endpoint | quote }}}
- {name: OTEL_TRACES_SAMPLER, value: parentbased_traceidratio}
- {name: OTEL_TRACES_SAMPLER_ARG, value: {{ .samplingRatio | toString | quote }}}
- {name: OTEL_RESOURCE_ATTRIBUTES, value: k8s.node.name=$(NODE_NAME)}
{{- end }}{{ end -}}
{{- end }}

{{/* The Secret of the web page, where the page is served with TLS. */}}
{{- define "usbdra.webTls" -}}
{{- if .Values.controller.web.enabled }}{{ .Values.controller.web.tlsSecret }}{{ end }}
{{- end }}
