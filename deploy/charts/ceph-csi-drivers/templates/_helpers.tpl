{{/* Labels of everything that the chart makes. */}}
{{- define "ceph-csi-drivers.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The chart's labels and those of the user. Takes list of root and the user's map. */}}
{{- define "ceph-csi-drivers.allLabels" -}}
{{- merge (include "ceph-csi-drivers.labels" (index . 0) | fromYaml) (index . 1 | default dict) | toYaml }}
{{- end }}

{{/* What of the name of a driver other names begin with. */}}
{{- define "ceph-csi-drivers.base" -}}
{{ lower . | replace "." "-" }}
{{- end }}

{{/*
The enabled drivers in a fixed order, as a YAML list of
{type, name, base, controllerAccount, nodeAccount, controllerOurs, nodeOurs, addons,
snapshots, metadata, omap, spec, labels, annotations}.
*/}}
{{- define "ceph-csi-drivers.list" -}}
{{- $root := . -}}
{{- $defaults := .Values.operatorConfig.driverSpecDefaults | default dict -}}
{{- if not .Values.operatorConfig.create }}{{ $defaults = dict }}{{ end -}}
{{- $list := list -}}
{{- range $type := list "rbd" "cephfs" "nfs" "nvmeof" -}}
{{- $d := get $root.Values.drivers $type | default dict -}}
{{- if $d.enabled -}}
{{- $name := required (printf "drivers.%s.name: a driver needs a name, such as %s.csi.ceph.com" $type $type) $d.name -}}
{{- if not (regexMatch (printf "^(.+\\.)?%s\\.csi\\.ceph\\.com$" $type) $name) -}}
{{- fail (printf "drivers.%s.name: %q does not end in %s.csi.ceph.com, by which the operator tells the type" $type $name $type) -}}
{{- end -}}
{{- $base := include "ceph-csi-drivers.base" $name -}}
{{- $spec := omit (deepCopy $d) "enabled" "name" "labels" "annotations" -}}
{{- if not $spec.snapshotPolicy -}}
{{- $spec = omit $spec "snapshotPolicy" -}}
{{- if or (eq $type "nvmeof") (and (not $defaults.snapshotPolicy) (not ($root.Capabilities.APIVersions.Has "snapshot.storage.k8s.io/v1"))) -}}
{{- $_ := set $spec "snapshotPolicy" "none" -}}
{{- end -}}
{{- end -}}
{{- $controller := $spec.controllerPlugin | default dict -}}
{{- $node := $spec.nodePlugin | default dict -}}
{{- $controllerAccount := $controller.serviceAccountName | default (printf "%s-ctrlplugin-sa" $base) -}}
{{- $nodeAccount := $node.serviceAccountName | default (printf "%s-nodeplugin-sa" $base) -}}
{{- $_ := set $spec "controllerPlugin" (merge (dict "serviceAccountName" $controllerAccount) $controller) -}}
{{- $_ := set $spec "nodePlugin" (merge (dict "serviceAccountName" $nodeAccount) $node) -}}
{{- $addons := $defaults.deployCsiAddons -}}
{{- if hasKey $spec "deployCsiAddons" }}{{ $addons = $spec.deployCsiAddons }}{{ end -}}
{{- $omap := $defaults.generateOMapInfo -}}
{{- if hasKey $spec "generateOMapInfo" }}{{ $omap = $spec.generateOMapInfo }}{{ end -}}
{{- $volumes := $controller.volumes | default (get ($defaults.controllerPlugin | default dict) "volumes") | default list -}}
{{- $metadata := false -}}
{{- range $volumes }}{{ if eq (get (.volume | default dict) "name" | default "") "tls-key" }}{{ $metadata = true }}{{ end }}{{ end -}}
{{- $list = append $list (dict
  "type" $type "name" $name "base" $base "spec" $spec
  "labels" ($d.labels | default dict) "annotations" ($d.annotations | default dict)
  "controllerAccount" $controllerAccount "controllerOurs" (not $controller.serviceAccountName)
  "nodeAccount" $nodeAccount "nodeOurs" (not $node.serviceAccountName)
  "addons" (not (not (and $addons (ne $type "nfs"))))
  "snapshots" (ne ($spec.snapshotPolicy | default $defaults.snapshotPolicy | default "volumeSnapshot") "none")
  "metadata" (and $metadata (eq $type "rbd"))
  "omap" (not (not (and $omap (has $type (list "rbd" "cephfs")))))
) -}}
{{- end -}}
{{- end -}}
{{- $list | toYaml -}}
{{- end }}

{{/* The namespaces whose Secrets drivers may read, sorted, as a YAML list. */}}
{{- define "ceph-csi-drivers.secretNamespaces" -}}
{{- $root := . -}}
{{- $found := dict .Release.Namespace true -}}
{{- range .Values.rbac.secretNamespaces }}{{ $_ := set $found . true }}{{ end -}}
{{- if .Values.rbac.discoverSecretNamespaces -}}
{{- range .Values.clientProfiles -}}
{{- $spec := .spec | default . -}}
{{- range $part := list "rbd" "cephFs" "nvmeof" -}}
{{- range $ref := get (get $spec $part | default dict) "cephCsiSecrets" | default dict | values -}}
{{- with $ref.namespace }}{{ $_ := set $found . true }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $names := list -}}
{{- range include "ceph-csi-drivers.list" . | fromYamlArray }}{{ $names = append $names .name }}{{ end -}}
{{- range (lookup "storage.k8s.io/v1" "StorageClass" "" "").items -}}
{{- if has .provisioner $names -}}
{{- range $key, $value := .parameters | default dict -}}
{{- if and (hasSuffix "-secret-namespace" $key) (not (contains "$" $value)) }}{{ $_ := set $found $value true }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- keys $found | sortAlpha | toYaml -}}
{{- end }}

{{/* An object of csi.ceph.io from an entry of a list. Takes list of root, kind, entry. */}}
{{- define "ceph-csi-drivers.object" -}}
{{- $root := index . 0 -}}
{{- $kind := index . 1 -}}
{{- $e := index . 2 -}}
apiVersion: csi.ceph.io/v1
kind: {{ $kind }}
metadata:
  name: {{ required (printf "every %s needs a name" $kind) $e.name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "ceph-csi-drivers.allLabels" (list $root $e.labels) | nindent 4 }}
  {{- with $e.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- $e.spec | default (omit $e "name" "labels" "annotations") | toYaml | nindent 2 }}
{{- end }}
