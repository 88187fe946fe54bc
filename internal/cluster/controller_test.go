package cluster

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/conn"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/kube"
	osdspec "github.com/castellan-storage/castellan/internal/osd/spec"
	"github.com/castellan-storage/castellan/internal/settings"
)

// Two clusters with one directory on one node would share a mon's store. The one that
// comes second says so before anything is made for it.
func TestOneDirectoryForTwoClusters(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, cephv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	on := func(zone string) cephv1.PlacementSpec {
		return cephv1.PlacementSpec{cephv1.KeyAll: {NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}}}},
		}}}}
	}
	for _, c := range []struct {
		name   string
		change func(a, b *cephv1.CephCluster)
		says   string
	}{
		{"same directory", func(*cephv1.CephCluster, *cephv1.CephCluster) {}, "spec.dataDirHostPath"},
		{"written in another way", func(_, b *cephv1.CephCluster) { b.Spec.DataDirHostPath = "/var/lib/rook/" }, "CephCluster one/rook-ceph, which may run on node n1"},
		{"another directory", func(_, b *cephv1.CephCluster) { b.Spec.DataDirHostPath = "/var/lib/rook2" }, ""},
		{"on other nodes", func(a, b *cephv1.CephCluster) { a.Spec.Placement, b.Spec.Placement = on("a"), on("b") }, ""},
		{"mons apart, OSDs on one node", func(a, b *cephv1.CephCluster) {
			a.Spec.Placement = cephv1.PlacementSpec{cephv1.KeyMon: on("a")[cephv1.KeyAll], cephv1.KeyMgr: on("a")[cephv1.KeyAll]}
			b.Spec.Placement = cephv1.PlacementSpec{cephv1.KeyMon: on("b")[cephv1.KeyAll], cephv1.KeyMgr: on("b")[cephv1.KeyAll]}
			a.Spec.Storage.Nodes = []cephv1.Node{{Name: "n2"}}
		}, "n2"},
		{"the other is external", func(a, _ *cephv1.CephCluster) { a.Spec.External.Enable = true }, ""},
		{"ours runs already", func(_, b *cephv1.CephCluster) {
			b.Status.CephVersion = &cephv1.ClusterVersion{Image: "x", Version: "20.2.4-0"}
		}, ""},
		{"ours is older", func(a, b *cephv1.CephCluster) {
			a.CreationTimestamp, b.CreationTimestamp = b.CreationTimestamp, a.CreationTimestamp
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			store, err := kittest.NewStore(scheme)
			if err != nil {
				t.Fatal(err)
			}
			k := store.Client()
			made := func(ns string, at time.Time) *cephv1.CephCluster {
				cl := &cephv1.CephCluster{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "rook-ceph", CreationTimestamp: metav1.NewTime(at)}}
				cl.Spec.DataDirHostPath, cl.Spec.CephVersion.Image = "/var/lib/rook", "quay.io/ceph/ceph:v20.2.4"
				return cl
			}
			a, b := made("one", kittest.Stopped()), made("two", kittest.Stopped().Add(time.Hour))
			c.change(a, b)
			for _, o := range []client.Object{
				&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelHostname: "n1", "zone": "a"}}},
				&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2", Labels: map[string]string{corev1.LabelHostname: "n2", "zone": "b"}}},
			} {
				if err := k.Create(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			for _, cl := range []*cephv1.CephCluster{a, b} {
				at, st := cl.CreationTimestamp.Time, cl.Status
				store.Clock(func() time.Time { return at })
				if err := k.Create(t.Context(), cl); err != nil {
					t.Fatal(err)
				}
				cl.Status = st
				if err := k.Status().Update(t.Context(), cl); err != nil {
					t.Fatal(err)
				}
			}
			ctl := &Controller{
				Cache: k, Access: access.Reader{Live: k, Dial: func(string, conn.Config) ceph.Commander { return nil }}, Random: strings.NewReader(strings.Repeat("x", 500)),
				Settings: func(context.Context) (settings.Settings, error) { return settings.Default(), nil },
			}
			seen, err := ctl.Observe(kit.WithPass(t.Context(), kit.Pass{Now: kittest.Stopped()}), b)
			if err != nil {
				t.Fatal(err)
			}
			plan := ctl.Plan(b, seen)
			if c.says == "" {
				if seen.Shares != "" {
					t.Fatalf("it shares with %s", seen.Shares)
				}
				return
			}
			if plan.Wait == nil || !strings.Contains(plan.Wait.Message, c.says) || len(plan.Create)+len(plan.Apply)+len(plan.Do) > 0 {
				t.Errorf("%s", plan)
			}
		})
	}
}

// An OSD whose disk is being replaced is fenced by us: its Deployment goes with the
// cluster. What users have fenced stays, and is named.
func TestAReplacementDoesNotHoldTheDeletion(t *testing.T) {
	fenced := func(name string, annotations map[string]string) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: name, Labels: map[string]string{kube.SkipLabel: "true"}, Annotations: annotations}}
	}
	ours := fenced("rook-ceph-osd-0", map[string]string{osdspec.InProgressAnnotation: "true"})
	users := fenced("rook-ceph-osd-1", nil)
	p := stop(&Leaving{Workloads: []kit.Object{ours, users}}, []string{"Pod rook-ceph-osd-0-x"})
	got := map[string]bool{}
	for _, a := range p.Do {
		c, ok := a.(kit.Confirmed)
		d, isDelete := c.Then.(kit.Delete)
		if !ok || !isDelete {
			t.Fatalf("%s is no deletion that the user has confirmed", a)
		}
		got[d.Object.GetName()] = d.Ours
	}
	if diff := cmp.Diff(map[string]bool{"rook-ceph-osd-0": true, "rook-ceph-osd-1": false}, got); diff != "" {
		t.Errorf("past the label (-want +got):\n%s", diff)
	}
	if p.Wait == nil || !strings.Contains(p.Wait.Message, "rook-ceph-osd-1 (has label") || !strings.Contains(p.Wait.Hint, "remove the label") || strings.Contains(p.Wait.Message, "rook-ceph-osd-0 (") {
		t.Errorf("it waits: %+v", p.Wait)
	}
}

// A cluster that could not become the one that is asked for is not founded; one that runs
// already goes on, and its status tells of the field.
func TestNoClusterIsFoundedInAnotherShape(t *testing.T) {
	cl := &cephv1.CephCluster{}
	cl.Spec.DataDirHostPath, cl.Spec.CephVersion.Image = "/var/lib/rook", "quay.io/ceph/ceph:v20.2.4"
	cl.Spec.Mon.StretchCluster = &cephv1.StretchClusterSpec{Zones: []cephv1.MonZoneSpec{{Name: "a", Arbiter: true}, {Name: "b"}, {Name: "c"}}}
	plan := (&Controller{}).Plan(cl, Seen{})
	if plan.Err == nil || !strings.Contains(plan.Err.Error(), "spec.mon.stretchCluster") || len(plan.Create)+len(plan.Apply)+len(plan.Do) > 0 {
		t.Errorf("it is founded: %s", plan)
	}
	var seen Seen
	seen.Stored.Founded = true
	if plan := (&Controller{}).Plan(cl, seen); plan.Err != nil {
		t.Errorf("a cluster that runs is stopped: %v", plan.Err)
	}
}
