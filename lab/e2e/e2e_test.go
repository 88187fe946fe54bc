package e2e

import (
	"context"
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

	"github.com/castellan-storage/castellan/lab/ceph"
	"github.com/castellan-storage/castellan/lab/cluster/control"
	"github.com/castellan-storage/castellan/lab/testlab"
)

func TestMain(m *testing.M) { testlab.Main(m) }

// long is how long a step may take on a machine that has other work too. How long
// it takes is measured.
const long = 5 * time.Minute

// TestCluster goes through a cluster's life. Its parts build on each other: four
// nodes with six disks, three of the nodes with a mon.
func TestCluster(t *testing.T) {
	c := start(t, "e2e", 4, "node1", "node2")
	c.up(t)
	parts := []struct {
		name string
		run  func(*testing.T, *cluster)
	}{
		{"idle", testIdle},
		{"the operator restarts", testRestart},
		{"killed while the spec is edited", testKilledDuringEdit},
		{"mons restart one after another", testMonUpdate},
		{"an OSD pod is deleted", testDeleteOSDPod},
		{"a disk is added", testAddDisk},
		{"one mgr and two again", testMgrCount},
		{"a mon's node is lost", testMonFailover},
		{"a disk is pulled", testPulledDisk},
	}
	for _, p := range parts {
		ok := t.Run(p.name, func(t *testing.T) {
			c.ceph.Out = lineWriter{t}
			p.run(t, c)
			c.readBack(t)
		})
		if !ok && errors.Join(c.ready(t.Context()), c.healthy(t.Context(), c.ceph.OSDs)) != nil {
			break // the next would fail for this one's reason
		}
	}
	t.Run("no panic and no key in the open", func(t *testing.T) { c.searchSecrets(t) })
}

func testBringUp(t *testing.T, c *cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*long)
	defer cancel()
	c.ceph.Begun = time.Now()
	stages, err := c.ceph.Up(ctx)
	measuredStages(t, stages)
	if err != nil {
		t.Fatal(err)
	}
	measured(t, "bring-up/from-deploy-to-round-trip", time.Since(c.ceph.Begun))
	c.untilHealthy(t, long, c.ceph.OSDs)
	c.keep(t)
	c.readMetrics(t)
}

// readMetrics has the test be somebody who may read the operator's metrics.
func (c *cluster) readMetrics(t *testing.T) {
	t.Helper()
	c.lab.Apply(t, metricsReader)
	c.token = strings.TrimSpace(c.lab.MustKubectl(t, "-n", "default", "create", "token", "e2e-metrics", "--duration=4h"))
}

// statusInterval is how often the operator looks at Ceph's health by default.
const statusInterval = time.Minute

