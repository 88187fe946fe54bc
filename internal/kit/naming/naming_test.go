package naming_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/castellan-storage/castellan/internal/kit/naming"
)

func TestHash(t *testing.T) {
	// printf "" | sha256sum | cut -c1-32
	if got := naming.Hash(""); got != "e3b0c44298fc1c149afbf4c8996fb924" {
		t.Errorf("got %s", got)
	}
}

func TestFit(t *testing.T) {
	long := strings.Repeat("n", 60)
	for name, want := range map[string]string{
		"node1": "rook-ceph-osd-prepare-node1",
		long:    "rook-ceph-osd-prepare-" + naming.Hash(long),
	} {
		if got := naming.Fit("rook-ceph-osd-prepare-%s", name, naming.MaxLabel); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestLabelValue(t *testing.T) {
	for in, want := range map[string]string{
		"":                       "",
		"node1.example.com":      "node1.example.com",
		"/dev/disk/by-id/x":      "dev-disk-by-id-x",
		"ceph version 20.2.4 (a": "ceph-version-20.2.4--a",
	} {
		if got := naming.LabelValue(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	seen := map[string]string{}
	for _, in := range []string{strings.Repeat("a", 64), strings.Repeat("a", 65), strings.Repeat("a", 54) + "-" + strings.Repeat("b", 30), strings.Repeat("ü", 70)} {
		got := naming.LabelValue(in)
		if errs := validation.IsValidLabelValue(got); len(errs) > 0 {
			t.Errorf("%q: %v", got, errs)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %q give the same", in, other)
		}
		seen[got] = in
	}
}

func TestOwners(t *testing.T) {
	yes := true
	obj := &metav1.ObjectMeta{Name: "a", UID: "u"}
	gvk := schema.GroupVersionKind{Group: "ceph.rook.io", Version: "v1", Kind: "CephCluster"}
	want := metav1.OwnerReference{APIVersion: "ceph.rook.io/v1", Kind: "CephCluster", Name: "a", UID: "u", Controller: &yes, BlockOwnerDeletion: &yes}
	if d := cmp.Diff(want, naming.Owner(obj, gvk)); d != "" {
		t.Errorf("Owner (-want +got):\n%s", d)
	}
	want.Controller, want.BlockOwnerDeletion = nil, nil
	if d := cmp.Diff(want, naming.CoOwner(obj, gvk)); d != "" {
		t.Errorf("CoOwner (-want +got):\n%s", d)
	}
}
