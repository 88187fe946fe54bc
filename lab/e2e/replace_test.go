package e2e

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/castellan-storage/castellan/lab/ceph"
	"github.com/castellan-storage/castellan/lab/cluster/control"
	"github.com/castellan-storage/castellan/lab/testlab"
)

// The annotations of a replacement.
const (
	replaceAnnotation = "osd.rook.io/replace"
	readyAnnotation   = "osd.rook.io/replace-ready-for-swap"
	withAnnotation    = "osd.rook.io/replace-with"
	runningAnnotation = "osd.rook.io/replace-in-progress"
	abandonAnnotation = "osd.rook.io/replace-abandon"
	fenceLabel        = "ceph.rook.io/do-not-reconcile"
	// What the operator remembers: of a replacement, and of one whose OSD is to come up.
	noteAnnotation     = "castellan.ceph.io/osd-replacement"
	replacedAnnotation = "castellan.ceph.io/osd-replaced"
)

// objectsKept are written before the first replacement and read back after each.
const objectsKept = 32

// objects writes, or reads and compares them, in one go.
//
//go:embed testdata/objects.py
var objects string

// TestReplacement replaces disks of OSDs on real Ceph in all the ways that a person
// in front of the machine could: six OSDs on three nodes, three copies. Each part can be
// run alone, -run 'TestReplacement/two_at_once'.
func TestReplacement(t *testing.T) {
	r := replaceable(t)
	for _, p := range []struct {
		name string
		run  func(*testing.T, *replacements)
	}{
		{"a healthy OSD", testReplaceHealthy},
		{"a killed OSD", testReplaceKilled},
		{"a pulled disk", testReplacePulled},
		{"wrong disks first", testReplaceWrongDisks},
		{"cancelled in every phase", testReplaceCancelled},
		{"two at once", testReplaceTwo},
		{"two of one node", testReplaceQueue},
		{"the operator is killed on the way", testReplaceOperatorKilled},
		{"the spec is edited on the way", testReplaceSpecEdit},
		{"the node restarts on the way", testReplaceReboot},
		{"purged by hand on the way", testReplacePurged},
		{"given up", testReplaceAbandoned},
		{"with the plugin", testReplacePlugin},
	} {
		ok := t.Run(p.name, func(t *testing.T) {
			r.ceph.Out = lineWriter{t}
			r.seen = r.follow(t)
			p.run(t, r)
			testlab.Until(t, long, "all PGs are active and clean", func(context.Context) error { return r.seen.isClean() })
			r.untilHealthy(t, long, r.ceph.OSDs)
			r.readBack(t)
			r.readAll(t)
		})
		if !ok && errors.Join(r.ready(t.Context()), r.healthy(t.Context(), r.ceph.OSDs)) != nil {
			break // the next would fail for this one's reason
		}
	}
	t.Run("no panic and no key in the open", func(t *testing.T) { r.searchSecrets(t) })
}

// replaceable is a cluster of six OSDs on three nodes, with objects in it.
func replaceable(t *testing.T) *replacements {
	t.Helper()
	r := &replacements{cluster: start(t, "e2ereplace", 3, "node1", "node2", "node3")}
	r.up(t)
	r.fill(t)
	return r
}

// replacements are the tests' view of a cluster in which OSDs are replaced.
type replacements struct {
	*cluster
	seen *follower
}

// fill writes the objects that must survive everything.
func (r *replacements) fill(t *testing.T) {
	t.Helper()
	r.objectsProgram(t, "put")
}

// readAll reads and compares every one of them.
func (r *replacements) readAll(t *testing.T) {
	t.Helper()
	r.objectsProgram(t, "get")
}

func (r *replacements) objectsProgram(t *testing.T, verb string) {
	t.Helper()
	n := strconv.Itoa(objectsKept)
	out, err := r.ceph.Tool(t.Context(), nil, "python3", "-c", objects, verb, n)
	if err != nil || strings.TrimSpace(string(out)) != n {
		t.Fatalf("%s of the objects: %v: %s", verb, err, out)
	}
}

