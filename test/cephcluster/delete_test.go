package cephcluster

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/cleanup"
	"github.com/castellan-storage/castellan/test/sim"
)

func small(cl *cephv1.CephCluster) { cl.Spec.Mon.Count, cl.Spec.Mgr.Count = 1, 1 }

// edit changes the CephCluster.
func (r *rig) edit(change func(*cephv1.CephCluster)) {
	r.t.Helper()
	sim.Eventually(r.t, 10*time.Second, "edit", func() error {
		cl := r.get()
		change(cl)
		return r.c.Update(r.t.Context(), cl)
	})
}

func confirm(cl *cephv1.CephCluster) {
	cl.Spec.CleanupPolicy.Confirmation = cephv1.DeleteDataDirOnHostsConfirmation
}

// delete asks for the deletion, and returns what the object was.
func (r *rig) delete() *cephv1.CephCluster {
	r.t.Helper()
	cl := r.get()
	if err := r.c.Delete(r.t.Context(), cl); err != nil {
		r.t.Fatal(err)
	}
	return cl
}

// gone waits until the CephCluster is gone.
func (r *rig) gone(limit time.Duration) {
	r.t.Helper()
	sim.Eventually(r.t, limit, "the CephCluster is gone", func() error {
		var cl cephv1.CephCluster
		err := r.c.Get(r.t.Context(), client.ObjectKey{Namespace: r.ns, Name: "rook-ceph"}, &cl)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there (%w): %+v", err, cl.Status.Conditions)
	})
}

// blockedBy waits until the deletion is blocked with all of the words.
func (r *rig) blockedBy(reason string, words ...string) {
	r.t.Helper()
	sim.Eventually(r.t, 40*time.Second, reason, func() error {
		c := cephv1.FindCondition(r.get().Status.Conditions, "DeletionIsBlocked")
		if c == nil || c.Status != "True" || string(c.Reason) != reason {
			return fmt.Errorf("%+v", c)
		}
		for _, w := range words {
			if !strings.Contains(c.Message, w) {
				return fmt.Errorf("%q is not in %q", w, c.Message)
			}
		}
		return nil
	})
}

// nothingLeft plays the garbage collector, which an API server alone does not have,
// and checks that only what is the user's is left.
func (r *rig) nothingLeft(uid types.UID, users ...string) {
	r.t.Helper()
	owned := map[types.UID]bool{uid: true}
	// What owners of owners take along: two levels are enough (Deployment, Pod).
	kinds := func() []client.ObjectList {
		return []client.ObjectList{
			&appsv1.DeploymentList{}, &appsv1.DaemonSetList{}, &batchv1.JobList{}, &batchv1.CronJobList{}, &corev1.PodList{}, &corev1.ConfigMapList{}, &corev1.SecretList{},
			&corev1.ServiceList{}, &corev1.PersistentVolumeClaimList{}, &policyv1.PodDisruptionBudgetList{}, &discoveryv1.EndpointSliceList{},
		}
	}
	each := func(do func(client.Object)) {
		for _, list := range kinds() {
			if err := r.c.List(r.t.Context(), list, client.InNamespace(r.ns)); err != nil {
				r.t.Fatal(err)
			}
			if err := meta.EachListItem(list, func(o runtime.Object) error { do(o.(client.Object)); return nil }); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	for range 2 {
		each(func(o client.Object) {
			for _, ref := range o.GetOwnerReferences() {
				if owned[ref.UID] {
					owned[o.GetUID()] = true
				}
			}
		})
	}
	each(func(o client.Object) {
		if owned[o.GetUID()] {
			if len(o.GetFinalizers()) > 0 && !slices.Contains(o.GetFinalizers(), "batch.kubernetes.io/job-tracking") {
				r.t.Errorf("%T %s is held by %v", o, o.GetName(), o.GetFinalizers())
			}
			return
		}
		if o.GetName() == "kube-root-ca.crt" || slices.Contains(users, o.GetName()) {
			return
		}
		r.t.Errorf("left behind: %T %s %v %v", o, o.GetName(), o.GetLabels(), o.GetOwnerReferences())
	})
}

func (r *rig) osdDisks() int {
	n := 0
	for i := range 9 {
		if name := r.node(i + 1); r.has(name) {
			n += r.world.OSDs(name)
		}
	}
	return n
}

func volume(name, driver, clusterID string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driver, VolumeHandle: name, VolumeAttributes: map[string]string{"clusterID": clusterID},
			}},
		},
	}
}

