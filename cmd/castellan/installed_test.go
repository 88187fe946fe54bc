package main

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
)

// fakeMapper answers for each kind with an error, or nil.
type fakeMapper map[string]error

func (f fakeMapper) RESTMapping(gk schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	return nil, f[gk.Kind]
}

func TestMissingKind(t *testing.T) {
	absent := &meta.NoKindMatchError{}
	for name, tt := range map[string]struct {
		m       fakeMapper
		want    string
		failing bool
	}{
		"all are there":      {m: fakeMapper{}},
		"none":               {m: fakeMapper{"Driver": absent, "ClientProfile": absent}, want: "Driver"},
		"those of older CSI": {m: fakeMapper{"ClientProfileReplication": absent}, want: "ClientProfileReplication"},
		"not known":          {m: fakeMapper{"ClientProfile": errors.New("timeout")}, failing: true},
	} {
		got, err := missingKind(tt.m)
		if got != tt.want || (err != nil) != tt.failing {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// Without the kinds of csi.ceph.io the operator runs all else, and takes up the CSI
// controllers when they are installed.
func TestWithoutCSIKinds(t *testing.T) {
	const ns = "without-csi"
	c := server.Client(t, scheme())
	ctx := t.Context()
	if err := c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
		t.Fatal(err)
	}
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	key := types.NamespacedName{Name: "clientprofilereplications.csi.ceph.io"}
	if err := c.Get(ctx, key, crd); err != nil {
		t.Fatal(err)
	}
	again := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": key.Name}, "spec": crd.DeepCopy().Object["spec"]}}
	if err := c.Delete(ctx, crd); err != nil {
		t.Fatal(err)
	}
	restored := false
	restore := func() {
		if !restored {
			restored = true
			if err := c.Create(ctx, again); err != nil {
				t.Error(err)
			}
		}
	}
	defer restore()
	eventually(t, "the CRD is gone", func() error {
		if err := c.Get(ctx, key, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}}); !apierrors.IsNotFound(err) {
			return errors.New("still there")
		}
		return nil
	})
	t.Setenv("CASTELLAN_IMAGE", "castellan:test")
	t.Setenv(envCurrentOnly, "true")
	log := logOf(t)
	f := testFlags(t, ns)
	f.log = log
	stop := start(t, f)
	waitReady(t, f)
	if !strings.Contains(log.String(), "running without the CSI controllers") || !strings.Contains(log.String(), "ClientProfileReplication") {
		t.Fatalf("the log does not say so:\n%s", log.String())
	}
	profile := &csiv1.ClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: ns}}
	profile.Spec.CephConnectionRef.Name = "none"
	if err := c.Create(ctx, profile); err != nil {
		t.Fatal(err)
	}
	restore()
	eventually(t, "the CSI controllers work", func() error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(profile), profile); err != nil {
			return err
		}
		if profile.Status.Phase != csiv1.ClientProfilePhaseFailed {
			return errors.New("the phase is " + profile.Status.Phase)
		}
		return nil
	})
	profile.Finalizers = nil
	if err := c.Update(ctx, profile); err != nil {
		t.Error(err)
	}
	stop()
	if !strings.Contains(log.String(), "starting anew: the kinds of csi.ceph.io have been installed") {
		t.Error("the log does not say that it started anew")
	}
}
