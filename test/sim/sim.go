// Package sim stands in for the nodes of a Kubernetes cluster in tests against a
// real API server: it schedules pods, runs Deployments and Jobs, and lets an
// in-memory Ceph know which daemons run. What the pods of a real node would do, it
// does by the objects alone; nothing of the operator's own code is used, except to
// read the request that a prepare Job carries.
//
// It is for tests only.
package sim

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/castellan-storage/castellan/internal/ceph/cephtest"
	cephmon "github.com/castellan-storage/castellan/internal/ceph/mon"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/cleanup"
	"github.com/castellan-storage/castellan/internal/cluster/identity"
	"github.com/castellan-storage/castellan/internal/node/choice"
	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/provision"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/sanitize/task"
	"github.com/castellan-storage/castellan/internal/node/statusmap"
	daemonspec "github.com/castellan-storage/castellan/internal/nodedaemon/spec"
)

// Disk is a disk of a node.
type Disk struct {
	device.Device
	// OSD on it; nil while it is blank. Encrypted says that it has dm-crypt mappings.
	OSD       *device.OSD
	Encrypted bool
	// Volumes of OSDs on it, where it is shared.
	Volumes []Volume
}

// Node is a simulated node.
type Node struct {
	Name  string
	Alive bool
	Disks []*Disk
	// Needs are the volumes that an OSD must find, by its uuid.
	Needs map[string][]device.Role
}

// World is a number of nodes and the Ceph that runs on them.
type World struct {
	t     testing.TB
	c     client.Client
	ns    string
	Ceph  *cephtest.Cluster
	Image string // what the version pod says
	// Versions is what the version pod says of images that do not say Image, and what
	// daemons of these images run: image to "19.2.3".
	Versions map[string]string
	// Clock says when a Job ended; nil is the real time.
	Clock  func() time.Time
	mu     sync.Mutex
	nodes  map[string]*Node
	broken map[string]bool // daemons that do not start: "mon.a"
	serial int
	done   chan struct{}
	// told says that something has happened that the loop has not looked at.
	told atomic.Bool
	// hold keeps prepare Jobs of a node from ending.
	hold map[string]bool
	// dirty says what a node's cleanup fails with; cleaned are the requests done.
	dirty        map[string]string
	cleaned      map[string]task.Request
	replacements Replacements
	// mgrsUp are the mgrs that run; only the loop uses it.
	mgrsUp map[string]bool
	// memory says that the API server is kittest's: pods are bound, get a grace period
	// and Services get addresses by the world's own hand.
	memory bool
	writes *counting
	// stores are the mons' stores that have been in use.
	stores map[string]bool
	// monPods are the pods that the running mons are in.
	monPods map[string]types.UID
	// ips are the addresses given out, to Services and to nodes.
	ips     map[string]string
	nodeIPs int
}

// New starts a world in a namespace. It ends with the test.
func New(t testing.TB, c client.Client, ns string, ceph *cephtest.Cluster, nodes ...string) *World {
	t.Helper()
	w := Stepped(t, c, ns, ceph, nodes...)
	ctx, cancel := context.WithCancel(context.Background())
	ended := w.listen(ctx, c)
	go w.run(ctx)
	t.Cleanup(func() { cancel(); <-w.done; ended() })
	return w
}

// Stepped makes a world that moves only by Step.
func Stepped(t testing.TB, c client.Client, ns string, ceph *cephtest.Cluster, nodes ...string) *World {
	t.Helper()
	w := &World{
		t: t, ns: ns, Ceph: ceph, Image: "ceph version 20.2.4 (0123456789abcdef0123456789abcdef01234567) tentacle (stable)",
		nodes: map[string]*Node{}, broken: map[string]bool{}, hold: map[string]bool{}, dirty: map[string]string{}, cleaned: map[string]task.Request{},
		mgrsUp: map[string]bool{}, done: make(chan struct{}), writes: &counting{Client: c}, ips: map[string]string{}, stores: map[string]bool{}, monPods: map[string]types.UID{},
	}
	w.c = w.writes
	for _, n := range nodes {
		w.AddNode(n)
	}
	return w
}