// osd is what tells one life of an OSD from the next.
type osd struct {
	id     int
	uuid   string
	node   string
	device string // the kernel's name on the node
	weight float64
}

// osd reads an OSD from Ceph and Kubernetes.
func (r *replacements) osd(t *testing.T, id int) osd {
	t.Helper()
	var dump struct {
		OSDs []struct {
			OSD  int
			UUID string
		}
	}
	if err := r.ask(t.Context(), &dump, "osd", "dump"); err != nil {
		t.Fatal(err)
	}
	o := osd{id: id, node: r.nodeOf(t, fmt.Sprintf("app=rook-ceph-osd,ceph-osd-id=%d", id))}
	for _, x := range dump.OSDs {
		if x.OSD == id {
			o.uuid = x.UUID
		}
	}
	o.weight = r.weight(t, id)
	var meta struct {
		Device string `json:"bluestore_bdev_dev_node"`
	}
	if err := r.ask(t.Context(), &meta, "osd", "metadata", strconv.Itoa(id)); err != nil {
		t.Fatal(err)
	}
	o.device = strings.TrimPrefix(meta.Device, "/dev/")
	if o.uuid == "" || o.device == "" {
		t.Fatalf("osd.%d has uuid %q and device %q", id, o.uuid, o.device)
	}
	return o
}

// weight is an OSD's weight in CRUSH.
func (r *replacements) weight(t *testing.T, id int) float64 {
	t.Helper()
	var tree struct {
		Nodes []struct {
			ID     int     `json:"id"`
			Weight float64 `json:"crush_weight"`
		} `json:"nodes"`
	}
	if err := r.ask(t.Context(), &tree, "osd", "tree"); err != nil {
		t.Fatal(err)
	}
	for _, n := range tree.Nodes {
		if n.ID == id {
			return n.Weight
		}
	}
	t.Fatalf("osd.%d is not in the tree", id)
	return 0
}

func deployment(id int) string { return fmt.Sprintf("rook-ceph-osd-%d", id) }

// annotate sets an annotation of the OSD's Deployment, or removes it when value is
// empty.
func (r *replacements) annotate(t *testing.T, id int, name, value string) time.Time {
	t.Helper()
	v := any(value)
	if value == "" {
		v = nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{name: v}}})
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if _, err := r.lab.Kube().AppsV1().Deployments(ceph.Namespace).Patch(t.Context(), deployment(id), types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		t.Fatalf("setting %s of osd.%d: %v", name, id, err)
	}
	return begun
}

func (r *replacements) request(t *testing.T, o osd) {
	t.Helper()
	r.seen.begin(o, time.Now())
	r.annotate(t, o.id, replaceAnnotation, fmt.Sprintf("yes-really-replace-osd-%d", o.id))
}

// deploymentUntil waits until the OSD's Deployment is as is says.
func (r *replacements) deploymentUntil(t *testing.T, id int, what string, is func(d *appsv1.Deployment) error) {
	t.Helper()
	testlab.Until(t, long, fmt.Sprintf("osd.%d: %s", id, what), func(ctx context.Context) error {
		d, err := r.lab.Kube().AppsV1().Deployments(ceph.Namespace).Get(ctx, deployment(id), metav1.GetOptions{})
		if err != nil {
			return err
		}
		return is(d)
	})
}

func has(name string) func(d *appsv1.Deployment) error {
	return func(d *appsv1.Deployment) error {
		if _, ok := d.Annotations[name]; !ok {
			return fmt.Errorf("there is no annotation %s", name)
		}
		return nil
	}
}

// not is an error where there is none.
func not(err error) error {
	if err == nil {
		return errors.New("the new OSD is not known to be up")
	}
	return nil
}

