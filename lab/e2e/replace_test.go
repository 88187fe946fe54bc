package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
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
	fenceLabel        = "ceph.rook.io/do-not-reconcile"
)

// objectsKept are written before the first replacement and read back after each.
const objectsKept = 32

// TestReplacement replaces disks of OSDs on real Ceph in all the ways that a person
// in front of the machine could: six OSDs on three nodes, three copies.
func TestReplacement(t *testing.T) {
	c := start(t, "e2ereplace", 3, "node1", "node2", "node3")
	r := &replacements{cluster: c}
	parts := []struct {
		name string
		run  func(*testing.T, *replacements)
	}{
		{"from nothing to HEALTH_OK", func(t *testing.T, r *replacements) { testBringUp(t, r.cluster); r.fill(t) }},
		{"a healthy OSD", testReplaceHealthy},
		{"a killed OSD", testReplaceKilled},
		{"a pulled disk", testReplacePulled},
		{"wrong disks first", testReplaceWrongDisks},
		{"cancelled in every phase", testReplaceCancelled},
		{"two at once", testReplaceTwo},
		{"the operator is killed on the way", testReplaceOperatorKilled},
	}
	for _, p := range parts {
		ok := t.Run(p.name, func(t *testing.T) {
			c.ceph.Out = lineWriter{t}
			p.run(t, r)
			c.untilHealthy(t, long, c.ceph.OSDs)
			c.readBack(t)
			r.readAll(t)
		})
		if !ok {
			break // the next would fail for this one's reason
		}
	}
	t.Run("no panic and no key in the open", func(t *testing.T) { c.searchSecrets(t) })
}

// replacements are the tests' view of a cluster in which OSDs are replaced.
type replacements struct {
	*cluster
	sums map[string][32]byte
}

// fill writes the objects that must survive everything.
func (r *replacements) fill(t *testing.T) {
	t.Helper()
	r.sums = map[string][32]byte{}
	rnd := rand.NewChaCha8([32]byte([]byte("what was written must be read..!")))
	for i := range objectsKept {
		b := make([]byte, 256<<10)
		_, _ = rnd.Read(b) // never fails
		name := fmt.Sprintf("kept-%d", i)
		if _, err := r.ceph.Tool(t.Context(), b, "rados", "-p", "lab", "put", name, "-"); err != nil {
			t.Fatal(err)
		}
		r.sums[name] = sha256.Sum256(b)
	}
}