// InMemory is Stepped for the in-memory API server of kittest: what a real one does
// by itself for pods and Services, the world does.
func InMemory(t testing.TB, c client.Client, ns string, ceph *cephtest.Cluster, nodes ...string) *World {
	t.Helper()
	w := Stepped(t, c, ns, ceph)
	w.memory = true
	for _, n := range nodes {
		w.AddNode(n)
	}
	return w
}

// Step lets everything move by one step, and says whether anything changed.
func (w *World) Step(ctx context.Context) (changed bool, err error) {
	before, ceph := w.writes.n.Load(), w.cephState()
	if w.memory {
		if err := w.addresses(ctx); err != nil {
			return false, err
		}
	}
	err = w.step(ctx)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		err = nil // somebody was faster; the next step looks again
	}
	w.Ceph.Tick(1)
	return w.writes.n.Load() != before || w.cephState() != ceph, err
}

// cephState tells two states of Ceph apart as far as steps change them.
func (w *World) cephState() string {
	return fmt.Sprint(w.Ceph.RunningMons(), w.Ceph.RunningOSDs(), len(w.mgrsUp), w.Ceph.String())
}

// addresses gives Services their addresses.
func (w *World) addresses(ctx context.Context) error {
	var list corev1.ServiceList
	if err := w.c.List(ctx, &list, client.InNamespace(w.ns)); err != nil {
		return err
	}
	for i := range list.Items {
		s := &list.Items[i]
		if s.Spec.ClusterIP != "" {
			continue
		}
		w.ips[s.Name] = fmt.Sprintf("10.96.0.%d", len(w.ips)+1)
		s.Spec.ClusterIP = w.ips[s.Name]
		if slices.Contains(s.Spec.IPFamilies, corev1.IPv6Protocol) {
			s.Spec.ClusterIP = fmt.Sprintf("fd00::%x", len(w.ips))
		}
		if err := w.c.Update(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// AddNode adds a node that is ready, with labels (key, value, ...) beside its own.
func (w *World) AddNode(name string, labels ...string) {
	w.t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	for i := 0; i+1 < len(labels); i += 2 {
		n.Labels[labels[i]] = labels[i+1]
	}
	if err := w.c.Create(context.Background(), n); err != nil {
		w.t.Fatalf("adding node %s: %v", name, err)
	}
	w.t.Cleanup(func() { _ = w.c.Delete(context.Background(), n) })
	w.mu.Lock()
	w.nodes[name] = &Node{Name: name, Alive: true}
	w.mu.Unlock()
	w.nodeStatus(name, true)
}

// nodeIP is by the order in which nodes came.
func (w *World) nodeIP(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ips["node "+name] == "" {
		w.nodeIPs++
		w.ips["node "+name] = "192.0.2." + strconv.Itoa(w.nodeIPs)
	}
	return w.ips["node "+name]
}

func (w *World) nodeStatus(name string, ready bool) {
	w.t.Helper()
	var n corev1.Node
	if err := w.c.Get(context.Background(), client.ObjectKey{Name: name}, &n); err != nil {
		w.t.Fatalf("reading node %s: %v", name, err)
	}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: w.nodeIP(name)}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionUnknown}[ready], Reason: "Sim"}}
	if err := w.c.Status().Update(context.Background(), &n); err != nil {
		w.t.Fatalf("writing node %s: %v", name, err)
	}
}

// AddDisk plugs a blank disk of 10 GiB into a node.
func (w *World) AddDisk(node, name string) *Disk {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.serial++
	d := &Disk{Device: device.Device{
		Name: name, Path: "/dev/" + name, Type: device.Disk, Size: 10 << 30, HasNode: true, Serial: fmt.Sprintf("SERIAL%d", w.serial),
		Slot: fmt.Sprintf("slot-%s-%s", node, name), Inventory: &device.Inventory{Available: true},
	}}
	w.nodes[node].Disks = append(w.nodes[node].Disks, d)
	w.told.Store(true)
	return d
}

