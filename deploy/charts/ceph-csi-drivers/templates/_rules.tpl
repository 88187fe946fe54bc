{{/*
What the containers of the drivers ask of the API server. Each takes a driver of
"ceph-csi-drivers.list" and gives a YAML list of rules.
*/}}

{{/* Everywhere: PersistentVolumes, nodes and the like belong to no namespace. */}}
{{- define "ceph-csi-drivers.rules.controller.cluster" -}}
- apiGroups: [""]
  resources: [persistentvolumes]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, update, patch]
- apiGroups: [""]
  resources: [persistentvolumeclaims/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [events]
  verbs: [list, watch, create, update, patch]
- apiGroups: [storage.k8s.io]
  resources: [storageclasses, csinodes, volumeattributesclasses]
  verbs: [get, list, watch]
- apiGroups: [storage.k8s.io]
  resources: [volumeattachments]
  verbs: [get, list, watch, patch]
- apiGroups: [storage.k8s.io]
  resources: [volumeattachments/status]
  verbs: [patch]
{{- if .snapshots }}
- apiGroups: [snapshot.storage.k8s.io]
  resources: [volumesnapshots, volumesnapshotclasses]
  verbs: [get, list, watch]
- apiGroups: [snapshot.storage.k8s.io]
  resources: [volumesnapshotcontents]
  verbs: [get, list, watch, update, patch]
- apiGroups: [snapshot.storage.k8s.io]
  resources: [volumesnapshotcontents/status]
  verbs: [update, patch]
- apiGroups: [groupsnapshot.storage.k8s.io{{ if ne .type "nfs" }}, groupsnapshot.storage.openshift.io{{ end }}]
  resources: [volumegroupsnapshotclasses]
  verbs: [get, list, watch]
- apiGroups: [groupsnapshot.storage.k8s.io{{ if ne .type "nfs" }}, groupsnapshot.storage.openshift.io{{ end }}]
  resources: [volumegroupsnapshotcontents]
  verbs: [get, list, watch, update, patch]
- apiGroups: [groupsnapshot.storage.k8s.io{{ if ne .type "nfs" }}, groupsnapshot.storage.openshift.io{{ end }}]
  resources: [volumegroupsnapshotcontents/status]
  verbs: [update, patch]
{{- end }}
{{- if and (or .omap .addons) (has .type (list "rbd" "cephfs")) }}
- apiGroups: [replication.storage.openshift.io]
  resources: [volumegroupreplicationcontents, volumegroupreplicationclasses]
  verbs: [get, list, watch]
{{- end }}
{{- if or .addons .metadata }}
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
{{- end }}
{{- if .metadata }}
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
- apiGroups: [cbt.storage.k8s.io]
  resources: [snapshotmetadataservices]
  verbs: [get, list]
{{- end }}
{{- if .omap }}
# The generator reads the Secrets that PersistentVolumes name, through a cache of all.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch]
{{- end }}
{{- end }}

{{/* In the driver's namespace. */}}
{{- define "ceph-csi-drivers.rules.controller.own" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
{{- if ne .type "nfs" }}
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get]
{{- end }}
{{- if .addons }}
{{ include "ceph-csi-drivers.rules.addons" . }}
{{- end }}
{{- end }}

{{/* csi-addons: the sidecar registers as a CSIAddonsNode owned by its workload. */}}
{{- define "ceph-csi-drivers.rules.addons" -}}
- apiGroups: [csiaddons.openshift.io]
  resources: [csiaddonsnodes]
  verbs: [get, list, watch, create, update, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get]
- apiGroups: [apps]
  resources: [replicasets]
  verbs: [get]
- apiGroups: [apps]
  resources: [deployments/finalizers, daemonsets/finalizers]
  verbs: [update]
{{- end }}

{{- define "ceph-csi-drivers.rules.node.cluster" -}}
- apiGroups: [""]
  resources: [nodes]
  verbs: [get]
{{- if ne .type "nfs" }}
- apiGroups: [""]
  resources: [persistentvolumes, persistentvolumeclaims]
  verbs: [get]
- apiGroups: [""]
  resources: [events]
  verbs: [list, watch, create, update, patch]
{{- end }}
{{- if has .type (list "rbd" "nvmeof") }}
# After a restart: which volumes of this node have to be healed.
- apiGroups: [""]
  resources: [persistentvolumes]
  verbs: [list]
- apiGroups: [storage.k8s.io]
  resources: [volumeattachments]
  verbs: [get, list]
{{- end }}
{{- if .addons }}
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
{{- end }}
{{- end }}

{{- define "ceph-csi-drivers.rules.node.own" -}}
{{- if ne .type "nfs" -}}
- apiGroups: [""]
  resources: [secrets, configmaps]
  verbs: [get]
{{- if .addons }}
{{ include "ceph-csi-drivers.rules.addons" . }}
{{- end }}
{{- end }}
{{- end }}

{{/* A role and its binding. Takes dict: root, kind (Role, ClusterRole), name, namespace, rules, accounts. */}}
{{- define "ceph-csi-drivers.role" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "ceph-csi-drivers.labels" .root | nindent 4 }}
rules:
  {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .name }}b
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "ceph-csi-drivers.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
  {{- range .accounts }}
  - kind: ServiceAccount
    name: {{ . }}
    namespace: {{ $.root.Release.Namespace }}
  {{- end }}
{{- end }}
