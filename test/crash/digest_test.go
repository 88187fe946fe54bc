package crash

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph/auth"
	cephconfig "github.com/castellan-storage/castellan/internal/ceph/config"
	cephmon "github.com/castellan-storage/castellan/internal/ceph/mon"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/cluster/keyring"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
)

func kinds() []client.ObjectList {
	return []client.ObjectList{
		&appsv1.DeploymentList{}, &appsv1.DaemonSetList{}, &batchv1.JobList{}, &batchv1.CronJobList{}, &corev1.ConfigMapList{}, &corev1.SecretList{},
		&corev1.ServiceList{}, &corev1.PersistentVolumeClaimList{}, &policyv1.PodDisruptionBudgetList{}, &discoveryv1.EndpointSliceList{}, &cephv1.CephClusterList{},
	}
}

// digest is all that must be the same at the end of every run: the objects, Ceph's
// maps, and the disks. Keys, uuids and addresses stand under the name of what they
// belong to.
func (b *bench) digest(ctx context.Context) (string, error) {
	if err := b.inv.secrets(ctx); err != nil {
		return "", err
	}
	b.inv.seeDisks()
	if err := b.inv.flush(); err != nil {
		return "", err
	}
	names := map[string]string{}
	for disk, osd := range b.sim.Held() {
		if _, uuid, ok := strings.Cut(osd, " "); ok {
			names[uuid] = "UUID-" + disk
		}
	}
	var objs []*unstructured.Unstructured
	for _, list := range kinds() {
		if err := b.c.List(ctx, list, client.InNamespace(b.ns)); err != nil {
			return "", err
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			b.name(o, names)
			u, err := b.plain(o)
			if u != nil {
				objs = append(objs, u)
			}
			return err
		})
		if err != nil {
			return "", err
		}
	}
	text, err := kittest.DigestOf(b.ns, objs...)
	if err != nil {
		return "", err
	}
	ceph, err := b.cephDigest(ctx)
	if err != nil {
		return "", err
	}
	text += ceph + b.disks()
	text = strings.ReplaceAll(text, b.ns, "NAMESPACE")
	for _, from := range longestFirst(names) {
		text = strings.ReplaceAll(text, from, strings.ReplaceAll(names[from], b.ns, "NAMESPACE"))
	}
	// Hashes of what has another name in each run: a template's covers keys, a
	// request's the namespace.
	return regexp.MustCompile(`(template-hash|/request)(: |":")[0-9a-f]+`).ReplaceAllString(text, "$1$2HASH"), nil
}

func longestFirst(names map[string]string) []string {
	var list []string
	for k := range names {
		list = append(list, k)
	}
	slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) })
	return list
}

// name notes what differs from run to run.
func (b *bench) name(o runtime.Object, names map[string]string) {
	switch o := o.(type) {
	case *corev1.Service:
		if o.Spec.ClusterIP != "" && o.Spec.ClusterIP != "None" {
			names[o.Spec.ClusterIP+":"] = "IP-" + o.Name + ":"
			names["["+o.Spec.ClusterIP+"]"] = "[IP-" + o.Name + "]"
			names["public-addr="+o.Spec.ClusterIP] = "public-addr=IP-" + o.Name
			names["- "+o.Spec.ClusterIP+"\n"] = "- IP-" + o.Name + "\n"
		}
	case *corev1.Secret:
		names[keyring.Version(o)] = "VERSION-" + o.Name
	}
}

