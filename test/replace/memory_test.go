package replace

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	"github.com/castellan-storage/castellan/internal/ceph"
	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	"github.com/castellan-storage/castellan/internal/ceph/conn"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/cluster/access"
	"github.com/castellan-storage/castellan/internal/cluster/pods"
	"github.com/castellan-storage/castellan/internal/kit"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/osd/replace/view"
	"github.com/castellan-storage/castellan/internal/osd/spec"
	"github.com/castellan-storage/castellan/test/operator"
	"github.com/castellan-storage/castellan/test/sim"
)

// bench is one world in memory, with a clock of its own: nothing waits for real.
type bench struct {
	t     testing.TB
	ns    string
	c     client.Client
	store *kittest.Store
	ceph  *cephtest.Cluster
	sim   *sim.World
	op    pods.Operator
	// looking keeps injected errors from what only looks whether all is well.
	looking bool
	// asked are OSDs about which the user has asked for something; others are taboo.
	asked map[int]bool
	// disk is where an OSD was, by serial; meta the name of a lost metadata device, and its
	// node.
	disk           map[int]string
	meta, metaNode string
	// lost are OSDs whose loss the user has accepted.
	lost map[int]bool
	// taboo are serials of disks that must stay as they are.
	taboo  map[string]bool
	broken []string
	// before is what was noted by an act.
	before map[int]place
	uuid   map[int]string
	// fail is asked about every request of the operator to the API server, lie about every
	// command that it sends to Ceph. Both are nil most of the time.
	fail func(verb, kind string, key types.NamespacedName) error
	lie  func(cmd ceph.Command) lie
	// door is where the operator reaches the API server.
	door client.Client
	// goblin runs between any two steps of the world.
	goblin func(ctx context.Context)
	// keeper looks whether a replacement leaves alone what it has to; nil for none.
	keeper *keeper
	// events that were sent, effects that there were.
	events  []string
	effects int
}

// recorder keeps the events.
type recorder struct{ b *bench }

// Eventf implements kit.Recorder.
func (r recorder) Eventf(regarding, _ runtime.Object, _, reason, _, note string, args ...any) {
	name := ""
	if o, ok := regarding.(client.Object); ok {
		name = o.GetName()
	}
	r.b.events = append(r.b.events, name+" "+reason+": "+fmt.Sprintf(note, args...))
}

// told counts events of a reason on an object that hold a text.
func (b *bench) told(on, reason, text string) int {
	n := 0
	for _, e := range b.events {
		if strings.HasPrefix(e, on+" "+reason+": ") && strings.Contains(e, text) {
			n++
		}
	}
	return n
}

// benches makes worlds; each has its bench in World.Data.
type benches struct{}

type options struct {
	nodes, disks int
	// name is that of change.
	name   string
	change func(*cephv1.CephCluster)
	size   int
	// lag is how many writes what controllers read may be behind, by seed.
	lag  int
	seed uint64
}

// settle is longer than the slowest regular look of any controller (a minute).
const settle = 65 * time.Second

// setups are clusters with data on them, which most tests begin with.
var setups kittest.Setups

// scenario is one that begins with a cluster with data on it.
func (bs benches) scenario(o options, acts ...kittest.Act) kittest.Scenario {
	s := kittest.Scenario{
		World: func(t testing.TB) *kittest.World { return bs.world(t, o) }, Acts: append(bs.begin(o), acts...), Settle: settle,
	}
	if o.change == nil || o.name != "" {
		s.Setups, s.Begin = &setups, fmt.Sprint(o.nodes, o.disks, o.size, o.name)
	}
	return s
}