func unmarked(d *appsv1.Deployment) error {
	for _, a := range []string{replaceAnnotation, runningAnnotation, readyAnnotation, withAnnotation} {
		if v, ok := d.Annotations[a]; ok {
			return fmt.Errorf("annotation %s=%s is still there", a, v)
		}
	}
	if v, ok := d.Labels[fenceLabel]; ok {
		return fmt.Errorf("label %s=%s is still there", fenceLabel, v)
	}
	if d.Spec.Replicas == nil || *d.Spec.Replicas != 1 {
		return errors.New("it is not at one replica")
	}
	return nil
}

// untilReady follows a replacement until the disk may be pulled.
func (r *replacements) untilReady(t *testing.T, o osd) {
	t.Helper()
	r.deploymentUntil(t, o.id, "accepted", has(runningAnnotation))
	r.deploymentUntil(t, o.id, "ready for the swap", has(readyAnnotation))
	testlab.Until(t, 10*time.Second, fmt.Sprintf("osd.%d is destroyed", o.id), func(context.Context) error {
		m, err := r.seen.osd(o.id)
		if err == nil && !m.destroyed {
			err = fmt.Errorf("it is ready for the swap and %+v", m)
		}
		return err
	})
}

// mapped is what Ceph's map says of an OSD.
type mapped struct {
	uuid          string
	up, in        bool
	destroyed     bool
	overrideSetTo float64
}

// untilBack waits until the OSD is up and in on another disk, and tells how long each
// step of its replacement took.
func (r *replacements) untilBack(t *testing.T, o osd, name string) {
	t.Helper()
	r.untilReplaced(t, o, name)
	r.untilHealthy(t, long, r.ceph.OSDs)
}

// untilReplaced is untilBack while the next OSD may be out by now, which waited for this one.
func (r *replacements) untilReplaced(t *testing.T, o osd, name string) {
	t.Helper()
	testlab.Until(t, long, fmt.Sprintf("osd.%d is up and in on the new disk", o.id), func(context.Context) error {
		m, err := r.seen.osd(o.id)
		if err == nil && (m.uuid == o.uuid || !m.up || !m.in || m.destroyed) {
			err = fmt.Errorf("it is %+v", m)
		}
		return err
	})
	r.deploymentUntil(t, o.id, "completed, no mark is left", func(d *appsv1.Deployment) error {
		return errors.Join(unmarked(d), not(has(replacedAnnotation)(d)))
	})
	testlab.Until(t, long, "all PGs are active and clean", func(context.Context) error { return r.seen.isClean() })
	r.seen.tell(t, o.id, name)
	if w := r.weight(t, o.id); w != o.weight {
		t.Errorf("osd.%d has weight %v, it had %v", o.id, w, o.weight)
	}
	now := r.osd(t, o.id)
	if now.node != o.node {
		t.Errorf("osd.%d is on %s, it was on %s", o.id, now.node, o.node)
	}
	r.sameOSDs(t)
	r.readAll(t)
}

// sameOSDs fails the test when an id was made or lost.
func (r *replacements) sameOSDs(t *testing.T) {
	t.Helper()
	var ids []int
	if err := r.ask(t.Context(), &ids, "osd", "ls"); err != nil {
		t.Fatal(err)
	}
	if len(ids) != r.ceph.OSDs || ids[len(ids)-1] != r.ceph.OSDs-1 {
		t.Fatalf("OSDs %v, there were %d", ids, r.ceph.OSDs)
	}
}

// swap puts a blank disk into the slot of the old one.
func (r *replacements) swap(t *testing.T, o osd) {
	t.Helper()
	r.lab.SwapDisk(t, o.node, o.device, control.Swap{})
	r.seen.mark(o.id, swapped, time.Now())
}

func testReplaceHealthy(t *testing.T, r *replacements) {
	// And once more at once: nothing of the first may be in the way.
	for _, name := range []string{"healthy", "healthy-again"} {
		o := r.osd(t, 0)
		r.request(t, o)
		r.untilReady(t, o)
		r.swap(t, o)
		r.untilBack(t, o, name)
	}
}

