package poolmapping

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	"github.com/castellan-storage/castellan/internal/ceph/conn"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/identity"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
)

const ns = "east"

// bench is two clusters that mirror pools.
type bench struct {
	t          testing.TB
	store      *kittest.Store
	east, west *cephtest.Cluster
	opened     int
	missing    bool
}

func newBench(t testing.TB) *bench {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, cephv1.AddToScheme, csiv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	b := &bench{t: t, east: cephtest.Healthy(t, 3, 1), west: cephtest.Healthy(t, 3, 1, cephtest.Seed(2))}
	for _, x := range []struct {
		c    *cephtest.Cluster
		pool string
	}{{b.east, "rbd"}, {b.east, "fast"}, {b.west, "other"}, {b.west, "rbd"}, {b.west, "fast"}} {
		if _, err := x.c.Mon(context.Background(), ceph.Cmd("osd pool create", "pool", x.pool, "pool_type", "replicated")); err != nil {
			t.Fatal(err)
		}
	}
	meta1 := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: ns} }
	var err error
	b.store, err = kittest.NewStore(s, &cephv1.CephCluster{ObjectMeta: meta1("main")},
		&corev1.Secret{ObjectMeta: meta1(identity.Secret), Data: map[string][]byte{
			"fsid": []byte(b.east.FSID()), "mon-secret": []byte("m"), "ceph-username": []byte("client.admin"), "ceph-secret": []byte("k")}},
		&corev1.ConfigMap{ObjectMeta: meta1("rook-ceph-mon-endpoints"), Data: map[string]string{"data": "a=10.0.0.1:3300", "maxMonId": "0"}},
		&corev1.Secret{ObjectMeta: meta1("peer-west"), Data: map[string][]byte{"pool": []byte("rbd"), "token": token(t, map[string]string{
			"fsid": b.west.FSID(), "client_id": "rbd-mirror-peer", "key": "secret", "mon_host": "[v2:10.1.0.1:3300]", "namespace": "west"})}})
	if err != nil {
		t.Fatal(err)
	}
	b.store.Fail(func(_, kind string, _ types.NamespacedName) error {
		if b.missing && strings.HasPrefix(kind, "ClientProfileReplication") {
			return &meta.NoKindMatchError{}
		}
		return nil
	})
	return b
}

func (b *bench) open(cfg conn.Config) (ceph.Commander, func()) {
	b.opened++
	if cfg.FSID != b.west.FSID() || cfg.User != "client.rbd-mirror-peer" || cfg.Key.Reveal() != "secret" || cfg.MonHost != "[v2:10.1.0.1:3300]" {
		b.t.Errorf("opened %+v", cfg)
	}
	return b.west, func() { b.opened-- }
}

func mirroredPool(name string) *cephv1.CephBlockPool {
	p := &cephv1.CephBlockPool{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}}
	p.Spec.Mirroring = cephv1.MirroringSpec{Enabled: true, Mode: "image", Peers: &cephv1.MirroringPeerSpec{SecretNames: []string{"peer-west"}}}
	return p
}

func (b *bench) world() *kittest.World {
	c := b.store.Client()
	return &kittest.World{
		Env: kit.Env{Client: c},
		Drivers: []kittest.Driver{kittest.Drive(func(env kit.Env) kit.Controller[*cephv1.CephCluster, Seen] {
			return &Controller{Cache: env.Client, Operator: pods.Operator{Namespace: ns}, Peers: b.open,
				Access: access.Reader{Live: env.Client, Dial: func(string, conn.Config) ceph.Commander { return b.east }}}
		}, Options(true), kittest.KeysOf(&cephv1.CephClusterList{}, ns))},
		Check: func(ctx context.Context, _ kit.Effect) error { return b.keeps(ctx) },
		Digest: func(ctx context.Context) (string, error) {
			return kittest.Digest(ctx, c, "", &cephv1.CephClusterList{}, &csiv1.ClientProfileMappingList{}, &csiv1.ClientProfileReplicationList{})
		},
	}
}

// keeps is the invariant: the pair of the first pool is never lost once it is there.
func (b *bench) keeps(ctx context.Context) error {
	m := &csiv1.ClientProfileMapping{}
	if err := b.store.Client().Get(ctx, types.NamespacedName{Namespace: ns, Name: Name(ns)}, m); err != nil {
		return client.IgnoreNotFound(err)
	}
	want := csiv1.BlockPoolIDPair{fmt.Sprint(b.east.PoolID("rbd")), "3"}
	for _, p := range m.Spec.Mappings[0].BlockPoolIdMapping {
		if p[0] == want[0] && p[1] == want[1] {
			return nil
		}
	}
	return fmt.Errorf("the pair %v is gone: %v", want, m.Spec.Mappings)
}

func (b *bench) condition(t *testing.T) *cephv1.Condition {
	t.Helper()
	cl := &cephv1.CephCluster{}
	if err := b.store.Client().Get(t.Context(), types.NamespacedName{Namespace: ns, Name: "main"}, cl); err != nil {
		t.Fatal(err)
	}
	return cephv1.FindCondition(cl.Status.Conditions, Condition)
}

