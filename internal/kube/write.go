package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ServerSideApply applies u, made by ToApply, as FieldOwner and with force: what we
// want wins over what others have set in the same fields. u is overwritten with
// the answer of the API server.
func ServerSideApply(ctx context.Context, c client.Client, u *unstructured.Unstructured) error {
	return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(FieldOwner), client.ForceOwnership)
}

// AdoptPatch gives the patch that hands the fields which managers (of an operator
// that was here before) own by Update over to FieldOwner, so that the next apply can
// remove what is no longer wanted. nil means that there is nothing to hand over.
// live must have been read with its managedFields. The patch carries the
// resourceVersion, so it cannot act on an object that has changed.
func AdoptPatch(live client.Object, managers sets.Set[string]) (client.Patch, error) {
	if managers.Len() == 0 {
		return nil, nil
	}
	if _, ours := live.GetAnnotations()[AppliedHash]; ours {
		return nil, nil
	}
	found := false
	for _, entry := range live.GetManagedFields() {
		found = found || entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.Subresource == "" && managers.Has(entry.Manager)
	}
	if !found {
		return nil, nil
	}
	data, err := csaupgrade.UpgradeManagedFieldsPatch(live, managers, FieldOwner)
	if err != nil {
		return nil, fmt.Errorf("taking over the fields of %T %s: %w", live, live.GetName(), err)
	}
	if data == nil {
		return nil, nil
	}
	return client.RawPatch(types.JSONPatchType, data), nil
}

// immutable holds, by kind, the fields that cannot be changed once an object
// exists, from the validation of Kubernetes. An entry covers what is below it.
func immutable(kind string) []string {
	switch kind {
	case "Deployment", "DaemonSet":
		return []string{"spec.selector"}
	case "StatefulSet":
		return []string{"spec"} // all but a few fields; the server names just "spec"
	case "Job":
		return []string{"spec.selector", "spec.template", "spec.completions", "spec.completionMode", "spec.podFailurePolicy"}
	case "PersistentVolumeClaim":
		return []string{"spec"}
	case "PersistentVolume":
		return []string{"spec.persistentvolumesource", "spec.persistentVolumeSource", "spec.nodeAffinity"}
	case "Service":
		return []string{"spec.clusterIP", "spec.clusterIPs"}
	case "Secret", "ConfigMap":
		return []string{"data", "stringData", "binaryData", "immutable", "type"}
	case "StorageClass", "VolumeSnapshotClass":
		return []string{"provisioner", "parameters", "reclaimPolicy", "volumeBindingMode", "driver", "deletionPolicy"}
	case "CSIDriver":
		return []string{"spec"}
	case "RoleBinding", "ClusterRoleBinding":
		return []string{"roleRef"}
	case "EndpointSlice":
		return []string{"addressType"}
	}
	return nil
}

// ImmutableField gives the field for which the API server has refused to change an
// existing object of a kind, if that is what err says. It goes by the reason and the
// field of the answer, not by its text.
func ImmutableField(err error, kind string) (field string, ok bool) {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) || status.Status().Reason != metav1.StatusReasonInvalid || status.Status().Details == nil {
		return "", false
	}
	for _, cause := range status.Status().Details.Causes {
		for _, path := range immutable(kind) {
			if cause.Field == path || strings.HasPrefix(cause.Field, path+".") {
				return cause.Field, true
			}
		}
	}
	return "", false
}