// Kill makes a node lose power: its daemons stop, its pods stay as objects.
func (w *World) Kill(node string) { w.power(node, false) }

// Revive starts a node again.
func (w *World) Revive(node string) { w.power(node, true) }

func (w *World) power(node string, on bool) {
	w.t.Helper()
	w.mu.Lock()
	w.nodes[node].Alive = on
	w.mu.Unlock()
	w.nodeStatus(node, on)
}

// DeleteNode removes a node and everything that is bound to it.
func (w *World) DeleteNode(node string) {
	w.t.Helper()
	w.mu.Lock()
	delete(w.nodes, node)
	w.mu.Unlock()
	if err := w.c.Delete(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}); err != nil {
		w.t.Fatalf("deleting node %s: %v", node, err)
	}
}

// Break keeps a daemon ("mon.a") from getting up, or lets it again.
func (w *World) Break(daemon string, broken bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken[daemon] = broken
	w.told.Store(true)
}

// Hold keeps a node's prepare Jobs from ending, or lets them end.
func (w *World) Hold(node string, hold bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hold[node] = hold
	w.told.Store(true)
}

// run is the life of all nodes.
func (w *World) run(ctx context.Context) {
	defer close(w.done)
	for n := 0; ; n++ {
		if n%10 == 9 {
			w.Ceph.Tick(1) // time passes for Ceph too: PGs peer and recover
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(20 * time.Millisecond):
			// What nobody tells of, such as what has been said to Ceph, is seen now and then.
			if !w.told.Swap(false) && n%10 != 0 {
				continue
			}
			err := w.step(ctx)
			switch {
			case err == nil || ctx.Err() != nil:
			case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
				w.told.Store(true) // somebody was faster
			default:
				w.t.Errorf("simulated nodes: %v", err)
				return
			}
		}
	}
}

// step looks at everything once.
func (w *World) step(ctx context.Context) error {
	var deps appsv1.DeploymentList
	var jobs batchv1.JobList
	var podList corev1.PodList
	for _, l := range []client.ObjectList{&deps, &jobs, &podList} {
		if err := w.c.List(ctx, l, client.InNamespace(w.ns)); err != nil {
			return err
		}
	}
	if err := w.collect(ctx, deps.Items, jobs.Items, podList.Items); err != nil {
		return err
	}
	if err := w.c.List(ctx, &podList, client.InNamespace(w.ns)); err != nil {
		return err
	}
	for i := range podList.Items {
		if p := &podList.Items[i]; p.Spec.NodeName == "" && p.DeletionTimestamp == nil {
			if err := w.schedule(ctx, p, podList.Items); err != nil {
				return err
			}
		}
	}
	for i := range deps.Items {
		if err := w.deployment(ctx, &deps.Items[i], podList.Items); err != nil {
			return err
		}
	}
	for i := range jobs.Items {
		if err := w.job(ctx, &jobs.Items[i], podList.Items); err != nil {
			return err
		}
	}
	w.daemons(podList.Items)
	return nil
}

