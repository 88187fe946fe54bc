// Package access finds a cluster's Ceph: its identity and its mons as they are
// stored, and the Commander made from them. Every controller of a cluster starts
// here.
//
// It reads live, since a stale copy of an identity or of the list of mons is
// how clusters get founded twice. It writes nothing. A read that fails is an
// error; only the API server's own NotFound means that something is absent.
package access

import (
	"context"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/conn"
	"github.com/castellan-storage/castellan/internal/cluster/identity"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/mon/endpoints"
)

// Dial gives the Commander of a cluster. The real one is conn.Pool's; tests give
// an in-memory Ceph.
type Dial func(name string, cfg conn.Config) ceph.Commander

// When passes what the controllers of a cluster look at of the CephCluster itself: its
// spec, and the Ceph version that has been accepted, for which all but the first of them
// wait.
func When() predicate.Predicate {
	return predicate.Or(kube.SpecChanged(), predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		a, okA := e.ObjectOld.(*cephv1.CephCluster)
		b, okB := e.ObjectNew.(*cephv1.CephCluster)
		return okA && okB && !reflect.DeepEqual(a.Status.CephVersion, b.Status.CephVersion)
	}})
}

// Named is kube.Named for the controllers that read a cluster's Ceph and own Secrets: they
// are woken by its identity too. Where that was restored by hand, nothing else wakes those
// that have waited for it.
func Named(names ...string) func(name string) bool {
	return kube.Named(append([]string{identity.Secret}, names...)...)
}

// Reader reads where a cluster's Ceph is.
type Reader struct {
	Live client.Reader
	Dial Dial
}

// Cluster is what is stored of a cluster.
type Cluster struct {
	// Founded says that the Secret with the identity exists; Identity is valid then.
	Founded  bool
	Identity identity.Identity
	// Owners are the CephClusters that the Secret goes with, by uid.
	Owners []types.UID
	// Listed says that the ConfigMap with the mons exists; List is valid then.
	Listed bool
	List   endpoints.List
	// ListVersion is the ConfigMap's resourceVersion: what is made from List is written
	// onto this version or not at all.
	ListVersion string
	// CSI is what the ConfigMap holds for clients of old; it is kept.
	CSI string
	// Ceph is nil until both are there.
	Ceph ceph.Commander
}

// Ceph gives the Commander of the cluster in a namespace, for whom nothing is to be done
// without one: mons that are not known are an error, which says what was being done.
func (r Reader) Ceph(ctx context.Context, namespace, doing string) (ceph.Commander, error) {
	c, err := r.Read(ctx, namespace)
	if err != nil {
		return nil, err
	}
	if c.Ceph == nil {
		return nil, fmt.Errorf("%s: the cluster's mons are not known", doing)
	}
	return c.Ceph, nil
}

// Read reads what is stored for the cluster in a namespace.
func (r Reader) Read(ctx context.Context, namespace string) (Cluster, error) {
	c := Cluster{List: endpoints.Empty()}
	var secret corev1.Secret
	found, err := kube.Get(ctx, r.Live, types.NamespacedName{Namespace: namespace, Name: identity.Secret}, &secret)
	if err != nil {
		return Cluster{}, fmt.Errorf("reading the cluster's identity: %w", err)
	}
	if c.Founded = found; found {
		for _, r := range secret.OwnerReferences {
			if r.Kind == "CephCluster" {
				c.Owners = append(c.Owners, r.UID)
			}
		}
		if c.Identity, err = identity.Parse(secret.Data); err != nil {
			return Cluster{}, fmt.Errorf("reading the cluster's identity: %w", err)
		}
	}
	var cm corev1.ConfigMap
	found, err = kube.Get(ctx, r.Live, types.NamespacedName{Namespace: namespace, Name: endpoints.ConfigMap}, &cm)
	if err != nil {
		return Cluster{}, fmt.Errorf("reading the list of mons: %w", err)
	}
	if c.Listed = found; found {
		if c.List, err = endpoints.Parse(cm.Data); err != nil {
			return Cluster{}, fmt.Errorf("reading the list of mons from ConfigMap %s: %w", endpoints.ConfigMap, err)
		}
		c.CSI, c.ListVersion = cm.Data["csi-cluster-config-json"], cm.ResourceVersion
	}
	if c.Founded && len(c.List.Mons) > 0 {
		c.Ceph = r.Dial(namespace, conn.Config{
			FSID: c.Identity.FSID, MonHost: c.List.MonHost(), User: c.Identity.User, Key: c.Identity.Key,
		})
	}
	return c, nil
}
