package sim

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/castellan-storage/castellan/internal/ceph"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/cluster/identity"
	"github.com/castellan-storage/castellan/internal/node/choice"
	"github.com/castellan-storage/castellan/internal/node/device"
	"github.com/castellan-storage/castellan/internal/node/inspect"
	"github.com/castellan-storage/castellan/internal/node/prepare"
	"github.com/castellan-storage/castellan/internal/node/provision"
	"github.com/castellan-storage/castellan/internal/node/request"
	"github.com/castellan-storage/castellan/internal/node/statusmap"
	"github.com/castellan-storage/castellan/internal/node/swap"
)

// Replacements is what a test may do to the nodes' part of a replacement.
type Replacements struct {
	// FailMake makes the next preparations of new disks fail with this message; the slot
	// stays as it was, or is taken out of Ceph's maps as ceph-volume's rollback does.
	FailMake []Failure
	// FailClose makes the next closings of mappings fail.
	FailClose int
	// Made are the devices that OSDs were made on, in order; Closed are the OSDs whose
	// mappings were closed, Zapped those whose volumes were removed.
	Made           []string
	Closed, Zapped []int
}

// Failure of a preparation.
type Failure struct {
	Message string
	// Gone takes the id out of the maps; Claimed leaves it to an OSD that is on no disk, as
	// when ceph-volume dies before it can roll back.
	Gone, Claimed bool
}

// Replacing gives f the part of the nodes in replacements, locked.
func (w *World) Replacing(f func(r *Replacements)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.replacements)
	w.told.Store(true)
}

// Pull takes a disk out of a node. Whatever used it is dead.
func (w *World) Pull(node, name string) *Disk {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.nodes[node]
	for i, d := range n.Disks {
		if d.Name == name {
			n.Disks = slices.Delete(n.Disks, i, i+1)
			w.told.Store(true)
			return d
		}
	}
	w.t.Fatalf("node %s has no disk %s", node, name)
	return nil
}

// Put puts a disk back into a node.
func (w *World) Put(node string, d *Disk) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes[node].Disks = append(w.nodes[node].Disks, d)
	w.told.Store(true)
}

// DiskOfOSD gives the node and the disk on which an OSD of that uuid is.
func (w *World) DiskOfOSD(uuid string) (node string, d *Disk) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		for _, d := range n.Disks {
			if d.OSD != nil && d.OSD.UUID == uuid || d.volume(uuid, device.RoleBlock) != nil {
				return n.Name, d
			}
		}
	}
	return "", nil
}

// replaceJob runs the Jobs of replacements; false for all others.
func (w *World) replaceJob(ctx context.Context, j *batchv1.Job, pod *corev1.Pod) (bool, error) {
	w.mu.Lock()
	node := w.nodes[pod.Spec.NodeName]
	dead := node == nil || !node.Alive
	w.mu.Unlock()
	value := ""
	for _, e := range pod.Spec.Containers[0].Env {
		if e.Name == request.Env {
			value = e.Value
		}
	}
	switch j.Labels["app"] {
	case "rook-ceph-osd-watch":
		if dead {
			return true, nil
		}
		return true, w.watchJob(ctx, j, node, value)
	case "rook-ceph-osd-crypt-close":
		if dead {
			return true, nil
		}
		var req request.Close
		if err := request.Decode(value, &req); err != nil {
			return true, err
		}
		w.mu.Lock()
		fails := w.replacements.FailClose > 0
		if fails {
			w.replacements.FailClose--
		} else {
			w.replacements.Closed = append(w.replacements.Closed, req.OSD)
		}
		w.mu.Unlock()
		return true, w.endJob(ctx, j, !fails)
	case "rook-ceph-osd-zap":
		if dead {
			return true, nil
		}
		var req request.Zap
		if err := request.Decode(value, &req); err != nil {
			return true, err
		}
		w.mu.Lock()
		w.replacements.Zapped = append(w.replacements.Zapped, req.OSD)
		node.zap(req)
		w.mu.Unlock()
		return true, w.endJob(ctx, j, true)
	case "rook-ceph-osd-replace":
		if dead {
			return true, nil
		}
		return true, w.makeJob(ctx, j, node, value)
	}
	return false, nil
}