// testReplaceKilled replaces an OSD whose pod was killed a moment ago.
func testReplaceKilled(t *testing.T, r *replacements) {
	o := r.osd(t, 1)
	r.request(t, o)
	r.lab.MustKubectl(t, "-n", ceph.Namespace, "delete", "pod", "-l", fmt.Sprintf("app=rook-ceph-osd,ceph-osd-id=%d", o.id), "--grace-period=0", "--force", "--wait=false")
	r.untilReady(t, o)
	r.swap(t, o)
	r.untilBack(t, o, "killed")
}

// testReplacePulled replaces an OSD whose disk is gone before anybody asks.
func testReplacePulled(t *testing.T, r *replacements) {
	o := r.osd(t, 2)
	slot := r.diskOf(t, o).Slot
	r.lab.PullDisk(t, o.node, o.device)
	r.lab.MustKubectl(t, "-n", ceph.Namespace, "delete", "pod", "-l", fmt.Sprintf("app=rook-ceph-osd,ceph-osd-id=%d", o.id), "--grace-period=1", "--wait=false")
	testlab.Until(t, long, "Ceph sees the OSD down", func(context.Context) error {
		m, err := r.seen.osd(o.id)
		if err == nil && m.up {
			err = errors.New("it is up")
		}
		return err
	})
	r.request(t, o)
	r.untilReady(t, o)
	if _, err := r.lab.Control.AddDisk(t.Context(), o.node, control.NewDisk{Size: 10 << 30, Slot: slot}); err != nil {
		t.Fatal(err)
	}
	r.seen.mark(o.id, swapped, time.Now())
	r.untilBack(t, o, "pulled")
}

// diskOf finds the disk of an OSD in the lab.
func (r *replacements) diskOf(t *testing.T, o osd) control.Disk {
	t.Helper()
	for _, d := range r.lab.Disks(t, o.node) {
		if d.Name() == o.device {
			return d
		}
	}
	t.Fatalf("%s of %s is no disk of the lab", o.device, o.node)
	return control.Disk{}
}

// testReplaceWrongDisks plugs in a spare disk while the OSD drains, then wipes the
// old disk in place: neither may become the OSD. The user then names the spare one.
func testReplaceWrongDisks(t *testing.T, r *replacements) {
	o := r.osd(t, 3)
	r.request(t, o)
	r.deploymentUntil(t, o.id, "accepted", has(runningAnnotation))
	// Or the spare would become an OSD of its own.
	r.patch(t, `{"spec":{"storage":{"useAllDevices":false,"deviceFilter":"^none$"}}}`)
	spare := r.lab.AddDisk(t, o.node, "10Gi")
	r.untilReady(t, o)
	r.lab.MustExec(t, o.node, "dd", "if=/dev/zero", "of=/dev/"+o.device, "bs=1M", "count=8", "conv=fsync")
	for begun := time.Now(); time.Since(begun) < 40*time.Second; time.Sleep(time.Second) {
		m, err := r.seen.osd(o.id)
		if err == nil && !m.destroyed {
			t.Fatalf("osd.%d was made anew on a disk that nobody has named: %+v", o.id, m)
		}
	}
	r.sameOSDs(t)
	byID := strings.TrimSpace(r.lab.MustExec(t, o.node, "find", "/dev/disk/by-id", "-lname", "*"+spare.Name()))
	byID, _, _ = strings.Cut(byID, "\n")
	if byID == "" {
		t.Fatalf("no link in /dev/disk/by-id of %s for %s", o.node, spare.Name())
	}
	r.seen.mark(o.id, swapped, time.Now())
	r.annotate(t, o.id, withAnnotation, byID)
	r.untilBack(t, o, "named")
	if now := r.osd(t, o.id); now.device != spare.Name() {
		t.Errorf("osd.%d is on %s, not on %s that was named", o.id, now.device, spare.Name())
	}
	r.lab.PullDisk(t, o.node, o.device)
	r.patch(t, `{"spec":{"storage":{"useAllDevices":true,"deviceFilter":null}}}`)
}