func (benches) world(t testing.TB, o options) *kittest.World {
	t.Helper()
	b := &bench{t: t, ns: "rook-ceph", op: pods.Operator{Image: "castellan:one", Version: "one", Namespace: "rook-ceph"},
		asked: map[int]bool{}, lost: map[int]bool{}, disk: map[int]string{}, taboo: map[string]bool{}, before: map[int]place{}, uuid: map[int]string{}}
	b.ceph = cephtest.New(t, cephtest.FSID(operator.FSID), cephtest.Recovery(8))
	store, err := kittest.NewStore(operator.Scheme(t))
	if err != nil {
		t.Fatal(err)
	}
	b.store, b.c = store, store.Client()
	b.sim = sim.InMemory(t, b.c, b.ns, b.ceph)
	for i := range o.nodes {
		b.sim.AddNode(b.node(i + 1))
		for d := range o.disks {
			b.plug(b.node(i+1), "sd"+string(rune('b'+d)), d)
		}
	}
	return b.live(o)
}

// live makes a world of what a bench has.
func (b *bench) live(o options) *kittest.World {
	b.ceph.OnCommand(b.command)
	w := &kittest.World{Time: func(now func() time.Time) {
		b.store.Clock(now)
		b.sim.Clock = now
	}, Drivers: b.drivers(), Step: b.step, Check: b.check, Digest: b.digest, Data: b}
	b.door = b.store.Failing(func(verb, kind string, key types.NamespacedName) error {
		if b.fail == nil {
			return nil
		}
		return b.fail(verb, kind, key)
	})
	w.Env.Client, w.Env.Recorder, w.Told = b.door, recorder{b}, b.c
	if o.lag > 0 {
		w.Cache = b.store.Cache(o.seed, o.lag)
		w.Env.Client, w.Env.Live, w.Told = w.Cache.Client(), b.door, nil
	}
	w.Fork = func(t testing.TB) *kittest.World { return b.fork(t).live(o) }
	w.State = b.state
	return w
}

// state tells two states on the way of one run apart: all that happens is written, is a
// command to Ceph, or takes a step of the world.
func (b *bench) state() string {
	return fmt.Sprint(b.store.Revision(), b.ceph.Counters().Mutations, b.ceph.Now().UnixNano())
}

// fork copies everything that there is.
func (b *bench) fork(t testing.TB) *bench {
	f := *b
	f.t, f.store, f.ceph, f.goblin = t, b.store.Fork(), b.ceph.Fork(t), nil
	f.fail, f.lie, f.keeper = nil, nil, b.keeper.fork()
	f.c = f.store.Client()
	f.sim = b.sim.Fork(t, f.c, f.ceph)
	f.lost, f.disk = maps.Clone(b.lost), maps.Clone(b.disk)
	f.asked, f.taboo, f.before, f.uuid = maps.Clone(b.asked), maps.Clone(b.taboo), maps.Clone(b.before), maps.Clone(b.uuid)
	f.broken, f.events = slices.Clone(b.broken), slices.Clone(b.events)
	return &f
}

func (b *bench) node(i int) string { return fmt.Sprintf("n%d", i) }

func (b *bench) plug(node, name string, slot int) *sim.Disk {
	d := b.sim.AddDisk(node, name)
	b.sim.Replacing(func(*sim.Replacements) {
		d.Slot = fmt.Sprintf("pci-0000:00:1f.2-ata-%d", slot+1)
		d.Links = []string{"/dev/disk/by-id/ata-SIM_" + d.Serial, "/dev/disk/by-path/" + d.Slot}
	})
	return d
}

// parts of the operator as it is now.
func (b *bench) parts() operator.Parts {
	return operator.Parts{
		Access:   access.Reader{Live: b.door, Dial: func(string, conn.Config) ceph.Commander { return liar{b.ceph, b} }},
		Operator: b.op, Settings: operator.DefaultSettings, Random: operator.Sevens{},
	}
}

// drivers are the operator's controllers, made anew with each process.
func (b *bench) drivers() []kittest.Driver {
	var list []kittest.Driver
	for i := range b.parts().Controllers() {
		list = append(list, func(env kit.Env) kittest.Runner { return b.parts().Controllers()[i].Drive(env) })
	}
	return list
}

func (b *bench) step(ctx context.Context) (bool, error) {
	changed, err := b.sim.Step(ctx)
	if err != nil {
		return changed, err
	}
	before := b.store.Revision()
	b.mischief(ctx)
	b.pods(ctx)
	if b.keeper != nil {
		b.keeper.watch(ctx, b)
	}
	return changed || b.store.Revision() != before, nil
}