// plain makes an object comparable, or nil if it is none of the cluster's.
func (b *bench) plain(o runtime.Object) (*unstructured.Unstructured, error) {
	switch o := o.(type) {
	case *corev1.ConfigMap:
		if o.Name == "kube-root-ca.crt" {
			return nil, nil
		}
	case *batchv1.Job:
		// What the API server and a Job's controller add differs between the two servers.
		o.Spec.Selector, o.Spec.Template.Labels, o.Status, o.Finalizers = nil, nil, batchv1.JobStatus{}, nil
	case *corev1.Secret:
		// A key is named by whose it is; one that is nobody's today is seen.
		o.StringData = map[string]string{}
		for k, v := range o.Data {
			text := string(v)
			for _, name := range []string{"client.admin", "mon.", "mgr.a", "mgr.b", "mgr.c", "client.bootstrap-osd"} {
				if key := b.ceph.Key(name); key != "" {
					text = strings.ReplaceAll(text, key, "KEY-"+name)
				}
			}
			o.StringData[k] = regexp.MustCompile(`Ag[A-Za-z0-9+/=]{58}|AQ[A-Za-z0-9+/=]{38}`).ReplaceAllString(text, "FOUNDING-KEY")
		}
		o.Data = nil
	case *corev1.Service:
		o.Spec.ClusterIPs = nil
	case *cephv1.CephCluster:
		tidy(&o.Status)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	gvk, err := apiutil.GVKForObject(o, b.c.Scheme())
	if err != nil {
		return nil, err
	}
	u.SetGroupVersionKind(gvk)
	return u, nil
}

// tidy leaves out of a status what tells when and how things came about.
func tidy(st *cephv1.ClusterStatus) {
	slices.SortFunc(st.Conditions, func(a, b cephv1.Condition) int { return strings.Compare(string(a.Type), string(b.Type)) })
	if c := st.CephStatus; c != nil {
		c.LastChanged, c.LastChecked, c.PreviousHealth, c.Capacity.LastUpdated = "", "", "", ""
	}
	for i := range st.BlockedBy {
		st.BlockedBy[i].Since.Reset()
	}
}

// cephDigest are the maps.
func (b *bench) cephDigest(ctx context.Context) (string, error) {
	var out strings.Builder
	q, err := cephmon.New(b.ceph).QuorumStatus(ctx)
	if err != nil {
		return "ceph: silent\n", nil
	}
	var mons []string
	for _, m := range q.Monmap.Mons {
		mons = append(mons, fmt.Sprintf("%s quorum=%v", m.Name, q.In(m.Name)))
	}
	slices.Sort(mons)
	fmt.Fprintf(&out, "mons: %s\n", strings.Join(mons, ", "))
	m, err := cephosd.New(b.ceph).Dump(ctx)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&out, "flags: %v release %s\n", m.FlagsSet, m.RequireOSDRelease)
	for _, o := range m.OSDs {
		fmt.Fprintf(&out, "osd.%d %s up=%v in=%v\n", o.ID, o.UUID, o.Up, o.In)
	}
	tree, err := cephosd.New(b.ceph).Tree(ctx)
	if err != nil {
		return "", err
	}
	for _, n := range tree.Nodes {
		fmt.Fprintf(&out, "crush %d %s %s\n", n.ID, n.Type, n.Name)
	}
	users, err := auth.New(b.ceph).List(ctx)
	if err != nil {
		return "", err
	}
	for _, u := range users {
		fmt.Fprintf(&out, "user %s %v\n", u.Name, u.Caps)
	}
	opts, err := cephconfig.New(b.ceph).Dump(ctx)
	if err != nil {
		return "", err
	}
	for _, o := range opts {
		fmt.Fprintf(&out, "config %s %s=%s\n", o.Section, o.Name, o.Value)
	}
	return out.String(), nil
}

func (b *bench) disks() string {
	var lines []string
	for disk, osd := range b.sim.Held() {
		lines = append(lines, "disk "+disk+": "+osd)
	}
	for node, req := range b.sim.Cleaned() {
		lines = append(lines, fmt.Sprintf("cleaned %s: mons %v, %d OSDs", node, req.Mons, len(req.OSDs)))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

// collect is the garbage collector of a real API server's world: what belongs to a
// CephCluster that is gone goes.
func (b *bench) collect(ctx context.Context) error {
	var clusters cephv1.CephClusterList
	if err := b.c.List(ctx, &clusters, client.InNamespace(b.ns)); err != nil {
		return err
	}
	alive := map[types.UID]bool{}
	for _, c := range clusters.Items {
		alive[c.UID] = true
	}
	if len(alive) > 0 {
		return nil
	}
	for _, list := range kinds() {
		if err := b.c.List(ctx, list, client.InNamespace(b.ns)); err != nil {
			return err
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			obj, ok := o.(client.Object)
			if !ok {
				return nil
			}
			for _, r := range obj.GetOwnerReferences() {
				if r.Kind == "CephCluster" && !alive[r.UID] && obj.GetDeletionTimestamp() == nil {
					return client.IgnoreNotFound(b.c.Delete(ctx, obj, client.GracePeriodSeconds(0)))
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