// collect is the garbage collector: pods without their owner go, and a pod that
// is being deleted goes at once, unless its node is dead.
func (w *World) collect(ctx context.Context, deps []appsv1.Deployment, jobs []batchv1.Job, pods []corev1.Pod) error {
	alive := map[string]bool{}
	for _, d := range deps {
		alive[string(d.UID)] = true
	}
	for _, j := range jobs {
		alive[string(j.UID)] = true
	}
	for i := range pods {
		p := &pods[i]
		orphan := false
		for _, r := range p.OwnerReferences {
			orphan = orphan || (r.Kind == "Deployment" || r.Kind == "Job") && !alive[string(r.UID)]
		}
		if !orphan && p.DeletionTimestamp == nil {
			continue
		}
		if n := w.node(p.Spec.NodeName); n != nil && !n.Alive {
			continue
		}
		if err := w.end(ctx, p); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// end makes a pod go for good, as a kubelet does that has stopped it.
func (w *World) end(ctx context.Context, p *corev1.Pod) error {
	if w.memory && len(p.Finalizers) > 0 {
		p.Finalizers = nil
		if err := w.c.Update(ctx, p); err != nil || p.DeletionTimestamp != nil {
			return err
		}
	}
	return w.c.Delete(ctx, p, client.GracePeriodSeconds(0))
}

func (w *World) node(name string) *Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodes[name]
}

// schedule binds a pod to the first node that fits, or says why none does.
func (w *World) schedule(ctx context.Context, p *corev1.Pod, all []corev1.Pod) error {
	var nodes corev1.NodeList
	if err := w.c.List(ctx, &nodes); err != nil {
		return err
	}
	w.mu.Lock()
	fits := map[string]*corev1.Node{}
	for i := range nodes.Items {
		if n := &nodes.Items[i]; w.nodes[n.Name] != nil && w.nodes[n.Name].Alive && !n.Spec.Unschedulable {
			fits[n.Name] = n
		}
	}
	w.mu.Unlock()
	names := slices.Sorted(maps.Keys(fits))
	affinity := nodeaffinity.GetRequiredNodeAffinity(p)
	for _, n := range names {
		if ok, err := affinity.Match(fits[n]); err != nil || !ok || !apart(p, n, all) {
			continue
		}
		if w.memory {
			p.Spec.NodeName = n
			return w.c.Update(ctx, p)
		}
		b := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: n}}
		if err := w.c.SubResource("binding").Create(ctx, p, b); err != nil {
			return err
		}
		p.Spec.NodeName = n
		return nil
	}
	msg := fmt.Sprintf("0/%d nodes are available", len(names))
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Message == msg {
			return nil
		}
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: msg}}
	return w.c.Status().Update(ctx, p)
}

// apart checks required anti-affinity by host, both ways as the scheduler does.
func apart(p *corev1.Pod, node string, all []corev1.Pod) bool {
	for i := range all {
		o := &all[i]
		if o.Spec.NodeName == node && o.UID != p.UID && (repels(p, o) || repels(o, p)) {
			return false
		}
	}
	return true
}

func repels(p, o *corev1.Pod) bool {
	if p.Spec.Affinity == nil || p.Spec.Affinity.PodAntiAffinity == nil {
		return false
	}
	for _, term := range p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		sel, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
		if err == nil && sel.Matches(labels.Set(o.Labels)) {
			return true
		}
	}
	return false
}

// deployment keeps a Deployment's one pod and its status. Recreate: an old pod
// goes before a new one comes.
func (w *World) deployment(ctx context.Context, d *appsv1.Deployment, pods []corev1.Pod) error {
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	hash := templateHash(d.Spec.Template)
	var mine []*corev1.Pod
	for i := range pods {
		for _, r := range pods[i].OwnerReferences {
			if r.UID == d.UID {
				mine = append(mine, &pods[i])
			}
		}
	}
	ready := int32(0)
	current := false
	for _, p := range mine {
		if p.Annotations["sim/template"] != hash || want == 0 {
			if p.DeletionTimestamp == nil {
				if err := w.c.Delete(ctx, p); err != nil {
					return err
				}
			}
			continue
		}
		current = true
		if p.Spec.NodeName == "" {
			continue
		}
		up := w.up(p)
		if err := w.podStatus(ctx, p, up); err != nil {
			return err
		}
		if up {
			ready++
		}
	}
	if want > 0 && len(mine) == 0 {
		return w.c.Create(ctx, w.podFor(d, hash))
	}
	st := appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: int32(len(mine)), ReadyReplicas: ready, AvailableReplicas: ready}
	if current {
		st.UpdatedReplicas = 1
	}
	if d.Status.ObservedGeneration == st.ObservedGeneration && d.Status.Replicas == st.Replicas && d.Status.ReadyReplicas == st.ReadyReplicas && d.Status.UpdatedReplicas == st.UpdatedReplicas {
		return nil
	}
	d.Status = st
	return w.c.Status().Update(ctx, d)
}