// mischief is the goblin's turn: after each step of the world, and after each effect of the
// operator.
func (b *bench) mischief(ctx context.Context) {
	if b.goblin != nil {
		b.goblin(ctx)
	}
}

// say notes a broken invariant.
func (b *bench) say(format string, args ...any) {
	b.broken = append(b.broken, fmt.Sprintf(format, args...))
}

// command holds every command against D2 and D3, at the moment when it is sent.
func (b *bench) command(_ ceph.Target, cmd ceph.Command) {
	switch cmd.Prefix {
	case "osd out", "osd in", "osd down", "osd destroy", "osd purge", "osd reweight":
	default:
		return
	}
	ctx := context.Background()
	for _, id := range idsOf(cmd) {
		if !b.asked[id] {
			b.say("D3: %s: nobody has asked for anything about osd.%d", cmd, id)
		}
		if cmd.Prefix != "osd destroy" && cmd.Prefix != "osd purge" {
			continue
		}
		if _, forced := cmd.Args["yes_i_really_mean_it"]; forced {
			// The node's rollback in a test purges; the operator destroys so only what is lost.
			if cmd.Prefix == "osd destroy" && !b.lost[id] {
				b.say("D2: %s: nobody has accepted the loss of osd.%d", cmd, id)
			}
			continue
		}
		m, err := cephosd.New(b.ceph).Dump(ctx)
		if err != nil {
			continue
		}
		if o, ok := m.Find(id); ok && !o.Destroyed() {
			safety, err := cephosd.New(b.ceph).Safety(ctx, id)
			if err != nil || !safety.Safe || safety.Up {
				b.say("D2: %s: up %v, %s, %v", cmd, safety.Up, safety.Why, err)
			}
		}
		var list corev1.PodList
		b.looking = true
		err = b.c.List(ctx, &list, client.InNamespace(b.ns), client.MatchingLabels{spec.IDLabel: fmt.Sprint(id)})
		b.looking = false
		switch {
		case err != nil:
			b.say("D2: %s: listing pods: %v", cmd, err)
		case len(list.Items) > 0:
			b.say("D2: %s: pod %s is there", cmd, list.Items[0].Name)
		}
	}
}

// pods: never two for one OSD (D4).
func (b *bench) pods(ctx context.Context) {
	b.looking = true
	defer func() { b.looking = false }()
	var list corev1.PodList
	if err := b.c.List(ctx, &list, client.InNamespace(b.ns), client.HasLabels{spec.IDLabel}); err != nil {
		b.say("listing pods: %v", err)
		return
	}
	seen := map[string]string{}
	for _, p := range list.Items {
		if p.Spec.NodeName == "" {
			continue
		}
		if other := seen[p.Labels[spec.IDLabel]]; other != "" {
			b.say("D4: pods %s and %s run one OSD", p.Name, other)
		}
		seen[p.Labels[spec.IDLabel]] = p.Name
	}
}

// check looks at what was found broken, and at what an effect has left.
func (b *bench) check(ctx context.Context, e kit.Effect) error {
	if e.What != "" {
		b.effects++
		b.mischief(ctx)
	}
	if b.keeper != nil {
		b.keeper.watch(ctx, b)
	}
	b.sim.Replacing(func(r *sim.Replacements) {
		for _, serial := range r.Made {
			if b.taboo[serial] {
				b.say("D1: an OSD was made on disk %s", serial)
			}
		}
	})
	if lost := b.ceph.DataLost(); len(lost) > 0 {
		b.say("data lost: %v", lost)
	}
	if len(b.broken) == 0 {
		return nil
	}
	err := fmt.Errorf("%s", strings.Join(b.broken, "; "))
	b.broken = nil
	return err
}