// flags sets or unsets flags of the OSD map.
func (r *replacements) flags(t *testing.T, verb string, flags ...string) {
	t.Helper()
	for _, flag := range flags {
		if _, err := r.ceph.Tool(t.Context(), nil, "ceph", "osd", verb, flag); err != nil {
			t.Fatal(err)
		}
	}
}

// asItWas is nil when nothing of a replacement of the OSD is left.
func (r *replacements) asItWas(ctx context.Context, o osd) error {
	m, err := r.seen.osd(o.id)
	if err != nil {
		return err
	}
	if m.uuid != o.uuid || !m.in || !m.up || m.overrideSetTo != 1 {
		return fmt.Errorf("it is %+v", m)
	}
	d, err := r.lab.Kube().AppsV1().Deployments(ceph.Namespace).Get(ctx, deployment(o.id), metav1.GetOptions{})
	if err != nil {
		return err
	}
	return unmarked(d)
}

// untilEvent waits for an event about the OSD's Deployment.
func (r *replacements) untilEvent(t *testing.T, id int, reason string) {
	t.Helper()
	testlab.Until(t, time.Minute, "event "+reason, func(ctx context.Context) error {
		events, err := r.lab.Kube().EventsV1().Events(ceph.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == reason && e.Regarding.Name == deployment(id) {
				return nil
			}
		}
		return errors.New("there is none")
	})
}

// testReplaceCancelled takes a request back in every phase. Before the OSD is destroyed
// everything is as it was; afterwards the user is told that it is too late.
func testReplaceCancelled(t *testing.T, r *replacements) {
	o := r.osd(t, 4)
	r.flags(t, "set", "norebalance", "nobackfill") // the draining does not end
	for _, phase := range []struct {
		name string
		is   func(ctx context.Context) error
	}{
		{"requested", func(context.Context) error { return nil }},
		{"accepted", func(ctx context.Context) error {
			d, err := r.lab.Kube().AppsV1().Deployments(ceph.Namespace).Get(ctx, deployment(o.id), metav1.GetOptions{})
			if err != nil {
				return err
			}
			return has(runningAnnotation)(d)
		}},
		{"draining", func(context.Context) error {
			m, err := r.seen.osd(o.id)
			if err == nil && m.in {
				err = errors.New("it is in")
			}
			return err
		}},
	} {
		r.request(t, o)
		testlab.Until(t, long, phase.name, phase.is)
		begun := r.annotate(t, o.id, replaceAnnotation, "")
		testlab.Until(t, long, "all is as it was", func(ctx context.Context) error { return r.asItWas(ctx, o) })
		measured(t, "cancelled-when-"+phase.name+"/until-as-it-was", time.Since(begun))
	}
	r.flags(t, "unset", "norebalance", "nobackfill")
	r.request(t, o)
	r.deploymentUntil(t, o.id, "stopped", func(d *appsv1.Deployment) error {
		if d.Spec.Replicas == nil || *d.Spec.Replicas != 0 {
			return errors.New("it has replicas")
		}
		return nil
	})
	begun := r.annotate(t, o.id, replaceAnnotation, "")
	// Which of both comes first is not the test's to say.
	destroyed := false
	testlab.Until(t, long, "all is as it was, or the OSD is destroyed", func(ctx context.Context) error {
		m, err := r.seen.osd(o.id)
		destroyed = err == nil && m.destroyed
		if destroyed {
			return nil
		}
		return r.asItWas(ctx, o)
	})
	measured(t, "cancelled-when-stopped/until-decided", time.Since(begun))
	if !destroyed {
		r.untilHealthy(t, long, r.ceph.OSDs)
		r.request(t, o)
		r.untilReady(t, o)
		r.annotate(t, o.id, replaceAnnotation, "")
	} else {
		r.untilReady(t, o)
	}
	r.untilEvent(t, o.id, "OSDReplaceCancelRefused")
	r.swap(t, o)
	r.untilBack(t, o, "cancelled-too-late")
}