func TestLife(t *testing.T) {
	var b *bench
	stop := func(context.Context, *kittest.World) error {
		for _, m := range []string{"a", "b", "c"} {
			b.west.StopMon(m)
		}
		return nil
	}
	change := func(name string, f func(*cephv1.CephBlockPool)) func(context.Context, *kittest.World) error {
		return func(ctx context.Context, w *kittest.World) error {
			p := &cephv1.CephBlockPool{}
			if err := w.Env.Client.Get(ctx, types.NamespacedName{Namespace: ns, Name: name}, p); err != nil {
				return err
			}
			f(p)
			return w.Env.Client.Update(ctx, p)
		}
	}
	mine := &csiv1.ClientProfileReplication{ObjectMeta: metav1.ObjectMeta{Name: "mine", Namespace: ns}, Spec: csiv1.ClientProfileReplicationSpec{LocalClientProfile: ns, RemoteClientProfile: "w"}}
	res := kittest.Run(t, kittest.Scenario{
		World: func(t testing.TB) *kittest.World {
			b = newBench(t)
			if b.west.PoolID("rbd") != 3 {
				t.Fatalf("the peer's pool has id %d", b.west.PoolID("rbd"))
			}
			return b.world()
		},
		Acts: []kittest.Act{
			{Name: "nothing is mirrored", Do: func(ctx context.Context, w *kittest.World) error {
				return w.Env.Client.Create(ctx, &cephv1.CephBlockPool{ObjectMeta: metav1.ObjectMeta{Name: "plain", Namespace: ns}})
			}},
			{Name: "one pool", Do: func(ctx context.Context, w *kittest.World) error {
				return w.Env.Client.Create(ctx, mirroredPool("rbd"))
			}},
			{Name: "another", Do: func(ctx context.Context, w *kittest.World) error {
				return w.Env.Client.Create(ctx, mirroredPool("fast"))
			}},
			{Name: "the user writes one", Do: func(ctx context.Context, w *kittest.World) error { return w.Env.Client.Create(ctx, mine.DeepCopy()) }},
			{Name: "and removes it", Do: func(ctx context.Context, w *kittest.World) error { return w.Env.Client.Delete(ctx, mine.DeepCopy()) }},
			{Name: "the peer is lost", Do: stop},
			{Name: "mirroring ends", Do: change("rbd", func(p *cephv1.CephBlockPool) { p.Spec.Mirroring = cephv1.MirroringSpec{} })},
			{Name: "of all", Do: change("fast", func(p *cephv1.CephBlockPool) { p.Spec.Mirroring = cephv1.MirroringSpec{} })},
		},
		Settle: 11 * time.Minute,
	})
	t.Logf("%d effects, %d runs", len(res.Effects), res.Runs)
	if len(res.Effects) < 8 {
		t.Errorf("only %d effects: %v", len(res.Effects), res.Effects)
	}
	if b.opened != 0 {
		t.Errorf("%d connections to the peer are left open", b.opened)
	}
	if !strings.Contains(res.Digest, "kind: ClientProfileMapping") && !strings.Contains(res.Digest, "blockPoolIdMapping") {
		t.Errorf("the mapping is gone:\n%s", res.Digest)
	}
	if strings.Contains(res.Digest, "remoteID") {
		t.Errorf("the replication is left:\n%s", res.Digest)
	}
}

// Each thing that is missing is said by name, and holds nothing up.
func TestConditions(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare func(t *testing.T, b *bench, p *cephv1.CephBlockPool)
		reason  string
		text    string
	}{
		"mapped": {func(*testing.T, *bench, *cephv1.CephBlockPool) {}, ReasonMapped, "1 mirrored pools"},
		"no Secret": {func(_ *testing.T, _ *bench, p *cephv1.CephBlockPool) {
			p.Spec.Mirroring.Peers.SecretNames = []string{"gone"}
		}, ReasonSecretNotFound, "Secret gone"},
		"kinds missing": {func(_ *testing.T, b *bench, _ *cephv1.CephBlockPool) { b.missing = true }, ReasonCRDsMissing, "ClientProfileReplication"},
		"no such pool": {func(_ *testing.T, b *bench, p *cephv1.CephBlockPool) {
			p.Name = "onlyeast"
			createPool(b.t, b.east, "onlyeast")
		}, ReasonPoolNotFound, "pool onlyeast"},
		"not there yet": {func(_ *testing.T, _ *bench, p *cephv1.CephBlockPool) { p.Name = "nowhere" }, ReasonLocalSilent, "does not exist yet"},
		"our mons are silent": {func(_ *testing.T, b *bench, _ *cephv1.CephBlockPool) {
			for _, m := range []string{"a", "b", "c"} {
				b.east.StopMon(m)
			}
		}, ReasonLocalSilent, "when the mons answer"},
		"the name is taken": {func(t *testing.T, b *bench, _ *cephv1.CephBlockPool) {
			m := &csiv1.ClientProfileMapping{ObjectMeta: metav1.ObjectMeta{Name: Name(ns), Namespace: ns}}
			if err := b.store.Client().Create(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}, ReasonNotOurs, "somebody else's"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			p := mirroredPool("rbd")
			tt.prepare(t, b, p)
			if err := b.store.Client().Create(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			w := b.world()
			w.Check, w.Digest = nil, nil
			if _, err := kittest.Play(t, kittest.Scenario{World: func(testing.TB) *kittest.World { return w },
				Acts: []kittest.Act{{Name: "settle", Do: func(context.Context, *kittest.World) error { return nil }}}}, 0, kittest.Before); err != nil {
				t.Fatal(err)
			}
			if c := b.condition(t); c == nil || string(c.Reason) != tt.reason || !strings.Contains(c.Message, tt.text) {
				t.Errorf("condition %+v", c)
			}
		})
	}
}

func createPool(t testing.TB, c *cephtest.Cluster, name string) {
	t.Helper()
	_, err := c.Mon(context.Background(), ceph.Cmd("osd pool create", "pool", name, "pool_type", "replicated"))
	if err != nil {
		t.Fatal(err)
	}
}