func templateHash(t corev1.PodTemplateSpec) string {
	b, _ := json.Marshal(t)
	return fmt.Sprintf("%x", len(b)) + "-" + fmt.Sprint(sum(b))
}

func sum(b []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range b {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}

func (w *World) podFor(d *appsv1.Deployment, hash string) *corev1.Pod {
	w.mu.Lock()
	w.serial++
	name := fmt.Sprintf("%s-%d", d.Name, w.serial)
	w.mu.Unlock()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: d.Namespace, Labels: d.Spec.Template.Labels, Annotations: map[string]string{"sim/template": hash},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: d.Name, UID: d.UID}},
		},
		Spec: *d.Spec.Template.Spec.DeepCopy(),
	}
	p.Spec.ServiceAccountName = "default"
	if w.memory {
		p.Finalizers = []string{graceFinalizer}
	}
	return p
}

// graceFinalizer holds a pod that is being deleted until its daemon has stopped, where
// the API server knows no grace period.
const graceFinalizer = "sim.castellan.io/grace"

// version of the daemon in a pod, by its image.
func (w *World) version(p *corev1.Pod) []cephtest.DaemonOption {
	opts := []cephtest.DaemonOption{cephtest.OnHost(p.Spec.NodeName)}
	for _, c := range p.Spec.Containers {
		if v := w.Versions[c.Image]; v != "" {
			opts = append(opts, cephtest.Version(v))
		}
	}
	return opts
}

// up says whether a pod's daemon runs: its node is alive and it is not broken.
func (w *World) up(p *corev1.Pod) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.nodes[p.Spec.NodeName]
	return n != nil && n.Alive && p.DeletionTimestamp == nil && !w.broken[daemonOf(p)] && n.hasVolumes(uuidOf(p))
}

// daemonOf is Ceph's name of a pod's daemon, "" for other pods.
func daemonOf(p *corev1.Pod) string {
	if p.Labels["mon_canary"] == "true" || p.Labels["ceph_daemon_type"] == "" {
		return ""
	}
	return p.Labels["ceph_daemon_type"] + "." + p.Labels["ceph_daemon_id"]
}

func (w *World) podStatus(ctx context.Context, p *corev1.Pod, up bool) error {
	status := corev1.ConditionFalse
	if up {
		status = corev1.ConditionTrue
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == status {
			return nil
		}
	}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: status}}
	return w.c.Status().Update(ctx, p)
}

// daemons tells Ceph which daemons run.
func (w *World) daemons(pods []corev1.Pod) {
	runs := map[string]*corev1.Pod{}
	for i := range pods {
		if d := daemonOf(&pods[i]); d != "" && pods[i].Spec.NodeName != "" && w.up(&pods[i]) {
			runs[d] = &pods[i]
		}
	}
	mons := w.Ceph.RunningMons()
	for _, m := range mons {
		// A new pod under the same name is a new process, also where the old one is gone at once.
		if p := runs["mon."+m]; p == nil || w.monPods[m] != "" && w.monPods[m] != p.UID {
			w.Ceph.StopMon(m)
		}
	}
	mons = w.Ceph.RunningMons()
	for _, d := range slices.Sorted(maps.Keys(runs)) {
		p := runs[d]
		if id, ok := strings.CutPrefix(d, "mon."); ok && !slices.Contains(mons, id) {
			if w.removed(id, p) {
				continue
			}
			w.monPods[id] = p.UID
			w.Ceph.BootMon(id, cephtest.MonAddrs(arg(p, "--public-addr="), arg(p, "--ms-bind-msgr1=") == "false"), w.version(p)...)
		}
	}
	w.mgrs(runs)
	w.osds(runs)
}

