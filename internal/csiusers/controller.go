// Package csiusers gives the CSI drivers what they need of a CephCluster: cephx users
// with their Secrets, the CephConnection with its mons, and the default ClientProfile.
//
// Users and Secrets belong to the cluster (condition CSIReady). Connection and profile
// are of kinds that need not be installed: their state is the condition CSIConnected,
// which never holds the cluster up. It must not write the drivers' configuration, and
// must never change the key of a user.
package csiusers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	csiv1 "github.com/castellan-storage/castellan/api/csi/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/auth"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/csi/clientprofile"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kube"
	"github.com/castellan-storage/castellan/internal/mon/endpoints"
	"github.com/castellan-storage/castellan/internal/podspec"
	"github.com/castellan-storage/castellan/internal/release"
	"github.com/castellan-storage/castellan/internal/settings"
)

// ConditionConnected is True on a CephCluster whose CephConnection and ClientProfile
// are as they should be.
const ConditionConnected = "CSIConnected"

// Reasons of the conditions.
const (
	ReasonConnected    = "Connected"
	ReasonCRDsMissing  = "CSICRDsMissing"
	ReasonWithheld     = "ReadAffinityWithheld"
	ReasonMonsNotReady = "MonsNotReady"
	ReasonNoMons       = "NoMons"
)

// again is how often a cluster is looked at without a reason: nobody tells when a user
// is changed in Ceph by hand.
const again = 10 * time.Minute

// Controller keeps what drivers need of CephClusters.
type Controller struct {
	Cache    client.Reader
	Access   access.Reader
	Operator pods.Operator
	Settings func(ctx context.Context) (settings.Settings, error)
}

// Options of the controller for kit.Register. kinds says that the kinds of csi.ceph.io
// are installed, and can be watched; without it they are looked for at each pass.
func Options(kinds bool) kit.Options {
	o := kit.Options{
		Name: "csi-users", Report: kit.SubjectReport("CSI"), When: access.When(), AdoptFrom: sets.New("rook"),
		Owns: []kit.Object{&corev1.Secret{}}, OwnsNamed: access.Named("rook-csi-"),
		Watches: []kit.Watch{
			{Object: &corev1.ConfigMap{}, Map: onlyMons},
			{Object: &cephv1.CephRBDMirror{}, Map: kube.ToAll(&cephv1.CephClusterList{}), When: kube.SpecChanged()},
		},
	}
	if kinds {
		// They are named after the cluster's namespace, and in that of the operator.
		byName := func(ctx context.Context, cache client.Reader, obj client.Object) []kit.Key {
			return clustersIn(ctx, cache, obj.GetName())
		}
		o.Watches = append(o.Watches,
			kit.Watch{Object: &csiv1.CephConnection{}, Map: byName, When: kube.SpecChanged()},
			kit.Watch{Object: &csiv1.ClientProfile{}, Map: byName, When: kube.SpecChanged()})
	}
	return o
}

func clustersIn(ctx context.Context, cache client.Reader, namespace string) []kit.Key {
	return kube.KeysIn(ctx, cache, &cephv1.CephClusterList{}, namespace)
}

// onlyMons passes the list of mons.
func onlyMons(ctx context.Context, cache client.Reader, obj client.Object) []kit.Key {
	if obj.GetName() != endpoints.ConfigMap {
		return nil
	}
	return clustersIn(ctx, cache, obj.GetNamespace())
}

// Seen is everything that the plan needs to know.
type Seen struct {
	Cluster podspec.Cluster
	Mons    endpoints.List
	// Silence is why Ceph has not answered; Entities are valid if it is empty.
	Silence  string
	Entities []auth.Entity
	// Secrets of the users that exist.
	Secrets []corev1.Secret
	// Missing names the kind of csi.ceph.io that is not installed, "" if all are.
	Missing string
	// Mirrors is the number of rbd-mirror daemons, 0 for none.
	Mirrors int
}

// New implements kit.Controller.
func (*Controller) New() *cephv1.CephCluster { return &cephv1.CephCluster{} }

