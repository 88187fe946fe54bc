package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/castellan-storage/castellan/lab/cluster/control"
	"github.com/castellan-storage/castellan/lab/cluster/pki"
	"github.com/castellan-storage/castellan/lab/disk"
	"github.com/castellan-storage/castellan/lab/image"
	"github.com/castellan-storage/castellan/lab/network"
	"github.com/castellan-storage/castellan/lab/node"
	"github.com/castellan-storage/castellan/lab/node/proc"
)

// labNode is a node of a running lab.
type labNode struct {
	plan    network.Node
	kubelet pki.Pair

	op sync.Mutex // one change at a time

	// Guarded by supervisor.mu.
	child       *proc.Child
	hostPid     int
	partitioned bool
	exited      []string
	disks       []*plugged
	started     chan error // gets one value when its programs run or cannot
}

// plugged is a disk in a node.
type plugged struct {
	disk.Disk
	loop  *disk.Loop
	image string
}

// outfit gives a new node its images and disks.
func (s *supervisor) outfit(n *labNode) error {
	dir := nodeDir(s.dir, n.plan.Name)
	root := node.ContainerdRoot(dir)
	if err := os.MkdirAll(filepath.Dir(root), 0o755); err != nil {
		return fmt.Errorf("making room for %s: %w", n.plan.Name, err)
	}
	if err := image.SeedRoot(s.Options.Paths.Golden, root); err != nil {
		return fmt.Errorf("giving %s its images: %w", n.plan.Name, err)
	}
	for slot := 1; slot <= s.Options.Disks; slot++ {
		if _, err := s.plugIn(n, s.Options.DiskSize, slot); err != nil {
			return err
		}
	}
	return nil
}

// startNode boots a node that does not run. What it kept of an earlier run is
// in its directory.
func (s *supervisor) startNode(n *labNode) error {
	var all []network.Node
	for _, o := range s.nodes {
		all = append(all, o.plan)
	}
	id := sha256.Sum256([]byte(s.Lab.ID + n.plan.Name))
	spec := node.Spec{
		Name: n.plan.Name, MachineID: hex.EncodeToString(id[:16]), Dir: nodeDir(s.dir, n.plan.Name),
		Addr: n.plan.Addr, PodCIDR: n.plan.PodCIDR, Routes: network.NodeRoutes(n.plan, all), Server: nodeServerURL(s.Port),
		Bin: s.Options.Paths.Bin, CNI: s.Options.Paths.CNI, Pause: s.Options.Paths.Pause,
		CA: s.ids.ca.Cert, Kubelet: n.kubelet, Proxy: s.ids.proxy,
		Disks: s.disksOf(n), Cgroups: s.hierarchies,
	}
	child, reports, err := node.Start(s.group, spec, s.cgroup(n.plan.Name), func(pid int) error { return network.Plug(n.plan, pid) })
	if err != nil {
		return err
	}
	host, err := hostPid(child.Pid)
	if err != nil {
		return errors.Join(err, child.Kill(syscall.SIGKILL))
	}
	started := make(chan error, 1)
	s.mu.Lock()
	n.child, n.hostPid, n.partitioned, n.exited, n.started = child, host, false, nil, started
	s.mu.Unlock()
	go s.listen(n, child, reports, started)
	return s.setRoutes()
}

// listen takes what a node reports until it has ended.
func (s *supervisor) listen(n *labNode, child *proc.Child, reports <-chan node.Report, started chan<- error) {
	for r := range reports {
		switch {
		case r.Started:
			started <- nil
		case r.Error != "":
			s.fail(fmt.Errorf("starting %s: %s", n.plan.Name, r.Error))
			started <- errors.New(r.Error)
		case r.Exited != "":
			log.Printf("%s: %s", n.plan.Name, r.Exited)
			s.fail(fmt.Errorf("starting %s: %s", n.plan.Name, r.Exited))
			s.mu.Lock()
			if n.child == child {
				n.exited = append(n.exited, r.Exited)
			}
			s.mu.Unlock()
		}
	}
	<-child.Done()
	log.Print(child.Exit())
	s.fail(fmt.Errorf("starting %s: it ended: %s", n.plan.Name, lastLines(filepath.Join(nodeDir(s.dir, n.plan.Name), "init.log"))))
	select {
	case started <- errors.New("it ended"):
	default:
	}
}