// watchJob ends when the disks are others than the request knows.
func (w *World) watchJob(ctx context.Context, j *batchv1.Job, node *Node, value string) error {
	var req request.Watch
	if err := request.Decode(value, &req); err != nil {
		return err
	}
	w.mu.Lock()
	var now []string
	for _, d := range node.Disks {
		now = append(now, swap.Known(d.Path, d.Serial, d.Size))
	}
	w.mu.Unlock()
	slices.Sort(now)
	if slices.Equal(now, req.Known) {
		return nil
	}
	return w.endJob(ctx, j, true)
}

// makeJob makes the OSD on the new disk, as castellan-node replace does.
func (w *World) makeJob(ctx context.Context, j *batchv1.Job, node *Node, value string) error {
	var req request.Replace
	if err := request.Decode(value, &req); err != nil {
		return err
	}
	replaced := request.Replaced{OSD: req.OSD, OldUUID: req.OldUUID, Device: req.Device, Serial: req.Serial, Result: request.Failed, Slot: request.SlotDestroyed}
	err := w.make(ctx, node, req, &replaced)
	if err != nil {
		replaced.Message = err.Error()
	} else {
		replaced.Result = request.Done
	}
	report := provision.Report{State: provision.Completed}
	w.mu.Lock()
	osds, _ := provision.Living(inspect.Result{Found: found(node), Devices: w.look(node)}, req.FSID, append(req.Pending, swap.Pending{OSD: req.OSD, UUID: req.OldUUID}))
	w.mu.Unlock()
	report.OSDs = osds
	m, merr := statusmap.Map(statusmap.Target{Namespace: req.Namespace, Name: req.ConfigMap, Node: req.Node, Labels: req.Labels}, report)
	if merr != nil {
		return merr
	}
	data, _ := m["data"].(map[string]any)
	b, _ := json.Marshal(replaced)
	data[request.ReplacedKey] = string(b)
	// What the last look has found of devices stays.
	var cm corev1.ConfigMap
	if gerr := w.c.Get(ctx, client.ObjectKey{Namespace: req.Namespace, Name: req.ConfigMap}, &cm); gerr == nil {
		for _, k := range []string{"devices", "swaps"} {
			if v := cm.Data[k]; v != "" {
				data[k] = v
			}
		}
	}
	if aerr := apply(ctx, w.c, m); aerr != nil {
		return aerr
	}
	return w.endJob(ctx, j, err == nil)
}

