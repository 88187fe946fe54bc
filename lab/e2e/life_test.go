package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/castellan-storage/castellan/lab/build"
	"github.com/castellan-storage/castellan/lab/ceph"
	"github.com/castellan-storage/castellan/lab/cluster/control"
	"github.com/castellan-storage/castellan/lab/disk"
	"github.com/castellan-storage/castellan/lab/image"
	"github.com/castellan-storage/castellan/lab/load"
	"github.com/castellan-storage/castellan/lab/testlab"
)

// TestNodesAndOperators has a node join a cluster that runs, edits the spec in right
// and wrong ways, and brings another operator.
func TestNodesAndOperators(t *testing.T) {
	c := start(t, "e2enodes", 4)
	const late = "node4"
	if !c.found {
		c.lab.Node(t, late, control.Stop)
		c.lab.MustKubectl(t, "delete", "node", late)
		c.ceph.OSDs--
		t.Run("wrong from the start", func(t *testing.T) {
			c.ceph.Out = lineWriter{t}
			testWrongFirst(t, c)
		})
		c.ceph.Out = lineWriter{t}
	}
	c.up(t)
	for _, p := range []struct {
		name string
		run  func(*testing.T, *cluster)
	}{
		{"the spec is edited", testSpecEdits},
		// Before the other image comes: a node that is off when it does would not have it.
		{"a node is added", func(t *testing.T, c *cluster) { testAddNode(t, c, late) }},
		{"another operator comes", testOperatorUpgrade},
	} {
		t.Run(p.name, func(t *testing.T) {
			c.ceph.Out = lineWriter{t}
			p.run(t, c)
			c.readBack(t)
		})
	}
	t.Run("no panic and no key in the open", func(t *testing.T) { c.searchSecrets(t) })
}

// testAddNode starts a machine that Kubernetes did not know: its disk becomes an OSD
// without anybody asking.
func testAddNode(t *testing.T, c *cluster, name string) {
	if _, err := c.lab.Kube().CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Skipf("%s was added before: %v", name, err)
	}
	begun := time.Now()
	c.lab.Node(t, name, control.Start)
	testlab.Until(t, long, name+" is Ready", func(ctx context.Context) error { return c.nodeReady(ctx, name) })
	ready := time.Now()
	measured(t, "node-added/from-start-to-Ready", ready.Sub(begun))
	c.ceph.OSDs++
	testlab.Until(t, long, "an OSD of the node is up", func(ctx context.Context) error {
		s, err := c.state(ctx)
		if err == nil && s.Status.OSD.Up != c.ceph.OSDs {
			err = fmt.Errorf("%d OSDs are up", s.Status.OSD.Up)
		}
		return err
	})
	measured(t, "node-added/from-Ready-to-OSD-up", time.Since(ready))
	if got := c.nodeOf(t, fmt.Sprintf("app=rook-ceph-osd,topology-location-host=%s", name)); got != "" && got != name {
		t.Errorf("the new OSD runs on %s", got)
	}
	c.untilHealthy(t, long, c.ceph.OSDs)
	measured(t, "node-added/until-clean", time.Since(ready))
}

