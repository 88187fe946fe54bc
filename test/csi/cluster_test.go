package csi_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	"github.com/castellan-storage/castellan/internal/ceph/conn"
	"github.com/castellan-storage/castellan/internal/cluster/identity"
	"github.com/castellan-storage/castellan/internal/csi/clusterconfig"
	"github.com/castellan-storage/castellan/internal/csiusers"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/replication"
)

// cephs are the in-memory clusters of tests, by namespace.
var cephs = &clusters{by: map[string]ceph.Commander{}}

type clusters struct {
	mu sync.Mutex
	by map[string]ceph.Commander
}

func (c *clusters) dial(name string, _ conn.Config) ceph.Commander {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by[name]
}

func (c *clusters) put(name string, ceph ceph.Commander) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by[name] = ceph
}

// From a CephCluster to what drivers read: users and Secrets in the cluster's namespace,
// connection and profile in the operator's, the record in config.json; mons that move
// and mount options that change arrive there, also in a profile that a user made; and a
// replication of a pool that does not exist is warned of.
func TestCephCluster(t *testing.T) {
	w := newWorld(t)
	c := cephtest.Healthy(t, 3, 1)
	if _, err := c.Mon(t.Context(), ceph.Cmd("osd pool create", "pool", "rbd", "pool_type", "replicated")); err != nil {
		t.Fatal(err)
	}
	cephs.put(w.ns, c)
	mons := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "rook-ceph-mon-endpoints", Labels: map[string]string{kube.OwnedLabel: "true"}},
		Data: map[string]string{"data": "b=10.0.0.2:6789,a=10.0.0.1:6789", "maxMonId": "1"}}
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: identity.Secret}, Data: map[string][]byte{
		"fsid": []byte(c.FSID()), "mon-secret": []byte("m"), "ceph-username": []byte("client.admin"), "ceph-secret": []byte("k")}}, mons)
	cl := &cephv1.CephCluster{ObjectMeta: metav1.ObjectMeta{Name: "main"}, Spec: cephv1.ClusterSpec{
		CephVersion: cephv1.CephVersionSpec{Image: "quay.io/ceph/ceph:v20.2.4"}, DataDirHostPath: "/var/lib/rook", Mon: cephv1.MonSpec{Count: 3}}}
	w.create(cl)
	cl.Status.CephVersion = &cephv1.ClusterVersion{Image: "quay.io/ceph/ceph:v20.2.4", Version: "20.2.4-0"}
	if err := w.Status().Update(t.Context(), cl); err != nil {
		t.Fatal(err)
	}
	condition := func(typ cephv1.ConditionType) string {
		if err := w.Get(t.Context(), client.ObjectKeyFromObject(cl), cl); err != nil {
			return err.Error()
		}
		cond := cephv1.FindCondition(cl.Status.Conditions, typ)
		if cond == nil || cond.Status != "True" {
			return fmt.Sprintf("%s is %+v", typ, cond)
		}
		return ""
	}
	w.eventually("CSIReady", func() string { return condition("CSIReady") })
	w.eventually(csiusers.ConditionConnected, func() string { return condition(csiusers.ConditionConnected) })
	for _, u := range csiusers.Users() {
		s := &corev1.Secret{}
		if err := w.Get(t.Context(), types.NamespacedName{Namespace: w.ns, Name: u.Secret}, s); err != nil {
			t.Fatal(err)
		}
		if string(s.Data["userID"]) != u.Name || string(s.Data["userKey"]) != c.Key(u.Entity(1)) || s.Type != identity.SecretType || len(s.Data) != 2 {
			t.Errorf("Secret %s of type %s names %s", u.Secret, s.Type, s.Data["userID"])
		}
	}

	record := func(id string) clusterconfig.Record {
		cm := &corev1.ConfigMap{}
		if err := w.Get(t.Context(), types.NamespacedName{Namespace: operatorNamespace, Name: clusterconfig.ConfigMapName}, cm); err != nil {
			return clusterconfig.Record{}
		}
		file, err := clusterconfig.Parse(cm.Data[clusterconfig.ConfigKey])
		if err != nil {
			t.Fatal(err)
		}
		r, _, err := file.Get(id)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	holds := func(id, monitors, options string) func() string {
		return func() string {
			r := record(id)
			if got := strings.Join(r.Monitors, ",") + " " + r.CephFS.KernelMountOptions; got != monitors+" "+options {
				return got
			}
			return ""
		}
	}
	w.eventually("the record", holds(w.ns, "10.0.0.1:3300,10.0.0.2:3300", "ms_mode=prefer-crc"))
	if r := record(w.ns); r.RBD.NodePublishSecretRef.Name != "rook-csi-rbd-node" || r.RBD.NodePublishSecretRef.Namespace != w.ns {
		t.Errorf("the record names Secret %+v", r.RBD.NodePublishSecretRef)
	}

	mine := &csiv1.ClientProfile{ObjectMeta: metav1.ObjectMeta{Name: "mine-" + w.ns, Namespace: operatorNamespace}}
	mine.Spec.CephConnectionRef.Name, mine.Spec.CephFs = w.ns, &csiv1.CephFsConfigSpec{SubVolumeGroup: "group"}
	w.create(mine)
	change(w, mons, func(cm *corev1.ConfigMap) { cm.Data["data"] = "c=10.0.0.3:6789,b=10.0.0.2:6789,a=10.0.0.1:6789" })
	change(w, cl, func(cl *cephv1.CephCluster) { cl.Spec.CSI.CephFS.KernelMountOptions = "noatime" })
	for _, id := range []string{w.ns, mine.Name} {
		w.eventually("the record of "+id, holds(id, "10.0.0.1:3300,10.0.0.2:3300,10.0.0.3:3300", "ms_mode=prefer-crc,noatime"))
	}

	r := &csiv1.ClientProfileReplication{ObjectMeta: metav1.ObjectMeta{Name: "to-" + w.ns, Namespace: operatorNamespace}, Spec: csiv1.ClientProfileReplicationSpec{
		LocalClientProfile: w.ns, RemoteClientProfile: "far", RBD: &csiv1.RBDReplicationSpec{PoolMapping: []csiv1.PoolMappingSpec{{Name: "rbd", RemoteID: "5"}, {Name: "renamed", RemoteID: "6"}}}}}
	w.create(r)
	w.eventually("the warning", func() string {
		if err := w.Get(t.Context(), client.ObjectKeyFromObject(r), r); err != nil {
			return err.Error()
		}
		cond := meta.FindStatusCondition(r.Status.Conditions, replication.ConditionSuspicious)
		if cond == nil || cond.Status != "True" || cond.Reason != replication.ReasonPoolNotFound || !strings.Contains(cond.Message, "'renamed'") || strings.Contains(cond.Message, "'rbd'") {
			return fmt.Sprintf("%+v", cond)
		}
		if ready := meta.FindStatusCondition(r.Status.Conditions, csiv1.ConditionReady); ready == nil || ready.Status != "True" || !strings.Contains(ready.Message, "since") {
			return fmt.Sprintf("%+v", ready)
		}
		return ""
	})

	// A cluster at rest is not written to, nor is Ceph.
	w.eventually("rest", func() string {
		before := len(manager.writes.Lines())
		time.Sleep(500 * time.Millisecond)
		if n := len(manager.writes.Lines()) - before; n > 0 {
			return fmt.Sprintf("%d writes in half a second", n)
		}
		return ""
	})
	c.Reset()
	before := len(manager.writes.Lines())
	time.Sleep(3 * time.Second)
	if n := len(manager.writes.Lines()) - before; n > 0 || c.Counters().Mutations > 0 {
		t.Errorf("%d writes and %d changes of Ceph at rest", n, c.Counters().Mutations)
	}
	for _, obj := range []client.Object{r, mine, &csiv1.ClientProfile{ObjectMeta: metav1.ObjectMeta{Name: w.ns, Namespace: operatorNamespace}}} {
		w.delete(obj)
	}
}
