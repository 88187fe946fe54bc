package smoke

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/castellan-storage/castellan/lab/build"
	"github.com/castellan-storage/castellan/lab/cluster"
	"github.com/castellan-storage/castellan/lab/cluster/control"
	"github.com/castellan-storage/castellan/lab/cluster/state"
	"github.com/castellan-storage/castellan/lab/disk"
	"github.com/castellan-storage/castellan/lab/node/cgroup"
	"github.com/castellan-storage/castellan/lab/testlab"
)

func TestMain(m *testing.M) { testlab.Main(m) }

// soon is how long one step may take on a machine that has other work too.
const soon = 3 * time.Minute

// TestSmoke goes through a lab's life. Its parts build on each other.
func TestSmoke(t *testing.T) {
	lab := testlab.StartNamed(t, "smoke", testlab.Options{Nodes: 3, Disks: 1, DiskSize: "4Gi"})
	parts := []struct {
		name string
		run  func(*testing.T, *testlab.Lab)
	}{
		{"service and DNS", testService},
		{"privileged pod writes its disk", testPrivileged},
		{"Ceph in a pod makes an OSD", testCeph},
		{"disks come and go", testDisks},
		{"a disk as a block volume", testBlockVolume},
		{"a node stops and starts", testNodeStop},
		{"a node is cut off", testPartition},
		{"the operator is killed", testOperatorKill},
		{"a second lab beside it", testSecondLab},
		{"a failure is collected", testCollect},
	}
	for _, p := range parts {
		if !t.Run(p.name, func(t *testing.T) { p.run(t, lab) }) {
			return
		}
	}
	t.Run("down leaves nothing", func(t *testing.T) { testDown(t, lab) })
}

const webYAML = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}
      containers:
      - name: web
        image: IMAGE
        imagePullPolicy: Never
        command: [/bin/sh, -c, "mkdir -p /www; echo hello from $(hostname) > /www/index.html; exec httpd -f -p 8080 -h /www"]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: client
    image: IMAGE
    imagePullPolicy: Never
    command: [/bin/sh, -c, "exec sleep 100000"]
`

func testService(t *testing.T, lab *testlab.Lab) {
	lab.Apply(t, strings.ReplaceAll(webYAML, "IMAGE", build.ImageTest))
	testlab.Until(t, soon, "two pods of the Deployment are available", func(ctx context.Context) error {
		d, err := lab.Kube().AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
		if err == nil && d.Status.AvailableReplicas != 2 {
			err = fmt.Errorf("%d are", d.Status.AvailableReplicas)
		}
		return err
	})
	waitRunning(t, lab, "client")
	testlab.Until(t, soon, "the Service answers by its name", func(ctx context.Context) error {
		r, err := lab.PodExec(ctx, "default", "client", "", "wget", "-q", "-T", "5", "-O", "-", "http://web.default.svc.cluster.local/")
		if err == nil && !strings.HasPrefix(r.Stdout, "hello from web-") {
			err = fmt.Errorf("answer %+v", r)
		}
		return err
	})
	// From this machine, through the lab's network: pod, and Service by address.
	pods, err := lab.Kube().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		t.Fatal(err)
	}
	nodes := map[string]bool{}
	for _, p := range pods.Items {
		nodes[p.Spec.NodeName] = true
		get(t, lab, p.Status.PodIP+":8080")
	}
	if len(nodes) != 2 {
		t.Errorf("the pods are on %v, not on two nodes", nodes)
	}
	svc, err := lab.Kube().CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	get(t, lab, svc.Spec.ClusterIP+":80")
}

// get asks a web server in the lab for its page.
func get(t *testing.T, lab *testlab.Lab, address string) {
	t.Helper()
	testlab.Until(t, time.Minute, address+" answers this machine", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		c, err := lab.Control.Dial(ctx, "tcp", address)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return err
		}
		if _, err := fmt.Fprint(c, "GET / HTTP/1.0\r\n\r\n"); err != nil {
			return err
		}
		b := make([]byte, 4096)
		var all string
		for !strings.Contains(all, "hello from web-") {
			n, err := c.Read(b)
			all += string(b[:n])
			if err != nil {
				return fmt.Errorf("answer %q: %w", all, err)
			}
		}
		return nil
	})
}

func waitRunning(t *testing.T, lab *testlab.Lab, pod string) {
	t.Helper()
	testlab.Until(t, soon, "the pod "+pod+" runs", func(ctx context.Context) error {
		p, err := lab.Kube().CoreV1().Pods("default").Get(ctx, pod, metav1.GetOptions{})
		if err == nil && p.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s: %+v", p.Status.Phase, p.Status.ContainerStatuses)
		}
		return err
	})
}

// privilegedYAML takes a name, a node and an image.
const privilegedYAML = `
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: default}
spec:
  nodeName: %[2]s
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: %[3]s
    imagePullPolicy: Never
    command: [/bin/sh, -c, "exec sleep 100000"]
    securityContext: {privileged: true}
    volumeMounts:
    - {name: dev, mountPath: /dev}
    - {name: udev, mountPath: /run/udev}
    - {name: rook, mountPath: /var/lib/rook, mountPropagation: Bidirectional}
  volumes:
  - {name: dev, hostPath: {path: /dev}}
  - {name: udev, hostPath: {path: /run/udev}}
  - {name: rook, hostPath: {path: /var/lib/rook, type: DirectoryOrCreate}}