// nodeReady is nil when Kubernetes calls the node so.
func (c *cluster) nodeReady(ctx context.Context, name string) error {
	n, err := c.lab.Kube().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, cond := range n.Status.Conditions {
		if cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return errors.New("it is not")
}

// testSpecEdits changes what can be changed at any time, and makes mistakes: each is
// a condition that names the field, and changes nothing.
func testSpecEdits(t *testing.T, c *cluster) {
	option := func(ctx context.Context) (string, error) {
		var dump []struct{ Section, Name, Value string }
		if err := c.ask(ctx, &dump, "config", "dump"); err != nil {
			return "", err
		}
		for _, o := range dump {
			if o.Section == "global" && o.Name == "osd_max_backfills" {
				return o.Value, nil
			}
		}
		return "", nil
	}
	for _, e := range []struct{ name, patch, want string }{
		{"set", `{"spec":{"cephConfig":{"global":{"osd_max_backfills":"2"}}}}`, "2"},
		{"changed", `{"spec":{"cephConfig":{"global":{"osd_max_backfills":"3"}}}}`, "3"},
		{"removed", `{"spec":{"cephConfig":null}}`, ""},
	} {
		begun := time.Now()
		c.patch(t, e.patch)
		testlab.Until(t, long, "the option is "+e.name, func(ctx context.Context) error {
			got, err := option(ctx)
			if err == nil && got != e.want {
				err = fmt.Errorf("it is %q", got)
			}
			return err
		})
		measured(t, "spec-edit/option-"+e.name, time.Since(begun))
	}
	before := c.objects(t, wish)
	for _, e := range []struct{ name, field, wrong, right string }{
		{"mon-count-2", "spec.mon.count", `{"spec":{"mon":{"count":2}}}`, `{"spec":{"mon":{"count":3}}}`},
		{"mon-count-4", "spec.mon.count", `{"spec":{"mon":{"count":4}}}`, `{"spec":{"mon":{"count":3}}}`},
		{"no-regexp", "deviceFilter", `{"spec":{"storage":{"deviceFilter":"sd["}}}`, `{"spec":{"storage":{"deviceFilter":null}}}`},
		{"no-such-node", "node9", `{"spec":{"storage":{"useAllNodes":false,"nodes":[{"name":"node9"},{"name":"node1"},{"name":"node2"},{"name":"node3"}]}}}`,
			`{"spec":{"storage":{"useAllNodes":true,"nodes":null}}}`},
		{"unknown-key", "spec.storage.config[osdsPerDisk]", `{"spec":{"storage":{"config":{"osdsPerDisk":"2"}}}}`, `{"spec":{"storage":{"config":null}}}`},
		{"no-such-device", "/dev/nowhere", `{"spec":{"storage":{"useAllDevices":false,"devices":[{"name":"/dev/nowhere"}]}}}`,
			`{"spec":{"storage":{"useAllDevices":true,"devices":null}}}`},
	} {
		begun := time.Now()
		c.patch(t, e.wrong)
		testlab.Until(t, long, "a condition names "+e.field, func(ctx context.Context) error {
			return c.complains(ctx, "rook-ceph", e.field)
		})
		measured(t, "bad-spec/"+e.name+"-is-named", time.Since(begun))
		c.patch(t, e.right)
		testlab.Until(t, long, "the cluster is Ready", c.ready)
	}
	c.second(t)
	c.untilHealthy(t, long, c.ceph.OSDs)
	// The CephCluster itself has another generation, and conditions.
	after := c.objects(t, wish)
	for _, m := range []map[string]string{before, after} {
		delete(m, "cephclusters/rook-ceph")
	}
	if diff := changes(daemonsOf(before), daemonsOf(after)); len(diff) > 0 {
		t.Errorf("specs that cannot be have changed:\n%s", strings.Join(diff, "\n"))
	}
}

// complains is nil when a condition of the CephCluster says what is wrong with it.
func (c *cluster) complains(ctx context.Context, name, what string) error {
	s, err := c.stateOf(ctx, name)
	if err != nil {
		return err
	}
	for _, cond := range s.Status.Conditions {
		if cond.Status == "False" && strings.Contains(cond.Message, what) {
			return nil
		}
	}
	return errors.New("none does")
}

// second makes another CephCluster in the namespace, which is told of the first, and
// deletes it again.
func (c *cluster) second(t *testing.T) {
	t.Helper()
	first, err := c.dyn.Resource(clusters).Namespace(ceph.Namespace).Get(t.Context(), "rook-ceph", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const name = "another"
	c.refused(t, name, first.Object["spec"], "rook-ceph came first")
}

// refused makes a CephCluster that cannot be, waits until a condition says why, and
// deletes it.
func (c *cluster) refused(t *testing.T, name string, spec any, why string) {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "ceph.rook.io/v1", "kind": "CephCluster", "spec": spec,
		"metadata": map[string]any{"name": name, "namespace": ceph.Namespace},
	}}
	begun := time.Now()
	if _, err := c.dyn.Resource(clusters).Namespace(ceph.Namespace).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	testlab.Until(t, time.Minute, "a condition of "+name+" says "+why, func(ctx context.Context) error {
		return c.complains(ctx, name, why)
	})
	measured(t, "bad-spec/"+name+"-is-told", time.Since(begun))
	begun = time.Now()
	c.lab.MustKubectl(t, "-n", ceph.Namespace, "delete", "cephcluster", name, "--timeout=60s")
	measured(t, "bad-spec/"+name+"-deleted", time.Since(begun))
}

