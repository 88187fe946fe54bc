package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	cephmon "github.com/castellan-storage/castellan/internal/ceph/mon"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/mon/endpoints"
)

// checked says where each invariant is looked at. "effect" is after every effect of
// every run, "step" after every move of the world, "end" when a run is over.
//
//	D1  no disk that holds something is prepared or wiped without proof   effect: disks
//	D2  no osd destroy/purge/rm in these scenarios                        effect: commands
//	D3  no osd out in these scenarios                                     effect: commands
//	D4  one pod per OSD id, one host per OSD uuid                         step: osdPods
//	D5  a disk of an OSD is given to no other                             effect: disks
//	D7  no PG inactive by our own acts                                    step: placement
//	D8  deletion destroys nothing without the word                        effect: disks
//	Q1  one identity, ever                                                effect: identity
//	Q2  the quorum is never lost by our own acts                          step: quorum
//	Q3  the stored list holds a quorum of the monmap                      effect: list
//	Q4  no mon id twice, no shared address or host                        effect: list
//	Q5  Secret and list stay and keep their protection                    effect: identity, list
//	C1  a failed read leads to no effect                                  internal/kit: TestAFailedReadHasNoEffects
//	C2  a steady cluster sees no effect                                   end: kittest
//	C3  the end is that of the run without faults                         end: kittest
//	C4  what users have set stays                                         acts of TestSpecEdit
//	C5  mon, then mgr, then OSD                                           effect: order
//	C6  no Ceph flag is left behind                                       end: digest
//	C7  budgets let one mon go, never more                                effect: budgets
//	L2  what waits is a condition                                         internal/kit, test/cephcluster
//	S1  no key outside Secrets                                            end: secrets
//
// D6 and the rest of D2, D3 and D5 belong to replacements, D9 to pools, L1 and L3 to
// test/cephcluster.
type invariants struct {
	b *bench
	// fsid and mons' ids that have been seen.
	fsid   string
	maxID  int
	gone   map[string]bool
	listed map[string]bool
	// disks by node and name: the OSD that was seen on them.
	disks map[string]string
	// founded says that a quorum has been seen, leaving that the cluster is being
	// deleted, confirmed that its data may go.
	founded, leaving, confirmed bool
	// strict says that no PG may be inactive.
	strict bool
	broken []error
}

func newInvariants(b *bench) *invariants {
	return &invariants{b: b, maxID: -1, gone: map[string]bool{}, listed: map[string]bool{}, disks: map[string]string{}}
}

// fork is the same memory for a copy of a bench.
func (i *invariants) fork(b *bench) *invariants {
	f := *i
	f.b, f.broken = b, slices.Clone(i.broken)
	f.gone, f.listed, f.disks = maps.Clone(i.gone), maps.Clone(i.listed), maps.Clone(i.disks)
	return &f
}

// after looks at everything after an effect.
func (i *invariants) after(ctx context.Context, e kit.Effect) error {
	cl, err := i.b.get(ctx)
	if apierrors.IsNotFound(err) {
		i.leaving = true
	} else if err != nil {
		return err
	} else if !cl.DeletionTimestamp.IsZero() {
		i.leaving, i.confirmed = true, cl.Spec.CleanupPolicy.HasDataDirCleanPolicy()
	}
	errs := []error{i.flush(), i.identity(ctx), i.list(ctx), i.budgets(ctx), i.order(ctx), i.quorum(ctx)}
	i.seeDisks()
	_ = e
	return errors.Join(append(errs, i.flush())...)
}

// moved looks at what the world has made of it.
func (i *invariants) moved(ctx context.Context) {
	i.seeDisks()
	i.fail(i.osdPods(ctx))
	i.fail(i.quorum(ctx))
	i.fail(i.placement())
}

func (i *invariants) fail(err error) {
	if err != nil {
		i.broken = append(i.broken, err)
	}
}

// flush gives what was found between two effects.
func (i *invariants) flush() error {
	err := errors.Join(i.broken...)
	i.broken = nil
	return err
}

func (i *invariants) identity(ctx context.Context) error {
	var s corev1.Secret
	err := i.b.c.Get(ctx, client.ObjectKey{Namespace: i.b.ns, Name: "rook-ceph-mon"}, &s)
	if apierrors.IsNotFound(err) {
		if i.fsid != "" && !i.leaving {
			return errors.New("Q5: the identity is gone")
		}
		return nil
	}
	if err != nil {
		return err
	}
	got := string(s.Data["fsid"])
	if i.fsid == "" {
		i.fsid = got + string(s.Data["mon-secret"])
	}
	switch {
	case i.fsid != got+string(s.Data["mon-secret"]):
		return fmt.Errorf("Q1: the identity has changed to fsid %s", got)
	case len(s.Data["ceph-secret"]) == 0 || got == "":
		return errors.New("Q5: the identity has been emptied")
	case !i.leaving && !slices.Contains(s.Finalizers, "ceph.rook.io/disaster-protection"):
		return errors.New("Q5: the identity is not protected")
	}
	return nil
}

