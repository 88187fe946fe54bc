package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/castellan-storage/castellan/lab/ceph"
	"github.com/castellan-storage/castellan/lab/testlab"
)

// TestDaemons looks at what serves the daemons of a cluster: crash collectors and log
// rotation, and at settings of OSDs that run.
func TestDaemons(t *testing.T) {
	c := start(t, "e2edaemons", 3)
	c.up(t)
	for _, p := range []struct {
		name string
		run  func(*testing.T, *cluster)
	}{
		{"a crash is posted", testCrash},
		{"class, weight and affinity of OSDs", testOSDSettings},
		{"log files are rotated", testLogRotation},
	} {
		t.Run(p.name, func(t *testing.T) {
			c.ceph.Out = lineWriter{t}
			p.run(t, c)
			c.readBack(t)
		})
	}
	t.Run("no panic and no key in the open", func(t *testing.T) { c.searchSecrets(t) })
}

// signal sends a signal to the process of this name in the only pod that has these
// labels.
func (c *cluster) signal(t *testing.T, selector, program string, s syscall.Signal) {
	t.Helper()
	pods, err := c.lab.Kube().CoreV1().Pods(ceph.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("%d pods have %s: %v", len(pods.Items), selector, err)
	}
	comms, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range comms {
		comm, err := os.ReadFile(path)
		if err != nil || strings.TrimSpace(string(comm)) != program {
			continue // ended meanwhile, or another program
		}
		dir := filepath.Dir(path)
		group, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err != nil || !bytes.Contains(group, []byte(pods.Items[0].UID)) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, s); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("pod %s runs no %s", pods.Items[0].Name, program)
}

// testCrash makes an OSD crash: the collector of its node tells Ceph.
func testCrash(t *testing.T, c *cluster) {
	c.patch(t, `{"spec":{"crashCollector":{"disable":false}}}`)
	begun := time.Now()
	testlab.Until(t, long, "a collector runs on each node", func(ctx context.Context) error {
		deps, err := c.deployments(ctx)
		if err != nil {
			return err
		}
		n := 0
		for name, d := range deps {
			if strings.HasPrefix(name, "rook-ceph-crashcollector-") && d.Status.ReadyReplicas == 1 {
				n++
			}
		}
		if n != 3 {
			return fmt.Errorf("%d do", n)
		}
		return nil
	})
	measured(t, "crash/until-collectors-run", time.Since(begun))
	c.signal(t, "app=rook-ceph-osd,ceph-osd-id=0", "ceph-osd", syscall.SIGSEGV)
	begun = time.Now()
	testlab.Until(t, 2*time.Minute, "ceph crash ls shows it", func(ctx context.Context) error {
		var list []struct {
			ID     string `json:"crash_id"`
			Entity string `json:"entity_name"`
		}
		if err := c.ask(ctx, &list, "crash", "ls"); err != nil {
			return err
		}
		for _, x := range list {
			if x.Entity == "osd.0" {
				return nil
			}
		}
		return fmt.Errorf("it shows %+v", list)
	})
	measured(t, "crash/until-posted", time.Since(begun))
	node := c.nodeOf(t, "app=rook-ceph-osd,ceph-osd-id=0")
	if got := c.lab.MustExec(t, node, "ls", "/var/lib/rook/rook-ceph/crash/posted"); strings.TrimSpace(got) == "" {
		t.Error("the report was not moved to crash/posted")
	}
	if _, err := c.ceph.Tool(t.Context(), nil, "ceph", "crash", "archive-all"); err != nil {
		t.Fatal(err)
	}
	c.untilHealthy(t, long, c.ceph.OSDs)
	measured(t, "crash/until-healthy-again", time.Since(begun))
}