// removed says that a mon ends at its start, since it was in a quorum before and the
// monmap does not have it any more: "must have been removed".
func (w *World) removed(id string, p *corev1.Pod) bool {
	store := id + "@" + p.Spec.NodeName
	if slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil }) {
		store = id
	}
	used := w.stores[store]
	w.stores[store] = true
	if !used {
		return false
	}
	q, err := cephmon.New(w.Ceph).QuorumStatus(context.Background())
	return err == nil && !slices.ContainsFunc(q.Monmap.Mons, func(m cephmon.Mon) bool { return m.Name == id })
}

func arg(p *corev1.Pod, prefix string) string {
	for _, c := range p.Spec.Containers {
		for _, a := range c.Args {
			if v, ok := strings.CutPrefix(a, prefix); ok {
				return v
			}
		}
	}
	return ""
}

func (w *World) mgrs(runs map[string]*corev1.Pod) {
	for id := range w.mgrsUp {
		if runs["mgr."+id] == nil {
			w.Ceph.StopMgr(id)
			w.Ceph.Tick(1)
			delete(w.mgrsUp, id)
		}
	}
	for _, d := range slices.Sorted(maps.Keys(runs)) {
		p := runs[d]
		if id, ok := strings.CutPrefix(d, "mgr."); ok && !w.mgrsUp[id] {
			w.Ceph.BootMgr(id, w.version(p)...)
			w.mgrsUp[id] = true
		}
	}
}

func (w *World) osds(runs map[string]*corev1.Pod) {
	running := w.Ceph.RunningOSDs()
	for _, id := range running {
		if runs["osd."+strconv.Itoa(id)] == nil {
			w.Ceph.StopOSD(id)
		}
	}
	for _, d := range slices.Sorted(maps.Keys(runs)) {
		p := runs[d]
		s, ok := strings.CutPrefix(d, "osd.")
		id, err := strconv.Atoi(s)
		if !ok || err != nil || slices.Contains(running, id) {
			continue
		}
		uuid := uuidOf(p)
		disk, size := w.diskOf(p.Spec.NodeName, uuid)
		if disk == nil {
			continue // no such disk on this node: the pod does not start
		}
		// A refusal is what the test will see: the OSD does not come up.
		_ = w.Ceph.BootOSD(id, uuid, cephtest.OSDSpec{Host: p.Spec.NodeName, Devices: disk.Name, Bytes: int64(size)}, w.version(p)...)
	}
}

// uuidOf is the OSD that a pod is for, "" for other pods.
func uuidOf(p *corev1.Pod) string {
	var req request.Activate
	for _, c := range p.Spec.InitContainers {
		for _, e := range c.Env {
			if e.Name == request.Env && p.Labels["ceph_daemon_type"] == "osd" {
				_ = request.Decode(e.Value, &req)
			}
		}
	}
	for _, c := range p.Spec.Containers {
		for _, e := range c.Env {
			if req.UUID == "" && e.Name == "ROOK_OSD_UUID" {
				req.UUID = e.Value // a pod that another operator has made
			}
		}
	}
	return req.UUID
}

func (w *World) diskOf(node, uuid string) (*Disk, uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.nodes[node]
	if n == nil {
		return nil, 0
	}
	for _, d := range n.Disks {
		if d.OSD != nil && d.OSD.UUID == uuid {
			return d, d.Size
		}
		if v := d.volume(uuid, device.RoleBlock); v != nil {
			return d, v.Size
		}
	}
	return nil, 0
}