// Observe implements kit.Controller. Of a cluster that is not founded nothing is read:
// there is nothing to do about it.
func (c *Controller) Observe(ctx context.Context, cl *cephv1.CephCluster) (Seen, error) {
	if !founded(cl) {
		return Seen{}, nil
	}
	set, err := c.Settings(ctx)
	if err != nil {
		return Seen{}, fmt.Errorf("reading the operator's settings: %w", err)
	}
	stored, err := c.Access.Read(ctx, cl.Namespace)
	if err != nil {
		return Seen{}, err
	}
	seen := Seen{Cluster: pods.Cluster(cl, c.Operator, set, stored.Identity.FSID, ""), Mons: stored.List}
	for _, u := range Users() {
		s, err := kube.Lookup[corev1.Secret](ctx, c.Access.Live, types.NamespacedName{Namespace: cl.Namespace, Name: u.Secret})
		if err != nil {
			return Seen{}, fmt.Errorf("reading the Secret of user %s: %w", u.Name, err)
		}
		if s != nil {
			seen.Secrets = append(seen.Secrets, *s)
		}
	}
	if seen.Missing, err = c.missing(ctx); err != nil {
		return Seen{}, err
	}
	if seen.Mirrors, err = c.mirrors(ctx, cl.Namespace); err != nil {
		return Seen{}, err
	}
	if stored.Ceph == nil {
		seen.Silence = "the cluster has no mons yet"
		return seen, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if seen.Entities, err = auth.Recent(ctx, ceph.Recently(stored.Ceph)); err != nil {
		seen.Silence = err.Error()
	}
	return seen, nil
}

// missing asks the API server for the two kinds, in the operator's namespace.
func (c *Controller) missing(ctx context.Context) (string, error) {
	for _, kind := range []struct {
		name string
		list client.ObjectList
	}{{"CephConnection", &csiv1.CephConnectionList{}}, {"ClientProfile", &csiv1.ClientProfileList{}}} {
		err := c.Access.Live.List(ctx, kind.list, client.InNamespace(c.Operator.Namespace), client.Limit(1))
		if meta.IsNoMatchError(err) {
			return kind.name, nil
		}
		if err != nil {
			return "", fmt.Errorf("looking for the kind %s: %w", kind.name, err)
		}
	}
	return "", nil
}

// mirrors counts the rbd-mirror daemons: those of the first CephRBDMirror by name.
func (c *Controller) mirrors(ctx context.Context, namespace string) (int, error) {
	list, err := kube.List(ctx, c.Cache, &cephv1.CephRBDMirrorList{}, client.InNamespace(namespace))
	if err != nil {
		return 0, err
	}
	if len(list.Items) == 0 {
		return 0, nil
	}
	first := slices.MinFunc(list.Items, func(a, b cephv1.CephRBDMirror) int { return strings.Compare(a.Name, b.Name) })
	return first.Spec.Count, nil
}

// founded says that there is something to work on. What somebody else runs always is.
func founded(cl *cephv1.CephCluster) bool { return cl.Spec.External.Enable || pods.Founded(cl) }

// Plan implements kit.Controller.
func (c *Controller) Plan(cl *cephv1.CephCluster, seen Seen) kit.Plan {
	if cl.Spec.CleanupPolicy.HasDataDirCleanPolicy() {
		return kit.Plan{}
	}
	if !founded(cl) {
		return kit.Plan{Wait: pods.NotFounded()}
	}
	p := kit.Plan{Next: again}
	version := release.Version{}
	if v := cl.Status.CephVersion; v != nil {
		if parsed, err := release.ParseLabel(v.Version); err == nil {
			version = parsed
		}
	}
	p.Conditions = []kit.Condition{c.connect(cl, seen, version, &p)}
	switch {
	case cl.Spec.External.Enable: // its users come with the import
	case cl.Spec.CSI.SkipUserCreation:
		p.Delete = append(p.Delete, handedOver(seen.Secrets, seen.Cluster.Owner)...)
	case seen.Silence != "":
		p.Wait = &kit.Wait{Reason: ReasonMonsNotReady, Message: "the users of the CSI drivers wait for the mons: " + seen.Silence, For: time.Second}
	default:
		users(cl, seen, version, &p)
	}
	return p
}

// users adds what is to be done about users and Secrets.
func users(cl *cephv1.CephCluster, seen Seen, version release.Version, p *kit.Plan) {
	k := Keys{Cluster: seen.Cluster, Entities: seen.Entities, InUse: map[string]string{}, Spec: cl.Spec.Security.CephX.CSI}
	for i := range seen.Secrets {
		k.InUse[seen.Secrets[i].Name] = string(seen.Secrets[i].Data["userID"])
	}
	if !version.Has(release.AES256K) {
		k.Spec.KeyType = "" // it has the one cipher, and knows no argument for it
	}
	d := Decide(k)
	p.Apply = append(p.Apply, d.Apply...)
	p.Do = append(p.Do, d.Do...)
	if !d.Complete {
		return
	}
	status := cl.DeepCopy()
	if status.Status.Cephx == nil {
		status.Status.Cephx = &cephv1.ClusterCephxStatus{}
	}
	was, now := status.Status.Cephx.CSI, &cephv1.CephxStatusWithKeyCount{PriorKeyCount: d.Prior}
	now.KeyGeneration, now.KeyType = d.Generation, cephv1.CephxKeyType(d.KeyType)
	if was != nil && was.KeyGeneration == now.KeyGeneration {
		now.KeyCephVersion = was.KeyCephVersion
	} else if cl.Status.CephVersion != nil {
		now.KeyCephVersion = cl.Status.CephVersion.Version
	}
	status.Status.Cephx.CSI = now
	p.Status = status
}

// connect adds connection and profile, and says how they are.
func (c *Controller) connect(cl *cephv1.CephCluster, seen Seen, version release.Version, p *kit.Plan) kit.Condition {
	cond := kit.Condition{Type: ConditionConnected, Status: metav1.ConditionFalse}
	switch {
	case seen.Missing != "":
		cond.Reason = ReasonCRDsMissing
		cond.Message = "kind " + seen.Missing + " of csi.ceph.io is not installed: install its CRD to have CSI drivers find this cluster; nothing else waits for it"
		p.Next = time.Minute
		return cond
	case len(seen.Mons.Mons) == 0:
		cond.Reason, cond.Message = ReasonNoMons, "the mons of the cluster are not known yet"
		return cond
	}
	ref := clientprofile.Of(cl, c.Operator.Namespace)
	affinity, withheld := clientprofile.ReadAffinity(cl.Spec.CSI.ReadAffinity, version)
	msgr2 := !cl.Spec.External.Enable && pods.Msgr2Only(&cl.Spec.Network)
	p.Apply = append(p.Apply, ref.Connection(clientprofile.Monitors(seen.Mons, msgr2), affinity, seen.Mirrors), ref.Default())
	cond.Status, cond.Reason = metav1.ConditionTrue, ReasonConnected
	cond.Message = fmt.Sprintf("CSI drivers of namespace %s find the cluster as clusterID %s", c.Operator.Namespace, cl.Namespace)
	if withheld {
		cond.Reason = ReasonWithheld
		cond.Message += "; readAffinity stays off with Ceph 20.2.0, in which it is broken"
	}
	return cond
}

// Teardown implements kit.Controller. What is in the cluster's namespace goes with the
// CephCluster, by its owner references. Connection and profile in another namespace
// stay: volumes may still be in use by them, and a cluster made anew takes them over.
func (*Controller) Teardown(*cephv1.CephCluster, Seen) kit.Plan { return kit.Plan{} }

// Do implements kit.Doer.
func (c *Controller) Do(ctx context.Context, cl *cephv1.CephCluster, action kit.Action) error {
	commander, err := c.Access.Ceph(ctx, cl.Namespace, action.String())
	if err != nil {
		return err
	}
	users := auth.New(commander)
	switch a := action.(type) {
	case Ensure:
		if a.Exists {
			return users.SetCaps(ctx, a.Entity, a.Caps)
		}
		_, err := users.WithKeyType(a.KeyType).GetOrCreate(ctx, a.Entity, a.Caps)
		return err
	case Remove:
		return users.Remove(ctx, a.Entity)
	}
	return fmt.Errorf("%s: no such action", action)
}