// digest is what must be the same however a run was interrupted.
func (b *bench) digest(ctx context.Context) (string, error) {
	if err := b.check(ctx, kit.Effect{}); err != nil {
		return "", err
	}
	var out strings.Builder
	var cl cephv1.CephCluster
	if err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: "rook-ceph"}, &cl); apierrors.IsNotFound(err) {
		return "the CephCluster is gone\n", nil
	} else if err != nil {
		return "", err
	}
	m, err := cephosd.New(b.ceph).Dump(ctx)
	if err != nil {
		return "", err
	}
	tree, err := cephosd.New(b.ceph).Tree(ctx)
	if err != nil {
		return "", err
	}
	for _, o := range m.OSDs {
		node, disk := b.sim.DiskOfOSD(o.UUID)
		where := "nowhere"
		if disk != nil {
			where = node + "/" + disk.Name + " " + disk.Serial
		}
		n, _ := tree.OSD(o.ID)
		fmt.Fprintf(&out, "osd.%d %v in %v weight %g on %s crush %g %s %v\n", o.ID, o.State, bool(o.In), o.Weight, where, n.CrushWeight, n.DeviceClass, tree.Location(o.ID))
	}
	var deps appsv1.DeploymentList
	if err := b.c.List(ctx, &deps, client.InNamespace(b.ns), client.MatchingLabels{"app": spec.App}); err != nil {
		return "", err
	}
	for _, d := range deps.Items {
		var marks []string
		for k, v := range d.Annotations {
			if strings.HasPrefix(k, "osd.rook.io/") {
				marks = append(marks, k+"="+v)
			} else if strings.Contains(k, "replace") {
				marks = append(marks, k)
			}
		}
		slices.Sort(marks)
		fmt.Fprintf(&out, "%s replicas %d ready %d fence %q %v\n", d.Name, *d.Spec.Replicas, d.Status.ReadyReplicas, d.Labels["ceph.rook.io/do-not-reconcile"], marks)
	}
	var jobs batchv1.JobList
	if err := b.c.List(ctx, &jobs, client.InNamespace(b.ns)); err != nil {
		return "", err
	}
	for _, j := range jobs.Items {
		fmt.Fprintf(&out, "job %s\n", j.Name)
	}
	fmt.Fprintf(&out, "phase %s\n", cl.Status.Phase)
	if s := cl.Status.CephStorage; s != nil {
		for _, e := range s.Replacements {
			fmt.Fprintf(&out, "replacement %d %s %+v %s\n", e.ID, e.Phase, e.Disk, e.WaitingFor)
		}
	}
	return out.String(), nil
}

func (benches) act(name string, do func(ctx context.Context, b *bench) error) kittest.Act {
	return kittest.Act{Name: name, Do: func(ctx context.Context, w *kittest.World) error { return do(ctx, w.Data.(*bench)) }}
}

// look is an act that changes nothing.
func (bs benches) look(name string, do func(ctx context.Context, b *bench) error) kittest.Act {
	a := bs.act(name, do)
	a.Look = true
	return a
}

// begin is a cluster with data on it.
func (bs benches) begin(o options) []kittest.Act {
	create := bs.act("create", func(ctx context.Context, b *bench) error {
		cl := &cephv1.CephCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "rook-ceph", Namespace: b.ns},
			Spec: cephv1.ClusterSpec{
				CephVersion: cephv1.CephVersionSpec{Image: "quay.io/ceph/ceph:v20.2.4"}, DataDirHostPath: "/var/lib/rook",
				Mon: cephv1.MonSpec{Count: 1}, Mgr: cephv1.MgrSpec{Count: 1}, CrashCollector: cephv1.CrashCollectorSpec{Disable: true},
				Storage: cephv1.StorageScopeSpec{Selection: cephv1.Selection{UseAllDevices: ptr.To(true)}},
			},
		}
		for i := range o.nodes {
			cl.Spec.Storage.Nodes = append(cl.Spec.Storage.Nodes, cephv1.Node{Name: b.node(i + 1)})
		}
		if o.change != nil {
			o.change(cl)
		}
		return b.c.Create(ctx, cl)
	})
	data := bs.act("data", func(ctx context.Context, b *bench) error {
		size := o.size
		if size == 0 {
			size = 3
		}
		if _, err := b.ceph.Mon(ctx, ceph.Cmd("osd pool create", "pool", "data", "pg_num", 16, "pgp_num", 16, "pool_type", "replicated", "size", size, "autoscale_mode", "off")); err != nil {
			return err
		}
		b.ceph.Settle()
		b.ceph.PutData("data", 1000, 1<<30)
		return nil
	})
	create.Setup, data.Setup = true, true
	return []kittest.Act{create, data}
}