// pairs are two OSDs of different nodes, and another one of the second's node.
func (r *replacements) pairs(t *testing.T) (a, b, c osd) {
	t.Helper()
	byNode := map[string][]osd{}
	for id := range r.ceph.OSDs {
		o := r.osd(t, id)
		byNode[o.node] = append(byNode[o.node], o)
	}
	for _, on := range byNode {
		switch {
		case a.node == "":
			a = on[0]
		case b.node == "":
			b, c = on[0], on[1]
		}
	}
	return a, b, c
}

// testReplaceTwo replaces OSDs of two nodes at once: each node has another OSD for
// what must go.
func testReplaceTwo(t *testing.T, r *replacements) {
	a, b, _ := r.pairs(t)
	r.request(t, a)
	r.request(t, b)
	r.untilReady(t, a)
	r.untilReady(t, b)
	r.swap(t, a)
	r.swap(t, b)
	r.untilBack(t, a, "two-first")
	r.untilBack(t, b, "two-second")
}

// testReplaceQueue asks for both OSDs of a node: only one may go at a time, since three
// copies need three nodes.
func testReplaceQueue(t *testing.T, r *replacements) {
	_, b, c := r.pairs(t)
	r.request(t, b)
	r.untilReady(t, b)
	r.request(t, c)
	testlab.Until(t, time.Minute, "the second is told why it waits", func(ctx context.Context) error {
		_, waits, err := r.replacement(ctx, c.id)
		if err == nil && !strings.Contains(waits, "failure domains") {
			err = fmt.Errorf("it waits for %q", waits)
		}
		return err
	})
	r.swap(t, b)
	r.untilReplaced(t, b, "queue-first")
	r.seen.turn(c.id, b.id)
	r.untilReady(t, c)
	r.swap(t, c)
	r.untilBack(t, c, "queue-second")
}

// replacement is what the CephCluster's status says of one.
func (r *replacements) replacement(ctx context.Context, id int) (phase, waitsFor string, err error) {
	u, err := r.dyn.Resource(clusters).Namespace(ceph.Namespace).Get(ctx, "rook-ceph", metav1.GetOptions{})
	if err != nil {
		return "", "", err
	}
	list, _, err := unstructured.NestedSlice(u.Object, "status", "storage", "replacements")
	if err != nil {
		return "", "", err
	}
	for _, x := range list {
		if m, _ := x.(map[string]any); m["id"] == int64(id) {
			return fmt.Sprint(m["phase"]), fmt.Sprint(m["waitingFor"]), nil
		}
	}
	return "", "", fmt.Errorf("the status has no replacement of osd.%d: %v", id, list)
}

// testReplaceOperatorKilled kills the operator at random over one replacement.
func testReplaceOperatorKilled(t *testing.T, r *replacements) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv(envSeed); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s=%d", envSeed, seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	// A replacement may be faster than so many operators: then another one follows.
	const kills = 20
	o := r.osd(t, 0)
	r.request(t, o)
	killed, hasNew, again := 0, false, 0
	where := map[string]int{}
	for killed < kills {
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(time.Duration(rnd.IntN(1500)) * time.Millisecond):
		}
		d, err := r.lab.Kube().AppsV1().Deployments(ceph.Namespace).Get(t.Context(), deployment(o.id), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		phase := phaseOf(d)
		if phase == "done" {
			r.untilBack(t, o, fmt.Sprintf("killed-operator-%d", again))
			o = r.osd(t, 0)
			r.request(t, o)
			hasNew = false
			again++
			continue
		}
		if phase == "ready for the swap" && !hasNew {
			r.swap(t, o)
			hasNew = true
		}
		// The pod, not the process: a process that was killed often is started late.
		r.end(t, true)
		killed++
		where[phase]++
	}
	t.Logf("killed %d times over %d replacements: %v", killed, again+1, where)
	if len(where) < 3 {
		t.Errorf("the kills came in the phases %v only", where)
	}
	if !hasNew {
		r.untilReady(t, o)
		r.swap(t, o)
	}
	r.untilBack(t, o, "killed-operator")
}