`

// podRun runs a command in a pod's only container; it must exit with 0.
func podRun(t *testing.T, lab *testlab.Lab, pod string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	r, err := lab.PodExec(ctx, "default", pod, "", args...)
	if err != nil {
		t.Fatal(err)
	}
	if r.Code != 0 {
		t.Fatalf("%s in %s exited with %d: %s%s", strings.Join(args, " "), pod, r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

func testPrivileged(t *testing.T, lab *testlab.Lab) {
	d := lab.Disks(t, "node1")[0]
	if d.Content.Kind != disk.Blank {
		t.Fatalf("a new disk holds %s", d.Content)
	}
	lab.Apply(t, fmt.Sprintf(privilegedYAML, "priv", "node1", build.ImageTest))
	waitRunning(t, lab, "priv")
	podRun(t, lab, "priv", "/bin/sh", "-c", "echo castellan | dd of=/dev/"+d.Name()+" conv=fsync && echo it is > /var/lib/rook/written")
	if got := lab.Disks(t, "node1")[0].Content; got.Kind != disk.Other {
		t.Errorf("the disk that a pod wrote holds %s", got)
	}
	if got := lab.MustExec(t, "node1", "head", "-c9", "/dev/"+d.Name()); got != "castellan" {
		t.Errorf("the node reads %q from its disk", got)
	}
	if got := lab.MustExec(t, "node1", "cat", "/var/lib/rook/written"); got != "it is\n" {
		t.Errorf("the node reads %q from the pod's file", got)
	}
	// The node sees its own disk and no other, with a serial and a slot.
	if got := lab.MustExec(t, "node1", "sh", "-c", "ls -d /dev/loop*"); got != "/dev/"+d.Name()+"\n" {
		t.Errorf("the node has the devices %q", got)
	}
	link := "/dev/disk/by-id/ata-" + disk.Model + "_" + d.Serial
	if got := podRun(t, lab, "priv", "readlink", "-f", link); got != "/dev/"+d.Name()+"\n" {
		t.Errorf("%s leads to %q", link, got)
	}
	if got := podRun(t, lab, "priv", "cat", fmt.Sprintf("/run/udev/data/b7:%d", d.Number)); !strings.Contains(got, "E:ID_SERIAL_SHORT="+d.Serial+"\n") {
		t.Errorf("udev data: %s", got)
	}
	podRun(t, lab, "priv", "dd", "if=/dev/zero", "of=/dev/"+d.Name(), "bs=1M", "count=1", "conv=fsync")
}

func testCeph(t *testing.T, lab *testlab.Lab) {
	const fsid, uuid = "5d1f0000-0000-4000-8000-00000000fc1d", "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
	d := lab.Disks(t, "node2")[0]
	lab.Apply(t, fmt.Sprintf(privilegedYAML, "ceph", "node2", build.ImageCeph))
	waitRunning(t, lab, "ceph")
	if got := podRun(t, lab, "ceph", "ceph", "--version"); !strings.HasPrefix(got, "ceph version 20.2.4") {
		t.Errorf("version %q", got)
	}
	// A real BlueStore label, to be read by who lists disks. The OSD is made
	// without a cluster: no mon, no key.
	podRun(t, lab, "ceph", "/bin/sh", "-c", fmt.Sprintf(
		"mkdir -p /tmp/osd && ln -s /dev/%s /tmp/osd/block && ceph-osd -c /dev/null --mkfs -i 7 --osd-data /tmp/osd --osd-uuid %s --fsid %s --no-mon-config --osd-objectstore bluestore 2>&1",
		d.Name(), uuid, fsid))
	want := disk.Content{Kind: disk.CephOSD, OSD: "7", FSID: fsid, OSDUUID: uuid}
	if got := lab.Disks(t, "node2")[0].Content; got != want {
		t.Errorf("the disk holds %+v, want %+v", got, want)
	}
}

func testDisks(t *testing.T, lab *testlab.Lab) {
	added := lab.AddDisk(t, "node1", "64Mi")
	if added.Slot != 2 {
		t.Errorf("the second disk is in slot %d", added.Slot)
	}
	// A pod that runs sees a disk that comes, and loses one that goes while it
	// writes it.
	podRun(t, lab, "priv", "dd", "if=/dev/zero", "of=/dev/"+added.Name(), "bs=1M", "count=8", "conv=fsync")
	podRun(t, lab, "priv", "/bin/sh", "-c", fmt.Sprintf(
		"(exec 3>/dev/%s; while dd if=/dev/zero of=/proc/self/fd/3 bs=4096 seek=1000 count=1 conv=notrunc,fsync 2>/tmp/err; do sleep 0.1; done; echo failed >> /tmp/err) >/dev/null 2>&1 </dev/null &", added.Name()))
	blank := lab.SwapDisk(t, "node1", added.Serial, control.Swap{})
	if blank.Serial == added.Serial || blank.Slot != added.Slot || blank.Size != added.Size {
		t.Errorf("swapped %+v for %+v", added, blank)
	}
	testlab.Until(t, time.Minute, "the pulled disk fails for who has it open", func(ctx context.Context) error {
		r, err := lab.PodExec(ctx, "default", "priv", "", "cat", "/tmp/err")
		if err == nil && !strings.Contains(r.Stdout, "failed") {
			err = fmt.Errorf("so far %q", r.Stdout)
		}
		return err
	})
	got := podRun(t, lab, "priv", "/bin/sh", "-c", "ls /dev/disk/by-id /dev/disk/by-path")
	if strings.Contains(got, added.Serial) || !strings.Contains(got, blank.Serial) {
		t.Errorf("links after the swap: %s", got)
	}
	if moved := lab.SwapDisk(t, "node1", blank.Serial, control.Swap{OtherSlot: true}); moved.Slot == blank.Slot {
		t.Errorf("swapped to another slot: %+v for %+v", blank, moved)
	} else {
		lab.PullDisk(t, "node1", moved.Name())
	}
	if _, err := lab.Control.PullDisk(t.Context(), "node1", blank.Serial); err == nil {
		t.Error("a disk was pulled twice")
	}
	if n := len(lab.Disks(t, "node1")); n != 1 {
		t.Errorf("node1 has %d disks in the end", n)
	}
}

// blockYAML takes a device.
const blockYAML = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: block}
spec:
  storageClassName: local
  volumeMode: Block
  capacity: {storage: 4Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  local: {path: /dev/%[1]s}
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node3]}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: block, namespace: default}
spec:
  storageClassName: local
  volumeMode: Block
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
---
apiVersion: v1
kind: Pod
metadata: {name: block, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: %[2]s
    imagePullPolicy: Never
    command: [/bin/sh, -c, "exec sleep 100000"]
    volumeDevices: [{name: v, devicePath: /mnt/block}]
  volumes:
  - name: v
    persistentVolumeClaim: {claimName: block}
`

