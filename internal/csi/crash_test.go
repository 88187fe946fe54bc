package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/csi/clusterconfig"
	"github.com/castellan-storage/castellan/internal/csi/publish"
	"github.com/castellan-storage/castellan/internal/csi/store"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/replication"
)

const testNS = "drivers"

func crashOptions() Options {
	return Options{OperatorNamespace: testNS, ServiceAccountPrefix: "csi-", OperatorImage: "castellan:test"}
}

// indexed gives the in-memory API server the cache indexes that the controllers use.
type indexed struct{ client.Client }

func (c indexed) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	lo := client.ListOptions{}
	lo.ApplyOptions(opts)
	if lo.FieldSelector == nil {
		return c.Client.List(ctx, list, opts...)
	}
	want := lo.FieldSelector
	lo.FieldSelector = nil
	if err := c.Client.List(ctx, list, &lo); err != nil {
		return err
	}
	switch l := list.(type) {
	case *csiv1.ClientProfileReplicationList:
		l.Items = slices.DeleteFunc(l.Items, func(r csiv1.ClientProfileReplication) bool {
			return !want.Matches(fields.Set{publish.IndexLocalProfile: r.Spec.LocalClientProfile})
		})
	case *csiv1.ClientProfileList:
		l.Items = slices.DeleteFunc(l.Items, func(p csiv1.ClientProfile) bool {
			return !want.Matches(fields.Set{publish.IndexConnection: p.Spec.CephConnectionRef.Name})
		})
	default:
		return fmt.Errorf("no index of %T", list)
	}
	return nil
}

// drive runs a controller of this package on the in-memory API server.
func drive[T kit.Object, S any](parts func(kit.Env, *store.Store, Options) (kit.Controller[T, S], kit.Options), list client.ObjectList) kittest.Driver {
	return func(env kit.Env) kittest.Runner {
		ctl, o := parts(env, store.Direct(env.Client, env.Live), crashOptions())
		keys := kittest.KeysOf(list, testNS)
		if _, keyed := any(ctl).(kit.Keyed[T]); keyed {
			keys = func(context.Context, client.Reader) ([]kit.Key, error) { return []kit.Key{filesKey(testNS)}, nil }
		}
		return kittest.Runner{Name: o.Name, Reconcile: kit.NewReconciler(ctl, env, o), Keys: keys}
	}
}

type life struct {
	store  *kittest.Store
	client client.Client
}

