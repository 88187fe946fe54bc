package csiusers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/auth"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	"github.com/castellan-storage/castellan/internal/ceph/conn"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/identity"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/settings"
)

const (
	clusterNS  = "storage"
	operatorNS = "operators"
)

func testScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, cephv1.AddToScheme, csiv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// bench is a founded cluster in an in-memory API server and Ceph.
type bench struct {
	t     testing.TB
	store *kittest.Store
	ceph  *cephtest.Cluster
	// missing are kinds that are not installed.
	missing map[string]bool
}

func cephCluster(ns string) *cephv1.CephCluster {
	return &cephv1.CephCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "main", Namespace: ns},
		Spec:       cephv1.ClusterSpec{CephVersion: cephv1.CephVersionSpec{Image: "ceph:20"}, DataDirHostPath: "/var/lib/rook"},
		Status:     cephv1.ClusterStatus{CephVersion: &cephv1.ClusterVersion{Image: "ceph:20", Version: "20.2.4-0"}},
	}
}

func newBench(t testing.TB, ns string, change ...func(*cephv1.CephCluster)) *bench {
	t.Helper()
	b := &bench{t: t, ceph: cephtest.Healthy(t, 3, 1), missing: map[string]bool{}}
	cl := cephCluster(ns)
	for _, f := range change {
		f(cl)
	}
	var err error
	b.store, err = kittest.NewStore(testScheme(t), cl,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: identity.Secret, Namespace: ns}, Data: map[string][]byte{
			"fsid": []byte(b.ceph.FSID()), "mon-secret": []byte("m"), "ceph-username": []byte("client.admin"), "ceph-secret": []byte("k")}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "rook-ceph-mon-endpoints", Namespace: ns}, Data: map[string]string{
			"data": "c=10.0.0.3:6789,a=10.0.0.1:6789,b=10.0.0.2:6789", "maxMonId": "2"}})
	if err != nil {
		t.Fatal(err)
	}
	b.store.Fail(func(_, kind string, _ types.NamespacedName) error {
		kind = strings.TrimSuffix(kind, "List")
		if b.missing[kind] {
			return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "csi.ceph.io", Kind: kind}}
		}
		return nil
	})
	return b
}

func (b *bench) driver(ns string) kittest.Driver {
	return kittest.Drive(func(env kit.Env) kit.Controller[*cephv1.CephCluster, Seen] {
		return &Controller{
			Cache:    env.Client,
			Access:   access.Reader{Live: env.Client, Dial: func(string, conn.Config) ceph.Commander { return b.ceph }},
			Operator: pods.Operator{Namespace: operatorNS, Image: "castellan:test", Version: "test"},
			Settings: func(context.Context) (settings.Settings, error) { return settings.Default(), nil },
		}
	}, Options(true), kittest.KeysOf(&cephv1.CephClusterList{}, ns))
}

func (b *bench) change(ctx context.Context, ns string, f func(*cephv1.CephCluster)) error {
	cl := &cephv1.CephCluster{}
	if err := b.store.Client().Get(ctx, types.NamespacedName{Namespace: ns, Name: "main"}, cl); err != nil {
		return err
	}
	f(cl)
	return b.store.Client().Update(ctx, cl)
}