// testOSDSettings changes what the spec may change of OSDs that run.
func testOSDSettings(t *testing.T, c *cluster) {
	tree := func(ctx context.Context) (class string, weight, affinity float64, err error) {
		var got struct {
			Nodes []struct {
				ID       int
				Class    string  `json:"device_class"`
				Weight   float64 `json:"crush_weight"`
				Affinity float64 `json:"primary_affinity"`
			}
		}
		if err := c.ask(ctx, &got, "osd", "tree"); err != nil {
			return "", 0, 0, err
		}
		for _, n := range got.Nodes {
			if n.ID == 0 {
				return n.Class, n.Weight, n.Affinity, nil
			}
		}
		return "", 0, 0, errors.New("osd.0 is not in the tree")
	}
	before, weight, _, err := tree(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	c.patch(t, `{"spec":{"storage":{"allowDeviceClassUpdate":true,"allowOsdCrushWeightUpdate":true,"config":{"deviceClass":"fast","primaryAffinity":"0.5"}}}}`)
	testlab.Until(t, long, "osd.0 has the class and the affinity", func(ctx context.Context) error {
		class, now, affinity, err := tree(ctx)
		if err == nil && (class != "fast" || affinity != 0.5 || now != weight) {
			err = fmt.Errorf("class %s, weight %v, affinity %v", class, now, affinity)
		}
		return err
	})
	measured(t, "osd-settings/from-spec-to-class-and-affinity", time.Since(begun))
	c.untilHealthy(t, long, c.ceph.OSDs)
	c.patch(t, fmt.Sprintf(`{"spec":{"storage":{"allowDeviceClassUpdate":true,"config":{"deviceClass":%q,"primaryAffinity":"1"}}}}`, before))
	testlab.Until(t, long, "osd.0 is as it was", func(ctx context.Context) error {
		class, _, affinity, err := tree(ctx)
		if err == nil && (class != before || affinity != 1) {
			err = fmt.Errorf("class %s, affinity %v", class, affinity)
		}
		return err
	})
	c.patch(t, `{"spec":{"storage":{"allowDeviceClassUpdate":null,"allowOsdCrushWeightUpdate":null,"config":null}}}`)
	c.untilHealthy(t, long, c.ceph.OSDs)
}

// testLogRotation has an OSD write more than its log file may hold: the file is
// rotated, and the daemon goes on in a new one.
func testLogRotation(t *testing.T, c *cluster) {
	c.patch(t, `{"spec":{"logCollector":{"enabled":true,"periodicity":"daily","maxLogSize":"1M"}}}`)
	begun := time.Now()
	testlab.Until(t, 2*long, "each OSD has its log-collector", func(ctx context.Context) error {
		deps, err := c.deployments(ctx)
		if err != nil {
			return err
		}
		for id := range c.ceph.OSDs {
			d := deps[deployment(id)]
			found := false
			for _, x := range d.Spec.Template.Spec.Containers {
				found = found || x.Name == "log-collector"
			}
			if !found || d.Status.UpdatedReplicas != 1 || d.Status.ReadyReplicas != 1 || d.Status.ObservedGeneration != d.Generation {
				return fmt.Errorf("osd.%d: sidecar %v, %d updated, %d ready", id, found, d.Status.UpdatedReplicas, d.Status.ReadyReplicas)
			}
		}
		return nil
	})
	measured(t, "logs/until-all-osds-have-the-sidecar", time.Since(begun))
	c.untilHealthy(t, 2*long, c.ceph.OSDs)
	node := c.nodeOf(t, "app=rook-ceph-osd,ceph-osd-id=0")
	if _, err := c.ceph.Tool(t.Context(), nil, "ceph", "tell", "osd.0", "config", "set", "debug_osd", "20"); err != nil {
		t.Fatal(err)
	}
	rotated := func() []string {
		return strings.Fields(c.lab.MustExec(t, node, "find", "/var/lib/rook/rook-ceph/log", "-name", "ceph-osd.0.log*.gz"))
	}
	begun = time.Now()
	testlab.Until(t, 5*time.Minute, "a rotated file of osd.0 is there", func(context.Context) error {
		if len(rotated()) == 0 {
			return errors.New(c.lab.MustExec(t, node, "ls", "-l", "/var/lib/rook/rook-ceph/log"))
		}
		return nil
	})
	measured(t, "logs/until-rotated", time.Since(begun))
	size := func() int {
		n, err := strconv.Atoi(strings.TrimSpace(c.lab.MustExec(t, node, "stat", "-c", "%s", "/var/lib/rook/rook-ceph/log/ceph-osd.0.log")))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := size()
	testlab.Until(t, time.Minute, "the OSD writes to the new file", func(context.Context) error {
		if now := size(); now == before {
			return fmt.Errorf("it has %d bytes as before", now)
		}
		return nil
	})
	if _, err := c.ceph.Tool(t.Context(), nil, "ceph", "tell", "osd.0", "config", "set", "debug_osd", "1/5"); err != nil {
		t.Fatal(err)
	}
}

// localVolumes are volumes on the nodes' own disks, for a StorageClass of that name
// that makes none by itself.
func localVolumes(t *testing.T, lab *testlab.Lab, class string, nodes ...string) {
	t.Helper()
	objects := []any{map[string]any{
		"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": map[string]any{"name": class},
		"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
	}}
	for _, n := range nodes {
		path := "/var/lib/e2e-volume"
		lab.MustExec(t, n, "mkdir", "-p", path)
		objects = append(objects, map[string]any{
			"apiVersion": "v1", "kind": "PersistentVolume", "metadata": map[string]any{"name": class + "-" + n},
			"spec": map[string]any{
				"capacity": map[string]any{"storage": "10Gi"}, "accessModes": []string{"ReadWriteOnce"}, "storageClassName": class,
				"persistentVolumeReclaimPolicy": "Retain", "local": map[string]any{"path": path},
				"nodeAffinity": map[string]any{"required": map[string]any{"nodeSelectorTerms": []any{map[string]any{
					"matchExpressions": []any{map[string]any{"key": "kubernetes.io/hostname", "operator": "In", "values": []string{n}}},
				}}}},
			},
		})
	}
	b, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	if err != nil {
		t.Fatal(err)
	}
	lab.Apply(t, string(b))
}

// TestOtherMons brings up a cluster whose mons are on the host network and on volumes.
func TestOtherMons(t *testing.T) {
	c := start(t, "e2emons", 3)
	if !c.found {
		localVolumes(t, c.lab, "mons", "node1", "node2", "node3")
		c.ceph.Patch = `{"spec":{"network":{"provider":"host"},"mon":{"count":3,"volumeClaimTemplate":{"spec":{"storageClassName":"mons","resources":{"requests":{"storage":"5Gi"}}}}}}}`
	}
	c.up(t)
	claims, err := c.lab.Kube().CoreV1().PersistentVolumeClaims(ceph.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range claims.Items {
		if p.Status.Phase != "Bound" {
			t.Errorf("claim %s is %s", p.Name, p.Status.Phase)
		}
	}
	if len(claims.Items) != 3 {
		t.Errorf("there are %d claims for three mons", len(claims.Items))
	}
	_, addrs, err := c.quorum(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	nodes := map[string]bool{}
	for _, n := range c.lab.Status(t).Nodes {
		nodes[n.Addr] = true
	}
	for m, a := range addrs {
		if !nodes[a] {
			t.Errorf("mon %s has the address %s, which is no node's: %v", m, a, nodes)
		}
	}
	for _, m := range []string{"a", "b", "c"} {
		node := c.nodeOf(t, "app=rook-ceph-mon,mon="+m)
		if got := c.lab.MustExec(t, node, "find", "/var/lib/e2e-volume", "-name", "store.db"); strings.TrimSpace(got) == "" {
			t.Errorf("the store of mon %s is not on the volume of %s", m, node)
		}
	}
	t.Run("a mon's pod is deleted", func(t *testing.T) {
		begun := time.Now()
		c.lab.MustKubectl(t, "-n", ceph.Namespace, "delete", "pod", "-l", "app=rook-ceph-mon,mon=b", "--wait=false")
		testlab.Until(t, long, "mon b has left or joined again", func(ctx context.Context) error {
			in, _, err := c.quorum(ctx)
			if err == nil && len(in) != 3 {
				err = fmt.Errorf("in quorum %v", in)
			}
			return err
		})
		c.untilHealthy(t, long, c.ceph.OSDs)
		measured(t, "other-mons/pod-deleted-until-healthy", time.Since(begun))
		c.readBack(t)
	})
	t.Run("no panic and no key in the open", func(t *testing.T) { c.searchSecrets(t) })
}
