package crushupdate

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	"github.com/castellan-storage/castellan/internal/ceph/conn"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/access/accesstest"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/node/choice"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/osd/spec"
	"github.com/castellan-storage/castellan/internal/settings"
)

func TestCompare(t *testing.T) {
	half := 0.5
	all := Allowed{Class: true, Weight: true}
	const tib = 1 << 40
	for name, c := range map[string]struct {
		want  Wanted
		have  Actual
		allow Allowed
		out   []Update
	}{
		"nothing is said":            {Wanted{}, Actual{Class: "ssd", Weight: 1, Size: tib, Affinity: 1}, all, nil},
		"another class":              {Wanted{Class: "nvme"}, Actual{Class: "ssd", Affinity: 1}, all, []Update{{What: DropClass}, {What: SetClass, Class: "nvme"}}},
		"a crash in between":         {Wanted{Class: "nvme"}, Actual{}, all, []Update{{What: SetClass, Class: "nvme"}}},
		"another class, not allowed": {Wanted{Class: "nvme"}, Actual{Class: "ssd"}, Allowed{Weight: true}, nil},
		"the same class":             {Wanted{Class: "ssd"}, Actual{Class: "ssd"}, all, nil},
		"it has grown":               {Wanted{}, Actual{Weight: 1, Size: 2 * tib}, all, []Update{{What: SetWeight, Number: 2}}},
		"grown, not allowed":         {Wanted{}, Actual{Weight: 1, Size: 2 * tib}, Allowed{Class: true}, nil},
		"grown, with a fixed weight": {Wanted{FixedWeight: true}, Actual{Weight: 1, Size: 2 * tib}, all, nil},
		"rounding":                   {Wanted{}, Actual{Weight: 0.995, Size: tib}, all, nil},
		"weighted up by hand":        {Wanted{}, Actual{Weight: 3, Size: tib}, all, nil},
		"weighted to nothing":        {Wanted{}, Actual{Weight: 0, Size: tib}, all, nil},
		"affinity":                   {Wanted{Affinity: &half}, Actual{Affinity: 1}, Allowed{}, []Update{{What: SetAffinity, Number: 0.5}}},
		"affinity as Ceph keeps it":  {Wanted{Affinity: &half}, Actual{Affinity: 0.500015}, Allowed{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := Compare([]Wanted{c.want, {ID: 7, Class: "x"}}, map[int]Actual{0: c.have}, c.allow)
			if diff := cmp.Diff(c.out, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A device's own settings come before those of its node.
func TestOf(t *testing.T) {
	sel := request.Selection{
		Config: choice.Config{DeviceClass: "hdd", InitialWeight: "2"},
		Named: []request.Named{
			{Ref: "sdb", Config: choice.Config{DeviceClass: "ssd", PrimaryAffinity: "0"}},
			{Ref: "/dev/disk/by-id/x", Config: choice.Config{DeviceClass: "nvme"}},
		},
	}
	zero := 0.0
	for path, want := range map[string]Wanted{
		"/dev/sdb": {Class: "ssd", Affinity: &zero}, "/dev/sdc": {Class: "hdd", FixedWeight: true},
	} {
		if diff := cmp.Diff(want, Of(prepare.Result{Data: prepare.Part{Path: path}}, sel)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	if got := Of(prepare.Result{Data: prepare.Part{Path: "/dev/sdx", ByID: "/dev/disk/by-id/x"}}, sel); got.Class != "nvme" {
		t.Errorf("by its link: %+v", got)
	}
}

const ns = "rook-ceph"

// world is two hosts with an OSD each, in Kubernetes and in Ceph.
func world(t testing.TB) (*kittest.World, *cephtest.Cluster) {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, cephv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	store, err := kittest.NewStore(s)
	if err != nil {
		t.Fatal(err)
	}
	c, fake := store.Client(), cephtest.Healthy(t, 2, 1)
	objs := accesstest.Founded(t, ns)
	for osd := range 2 {
		host := fmt.Sprintf("host%d", osd)
		record, err := json.Marshal(prepare.Result{ID: osd, UUID: "u", Data: prepare.Part{Path: "/dev/sdb"}})
		if err != nil {
			t.Fatal(err)
		}
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "rook-ceph-osd-" + strconv.Itoa(osd), Namespace: ns, Labels: map[string]string{"app": spec.App}, Annotations: map[string]string{spec.RecordAnnotation: string(record)}}}
		d.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: host}
		objs = append(objs, d, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: host, Labels: map[string]string{corev1.LabelHostname: host}}})
	}
	for _, o := range objs {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	return &kittest.World{
		Env: kit.Env{Client: c},
		Drivers: []kittest.Driver{kittest.Drive(func(env kit.Env) kit.Controller[*cephv1.CephCluster, Seen] {
			return &Controller{
				Cache: env.Client, Access: access.Reader{Live: env.Client, Dial: func(string, conn.Config) ceph.Commander { return fake }},
				Settings: func(context.Context) (settings.Settings, error) { return settings.Default(), nil },
			}
		}, Options(), kittest.KeysOf(&cephv1.CephClusterList{}, ns))},
		Digest: func(ctx context.Context) (string, error) {
			tree, err := cephosd.New(fake).Tree(ctx)
			out := ""
			for osd := range 2 {
				n, _ := tree.OSD(osd)
				out += fmt.Sprintf("osd.%d %s %v\n", osd, n.DeviceClass, n.PrimaryAffinity)
			}
			return out, err
		},
	}, fake
}

// Class and affinity are changed, with a crash at every effect.
func TestLife(t *testing.T) {
	res := kittest.Run(t, kittest.Scenario{
		World: func(t testing.TB) *kittest.World { w, _ := world(t); return w },
		Acts: []kittest.Act{{Name: "create", Do: func(ctx context.Context, w *kittest.World) error {
			cl := &cephv1.CephCluster{ObjectMeta: metav1.ObjectMeta{Name: "my", Namespace: ns}, Spec: cephv1.ClusterSpec{Storage: cephv1.StorageScopeSpec{
				UseAllNodes: true, AllowDeviceClassUpdate: true, Config: map[string]string{"deviceClass": "fast", "primaryAffinity": "0.25"},
			}}}
			if err := w.Env.Client.Create(ctx, cl); err != nil {
				return err
			}
			cl.Status.CephVersion = &cephv1.ClusterVersion{Image: "x", Version: "20.2.4-0"}
			return w.Env.Client.Status().Update(ctx, cl)
		}}},
	})
	if want := "osd.0 fast 0.25\nosd.1 fast 0.25\n"; res.Digest != want {
		t.Errorf("in the end:\n%s", res.Digest)
	}
}
