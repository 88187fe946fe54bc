package mon

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	"github.com/castellan-storage/castellan/internal/ceph/conn"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/mon/plan"
	"github.com/castellan-storage/castellan/internal/settings"
)

type stores struct{ cache, live client.Client }

func newStores(t *testing.T, live ...client.Object) stores {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, cephv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	cache, err := kittest.NewStore(scheme)
	if err != nil {
		t.Fatal(err)
	}
	server, err := kittest.NewStore(scheme, live...)
	if err != nil {
		t.Fatal(err)
	}
	return stores{cache.Client(), server.Client()}
}

// cluster is one that has been founded; its Secret and keyring exist.
func cluster() (*cephv1.CephCluster, []client.Object) {
	cl := &cephv1.CephCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: "rook-ceph", UID: "u"}}
	cl.Spec.DataDirHostPath, cl.Spec.Mon.Count = "/var/lib/rook", 3
	cl.Status.CephVersion = &cephv1.ClusterVersion{Image: "quay.io/ceph/ceph:v20.2.4", Version: "20.2.4-0"}
	in := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "rook-ceph", Name: name} }
	return cl, []client.Object{
		&corev1.Secret{ObjectMeta: in("rook-ceph-mon"), Data: map[string][]byte{"fsid": []byte("f"), "mon-secret": []byte("m"), "ceph-username": []byte("client.admin"), "ceph-secret": []byte("k")}},
		&corev1.Secret{ObjectMeta: in("rook-ceph-mons-keyring")},
	}
}

func monDeployment(id string, spec corev1.PodSpec) *appsv1.Deployment {
	labels := map[string]string{"app": "rook-ceph-mon", "mon": id}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: "rook-ceph-mon-" + id, Labels: labels},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}},
	}
}

func observe(t *testing.T, s stores, cl *cephv1.CephCluster) (Seen, kit.Plan) {
	t.Helper()
	ctl := &Controller{
		Cache: s.cache, Access: access.Reader{Live: s.live, Dial: func(string, conn.Config) ceph.Commander { return cephtest.New(t) }},
		Settings: func(context.Context) (settings.Settings, error) { return settings.Default(), nil },
	}
	seen, err := ctl.Observe(kit.WithPass(t.Context(), kit.Pass{Now: kittest.Stopped()}), cl)
	if err != nil {
		t.Fatal(err)
	}
	return seen, ctl.Plan(cl, seen)
}

// The cache is empty, as it is for objects of another operator and for a moment after a
// start. The API server is asked before a mon is founded, and says that one is there.
func TestTheAPIServerIsAskedBeforeMonsAreFounded(t *testing.T) {
	cl, objs := cluster()
	_, p := observe(t, newStores(t, objs...), cl)
	if len(p.Create) != 3 {
		t.Fatalf("a new cluster is not founded: %s", p)
	}
	_, p = observe(t, newStores(t, append(objs, monDeployment("b", corev1.PodSpec{}))...), cl)
	if p.Wait == nil || p.Wait.Reason != "MonListLost" || !strings.Contains(p.Wait.Message, "mon b has a Deployment") || len(p.Create)+len(p.Apply)+len(p.Do) > 0 {
		t.Errorf("mons beside one that exists: %s", p)
	}
	// And for a list whose mons the cache does not have.
	list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: "rook-ceph-mon-endpoints"}, Data: map[string]string{
		"data": "a=10.0.0.1:3300,b=10.0.0.2:3300,c=10.0.0.3:3300", "maxMonId": "2", "mapping": "{}",
	}}
	all := append(objs, list)
	for _, id := range []string{"a", "b", "c"} {
		all = append(all, monDeployment(id, corev1.PodSpec{}))
	}
	seen, _ := observe(t, newStores(t, all...), cl)
	if a := plan.Next(seen.State); a.Kind == plan.Start || len(seen.Live) != 3 {
		t.Errorf("%s, though the API server has all three", a)
	}
}

// The first node of a mon on a volume says nothing about it: it may run elsewhere. That
// of a mon on a node's disk is all that it has.
func TestANodeThatIsGoneCountsForPinnedMonsOnly(t *testing.T) {
	for _, c := range []struct {
		name string
		spec corev1.PodSpec
		gone bool
	}{
		{"pinned", corev1.PodSpec{NodeSelector: map[string]string{corev1.LabelHostname: "n9"}}, true},
		{"on a volume", corev1.PodSpec{Volumes: []corev1.Volume{{Name: "ceph-daemon-data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "rook-ceph-mon-a"}}}}}, false},
	} {
		cl, objs := cluster()
		list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: "rook-ceph-mon-endpoints"}, Data: map[string]string{
			"data": "a=10.0.0.1:3300", "maxMonId": "0", "mapping": `{"node":{"a":{"Name":"n9","Hostname":"n9","Address":"192.0.2.9"}}}`,
		}}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelHostname: "n1"}}}
		s := newStores(t, append(objs, list, monDeployment("a", c.spec))...)
		if err := s.cache.Create(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		seen, _ := observe(t, s, cl)
		if m := seen.State.Mons["a"]; m.NodeGone != c.gone {
			t.Errorf("%s: node gone %v", c.name, m.NodeGone)
		}
	}
}

// The list is stored onto the version that was read, and made only if there was none.
func TestTheListIsWrittenOntoWhatWasRead(t *testing.T) {
	cl, objs := cluster()
	list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: "rook-ceph-mon-endpoints"}, Data: map[string]string{
		"data": "a=10.0.0.1:3300", "maxMonId": "0", "mapping": "{}",
	}}
	s := newStores(t, append(objs, list, monDeployment("a", corev1.PodSpec{}))...)
	seen, p := observe(t, s, cl)
	found := false
	for _, o := range p.Apply {
		if o.GetName() == list.Name {
			found = true
			if _, isMap := o.(*corev1.ConfigMap); isMap && (o.GetResourceVersion() == "" || o.GetResourceVersion() != seen.Stored.ListVersion) {
				t.Errorf("written onto version %q, read was %q", o.GetResourceVersion(), seen.Stored.ListVersion)
			}
		}
	}
	if !found {
		t.Errorf("the list is not kept: %s", p)
	}
}

// The marks on a mon's Deployment are carried over from the version that was read, and so
// what is applied is made for that version only: a mark that the cache has not seen yet is
// not taken away.
func TestMarksAreCarriedOverToTheVersionThatWasRead(t *testing.T) {
	cl, objs := cluster()
	list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "rook-ceph", Name: "rook-ceph-mon-endpoints"}, Data: map[string]string{
		"data": "a=10.0.0.1:3300", "maxMonId": "0", "mapping": "{}",
	}}
	s := newStores(t, append(objs, list, monDeployment("a", corev1.PodSpec{}))...)
	seen, _ := observe(t, s, cl)
	want, live := seen.Wanted["a"], seen.Live["a"]
	if want == nil || live == nil || live.ResourceVersion == "" || want.ResourceVersion != live.ResourceVersion {
		t.Fatalf("wanted for version %q, read was %q", want.GetResourceVersion(), live.GetResourceVersion())
	}
	for _, kind := range []plan.Kind{plan.MarkOut, plan.MarkIn, plan.Repair, plan.Start} {
		var p kit.Plan
		if err := step(cl, seen, plan.Action{Kind: kind, IDs: []string{"a"}}, &p); err != nil {
			t.Fatal(err)
		}
		if len(p.Apply) != 1 || p.Apply[0].GetResourceVersion() != live.ResourceVersion {
			t.Errorf("%s: %s", kind, p)
		}
	}
}