// testWrongFirst asks for clusters that cannot be, where there is none yet: no daemon is
// made for any of them.
func testWrongFirst(t *testing.T, c *cluster) {
	if err := c.ceph.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.lab.MustKubectl(t, "-n", ceph.Namespace, "rollout", "status", "deployment/rook-ceph-operator", "--timeout=120s")
	text, err := os.ReadFile(filepath.Join(repository, "lab/ceph/files/cluster.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []struct {
		name  string
		field []string
		value any
		why   string
	}{
		{"forbidden-directory", []string{"dataDirHostPath"}, "/etc/ceph", "spec.dataDirHostPath"},
		{"two-mons", []string{"mon", "count"}, int64(2), "spec.mon.count"},
		{"four-mons", []string{"mon", "count"}, int64(4), "spec.mon.count"},
	} {
		var u unstructured.Unstructured
		if err := yaml.Unmarshal(text, &u.Object); err != nil {
			t.Fatal(err)
		}
		if err := unstructured.SetNestedField(u.Object, e.value, append([]string{"spec"}, e.field...)...); err != nil {
			t.Fatal(err)
		}
		c.refused(t, e.name, u.Object["spec"], e.why)
		for _, kind := range []string{"deployments", "pods"} {
			for _, name := range strings.Fields(c.lab.MustKubectl(t, "-n", ceph.Namespace, "get", kind, "-l", "app in (rook-ceph-mon, rook-ceph-mgr, rook-ceph-osd, rook-ceph-osd-prepare)", "-o", "name")) {
				t.Errorf("%s: %s was made", e.name, name)
			}
		}
	}
}

// daemonsOf are the Deployments, Services and pods of daemons.
func daemonsOf(objects map[string]string) map[string]string {
	out := map[string]string{}
	for name, v := range objects {
		for _, kind := range []string{"deployments/", "services/", "pods/rook-ceph-mon-", "pods/rook-ceph-mgr-"} {
			if strings.HasPrefix(name, kind) {
				out[name] = v
			}
		}
		if strings.HasPrefix(name, "pods/rook-ceph-osd-") && !strings.HasPrefix(name, "pods/rook-ceph-osd-prepare") {
			out[name] = v
		}
	}
	return out
}

// nextImage is another operator.
const nextImage = "localhost/castellan:next"

// testOperatorUpgrade brings an operator of another image. No daemon restarts.
func testOperatorUpgrade(t *testing.T, c *cluster) {
	c.loadNext(t)
	restarts := func() map[string]int32 {
		list, err := c.lab.Kube().CoreV1().Pods(ceph.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "rook_cluster=" + ceph.Namespace})
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]int32{}
		for _, p := range list.Items {
			if p.Status.Phase != corev1.PodRunning {
				continue
			}
			for _, s := range p.Status.ContainerStatuses {
				out[string(p.UID)+"/"+p.Name+"/"+s.Name] = s.RestartCount
			}
		}
		return out
	}
	before, daemons := restarts(), daemonsOf(c.objects(t, wish))
	delete(daemons, "deployments/rook-ceph-operator")
	if len(before) < 3+2+c.ceph.OSDs {
		t.Fatalf("only %d containers run: %v", len(before), before)
	}
	old, err := c.operatorProcess(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.keepLog(t)
	begun := time.Now()
	c.lab.MustKubectl(t, "-n", ceph.Namespace, "set", "image", "deployment/rook-ceph-operator", "rook-ceph-operator="+nextImage)
	c.lab.MustKubectl(t, "-n", ceph.Namespace, "rollout", "status", "deployment/rook-ceph-operator", "--timeout=120s")
	c.newProcess(t, old.pid)
	measured(t, "operator-upgrade/until-it-runs", time.Since(begun))
	measured(t, "operator-upgrade/process-start-to-idle", c.idle(t, long))
	c.untilHealthy(t, long, c.ceph.OSDs)
	after := restarts()
	for name, n := range before {
		if got, there := after[name]; !there || got != n {
			t.Errorf("%s: restarted %d times before, %d after, there %v", name, n, got, there)
		}
	}
	now := daemonsOf(c.objects(t, wish))
	delete(now, "deployments/rook-ceph-operator")
	for name := range daemons {
		if strings.HasPrefix(name, "pods/") && daemons[name] != now[name] {
			t.Errorf("%s: %s, then %s", name, daemons[name], now[name])
		}
	}
	// The image of castellan-node in the daemons' Deployments is the old one, or they
	// would have restarted.
	deps, err := c.deployments(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range deps {
		if !strings.HasPrefix(name, "rook-ceph-osd-") {
			continue
		}
		if got := d.Spec.Template.Spec.InitContainers[0].Image; got != ceph.OperatorImage {
			t.Errorf("%s has castellan-node from %s", name, got)
		}
	}
}

// loadNext gives the lab's nodes the operator under another name, and with another
// content.
func (c *cluster) loadNext(t *testing.T) {
	t.Helper()
	note := filepath.Join(t.TempDir(), "next")
	if err := os.WriteFile(note, []byte("another image\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	add, err := image.ParseAdd(note + ":/usr/local/share/next")
	if err != nil {
		t.Fatal(err)
	}
	adds := append(binaries(t), add)
	if _, _, err := load.Image(t.Context(), nextImage, "ceph", image.Config{Cmd: []string{"castellan", "operator"}}, adds, build.Options{NoInstall: true}); err != nil {
		t.Fatal(err)
	}
}

// disks are what lies on all disks of the lab, by node and slot.
func (c *cluster) disks(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, n := range c.lab.Status(t).Nodes {
		for i, d := range n.Disks {
			out[fmt.Sprintf("%s/%d", n.Name, i)] = d.Content.String()
		}
	}
	return out
}

// stores are the directories of mons and OSDs that nodes have.
func (c *cluster) stores(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, n := range c.lab.Status(t).Nodes {
		r, err := c.lab.Exec(t.Context(), n.Name, "find", "/var/lib/rook", "-mindepth", "1", "-maxdepth", "2", "-not", "-name", "exporter")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(r.Stdout) {
			out = append(out, n.Name+":"+strings.TrimSpace(line))
		}
	}
	slices.Sort(out)
	return out
}

// gone waits until the CephCluster is.
func (c *cluster) gone(t *testing.T) {
	t.Helper()
	testlab.Until(t, long, "the CephCluster is gone", func(ctx context.Context) error {
		s, err := c.state(ctx)
		if apierrors.IsNotFound(err) {
			return nil
		}
		_, msg := s.condition("DeletionIsBlocked")
		return errors.Join(err, fmt.Errorf("it is still there: %s: %s", s.Status.Message, msg))
	})
}

// nothingLeft waits until the namespace holds nothing of the cluster.
func (c *cluster) nothingLeft(t *testing.T) {
	t.Helper()
	users := map[string]bool{
		"configmaps/rook-ceph-operator-config": true, "configmaps/rook-config-override": true, "configmaps/kube-root-ca.crt": true,
		"deployments/rook-ceph-operator": true, "deployments/rook-ceph-tools": true, "services/rook-ceph-operator-metrics": true,
	}
	testlab.Until(t, long, "nothing of the cluster is left in the namespace", func(context.Context) error {
		var left []string
		for name := range c.objects(t, func(u *unstructured.Unstructured) string { return u.GetName() }) {
			// The tools are the test's own, and wait for the next cluster.
			if !users[name] && !strings.HasPrefix(name, "serviceaccounts/") && !strings.HasPrefix(name, "pods/rook-ceph-operator-") && !strings.HasPrefix(name, "pods/rook-ceph-tools-") {
				left = append(left, name)
			}
		}
		if len(left) > 0 {
			slices.Sort(left)
			return fmt.Errorf("left: %s", strings.Join(left, ", "))
		}
		return nil
	})
}

// TestDeletion deletes one cluster without a word, which touches no host, and one with
// the word that destroys it.
func TestDeletion(t *testing.T) {
	t.Run("without confirmation", func(t *testing.T) {
		c := deletable(t, "e2ekeep", "10Gi")
		before := c.disks(t)
		pool := "{apiVersion: ceph.rook.io/v1, kind: CephBlockPool, metadata: {name: needed, namespace: rook-ceph}, spec: {failureDomain: host, replicated: {size: 3}}}"
		c.lab.Apply(t, pool)
		begun := time.Now()
		c.lab.MustKubectl(t, "-n", ceph.Namespace, "delete", "cephcluster", "rook-ceph", "--wait=false")
		testlab.Until(t, long, "the deletion is blocked by the pool", func(ctx context.Context) error {
			s, err := c.state(ctx)
			if err != nil {
				return err
			}
			if status, msg := s.condition("DeletionIsBlocked"); status != "True" || !strings.Contains(msg, "needed") {
				return fmt.Errorf("DeletionIsBlocked is %s: %s", status, msg)
			}
			return nil
		})
		measured(t, "deletion/until-blocker-is-named", time.Since(begun))
		if err := c.healthy(t.Context(), c.ceph.OSDs); err != nil {
			t.Errorf("a deletion that is blocked has changed the cluster: %v", err)
		}
		c.readBack(t)
		begun = time.Now()
		c.lab.MustKubectl(t, "-n", ceph.Namespace, "delete", "cephblockpool", "needed", "--timeout=60s")
		c.gone(t)
		measured(t, "deletion/without-confirmation", time.Since(begun))
		c.nothingLeft(t)
		if diff := changes(before, c.disks(t)); len(diff) > 0 {
			t.Errorf("disks were touched:\n%s", strings.Join(diff, "\n"))
		}
		mons := 0
		for _, s := range c.stores(t) {
			if strings.Contains(s, "/mon-") && strings.HasSuffix(s, "/data") {
				mons++
			}
		}
		if mons != 3 {
			t.Errorf("%d of 3 stores of mons are left: %v", mons, c.stores(t))
		}
	})
	t.Run("yes-really-destroy-data", func(t *testing.T) {
		c := deletable(t, "e2edestroy", "10Gi")
		if c.unwiped(t, false) == nil {
			t.Fatal("no disk has anything of an OSD at its ends or where copies of the label are: the search would show nothing")
		}
		c.destroy(t, `{"confirmation":"yes-really-destroy-data"}`, "deletion/with-confirmation")
		if err := c.unwiped(t, false); err != nil {
			t.Error(err)
		}
		// What has been cleaned can be used again at once.
		ctx, cancel := context.WithTimeout(t.Context(), 2*long)
		defer cancel()
		stages, err := c.ceph.Up(ctx)
		measuredStages(t, stages)
		if err != nil {
			t.Fatalf("a new cluster on the cleaned hosts: %v", err)
		}
		c.searchSecrets(t)
	})
	t.Run("every byte overwritten", func(t *testing.T) {
		// Small disks, as each byte of them is written and read.
		c := deletable(t, "e2ewipe", "6Gi")
		if c.unwiped(t, true) == nil {
			t.Fatal("no disk has a byte that is not zero: the search would show nothing")
		}
		c.destroy(t, `{"confirmation":"yes-really-destroy-data","sanitizeDisks":{"method":"complete","dataSource":"zero","iteration":1}}`, "deletion/every-byte-overwritten")
		if err := c.unwiped(t, true); err != nil {
			t.Error(err)
		}
	})
}

// destroy deletes the cluster with a cleanupPolicy that destroys its data, and fails the
// test when anything is left of it.
func (c *cluster) destroy(t *testing.T, policy, name string) {
	t.Helper()
	c.patch(t, `{"spec":{"cleanupPolicy":`+policy+`}}`)
	begun := time.Now()
	c.lab.MustKubectl(t, "-n", ceph.Namespace, "delete", "cephcluster", "rook-ceph", "--wait=false")
	c.gone(t)
	measured(t, name, time.Since(begun))
	c.nothingLeft(t)
	measured(t, name+"/until-nothing-is-left", time.Since(begun))
	c.remains(t)
	c.clean(t)
}

// remains prints all that the namespace and the hosts hold, of whatever kind.
func (c *cluster) remains(t *testing.T) {
	t.Helper()
	kinds := strings.Fields(c.lab.MustKubectl(t, "api-resources", "--verbs=list", "--namespaced", "-o", "name"))
	kinds = slices.DeleteFunc(kinds, func(k string) bool { return k == "events" || k == "events.events.k8s.io" })
	names := strings.Fields(c.lab.MustKubectl(t, "-n", ceph.Namespace, "get", strings.Join(kinds, ","), "-o", "name"))
	slices.Sort(names)
	t.Logf("left in the namespace: %s", strings.Join(slices.Compact(names), " "))
	for _, n := range c.lab.Status(t).Nodes {
		r, err := c.lab.Exec(t.Context(), n.Name, "find", "/var/lib/rook", "/run/ceph", "/var/lib/ceph")
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("left on %s: %s", n.Name, strings.Join(strings.Fields(r.Stdout+r.Stderr), " "))
	}
}

// unwiped is an error where a disk has bytes that are not zero: of all, or of the
// 16 MiB at each end and the places of further copies of an OSD's label (1 GiB; 10 GiB
// and more are beyond a lab's disks).
func (c *cluster) unwiped(t *testing.T, all bool) error {
	t.Helper()
	const edge = 16 << 20
	var wrong []error
	for _, n := range c.lab.Status(t).Nodes {
		for _, d := range n.Disks {
			parts := [][2]int64{{0, edge}, {1 << 30, 1<<30 + 4096}, {d.Size - edge, d.Size}}
			if all {
				parts = [][2]int64{{0, d.Size}}
			}
			for _, p := range parts {
				begun := time.Now()
				at, err := notZero(d.Name(), p[0], p[1])
				if err != nil {
					t.Fatal(err)
				}
				if at >= 0 {
					wrong = append(wrong, fmt.Errorf("disk %s of %s has a byte that is not zero at %d", d.Name(), n.Name, at))
				}
				t.Logf("read bytes %d to %d of %s in %.1fs", p[0], p[1], d.Name(), time.Since(begun).Seconds())
			}
		}
	}
	return errors.Join(wrong...)
}

// notZero finds the first byte of [from, to) that is not zero in the file that is a
// loop device's, or -1.
func notZero(device string, from, to int64) (int64, error) {
	path, err := os.ReadFile(filepath.Join("/sys/block", device, "loop/backing_file"))
	if err != nil {
		return 0, err
	}
	f, err := os.Open(strings.TrimSpace(string(path)))
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	buf, zero := make([]byte, 1<<20), make([]byte, 1<<20)
	for at := from; at < to; at += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), to-at)]
		if _, err := f.ReadAt(buf, at); err != nil {
			return 0, err
		}
		if !bytes.Equal(buf, zero[:len(buf)]) {
			return at + int64(bytes.IndexFunc(buf, func(r rune) bool { return r != 0 })), nil
		}
	}
	return -1, nil
}