func (w *World) make(ctx context.Context, node *Node, req request.Replace, replaced *request.Replaced) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var disk *Disk
	for _, d := range node.Disks {
		if d.Answers(req.Device) {
			disk = d
		}
	}
	m, err := cephosd.New(w.Ceph).Dump(ctx)
	if err != nil {
		return err
	}
	o, exists := m.Find(req.OSD)
	claimed := exists && !o.Destroyed() && o.UUID != req.OldUUID
	if claimed && slices.ContainsFunc(found(node), func(f device.Found) bool { return f.ID == req.OSD && f.UUID == o.UUID && f.Role == device.RoleBlock }) {
		replaced.UUID, replaced.Slot, replaced.SlotUUID = o.UUID, request.SlotNew, o.UUID // made by an earlier run
		return nil
	}
	if claimed {
		replaced.Result, replaced.Reason, replaced.Slot, replaced.SlotUUID = request.Refused, request.SlotClaimed, request.SlotNew, o.UUID
	}
	switch {
	case disk == nil:
		return fmt.Errorf("there is no disk %s", req.Device)
	case disk.OSD != nil || len(disk.Volumes) > 0 && req.Data == nil && len(req.Set) == 0:
		return fmt.Errorf("%s carries an OSD", req.Device)
	case req.Serial != "" && req.Serial != disk.Serial:
		return fmt.Errorf("%s has serial %s, not %s", req.Device, disk.Serial, req.Serial)
	case disk.Size < req.MinSize:
		return fmt.Errorf("%s is too small", req.Device)
	case exists && !o.Destroyed():
		return fmt.Errorf("osd.%d is not destroyed", req.OSD)
	}
	uuid := w.Ceph.NewUUID()
	key, err := identity.NewKey(rand.Reader, identity.AES256K, time.Now())
	if err != nil {
		return err
	}
	if f := w.replacements.FailMake; len(f) > 0 {
		w.replacements.FailMake = f[1:]
		return w.fail(ctx, f[0], req.OSD, uuid, key, replaced)
	}
	if req.Data != nil || len(req.Set) > 0 || req.DB != nil {
		return w.rebuild(ctx, node, disk, req, uuid, key, replaced)
	}
	if _, err := cephosd.New(w.Ceph).NewOSD(ctx, uuid, req.OSD, cephosd.Secrets{CephxSecret: key}); err != nil {
		return err
	}
	disk.OSD = &device.OSD{ID: req.OSD, UUID: uuid, FSID: req.FSID, Role: device.RoleBlock}
	disk.Encrypted = req.Encrypted
	replaced.UUID = uuid
	w.replacements.Made = append(w.replacements.Made, disk.Serial)
	return nil
}

// fail is a preparation that fails, and what it leaves of the slot.
func (w *World) fail(ctx context.Context, f Failure, id int, uuid string, key ceph.Secret, replaced *request.Replaced) error {
	switch {
	case f.Gone:
		replaced.Slot = request.SlotGone
		if err := cephosd.New(w.Ceph).PurgeUnchecked(ctx, id); err != nil {
			return err
		}
	case f.Claimed:
		replaced.Slot, replaced.SlotUUID = request.SlotNew, uuid
		if _, err := cephosd.New(w.Ceph).NewOSD(ctx, uuid, id, cephosd.Secrets{CephxSecret: key}); err != nil {
			return err
		}
	}
	return errors.New(f.Message)
}

// found lists what is on a node's disks.
func found(node *Node) []device.Found {
	var out []device.Found
	for _, d := range node.Disks {
		for _, v := range d.Volumes {
			out = append(out, device.Found{OSD: v.OSD, Path: "/dev/" + v.VG + "/" + v.Name, Mode: "lvm", Encrypted: v.Encrypted,
				VG: v.VG, LV: v.Name, LVUUID: v.UUID, LVSize: v.Size, Devices: []string{d.Path}})
		}
		if d.OSD == nil {
			continue
		}
		mode := "raw"
		if d.Encrypted {
			mode = "lvm"
		}
		out = append(out, device.Found{OSD: *d.OSD, Path: d.Path, Mode: mode, Encrypted: d.Encrypted})
	}
	return out
}

// pendingFacts adds what replacements hold to the facts of a choice.
func pendingFacts(facts choice.Facts, req request.Provision, devices []device.Device) (choice.Facts, *swap.Outcome) {
	if len(req.Pending) == 0 {
		return facts, nil
	}
	out := swap.Find(req.Pending, devices)
	held := map[string]string{}
	for k, v := range out.Reserved {
		held[k] = v
	}
	for k, v := range req.Reserved {
		held[k] = v
	}
	facts.Reserved = held
	return facts, &out
}

// living drops the old OSDs of pending replacements.
func living(results []prepare.Result, slots []swap.Pending) []prepare.Result {
	old := swap.OldUUIDs(slots)
	return slices.DeleteFunc(results, func(r prepare.Result) bool { return slices.Contains(old, r.UUID) })
}