// readAll reads and compares every one of them.
func (r *replacements) readAll(t *testing.T) {
	t.Helper()
	for name, want := range r.sums {
		got, err := r.ceph.Tool(t.Context(), nil, "rados", "-p", "lab", "get", name, "-")
		if err != nil {
			t.Fatalf("reading %s: %v", name, err)
		}
		if sha256.Sum256(got) != want {
			t.Fatalf("%s is not what was written: %d bytes", name, len(got))
		}
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

func (r *replacements) request(t *testing.T, id int) time.Time {
	t.Helper()
	return r.annotate(t, id, replaceAnnotation, fmt.Sprintf("yes-really-replace-osd-%d", id))
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
func (r *replacements) untilReady(t *testing.T, o osd, begun time.Time, name string) {
	t.Helper()
	r.deploymentUntil(t, o.id, "accepted", has(runningAnnotation))
	measured(t, name+"/accepted", time.Since(begun))
	r.deploymentUntil(t, o.id, "ready for the swap", has(readyAnnotation))
	measured(t, name+"/ready-for-swap", time.Since(begun))
	m, err := r.mapped(t.Context(), o.id)
	if err != nil {
		t.Fatal(err)
	}
	if !m.destroyed {
		t.Fatalf("osd.%d is ready for the swap and not destroyed: %+v", o.id, m)
	}
}

// mapped is what Ceph's map says of an OSD.
type mapped struct {
	uuid          string
	up, in        bool
	destroyed     bool
	overrideSetTo float64
}

func (r *replacements) mapped(ctx context.Context, id int) (mapped, error) {
	var dump struct {
		OSDs []struct {
			OSD    int
			UUID   string
			Up, In int
			Weight float64
			State  []string
		}
	}
	if err := r.ask(ctx, &dump, "osd", "dump"); err != nil {
		return mapped{}, err
	}
	for _, x := range dump.OSDs {
		if x.OSD != id {
			continue
		}
		m := mapped{uuid: x.UUID, up: x.Up == 1, in: x.In == 1, overrideSetTo: x.Weight}
		for _, s := range x.State {
			m.destroyed = m.destroyed || s == "destroyed"
		}
		return m, nil
	}
	return mapped{}, fmt.Errorf("osd.%d is not in the map", id)
}

// untilBack waits until the OSD is up and in on another disk.
func (r *replacements) untilBack(t *testing.T, o osd, begun time.Time, name string) {
	t.Helper()
	testlab.Until(t, long, fmt.Sprintf("osd.%d is up and in on the new disk", o.id), func(ctx context.Context) error {
		m, err := r.mapped(ctx, o.id)
		if err == nil && (m.uuid == o.uuid || !m.up || !m.in || m.destroyed) {
			err = fmt.Errorf("it is %+v", m)
		}
		return err
	})
	measured(t, name+"/from-swap-to-up-and-in", time.Since(begun))
	r.deploymentUntil(t, o.id, "no mark is left", unmarked)
	measured(t, name+"/from-swap-to-completed", time.Since(begun))
	r.untilHealthy(t, long, r.ceph.OSDs)
	measured(t, name+"/from-swap-to-clean", time.Since(begun))
	if w := r.weight(t, o.id); w != o.weight {
		t.Errorf("osd.%d has weight %v, it had %v", o.id, w, o.weight)
	}
	now := r.osd(t, o.id)
	if now.node != o.node {
		t.Errorf("osd.%d is on %s, it was on %s", o.id, now.node, o.node)
	}
	r.sameOSDs(t)
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

func (r *replacements) swap(t *testing.T, o osd) time.Time {
	t.Helper()
	r.lab.SwapDisk(t, o.node, o.device, control.Swap{})
	return time.Now()
}

func testReplaceHealthy(t *testing.T, r *replacements) {
	o := r.osd(t, 0)
	r.untilReady(t, o, r.request(t, o.id), "healthy")
	r.untilBack(t, o, r.swap(t, o), "healthy")
	// And once more at once: nothing of the first may be in the way.
	o = r.osd(t, 0)
	r.untilReady(t, o, r.request(t, o.id), "healthy-again")
	r.untilBack(t, o, r.swap(t, o), "healthy-again")
}

// testReplaceKilled replaces an OSD whose process dies again and again.
func testReplaceKilled(t *testing.T, r *replacements) {
	o := r.osd(t, 1)
	begun := r.request(t, o.id)
	r.lab.MustKubectl(t, "-n", ceph.Namespace, "delete", "pod", "-l", fmt.Sprintf("app=rook-ceph-osd,ceph-osd-id=%d", o.id), "--grace-period=0", "--force", "--wait=false")
	r.untilReady(t, o, begun, "killed")
	r.untilBack(t, o, r.swap(t, o), "killed")
}

// testReplacePulled replaces an OSD whose disk is gone before anybody asks.
func testReplacePulled(t *testing.T, r *replacements) {
	o := r.osd(t, 2)
	slot := r.diskOf(t, o).Slot
	r.lab.PullDisk(t, o.node, o.device)
	r.lab.MustKubectl(t, "-n", ceph.Namespace, "delete", "pod", "-l", fmt.Sprintf("app=rook-ceph-osd,ceph-osd-id=%d", o.id), "--grace-period=1", "--wait=false")
	testlab.Until(t, long, "Ceph sees the OSD down", func(ctx context.Context) error {
		m, err := r.mapped(ctx, o.id)
		if err == nil && m.up {
			err = errors.New("it is up")
		}
		return err
	})
	r.untilReady(t, o, r.request(t, o.id), "pulled")
	if _, err := r.lab.Control.AddDisk(t.Context(), o.node, control.NewDisk{Size: 10 << 30, Slot: slot}); err != nil {
		t.Fatal(err)
	}
	r.untilBack(t, o, time.Now(), "pulled")
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
	begun := r.request(t, o.id)
	r.deploymentUntil(t, o.id, "accepted", has(runningAnnotation))
	r.patch(t, `{"spec":{"storage":{"useAllDevices":false,"deviceFilter":"^none$"}}}`)
	spare := r.lab.AddDisk(t, o.node, "10Gi")
	r.untilReady(t, o, begun, "wrong-disk")
	r.lab.MustExec(t, o.node, "dd", "if=/dev/zero", "of=/dev/"+o.device, "bs=1M", "count=8", "conv=fsync")
	for begun := time.Now(); time.Since(begun) < 40*time.Second; time.Sleep(2 * time.Second) {
		m, err := r.mapped(t.Context(), o.id)
		if err == nil && (!m.destroyed || m.uuid == "") {
			t.Fatalf("osd.%d was made anew on a disk that nobody has named: %+v", o.id, m)
		}
	}
	r.sameOSDs(t)
	byID := strings.TrimSpace(r.lab.MustExec(t, o.node, "find", "/dev/disk/by-id", "-lname", "*"+spare.Name()))
	byID, _, _ = strings.Cut(byID, "\n")
	if byID == "" {
		t.Fatalf("no link in /dev/disk/by-id of %s for %s", o.node, spare.Name())
	}
	begun = r.annotate(t, o.id, withAnnotation, byID)
	r.untilBack(t, o, begun, "named")
	if now := r.osd(t, o.id); now.device != spare.Name() {
		t.Errorf("osd.%d is on %s, not on %s that was named", o.id, now.device, spare.Name())
	}
	r.lab.PullDisk(t, o.node, o.device)
	r.patch(t, `{"spec":{"storage":{"useAllDevices":true,"deviceFilter":null}}}`)
}

// testReplaceCancelled takes a request back in every phase before the OSD is
// destroyed: everything is as it was.
func testReplaceCancelled(t *testing.T, r *replacements) {
	o := r.osd(t, 4)
	if err := r.ask(t.Context(), &struct{}{}, "osd", "set", "norebalance"); err != nil && !strings.Contains(err.Error(), "reading the answer") {
		t.Fatal(err)
	}
	if err := r.ask(t.Context(), &struct{}{}, "osd", "set", "nobackfill"); err != nil && !strings.Contains(err.Error(), "reading the answer") {
		t.Fatal(err)
	}
	for _, phase := range []struct {
		name string
		is   func() error
	}{
		{"requested", func() error { return nil }},
		{"accepted", func() error {
			d, err := r.lab.Kube().AppsV1().Deployments(ceph.Namespace).Get(t.Context(), deployment(o.id), metav1.GetOptions{})
			if err != nil {
				return err
			}
			return has(runningAnnotation)(d)
		}},
		{"draining", func() error {
			m, err := r.mapped(t.Context(), o.id)
			if err == nil && m.in {
				err = errors.New("it is in")
			}
			return err
		}},
	} {
		r.request(t, o.id)
		testlab.Until(t, long, phase.name, func(context.Context) error { return phase.is() })
		begun := r.annotate(t, o.id, replaceAnnotation, "")
		testlab.Until(t, long, "all is as it was", func(ctx context.Context) error {
			m, err := r.mapped(ctx, o.id)
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
		})
		measured(t, "cancelled-when-"+phase.name+"/until-as-it-was", time.Since(begun))
	}
	for _, flag := range []string{"norebalance", "nobackfill"} {
		if _, err := r.ceph.Tool(t.Context(), nil, "ceph", "osd", "unset", flag); err != nil {
			t.Fatal(err)
		}
	}
	// After it is destroyed the request cannot be taken back.
	r.untilReady(t, o, r.request(t, o.id), "cancelled-too-late")
	r.annotate(t, o.id, replaceAnnotation, "")
	testlab.Until(t, time.Minute, "the user is told that it is too late", func(ctx context.Context) error {
		events, err := r.lab.Kube().EventsV1().Events(ceph.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == "OSDReplaceCancelRefused" && e.Regarding.Name == deployment(o.id) {
				return nil
			}
		}
		return errors.New("there is no event OSDReplaceCancelRefused")
	})
	r.untilBack(t, o, r.swap(t, o), "cancelled-too-late")
}

// testReplaceTwo replaces OSDs of two nodes at once, then both of one node: of those
// only one may go at a time, since three copies need three nodes.
func testReplaceTwo(t *testing.T, r *replacements) {
	byNode := map[string][]osd{}
	for id := range r.ceph.OSDs {
		o := r.osd(t, id)
		byNode[o.node] = append(byNode[o.node], o)
	}
	var a, b, c osd
	for _, on := range byNode {
		switch {
		case a.node == "":
			a = on[0]
		case b.node == "":
			b, c = on[0], on[1]
		}
	}
	begun := r.request(t, a.id)
	r.request(t, b.id)
	r.untilReady(t, a, begun, "two-first")
	r.untilReady(t, b, begun, "two-second")
	swapped := r.swap(t, a)
	swappedB := r.swap(t, b)
	r.untilBack(t, a, swapped, "two-first")
	r.untilBack(t, b, swappedB, "two-second")

	b = r.osd(t, b.id)
	begun = r.request(t, b.id)
	r.untilReady(t, b, begun, "queue-first")
	queued := r.request(t, c.id)
	testlab.Until(t, time.Minute, "the second is told why it waits", func(ctx context.Context) error {
		u, err := r.dyn.Resource(clusters).Namespace(ceph.Namespace).Get(ctx, "rook-ceph", metav1.GetOptions{})
		if err != nil {
			return err
		}
		list, _, err := unstructured.NestedSlice(u.Object, "status", "storage", "replacements")
		for _, x := range list {
			m, _ := x.(map[string]any)
			if m["id"] == int64(c.id) && strings.Contains(fmt.Sprint(m["waitingFor"]), "failure domains") {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("replacements are %v", list))
	})
	r.untilBack(t, b, r.swap(t, b), "queue-first")
	r.untilReady(t, c, queued, "queue-second")
	r.untilBack(t, c, r.swap(t, c), "queue-second")
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
	const kills = 20
	o := r.osd(t, 0)
	begun := r.request(t, o.id)
	swapped, done := time.Time{}, 0
	where := map[string]int{}
	for done < kills {
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(time.Duration(rnd.IntN(3000)) * time.Millisecond):
		}
		d, err := r.lab.Kube().AppsV1().Deployments(ceph.Namespace).Get(t.Context(), deployment(o.id), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		phase := phaseOf(d)
		where[phase]++
		if phase == "ready for the swap" && swapped.IsZero() && where[phase] > 2 {
			swapped = r.swap(t, o)
		}
		// The pod, not the process: a process that was killed often is started late.
		r.end(t, true)
		done++
	}
	t.Logf("killed %d times: %v", done, where)
	if swapped.IsZero() {
		r.untilReady(t, o, begun, "killed-operator")
		swapped = r.swap(t, o)
	}
	r.untilBack(t, o, swapped, "killed-operator")
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
	}
	return "done"
}