// testBlockVolume is how OSDs on PVCs get their disk. The kubelet holds it by
// another loop device, which must go with the pod.
func testBlockVolume(t *testing.T, lab *testlab.Lab) {
	d := lab.Disks(t, "node3")[0]
	lab.Apply(t, fmt.Sprintf(blockYAML, d.Name(), build.ImageTest))
	waitRunning(t, lab, "block")
	podRun(t, lab, "block", "/bin/sh", "-c", "echo castellan | dd of=/mnt/block conv=fsync")
	if got := lab.MustExec(t, "node3", "head", "-c9", "/dev/"+d.Name()); got != "castellan" {
		t.Errorf("the node reads %q from the disk of the volume", got)
	}
	if n := over(t, d.Number); n != 1 {
		t.Errorf("%d loop devices hold the disk of the volume", n)
	}
	lab.MustKubectl(t, "-n", "default", "delete", "pod", "block", "--wait")
	testlab.Until(t, soon, "the kubelet lets go of the disk", func(context.Context) error {
		if n := over(t, d.Number); n != 0 {
			return fmt.Errorf("%d loop devices hold it", n)
		}
		return nil
	})
}

// over counts the loop devices that stand on another.
func over(t *testing.T, number int) int {
	t.Helper()
	all, err := disk.ListAttached()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, a := range all {
		if a.Over == number {
			n++
		}
	}
	return n
}

