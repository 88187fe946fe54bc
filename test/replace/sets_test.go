package replace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cephv1 "github.com/castellan-storage/castellan/api/ceph/v1"
	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/osd/spec"
	"github.com/castellan-storage/castellan/test/sim"
)

// shared is a cluster with two OSDs on each disk, sealedShared the same encrypted; fast one whose databases are on a third
// disk of each node.
var (
	shared       = options{nodes: 3, disks: 2, name: "shared", change: storage("osdsPerDevice", "2")}
	fast         = options{nodes: 4, disks: 3, name: "fast", change: storage("metadataDevice", "sdd")}
	sealedShared = options{nodes: 3, disks: 2, name: "sealed and shared", change: storage("osdsPerDevice", "2", "encryptedDevice", "true")}
	sealed       = options{nodes: 4, disks: 3, name: "sealed", change: storage("metadataDevice", "sdd", "encryptedDevice", "true")}
)

func storage(kv ...string) func(*cephv1.CephCluster) {
	return func(cl *cephv1.CephCluster) {
		cl.Spec.Storage.Config = map[string]string{}
		for i := 0; i+1 < len(kv); i += 2 {
			cl.Spec.Storage.Config[kv[i]] = kv[i+1]
		}
	}
}

// sharing finds the OSDs that share the disk, or the metadata device, of an OSD.
func (b *bench) sharing(ctx context.Context, id int, on func(sim.Volume) bool) ([]int, *sim.Disk, string) {
	m, err := cephosd.New(b.ceph).Dump(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	o, _ := m.Find(id)
	for _, node := range []string{"n1", "n2", "n3", "n4"} {
		for _, d := range b.sim.Disks(node) {
			var ids []int
			mine := false
			for _, v := range d.Volumes {
				if on(v) {
					ids = append(ids, v.OSD.ID)
					mine = mine || v.OSD.UUID == o.UUID
				}
			}
			if mine {
				slices.Sort(ids)
				return ids, d, node
			}
		}
	}
	b.t.Fatalf("osd.%d is on no volume", id)
	return nil, nil, ""
}

func isBlock(v sim.Volume) bool { return v.OSD.Role == "block" }
func isDB(v sim.Volume) bool    { return v.OSD.Role == "db" }

// noteSet remembers all OSDs of a set, for which the user asks.
func (bs benches) noteSet(on func(sim.Volume) bool) kittest.Act {
	return bs.act("note the set", func(ctx context.Context, b *bench) error {
		ids, _, _ := b.sharing(ctx, 0, on)
		if len(ids) < 2 {
			return fmt.Errorf("osd.0 shares with nobody: %v", ids)
		}
		for _, id := range ids {
			b.note(ctx, id)
			b.asked[id] = true
		}
		return nil
	})
}

// set gives the ids that were noted.
func (b *bench) set() []int {
	var ids []int
	for id := range b.uuid {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// each runs f for each OSD of the set.
func (bs benches) each(name string, f func(ctx context.Context, b *bench, id int) error) kittest.Act {
	return bs.act(name, func(ctx context.Context, b *bench) error {
		for _, id := range b.set() {
			if err := f(ctx, b, id); err != nil {
				return err
			}
		}
		return nil
	})
}

func (bs benches) allAre(phase cephv1.OSDReplacementPhase, says string) kittest.Act {
	return bs.each("all are "+string(phase), func(ctx context.Context, b *bench, id int) error {
		if got := b.phase(ctx, id); !strings.HasPrefix(got, string(phase)) || !strings.Contains(got, says) {
			return fmt.Errorf("osd.%d is in %q, not in %s because of %q", id, got, phase, says)
		}
		return nil
	})
}

func (bs benches) allDone() kittest.Act {
	return bs.each("all are replaced", func(ctx context.Context, b *bench, id int) error { return b.isDone(ctx, id) })
}

func (bs benches) askAll() kittest.Act {
	return bs.each("ask for all", func(ctx context.Context, b *bench, id int) error {
		return b.change(ctx, id, func(d *appsv1.Deployment) { d.Annotations[spec.ReplaceAnnotation] = spec.Confirmation(id) })
	})
}

// askMetadata asks on osd.0 for the metadata device.
func (bs benches) askMetadata(value string) kittest.Act {
	return bs.act("ask for the metadata device: "+value, func(ctx context.Context, b *bench) error {
		if value == spec.LossConfirmation(0) {
			for _, id := range b.set() {
				b.lost[id] = true
			}
		}
		return b.change(ctx, 0, func(d *appsv1.Deployment) {
			if d.Annotations[spec.MetadataAnnotation] = value; value == "" {
				delete(d.Annotations, spec.MetadataAnnotation)
			}
		})
	})
}

// swapShared pulls the disk that the set shares and puts another into its slot.
func (bs benches) swapShared(on func(sim.Volume) bool) kittest.Act {
	return bs.act("swap the shared disk", func(_ context.Context, b *bench) error {
		node, old := b.sharedDisk(on)
		b.sim.Pull(node, old.Name)
		b.plug(node, old.Name, int(old.Name[2]-'b'))
		return nil
	})
}

// sharedDisk is the disk that carries the set, by the uuids that were noted.
func (b *bench) sharedDisk(on func(sim.Volume) bool) (string, *sim.Disk) {
	for _, node := range []string{"n1", "n2", "n3", "n4"} {
		for _, d := range b.sim.Disks(node) {
			for _, v := range d.Volumes {
				if on(v) && slices.Contains(b.uuids(), v.OSD.UUID) {
					return node, d
				}
			}
		}
	}
	b.t.Fatal("no disk carries the set")
	return "", nil
}

func (b *bench) uuids() []string {
	var all []string
	for _, u := range b.uuid {
		all = append(all, u)
	}
	return all
}

// dataOn notes where the data of the set is, or says that it is still there.
func (bs benches) dataOn(note bool) kittest.Act {
	return bs.each(fmt.Sprintf("where the data is, noted %v", note), func(ctx context.Context, b *bench, id int) error {
		m, err := cephosd.New(b.ceph).Dump(ctx)
		if err != nil {
			return err
		}
		o, _ := m.Find(id)
		_, d := b.sim.DiskOfOSD(o.UUID)
		switch {
		case d == nil:
			return fmt.Errorf("osd.%d is on no disk", id)
		case note:
			b.disk[id] = d.Serial
		case b.disk[id] != d.Serial:
			return fmt.Errorf("osd.%d was on disk %s and is on %s", id, b.disk[id], d.Serial)
		}
		return nil
	})
}

// Two OSDs on one disk: the first annotation alone is refused and names the other; both
// together are replaced as one, each on its share of the new disk.
func TestTwoOSDsOnADisk(t *testing.T) {
	bs := benches{}
	b, _ := bs.play(t, shared, bs.noteSet(isBlock),
		bs.act("ask for one", func(ctx context.Context, b *bench) error {
			return b.change(ctx, 0, func(d *appsv1.Deployment) { d.Annotations[spec.ReplaceAnnotation] = spec.Confirmation(0) })
		}),
		bs.is(0, cephv1.OSDReplacementRefused, "osd.rook.io/replace=yes-really-replace-osd-"),
		bs.askAll(), bs.allAre(cephv1.OSDReplacementReadyForSwap, "pull the disk"), bs.swapShared(isBlock), bs.allDone(),
		bs.act("they share the new disk", func(ctx context.Context, b *bench) error {
			ids, d, _ := b.sharing(ctx, 0, isBlock)
			if !slices.Equal(ids, b.set()) || len(d.Volumes) != 2 {
				return fmt.Errorf("%v on %s, and %v were on the old one", ids, d.Serial, b.set())
			}
			return nil
		}))
	if n := b.told(spec.Name(0), "OSDReplaceRefused", "its own annotation"); n != 1 {
		t.Errorf("the refusal was told %d times: %v", n, b.events)
	}
}

func TestCrashTwoOSDsOnADisk(t *testing.T) {
	for name, o := range map[string]options{"plain": shared, "encrypted": sealedShared} {
		t.Run(name, func(t *testing.T) {
			bs := benches{}
			bs.crash(t, o, bs.guard(true), bs.noteSet(isBlock), bs.askAll(), bs.allAre(cephv1.OSDReplacementReadyForSwap, "pull the disk"), bs.swapShared(isBlock), bs.allDone())
		})
	}
}

// One of two is taken back while the data moves: nothing is stopped, and what is asked for
// again is carried out.
func TestTakeBackOneOfTwo(t *testing.T) {
	bs := benches{}
	hold := bs.act("hold the recovery", func(ctx context.Context, b *bench) error { return cephosd.New(b.ceph).SetFlag(ctx, "norecover") })
	back := bs.act("take back the other", func(ctx context.Context, b *bench) error {
		if err := b.change(ctx, b.set()[1], func(d *appsv1.Deployment) { delete(d.Annotations, spec.ReplaceAnnotation) }); err != nil {
			return err
		}
		return cephosd.New(b.ceph).UnsetFlag(ctx, "norecover")
	})
	bs.play(t, shared, bs.noteSet(isBlock), hold, bs.askAll(), bs.allAre(cephv1.OSDReplacementDraining, ""), back,
		bs.act("nothing is stopped", func(ctx context.Context, b *bench) error {
			m, err := cephosd.New(b.ceph).Dump(ctx)
			a, _ := m.Find(b.set()[0])
			o, _ := m.Find(b.set()[1])
			if got := b.phase(ctx, 0); err != nil || !bool(a.Up) || bool(a.In) || !bool(o.Up) || !bool(o.In) || !strings.Contains(got, "is not to be replaced") {
				return fmt.Errorf("%+v, %+v, %q, %w", a, o, got, errors.Join(err))
			}
			return nil
		}),
		bs.askAll(), bs.allAre(cephv1.OSDReplacementReadyForSwap, "pull the disk"), bs.swapShared(isBlock), bs.allDone())
}

// A metadata device that is well is replaced: all OSDs on it are drained, destroyed and
// rebuilt with their data where it was.
func TestMetadataDevice(t *testing.T) {
	bs := benches{}
	b, _ := bs.play(t, fast, bs.noteSet(isDB), bs.dataOn(true), bs.askMetadata(spec.MetadataConfirmation(0)),
		bs.allAre(cephv1.OSDReplacementReadyForSwap, "pull the disk"), bs.swapShared(isDB), bs.allDone(), bs.dataOn(false),
		bs.act("their databases are on the new device", func(ctx context.Context, b *bench) error {
			if ids, _, _ := b.sharing(ctx, 0, isDB); !slices.Equal(ids, b.set()) {
				return fmt.Errorf("%v, want %v", ids, b.set())
			}
			return nil
		}))
	if n := b.told(spec.Name(b.set()[1]), "OSDReplaceAccepted", "osd.0"); n != 1 {
		t.Errorf("the other OSD was told %d times: %v", n, b.events)
	}
}

func TestCrashMetadataDevice(t *testing.T) {
	for name, o := range map[string]options{"plain": fast, "encrypted": sealed} {
		t.Run(name, func(t *testing.T) {
			bs := benches{}
			bs.crash(t, o, bs.guard(true), bs.noteSet(isDB), bs.dataOn(true), bs.askMetadata(spec.MetadataConfirmation(0)),
				bs.allAre(cephv1.OSDReplacementReadyForSwap, "pull the disk"), bs.swapShared(isDB), bs.allDone(), bs.dataOn(false))
		})
	}
}

// Cancelled while the data moves, the whole set is as before.
func TestMetadataCancel(t *testing.T) {
	bs := benches{}
	hold := bs.act("hold the recovery", func(ctx context.Context, b *bench) error { return cephosd.New(b.ceph).SetFlag(ctx, "norecover") })
	bs.play(t, fast, bs.noteSet(isDB), hold, bs.askMetadata(spec.MetadataConfirmation(0)), bs.allAre(cephv1.OSDReplacementDraining, ""), bs.askMetadata(""),
		bs.each("as before", func(ctx context.Context, b *bench, id int) error {
			m, err := cephosd.New(b.ceph).Dump(ctx)
			o, _ := m.Find(id)
			var d appsv1.Deployment
			if err := errors.Join(err, b.c.Get(ctx, client.ObjectKey{Namespace: b.ns, Name: spec.Name(id)}, &d)); err != nil {
				return err
			}
			if !bool(o.Up) || !bool(o.In) || o.UUID != b.uuid[id] || spec.Replacing(d.Annotations) || *d.Spec.Replicas != 1 || d.Labels["ceph.rook.io/do-not-reconcile"] != "" {
				return fmt.Errorf("osd.%d is not as before: %+v, %s", id, o, b.phase(ctx, id))
			}
			return nil
		}))
}

// lose pulls the metadata device of the set without a word.
func (bs benches) lose() kittest.Act {
	return bs.act("the metadata device dies", func(_ context.Context, b *bench) error {
		node, d := b.sharedDisk(isDB)
		b.meta, b.metaNode = d.Name, node
		b.sim.Pull(node, d.Name)
		return nil
	})
}

// minute is a minute in which nobody does anything: a device must be down for five to
// count as dead.
func (bs benches) minute() kittest.Act {
	return bs.act("a minute passes", func(context.Context, *bench) error { return nil })
}

func (bs benches) newMeta() kittest.Act {
	return bs.act("a new metadata device", func(_ context.Context, b *bench) error {
		b.plug(b.metaNode, b.meta, int(b.meta[2]-'b'))
		return nil
	})
}

// A metadata device that is dead, in a cluster that can make all data whole elsewhere: no
// loss has to be accepted.
func TestMetadataDeviceDeadAndRecovered(t *testing.T) {
	bs := benches{}
	bs.play(t, fast, bs.noteSet(isDB), bs.dataOn(true), bs.lose(), bs.askMetadata(spec.MetadataConfirmation(0)),
		bs.allAre(cephv1.OSDReplacementReadyForSwap, "pull the disk"), bs.newMeta(), bs.allDone(), bs.dataOn(false))
}

// three hosts and three copies: what was on the device can be made whole nowhere.
func three(o options) options {
	o.nodes = 3
	return o
}

// Without the second confirmation nothing is destroyed; with it the OSDs are, since their
// device is dead, and come back.
func TestMetadataDeviceDead(t *testing.T) {
	bs := benches{}
	b, _ := bs.play(t, three(fast), bs.noteSet(isDB), bs.dataOn(true), bs.lose(), bs.askMetadata(spec.MetadataConfirmation(0)),
		bs.is(0, cephv1.OSDReplacementRefused, spec.LossConfirmation(0)),
		bs.each("nothing is destroyed", func(ctx context.Context, b *bench, id int) error {
			m, err := cephosd.New(b.ceph).Dump(ctx)
			if o, _ := m.Find(id); err != nil || o.Destroyed() || o.UUID != b.uuid[id] {
				return fmt.Errorf("%+v, %w", o, err)
			}
			return nil
		}),
		bs.askMetadata(spec.LossConfirmation(0)), bs.is(0, cephv1.OSDReplacementDraining, "whether one of them comes back"), bs.minute(), bs.minute(), bs.minute(), bs.minute(), bs.minute(), bs.allAre(cephv1.OSDReplacementReadyForSwap, "pull the disk"), bs.newMeta(), bs.allDone(), bs.dataOn(false))
	if n := b.told(spec.Name(0), "OSDReplaceDestroyedUnsafely", "dead"); n != 1 {
		t.Errorf("told %d times: %v", n, b.events)
	}
}

func TestCrashMetadataDeviceDead(t *testing.T) {
	bs := benches{}
	bs.crash(t, three(fast), bs.guard(true), bs.noteSet(isDB), bs.dataOn(true), bs.lose(), bs.askMetadata(spec.LossConfirmation(0)), bs.minute(), bs.minute(), bs.minute(), bs.minute(), bs.minute(),
		bs.allAre(cephv1.OSDReplacementReadyForSwap, "pull the disk"), bs.newMeta(), bs.allDone(), bs.dataOn(false))
}

// The second confirmation is worth nothing while the device lives, whatever the room.
func TestLossIsNotAcceptedOfALivingDevice(t *testing.T) {
	bs := benches{}
	bs.play(t, three(fast), bs.noteSet(isDB), bs.act("accepted too early", func(ctx context.Context, b *bench) error {
		return b.change(ctx, 0, func(d *appsv1.Deployment) { d.Annotations[spec.MetadataAnnotation] = spec.LossConfirmation(0) })
	}), bs.is(0, cephv1.OSDReplacementRefused, "only 2 are left"),
		bs.each("all run", func(ctx context.Context, b *bench, id int) error {
			m, err := cephosd.New(b.ceph).Dump(ctx)
			if o, _ := m.Find(id); err != nil || !bool(o.Up) || !bool(o.In) {
				return fmt.Errorf("%+v, %w", o, err)
			}
			return nil
		}))
}