// testIdle holds the operator to doing nothing when there is nothing to do.
func testIdle(t *testing.T, c *cluster) {
	c.idle(t, long)
	// What OSDs say of their capacity takes a while to be complete, and is looked at
	// once in a status interval: one more write is right.
	time.Sleep(statusInterval + 5*time.Second)
	const window = statusInterval + 5*time.Second
	before := c.objects(t, version)
	m1, err := c.metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p1, err := c.operatorProcess(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); time.Since(begun) < window; time.Sleep(100 * time.Millisecond) {
		p, err := c.operatorProcess(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if p.children != "" {
			t.Fatalf("the operator has children: %s", p.children)
		}
	}
	p2, err := c.operatorProcess(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m2, err := c.metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if p1.pid != p2.pid {
		t.Fatal("the operator has restarted by itself")
	}
	if p2.childFaults != 0 {
		t.Errorf("the operator has run other programs: they had %d page faults", p2.childFaults)
	}
	diff := changes(before, c.objects(t, version))
	if len(diff) > 0 {
		t.Errorf("in a minute in which nothing happened these have changed:\n%s", strings.Join(diff, "\n"))
	}
	effects := sum(m2, "castellan_effects_total") - sum(m1, "castellan_effects_total")
	if effects != 0 {
		t.Errorf("the operator has made %v changes", effects)
	}
	measured(t, "idle/objects-changed-per-minute", len(diff))
	measured(t, "idle/effects-per-minute", effects)
	measured(t, "idle/passes-per-minute", sum(m2, "castellan_passes_total")-sum(m1, "castellan_passes_total"))
	measured(t, "idle/cpu-per-minute", fmt.Sprintf("%.2fs", (p2.cpu-p1.cpu).Seconds()))
	measured(t, "idle/processes-per-minute", 0)
	memory(t, "idle", p2)
}

// memory prints what a process takes of the machine. The files' part are pages of
// its program and libraries.
func memory(t *testing.T, when string, p process) {
	t.Helper()
	measured(t, when+"/rss-MB", fmt.Sprintf("%.1f", float64(p.rss)/(1<<20)))
	measured(t, when+"/rss-without-files-MB", fmt.Sprintf("%.1f", float64(p.anon)/(1<<20)))
	if p.anon > 60<<20 {
		t.Errorf("the operator has %d MB of its own resident, more than 60", p.anon>>20)
	}
}

// testRestart kills an operator that has nothing to do.
func testRestart(t *testing.T, c *cluster) {
	before := c.objects(t, wish)
	old, err := c.operatorProcess(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	c.kill(t)
	c.newProcess(t, old.pid)
	measured(t, "restart/kubelet-starts-it-again", time.Since(killed))
	took := c.idle(t, long)
	measured(t, "restart/process-start-to-idle", took)
	if took > time.Minute {
		t.Errorf("it took %v", took)
	}
	m, err := c.metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	effects := sum(m, "castellan_effects_total")
	measured(t, "restart/effects", effects)
	// The first passes are a whole pass over the cluster, with nothing to do.
	measured(t, "restart/passes", sum(m, "castellan_passes_total"))
	measured(t, "restart/seconds-in-passes", fmt.Sprintf("%.2f", sum(m, "castellan_pass_step_seconds_sum")))
	p, err := c.operatorProcess(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	measured(t, "restart/cpu", p.cpu)
	asked, err := c.commands(t.Context(), killed)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, k := range asked {
		n += k
	}
	measured(t, "restart/ceph-commands", n)
	t.Logf("the operator has asked Ceph: %v", asked)
	if diff := changes(before, c.objects(t, wish)); len(diff) > 0 || effects != 0 {
		t.Errorf("a restart has changed (%v effects):\n%s", effects, strings.Join(diff, "\n"))
	}
}

// newProcess waits until another process than pid is the operator.
func (c *cluster) newProcess(t *testing.T, pid int) {
	t.Helper()
	testlab.Until(t, long, "Kubernetes starts the operator again", func(ctx context.Context) error {
		p, err := c.operatorProcess(ctx)
		if err == nil && p.pid == pid {
			err = errors.New("the killed one is still there")
		}
		return err
	})
}

// deployments of the namespace by name.
func (c *cluster) deployments(ctx context.Context) (map[string]appsv1.Deployment, error) {
	list, err := c.lab.Kube().AppsV1().Deployments(ceph.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := map[string]appsv1.Deployment{}
	for _, d := range list.Items {
		out[d.Name] = d
	}
	return out, nil
}

// testKilledDuringEdit kills the operator while it rolls out a change to mgrs and
// OSDs.
func testKilledDuringEdit(t *testing.T, c *cluster) {
	begun := time.Now()
	c.patch(t, `{"spec":{"resources":{"mgr":{"requests":{"memory":"65Mi"}},"osd":{"requests":{"memory":"66Mi"}}}}}`)
	for range 2 {
		time.Sleep(time.Duration(300+rand.IntN(1500)) * time.Millisecond)
		p, err := c.operatorProcess(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c.kill(t)
		c.newProcess(t, p.pid)
	}
	least := c.ceph.OSDs
	testlab.Until(t, 3*long, "every mgr and OSD has the change", func(ctx context.Context) error {
		s, err := c.state(ctx)
		if err != nil {
			return err
		}
		least = min(least, s.Status.OSD.Up)
		deps, err := c.deployments(ctx)
		if err != nil {
			return err
		}
		n := 0
		for name, d := range deps {
			var want string
			switch {
			case strings.HasPrefix(name, "rook-ceph-mgr-"):
				want = "65Mi"
			case strings.HasPrefix(name, "rook-ceph-osd-"):
				want = "66Mi"
			default:
				continue
			}
			n++
			got := d.Spec.Template.Spec.Containers[0].Resources.Requests.Memory().String()
			if got != want || d.Status.UpdatedReplicas != 1 || d.Status.ReadyReplicas != 1 || d.Status.ObservedGeneration != d.Generation {
				return fmt.Errorf("%s has %s and %d of 1 updated, %d ready", name, got, d.Status.UpdatedReplicas, d.Status.ReadyReplicas)
			}
		}
		if n != 2+c.ceph.OSDs {
			return fmt.Errorf("there are %d mgrs and OSDs", n)
		}
		return nil
	})
	c.untilHealthy(t, long, c.ceph.OSDs)
	measured(t, "edit-killed-twice/until-all-rolled-and-clean", time.Since(begun))
	measured(t, "edit-killed-twice/fewest-osds-up", least)
}

// testMonUpdate changes what the mons' pods are made from: no two of them may be away
// at the same time.
func testMonUpdate(t *testing.T, c *cluster) {
	const memory = "68Mi"
	begun := time.Now()
	c.patch(t, `{"spec":{"resources":{"mon":{"requests":{"memory":"`+memory+`"}}}}}`)
	most := 0
	testlab.Until(t, long, "every mon has the change", func(ctx context.Context) error {
		deps, err := c.deployments(ctx)
		if err != nil {
			return err
		}
		var away, old []string
		for name, d := range deps {
			if !strings.HasPrefix(name, "rook-ceph-mon-") {
				continue
			}
			if s := d.Status; s.ObservedGeneration < d.Generation || s.UpdatedReplicas != 1 || s.ReadyReplicas != 1 {
				away = append(away, name)
			}
			if d.Spec.Template.Spec.Containers[0].Resources.Requests.Memory().String() != memory {
				old = append(old, name)
			}
		}
		if most = max(most, len(away)); len(away) > 1 {
			t.Fatalf("%v are away at the same time", away)
		}
		if len(away)+len(old) > 0 {
			return fmt.Errorf("%v are away, %v have the old template", away, old)
		}
		return nil
	})
	measured(t, "mon-update/until-all-have-the-change", time.Since(begun))
	measured(t, "mon-update/most-away-at-once", most)
	if in, _, err := c.quorum(t.Context()); err != nil || len(in) != 3 {
		t.Errorf("quorum %v: %v", in, err)
	}
	c.untilHealthy(t, long, c.ceph.OSDs)
}

// testDeleteOSDPod lets Kubernetes alone bring an OSD back.
func testDeleteOSDPod(t *testing.T, c *cluster) {
	before := c.objects(t, wish)
	pods, err := c.lab.Kube().CoreV1().Pods(ceph.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=rook-ceph-osd,ceph-osd-id=0"})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("pods of osd.0: %d, %v", len(pods.Items), err)
	}
	var dump struct {
		OSDs []struct {
			OSD, Up int
			UpFrom  int `json:"up_from"`
		} `json:"osds"`
	}
	upFrom := func(ctx context.Context) (int, error) {
		if err := c.ask(ctx, &dump, "osd", "dump"); err != nil {
			return 0, err
		}
		for _, o := range dump.OSDs {
			if o.OSD == 0 && o.Up == 1 {
				return o.UpFrom, nil
			}
		}
		return 0, errors.New("osd.0 is not up")
	}
	first, err := upFrom(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := c.lab.Kube().CoreV1().Pods(ceph.Namespace).Delete(t.Context(), pods.Items[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testlab.Until(t, long, "osd.0 is up again", func(ctx context.Context) error {
		now, err := upFrom(ctx)
		if err == nil && now == first {
			err = errors.New("it has not been down yet")
		}
		return err
	})
	measured(t, "osd-pod-deleted/until-up", time.Since(begun))
	c.untilHealthy(t, long, c.ceph.OSDs)
	measured(t, "osd-pod-deleted/until-clean", time.Since(begun))
	after := c.objects(t, wish)
	// Pods and the report of one are Kubernetes' own.
	own := func(name, _ string) bool { return strings.HasPrefix(name, "pods/rook-ceph-osd-0-") }
	for name := range before {
		if own(name, "") {
			delete(before, name)
		}
	}
	for name := range after {
		if own(name, "") {
			delete(after, name)
		}
	}
	if diff := changes(before, after); len(diff) > 0 {
		t.Errorf("the operator has changed:\n%s", strings.Join(diff, "\n"))
	}
}

func testAddDisk(t *testing.T, c *cluster) {
	c.lab.AddDisk(t, "node3", "10Gi")
	begun := time.Now()
	c.patch(t, `{"metadata":{"annotations":{"castellan.ceph.io/rescan":"1"}}}`)
	c.ceph.OSDs++
	testlab.Until(t, long, fmt.Sprintf("%d OSDs are up", c.ceph.OSDs), func(ctx context.Context) error {
		s, err := c.state(ctx)
		if err == nil && s.Status.OSD.Up != c.ceph.OSDs {
			err = fmt.Errorf("%d are", s.Status.OSD.Up)
		}
		return err
	})
	measured(t, "disk-added/from-rescan-to-up", time.Since(begun))
	c.untilHealthy(t, long, c.ceph.OSDs)
	measured(t, "disk-added/until-clean", time.Since(begun))
}

func testMgrCount(t *testing.T, c *cluster) {
	begun := time.Now()
	c.patch(t, `{"spec":{"mgr":{"count":1}}}`)
	deps := c.lab.Kube().AppsV1().Deployments(ceph.Namespace)
	testlab.Until(t, long, "the Deployment of mgr b is gone", func(ctx context.Context) error {
		_, err := deps.Get(ctx, "rook-ceph-mgr-b", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is still there"))
	})
	measured(t, "mgr-2-to-1/until-deployment-gone", time.Since(begun))
	testlab.Until(t, long, "the cluster is Ready", c.ready)
	c.readBack(t)
	begun = time.Now()
	c.patch(t, `{"spec":{"mgr":{"count":2}}}`)
	testlab.Until(t, long, "mgr b is there", func(ctx context.Context) error {
		_, err := deps.Get(ctx, "rook-ceph-mgr-b", metav1.GetOptions{})
		return err
	})
	measured(t, "mgr-1-to-2/until-deployment-there", time.Since(begun))
	testlab.Until(t, long, "there are an active mgr and a standby", func(ctx context.Context) error {
		var m struct {
			Available bool  `json:"available"`
			Standbys  []any `json:"standbys"`
		}
		if err := c.ask(ctx, &m, "mgr", "dump"); err != nil {
			return err
		}
		if !m.Available || len(m.Standbys) != 1 {
			return fmt.Errorf("available %v, %d standbys", m.Available, len(m.Standbys))
		}
		return nil
	})
	measured(t, "mgr-1-to-2/until-standby", time.Since(begun))
	c.untilHealthy(t, long, c.ceph.OSDs)
}

// nodeOf is the node on which a pod with these labels runs.
func (c *cluster) nodeOf(t *testing.T, selector string) string {
	t.Helper()
	pods, err := c.lab.Kube().CoreV1().Pods(ceph.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil {
			return p.Spec.NodeName
		}
	}
	t.Fatalf("no pod has %s", selector)
	return ""
}

// quorum are the mons in quorum and in the map, by name with address.
func (c *cluster) quorum(ctx context.Context) (in []string, addrs map[string]string, err error) {
	var q struct {
		In  []string `json:"quorum_names"`
		Map struct {
			Mons []struct {
				Name string `json:"name"`
				Addr string `json:"public_addr"`
			} `json:"mons"`
		} `json:"monmap"`
	}
	if err := c.ask(ctx, &q, "quorum_status"); err != nil {
		return nil, nil, err
	}
	addrs = map[string]string{}
	for _, m := range q.Map.Mons {
		addrs[m.Name], _, _ = strings.Cut(m.Addr, ":")
	}
	slices.Sort(q.In)
	return q.In, addrs, nil
}

// testMonFailover stops a node that has a mon, with short times to wait.
func testMonFailover(t *testing.T, c *cluster) {
	c.patch(t, `{"spec":{"healthCheck":{"daemonHealth":{"mon":{"interval":"5s","timeout":"20s"}}}}}`)
	testlab.Until(t, long, "the cluster is Ready", c.ready)
	// The tools that the test needs, and the operator, are not to go with it.
	busy := []string{c.nodeOf(t, "app=rook-ceph-tools"), c.nodeOf(t, "app=rook-ceph-operator")}
	names, before, err := c.quorum(t.Context())
	if err != nil || len(names) != 3 {
		t.Fatalf("quorum %v before: %v", names, err)
	}
	lost, node := "", ""
	for _, m := range names {
		if n := c.nodeOf(t, "app=rook-ceph-mon,mon="+m); !slices.Contains(busy, n) {
			lost, node = m, n
		}
	}
	if lost == "" {
		t.Fatalf("no mon is on another node than %v", busy)
	}
	t.Logf("stopping %s with mon %s", node, lost)
	begun := time.Now()
	c.lab.Node(t, node, control.Stop)
	var after map[string]string
	testlab.Until(t, 2*long, "three mons are in quorum, without "+lost, func(ctx context.Context) error {
		in, addrs, err := c.quorum(ctx)
		if err != nil {
			return err
		}
		if _, there := addrs[lost]; there || len(in) != 3 || len(addrs) != 3 {
			return fmt.Errorf("in quorum %v of %v", in, addrs)
		}
		after = addrs
		return nil
	})
	measured(t, "mon-failover/until-quorum-of-three-without-it", time.Since(begun))
	added := ""
	for m := range after {
		if before[m] == "" {
			added = m
		}
	}
	testlab.Until(t, long, "endpoints and configuration name the new mon and not the lost one", func(ctx context.Context) error {
		cm, err := c.lab.Kube().CoreV1().ConfigMaps(ceph.Namespace).Get(ctx, "rook-ceph-mon-endpoints", metav1.GetOptions{})
		if err != nil {
			return err
		}
		secret, err := c.lab.Kube().CoreV1().Secrets(ceph.Namespace).Get(ctx, "rook-ceph-config", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for what, text := range map[string]string{"ConfigMap": cm.Data["data"], "Secret": string(secret.Data["mon_host"])} {
			if !strings.Contains(text, after[added]) || strings.Contains(text, before[lost]) {
				return fmt.Errorf("the %s has %s, while mon %s is at %s and mon %s was at %s", what, text, added, after[added], lost, before[lost])
			}
		}
		_, err = c.lab.Kube().AppsV1().Deployments(ceph.Namespace).Get(ctx, "rook-ceph-mon-"+lost, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return errors.Join(err, fmt.Errorf("the Deployment of mon %s is still there", lost))
		}
		return nil
	})
	measured(t, "mon-failover/until-objects-follow", time.Since(begun))
	c.readBack(t)
	c.lab.Node(t, node, control.Start)
	begun = time.Now()
	c.untilHealthy(t, 2*long, c.ceph.OSDs)
	measured(t, "mon-failover/from-node-start-to-clean", time.Since(begun))
}

// testPulledDisk pulls the disk of an OSD: the user is told which OSD is down, and
// the cluster does not go back to its beginning.
func testPulledDisk(t *testing.T, c *cluster) {
	var meta struct {
		Node    string `json:"hostname"`
		Devices string `json:"bluestore_bdev_dev_node"`
	}
	const id = 1
	if err := c.ask(t.Context(), &meta, "osd", "metadata", strconv.Itoa(id)); err != nil {
		t.Fatal(err)
	}
	node, device := c.nodeOf(t, fmt.Sprintf("app=rook-ceph-osd,ceph-osd-id=%d", id)), strings.TrimPrefix(meta.Devices, "/dev/")
	t.Logf("pulling %s of %s, where osd.%d is", device, node, id)
	c.lab.PullDisk(t, node, device)
	begun := time.Now()
	// A real disk answers with errors now; one of a lab does so once it is opened anew.
	c.lab.MustKubectl(t, "-n", ceph.Namespace, "delete", "pod", "-l", fmt.Sprintf("app=rook-ceph-osd,ceph-osd-id=%d", id), "--grace-period=1", "--wait=false")
	told := time.Duration(0)
	testlab.Until(t, long, "the condition OSDsUp names the OSD", func(ctx context.Context) error {
		s, err := c.state(ctx)
		if err != nil {
			return err
		}
		if s.Status.Phase != "Ready" {
			t.Errorf("the phase is %s: %s", s.Status.Phase, s.Status.Message)
		}
		if status, msg := s.condition("OSDsUp"); status != "False" || !strings.Contains(msg, fmt.Sprintf("osd.%d", id)) {
			return fmt.Errorf("OSDsUp is %s: %s", status, msg)
		}
		told = time.Since(begun)
		return nil
	})
	measured(t, "disk-pulled/until-condition", told)
	for begun := time.Now(); time.Since(begun) < 30*time.Second; time.Sleep(time.Second) {
		s, err := c.state(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if status, _ := s.condition("OSDsUp"); status != "False" || s.Status.Phase != "Ready" {
			t.Fatalf("OSDsUp is %s, the phase is %s: %s", status, s.Status.Phase, s.Status.Message)
		}
	}
}

// TestKilledDuringBringUp kills the operator five times on the way from nothing to
// HEALTH_OK.
func TestKilledDuringBringUp(t *testing.T) {
	c := start(t, "e2ekill", 3)
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv(envSeed); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s=%d", envSeed, seed)
	r := rand.New(rand.NewPCG(seed, 0))
	ctx, cancel := context.WithTimeout(t.Context(), 4*long)
	defer cancel()
	type end struct {
		stages []ceph.Stage
		err    error
	}
	done := make(chan end, 1)
	c.ceph.Begun = time.Now()
	go func() {
		stages, err := c.ceph.Up(ctx)
		done <- end{stages, err}
	}()
	testlab.Until(t, long, "the CephCluster is there", func(ctx context.Context) error {
		_, err := c.state(ctx)
		return err
	})
	const kills = 5
	early := 0
	for i := range kills {
		wait := time.Duration(200+r.IntN(2800)) * time.Millisecond
		select {
		case e := <-done:
			t.Fatalf("the cluster was complete after %d kills: %v", i, e.err)
		case <-time.After(wait):
		}
		s, err := c.state(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("kill %d at %s: %s", i+1, s.Status.Phase, s.Status.Message)
		if s.Status.Phase != "Ready" {
			early++
		}
		c.end(t, i%2 == 1)
	}
	e := <-done
	measured(t, "killed/times-before-ready", early)
	if early < kills/2 {
		t.Errorf("only %d of the kills came before the cluster was complete", early)
	}
	measuredStages(t, e.stages)
	if e.err != nil {
		t.Fatal(e.err)
	}
	c.untilHealthy(t, long, c.ceph.OSDs)
	in, _, err := c.quorum(t.Context())
	if err != nil || !slices.Equal(in, []string{"a", "b", "c"}) {
		t.Errorf("quorum %v (%v), not a, b and c", in, err)
	}
	var tree struct {
		Stray []any `json:"stray"`
		Nodes []struct {
			Type, Status string
		} `json:"nodes"`
	}
	if err := c.ask(t.Context(), &tree, "osd", "tree"); err != nil {
		t.Fatal(err)
	}
	osds := 0
	for _, n := range tree.Nodes {
		if n.Type == "osd" {
			osds++
		}
	}
	if osds+len(tree.Stray) != c.ceph.OSDs {
		t.Errorf("Ceph knows %d OSDs and %d strays for %d disks", osds, len(tree.Stray), c.ceph.OSDs)
	}
	c.keep(t)
	c.searchSecrets(t)
}

// end kills the operator and waits until another runs: its process, which the
// kubelet starts again, or its pod, which gets another. A process that has been
// killed twice is started again only after a while.
func (c *cluster) end(t *testing.T, pod bool) {
	t.Helper()
	var old process
	testlab.Until(t, long, "the operator runs", func(ctx context.Context) error {
		var err error
		old, err = c.operatorProcess(ctx)
		return err
	})
	if pod {
		c.keepLog(t)
		c.lab.MustKubectl(t, "-n", ceph.Namespace, "delete", "pod", "-l", "app=rook-ceph-operator", "--grace-period=0", "--force", "--wait=false")
	} else {
		c.kill(t)
	}
	c.newProcess(t, old.pid)
}