func waitNode(t *testing.T, lab *testlab.Lab, name string, ready bool) {
	t.Helper()
	testlab.Until(t, soon, fmt.Sprintf("%s is Ready: %v", name, ready), func(ctx context.Context) error {
		n, err := lab.Kube().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				if (c.Status == corev1.ConditionTrue) == ready {
					return nil
				}
				return fmt.Errorf("Ready is %s: %s", c.Status, c.Message)
			}
		}
		return errors.New("no Ready condition")
	})
}

func testNodeStop(t *testing.T, lab *testlab.Lab) {
	disks := lab.Disks(t, "node2")
	lab.Node(t, "node2", control.Stop)
	if err := lab.Control.Node(t.Context(), "node2", control.Stop); err == nil {
		t.Error("a node was stopped twice")
	}
	if _, err := lab.Exec(t.Context(), "node2", "true"); err == nil {
		t.Error("a command ran on a stopped node")
	}
	lab.Node(t, "node2", control.Start)
	waitNode(t, lab, "node2", true)
	testlab.Until(t, soon, "a pod of the node runs again", func(ctx context.Context) error {
		r, err := lab.PodExec(ctx, "default", "ceph", "", "cat", "/etc/hostname")
		if err == nil && r.Code != 0 {
			err = errors.New(r.Stderr)
		}
		return err
	})
	if got := lab.Disks(t, "node2"); len(got) != 1 || got[0] != disks[0] {
		t.Errorf("disks after the restart: %+v, before: %+v", got, disks)
	}
	lab.MustExec(t, "node2", "test", "-b", "/dev/"+disks[0].Name())
}

func testPartition(t *testing.T, lab *testlab.Lab) {
	addr := lab.Status(t).Nodes[2].Addr + ":10250" // node3's kubelet
	dial := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		c, err := lab.Control.Dial(ctx, "tcp", addr)
		if err == nil {
			err = c.Close()
		}
		return err
	}
	if err := dial(t.Context()); err != nil {
		t.Fatalf("before: %v", err)
	}
	lab.Node(t, "node3", control.Partition)
	if err := dial(t.Context()); err == nil {
		t.Error("a node that is cut off answers")
	}
	// It runs: only the network is gone.
	lab.MustExec(t, "node3", "true")
	if got := lab.Status(t).Nodes[2].State; got != control.Partitioned {
		t.Errorf("its state is %s", got)
	}
	lab.Node(t, "node3", control.Heal)
	testlab.Until(t, time.Minute, "the node answers again", dial)
	waitNode(t, lab, "node3", true)
}

const operatorYAML = `
apiVersion: v1
kind: Pod
metadata: {name: operator, namespace: default, labels: {app: rook-ceph-operator}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: IMAGE
    imagePullPolicy: Never
    command: [/bin/sh, -c, "exec sleep 100000"]
`

func testOperatorKill(t *testing.T, lab *testlab.Lab) {
	if _, err := lab.Control.KillOperator(t.Context()); err == nil {
		t.Error("an operator was killed that is not there")
	}
	lab.Apply(t, strings.ReplaceAll(operatorYAML, "IMAGE", build.ImageTest))
	waitRunning(t, lab, "operator")
	killed, err := lab.Control.KillOperator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(killed) != 1 || killed[0] != "default/operator" {
		t.Errorf("killed %v", killed)
	}
	testlab.Until(t, soon, "Kubernetes starts it again", func(ctx context.Context) error {
		p, err := lab.Kube().CoreV1().Pods("default").Get(ctx, "operator", metav1.GetOptions{})
		if err != nil {
			return err
		}
		s := p.Status.ContainerStatuses[0]
		if s.RestartCount != 1 || s.State.Running == nil {
			return fmt.Errorf("%d restarts", s.RestartCount)
		}
		if c := s.LastTerminationState.Terminated; c == nil || c.ExitCode != 137 {
			return fmt.Errorf("it ended with %+v", c)
		}
		return nil
	})
}