func newLife(t testing.TB) *life {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, csiv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	st, err := kittest.NewStore(s, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
	if err != nil {
		t.Fatal(err)
	}
	return &life{store: st, client: indexed{st.Client()}}
}

func (l *life) world() *kittest.World {
	return &kittest.World{
		Env: kit.Env{Client: l.client, Live: l.client},
		Drivers: []kittest.Driver{
			drive(configParts, nil), drive(mappingParts, nil), drive(profileParts, &csiv1.ClientProfileList{}), drive(connectionParts, &csiv1.CephConnectionList{}),
			drive(mappingStatusParts, &csiv1.ClientProfileMappingList{}), drive(operatorConfigParts, &csiv1.OperatorConfigList{}), drive(driverParts, &csiv1.DriverList{}),
			drive(func(env kit.Env, files *store.Store, _ Options) (kit.Controller[*csiv1.ClientProfileReplication, replication.State], kit.Options) {
				return replication.Parts(env, files, nil)
			}, &csiv1.ClientProfileReplicationList{}),
		},
		Step:  l.rollOut,
		Check: l.check,
		Digest: func(ctx context.Context) (string, error) {
			text, err := kittest.Digest(ctx, l.client, "", &csiv1.DriverList{}, &csiv1.OperatorConfigList{}, &csiv1.CephConnectionList{}, &csiv1.ClientProfileList{},
				&csiv1.ClientProfileMappingList{}, &csiv1.ClientProfileReplicationList{}, &appsv1.DeploymentList{}, &appsv1.DaemonSetList{}, &corev1.ServiceList{},
				&networkingv1.NetworkPolicyList{}, &storagev1.CSIDriverList{}, &corev1.ConfigMapList{})
			// Since when something is published is a time.
			var kept []string
			for _, line := range strings.Split(text, "\n") {
				if !strings.Contains(line, "since") {
					kept = append(kept, line)
				}
			}
			return strings.Join(kept, "\n"), err
		},
	}
}

// rollOut makes the pods of one Deployment or DaemonSet run.
func (l *life) rollOut(ctx context.Context) (bool, error) {
	var deployments appsv1.DeploymentList
	if err := l.client.List(ctx, &deployments); err != nil {
		return false, err
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		n := ptr.Deref(d.Spec.Replicas, 1)
		if d.Status.ObservedGeneration == d.Generation && d.Status.AvailableReplicas == n {
			continue
		}
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
		return true, l.client.Status().Update(ctx, d)
	}
	var sets appsv1.DaemonSetList
	if err := l.client.List(ctx, &sets); err != nil {
		return false, err
	}
	for i := range sets.Items {
		d := &sets.Items[i]
		if d.Status.ObservedGeneration == d.Generation {
			continue
		}
		d.Status = appsv1.DaemonSetStatus{ObservedGeneration: d.Generation, DesiredNumberScheduled: 2, CurrentNumberScheduled: 2, UpdatedNumberScheduled: 2, NumberReady: 2, NumberAvailable: 2}
		return true, l.client.Status().Update(ctx, d)
	}
	return false, nil
}

// check holds what must be true after every effect: config.json can be read, keeps the
// record of somebody else, and has no destination that nobody asked for.
func (l *life) check(ctx context.Context, _ kit.Effect) error {
	cm := &corev1.ConfigMap{}
	err := l.client.Get(ctx, types.NamespacedName{Namespace: testNS, Name: clusterconfig.ConfigMapName}, cm)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	file, err := clusterconfig.Parse(cm.Data[clusterconfig.ConfigKey])
	if err != nil {
		return err
	}
	if strings.Contains(cm.Data[clusterconfig.ConfigKey], "clusterID") && cm.Annotations["foreign"] == "kept" {
		if _, there, err := file.Get("by-hand"); err != nil || !there {
			return errors.Join(err, errors.New("the record that a person wrote is gone: "+cm.Data[clusterconfig.ConfigKey]))
		}
	}
	return l.destination(ctx, file)
}

// destination says whether each destination in the file is that of a replication as it
// is, or was before the last act: the record may lag behind, but must not make up one.
func (l *life) destination(ctx context.Context, file clusterconfig.File) error {
	for _, id := range file.IDs() {
		record, _, err := file.Get(id)
		if err != nil {
			return err
		}
		d := record.ReplicationDestination
		if d != nil && (id != "one" || d.RemoteClusterID != "far" && d.RemoteClusterID != "farther" || d.RBD == nil || d.RBD.RemotePoolMapping["rbd"].PoolID != "5") {
			return fmt.Errorf("record %s has destination %+v", id, *d)
		}
	}
	return nil
}

func create(objs ...client.Object) func(context.Context, *kittest.World) error {
	return func(ctx context.Context, w *kittest.World) error {
		for _, o := range objs {
			fresh, ok := o.DeepCopyObject().(client.Object)
			if !ok {
				return fmt.Errorf("copying %T", o)
			}
			fresh.SetNamespace(testNS)
			if err := w.Env.Client.Create(ctx, fresh); err != nil {
				return err
			}
		}
		return nil
	}
}

func remove(objs ...client.Object) func(context.Context, *kittest.World) error {
	return func(ctx context.Context, w *kittest.World) error {
		for _, o := range objs {
			fresh, ok := o.DeepCopyObject().(client.Object)
			if !ok {
				return fmt.Errorf("copying %T", o)
			}
			fresh.SetNamespace(testNS)
			if err := w.Env.Client.Delete(ctx, fresh); err != nil {
				return err
			}
		}
		return nil
	}
}

func update[T client.Object](obj T, f func(T)) func(context.Context, *kittest.World) error {
	return func(ctx context.Context, w *kittest.World) error {
		fresh, ok := obj.DeepCopyObject().(T)
		if !ok {
			return fmt.Errorf("copying %T", obj)
		}
		if err := w.Env.Client.Get(ctx, types.NamespacedName{Namespace: testNS, Name: obj.GetName()}, fresh); err != nil {
			return err
		}
		f(fresh)
		return w.Env.Client.Update(ctx, fresh)
	}
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

func profileOf(name, connection string) *csiv1.ClientProfile {
	p := &csiv1.ClientProfile{ObjectMeta: named(name)}
	p.Spec.CephConnectionRef.Name = connection
	p.Spec.Rbd = &csiv1.RbdConfigSpec{}
	return p
}

func replicationOf(name, local, remote string) *csiv1.ClientProfileReplication {
	return &csiv1.ClientProfileReplication{ObjectMeta: named(name), Spec: csiv1.ClientProfileReplicationSpec{LocalClientProfile: local, RemoteClientProfile: remote,
		RBD: &csiv1.RBDReplicationSpec{PoolMapping: []csiv1.PoolMappingSpec{{Name: "rbd", RemoteID: "5"}}}}}
}

// The life of profiles, mappings and replications, with a crash at every effect.
func TestCrashConfig(t *testing.T) {
	connection := &csiv1.CephConnection{ObjectMeta: named("conn"), Spec: csiv1.CephConnectionSpec{Monitors: []string{"10.0.0.1:3300"}}}
	mapping := &csiv1.ClientProfileMapping{ObjectMeta: named("map"), Spec: csiv1.ClientProfileMappingSpec{Mappings: []csiv1.MappingsSpec{
		{LocalClientProfile: "one", RemoteClientProfile: "gone", BlockPoolIdMapping: []csiv1.BlockPoolIDPair{{"1", "2"}}}}}}
	files := &corev1.ConfigMap{ObjectMeta: named(clusterconfig.ConfigMapName)}
	res := kittest.Run(t, kittest.Scenario{
		World: func(t testing.TB) *kittest.World { return newLife(t).world() },
		Acts: []kittest.Act{
			{Name: "profiles", Do: create(profileOf("one", "conn"), profileOf("two", "conn"), connection)},
			{Name: "by hand", Do: update(files, func(cm *corev1.ConfigMap) {
				cm.Data[clusterconfig.ConfigKey] = strings.Replace(cm.Data[clusterconfig.ConfigKey], "[", `[{"clusterID":"by-hand","monitors":["m"]},`, 1)
				cm.Annotations["foreign"] = "kept"
			})},
			{Name: "replications and a mapping", Do: create(replicationOf("a", "one", "far"), replicationOf("b", "one", "farther"), mapping)},
			{Name: "the winner goes", Do: remove(replicationOf("a", "one", "far"))},
			{Name: "monitors change", Do: update(connection, func(c *csiv1.CephConnection) { c.Spec.Monitors = []string{"10.0.0.1:3300", "10.0.0.2:3300"} })},
			{Name: "the profile goes, and is held", Do: remove(profileOf("one", "conn"))},
			{Name: "the connection goes", Do: remove(connection)},
			{Name: "the replication goes", Do: remove(replicationOf("b", "one", "farther"))},
			{Name: "all else goes", Do: remove(mapping, profileOf("two", "conn"))},
		},
		Settle: 11 * time.Minute,
	})
	t.Logf("%d effects, %d runs", len(res.Effects), res.Runs)
	if len(res.Effects) < 15 {
		t.Errorf("only %d effects", len(res.Effects))
	}
}

// The life of a Driver, with a crash at every effect.
func TestCrashDriver(t *testing.T) {
	driver := &csiv1.Driver{ObjectMeta: named("rbd.csi.ceph.com"), Spec: csiv1.DriverSpec{DeployCsiAddons: ptr.To(true)}}
	var accounts []client.Object
	for _, name := range []string{"csi-rbd-ctrlplugin-sa", "csi-rbd-nodeplugin-sa"} {
		accounts = append(accounts, &corev1.ServiceAccount{ObjectMeta: named(name)})
	}
	config := &csiv1.OperatorConfig{ObjectMeta: named(csiv1.OperatorConfigDefaultName), Spec: csiv1.OperatorConfigSpec{DriverSpecDefaults: &csiv1.DriverSpec{}}}
	res := kittest.Run(t, kittest.Scenario{
		World: func(t testing.TB) *kittest.World { return newLife(t).world() },
		Acts: []kittest.Act{
			{Name: "a driver without accounts", Do: create(driver)},
			{Name: "accounts", Do: create(accounts...)},
			{Name: "defaults", Do: create(config)},
			{Name: "attachRequired changes", Do: update(driver, func(d *csiv1.Driver) { d.Spec.AttachRequired = ptr.To(false) })},
			{Name: "addons off, liveness on", Do: update(driver, func(d *csiv1.Driver) {
				d.Spec.DeployCsiAddons = ptr.To(false)
				d.Spec.Liveness = &csiv1.LivenessSpec{MetricsPort: 8080}
			})},
			{Name: "the driver goes", Do: remove(driver)},
		},
		Settle: 11 * time.Minute,
	})
	t.Logf("%d effects, %d runs", len(res.Effects), res.Runs)
	if len(res.Effects) < 20 {
		t.Errorf("only %d effects", len(res.Effects))
	}
}
