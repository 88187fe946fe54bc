// Package replace tests the replacement of OSDs' disks with all controllers of a
// CephCluster on a real API server, simulated nodes and an in-memory Ceph.
package replace

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	"github.com/castellan-storage/castellan/internal/ceph/conn"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/config"
	"github.com/castellan-storage/castellan/internal/envtestx"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/osd/replace/overview"
	"github.com/castellan-storage/castellan/internal/osd/spec"
	"github.com/castellan-storage/castellan/test/operator"
	"github.com/castellan-storage/castellan/test/sim"
)

var api envtestx.Server

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // many small worlds: memory is cheaper than time
	}
	os.Exit(envtestx.Main(m, &api))
}

// rig is a cluster of OSDs with data on them, and an operator that can be killed.
type rig struct {
	t      *testing.T
	ns     string
	c      client.Client
	ceph   *cephtest.Cluster
	world  *sim.World
	cfg    *rest.Config
	writes *envtestx.Writes
	stop   func()
	guard  *guard
	hook   kit.Hook // of operators that are started from now on; may be nil
}

func newRig(t *testing.T, nodes, disks int, change ...func(*cephv1.CephCluster)) *rig {
	t.Helper()
	cfg, writes := envtestx.CountWrites(api.Config(t))
	r := &rig{t: t, ns: api.Namespace(t), c: api.Client(t, operator.Scheme(t)), cfg: cfg, writes: writes, ceph: cephtest.New(t, cephtest.Recovery(4))}
	names := make([]string, nodes)
	for i := range names {
		names[i] = r.node(i + 1)
	}
	r.world = sim.New(t, r.c, r.ns, r.ceph, names...)
	for _, n := range names {
		for d := range disks {
			r.plug(n, "sd"+string(rune('b'+d)), d)
		}
	}
	r.guard = watchOver(r)
	r.start()
	t.Cleanup(func() { r.kill() })
	r.create(change...)
	r.ready(nodes * disks)
	r.pool()
	r.founded()
	return r
}

// founded waits until the cluster is not being founded any more: its first pool ends that,
// and the settings of the time before are taken back.
func (r *rig) founded() {
	r.t.Helper()
	r.until(30*time.Second, "the end of founding", func() bool {
		var record corev1.Secret
		err := r.c.Get(r.t.Context(), client.ObjectKey{Namespace: r.ns, Name: config.RecordSecret}, &record)
		return err == nil && !bytes.Contains(record.Data["record"], []byte("mgr_stats_period"))
	})
}

func (r *rig) node(i int) string { return fmt.Sprintf("%s-n%d", r.ns, i) }

// plug puts a blank disk into a slot of a node.
func (r *rig) plug(node, name string, slot int) *sim.Disk {
	d := r.world.AddDisk(node, name)
	r.world.Replacing(func(*sim.Replacements) {
		d.Slot = fmt.Sprintf("pci-0000:00:1f.2-ata-%d", slot+1)
		d.Links = []string{"/dev/disk/by-id/ata-SIM_" + d.Serial, "/dev/disk/by-path/" + d.Slot}
	})
	return d
}

// pool puts data on all OSDs.
func (r *rig) pool() {
	r.t.Helper()
	ctx := r.t.Context()
	for _, cmd := range []ceph.Command{
		ceph.Cmd("osd pool create", "pool", "data", "pg_num", 32, "pgp_num", 32, "pool_type", "replicated", "size", 3, "autoscale_mode", "off"),
		ceph.Cmd("osd pool application enable", "pool", "data", "app", "rbd"),
	} {
		if _, err := r.ceph.Mon(ctx, cmd); err != nil {
			r.t.Fatal(err)
		}
	}
	r.ceph.PutData("data", 1000, 1<<30)
	sim.Eventually(r.t, 20*time.Second, "all PGs clean", func() error { return r.clean() })
}

func (r *rig) clean() error {
	reply, err := r.ceph.Mgr(r.t.Context(), ceph.Cmd("pg stat"))
	if err != nil {
		return err
	}
	for _, w := range []string{"degraded", "remapped", "peering", "unknown", "creating", "undersized"} {
		if strings.Contains(string(reply.Out), w) {
			return fmt.Errorf("%s", reply.Out)
		}
	}
	return nil
}

// start runs an operator with empty memory.
func (r *rig) start() {
	r.t.Helper()
	m, err := ctrl.NewManager(r.cfg, operator.ManagerOptions(r.t, operator.Cache(r.t, r.ns)))
	if err != nil {
		r.t.Fatalf("making the operator: %v", err)
	}
	env := operator.EnvOf(m)
	env.Hook = r.hook
	parts := operator.Parts{
		Access:   access.Reader{Live: env.Live, Dial: func(_ string, cfg conn.Config) ceph.Commander { return sim.Founded{Cluster: r.ceph, As: cfg.FSID} }},
		Operator: pods.Operator{Image: "castellan:test", Namespace: r.ns, Version: "test"},
		Settings: operator.DefaultSettings,
	}
	parts.Register(r.t, m, env)
	r.stop = operator.Start(r.t, m)
}