func (n *labNode) waitStarted(ctx context.Context) error {
	select {
	case err := <-n.started:
		if err != nil {
			return fmt.Errorf("starting %s: %w", n.plan.Name, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("starting %s: %w", n.plan.Name, ctx.Err())
	}
}

// setRoutes makes the lab's namespace route to the nodes that run.
func (s *supervisor) setRoutes() error {
	var running, all []network.Node
	s.mu.Lock()
	for _, n := range s.nodes {
		all = append(all, n.plan)
		if n.runs() {
			running = append(running, n.plan)
		}
	}
	s.mu.Unlock()
	return network.SetControlRoutes(running, all)
}

// runs reports whether the node is on; the caller holds supervisor.mu.
func (n *labNode) runs() bool { return n.child != nil && n.child.Alive() }

func (n *labNode) state() string {
	switch {
	case !n.runs():
		return control.Stopped
	case n.partitioned:
		return control.Partitioned
	default:
		return control.Running
	}
}

// nodeVerb does what control.Client.Node asks for.
func (s *supervisor) nodeVerb(ctx context.Context, name, verb string) error {
	n, err := s.find(name)
	if err != nil {
		return err
	}
	n.op.Lock()
	defer n.op.Unlock()
	s.mu.Lock()
	now := n.state()
	s.mu.Unlock()
	refuse := func(why string) error { return fmt.Errorf("%s is %s: %s", name, now, why) }
	switch verb {
	case control.Stop:
		if now == control.Stopped {
			return refuse("nothing to stop")
		}
		return s.stopNode(ctx, n)
	case control.Start:
		if now != control.Stopped {
			return refuse("nothing to start")
		}
		if err := s.startNode(n); err != nil {
			return err
		}
		return n.waitStarted(ctx)
	case control.Partition:
		if now != control.Running {
			return refuse("only a running node can be cut off")
		}
		return s.setPartitioned(n, true, network.Partition)
	case control.Heal:
		if now != control.Partitioned {
			return refuse("nothing to heal")
		}
		return s.setPartitioned(n, false, network.Heal)
	default:
		return fmt.Errorf("no such thing as to %s a node", verb)
	}
}

func (s *supervisor) setPartitioned(n *labNode, on bool, do func(network.Node) error) error {
	if err := do(n.plan); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n.partitioned = on
	return nil
}

// stopNode cuts a node's power: its processes end without a chance to do
// anything.
func (s *supervisor) stopNode(ctx context.Context, n *labNode) error {
	if err := n.child.Kill(syscall.SIGKILL); err != nil {
		return err
	}
	select {
	case <-n.child.Done():
	case <-ctx.Done():
		return fmt.Errorf("stopping %s: %w", n.plan.Name, ctx.Err())
	}
	ctx, cancel := context.WithTimeout(ctx, clearLimit)
	defer cancel()
	return errors.Join(network.Unplug(n.plan), s.setRoutes(), s.cgroup(n.plan.Name).Remove(ctx), detachOver(s.disksOf(n)))
}

// detachOver detaches the loop devices that a node's kubelet put over its
// disks to hold block volumes: they would not survive on a machine either.
func detachOver(disks []disk.Disk) error {
	all, err := disk.ListAttached()
	if err != nil {
		return err
	}
	var errs []error
	for _, a := range all {
		if slices.ContainsFunc(disks, func(d disk.Disk) bool { return d.Number == a.Over }) {
			errs = append(errs, disk.Detach(a.Number))
		}
	}
	return errors.Join(errs...)
}

func (s *supervisor) find(name string) (*labNode, error) {
	for _, n := range s.nodes {
		if n.plan.Name == name {
			return n, nil
		}
	}
	return nil, fmt.Errorf("no node %s: there are node1 to node%d", name, len(s.nodes))
}

func (s *supervisor) disksOf(n *labNode) []disk.Disk {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []disk.Disk
	for _, d := range n.disks {
		out = append(out, d.Disk)
	}
	return out
}

// rootOf is the way to a running node's files; "" for one that is off.
func (s *supervisor) rootOf(n *labNode) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !n.runs() {
		return ""
	}
	return "/proc/" + strconv.Itoa(n.hostPid) + "/root"
}

// plugIn puts a blank disk into a slot; 0 is the first free one.
func (s *supervisor) plugIn(n *labNode, size int64, slot int) (disk.Disk, error) {
	have := s.disksOf(n)
	if slot == 0 {
		slot = disk.FreeSlot(have)
	}
	for _, d := range have {
		if d.Slot == slot {
			return disk.Disk{}, fmt.Errorf("slot %d of %s holds disk %s", slot, n.plan.Name, d.Serial)
		}
	}
	p := &plugged{Disk: disk.Disk{Slot: slot, Serial: disk.NewSerial(), Size: size}}
	dir := filepath.Join(nodeDir(s.dir, n.plan.Name), "disks")
	p.image = filepath.Join(dir, p.Serial+".img")
	if err := makeSparse(p.image, size); err != nil {
		return disk.Disk{}, err
	}
	loop, err := disk.Attach(p.image)
	if err != nil {
		return disk.Disk{}, errors.Join(err, os.Remove(p.image))
	}
	p.loop, p.Number = loop, loop.Number
	if root := s.rootOf(n); root != "" {
		if err := disk.Expose(root, p.Disk); err != nil {
			return disk.Disk{}, errors.Join(err, disk.Hide(root, p.Disk), loop.Close(), os.Remove(p.image))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n.disks = append(n.disks, p)
	slices.SortFunc(n.disks, func(a, b *plugged) int { return a.Slot - b.Slot })
	return p.Disk, nil
}

func makeSparse(path string, size int64) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("making a disk: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("making a disk: %w", err)
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return fmt.Errorf("making a disk: %w", errors.Join(err, os.Remove(path)))
	}
	return nil
}

// pullOut takes a disk out of a node: it disappears from the node, and for who
// has it open it fails.
func (s *supervisor) pullOut(n *labNode, what string) (disk.Disk, error) {
	d, ok := disk.Find(s.disksOf(n), what)
	if !ok {
		return disk.Disk{}, fmt.Errorf("%s has no disk %s: castellan-lab disk list shows what it has", n.plan.Name, what)
	}
	var p *plugged
	s.mu.Lock()
	n.disks = slices.DeleteFunc(n.disks, func(q *plugged) bool {
		if q.Serial == d.Serial {
			p = q
		}
		return q.Serial == d.Serial
	})
	s.mu.Unlock()
	var errs []error
	if root := s.rootOf(n); root != "" {
		errs = append(errs, disk.Hide(root, d))
	}
	errs = append(errs, p.loop.Fail(), p.loop.Close(), os.Remove(p.image))
	return d, errors.Join(errs...)
}

// swap does what control.Client.SwapDisk asks for.
func (s *supervisor) swap(n *labNode, what string, sw control.Swap) (disk.Disk, error) {
	old, ok := disk.Find(s.disksOf(n), what)
	if !ok {
		return disk.Disk{}, fmt.Errorf("%s has no disk %s: castellan-lab disk list shows what it has", n.plan.Name, what)
	}
	slot := sw.Slot
	switch {
	case sw.OtherSlot:
		slot = disk.FreeSlot(s.disksOf(n))
	case slot == 0:
		slot = old.Slot
	}
	for _, d := range s.disksOf(n) {
		if d.Slot == slot && d.Serial != old.Serial {
			return disk.Disk{}, fmt.Errorf("slot %d of %s holds disk %s", slot, n.plan.Name, d.Serial)
		}
	}
	size := sw.Size
	if size == 0 {
		size = old.Size
	}
	if _, err := s.pullOut(n, old.Serial); err != nil {
		return disk.Disk{}, err
	}
	return s.plugIn(n, size, slot)
}

// clearLimit bounds how long the kernel may take to let go of what ended.
const clearLimit = 20 * time.Second