// users gives the drivers' entities with their caps.
func (b *bench) users() string {
	list, err := auth.New(b.ceph).List(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	var out strings.Builder
	for _, e := range list {
		if strings.HasPrefix(e.Name, "client.csi-") {
			fmt.Fprintln(&out, e.Name, e.Caps.Args())
		}
	}
	return out.String()
}

// secretsWork is the invariant: whatever a Secret names exists in Ceph, with that key.
func (b *bench) secretsWork(ctx context.Context, ns string) error {
	list := &corev1.SecretList{}
	if err := b.store.Client().List(ctx, list, client.InNamespace(ns)); err != nil {
		return err
	}
	for _, s := range list.Items {
		id, key := string(s.Data["userID"]), string(s.Data["userKey"])
		if id != "" && b.ceph.Key("client."+id) != key {
			return fmt.Errorf("Secret %s names %s with a key that does not work", s.Name, id)
		}
	}
	return nil
}

func (b *bench) world(ns string) *kittest.World {
	c := b.store.Client()
	return &kittest.World{
		Env: kit.Env{Client: c}, Drivers: []kittest.Driver{b.driver(ns)},
		Check: func(ctx context.Context, _ kit.Effect) error { return b.secretsWork(ctx, ns) },
		Digest: func(ctx context.Context) (string, error) {
			text, err := kittest.Digest(ctx, c, "", &csiv1.CephConnectionList{}, &csiv1.ClientProfileList{}, &corev1.SecretList{})
			if err != nil {
				return "", err
			}
			// The order of conditions is that in which they were first set.
			var cl cephv1.CephCluster
			if err := c.Get(ctx, types.NamespacedName{Namespace: ns, Name: "main"}, &cl); err != nil {
				return "", err
			}
			var lines []string
			for _, x := range cl.Status.Conditions {
				lines = append(lines, fmt.Sprintf("%s=%s %s: %s", x.Type, x.Status, x.Reason, x.Message))
			}
			slices.Sort(lines)
			keys, err := json.Marshal(cl.Status.Cephx)
			return text + b.users() + strings.Join(lines, "\n") + string(keys), err
		},
	}
}

// The whole life, with a crash at every effect: users, mons that move, mount options,
// two rotations, caps changed by hand, users handed over.
func TestLife(t *testing.T) {
	var b *bench
	res := kittest.Run(t, kittest.Scenario{
		World: func(t testing.TB) *kittest.World {
			b = newBench(t, clusterNS)
			return b.world(clusterNS)
		},
		Acts: []kittest.Act{
			{Name: "found", Do: func(context.Context, *kittest.World) error { return nil }},
			{Name: "a mon moves", Do: func(ctx context.Context, w *kittest.World) error {
				cm := &corev1.ConfigMap{}
				if err := w.Env.Client.Get(ctx, types.NamespacedName{Namespace: clusterNS, Name: "rook-ceph-mon-endpoints"}, cm); err != nil {
					return err
				}
				cm.Data["data"], cm.Data["maxMonId"] = "d=10.0.0.4:6789,b=10.0.0.2:6789,a=10.0.0.1:6789", "3"
				return w.Env.Client.Update(ctx, cm)
			}},
			{Name: "settings", Do: func(ctx context.Context, w *kittest.World) error {
				if err := w.Env.Client.Create(ctx, &cephv1.CephRBDMirror{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: clusterNS}, Spec: cephv1.RBDMirroringSpec{Count: 2}}); err != nil {
					return err
				}
				return b.change(ctx, clusterNS, func(cl *cephv1.CephCluster) {
					cl.Spec.CSI.CephFS.KernelMountOptions = "noatime,recover_session=clean"
					cl.Spec.CSI.ReadAffinity.Enabled = true
				})
			}},
			{Name: "rotate", Do: func(ctx context.Context, _ *kittest.World) error {
				return b.change(ctx, clusterNS, func(cl *cephv1.CephCluster) { cl.Spec.Security.CephX.CSI = rotation("KeyGeneration", 3, 1) })
			}},
			{Name: "rotate again", Do: func(ctx context.Context, _ *kittest.World) error {
				return b.change(ctx, clusterNS, func(cl *cephv1.CephCluster) { cl.Spec.Security.CephX.CSI.KeyGeneration = 4 })
			}},
			{Name: "caps by hand", Do: func(ctx context.Context, _ *kittest.World) error {
				return auth.New(b.ceph).SetCaps(ctx, "client.csi-rbd-node.4", auth.Caps{"mon": "allow *"})
			}},
			{Name: "hand over", Do: func(ctx context.Context, _ *kittest.World) error {
				return b.change(ctx, clusterNS, func(cl *cephv1.CephCluster) { cl.Spec.CSI.SkipUserCreation = true })
			}},
		},
		Settle: 20 * time.Minute, // longer than the controller's own interval
	})
	t.Logf("%d effects, %d runs", len(res.Effects), res.Runs)
	if len(res.Effects) < 20 {
		t.Errorf("only %d effects", len(res.Effects))
	}
}

// settle runs the controller alone until nothing happens.
func (b *bench) settle(ns string) *cephv1.CephCluster {
	b.t.Helper()
	world := b.world(ns)
	world.Digest = nil
	if _, err := kittest.Play(b.t, kittest.Scenario{
		World: func(testing.TB) *kittest.World { return world },
		Acts:  []kittest.Act{{Name: "settle", Do: func(context.Context, *kittest.World) error { return nil }}},
	}, 0, kittest.Before); err != nil {
		b.t.Fatal(err)
	}
	cl := &cephv1.CephCluster{}
	if err := b.store.Client().Get(context.Background(), types.NamespacedName{Namespace: ns, Name: "main"}, cl); err != nil {
		b.t.Fatal(err)
	}
	return cl
}