// job runs the Jobs that the operator makes.
func (w *World) job(ctx context.Context, j *batchv1.Job, pods []corev1.Pod) error {
	for _, c := range j.Status.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			return nil
		}
	}
	var pod *corev1.Pod
	for i := range pods {
		for _, r := range pods[i].OwnerReferences {
			if r.UID == j.UID {
				pod = &pods[i]
			}
		}
	}
	if pod == nil {
		w.mu.Lock()
		w.serial++
		name := fmt.Sprintf("%s-%d", j.Name, w.serial)
		w.mu.Unlock()
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: j.Namespace, Labels: j.Spec.Template.Labels,
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: j.Name, UID: j.UID}}},
			Spec: *j.Spec.Template.Spec.DeepCopy(),
		}
		p.Spec.ServiceAccountName = "default"
		return w.c.Create(ctx, p)
	}
	if pod.Spec.NodeName == "" {
		return nil
	}
	switch j.Labels["app"] {
	case "rook-ceph-detect-version":
		return w.versionJob(ctx, j, pod)
	case "rook-ceph-osd-prepare":
		return w.prepareJob(ctx, j, pod)
	case daemonspec.FactsApp:
		return w.factsJob(ctx, j, pod)
	case cleanup.App:
		return w.cleanupJob(ctx, j, pod)
	}
	_, err := w.replaceJob(ctx, j, pod)
	return err
}

func (w *World) versionJob(ctx context.Context, j *batchv1.Job, pod *corev1.Pod) error {
	if pod.Status.Phase != corev1.PodSucceeded {
		pod.Status.Phase = corev1.PodSucceeded
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "version", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: w.said(j)}},
		}}
		return w.c.Status().Update(ctx, pod)
	}
	return w.endJob(ctx, j, true)
}

// said is what ceph --version prints in a version Job's image.
func (w *World) said(j *batchv1.Job) string {
	for _, c := range j.Spec.Template.Spec.Containers {
		if v := w.Versions[c.Image]; v != "" {
			return "ceph version " + v + " (0123456789abcdef0123456789abcdef01234567) stable (stable)"
		}
	}
	return w.Image
}

func (w *World) endJob(ctx context.Context, j *batchv1.Job, ok bool) error {
	now := metav1.Now()
	if w.Clock != nil {
		now = metav1.NewTime(w.Clock())
	}
	j.Status.StartTime = &now
	if ok {
		j.Status.Succeeded = 1
		j.Status.CompletionTime = &now
		j.Status.Conditions = []batchv1.JobCondition{
			{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue, LastTransitionTime: now},
			{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: now},
		}
	} else {
		j.Status.Failed = 1
		j.Status.Conditions = []batchv1.JobCondition{
			{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue, LastTransitionTime: now},
			{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, LastTransitionTime: now},
		}
	}
	return w.c.Status().Update(ctx, j)
}

// prepareJob is what castellan-node does on a node, with its own choice and its own
// report.
func (w *World) prepareJob(ctx context.Context, j *batchv1.Job, pod *corev1.Pod) error {
	var req request.Provision
	for _, e := range pod.Spec.Containers[0].Env {
		if e.Name == request.Env {
			if err := request.Decode(e.Value, &req); err != nil {
				return err
			}
		}
	}
	w.mu.Lock()
	node, held := w.nodes[pod.Spec.NodeName], w.hold[pod.Spec.NodeName]
	w.mu.Unlock()
	if node == nil || !node.Alive || held {
		return nil
	}
	report, err := w.provision(ctx, node, req)
	if err != nil {
		return err
	}
	m, err := statusmap.Map(statusmap.Target{Namespace: req.Namespace, Name: req.ConfigMap, Node: req.Node, Labels: req.Labels}, report)
	if err != nil {
		return err
	}
	if err := apply(ctx, w.c, m); err != nil {
		return err
	}
	return w.endJob(ctx, j, report.State == provision.Completed)
}

