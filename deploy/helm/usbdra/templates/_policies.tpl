{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{- define "usbdra.agentUser" -}}system:serviceaccount:{{ .Release.Namespace }}:usbdra-agent{{- end }}
{{- define "usbdra.controllerUser" -}}system:serviceaccount:{{ .Release.Namespace }}:usbdra-controller{{- end }}

{{/* The node that the token of whoever asks was made for; "" when it names none. */}}
{{- define "usbdra.policyNode" -}}
- name: node
  expression: >-
    has(request.userInfo.extra) &&
    'authentication.kubernetes.io/node-name' in request.userInfo.extra &&
    request.userInfo.extra['authentication.kubernetes.io/node-name'].size() == 1
    ? request.userInfo.extra['authentication.kubernetes.io/node-name'][0] : ''
{{- end }}

{{/* Classes that reach our devices, as CEL on the class name `%s`. */}}
{{- define "usbdra.isDeviceClass" -}}
({{ .of }} == 'usb-devices.{{ .root.Values.group }}' || {{ .of }} in {{ .root.Values.policies.deviceClasses | toJson }})
{{- end }}
{{- define "usbdra.isLinkClass" -}}
({{ .of }} in ['usb-direct.{{ .root.Values.group }}', 'usb-vhci.{{ .root.Values.group }}'])
{{- end }}

{{/* One toleration `t` of a request `c` for a class of ours, or for any other. */}}
{{- define "usbdra.tolerationFits" -}}
{{- $ours := printf "(%s || %s)" (include "usbdra.isDeviceClass" (dict "of" "c.deviceClassName" "root" .)) (include "usbdra.isLinkClass" (dict "of" "c.deviceClassName" "root" .)) -}}
!has(t.key) || t.key == '' ? !{{ $ours }} :{{ " " -}}
t.key == '{{ .Values.group }}/assigned' ? (!has(t.operator) || t.operator == 'Equal') && has(t.value) && t.value == request.namespace :{{ " " -}}
t.key != '{{ .Values.group }}/unassigned'
{{- end }}

{{/* Rules for the devices of a claim or template; `.path` is where they are in the object. */}}
{{- define "usbdra.claimRules" -}}
{{- $group := .root.Values.group -}}
variables:
- name: requests
  expression: "has({{ .path }}.devices) && has({{ .path }}.devices.requests) && type({{ .path }}.devices.requests) != null_type ? {{ .path }}.devices.requests : []"
- name: exact
  expression: "variables.requests.filter(r, has(r.exactly)).map(r, r.exactly)"
- name: choices
  expression: "variables.requests.filter(r, has(r.firstAvailable)).map(r, r.firstAvailable)"
- name: links
  expression: >-
    variables.exact.filter(c, {{ include "usbdra.isLinkClass" (dict "of" "c.deviceClassName" "root" .root) }}).size() +
    variables.choices.filter(s, s.exists(c, {{ include "usbdra.isLinkClass" (dict "of" "c.deviceClassName" "root" .root) }})).size()
- name: devices
  expression: >-
    variables.exact.filter(c, {{ include "usbdra.isDeviceClass" (dict "of" "c.deviceClassName" "root" .root) }}).size() +
    variables.choices.filter(s, s.all(c, {{ include "usbdra.isDeviceClass" (dict "of" "c.deviceClassName" "root" .root) }})).size()
- name: named
  expression: >-
    (has({{ .path }}.devices) && has({{ .path }}.devices.config) ? {{ .path }}.devices.config : [])
    .filter(e, has(e.opaque) && e.opaque.driver == '{{ include "usbdra.driver" .root }}' &&
    has(e.opaque.parameters) && has(e.opaque.parameters.device)).size()
validations:
- expression: >-
    variables.exact.all(c, !has(c.tolerations) || c.tolerations.all(t, {{ include "usbdra.tolerationFits" .root }})) &&
    variables.choices.all(s, s.all(c, !has(c.tolerations) || c.tolerations.all(t, {{ include "usbdra.tolerationFits" .root }})))
  reason: Forbidden
  messageExpression: >-
    'USB devices of other namespaces are not tolerated from here: a toleration that may match {{ $group }}/assigned must be
    {key: {{ $group }}/assigned, operator: Equal, value: ' + request.namespace + '}, and {{ $group }}/unassigned cannot be tolerated'
- expression: "variables.links <= variables.devices + variables.named"
  reason: Forbidden
  message: >-
    a request for a link class (usb-direct.{{ $group }}, usb-vhci.{{ $group }}) needs a request for a USB device of its own:
    class usb-devices.{{ $group }}, or one of the chart's policies.deviceClasses
- expression: >-
    variables.exact.all(c, !{{ include "usbdra.isLinkClass" (dict "of" "c.deviceClassName" "root" .root) }} ||
    ((!has(c.count) || c.count <= 1) && (!has(c.allocationMode) || c.allocationMode != 'All'))) &&
    variables.choices.all(s, s.all(c, !{{ include "usbdra.isLinkClass" (dict "of" "c.deviceClassName" "root" .root) }} ||
    ((!has(c.count) || c.count <= 1) && (!has(c.allocationMode) || c.allocationMode != 'All'))))
  reason: Forbidden
  message: a request for a link class is for one link
{{- if .root.Values.requireAssignment }}
- expression: >-
    variables.named == 0 ||
    request.userInfo.username in ['system:kube-controller-manager', 'system:serviceaccount:kube-system:resource-claim-controller'] ||
    authorizer.group('{{ $group }}').resource('nodeusbdevices').check('patch').allowed()
  reason: Forbidden
  message: >-
    a claim that names its device in parameters is made by usbdra controller alone where devices are assigned: use the
    ResourceClaim or ResourceClaimTemplate of the USBDevice in this namespace
{{- end }}
{{- end }}

{{- define "usbdra.policyBinding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .name }}
  labels: {{- include "usbdra.labels" .root | nindent 4 }}
spec:
  policyName: {{ .name }}
  validationActions: {{ .actions | default (list "Deny") | toJson }}
{{- end }}