// testReplaceSpecEdit changes what all OSDs' Deployments are made from while one waits
// for its disk: it is left alone, and comes back as the new spec says.
func testReplaceSpecEdit(t *testing.T, r *replacements) {
	o := r.osd(t, 5)
	r.request(t, o)
	r.untilReady(t, o)
	const memory = "67Mi"
	r.patch(t, `{"spec":{"resources":{"osd":{"requests":{"memory":"`+memory+`"}}}}}`)
	request := func(d *appsv1.Deployment) string {
		return d.Spec.Template.Spec.Containers[0].Resources.Requests.Memory().String()
	}
	testlab.Until(t, 2*long, "every other OSD has the change and is up", func(ctx context.Context) error {
		deps, err := r.deployments(ctx)
		if err != nil {
			return err
		}
		for id := range r.ceph.OSDs {
			d := deps[deployment(id)]
			if id == o.id {
				if *d.Spec.Replicas != 0 || has(readyAnnotation)(&d) != nil {
					t.Fatalf("osd.%d was not left alone: %v, %d replicas", id, d.Annotations, *d.Spec.Replicas)
				}
				continue
			}
			if m, err := r.seen.osd(id); err != nil || !m.up || request(&d) != memory {
				return errors.Join(err, fmt.Errorf("osd.%d has %s and is %+v", id, request(&d), m))
			}
		}
		return nil
	})
	r.swap(t, o)
	r.untilBack(t, o, "spec-edited")
	r.deploymentUntil(t, o.id, "has what the spec says", func(d *appsv1.Deployment) error {
		if got := request(d); got != memory {
			return fmt.Errorf("it requests %s", got)
		}
		return nil
	})
}

// testReplaceReboot restarts the node while its OSD waits for a disk; the disk is
// plugged in while the node is off.
func testReplaceReboot(t *testing.T, r *replacements) {
	busy := []string{r.nodeOf(t, "app=rook-ceph-tools"), r.nodeOf(t, "app=rook-ceph-operator")}
	var o osd
	for id := range r.ceph.OSDs {
		if x := r.osd(t, id); !slices.Contains(busy, x.node) {
			o = x
			break
		}
	}
	if o.node == "" {
		t.Skipf("every node is needed by the operator or the tools: %v", busy)
	}
	r.request(t, o)
	r.untilReady(t, o)
	r.lab.Node(t, o.node, control.Stop)
	testlab.Until(t, long, "the status says that the node is not there", func(ctx context.Context) error {
		_, waits, err := r.replacement(ctx, o.id)
		if err == nil && !strings.Contains(waits, o.node+" is not ready") {
			err = fmt.Errorf("it waits for %q", waits)
		}
		return err
	})
	r.lab.SwapDisk(t, o.node, o.device, control.Swap{})
	r.lab.Node(t, o.node, control.Start)
	begun := time.Now()
	testlab.Until(t, long, o.node+" is Ready", func(ctx context.Context) error { return r.nodeReady(ctx, o.node) })
	measured(t, "rebooted/from-start-to-node-Ready", time.Since(begun))
	r.seen.mark(o.id, swapped, time.Now())
	r.untilBack(t, o, "rebooted")
}

