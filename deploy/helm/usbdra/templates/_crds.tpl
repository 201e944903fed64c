{{- /* Parts that the kinds share. The version is usbdra/kube/custom.py's VERSION; a test compares. */}}
{{- define "usbdra.version" -}}v1alpha2{{- end }}

{{- define "usbdra.crdMetadata" -}}
labels:
  {{- include "usbdra.labels" . | nindent 2 }}
annotations:
  # Objects outlive the release: an assignment is the administrator's, not the chart's.
  helm.sh/resource-policy: keep
{{- end }}

{{- define "usbdra.conditions" -}}
conditions:
  description: What is the case; each type once.
  type: array
  x-kubernetes-list-type: map
  x-kubernetes-list-map-keys: [type]
  items:
    type: object
    required: [type, status, lastTransitionTime, reason, message]
    properties:
      type: {type: string, maxLength: 316}
      status: {type: string, enum: ["True", "False", Unknown]}
      observedGeneration: {type: integer, format: int64, minimum: 0}
      lastTransitionTime: {type: string, format: date-time}
      reason: {type: string, minLength: 1, maxLength: 1024, pattern: '^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$'}
      message: {type: string, maxLength: 32768}
{{- end }}

{{- define "usbdra.deviceStatus" -}}
observedGeneration:
  description: The generation of the spec that this status answers.
  type: integer
  format: int64
nodeName:
  description: The node the device is plugged into, or was last.
  type: string
host:
  description: The host outside the cluster the device is plugged into, or was last; it has no node then.
  type: string
attributes:
  description: What the device says of itself, and where it is; as of when it was last there.
  type: object
  properties:
    name: {type: string, description: Stable name on its node.}
    nodeName: {type: string, description: The node the device is plugged into.}
    vendorID: {type: string, description: Four lower-case hex digits.}
    productID: {type: string, description: Four lower-case hex digits.}
    bcd: {type: string, description: "Device release, four hex digits."}
    serial: {type: string, description: "Serial number, cut at 64 bytes."}
    manufacturer: {type: string}
    product: {type: string}
    bus: {type: string, description: Number of the bus on its node.}
    deviceNumber: {type: string, description: Number of the device on its bus.}
    devicePath: {type: string, description: The device's node on its node.}
    major: {type: integer, description: Major number of the device's node.}
    minor: {type: integer, description: Minor number of the device's node.}
    speed: {type: integer, description: "Mbit/s, 1.5 as 1."}
{{ include "usbdra.conditions" . }}
{{- end }}

{{- define "usbdra.machineAddress" -}}
description: Where the device is inside the virtual machine.
type: object
properties:
  bus: {type: integer, description: "Number of the USB bus, 0 for the one that devices are plugged into."}
  port: {type: integer, description: Port of that bus.}
{{- end }}