func testSecondLab(t *testing.T, lab *testlab.Lab) {
	other := testlab.StartNamed(t, "smoke2", testlab.Options{Nodes: 1, Disks: 1, DiskSize: "64Mi"})
	if n := len(other.Status(t).Nodes); n != 1 {
		t.Errorf("the second lab has %d nodes", n)
	}
	if _, err := state.Create("smoke2", time.Now()); !errors.Is(err, state.ErrInUse) {
		t.Errorf("its name can be taken again: %v", err)
	}
	if err := cluster.Down(t.Context(), "smoke2"); err != nil {
		t.Fatal(err)
	}
	// The first has not noticed.
	for _, n := range lab.Status(t).Nodes {
		if n.State != control.Running || len(n.Exited) > 0 {
			t.Errorf("after the second lab went down: %+v", n)
		}
	}
	get(t, lab, webAddress(t, lab))
}

func webAddress(t *testing.T, lab *testlab.Lab) string {
	t.Helper()
	svc, err := lab.Kube().CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return svc.Spec.ClusterIP + ":80"
}

func testCollect(t *testing.T, lab *testlab.Lab) {
	dir := t.TempDir()
	if err := lab.Collect(t.Context(), dir); err != nil {
		t.Error(err)
	}
	for _, pattern := range []string{"events.txt", "nodes.json", "pods.json", "status.json", "lab/etcd.log", "lab/node1/kubelet.log", "pods/kube-system_coredns-*.log"} {
		m, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		if len(m) == 0 {
			t.Errorf("no %s was collected", pattern)
		}
	}
}

// testDown takes the lab down and looks for what it had: its processes, their
// namespaces, mounts, loop devices, cgroups and files.
func testDown(t *testing.T, lab *testlab.Lab) {
	hierarchies, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	set := cgroup.New(hierarchies, lab.Name)
	pids, err := set.Pids()
	if err != nil {
		t.Fatal(err)
	}
	spaces := namespaces(t, pids)
	for _, own := range namespaces(t, []int{os.Getpid()}) {
		delete(spaces, own)
	}
	if len(pids) < 20 || len(spaces) < 20 {
		t.Fatalf("a lab of three nodes has only %d processes in %d namespaces", len(pids), len(spaces))
	}
	procs := map[int]state.Process{}
	all, err := state.Processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		procs[p.Pid] = p
	}
	loops := 0
	for _, n := range lab.Status(t).Nodes {
		loops += len(n.Disks)
	}
	t.Logf("before: %d processes, %d namespaces, %d loop devices", len(pids), len(spaces), loops)
	begun := time.Now()
	if err := cluster.Down(t.Context(), lab.Name); err != nil {
		t.Fatal(err)
	}
	t.Logf("down took %.2fs", time.Since(begun).Seconds())
	for _, pid := range pids {
		if procs[pid].Pid != 0 && procs[pid].Alive() {
			t.Errorf("process %d (%s) runs still", pid, procs[pid].Comm)
		}
	}
	now, err := state.Processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range now {
		for kind, id := range namespaces(t, []int{p.Pid}) {
			if _, ok := spaces[id]; ok {
				t.Errorf("process %d (%s) is in the lab's %s namespace", p.Pid, p.Comm, kind)
			}
		}
	}
	if set.Exists() {
		t.Error("cgroups are left")
	}
	attached, err := disk.ListAttached()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range attached {
		if strings.HasPrefix(a.Backing, lab.Dir+"/") {
			t.Errorf("loop%d is left over %s", a.Number, a.Backing)
		}
	}
	mounts, err := state.Mounts()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		if strings.HasPrefix(m, lab.Dir) {
			t.Errorf("%s is mounted", m)
		}
	}
	if _, err := os.Stat(lab.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left", lab.Dir)
	}
	if err := cluster.Down(t.Context(), lab.Name); !errors.Is(err, state.ErrNotUp) {
		t.Errorf("down twice: %v", err)
	}
}

// namespaces are the namespaces that processes are in: identity to identity,
// such as "net:[4026531840]".
func namespaces(t *testing.T, pids []int) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pid := range pids {
		links, err := filepath.Glob(fmt.Sprintf("/proc/%d/ns/*", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			if id, err := os.Readlink(l); err == nil {
				out[id] = id
			}
		}
	}
	return out
}