func pretty(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// The objects as drivers get them.
func TestObjects(t *testing.T) {
	for name, tt := range map[string]struct {
		ns         string
		change     func(*cephv1.CephCluster)
		connection string
		profile    string
	}{
		"defaults, another namespace": {clusterNS, func(*cephv1.CephCluster) {},
			`{"monitors":["10.0.0.1:3300","10.0.0.2:3300","10.0.0.3:3300"]}`,
			`{"cephConnectionRef":{"name":"storage"},"cephFs":{"kernelMountOptions":{"ms_mode":"prefer-crc"},"cephCsiSecrets":{"controllerPublishSecret":{"name":"rook-csi-cephfs-provisioner","namespace":"storage"},"nodePublishSecret":{}}},"rbd":{"cephCsiSecrets":{"controllerPublishSecret":{"name":"rook-csi-rbd-provisioner","namespace":"storage"},"nodePublishSecret":{"name":"rook-csi-rbd-node","namespace":"storage"}}}}`},
		"messenger v1 allowed": {operatorNS, func(cl *cephv1.CephCluster) { cl.Spec.Network.Connections = &cephv1.ConnectionsSpec{} },
			`{"monitors":["10.0.0.1:6789","10.0.0.2:6789","10.0.0.3:6789"]}`,
			`{"cephConnectionRef":{"name":"operators"},"cephFs":{"cephCsiSecrets":{"controllerPublishSecret":{"name":"rook-csi-cephfs-provisioner","namespace":"operators"},"nodePublishSecret":{}}},"rbd":{"cephCsiSecrets":{"controllerPublishSecret":{"name":"rook-csi-rbd-provisioner","namespace":"operators"},"nodePublishSecret":{"name":"rook-csi-rbd-node","namespace":"operators"}}}}`},
		"encrypted, read affinity": {operatorNS, func(cl *cephv1.CephCluster) {
			cl.Spec.Network.Connections = &cephv1.ConnectionsSpec{Encryption: &cephv1.EncryptionSpec{Enabled: true}}
			cl.Spec.CSI.ReadAffinity = cephv1.ReadAffinitySpec{Enabled: true, CrushLocationLabels: []string{"topology.kubernetes.io/zone"}}
			cl.Spec.CSI.CephFS = cephv1.CSICephFSSpec{KernelMountOptions: "ms_mode=crc, noatime", FuseMountOptions: "debug"}
		},
			`{"monitors":["10.0.0.1:3300","10.0.0.2:3300","10.0.0.3:3300"],"readAffinity":{"crushLocationLabels":["topology.kubernetes.io/zone"]}}`,
			`{"cephConnectionRef":{"name":"operators"},"cephFs":{"kernelMountOptions":{"ms_mode":"secure","noatime":""},"fuseMountOptions":{"debug":""},"cephCsiSecrets":{"controllerPublishSecret":{"name":"rook-csi-cephfs-provisioner","namespace":"operators"},"nodePublishSecret":{}}},"rbd":{"cephCsiSecrets":{"controllerPublishSecret":{"name":"rook-csi-rbd-provisioner","namespace":"operators"},"nodePublishSecret":{"name":"rook-csi-rbd-node","namespace":"operators"}}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, tt.ns, tt.change)
			cl := b.settle(tt.ns)
			conn, profile := &csiv1.CephConnection{}, &csiv1.ClientProfile{}
			key := types.NamespacedName{Namespace: operatorNS, Name: tt.ns}
			for _, obj := range []client.Object{conn, profile} {
				if err := b.store.Client().Get(t.Context(), key, obj); err != nil {
					t.Fatal(err)
				}
				owned := len(obj.GetOwnerReferences()) == 1 && obj.GetOwnerReferences()[0].UID == cl.UID && obj.GetOwnerReferences()[0].Controller == nil
				if owned != (tt.ns == operatorNS) {
					t.Errorf("%T: owners %v", obj, obj.GetOwnerReferences())
				}
			}
			for _, pair := range [][2]string{{tt.connection, compact(t, conn.Spec)}, {tt.profile, compact(t, profile.Spec)}} {
				if d := cmp.Diff(pair[0], pair[1]); d != "" {
					t.Errorf("(-want +got):\n%s", d)
				}
			}
			if c := cephv1.FindCondition(cl.Status.Conditions, ConditionConnected); c == nil || c.Status != "True" {
				t.Errorf("condition %v", c)
			}
			if got := cl.Status.Cephx.CSI; got == nil || got.KeyGeneration != 1 || got.KeyType != "aes256k" || got.KeyCephVersion != "20.2.4-0" {
				t.Errorf("status.cephx.csi is %s", pretty(t, got))
			}
		})
	}
}

func compact(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// Missing kinds of csi.ceph.io are a condition and hold nothing up: users and Secrets
// are made, CSIReady is True, and connection and profile follow when the kinds come.
func TestMissingCRDs(t *testing.T) {
	for _, kind := range []string{"CephConnection", "ClientProfile"} {
		t.Run(kind, func(t *testing.T) {
			b := newBench(t, operatorNS)
			b.missing[kind] = true
			cl := b.settle(operatorNS)
			if c := cephv1.FindCondition(cl.Status.Conditions, ConditionConnected); c == nil || c.Status != "False" || c.Reason != ReasonCRDsMissing || !strings.Contains(c.Message, kind) {
				t.Errorf("condition %v", c)
			}
			if c := cephv1.FindCondition(cl.Status.Conditions, "CSIReady"); c == nil || c.Status != "True" {
				t.Errorf("CSIReady is %v", c)
			}
			if strings.Count(b.users(), "\n") != 4 {
				t.Errorf("users:\n%s", b.users())
			}
			b.missing[kind] = false
			cl = b.settle(operatorNS)
			if c := cephv1.FindCondition(cl.Status.Conditions, ConditionConnected); c == nil || c.Status != "True" {
				t.Errorf("condition %v", c)
			}
		})
	}
}

// What Rook has made is taken over as it is: the keys stay.
func TestTakeover(t *testing.T) {
	b := newBench(t, operatorNS)
	ctx := t.Context()
	for _, u := range Users() {
		e, err := auth.New(b.ceph).GetOrCreate(ctx, u.Entity(2), u.Caps)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.store.Client().Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: u.Secret, Namespace: operatorNS}, Type: identity.SecretType,
			Data: map[string][]byte{"userID": []byte(u.Entity(2)[len("client."):]), "userKey": []byte(e.Key.Reveal())}}); err != nil {
			t.Fatal(err)
		}
	}
	b.ceph.Reset()
	cl := b.settle(operatorNS)
	if n := b.ceph.Counters().Mutations; n != 0 {
		t.Errorf("%d changes in Ceph: %v", n, b.ceph.Commands())
	}
	if cl.Status.Cephx.CSI.KeyGeneration != 2 {
		t.Errorf("generation %d, want 2", cl.Status.Cephx.CSI.KeyGeneration)
	}
}

// An older Ceph is not asked for a cipher that it does not know of.
func TestOldCeph(t *testing.T) {
	b := newBench(t, operatorNS, func(cl *cephv1.CephCluster) {
		cl.Status.CephVersion.Version = "19.2.3-0"
		cl.Spec.Security.CephX.CSI.KeyType = "aes"
	})
	b.settle(operatorNS)
	for _, s := range b.ceph.Commands() {
		if strings.Contains(s.Command, "key_type") {
			t.Errorf("%s", s.Command)
		}
	}
}

// A cluster that does not answer is waited for, and nothing of it is lost.
func TestSilence(t *testing.T) {
	b := newBench(t, operatorNS)
	b.settle(operatorNS)
	b.store.ResetWrites()
	for _, m := range []string{"a", "b", "c"} {
		b.ceph.StopMon(m)
	}
	cl := b.settle(operatorNS)
	if c := cephv1.FindCondition(cl.Status.Conditions, "CSIReady"); c == nil || c.Reason != ReasonMonsNotReady {
		t.Errorf("CSIReady is %v", c)
	}
	if cl.Status.Cephx == nil || cl.Status.Cephx.CSI == nil {
		t.Error("what was known of the keys is gone")
	}
	for _, w := range b.store.Writes() {
		if !strings.Contains(w, "CephCluster") {
			t.Errorf("write %q", w)
		}
	}
}