// play runs acts once, without faults.
func (bs benches) play(t *testing.T, o options, acts ...kittest.Act) (*bench, kittest.Result) {
	t.Helper()
	res, err := kittest.Play(t, bs.scenario(o, acts...), 0, kittest.Before)
	if err != nil {
		t.Fatal(err)
	}
	return res.End.Data.(*bench), res
}

// crash runs acts with a crash at every effect, in every mode.
func (bs benches) crash(t *testing.T, o options, acts ...kittest.Act) {
	t.Helper()
	begun := time.Now()
	every, pick := kittest.Sample(t, 41, 97)
	s := bs.scenario(o, acts...)
	s.Extra, s.Every, s.Pick, s.Parallel, s.Pairs, s.Seed = 60, every, pick, true, kittest.Random(t, 0), 1
	s.Whole = every == 1 || t.Name() == "TestCrashAtEveryEffect" // one scenario proves for all how worlds are copied
	res := kittest.Run(t, s)
	t.Logf("CRASH %s: %d effects of the replacement, %d crashes (%d of them the same as others, %d second ones), %v", t.Name(), len(res.Effects)-res.Setup, res.Runs, res.Same, res.Twice, time.Since(begun).Round(time.Millisecond))
}

// Things that users do.

func (bs benches) annotate(key, value string, ids ...int) kittest.Act {
	return bs.act(fmt.Sprintf("%s=%s on %v", key, value, ids), func(ctx context.Context, b *bench) error {
		for _, id := range ids {
			b.asked[id] = true
			v := value
			if key == spec.ReplaceAnnotation && value == "yes" {
				v = spec.Confirmation(id)
			}
			if err := b.change(ctx, id, func(d *appsv1.Deployment) { d.Annotations[key] = v }); err != nil {
				return err
			}
		}
		return nil
	})
}

func (bs benches) replace(ids ...int) kittest.Act {
	annotate := bs.annotate(spec.ReplaceAnnotation, "yes", ids...)
	return bs.act(fmt.Sprintf("replace %v", ids), func(ctx context.Context, b *bench) error {
		for _, id := range ids {
			b.note(ctx, id)
		}
		return annotate.Do(ctx, &kittest.World{Data: b})
	})
}

// note remembers where an OSD is.
func (b *bench) note(ctx context.Context, id int) {
	m, err := cephosd.New(b.ceph).Dump(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	o, _ := m.Find(id)
	b.uuid[id] = o.UUID
	tree, err := cephosd.New(b.ceph).Tree(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	n, _ := tree.OSD(id)
	b.before[id] = place{n.CrushWeight, n.DeviceClass, tree.Location(id)}
}

func (b *bench) change(ctx context.Context, id int, f func(*appsv1.Deployment)) error {
	var d appsv1.Deployment
	if err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: spec.Name(id)}, &d); err != nil {
		return err
	}
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	if d.Labels == nil {
		d.Labels = map[string]string{}
	}
	f(&d)
	return b.c.Update(ctx, &d)
}