// Each child kind and each volume that needs the cluster blocks its deletion and is
// named; a list that fails is no empty list.
func TestDeletionIsBlockedByWhatNeedsTheCluster(t *testing.T) {
	r := newRig(t, 1, 1)
	r.create(small)
	r.ready(1)
	ctx := t.Context()
	in := metav1.ObjectMeta{Namespace: r.ns, Name: "x"}
	replicated := cephv1.PoolSpec{FailureDomain: "host", Replicated: cephv1.ReplicatedSpec{Size: 3}}
	away := api.Namespace(t)
	children := map[string]client.Object{
		"CephBlockPool":                &cephv1.CephBlockPool{ObjectMeta: in, Spec: cephv1.NamedBlockPoolSpec{PoolSpec: replicated}},
		"CephBlockPoolRadosNamespace":  &cephv1.CephBlockPoolRadosNamespace{ObjectMeta: in, Spec: cephv1.CephBlockPoolRadosNamespaceSpec{BlockPoolName: "x"}},
		"CephRBDMirror":                &cephv1.CephRBDMirror{ObjectMeta: in, Spec: cephv1.RBDMirroringSpec{Count: 1}},
		"CephFilesystem":               &cephv1.CephFilesystem{ObjectMeta: in, Spec: cephv1.FilesystemSpec{MetadataServer: cephv1.MetadataServerSpec{ActiveCount: 1}}},
		"CephFilesystemSubVolumeGroup": &cephv1.CephFilesystemSubVolumeGroup{ObjectMeta: in, Spec: cephv1.CephFilesystemSubVolumeGroupSpec{FilesystemName: "x"}},
		"CephFilesystemMirror":         &cephv1.CephFilesystemMirror{ObjectMeta: in},
		"CephObjectStore":              &cephv1.CephObjectStore{ObjectMeta: in},
		"CephObjectRealm":              &cephv1.CephObjectRealm{ObjectMeta: in},
		"CephObjectZoneGroup":          &cephv1.CephObjectZoneGroup{ObjectMeta: in, Spec: cephv1.ObjectZoneGroupSpec{Realm: "x"}},
		"CephObjectZone":               &cephv1.CephObjectZone{ObjectMeta: in, Spec: cephv1.ObjectZoneSpec{ZoneGroup: "x", MetadataPool: replicated, DataPool: replicated}},
		"CephObjectStoreAccount":       &cephv1.CephObjectStoreAccount{ObjectMeta: in, Spec: cephv1.ObjectStoreAccountSpec{Store: "x"}},
		"CephObjectStoreUser":          &cephv1.CephObjectStoreUser{ObjectMeta: in, Spec: cephv1.ObjectStoreUserSpec{Store: "x"}},
		"CephBucketTopic": &cephv1.CephBucketTopic{ObjectMeta: in, Spec: cephv1.BucketTopicSpec{ObjectStoreName: "x", ObjectStoreNamespace: r.ns,
			Endpoint: cephv1.TopicEndpointSpec{HTTP: &cephv1.HTTPEndpointSpec{URI: "http://example.com"}}}},
		"CephBucketNotification": &cephv1.CephBucketNotification{ObjectMeta: in, Spec: cephv1.BucketNotificationSpec{Topic: "x"}},
		"CephNFS":                &cephv1.CephNFS{ObjectMeta: in, Spec: cephv1.NFSGaneshaSpec{Server: cephv1.GaneshaServerSpec{Active: 1}}},
		"CephNVMeOFGateway":      &cephv1.CephNVMeOFGateway{ObjectMeta: in, Spec: cephv1.NVMeOFGatewaySpec{Group: "x", Instances: 1, Image: "x"}},
		"CephClient":             &cephv1.CephClient{ObjectMeta: in, Spec: cephv1.ClientSpec{Caps: map[string]string{"mon": "allow r"}}},
	}
	for kind, o := range children {
		if err := r.c.Create(ctx, o); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	// One that is somewhere else, and volumes: two of this cluster, two of others.
	elsewhere := &cephv1.CephObjectStoreUser{ObjectMeta: metav1.ObjectMeta{Namespace: away, Name: "guest"}, Spec: cephv1.ObjectStoreUserSpec{Store: "x", ClusterNamespace: "another"}}
	if err := r.c.Create(ctx, elsewhere); err != nil {
		t.Error(err)
	}
	pvs := []*corev1.PersistentVolume{
		volume(r.ns+"-rbd", r.ns+".rbd.csi.ceph.com", r.ns), volume(r.ns+"-nfs", "nfs.csi.ceph.com", r.ns),
		volume(r.ns+"-other-cluster", "x.cephfs.csi.ceph.com", "another"), volume(r.ns+"-other-driver", "ebs.csi.aws.com", r.ns),
	}
	for _, pv := range pvs {
		if err := r.c.Create(ctx, pv); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.c.Delete(t.Context(), pv) })
	}
	// An API server that does not answer is not an API server that says "none".
	r.writes.Fail(func(req *http.Request) (int, error) {
		if req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/persistentvolumes") {
			return http.StatusForbidden, nil
		}
		return 0, nil
	})
	r.edit(confirm)
	cl := r.delete()
	r.condition("FoundationReady", "False", "listing PersistentVolumes")
	r.writes.Fail(nil)
	words := []string{"PersistentVolume " + r.ns + "-rbd", "PersistentVolume " + r.ns + "-nfs"}
	for kind := range children {
		words = append(words, kind+" "+r.ns+"/x")
	}
	r.blockedBy("ObjectHasDependents", words...)
	for _, no := range []string{"other-cluster", "other-driver", "guest"} {
		if c := cephv1.FindCondition(r.get().Status.Conditions, "DeletionIsBlocked"); strings.Contains(c.Message, no) {
			t.Errorf("%s blocks: %s", no, c.Message)
		}
	}
	for kind, o := range children {
		if err := r.c.Delete(ctx, o); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	r.blockedBy("ObjectHasDependents", "PersistentVolume "+r.ns+"-rbd")
	if r.osdDisks() != 1 || len(r.ceph.RunningOSDs()) != 1 {
		t.Fatal("something was destroyed or stopped while the deletion was blocked")
	}
	r.edit(func(cl *cephv1.CephCluster) { cl.Spec.CleanupPolicy.AllowUninstallWithVolumes = true })
	r.gone(40 * time.Second)
	r.nothingLeft(cl.UID)
	if r.osdDisks() != 0 {
		t.Error("disks are not cleaned")
	}
}