// list checks the ConfigMap against Ceph's monmap, and against its own past.
func (i *invariants) list(ctx context.Context) error {
	var cm corev1.ConfigMap
	err := i.b.c.Get(ctx, client.ObjectKey{Namespace: i.b.ns, Name: endpoints.ConfigMap}, &cm)
	if apierrors.IsNotFound(err) {
		if len(i.listed) > 0 && !i.leaving {
			return errors.New("Q5: the list of mons is gone")
		}
		return nil
	}
	if err != nil {
		return err
	}
	l, err := endpoints.Parse(cm.Data)
	if err != nil {
		return fmt.Errorf("Q5: %w", err)
	}
	var errs []error
	if l.MaxID < i.maxID {
		errs = append(errs, fmt.Errorf("Q4: the highest mon id went from %d to %d", i.maxID, l.MaxID))
	}
	i.maxID = l.MaxID
	addrs, hosts := map[string]string{}, map[string]string{}
	for _, id := range l.IDs() {
		m := l.Mons[id]
		if i.gone[id] {
			errs = append(errs, fmt.Errorf("Q4: mon %s is back", id))
		}
		if other := addrs[m.Addr.String()]; other != "" {
			errs = append(errs, fmt.Errorf("Q4: mons %s and %s share %s", id, other, m.Addr))
		}
		addrs[m.Addr.String()] = id
		if m.Place != nil && m.Place.Hostname != "" && !i.stopped(ctx, id) {
			if other := hosts[m.Place.Hostname]; other != "" {
				errs = append(errs, fmt.Errorf("Q4: mons %s and %s share host %s", id, other, m.Place.Hostname))
			}
			hosts[m.Place.Hostname] = id
		}
	}
	for id := range i.listed {
		if _, ok := l.Mons[id]; !ok {
			i.gone[id] = true
		}
	}
	i.listed = map[string]bool{}
	for _, id := range l.IDs() {
		i.listed[id] = true
	}
	if !i.leaving && !slices.Contains(cm.Finalizers, "ceph.rook.io/disaster-protection") {
		errs = append(errs, errors.New("Q5: the list of mons is not protected"))
	}
	if q, err := cephmon.New(i.b.ceph).QuorumStatus(ctx); err == nil && !i.leaving {
		known := 0
		for _, m := range q.Monmap.Mons {
			if _, ok := l.Mons[m.Name]; ok {
				known++
			}
		}
		if 2*known <= len(q.Monmap.Mons) {
			errs = append(errs, fmt.Errorf("Q3: the list %v holds %d of %d mons", l.IDs(), known, len(q.Monmap.Mons)))
		}
	}
	return errors.Join(errs...)
}

// stopped says that a mon has made room for its replacement.
func (i *invariants) stopped(ctx context.Context, id string) bool {
	var d appsv1.Deployment
	err := i.b.c.Get(ctx, client.ObjectKey{Namespace: i.b.ns, Name: "rook-ceph-mon-" + id}, &d)
	return err == nil && d.Spec.Replicas != nil && *d.Spec.Replicas == 0
}

// quorum is never lost once it was there, until the cluster goes. The scenarios take
// away at most as many mons as a quorum can spare.
func (i *invariants) quorum(ctx context.Context) error {
	_, err := cephmon.New(i.b.ceph).QuorumStatus(ctx)
	switch {
	case err == nil:
		i.founded = true
	case i.founded && !i.leaving:
		return fmt.Errorf("Q2: the quorum is lost: %w", err)
	}
	return nil
}

// command looks at what is sent to Ceph.
func (i *invariants) command(_ ceph.Target, cmd ceph.Command) {
	for _, bad := range []struct{ id, prefix string }{
		{"D2", "osd destroy"}, {"D2", "osd purge"}, {"D2", "osd rm"}, {"D2", "osd purge-new"}, {"D3", "osd out"}, {"D9", "osd pool rm"}, {"D9", "osd pool delete"},
	} {
		if cmd.Prefix == bad.prefix {
			i.fail(fmt.Errorf("%s: %s was sent", bad.id, cmd))
		}
	}
}

// seeDisks remembers which OSD a disk holds, and complains when that changes.
func (i *invariants) seeDisks() {
	now := i.b.sim.Held()
	for disk, osd := range i.disks {
		if now[disk] == osd || osd == "" {
			continue
		}
		if now[disk] == "" && i.leaving && i.confirmed {
			continue
		}
		i.fail(fmt.Errorf("D1: %s held %s and holds %q now", disk, osd, now[disk]))
	}
	i.disks = now
}