// TestDeletionDuringReplacement destroys a cluster in which one OSD waits for its disk and
// another is being drained.
func TestDeletionDuringReplacement(t *testing.T) {
	r := replaceable(t)
	r.seen = r.follow(t)
	a, b, _ := r.pairs(t)
	r.request(t, a)
	r.untilReady(t, a)
	r.flags(t, "set", "norebalance", "nobackfill")
	r.request(t, b)
	r.deploymentUntil(t, b.id, "accepted", has(runningAnnotation))
	r.patch(t, `{"spec":{"cleanupPolicy":{"confirmation":"yes-really-destroy-data"}}}`)
	begun := time.Now()
	r.lab.MustKubectl(t, "-n", ceph.Namespace, "delete", "cephcluster", "rook-ceph", "--wait=false")
	r.gone(t)
	measured(t, "deletion/during-replacements", time.Since(begun))
	r.nothingLeft(t)
	r.remains(t)
	r.clean(t)
	if err := r.unwiped(t, false); err != nil {
		t.Error(err)
	}
}

// clean fails the test unless all hosts are.
func (c *cluster) clean(t *testing.T) {
	t.Helper()
	for where, what := range c.disks(t) {
		if what != disk.Blank {
			t.Errorf("disk %s holds %s", where, what)
		}
	}
	if left := c.stores(t); len(left) > 0 {
		t.Errorf("left on hosts: %v", left)
	}
}

// deletable is a lab with a healthy cluster of three nodes with a disk of this size each.
func deletable(t *testing.T, name, size string) *cluster {
	t.Helper()
	c := startWith(t, name, testlab.Options{Nodes: 3, Disks: 1, DiskSize: size})
	c.up(t)
	for where, what := range c.disks(t) {
		if !strings.HasPrefix(what, "osd.") {
			t.Fatalf("disk %s holds %s", where, what)
		}
	}
	return c
}