func (bs benches) takeBack(ids ...int) kittest.Act {
	return bs.act(fmt.Sprintf("take back %v", ids), func(ctx context.Context, b *bench) error {
		for _, id := range ids {
			if err := b.change(ctx, id, func(d *appsv1.Deployment) { delete(d.Annotations, spec.ReplaceAnnotation) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// swap pulls the disks of OSDs and puts new ones into their slots.
func (bs benches) swap(ids ...int) kittest.Act {
	return bs.act(fmt.Sprintf("swap the disks of %v", ids), func(_ context.Context, b *bench) error {
		for _, id := range ids {
			node, old := b.pull(id)
			b.plug(node, old.Name, int(old.Name[2]-'b'))
		}
		return nil
	})
}

func (b *bench) pull(id int) (string, *sim.Disk) {
	node, old := b.sim.DiskOfOSD(b.uuid[id])
	if old == nil {
		b.t.Fatalf("no disk carries osd.%d", id)
	}
	return node, b.sim.Pull(node, old.Name)
}

// done says that OSDs are on new disks, as they were before, without a mark.
func (bs benches) done(ids ...int) kittest.Act {
	return bs.look(fmt.Sprintf("%v are replaced", ids), func(ctx context.Context, b *bench) error {
		for _, id := range ids {
			if err := b.isDone(ctx, id); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *bench) isDone(ctx context.Context, id int) error {
	m, err := cephosd.New(b.ceph).Dump(ctx)
	if err != nil {
		return err
	}
	tree, err := cephosd.New(b.ceph).Tree(ctx)
	if err != nil {
		return err
	}
	o, _ := m.Find(id)
	n, _ := tree.OSD(id)
	var d appsv1.Deployment
	if err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: spec.Name(id)}, &d); err != nil {
		return err
	}
	if now := (place{n.CrushWeight, n.DeviceClass, tree.Location(id)}); fmt.Sprint(now) != fmt.Sprint(b.before[id]) {
		return fmt.Errorf("D6: osd.%d was %v and is %v", id, b.before[id], now)
	}
	if !bool(o.Up) || !bool(o.In) || o.UUID == b.uuid[id] || view.Concerned(&d) || d.Labels["ceph.rook.io/do-not-reconcile"] != "" {
		return fmt.Errorf("osd.%d is not replaced: %+v, %q; its Deployment: %d replicas, labels %v, %v", id, o, b.phase(ctx, id), ptr.Deref(d.Spec.Replicas, 1), d.Labels, d.Annotations)
	}
	return nil
}

// phase is the entry of the status.
func (b *bench) phase(ctx context.Context, id int) string {
	var cl cephv1.CephCluster
	if err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: "rook-ceph"}, &cl); err != nil {
		return err.Error()
	}
	if s := cl.Status.CephStorage; s != nil {
		for _, e := range s.Replacements {
			if e.ID == id {
				return fmt.Sprintf("%s: %s", e.Phase, e.WaitingFor)
			}
		}
	}
	return ""
}

// is says that a replacement is in a phase and waits for something.
func (bs benches) is(id int, phase cephv1.OSDReplacementPhase, says string) kittest.Act {
	return bs.look(fmt.Sprintf("osd.%d is %s", id, phase), func(ctx context.Context, b *bench) error {
		if got := b.phase(ctx, id); !strings.HasPrefix(got, string(phase)) || !strings.Contains(got, says) {
			return fmt.Errorf("osd.%d is in %q, not in %s because of %q", id, got, phase, says)
		}
		return nil
	})
}

// asBefore says that an OSD is on its old disk, up, in, and without a mark.
func (bs benches) asBefore(ids ...int) kittest.Act {
	return bs.look(fmt.Sprintf("%v are as before", ids), func(ctx context.Context, b *bench) error {
		m, err := cephosd.New(b.ceph).Dump(ctx)
		if err != nil {
			return err
		}
		for _, id := range ids {
			o, _ := m.Find(id)
			var d appsv1.Deployment
			if err := b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: spec.Name(id)}, &d); err != nil {
				return err
			}
			if !bool(o.Up) || !bool(o.In) || o.UUID != b.uuid[id] || view.Concerned(&d) || d.Labels["ceph.rook.io/do-not-reconcile"] != "" || *d.Spec.Replicas != 1 {
				return fmt.Errorf("osd.%d is not as before: %+v, %s, %v", id, o, b.phase(ctx, id), slices.Sorted(maps.Keys(d.Annotations)))
			}
		}
		return nil
	})
}