// osdPods are never two for one OSD.
func (i *invariants) osdPods(ctx context.Context) error {
	var list corev1.PodList
	if err := i.b.c.List(ctx, &list, client.InNamespace(i.b.ns), client.HasLabels{"ceph-osd-id"}); err != nil {
		return err
	}
	seen := map[string]string{}
	for _, p := range list.Items {
		if p.Spec.NodeName == "" {
			continue
		}
		id := p.Labels["ceph-osd-id"]
		if other := seen[id]; other != "" {
			return fmt.Errorf("D4: pods %s and %s both run osd.%s", p.Name, other, id)
		}
		seen[id] = p.Name
	}
	return nil
}

// placement says that PGs are inactive.
func (i *invariants) placement() error {
	if !i.strict || i.leaving {
		return nil
	}
	_, states, ok := strings.Cut(i.b.ceph.String(), "pgs ")
	var count map[string]int
	if !ok || json.Unmarshal([]byte(states), &count) != nil {
		return fmt.Errorf("D7: cannot read %s", i.b.ceph)
	}
	for s, n := range count {
		if n > 0 && !strings.Contains(s, "active") && !strings.Contains(s, "peering") {
			return fmt.Errorf("D7: %d PGs are %s", n, s)
		}
	}
	if lost := i.b.ceph.DataLost(); len(lost) > 0 {
		return fmt.Errorf("D7: PGs have lost their data: %v", lost)
	}
	return nil
}

// budgets let at most one mon of three, two of five go, and do not block a cluster
// whose mons are all there.
func (i *invariants) budgets(ctx context.Context) error {
	var b policyv1.PodDisruptionBudget
	err := i.b.c.Get(ctx, client.ObjectKey{Namespace: i.b.ns, Name: "rook-ceph-mon-pdb"}, &b)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	most := 1
	if len(i.listed) >= 5 {
		most = 2
	}
	if got := b.Spec.MaxUnavailable.IntValue(); got > most && len(i.listed) <= 3 {
		return fmt.Errorf("C7: %d of %d mons may be drained at once", got, len(i.listed))
	}
	return nil
}

// order: no mgr has a new image while a mon has an old one, no OSD while a mgr has.
func (i *invariants) order(ctx context.Context) error {
	var list appsv1.DeploymentList
	if err := i.b.c.List(ctx, &list, client.InNamespace(i.b.ns)); err != nil {
		return err
	}
	rank := map[string]int{"rook-ceph-mon": 1, "rook-ceph-mgr": 2, "rook-ceph-osd": 3}
	oldest, newest := 0, 0
	var oldName, newName string
	for _, d := range list.Items {
		r := rank[d.Labels["app"]]
		if r == 0 {
			continue
		}
		switch d.Spec.Template.Spec.Containers[0].Image {
		case oldImage:
			if oldest == 0 || r < oldest {
				oldest, oldName = r, d.Name
			}
		case newImage:
			if r > newest {
				newest, newName = r, d.Name
			}
		}
	}
	if oldest > 0 && newest > oldest {
		return fmt.Errorf("C5: %s has the new image while %s has the old one", newName, oldName)
	}
	return nil
}

// secrets looks for keys wherever they must not be.
func (i *invariants) secrets(ctx context.Context) error {
	keys := map[string]string{}
	for _, name := range []string{"client.admin", "mon.", "mgr.a", "mgr.b", "client.bootstrap-osd", "osd.0"} {
		if k := i.b.ceph.Key(name); k != "" {
			keys[k] = name
		}
	}
	var own corev1.Secret
	if err := i.b.c.Get(ctx, client.ObjectKey{Namespace: i.b.ns, Name: "rook-ceph-mon"}, &own); err == nil {
		keys[string(own.Data["mon-secret"])] = "mon."
		keys[string(own.Data["ceph-secret"])] = "client.admin"
	}
	for _, list := range []client.ObjectList{
		&appsv1.DeploymentList{}, &appsv1.DaemonSetList{}, &batchv1.JobList{}, &corev1.PodList{}, &corev1.ConfigMapList{}, &corev1.ServiceList{}, &cephv1.CephClusterList{},
	} {
		if err := i.b.c.List(ctx, list, client.InNamespace(i.b.ns)); err != nil {
			return err
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			data, err := json.Marshal(o)
			if err != nil {
				return err
			}
			for _, k := range slices.Sorted(maps.Keys(keys)) {
				if k != "" && strings.Contains(string(data), k) {
					return fmt.Errorf("S1: the key of %s is in %T %s", keys[k], o, o.(client.Object).GetName())
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