func (r *rig) kill() {
	if r.stop != nil {
		r.stop()
		r.stop = nil
	}
}

func (r *rig) create(change ...func(*cephv1.CephCluster)) {
	r.t.Helper()
	cl := &cephv1.CephCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "rook-ceph", Namespace: r.ns},
		Spec: cephv1.ClusterSpec{
			CephVersion:     cephv1.CephVersionSpec{Image: "quay.io/ceph/ceph:v20.2.4"},
			DataDirHostPath: "/var/lib/rook",
			Mgr:             cephv1.MgrSpec{Count: 1},
			CrashCollector:  cephv1.CrashCollectorSpec{Disable: true},
			Storage:         cephv1.StorageScopeSpec{Selection: cephv1.Selection{UseAllDevices: ptr.To(true)}},
		},
	}
	for i := range 9 {
		n := r.node(i + 1)
		if r.c.Get(r.t.Context(), client.ObjectKey{Name: n}, &corev1.Node{}) == nil {
			cl.Spec.Storage.Nodes = append(cl.Spec.Storage.Nodes, cephv1.Node{Name: n})
		}
	}
	for _, c := range change {
		c(cl)
	}
	if err := r.c.Create(r.t.Context(), cl); err != nil {
		r.t.Fatalf("creating the CephCluster: %v", err)
	}
}

func (r *rig) get() *cephv1.CephCluster {
	r.t.Helper()
	var cl cephv1.CephCluster
	if err := r.c.Get(r.t.Context(), client.ObjectKey{Namespace: r.ns, Name: "rook-ceph"}, &cl); err != nil {
		r.t.Fatalf("reading the CephCluster: %v", err)
	}
	return &cl
}

func (r *rig) ready(osds int) {
	r.t.Helper()
	sim.Eventually(r.t, 60*time.Second, "cluster ready", func() error {
		cl := r.get()
		if cl.Status.Phase != cephv1.ConditionReady || cl.Status.OSD == nil || cl.Status.OSD.Up != osds {
			return fmt.Errorf("phase %s: %s; blocked by %+v; osd %+v", cl.Status.Phase, cl.Status.Message, cl.Status.BlockedBy, cl.Status.OSD)
		}
		return nil
	})
}

// deployment of an OSD; nil when there is none.
func (r *rig) deployment(id int) *appsv1.Deployment {
	var d appsv1.Deployment
	if err := r.c.Get(r.t.Context(), client.ObjectKey{Namespace: r.ns, Name: spec.Name(id)}, &d); err != nil {
		if client.IgnoreNotFound(err) != nil {
			r.t.Fatal(err)
		}
		return nil
	}
	return &d
}

// change edits an OSD's Deployment.
func (r *rig) change(id int, f func(*appsv1.Deployment)) {
	r.t.Helper()
	sim.Eventually(r.t, 5*time.Second, "editing a Deployment", func() error {
		d := r.deployment(id)
		if d == nil {
			return fmt.Errorf("osd.%d has no Deployment", id)
		}
		if d.Annotations == nil {
			d.Annotations = map[string]string{}
		}
		f(d)
		return r.c.Update(r.t.Context(), d)
	})
}

func (r *rig) annotate(id int, key, value string) {
	r.t.Helper()
	r.change(id, func(d *appsv1.Deployment) {
		if d.Annotations[key] = value; value == "" {
			delete(d.Annotations, key)
		}
	})
}

func (r *rig) replace(id int) { r.annotate(id, spec.ReplaceAnnotation, spec.Confirmation(id)) }