// provision chooses and prepares as the node would, with Ceph giving out the ids.
func (w *World) provision(ctx context.Context, node *Node, req request.Provision) (provision.Report, error) {
	sel, err := req.Selection.Compile()
	if err != nil {
		return provision.Report{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	devices := w.look(node)
	facts, swaps := pendingFacts(choice.Facts{FSID: req.FSID, AllowLoop: req.AllowLoop, Reserved: req.Reserved}, req, devices)
	verdicts := choice.Choose(devices, sel, facts)
	r := provision.Report{State: provision.Completed, Swaps: swaps}
	for _, v := range verdicts {
		r.Devices = append(r.Devices, provision.Device{Path: v.Device.Path, Type: v.Device.Type, Size: v.Device.Size, Serial: v.Device.Serial, Use: v.Use, Reason: v.Reason, Message: v.Message})
		if !v.Use {
			continue
		}
		if v.Config.OSDsPerDevice > 1 || v.Config.MetadataDevice != "" {
			if err := w.volumes(ctx, node, v, req.FSID); err != nil {
				r.State, r.Message = provision.Failed, err.Error()
			}
			continue
		}
		uuid := w.Ceph.NewUUID()
		key, err := identity.NewKey(rand.Reader, identity.AES256K, time.Now())
		if err != nil {
			return provision.Report{}, err
		}
		id, err := cephosd.New(w.Ceph).NewOSD(ctx, uuid, -1, cephosd.Secrets{CephxSecret: key})
		if err != nil {
			r.State, r.Message = provision.Failed, err.Error()
			continue
		}
		for _, d := range node.Disks {
			if d.Name == v.Device.Name {
				d.OSD = &device.OSD{ID: id, UUID: uuid, FSID: req.FSID, Role: device.RoleBlock}
				d.Encrypted = v.Config.Encrypted
			}
		}
	}
	r.OSDs, r.Problems = prepare.Results(found(node), w.look(node), req.FSID)
	r.OSDs = living(r.OSDs, req.Pending)
	return r, nil
}

func (w *World) look(node *Node) []device.Device {
	var devices []device.Device
	for _, d := range node.Disks {
		x := d.Device
		if d.OSD != nil {
			x.OSDs, x.FSType = []device.OSD{*d.OSD}, "ceph_bluestore"
			x.Inventory = &device.Inventory{Rejected: []string{"Has BlueStore device label"}}
		}
		for _, v := range d.Volumes {
			x.OSDs, x.FSType = append(x.OSDs, v.OSD), "LVM2_member"
			x.Inventory = &device.Inventory{Rejected: []string{"LVM detected"}}
		}
		devices = append(devices, x)
	}
	return devices
}

// Eventually waits until try succeeds.
func Eventually(t testing.TB, limit time.Duration, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	var err error
	for time.Now().Before(deadline) {
		if err = try(); err == nil {
			return
		}
		<-time.After(20 * time.Millisecond)
	}
	t.Fatalf("%s: not within %v: %v", what, limit, err)
}

// ErrNotYet is for tries that have nothing more to say.
var ErrNotYet = errors.New("not yet")

// Held says which OSD is on which disk ("node/sdb"), "" for blank ones.
func (w *World) Held() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := map[string]string{}
	for _, n := range w.nodes {
		for _, d := range n.Disks {
			held[n.Name+"/"+d.Name] = ""
			if d.OSD != nil {
				held[n.Name+"/"+d.Name] = fmt.Sprintf("osd.%d %s", d.OSD.ID, d.OSD.UUID)
			}
		}
	}
	return held
}

// Prepare makes an OSD on a disk, as a node does, and gives its id and uuid.
func (w *World) Prepare(ctx context.Context, node, disk, fsid string) (int, string, error) {
	uuid := w.Ceph.NewUUID()
	key, err := identity.NewKey(rand.Reader, identity.AES256K, time.Now())
	if err != nil {
		return 0, "", err
	}
	id, err := cephosd.New(w.Ceph).NewOSD(ctx, uuid, -1, cephosd.Secrets{CephxSecret: key})
	if err != nil {
		return 0, "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.nodes[node].Disks {
		if d.Name == disk {
			d.OSD = &device.OSD{ID: id, UUID: uuid, FSID: fsid, Role: device.RoleBlock}
			return id, uuid, nil
		}
	}
	return 0, "", fmt.Errorf("%s has no disk %s", node, disk)
}