// testReplacePurged purges the OSD by hand while its slot waits for a disk: the
// replacement ends, and what is plugged in becomes an OSD as any other disk.
func testReplacePurged(t *testing.T, r *replacements) {
	o := r.osd(t, 3)
	r.request(t, o)
	r.untilReady(t, o)
	begun := time.Now()
	if _, err := r.ceph.Tool(t.Context(), nil, "ceph", "osd", "purge", strconv.Itoa(o.id), "--yes-i-really-mean-it"); err != nil {
		t.Fatal(err)
	}
	r.untilGone(t, o)
	measured(t, "purged-by-hand/until-the-deployment-is-gone", time.Since(begun))
	r.newDisk(t, o)
}

// testReplaceAbandoned gives a destroyed OSD up.
func testReplaceAbandoned(t *testing.T, r *replacements) {
	o := r.osd(t, 1)
	r.request(t, o)
	r.untilReady(t, o)
	begun := r.annotate(t, o.id, abandonAnnotation, fmt.Sprintf("yes-really-purge-osd-%d", o.id))
	r.untilGone(t, o)
	measured(t, "given-up/until-the-deployment-is-gone", time.Since(begun))
	if m, err := r.mapOf(t.Context(), o.id); err == nil {
		t.Fatalf("Ceph still has osd.%d: %+v", o.id, m)
	}
	r.newDisk(t, o)
}

// mapOf asks for the OSD map.
func (r *replacements) mapOf(ctx context.Context, id int) (mapped, error) {
	var dump struct {
		OSDs []struct {
			OSD  int
			UUID string
		}
	}
	if err := r.ask(ctx, &dump, "osd", "dump"); err != nil {
		return mapped{}, err
	}
	for _, x := range dump.OSDs {
		if x.OSD == id {
			return mapped{uuid: x.UUID}, nil
		}
	}
	return mapped{}, fmt.Errorf("osd.%d is not in the map", id)
}

// untilGone waits until an OSD that Ceph does not have any more has no Deployment and
// is not told of either.
func (r *replacements) untilGone(t *testing.T, o osd) {
	t.Helper()
	testlab.Until(t, long, "nothing is left of the replacement", func(ctx context.Context) error {
		_, err := r.lab.Kube().AppsV1().Deployments(ceph.Namespace).Get(ctx, deployment(o.id), metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return errors.Join(err, errors.New("its Deployment is there"))
		}
		if phase, waits, err := r.replacement(ctx, o.id); err == nil {
			return fmt.Errorf("the status still has it: %s, %s", phase, waits)
		}
		return nil
	})
}

// newDisk puts a blank disk in the place of one whose OSD is gone: it becomes an OSD
// when the operator is asked to look.
func (r *replacements) newDisk(t *testing.T, o osd) {
	t.Helper()
	r.lab.SwapDisk(t, o.node, o.device, control.Swap{})
	begun := time.Now()
	r.patch(t, fmt.Sprintf(`{"metadata":{"annotations":{"castellan.ceph.io/rescan":"%d"}}}`, begun.UnixNano()))
	testlab.Until(t, long, fmt.Sprintf("there is an OSD with the free id %d", o.id), func(context.Context) error {
		m, err := r.seen.osd(o.id)
		if err == nil && (!m.up || !m.in || m.uuid == o.uuid) {
			err = fmt.Errorf("it is %+v", m)
		}
		return err
	})
	measured(t, "new-osd/from-rescan-to-up-and-in", time.Since(begun))
}

// phaseOf is how far a replacement is, as its Deployment says.
func phaseOf(d *appsv1.Deployment) string {
	switch {
	case has(readyAnnotation)(d) == nil:
		return "ready for the swap"
	case has(runningAnnotation)(d) == nil && d.Spec.Replicas != nil && *d.Spec.Replicas == 0:
		return "stopped"
	case has(runningAnnotation)(d) == nil:
		return "draining"
	case has(replaceAnnotation)(d) == nil:
		return "requested"
	case has(replacedAnnotation)(d) == nil:
		return "starting on the new disk"
	}
	return "done"
}