// Data goes only with the right word.
func TestDataGoesOnlyWithTheRightWord(t *testing.T) {
	for _, c := range []struct {
		name, word        string
		rejected, destroy bool
	}{
		{name: "none"},
		{name: "wrong", word: "yes-please", rejected: true},
		{name: "almost", word: "yes-really-destroy-data ", rejected: true},
		{name: "right", word: "yes-really-destroy-data", destroy: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 1, 1)
			r.create(small)
			r.ready(1)
			user := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.ns, Name: "users"}}
			budget := &policyv1.PodDisruptionBudget{ // of an operator that was here before
				ObjectMeta: metav1.ObjectMeta{Namespace: r.ns, Name: "rook-ceph-osd"},
				Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "rook-ceph-osd"}}},
			}
			for _, o := range []client.Object{user, budget} {
				if err := r.c.Create(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			cl := r.get()
			cl.Spec.CleanupPolicy.Confirmation = cephv1.CleanupConfirmationProperty(c.word)
			if err := r.c.Update(t.Context(), cl); c.rejected != apierrors.IsInvalid(err) {
				t.Fatalf("%q: %v", c.word, err)
			}
			gone := r.delete()
			r.gone(40 * time.Second)
			r.nothingLeft(gone.UID, "users")
			if left := r.osdDisks(); (left == 0) != c.destroy {
				t.Errorf("%d disks hold an OSD", left)
			}
			if n := len(r.world.Cleaned()); (n > 0) != c.destroy {
				t.Errorf("%d hosts were cleaned", n)
			}
		})
	}
}

// Hosts that are down are in the list too. What holds things up is named, and the
// user may take a host off.
func TestADeadNodeIsNamedAndMayBeTakenOff(t *testing.T) {
	r := newRig(t, 3, 1)
	r.create()
	r.ready(3)
	dead := r.node(3)
	r.world.Kill(dead)
	r.edit(confirm)
	cl := r.delete()
	r.blockedBy("StoppingDaemons", "Pod rook-ceph-osd-", "(node "+dead+" does not answer)")
	if n := len(r.world.Cleaned()); n != 0 {
		t.Fatalf("%d hosts were cleaned while daemons may run", n)
	}
	r.edit(func(cl *cephv1.CephCluster) { cl.Annotations = map[string]string{cleanup.SkipAnnotation: dead} })
	r.gone(60 * time.Second)
	done := r.world.Cleaned()
	for i, want := range []int{0, 0, 1} {
		n := r.node(i + 1)
		req, cleaned := done[n]
		if r.world.OSDs(n) != want || cleaned != (want == 0) {
			t.Errorf("%s: %d OSDs, cleaned %v", n, r.world.OSDs(n), cleaned)
		}
		if cleaned && (len(req.OSDs) != 1 || len(req.Mons) != 1 || req.Method != "quick" || req.Source != "zero") {
			t.Errorf("%s was asked for %+v", n, req)
		}
	}
	// The pods of a dead node go when it comes back, or when it is deleted.
	r.world.Revive(dead)
	sim.Eventually(t, 20*time.Second, "no pods on the node that was dead", func() error {
		var list corev1.PodList
		if err := r.c.List(t.Context(), &list, client.InNamespace(r.ns)); err != nil {
			return err
		}
		for _, p := range list.Items {
			if p.Spec.NodeName == dead {
				return fmt.Errorf("%s", p.Name)
			}
		}
		return nil
	})
	r.nothingLeft(cl.UID)
}