// osd is what the OSD map says.
func (r *rig) osd(id int) (cephosd.OSD, bool) {
	m, err := cephosd.New(r.ceph).Dump(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	return m.Find(id)
}

// entry of the status; nil when there is none.
func (r *rig) entry(id int) *cephv1.OSDReplacement {
	s := r.get().Status.CephStorage
	if s == nil {
		return nil
	}
	for i := range s.Replacements {
		if s.Replacements[i].ID == id {
			return &s.Replacements[i]
		}
	}
	return nil
}

// until waits, and gives the time that it took.
func (r *rig) until(limit time.Duration, what string, ok func() bool) time.Duration {
	r.t.Helper()
	begun := time.Now()
	sim.Eventually(r.t, limit, what, func() error {
		if ok() {
			return nil
		}
		return r.describe()
	})
	return time.Since(begun)
}

func (r *rig) describe() error {
	cl := r.get()
	var lines []string
	if s := cl.Status.CephStorage; s != nil {
		for _, e := range s.Replacements {
			lines = append(lines, fmt.Sprintf("%+v", e))
		}
	}
	var jobs batchv1.JobList
	if err := r.c.List(r.t.Context(), &jobs, client.InNamespace(r.ns)); err == nil {
		for _, j := range jobs.Items {
			lines = append(lines, fmt.Sprintf("job %s succeeded %d failed %d labels %v", j.Name, j.Status.Succeeded, j.Status.Failed, j.Labels))
		}
	}
	for _, c := range cl.Status.Conditions {
		if string(c.Status) != "True" || string(c.Type) == overview.ConditionType {
			lines = append(lines, fmt.Sprintf("condition %s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
		}
	}
	return fmt.Errorf("\n%s", strings.Join(lines, "\n"))
}

func (r *rig) marked(id int, annotation string) bool {
	d := r.deployment(id)
	if d == nil {
		return false
	}
	_, ok := d.Annotations[annotation]
	return ok
}

// swapDisk pulls the OSD's disk and puts a blank one into its slot.
func (r *rig) swapDisk(id int, uuid string) (node string, old, fresh *sim.Disk) {
	r.t.Helper()
	node, old = r.world.DiskOfOSD(uuid)
	if old == nil {
		r.t.Fatalf("no disk carries osd.%d", id)
	}
	slot := int(old.Name[2] - 'b')
	r.world.Pull(node, old.Name)
	return node, old, r.plug(node, old.Name, slot)
}

// events with a reason on an object's name.
func (r *rig) events(reason, on string) []string {
	var list eventsv1.EventList
	if err := r.c.List(r.t.Context(), &list, client.InNamespace(r.ns)); err != nil {
		r.t.Fatal(err)
	}
	var notes []string
	for _, e := range list.Items {
		if e.Reason == reason && e.Regarding.Name == on {
			notes = append(notes, e.Note)
		}
	}
	return notes
}

// guard looks at every command that is sent to Ceph and holds it against the
// invariants D2 and D3.
type guard struct {
	mu    sync.Mutex
	r     *rig
	wrong []string
	// asked are OSDs for which the user has asked; others must not be touched.
	asked map[int]bool
}

func watchOver(r *rig) *guard {
	g := &guard{r: r, asked: map[int]bool{}}
	r.ceph.OnCommand(g.command)
	r.t.Cleanup(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, w := range g.wrong {
			r.t.Error(w)
		}
		if lost := r.ceph.DataLost(); len(lost) > 0 {
			r.t.Errorf("data lost: %v", lost)
		}
	})
	return g
}

func (g *guard) ask(ids ...int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, id := range ids {
		g.asked[id] = true
	}
}

func (g *guard) say(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wrong = append(g.wrong, fmt.Sprintf(format, args...))
}

func (g *guard) command(_ ceph.Target, cmd ceph.Command) {
	switch cmd.Prefix {
	case "osd out", "osd in", "osd down", "osd destroy", "osd purge", "osd reweight":
	default:
		return
	}
	for _, id := range idsOf(cmd) {
		g.mu.Lock()
		asked := g.asked[id]
		g.mu.Unlock()
		if !asked {
			g.say("%s: nobody has asked for anything about osd.%d", cmd, id)
		}
		if cmd.Prefix != "osd destroy" && cmd.Prefix != "osd purge" {
			continue
		}
		if _, forced := cmd.Args["yes_i_really_mean_it"]; forced {
			g.say("%s: Ceph's own check is skipped", cmd)
		}
		// The guard asks by the same door; its own reads pass it by the switch above.
		safety, err := cephosd.New(g.r.ceph).Safety(context.Background(), id)
		if err == nil && safety.Exists && !safety.Destroyed && (safety.Up || !safety.Safe) {
			g.say("%s: osd.%d is up=%v safe=%v (%s)", cmd, id, safety.Up, safety.Safe, safety.Why)
		}
		var list corev1.PodList
		if err := g.r.c.List(context.Background(), &list, client.InNamespace(g.r.ns), client.MatchingLabels{spec.IDLabel: fmt.Sprint(id)}); err == nil && len(list.Items) > 0 {
			g.say("%s: pod %s is there", cmd, list.Items[0].Name)
		}
	}
}

func idsOf(cmd ceph.Command) []int {
	var ids []int
	add := func(v any) {
		var id int
		if _, err := fmt.Sscan(strings.TrimPrefix(fmt.Sprint(v), "osd."), &id); err == nil {
			ids = append(ids, id)
		}
	}
	if v, ok := cmd.Args["id"]; ok {
		add(v)
	}
	if list, ok := cmd.Args["ids"].([]string); ok {
		for _, v := range list {
			add(v)
		}
	}
	return ids
}

// job by name; nil when there is none.
func (r *rig) job(name string) *batchv1.Job {
	var j batchv1.Job
	if err := r.c.Get(r.t.Context(), client.ObjectKey{Namespace: r.ns, Name: name}, &j); err != nil {
		if client.IgnoreNotFound(err) != nil {
			r.t.Fatal(err)
		}
		return nil
	}
	return &j
}

// nodeOf is where the disk of an OSD is.
func (r *rig) nodeOf(uuid string) string {
	node, _ := r.world.DiskOfOSD(uuid)
	return node
}

func (r *rig) nodeOfID(id int) string {
	o, _ := r.osd(id)
	return r.nodeOf(o.UUID)
}
