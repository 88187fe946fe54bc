package replace

import (
	"context"
	"fmt"
	"maps"
	"slices"

	cephosd "github.com/castellan-storage/castellan/internal/ceph/osd"
	"github.com/castellan-storage/castellan/internal/kit/kittest"
	"github.com/castellan-storage/castellan/internal/node/device"
)

// keeper is what a replacement must leave as it was, looked at after every effect and every
// step of the world: who is in CRUSH and where (D6), what is on disks that stay (D5), and
// everything about OSDs of which the user has said nothing.
type keeper struct {
	places map[int]string
	uuids  map[int]string
	// fresh are the new uuids; with once, an OSD has one new uuid and no other.
	fresh map[int]string
	once  bool
	// free are OSDs whose ids may go, and come again with their place.
	free []int
	// held is what was on each disk, by serial.
	held map[string][]held
}

// held is an OSD, or its volume, on a disk.
type held struct {
	id               int
	uuid, vol, where string
	role             device.Role
}

func (h held) String() string {
	return fmt.Sprintf("%s of osd.%d (%s, %s %s)", h.role, h.id, h.uuid, h.where, h.vol)
}

// guard begins to look. With once, whoever makes a new OSD a second time is found out too:
// for replacements in which no attempt fails. The ids of free OSDs may leave the maps: those
// that are given up, or that a failed attempt takes out.
func (bs benches) guard(once bool, free ...int) kittest.Act {
	return bs.look("guard", func(ctx context.Context, b *bench) error {
		g := &keeper{places: map[int]string{}, uuids: map[int]string{}, fresh: map[int]string{}, once: once, free: free, held: b.held()}
		m, places, err := b.places(ctx)
		if err != nil {
			return err
		}
		for _, o := range m.OSDs {
			g.places[o.ID], g.uuids[o.ID] = places[o.ID], o.UUID
		}
		if len(g.places) == 0 || len(g.held) == 0 {
			return fmt.Errorf("nothing to guard: %d OSDs on %d disks", len(g.places), len(g.held))
		}
		b.keeper = g
		return nil
	})
}

// places are CRUSH weight, class and bucket of each OSD.
func (b *bench) places(ctx context.Context) (cephosd.Map, map[int]string, error) {
	m, err := cephosd.New(b.ceph).Dump(ctx)
	if err != nil {
		return m, nil, err
	}
	tree, err := cephosd.New(b.ceph).Tree(ctx)
	if err != nil {
		return m, nil, err
	}
	all := map[int]string{}
	for _, o := range m.OSDs {
		n, _ := tree.OSD(o.ID)
		all[o.ID] = fmt.Sprint(place{n.CrushWeight, n.DeviceClass, tree.Location(o.ID)})
	}
	return m, all, nil
}

// held is what is on the disks of all nodes.
func (b *bench) held() map[string][]held {
	all := map[string][]held{}
	for _, node := range []string{"n1", "n2", "n3", "n4"} {
		for _, d := range b.sim.Disks(node) {
			if d.OSD != nil {
				all[d.Serial] = append(all[d.Serial], held{id: d.OSD.ID, uuid: d.OSD.UUID, role: d.OSD.Role, where: "raw"})
			}
			for _, v := range d.Volumes {
				all[d.Serial] = append(all[d.Serial], held{v.OSD.ID, v.OSD.UUID, v.UUID, v.VG + "/" + v.Name, v.OSD.Role})
			}
		}
	}
	return all
}

// watch looks.
func (g *keeper) watch(ctx context.Context, b *bench) {
	m, places, err := b.places(ctx)
	if err != nil {
		b.say("looking at the OSDs: %v", err)
		return
	}
	for _, o := range m.OSDs {
		if _, known := g.places[o.ID]; !known {
			b.say("D5: osd.%d (%s) was made, and nobody is without an OSD", o.ID, o.UUID)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(g.places)) {
		o, exists := m.Find(id)
		switch {
		case !exists && slices.Contains(g.free, id):
			continue
		case slices.Contains(g.free, id):
			// Its place is looked at in the end.
		case !exists:
			b.say("D6: osd.%d is not in the OSD map", id)
			continue
		case places[id] != g.places[id]:
			b.say("D6: osd.%d was %s in CRUSH and is %s", id, g.places[id], places[id])
		}
		if o.UUID == g.uuids[id] || o.Destroyed() && b.asked[id] {
			continue
		}
		if !b.asked[id] {
			b.say("D5: osd.%d had the uuid %s and has %s, state %v, and nobody has asked for that", id, g.uuids[id], o.UUID, o.State)
		}
		if was := g.fresh[id]; g.once && was != "" && was != o.UUID {
			b.say("osd.%d was made twice: %s and %s", id, was, o.UUID)
		}
		g.fresh[id] = o.UUID
	}
	g.disks(b)
}

// disks: what belongs to OSDs that are not replaced stays to the byte, and nothing comes to
// a disk but what is replaced, and what it was there before.
func (g *keeper) disks(b *bench) {
	for serial, now := range b.held() {
		was := g.held[serial]
		for _, h := range was {
			if !b.asked[h.id] && !slices.Contains(now, h) {
				b.say("D5: disk %s has %v no more", serial, h)
			}
		}
		for _, h := range now {
			switch {
			case slices.Contains(was, h):
			case !b.asked[h.id]:
				b.say("D5: disk %s was given %v, and nobody has asked for that", serial, h)
			case len(was) > 0 && !slices.ContainsFunc(was, func(o held) bool { return o.id == h.id && o.role == h.role }):
				b.say("D5: disk %s, which is others', was given %v: %v", serial, h, was)
			}
		}
	}
}

// fork is a copy.
func (g *keeper) fork() *keeper {
	if g == nil {
		return nil
	}
	f := *g
	f.fresh = maps.Clone(g.fresh)
	return &f
}