// A host that fails is named with what has failed, and the CephCluster stays until it
// is clean. Before that the operator is killed at random.
func TestAHostThatFailsHoldsTheDeletion(t *testing.T) {
	r := newRig(t, 2, 2)
	r.create(func(cl *cephv1.CephCluster) { cl.Spec.Mon.Count, cl.Spec.Mgr.Count = 1, 1 })
	r.ready(4)
	bad := r.node(2)
	r.world.FailCleanup(bad, "osd.3 on /dev/sdc: failed, is held by somebody")
	r.edit(confirm)
	cl := r.delete()
	for i := range 8 {
		time.Sleep(time.Duration(30+i*40) * time.Millisecond)
		r.kill()
		r.start()
	}
	r.blockedBy("HostCleanupFailed", bad+": osd.3 on /dev/sdc: failed, is held by somebody")
	if r.world.OSDs(r.node(1)) != 0 {
		t.Error("the other host waits for the one that fails")
	}
	var s corev1.Secret
	if err := r.c.Get(t.Context(), client.ObjectKey{Namespace: r.ns, Name: "rook-ceph-mon"}, &s); err != nil || len(s.Finalizers) == 0 {
		t.Errorf("the identity is not protected any more: %v, %v", s.Finalizers, err)
	}
	r.world.FailCleanup(bad, "")
	r.gone(40 * time.Second)
	if r.osdDisks() != 0 {
		t.Error("disks are not cleaned")
	}
	r.nothingLeft(cl.UID)
}

// The confirmation is taken back in time.
func TestTheConfirmationCanBeTakenBack(t *testing.T) {
	r := newRig(t, 1, 1)
	r.create(small)
	r.ready(1)
	r.world.Hold(r.node(1), true)
	r.edit(confirm)
	cl := r.delete()
	r.blockedBy("CleaningHosts", r.node(1))
	r.edit(func(cl *cephv1.CephCluster) { cl.Spec.CleanupPolicy.Confirmation = "" })
	r.gone(40 * time.Second)
	r.nothingLeft(cl.UID)
	if r.osdDisks() != 1 {
		t.Error("the disk was cleaned")
	}
}

// A second CephCluster in a namespace, which never came to anything, takes nothing
// with it, whatever its confirmation says.
func TestTheSecondClusterTakesNothingAlong(t *testing.T) {
	r := newRig(t, 1, 1)
	r.create(small)
	r.ready(1)
	second := &cephv1.CephCluster{ObjectMeta: metav1.ObjectMeta{Name: "another", Namespace: r.ns}, Spec: *r.get().Spec.DeepCopy()}
	confirm(second)
	// Creation times have seconds.
	sim.Eventually(t, 5*time.Second, "a later second", func() error {
		if time.Since(r.get().CreationTimestamp.Time) < 1100*time.Millisecond {
			return sim.ErrNotYet
		}
		return nil
	})
	if err := r.c.Create(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	sim.Eventually(t, 20*time.Second, "finalizer", func() error {
		if err := r.c.Get(t.Context(), client.ObjectKeyFromObject(second), second); err != nil || len(second.Finalizers) == 0 {
			return fmt.Errorf("%v %w", second.Finalizers, err)
		}
		return nil
	})
	if err := r.c.Delete(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	sim.Eventually(t, 20*time.Second, "the second is gone", func() error {
		if err := r.c.Get(t.Context(), client.ObjectKeyFromObject(second), second); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there (%w): %+v", err, second.Status.Conditions)
		}
		return nil
	})
	var s corev1.Secret
	if err := r.c.Get(t.Context(), client.ObjectKey{Namespace: r.ns, Name: "rook-ceph-mon"}, &s); err != nil || len(s.Finalizers) == 0 {
		t.Errorf("the first cluster's identity: %v, %v", s.Finalizers, err)
	}
	if r.osdDisks() != 1 || len(r.world.Cleaned()) != 0 || len(r.ceph.RunningOSDs()) != 1 {
		t.Error("the first cluster was harmed")
	}
}
